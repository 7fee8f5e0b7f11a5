"""How much is worked on side by side, and a function over a long leading axis in such pieces."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxprivnb import validate

_PART = 64
"""Entries that a thread is worth."""
WIDER = 32
"""How many times what suits a CPU's core, and its cache, an accelerator works on; a power of two.
Thousands of short vectors keep its processors busy, and are still far from its memory."""


def wide(size: int, platform: str | None = None) -> int:
    """What is worked on at a time on a platform (JAX's default if None): `size` on a CPU."""
    platform = jax.default_backend() if platform is None else platform
    return size if platform == "cpu" else WIDER * size


def map_in_chunks(f: Callable[[Any], Any], xs: Any, at_once: int) -> Any:
    """`jax.vmap(f)(xs)`, `wide(at_once)` entries of the leading axis at a time.

    The last chunk is filled up with the last entry. `lax.map(batch_size=...)` would trace and
    compile `f` a second time for a rest, which for large `f` is most of a first call.
    """
    size = jax.tree.leaves(xs)[0].shape[0]
    at_once = max(1, min(wide(at_once), size))
    n_chunks = -(-size // at_once)
    if n_chunks <= 1:
        return jax.vmap(f)(xs)
    at_once = -(-size // n_chunks)  # as even as can be, so that little is filled up
    which = jnp.minimum(jnp.arange(n_chunks * at_once), size - 1).reshape(n_chunks, at_once)
    found = lax.map(lambda chunk: jax.vmap(f)(jax.tree.map(lambda x: x[chunk], xs)), which)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[:size], found)


def one_by_one(f: Callable[[Any], Any], xs: Any) -> Any:
    """`jax.vmap(f)(xs)`: on a CPU one after the other, side by side elsewhere.

    For an f that takes slices of long arrays at places of its own, or goes over its numbers again
    and again: on a CPU the slices are then copies, and not gathered number by number, and the
    numbers stay in the cache.
    """
    return lax.platform_dependent(
        xs, cpu=lambda xs: lax.map(f, xs), default=lambda xs: jax.vmap(f)(xs)
    )


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def for_threads(f: Callable[..., Any]) -> Callable[..., Any]:
    """f for other threads, where `jax.enable_x64` holds as it does in this one."""
    x64 = jax.config.jax_enable_x64  # type: ignore[attr-defined]

    def run(*args: Any) -> Any:
        with jax.enable_x64(x64):
            return f(*args)

    return run


def in_threads(f: Callable[..., Any], *xs: Any) -> Any:
    """`f(*xs)` of an f that takes the leading axis entry by entry: one part of it for each core.

    A program of loops uses one core of a CPU. Traced arrays, few entries and other devices are
    left to f alone.
    """
    leaves = jax.tree.leaves(xs)
    size, threads = leaves[0].shape[0], cores()
    known = all(map(validate.is_concrete, leaves))
    if not known or size < threads * _PART or threads == 1 or jax.default_backend() != "cpu":
        return f(*xs)
    length = -(-size // threads)
    begins = [min(i * length, size - length) for i in range(threads)]  # of one length: one program

    def part(begin: int) -> Any:
        own = jax.tree.map(lambda x: np.asarray(x)[begin : begin + length], xs)
        return jax.device_get(f(*own))

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(for_threads(part), begins))
    new = [i * length - begin for i, begin in enumerate(begins)]
    join = lambda *ys: jnp.asarray(np.concatenate([y[s:] for y, s in zip(ys, new, strict=True)]))  # noqa: E731
    return jax.tree.map(join, *found)
