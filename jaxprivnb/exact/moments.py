"""Posterior marginals and moments, as derivatives of log P(m)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb.exact.evidence import (
    Blocks,
    blocks,
    cell_counts,
    class_counts,
    log_class_messages,
    log_total,
    log_weights,
)
from jaxprivnb.exact.weights import log_rising
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior


class Pass(NamedTuple):
    """One pass up the tree and its derivative at the root."""

    log_w: jax.Array
    """log w_ikj(l), `[I, K, J, cell window]`."""
    blocks: Blocks
    """log c_ik(n) and its underflow floor."""
    log_h: jax.Array
    """log h_i(n), `[I, class window]`."""
    log_total: jax.Array
    """log [h_1 * ... * h_I](N), scalar."""
    log_evidence: jax.Array
    """log P(m), scalar."""
    class_count_pmf: jax.Array
    """P(n_i = n | m), `[I, class window]`."""


class Moments(NamedTuple):
    """Means and standard deviations of the parameters."""

    class_mean: jax.Array
    """E[P(Y=i) | m], `[I]`."""
    class_sd: jax.Array
    """`[I]`."""
    feature_mean: jax.Array
    """E[P(X_k=j | Y=i) | m], `[I, K, J]`; masked cells are 0."""
    feature_sd: jax.Array
    """`[I, K, J]`."""


def upward(tables: NoisyTables, prior: Prior, place: Placement, layout: Layout) -> Pass:
    """All messages, the evidence, and P(n_i = n | m) = d log P / d log h_i(n)."""
    N = tables.n_records
    log_w = log_weights(tables, prior, place, layout)
    found = blocks(log_w, place, layout)
    log_h = log_class_messages(found.log_value, prior, tables.real, place, layout, N)
    total, pmf = jax.value_and_grad(log_total)(log_h, place, layout, N)
    evidence = total - log_rising(N, prior.class_.sum())
    return Pass(log_w, found, log_h, total, evidence, pmf)


def moments(
    up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> Moments:
    """Means and sds; two reverse passes through the blocks, taken together."""
    dtype, real = tables.counts.dtype, tables.real
    a = jnp.where(real, prior.feature, 0)
    n_A = class_counts(place, layout, dtype)[:, None] + a.sum(-1)[..., None]  # [I, K, window]
    pmf = up.class_count_pmf[:, None]
    weighted = downward(up, place, layout, jnp.stack([pmf / n_A, pmf / (n_A * (n_A + 1))]))
    l_a = cell_counts(place, layout, dtype) + a[..., None]
    mean = jnp.where(real, (weighted[0] * l_a).sum(-1), 0)
    square = jnp.where(real, (weighted[1] * l_a * (l_a + 1)).sum(-1), 0)
    alone = real.sum(-1, keepdims=True) == 1  # certain, which a difference of squares is not
    feature_sd = jnp.sqrt(jnp.where(alone, 0, jnp.maximum(square - jnp.square(mean), 0)))

    total = tables.n_records + prior.class_.sum()
    p = (class_counts(place, layout, dtype) + prior.class_[:, None]) / total
    class_mean = (up.class_count_pmf * p).sum(-1)
    spread = jnp.square(p - class_mean[:, None]) + jnp.maximum(p * (1 - p), 0) / (total + 1)
    class_sd = jnp.sqrt((up.class_count_pmf * spread).sum(-1)) * float(p.shape[0] > 1)
    return Moments(class_mean, class_sd, mean, feature_sd)


def downward(up: Pass, place: Placement, layout: Layout, cotangents: jax.Array) -> jax.Array:
    """sum_n q(n) P(n_ikj = l | n_i = n, m) for cotangents q `[Q, I, K, class window]`.

    With q = P(n_i = n | m) this is P(n_ikj = l | m).

    Returns:
        `[Q, I, K, J, cell window]`.
    """
    _, pull = jax.vjp(lambda log_w: blocks(log_w, place, layout).log_value, up.log_w)
    full = jnp.broadcast_to(cotangents, (len(cotangents), *up.blocks.log_value.shape))
    return jax.vmap(lambda q: pull(q)[0])(full)


def count_pmf(up: Pass, place: Placement, layout: Layout) -> jax.Array:
    """P(n_ikj = l | m) = d log P / d log w_ikj(l), `[I, K, J, cell window]`."""
    return downward(up, place, layout, up.class_count_pmf[None, :, None])[0]
