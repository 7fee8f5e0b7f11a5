"""Shared set-up: float64 available, dtypes never mixed by accident, programs compiled once."""

import itertools
import os
from pathlib import Path

# Nearly all of the suite's time is XLA's compiler. Workers, and the processes that tests start,
# inherit these and share what they compile, also with the next run; `make clean` forgets it.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")


MOST_MAPPINGS = 20_000
"""Memory mappings of a process from which on its compiled programs are forgotten."""
_tests = itertools.count()


@pytest.fixture(autouse=True)
def _few_mappings():
    """Every compiled program holds memory mappings, and Linux aborts a process with 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if next(_tests) % 8 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    """The dtype that a test's input arrays should have."""
    return jnp.dtype(request.param)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Compiled programs for processes that tests start and kill: those of everybody, linked, and
    their own, of which a kill may leave one half written.
    """
    own = tmp_path_factory.mktemp("cache")
    for path in Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("*-cache"):
        (own / path.name).symlink_to(path)
    return own
