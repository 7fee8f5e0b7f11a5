"""The fits a study compares, found by name and run on whole chunks.

`fit_many` fits a dataset to the same bits whatever batch it comes in, so rows do not depend on how
a study is cut. The non-private fit, which reads true counts and is not a method of `fit_many`, is
mapped over blocks of one size for the same reason.
"""

import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb.baselines import fit_bayes
from jaxprivnb.many import fit_many
from jaxprivnb.many.lanes import BLOCK, by_blocks
from jaxprivnb.noise import Laplace
from jaxprivnb.posterior import Posterior
from jaxprivnb.simulation import Simulation
from jaxprivnb.study.spec import Method, Spec
from jaxprivnb.tables import NoisyTables, Prior

_HOME = {
    "naive": "baselines",
    "bayes": "baselines",
    "vb": "variational.fit",
    "exact": "exact.fit",
}
"""The module that has `fit_<method>`."""

_WHOLE_UP_TO = 1023
"""Largest N for which the exact fit computes all counts."""
_SMALLEST = 127
"""Smaller N share the program of this one: compiling another would cost more than it saves."""
_GUARD = threading.Lock()
_COMPILING: dict[Any, threading.Lock] = {}
_READY: set[Any] = set()


@contextlib.contextmanager
def first_use(*key: Any) -> Iterator[None]:
    """Let one thread at a time through until one has: the others would compile the same again."""
    if key in _READY:
        yield
        return
    with _GUARD:
        lock = _COMPILING.setdefault(key, threading.Lock())
    with lock:
        yield
    _READY.add(key)


def fit_function(method: str) -> Callable[..., Posterior]:
    """`fit_<method>`, for one dataset."""
    return getattr(importlib.import_module(f"jaxprivnb.{_HOME[method]}"), f"fit_{method}")


def check_methods(spec: Spec) -> None:
    """Refuse a method or an option that the fits would refuse, before any of them is compiled."""
    counts = jnp.zeros((2, 2, 2))
    tables = NoisyTables(counts, 10, Laplace(1.0))
    for method in spec.methods:
        key = ("methods", method.label)
        fit = fit_function(method.method)
        known = [
            p.name for p in inspect.signature(fit).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        for option, _ in method.options:
            if option not in known:
                listed = ", ".join(known) or "none"
                raise spec.error(
                    (*key, option), f"is not an option of {method.method} (there are: {listed})"
                )
        data = counts if method.method == "bayes" else tables
        try:
            jax.eval_shape(lambda d, f=fit, m=method: f(d, **dict(m.options)), data)
        except (TypeError, ValueError) as error:
            raise spec.error(key, f"is refused by {method.method}: {error}") from error


def fit_chunk(method: Method, simulation: Simulation, prior: Prior, n_records: int) -> Posterior:
    """Fit one method to every replicate of a chunk (leading axis); `prior` is shared by them."""
    options = dict(method.options)
    size = simulation.counts.shape[0]
    shape = (simulation.counts.shape, simulation.counts.dtype, type(simulation.tables.noise))
    if method.method == "bayes":
        fill = np.minimum(np.arange(-(-size // BLOCK) * BLOCK), size - 1)
        padded = jax.tree.map(lambda x: x[fill], (simulation.counts, simulation.tables.mask))
        with first_use("bayes", shape):
            fitted = _fit_bayes_blocks(*padded, prior)
        return jax.tree.map(lambda x: x[:size], fitted)
    if method.method == "exact" and n_records <= _WHOLE_UP_TO:
        # All counts 0..2^k - 1: cells of similar N then share a program.
        options.setdefault("max_records", max(_SMALLEST, (1 << n_records.bit_length()) - 1))
    with first_use(method.label, *sorted(options.items()), shape):
        # The study has its own threads, so each call works in the one that made it.
        return fit_many(
            simulation.tables, method.method, prior=prior, workers=1, progress=False, **options
        )


@jax.jit
def _fit_bayes_blocks(counts: jax.Array, mask: jax.Array | None, prior: Prior) -> Posterior:
    if mask is None:
        return by_blocks(lambda n: fit_bayes(n, prior), counts)
    return by_blocks(lambda n, m: fit_bayes(n, prior, m), counts, mask)
