"""Blocks of two cells under a flat prior, in closed form.

With concentrations of 1 the rising weights are 1, and under noise of the form exp(-|x| / b) the
message of a block is a sum of exponentials of a piecewise linear function,

    c(n) = sum_{l=0..n} exp(-f(l) / b),   f(l) = |m_1 - l| + |m_2 - (n - l)|.

With lo <= hi the two corners m_1 and n - m_2 of f: below lo, f falls by 2 a step; between them it
is hi - lo; above hi it grows by 2 a step. So c(n), and with it E[l | n] and E[l^2 | n], is a
geometric sum, a stretch of equal terms, and a geometric sum again: L terms of arithmetic for all n
together instead of the L^2 / 2 of a convolution. Partial sums of q^d, d q^d and d^2 q^d with
q = exp(-2 / b) are tabulated once, by additions alone: the ratios that sum them in one formula
would lose every digit when b dwarfs N. Every message is scaled by its largest term, so nothing
underflows either; but intervals, draws and predictions go by convolutions, so the floor of those is
reported, and a fit that needs them in log space says so.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb.exact.evidence import Blocks, grown_floor
from jaxprivnb.exact.window import Layout
from jaxprivnb.noise import Geometric, Laplace
from jaxprivnb.tables import NoisyTables


class FlatBlocks(NamedTuple):
    """What `blocks` and its reverse passes give, for two cells."""

    blocks: Blocks
    """log c_ik(n), without loss, and the floor that convolutions would have."""
    mean: jax.Array
    """E[l | n] of the first cell's count l, `[I, K, window]`."""
    square: jax.Array
    """E[l^2 | n], `[I, K, window]`."""


class _Part(NamedTuple):
    """Some of the terms of c(n), for every n."""

    f: jax.Array
    """Least f among them, inf if there are none."""
    total: jax.Array
    """sum_l exp(-(f(l) - f) / b)."""
    first: jax.Array
    """sum_l l exp(-(f(l) - f) / b)."""
    second: jax.Array
    """sum_l l^2 exp(-(f(l) - f) / b)."""


def applies(noise: Any, n_categories: int) -> bool:
    """Whether the closed form is known; the prior must be flat as well."""
    return n_categories == 2 and isinstance(noise, Laplace | Geometric)


def flat_blocks(tables: NoisyTables, layout: Layout) -> FlatBlocks:
    """Messages and conditional moments for every n of the window.

    Args:
        tables: one release with two categories a feature, or one of them masked.
        layout: of the whole range.
    """
    length = layout.class_
    real = tables.real
    m = jnp.where(real, tables.counts, 0)
    scale, log_peak = tables.noise.value, tables.noise.log_peak
    if scale.ndim == 1:
        scale, log_peak = scale[:, None], log_peak[:, None]  # [K, 1]
    n = jnp.arange(length, dtype=m.dtype)
    m_1, m_2 = m[..., 0, None], m[..., 1, None]  # [I, K, 1]

    sums = _partial_sums(scale, length)
    # Corners as whole numbers, from m alone: n - m_2 would round.
    below = jnp.minimum(n - jnp.maximum(jnp.floor(m_2) + 1, 0), jnp.ceil(m_1) - 1)
    above = n - jnp.minimum(n - jnp.maximum(jnp.floor(m_1) + 1, 0), jnp.ceil(m_2) - 1)
    corners = m_1 + (n - m_2)
    parts = (
        _falling(below, corners, sums),
        _level(jnp.maximum(below, -1) + 1, jnp.minimum(above, n + 1) - 1, m_1 - (n - m_2)),
        _rising(above, n, corners, sums),
    )
    least = jnp.minimum(jnp.minimum(parts[0].f, parts[1].f), parts[2].f)
    weights = [_weight(least - part.f, scale) for part in parts]
    total, first, second = (
        sum(w * x for w, x in zip(weights, xs, strict=True))
        for xs in zip(*(part[1:] for part in parts), strict=True)
    )
    log_c = jnp.log(total) - least / scale + 2 * log_peak
    mean, square = first / total, second / total

    # A masked cell's count is certainly 0, and its noise is not in the likelihood.
    only = jnp.where(real[..., 0], m[..., 0], m[..., 1])[..., None]
    alone = log_peak - jnp.abs(only - n) / scale
    none = jnp.where(n == 0, 0.0, -jnp.inf).astype(m.dtype)
    both, any_ = real.all(-1)[..., None], real.any(-1)[..., None]
    log_c = jnp.where(both, log_c, jnp.where(any_, alone, none))
    all_of_it = jnp.where(real[..., 0, None], n, 0)
    mean = jnp.where(both, mean, all_of_it)
    square = jnp.where(both, square, jnp.square(all_of_it))
    if layout.log_space:
        return FlatBlocks(Blocks(log_c, jnp.full_like(log_c[..., 0], -jnp.inf)), mean, square)
    # Convolutions are scaled by their largest weights: what they would lose to underflow.
    nearest = jnp.clip(jnp.round(m), 0, tables.n_records)
    top = jnp.where(real, log_peak - jnp.abs(m - nearest) / scale, 0).sum(-1)
    tiny = jnp.full((2,), jnp.finfo(m.dtype).tiny, m.dtype)
    floor = jnp.log(grown_floor(tiny, length)) + top
    return FlatBlocks(Blocks(log_c, floor), mean, square)


def _weight(gap: jax.Array, scale: jax.Array) -> jax.Array:
    """exp(gap / b), and 0 with a gradient of 0 where there are no terms (a gap of -inf)."""
    some = jnp.isfinite(gap)
    return jnp.where(some, jnp.exp(jnp.where(some, gap, 0) / scale), 0)


def _partial_sums(scale: jax.Array, length: int) -> jax.Array:
    """sum_{d=0..D} d^r q^d with q = exp(-2 / b), for r = 0, 1, 2: `[3, (K,) length]`."""
    d = jnp.arange(length, dtype=scale.dtype)
    terms = jnp.exp(-2 * d / scale)
    return jnp.cumsum(jnp.stack([terms, d * terms, d * d * terms]), axis=-1)


def _at(sums: jax.Array, last: jax.Array) -> tuple[jax.Array, ...]:
    """The three partial sums up to `last` `[I, K, window]`; 0 where that is negative."""
    index = jnp.maximum(last, 0).astype(jnp.int32)
    if sums.ndim == 2:
        found = [s[index] for s in sums]
    else:
        table = jnp.arange(sums.shape[1])[:, None]
        found = [s[table, index] for s in sums]
    return tuple(jnp.where(last >= 0, s, 0) for s in found)


def _falling(top: jax.Array, corners: jax.Array, sums: jax.Array) -> _Part:
    """Terms l = 0, ..., top, all below the lower corner; l = top - d."""
    s0, s1, s2 = _at(sums, top)
    f = jnp.where(top >= 0, corners - 2 * top, jnp.inf)
    return _Part(f, s0, top * s0 - s1, top * top * s0 - 2 * top * s1 + s2)


def _level(start: jax.Array, stop: jax.Array, gap: jax.Array) -> _Part:
    """Terms l = start, ..., stop between the corners, all equal."""
    count = jnp.maximum(stop - start + 1, 0)
    middle = (start + stop) / 2
    second = count * (jnp.square(middle) + (jnp.square(count) - 1) / 12)
    return _Part(jnp.where(count > 0, jnp.abs(gap), jnp.inf), count, count * middle, second)


def _rising(start: jax.Array, n: jax.Array, corners: jax.Array, sums: jax.Array) -> _Part:
    """Terms l = start, ..., n, all above the upper corner; l = start + d."""
    s0, s1, s2 = _at(sums, n - start)
    f = jnp.where(start <= n, 2 * start - corners, jnp.inf)
    return _Part(f, s0, start * s0 + s1, start * start * s0 + 2 * start * s1 + s2)
