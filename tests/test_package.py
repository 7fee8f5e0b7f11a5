"""Importing the package: light, lazy, and without side effects."""

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxprivnb

OPTIONAL = (
    "matplotlib", "rich", "pyarrow", "scipy", "opendp", "sklearn", "arviz", "pandas", "xarray",
    "dask", "distributed", "fsspec", "hypothesis", "pytest",
)  # fmt: skip


def run(code):
    """What `code` prints as JSON, in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_is_lazy():
    loaded = run(
        "import json, sys, jaxprivnb; "
        "print(json.dumps([m for m in ('jax', 'numpy', 'optax') if m in sys.modules]))"
    )
    assert loaded == []


def test_every_name_needs_only_the_core_and_changes_no_configuration():
    # jax needs scipy itself, so only our own imports of it can be refused.
    out = run(f"""
import builtins, json, sys
import jax, optax
before = {{k: repr(v) for k, v in jax.config.values.items()}}
optional = {OPTIONAL!r}
real_import = builtins.__import__
refused = []
def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {{}}).get("__name__", "")
    if level == 0 and name.split(".")[0] in optional and importer.startswith("jaxprivnb"):
        refused.append((importer, name))
        raise ImportError(f"{{name}} is not installed")
    return real_import(name, globals, locals, fromlist, level)
builtins.__import__ = guarded
import jaxprivnb
for name in jaxprivnb.__all__:
    getattr(jaxprivnb, name)
import jaxprivnb.cli
changed = [k for k, v in jax.config.values.items() if repr(v) != before.get(k)]
print(json.dumps({{"refused": refused, "changed": changed}}))
""")
    assert out == {"refused": [], "changed": []}


def test_every_public_name_resolves_and_is_listed():
    assert set(jaxprivnb.__all__) <= set(dir(jaxprivnb))
    for name in jaxprivnb.__all__:
        assert getattr(jaxprivnb, name) is not None
    assert len(set(jaxprivnb.__all__)) == len(jaxprivnb.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'jaxprivnb' has no attribute 'fit_vbb'"):
        _ = jaxprivnb.fit_vbb


@pytest.mark.parametrize("first", ["jaxprivnb.simulation", "jaxprivnb.study.compute"])
def test_a_submodule_does_not_take_the_name_of_a_function(first):
    out = run(
        f"import importlib, json, jaxprivnb; importlib.import_module({first!r}); "
        "print(json.dumps([type(jaxprivnb.simulate).__name__, callable(jaxprivnb.simulate)]))"
    )
    assert out == ["function", True]


def test_the_version_is_the_one_installed():
    assert jaxprivnb.__version__.count(".") >= 1
    try:
        installed = importlib.metadata.version("jaxprivnb")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("running from a source tree that is not installed")
    assert installed == jaxprivnb.__version__


def test_the_citation_is_of_this_version():
    text = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", text, re.MULTILINE)[1] == jaxprivnb.__version__


def test_status_codes_are_ordered_and_documented():
    codes = [int(s) for s in jaxprivnb.Status]
    assert codes == list(range(len(codes)))
    assert jaxprivnb.Status.SUCCESS == 0
    assert max(jaxprivnb.Status.BAD_INPUT, jaxprivnb.Status.BOUNDARY) is jaxprivnb.Status.BAD_INPUT
