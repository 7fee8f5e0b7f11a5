"""Blocks of two cells under a flat prior, in closed form.

With concentrations of 1 the rising weights are 1, and under noise of the form exp(-|x| / b) the
message of a block is a sum of exponentials of a piecewise linear function,

    c(n) = sum_{l=0..n} exp(-f(l) / b),   f(l) = |m_1 - l| + |m_2 - (n - l)|.

Counts are clipped to the window first: |m - l| = |m - clip m| + |clip m - l| for every l in it, and
the constant goes to the scale of the message. With lo <= hi the two corners m_1 and n - m_2 of f,
and D = m_1 + m_2 - n: between them f is |D|, and outside it grows by 2 a step. Relative to
exp(-|D| / b), c(n) is therefore

    W_1 A(u_1) + (n + 1 - u_1 - u_2) + W_2 A(u_2),   A(u) = sum_{d < u} exp(-2 d / b):

u_1 terms below lo, a stretch of equal terms, u_2 terms above hi, with

    u_1 = min(max(n - floor m_2, 0), ceil m_1),
    W_1 = exp(-2 (1 + floor m_2 - m_2) / b)   where D >= 0: lo = n - m_2 moves with n,
    W_1 = exp(-2 (1 + m_1 - ceil m_1) / b)    where D < 0:  lo = m_1 stays,

and u_2, W_2 the same with m_1 and m_2 exchanged, since the second cell's count is n - l. So no
exponential is taken for every n: W is one of a few numbers a row, and A(u), which grows with u, is
the smaller of a shifted table and a number. E[l + 1 | n] and E[(l + 1)(l + 2) | n] are sums of the
same three parts, with tables of the means of d and d^2 under exp(-2 d / b), which grow with u too.
Tables are summed from positive terms: closed forms would lose every digit when b dwarfs N.

Where the stretch is empty both other parts have terms, because clipped counts leave l = 0 and l = n
on either side, and the larger W is taken out of both, into the scale. So the sum above is at least
1, and nothing underflows; but intervals, draws and predictions go by convolutions, so the floor of
those is reported, and a fit that needs them in log space says so.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.exact.evidence import Blocks, grown_floor
from jaxprivnb.exact.window import Layout
from jaxprivnb.tables import NoisyTables


class FlatBlocks(NamedTuple):
    """What `blocks` and its reverse passes give, for two cells."""

    blocks: Blocks
    """log c_ik(n), without loss, and the floor that convolutions would have."""
    log_growth: jax.Array
    """A bound on sum_k log(1 + floor / c_ik(n)), `[I, window]`; 0 where that is below rounding."""
    mean: jax.Array
    """E[p | n] = E[l + 1 | n] / (n + 2) of the first cell's p and its count l, `[I, K, window]`;
    1 where a cell is masked."""
    square: jax.Array
    """E[p^2 | n] = E[(l + 1)(l + 2) | n] / ((n + 2)(n + 3)), `[I, K, window]`; 1 likewise."""


class _Side(NamedTuple):
    """The terms outside one corner; d = 0, 1, ... counts them from there. `[I, K, window]` each."""

    terms: jax.Array
    """u, how many there are."""
    total: jax.Array
    """A(u)."""
    first: jax.Array
    """Mean of d."""
    second: jax.Array
    """Mean of d^2."""


def flat_blocks(tables: NoisyTables, layout: Layout) -> FlatBlocks:
    """Messages and conditional moments for every n of the window.

    Args:
        tables: one release with two categories a feature, or one of them masked.
        layout: of the whole range.
    """
    length, real = layout.class_, tables.real
    given = jnp.where(real, tables.counts, 0)
    scale, log_peak = tables.noise.value, tables.noise.log_peak
    if scale.ndim == 1:
        scale, log_peak = scale[:, None], log_peak[:, None]  # [K, 1]
    n = jnp.arange(length, dtype=given.dtype)
    # As `clip`, but with a derivative of 1 at the ends as well, where counts of 0 are.
    m = jnp.where(given < 0, 0, jnp.where(given > length - 1, length - 1, given))
    low, high = jnp.floor(m), jnp.ceil(m)

    sums = _partial_sums(tables.noise.value, length)
    below = _side(low[..., 1], high[..., 0], sums)
    above = _side(low[..., 0], high[..., 1], sums)
    level = n + 1 - below.terms - above.terms
    D = m.sum(-1, keepdims=True) - n  # [I, K, window]
    w_1, w_2, shift = _weights(m - low, high - m, scale, D >= 0, level == 0)
    w_1, w_2 = w_1 * below.total, w_2 * above.total
    total = w_1 + level + w_2
    # l + 1 is u - d below, evenly spread about its middle between, and start + d above.
    u, start = below.terms, n + 2 - above.terms
    middle = (u + start) / 2
    first = w_1 * (u - below.first) + level * middle + w_2 * (start + above.first)
    second = (
        w_1 * (u * (u + 1) - (2 * u + 1) * below.first + below.second)
        + level * (middle * (middle + 1) + (jnp.square(level) - 1) / 12)
        + w_2 * (start * (start + 1) + (2 * start + 1) * above.first + above.second)
    )
    mean, square = first / (total * (n + 2)), second / (total * ((n + 2) * (n + 3)))
    if tables.mask is not None:
        # A masked cell's count is certainly 0, and its noise is not in the likelihood. Its m is 0
        # here: |D| / b is what the other cell's noise says, and as one corner is a whole number in
        # 0..n, the stretch is not empty and nothing was taken out.
        both = real.all(-1)[..., None]
        total, mean, square = (jnp.where(both, x, 1) for x in (total, mean, square))

    peak = jnp.where(real, log_peak - jnp.abs(given - m) / scale, 0).sum(-1)  # [I, K]
    log_scale = peak[..., None] - (jnp.where(D >= 0, D, -D) / scale + shift)
    if layout.log_space:
        floor = jnp.full_like(peak, -jnp.inf)
    else:
        # Convolutions are scaled by their largest weights: what they would lose to underflow.
        nearest = jnp.clip(jnp.round(given), 0, tables.n_records)
        top = jnp.where(real, log_peak - jnp.abs(given - nearest) / scale, 0).sum(-1)
        tiny = jnp.full((2,), jnp.finfo(m.dtype).tiny, m.dtype)
        floor = jnp.log(grown_floor(tiny, length)) + top
    # The sum that is scaled is at least 1: c(n) is no less than its scale.
    growth = _log_growth(floor[..., None] - log_scale).sum(1)
    return FlatBlocks(Blocks(jnp.log(total) + log_scale, floor), growth, mean, square)


def _partial_sums(scale: jax.Array, length: int) -> jax.Array:
    """A(u) and means of d and d^2 over d = 0, ..., u - 1, weighted by exp(-2 d / b).

    Returns:
        `[3, (K,) 2 L]` for u = -L, ..., L - 1; 0 for u <= 0. All grow with u.
    """
    d = jnp.arange(length - 1, dtype=scale.dtype)
    terms = jnp.exp(-2 * d / scale[..., None])
    sums = jnp.cumsum(jnp.stack([terms, d * terms, d * d * terms]), axis=-1)
    found = jnp.concatenate([sums[:1], sums[1:] / sums[:1]])
    return jnp.pad(found, [(0, 0)] * (scale.ndim + 1) + [(length + 1, 0)])


def _side(low: jax.Array, high: jax.Array, sums: jax.Array) -> _Side:
    """The terms on one side, u = min(max(n - low, 0), high) of them.

    The tables grow with u, so at the smaller of two u is the smaller of two entries: a slice of the
    table for all n - low, which is far cheaper than looking up every entry, and its entry at high.

    Args:
        low: floor of the other cell's m, `[I, K]`.
        high: ceil of this cell's m, `[I, K]`.
        sums: from `_partial_sums`.
    """
    length = sums.shape[-1] // 2
    n = jnp.arange(length, dtype=low.dtype)
    terms = jnp.minimum(jnp.maximum(n - low[..., None], 0), high[..., None])
    cut = lambda x, start: lax.dynamic_slice_in_dim(x, start, length)  # noqa: E731
    by_feature = 0 if sums.ndim == 3 else None
    rows = jax.vmap(jax.vmap(cut, (by_feature, 0)), (None, 0))
    at = (length - low).astype(jnp.int32), (length + high).astype(jnp.int32)
    found = []
    for table in sums:
        last = table[at[1]] if by_feature is None else table[jnp.arange(low.shape[1]), at[1]]
        found.append(jnp.minimum(rows(table, at[0]), last[..., None]))
    return _Side(terms, *found)


def _weights(
    over: jax.Array, under: jax.Array, scale: jax.Array, falling: jax.Array, empty: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """W_1 and W_2, and what was taken out of both where the stretch between them is empty.

    Args:
        over: m - floor m, `[I, K, 2]`.
        under: ceil m - m, `[I, K, 2]`.
        scale: b, scalar or `[K, 1]`.
        falling: D >= 0, `[I, K, window]`.
        empty: where there are no terms between the corners, `[I, K, window]`.
    """
    pairs = []
    for distance in (1 - over[..., ::-1], 1 - under):  # from a corner to the first term outside
        gap = 2 * distance / scale
        least = gap.min(-1, keepdims=True)
        full = jnp.concatenate([jnp.exp(-gap), jnp.zeros_like(least)], axis=-1)
        pairs.append((full, jnp.concatenate([jnp.exp(least - gap), least], axis=-1)))
    (moving, moving_empty), (fixed, fixed_empty) = pairs  # [I, K, 3]: W_1, W_2, taken out
    pick = lambda a, b, r: jnp.where(falling, a[..., r, None], b[..., r, None])  # noqa: E731
    w_1, w_2, shift = (
        jnp.where(empty, pick(moving_empty, fixed_empty, r), pick(moving, fixed, r))
        for r in range(3)
    )
    return w_1, w_2, shift


def _log_growth(gap: jax.Array) -> jax.Array:
    """A bound on log(1 + exp(gap)), without exponentials; exactly 0 where it is below rounding."""
    negligible = gap < math.log(float(jnp.finfo(gap.dtype).eps) / 8)
    return jnp.where(negligible, 0, jnp.maximum(gap, 0) + math.log(2))
