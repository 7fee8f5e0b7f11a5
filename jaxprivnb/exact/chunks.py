"""A function over a long leading axis, a few entries side by side."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def map_in_chunks(f: Callable[[Any], Any], xs: Any, at_once: int) -> Any:
    """`jax.vmap(f)(xs)`, `at_once` entries of the leading axis at a time.

    The last chunk is filled up with the last entry. `lax.map(batch_size=...)` would trace and
    compile `f` a second time for a rest, which for large `f` is most of a first call.
    """
    size = jax.tree.leaves(xs)[0].shape[0]
    at_once = max(1, min(at_once, size))
    n_chunks = -(-size // at_once)
    if n_chunks <= 1:
        return jax.vmap(f)(xs)
    at_once = -(-size // n_chunks)  # as even as can be, so that little is filled up
    which = jnp.minimum(jnp.arange(n_chunks * at_once), size - 1).reshape(n_chunks, at_once)
    found = lax.map(lambda chunk: jax.vmap(f)(jax.tree.map(lambda x: x[chunk], xs)), which)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[:size], found)
