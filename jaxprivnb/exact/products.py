"""Products of all entries of an axis, and of all but one, by a binary tree: no divisions."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def product_and_others(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(prod_j x_j `[..., S]`, prod of the x_j' with j' != j `[..., J, S]`) for x `[..., J, S]`."""
    J = x.shape[-2]
    levels = []
    while x.shape[-2] > 1:
        if x.shape[-2] % 2:
            x = jnp.concatenate([x, jnp.ones_like(x[..., :1, :])], axis=-2)
        levels.append(x)
        x = x[..., 0::2, :] * x[..., 1::2, :]
    others = jnp.ones_like(x)
    for level in reversed(levels):
        above = others[..., : level.shape[-2] // 2, :]
        pair = [above * level[..., 1::2, :], above * level[..., 0::2, :]]
        others = jnp.stack(pair, axis=-2).reshape(level.shape)
    return x[..., 0, :], others[..., :J, :]


def products_by_feature(x: jax.Array, sizes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """The same within each feature, for rows of cells.

    Features of about the same number of categories go through one tree.

    Args:
        x: `[I, C, S]`, sizes[0] rows of the first feature, then those of the next.
        sizes: J_k, `[K]`; they add up to C.

    Returns:
        (`[I, K, S]`, `[I, C, S]`).
    """
    I, C, S = x.shape
    if len(set(sizes)) == 1:
        total, others = product_and_others(x.reshape(I, len(sizes), sizes[0], S))
        return total, others.reshape(x.shape)
    begin = np.concatenate([[0], np.cumsum(sizes)])
    padded = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)  # row C is the unit
    widths = sorted({_width(size) for size in sizes})
    totals, pieces, features, rows = [], [], [], []
    for width in widths:
        own = [k for k, size in enumerate(sizes) if _width(size) == width]
        place = np.full((len(own), width), C)
        for r, k in enumerate(own):
            place[r, : sizes[k]] = np.arange(begin[k], begin[k + 1])
        total, others = product_and_others(padded[:, place])
        totals.append(total)
        pieces.append(others.reshape(I, -1, S))
        features.extend(own)
        rows.extend(place.reshape(-1).tolist())
    by_row = {row: at for at, row in enumerate(rows) if row < C}
    of_feature = np.argsort(np.asarray(features))
    others = jnp.concatenate(pieces, axis=1)[:, np.asarray([by_row[c] for c in range(C)])]
    return jnp.concatenate(totals, axis=1)[:, of_feature], others


def pairs_by_feature(x: jax.Array, y: jax.Array, row: np.ndarray) -> jax.Array:
    """Sum over two rows of a feature of their y, times the x of all its others.

    Args:
        x: `[..., C, S]`.
        y: `[..., C, S]`.
        row: the row of each cell `[K, J]`, C where there is none.

    Returns:
        `[..., K, S]`.
    """
    one, none = jnp.ones_like(x[..., :1, :]), jnp.zeros_like(x[..., :1, :])
    x, y = jnp.concatenate([x, one], axis=-2), jnp.concatenate([y, none], axis=-2)

    def join(so_far: Any, rows: jax.Array) -> tuple[Any, None]:
        product, single, pairs = so_far
        u, v = x[..., rows, :], y[..., rows, :]
        return (product * u, single * u + product * v, pairs * u + single * v), None

    begin = jnp.ones_like(x[..., np.zeros(len(row), int), :])
    zero = jnp.zeros_like(begin)
    pairs: jax.Array = lax.scan(join, (begin, zero, zero), jnp.asarray(row.T))[0][2]
    return pairs


def _width(size: int) -> int:
    """Sizes that share a tree: 1, 2, 4, 6, then 2^k and 1.5 * 2^k."""
    power = 2 ** math.ceil(math.log2(size))
    return 3 * power // 4 if power >= 8 and size <= 3 * power // 4 else power
