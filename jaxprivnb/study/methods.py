"""The fits a study compares, found by name and run on batches of one fixed size.

Every batch has `BATCH` lanes, the last one filled up with copies: one compiled program serves the
whole study, and no row's last bit can depend on how many neighbours it had.
"""

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxprivnb.noise import Laplace
from jaxprivnb.posterior import Posterior
from jaxprivnb.simulate import Simulation
from jaxprivnb.study.spec import Method, Spec
from jaxprivnb.tables import NoisyTables, Prior

BATCH = 128
"""Lanes a batch: enough to fill vector units, few enough that one slow fit keeps few waiting."""

_HOME = {"naive": "baselines", "bayes": "baselines", "vb": "variational", "exact": "exact"}
"""The module that has `fit_<method>`."""


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


def fit_methods(method: Method, simulation: Simulation, prior: Prior) -> Posterior:
    """Fit one method to every replicate of a batch; `prior` is shared by them."""
    options = dict(method.options)
    if method.method == "bayes":
        return _batched("bayes", ())(simulation.counts, prior, simulation.tables.mask)
    return _batched(method.method, tuple(sorted(options.items())))(simulation.tables, prior)


_COMPILED: dict[Any, Callable[..., Posterior]] = {}


def _batched(method: str, options: tuple[tuple[str, Any], ...]) -> Callable[..., Posterior]:
    """The jitted, vmapped fit; made once, so that it is compiled once for each shape."""
    key = (method, options)
    if key not in _COMPILED:
        fit = fit_function(method)
        shared = (0, None, 0) if method == "bayes" else (0, None)  # data, prior, mask
        _COMPILED[key] = jax.jit(jax.vmap(partial(fit, **dict(options)), in_axes=shared))
    return _COMPILED[key]
