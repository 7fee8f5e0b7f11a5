"""Exact i.i.d. posterior draws: integer tables backward through the messages, then Dirichlets.

Class counts are drawn one at a time, n_i from h_i(n) [h_1 * ... * h_{i-1}](rest - n); then, given
n_i, the cells of each block in the same way. No chain, no burn-in.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb import dirichlet
from jaxprivnb.exact import filters
from jaxprivnb.exact.chunks import map_in_chunks
from jaxprivnb.exact.convolve import align
from jaxprivnb.exact.evidence import (
    normalise,
    prefix_messages,
    reflected,
    safe_log,
    tilt,
    tilted,
)
from jaxprivnb.exact.moments import Pass
from jaxprivnb.exact.outside import chain, reversed_last
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior

_CHUNK = 2_000_000
"""Numbers held at once while drawing tables, about."""


class Draws(NamedTuple):
    """Draws from the joint posterior of tables and parameters."""

    counts: jax.Array
    """n, int32 `[n, I, K, J]`; masked cells are 0."""
    class_probs: jax.Array
    """P(Y), `[n, I]`."""
    feature_probs: jax.Array
    """P(X_k | Y=i), `[n, I, K, J]`."""


def draw(
    key: jax.Array,
    n: int,
    up: Pass,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
) -> Draws:
    """N draws; the tables of a key do not depend on whether parameters are used."""
    key_tables, key_probs = jax.random.split(key)
    real = tables.real
    log_tails, begins = _log_tails(up, tables, place, layout)
    theta = tilt(up.log_h, place, layout, tables.n_records)
    log_h = tilted(up.log_h, theta, place, layout)
    heads = prefix_messages(log_h, place, layout)
    N = tables.n_records.astype(jnp.int32)

    def one(k: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_n, key_cells = jax.random.split(k)
        n_class = _class_counts(key_n, log_h, heads, place, N)
        return n_class, _cells(key_cells, n_class, up.log_w, log_tails, begins, place)

    I, K = up.log_w.shape[:2]
    keys = jax.random.split(key_tables, n)
    n_class, counts = map_in_chunks(one, keys, _CHUNK // (I * K * log_tails[1].shape[-1]))
    dtype = prior.class_.dtype
    alpha = jnp.where(real, prior.feature + counts.astype(dtype), 0)
    class_alpha = prior.class_ + n_class.astype(dtype)
    return Draws(counts, *_dirichlets(key_probs, class_alpha, alpha))


def _log_tails(
    up: Pass, tables: NoisyTables, place: Placement, layout: Layout
) -> tuple[list[jax.Array], jax.Array]:
    """Log of the convolutions of the cells from j on, j = 0, ..., J, without their scales.

    Returns:
        (values `[I, K, S]` for each j, the first count of each, int32 `[J, I, K]`).
    """
    J = up.log_w.shape[-2]
    if layout.filters:
        backwards = jax.tree.map(reversed_last, filters.kernels(tables, layout.filters))
        heads = filters.chains(backwards, layout.filters).heads
        tails = [*(heads[:, :, J - 1 - j] for j in range(J)), jnp.ones_like(heads[:, :, 0, :1])]
        return [safe_log(v) for v in tails], jnp.zeros((J, *place.cell.shape[:2]), jnp.int32)
    x, _, _ = normalise(up.log_w, layout)
    tails = [values for values, _ in chain(x, layout)]
    log_tails = tails if layout.log_space else [safe_log(v) for v in tails]
    begins = lax.cumsum(place.cell, axis=2, reverse=True)
    return log_tails, jnp.moveaxis(begins, -1, 0)


def _dirichlets(
    key: jax.Array, class_alpha: jax.Array, alpha: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draws with concentrations `[n, I]` and `[n, I, K, J]`, as rows of one array."""
    n, I, K, J = alpha.shape
    width = max(I, J)
    rows = jnp.zeros((n, 1 + I * K, width), alpha.dtype)
    rows = rows.at[:, 0, :I].set(class_alpha).at[:, 1:, :J].set(alpha.reshape(n, I * K, J))
    p = dirichlet.sample(key, rows)
    return p[:, 0, :I], p[:, 1:, :J].reshape(alpha.shape)


def _class_counts(
    key: jax.Array,
    log_h: jax.Array,
    heads: list[tuple[jax.Array, jax.Array]],
    place: Placement,
    N: jax.Array,
) -> jax.Array:
    """One draw of (n_1, ..., n_I) given m, int32 `[I]`."""
    I, W = log_h.shape
    u = jax.random.uniform(key, (I,), log_h.dtype)
    left, drawn = N, []
    for i in reversed(range(1, I)):
        head, begin = heads[i]
        log_p = log_h[i] + reflected(head, begin, left, place.class_[i], W)
        drawn.append(place.class_[i] + _categorical(u[i], log_p))
        left = left - drawn[-1]
    return jnp.stack([left, *reversed(drawn)])


def _cells(
    key: jax.Array,
    n_class: jax.Array,
    log_w: jax.Array,
    log_tails: list[jax.Array],
    tail_begins: jax.Array,
    place: Placement,
) -> jax.Array:
    """One draw of every block's cells given its class count, int32 `[I, K, J]`."""
    I, K, J, W = log_w.shape
    u = jax.random.uniform(key, (I, K, J), log_w.dtype)
    left = jnp.broadcast_to(n_class[:, None], (I, K))
    drawn = []
    for j in range(J - 1):
        tail = log_tails[j + 1]
        begins = place.cell[..., j] + tail_begins[j + 1]
        start = (tail.shape[-1] - 1) - (left - begins)
        log_p = log_w[..., j, :] + align(reversed_last(tail), start, W, -jnp.inf)
        drawn.append(place.cell[..., j] + _categorical(u[..., j], log_p))
        left = left - drawn[-1]
    return jnp.stack([*drawn, left], axis=-1)


def _categorical(u: jax.Array, log_p: jax.Array) -> jax.Array:
    """The index drawn by uniform u `[...]` from weights exp(log_p) `[..., W]`, int32 `[...]`."""
    top = log_p.max(-1, keepdims=True)
    cumulated = jnp.cumsum(jnp.exp(log_p - jnp.where(jnp.isfinite(top), top, 0)), axis=-1)
    index = (cumulated <= (u[..., None] * cumulated[..., -1:])).sum(-1, dtype=jnp.int32)
    return jnp.minimum(index, log_p.shape[-1] - 1)
