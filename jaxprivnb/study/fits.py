"""The fits a study compares, found by name and run on whole chunks.

`fit_many` fits a dataset to the same bits whatever batch it comes in, so rows do not depend on how
a study is cut. Fits that read true counts, which `fit_many` does not take, are mapped over tiles
of one size for the same reason.
"""

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb.many import fit_many
from jaxprivnb.many.lanes import TILE, by_tiles
from jaxprivnb.methods import METHODS, fit_function
from jaxprivnb.noise import Laplace
from jaxprivnb.parallel import wide
from jaxprivnb.posterior import Posterior
from jaxprivnb.published import combine
from jaxprivnb.simulation import Simulation
from jaxprivnb.study.chunks import go_on
from jaxprivnb.study.spec import Arm, Spec
from jaxprivnb.tables import NoisyTables, Prior

_WHOLE_UP_TO = 1023
"""Largest N for which the exact fit computes all counts."""
_SMALLEST = 127
"""Smaller N share the program of this one: compiling another would cost more than it saves."""
_PIECE = 2**22
"""Counts of all cells in one call of an exact fit: a call cannot be stopped, so large tables are
fitted few at a time. A power of two, so that the paper's tables have a chunk in one piece."""
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


def check_methods(spec: Spec) -> None:
    """Refuse a method or an option that the fits would refuse, before any of them is compiled."""
    counts = jnp.zeros((2, 2, 2))
    tables = NoisyTables(counts, 10 if spec.published.n_records else None, Laplace(1.0))
    if spec.published.releases > 1:
        tables = combine(tables, tables)
    how = spec.published
    if how.clamp or (how.grid, how.threshold) != (None, None):
        tables = dataclasses.replace(tables, upper=counts)
    for arm in spec.arms:
        key = ("methods", arm.label)
        if arm.method not in METHODS:
            raise spec.error(key, f"needs the method {arm.method!r}: jaxprivnb.register it")
        method = METHODS[arm.method]
        known = method.options()
        for option, _ in arm.options:
            if option not in known:
                listed = ", ".join(known) or "none"
                raise spec.error(
                    (*key, option), f"is not an option of {arm.method} (there are: {listed})"
                )
        if method.called != "traced":
            continue
        data = counts if method.reads == "counts" else tables
        try:
            jax.eval_shape(partial(fit_function(arm.method), **dict(arm.options)), data)
        except (TypeError, ValueError) as error:
            raise spec.error(key, f"is refused by {arm.method}: {error}") from error


def piece_size(shape: tuple[int, ...], n_records: int) -> int:
    """Replicates whose cells `[I, K, J]`, the last axes of `shape`, have `_PIECE` counts in all;
    a power of two, at least 1.
    """
    share = _PIECE // (math.prod(shape[-3:]) * (n_records + 1))
    return 1 << max(share.bit_length() - 1, 0)


def intervals_at_once(arm: Arm, shape: tuple[int, ...], n_records: int) -> int:
    """Replicates whose intervals are asked for at once: always the same for a cell of the grid."""
    over_counts = METHODS[arm.method].over_counts
    return min(TILE, piece_size(shape, n_records)) if over_counts else TILE


def fit_chunk(
    arm: Arm,
    simulation: Simulation,
    prior: Prior,
    n_records: int,
    between: Callable[[], None] = go_on,
) -> Posterior:
    """Fit one arm to every replicate of a chunk (leading axis); `prior` is shared by them.

    `between` is called before each piece of the chunk, and may raise.
    """
    method, options = METHODS[arm.method], dict(arm.options)
    size = simulation.counts.shape[0]
    shape = (simulation.counts.shape, simulation.counts.dtype, type(simulation.tables.noise))
    if method.reads == "counts":
        between()
        fill = np.minimum(np.arange(-(-size // TILE) * TILE), size - 1)
        padded = jax.tree.map(lambda x: x[fill], (simulation.counts, simulation.tables.mask))
        with first_use(arm.label, *sorted(options.items()), shape):
            fitted = _fit_counts(*padded, prior, fit=fit_function(arm.method), options=arm.options)
        return jax.tree.map(lambda x: x[:size], fitted)
    if "max_records" in method.options() and n_records <= _WHOLE_UP_TO:
        # All counts 0..2^k - 1: cells of similar N then share a program.
        options.setdefault("max_records", max(_SMALLEST, (1 << n_records.bit_length()) - 1))
    piece = piece_size(shape[0], n_records)
    if not method.over_counts:  # of these a call takes whole tiles at the least
        piece = max(piece, wide(TILE))
    fitted = []
    for start in range(0, size, piece):
        between()
        some = jax.tree.map(lambda x, s=start: x[s : s + piece], simulation.tables)
        with first_use(arm.label, *sorted(options.items()), shape):
            # The study has its own threads, so each call works in the one that made it.
            fitted.append(
                fit_many(some, arm.method, prior=prior, workers=1, progress=False, **options)
            )
    return jax.tree.map(lambda *x: jnp.concatenate(x), *fitted) if fitted[1:] else fitted[0]


@partial(jax.jit, static_argnames=("fit", "options"))
def _fit_counts(
    counts: jax.Array, mask: jax.Array | None, prior: Prior, *, fit: Any, options: Any
) -> Posterior:
    fit = partial(fit, **dict(options))
    if mask is None:
        return by_tiles(lambda n: fit(n, prior), counts)
    return by_tiles(lambda n, m: fit(n, prior, m), counts, mask)
