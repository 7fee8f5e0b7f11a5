"""Windows of counts: lengths that compiled programs come in, and rows cut from longer ones."""

import math

import jax
import jax.numpy as jnp
from jax import lax

SMALL = 512
"""Up to this many counts the whole range 0..N is cheap, and leaves nothing out."""


def bucket(length: float) -> int:
    """The smallest supported length >= `length`: multiples of 32, then 1, 1.25, 1.5 times 2^k."""
    length = max(1, math.ceil(length))
    if length <= SMALL:
        return 32 * math.ceil(length / 32)
    power = 2 ** math.ceil(math.log2(length))
    return next(size for size in (5 * power // 8, 3 * power // 4, power) if size >= length)


def coarse_bucket(length: float) -> int:
    """`bucket` in fewer sizes, for what every dataset plans anew: powers of 2 from 128 to 512."""
    return bucket(max(128, 2 ** math.ceil(math.log2(length))) if length <= SMALL else length)


def fast_length(length: float) -> int:
    """The smallest even length >= `length` whose transforms are fast: 2^a 3^b 5^c."""
    length = max(8, math.ceil(length))
    sizes = (
        odd * 2 ** max(1, math.ceil(math.log2(length / odd)))
        for odd in (1, 3, 5, 9, 15, 25, 27, 45, 75)
    )
    return min(sizes)


def cut(x: jax.Array, start: jax.Array, length: int, fill: float = 0.0) -> jax.Array:
    """Entries start, ..., start + length - 1 of the last axis; `fill` where there are none.

    Args:
        x: `[..., S]`.
        start: whole numbers, broadcastable to the leading axes.
        length: of the result.
        fill: for places outside.
    """
    rows = jnp.pad(x.reshape(-1, x.shape[-1]), ((0, 0), (length, length)), constant_values=fill)
    at = jnp.clip(start.astype(jnp.int32) + length, 0, x.shape[-1] + length)
    at = jnp.broadcast_to(at, x.shape[:-1]).reshape(-1)
    found = jax.vmap(lambda row, s: lax.dynamic_slice_in_dim(row, s, length))(rows, at)
    return found.reshape(*x.shape[:-1], length)


def roll(x: jax.Array, shift: jax.Array, length: int | None = None) -> jax.Array:
    """Entries shift, shift + 1, ... of the last axis, which goes on with its beginning.

    Args:
        x: `[..., S]`.
        shift: whole numbers, broadcastable to the leading axes.
        length: of the result; S if None.
    """
    S = x.shape[-1]
    length = S if length is None else length
    rows = x.reshape(-1, S)
    at = jnp.broadcast_to(jnp.mod(shift, S).astype(jnp.int32), x.shape[:-1]).reshape(-1)
    long = jnp.concatenate([rows] * (1 + -(-length // S)), axis=-1)
    found = jax.vmap(lambda row, s: lax.dynamic_slice_in_dim(row, s, length))(long, at)
    return found.reshape(*x.shape[:-1], length)
