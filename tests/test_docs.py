"""The documentation: every example runs, every link leads somewhere, every name is described."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import doc_pages
import pytest

import jaxprivnb

ROOT = doc_pages.ROOT
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("**/*.md"))]
PAGES = [p for p in PAGES if "_build" not in p.parts]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
_BUILD = "-m sphinx -W -n --keep-going -q -b html -d"


def test_every_example_runs_and_prints_what_is_shown(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "tests" / "doc_pages.py", *PAGES],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = dict(re.findall(r"([\w-]+)\.md: (\d+) examples", done.stdout))
    assert set(ran) == {p.stem for p in PAGES}
    for page in ("README", "index", "method", "exact", "choosing", "privacy", "studies", "extend"):
        assert int(ran[page]) > 0


def test_the_readme_defines_what_its_examples_use():
    text = (ROOT / "README.md").read_text()
    hidden = re.findall(r"<!-- setup\n(.*?)\n-->", text, re.DOTALL)
    seen = re.sub(r"<!-- setup\n.*?\n-->", "", text, flags=re.DOTALL)
    shown = [b.text for b in doc_pages.blocks(seen) if b.language == "python"]
    shown = [text for text in shown if ">>>" not in text]

    def names(sources, kind):
        nodes = [n for source in sources for n in ast.walk(ast.parse(source))]
        return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}

    unseen = names(hidden, ast.Store) - names(shown, ast.Store)
    assert not unseen & names(shown, ast.Load)


def test_float64_is_on_the_first_screen():
    first = (ROOT / "README.md").read_text().split("## Use")[0]
    assert "jax_enable_x64" in first


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site, built as `make docs` does: a warning is an error, so no reference is broken."""
    pytest.importorskip("furo")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        (sys.executable, *_BUILD.split(), out / "trees", DOCS, out / "html"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


def test_the_site_builds_and_describes_every_public_name(built):
    from sphinx.util.inventory import InventoryFile

    with open(built / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    described = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    missing = [n for n in dir(jaxprivnb) if f"jaxprivnb.{n}" not in described]
    assert missing == []
    commands = (built / "api" / "commands.html").read_text()
    commands_known = (
        "figure1", "study", "summary", "plot", "plan", "release", "fit", "synthesize", "report",
    )  # fmt: skip
    for command in commands_known:
        assert f"usage: jaxprivnb {command}" in commands


def test_the_site_needs_no_network(built):
    pages = list(built.rglob("*.html"))
    loaded = r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"'](?:https?:)?//[^\"']*"
    assert not [found for page in pages for found in re.findall(loaded, page.read_text())]
    for name in ("method", "exact"):
        text = (built / f"{name}.html").read_text()
        assert text.count("<math") > 20
        assert not re.search(r"\\\(|\\\[|\\frac", text), "raw LaTeX"


@pytest.mark.parametrize("page", LINKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    text = page.read_text()
    for aside in (r"^```.*?^```", r"\$\$.*?\$\$", r"\$[^$]*\$"):  # code and formulas
        text = re.sub(aside, "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("#", "http://", "https://")):
            continue
        path = page.parent / target.partition("#")[0]
        assert path.is_file(), f"{page.name} links to {target}"


def test_the_files_that_contributors_are_sent_to_exist():
    named = re.findall(
        r"`((?:\w[\w-]*|\.github|\.ci)/[\w./-]*)`", (ROOT / "CONTRIBUTING.md").read_text()
    )
    named = [name for name in named if name != "bench/NAME.py"]
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        ("```python\n>>> 1 + 1\n3\n```", "Expected:"),
        ("```console\n$ jaxprivnb --version\njaxprivnb 9\n```", "but prints"),
        ("```console\n$ jaxprivnb study nowhere.toml --out x\n```", "exits with 2"),
        ("```\njaxprivnb nonsense\n```", "exits with 2"),
        ("```\nmake nonsense\n```", "the Makefile has"),
        ('```\npip install "jaxprivnb[nonsense]"\n```', "no extra 'nonsense'"),
        ("```\nrm -r /\n```", "nobody knows how to run"),
        ("```ruby\nputs 1\n```", "nobody knows how to run 'ruby'"),
        ("```python\nx = 1\n", "not ended"),
    ],
)
def test_a_wrong_example_is_found(tmp_path, text, message):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(doc_pages.WrongExampleError, match=re.escape(message)):
        doc_pages.run_page(page)


def test_blocks_share_a_page_and_hidden_set_up_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = (
        "<!-- setup\nimport pathlib\nx = 20\n-->\n",
        "```python\ny = x + 1\n```\n",
        "<!-- file: a.toml -->\n```toml\nz = 1\n```\n",
        "```python\n>>> print(y, pathlib.Path('a.toml').read_text())\n21 z = 1\n```\n",
        "```text\nrm -r /\n```\n",
    )
    Path("page.md").write_text("".join(parts))
    assert doc_pages.run_page(Path("page.md")) == 4
