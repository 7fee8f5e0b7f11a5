"""The fits a study compares, found by name and run on batches of one fixed size.

Every batch has `BATCH` lanes, the last one filled up with copies: one compiled program serves the
whole study, and no row's last bit can depend on how many neighbours it had.
"""

import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxprivnb.noise import Laplace
from jaxprivnb.posterior import Posterior
from jaxprivnb.simulation import Simulation
from jaxprivnb.study.spec import Method, Spec
from jaxprivnb.tables import NoisyTables, Prior

BATCH = 128
"""Lanes a batch: enough to fill vector units, few enough that one slow fit keeps few waiting."""

_HOME = {
    "naive": "baselines",
    "bayes": "baselines",
    "vb": "variational.fit",
    "exact": "exact.fit",
}
"""The module that has `fit_<method>`."""

_WHOLE_UP_TO = 1024
"""Largest N for which the exact fit computes all counts."""
_SMALLEST = 128
"""Smaller N share the program of this one: compiling another would cost more than it saves."""
_COMPILED: dict[Any, Callable[..., Posterior]] = {}
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


def available(method: str) -> bool:
    """Whether the method is part of this installation."""
    try:
        fit_function(method)
    except (ImportError, AttributeError):
        return False
    return True


def fit_function(method: str) -> Callable[..., Posterior]:
    """`fit_<method>`, for one dataset."""
    return getattr(importlib.import_module(f"jaxprivnb.{_HOME[method]}"), f"fit_{method}")


def check_methods(spec: Spec) -> None:
    """Refuse a method or an option that the fits would refuse, before any of them is compiled."""
    counts = jnp.zeros((2, 2, 2))
    tables = NoisyTables(counts, 10, Laplace(1.0))
    for method in spec.methods:
        key = ("methods", method.label)
        if not available(method.method):
            raise spec.error(key, f"needs {method.method!r}, which this installation does not have")
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


def fit_batch(method: Method, simulation: Simulation, prior: Prior, n_records: int) -> Posterior:
    """Fit one method to every lane of a batch; `prior` is shared by them."""
    options = dict(method.options)
    shape = (simulation.counts.shape, simulation.counts.dtype, type(simulation.tables.noise))
    if method.method == "bayes":
        fit = _compiled("bayes", options)
        with first_use("bayes", shape):
            return fit(simulation.counts, prior, simulation.tables.mask)
    if method.method == "exact":
        if n_records > _WHOLE_UP_TO:  # windows planned for the batch, so not under jit
            planned = partial(fit_function("exact"), **options)
            return jax.vmap(planned, in_axes=(0, None))(simulation.tables, prior)
        # All counts up to a round number: cells of similar N then share a program.
        options.setdefault("max_records", max(_SMALLEST, 1 << (n_records - 1).bit_length()))
    fit = _compiled(method.method, options)
    with first_use(method.method, *sorted(options.items()), shape):
        return fit(simulation.tables, prior)


def _compiled(method: str, options: dict[str, Any]) -> Callable[..., Posterior]:
    """The jitted, vmapped fit; made once, so that it is compiled once for each shape."""
    key = (method, tuple(sorted(options.items())))
    if key not in _COMPILED:
        shared = (0, None, 0) if method == "bayes" else (0, None)  # data, prior, mask
        fit = partial(fit_function(method), **options)
        _COMPILED[key] = jax.jit(jax.vmap(fit, in_axes=shared))
    return _COMPILED[key]
