"""A bound on the posterior mass that windows and floating point left out.

Let "in" mean inside the windows. Write S_j for the sum and M_j for the maximum of a cell's weight
over *all* counts 0..N: the window's, plus its tails. A cell outside its window adds to any entry
of its block at most |w_c out|_1 times the maximum of the convolution of the others, so

    c_ik(n) <= c_ik in(n) + eta_ik,
    eta_ik = sum_c |w_c out|_1 min_{j != c} (M_j / S_j) prod_{j != c} S_j

for every n; underflow adds its own floor to eta. Evidence computed with c + eta therefore
dominates the mass of all tables whose class counts are inside their windows. For class counts
outside, Chernoff's bound c_ik(n) <= exp(-theta n) prod_j sum_l w_j(l) exp(theta l) holds for any
theta; and g_ik(n) = c_ik(n) / ((A_ik)_n / n!) is a mean of prod_j f(m_j - l_j) over tables with
sum_j l_j = n, which concavity of log f bounds by f((S - n) / J)^J with S = sum_j m_j. The smaller
is summed over stretches of doubling length, on which every other factor is monotone.
One minus the ratio of the computed evidence to the sum of these is `lost_mass`.

Tails of a weight are geometric bounds. They need a noise whose log density is concave, as those of
Laplace, geometric and Gaussian noise are.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxprivnb.exact.evidence import (
    class_counts,
    log_class_messages,
    log_most,
    log_total,
    tilt,
    tilted,
)
from jaxprivnb.exact.moments import Pass
from jaxprivnb.exact.weights import log_noise, log_rising
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior

_TILTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
"""Chernoff exponents, in units of the noise's slope at half a window's length."""
_STRETCHES = 31
"""Stretches of length 1, 2, 4, ...: together longer than any N that int32 holds."""


class Lost(NamedTuple):
    """Bounds on the posterior mass left out."""

    total: jax.Array
    """All of it, scalar in [0, 1]."""
    cell: jax.Array
    """The part due to the cells' windows and to underflow, scalar."""


class Tails(NamedTuple):
    """Logs of bounds on sums of a cell's weights over all counts 0..N; shapes `[..., I, K, J]`."""

    outside: jax.Array
    """log sum of w(l) exp(theta l) outside the window."""
    total: jax.Array
    """log sum of w(l) exp(theta l)."""


def bound(up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout) -> Lost:
    """The mass left out by this pass; see the module."""
    N = tables.n_records
    log_eta, beyond = up.blocks.log_floor, None
    if not layout.whole:
        theta, beyond = _tilts(tables, layout), up.log_beyond  # [Q, K], the first is 0
        theta = theta if beyond is None else theta[:1]
        tails = _tails(up, tables, prior, place, layout, theta)
        log_eta = jnp.logaddexp(log_eta, _log_eta(up, tails.outside[0], tails.total[0]))
        if beyond is None:
            beyond = _log_beyond(tails.total.sum(-1), theta, tables, prior, place, layout)
    log_h = up.log_h_most
    if log_h is None:
        log_c = _with_floor(up.blocks.log_value, log_eta[..., None], layout)
        log_h = log_class_messages(log_c, prior, tables.real, place, layout, N)
    inside = jnp.logaddexp(
        log_total(log_h, place, layout, N), _log_class_floor(log_h, place, layout, N)
    )
    share = _share(up.log_total, inside)
    if beyond is None:
        share = jnp.where(layout.class_ > N, share, 1)
        return Lost(share, share)
    if layout.filters:
        share = jnp.where(layout.filters > N, share, 1)
    if log_h.shape[0] == 1:  # one class: its count is N, which its window holds
        return Lost(share, share)
    sums = jnp.logaddexp(logsumexp(log_h, axis=-1), beyond)
    tops = jnp.minimum(jnp.logaddexp(log_h.max(-1), beyond) - sums, 0)
    others = sums.sum() - sums + _least_other(tops)
    total = jnp.logaddexp(inside, logsumexp(beyond + others))
    return Lost(jnp.maximum(_share(up.log_total, total), share), share)


def _log_class_floor(log_h: jax.Array, place: Placement, layout: Layout, N: jax.Array) -> jax.Array:
    """Log of a bound on what underflow took from `log_total`; -inf where logs are convolved.

    Of at most W^(I-1) products of entries over the largest ones of their messages, each can lose
    three times the smallest number at each convolution: in its factors and in itself.
    """
    I, W = log_h.shape
    if not layout.filters or I == 1:
        return jnp.asarray(-jnp.inf, log_h.dtype)
    theta = tilt(log_h, place, layout, N)
    tops = tilted(log_h, theta, place, layout).max(-1)
    most = math.log(3 * I) + (I - 1) * math.log(W) + math.log(jnp.finfo(log_h.dtype).tiny)
    floor = most + tops.sum() - theta * N
    # Below rounding it is to change nothing at all, so that the bound can be exactly 0.
    least = log_total(log_h, place, layout, N) + math.log(jnp.finfo(log_h.dtype).eps / 8)
    return jnp.where(floor < least, -jnp.inf, floor)


def _with_floor(log_c: jax.Array, log_eta: jax.Array, layout: Layout) -> jax.Array:
    """Log of a bound on c + eta, `[I, K, class window]`."""
    if layout.whole:  # only underflow, which a factor of 2 does not change; no exponentials
        most = jnp.maximum(log_c, log_eta) + math.log(2)
    else:
        most = jnp.logaddexp(log_c, log_eta)
    # Below rounding the sum is to change nothing at all, so that the bound can be exactly 0.
    negligible = log_eta - log_c < jnp.log(jnp.finfo(log_c.dtype).eps / 8)
    return jnp.where(negligible, log_c, most)


def _share(found: jax.Array, bound_: jax.Array) -> jax.Array:
    """1 - exp(found - bound), in [0, 1]; 1 when there is nothing to compare."""
    share = -jnp.expm1(found - bound_)
    return jnp.where(jnp.isfinite(share), jnp.clip(share, 0, 1), 1)


def _least_other(x: jax.Array) -> jax.Array:
    """Min over the other entries of the last axis (0 if there are none), the shape of x."""
    self_ = jnp.eye(x.shape[-1], dtype=bool)
    least = jnp.where(self_, jnp.inf, x[..., None, :]).min(-1)
    return jnp.where(jnp.isfinite(least), least, 0)


def _log_eta(up: Pass, outside: jax.Array, total: jax.Array) -> jax.Array:
    """Log eta_ik without the floor, `[I, K]`, from untilted sums `[I, K, J]`."""
    top = jnp.maximum(up.log_w.max(-1), outside)
    others = total.sum(-1, keepdims=True) - total + _least_other(jnp.minimum(top - total, 0))
    return logsumexp(outside + others, axis=-1)


def _tilts(tables: NoisyTables, layout: Layout) -> jax.Array:
    """Theta `[1 + 2 Q, K]`: 0, then Q positive ones, then their negatives."""
    dtype, K = tables.counts.dtype, tables.n_features
    noise = jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, tables.noise)
    edge = jnp.full((1, 1, 1), layout.cell // 2, dtype)
    slope = (noise.log_prob(edge) - noise.log_prob(edge + 1)).reshape(-1)  # [K] or [1]
    theta = jnp.asarray(_TILTS, dtype)[:, None] * jnp.broadcast_to(slope, (K,))
    return jnp.concatenate([jnp.zeros_like(theta[:1]), theta, -theta])


def _tails(
    up: Pass,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
    theta: jax.Array,
) -> Tails:
    """Sums over all counts, tilted by exp(theta l), for theta `[Q, K]`."""
    m, N = tables.counts, tables.n_records
    real = tables.real
    a = jnp.where(real, prior.feature, 1)
    tilt = theta[:, None, :, None]  # [Q, 1, K, 1]
    low = place.cell.astype(m.dtype)
    # The first count outside on either side, and the next one.
    above, below = low + layout.cell, low - 1
    f = log_noise(tables.noise, m, jnp.stack([above, above + 1, below, below - 1], -1))
    rising = log_rising(jnp.stack([above, jnp.maximum(below, 0)]), a)

    ratio = f[..., 1] - f[..., 0] + jnp.log(jnp.maximum((above + a) / (above + 1), 1)) + tilt
    right = f[..., 0] + rising[0] + tilt * above + _log_geometric(ratio)
    right = jnp.where(real & (above <= N), right, -jnp.inf)
    # Going down, the rising weight is at most its value here (a >= 1) or at 0, where it is 1.
    left = f[..., 2] + jnp.where(a >= 1, rising[1], 0) + tilt * below
    left = left + _log_geometric(f[..., 3] - f[..., 2] - tilt)
    left = jnp.where(real & (below >= 0), left, -jnp.inf)
    outside = jnp.logaddexp(left, right)

    steps = jnp.arange(layout.cell, dtype=m.dtype) - layout.cell // 2
    top = up.log_w.max(-1)
    # The tilt over half a window is at most the fall of the noise there: a moderate number.
    growth = jnp.exp(theta[..., None] * steps)  # [Q, K, window]
    window = jnp.einsum("ikjl,qkl->qikj", jnp.exp(up.log_w - top[..., None]), growth)
    window = jnp.log(window) + top + tilt * (low + layout.cell // 2)
    return Tails(outside, jnp.logaddexp(window, outside))


def _log_geometric(log_ratio: jax.Array) -> jax.Array:
    """Log 1 / (1 - ratio), and +inf for a ratio of 1 or more."""
    falling = log_ratio < 0
    return jnp.where(falling, -jnp.log(-jnp.expm1(jnp.where(falling, log_ratio, -1))), jnp.inf)


def _log_beyond(
    sums: jax.Array,
    theta: jax.Array,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
) -> jax.Array:
    """Log of a bound on sum of h_i(n) over n outside the class's window, `[I]`.

    Args:
        sums: log prod_j sum_l w_j(l) exp(theta l), `[Q, I, K]`.
        theta: `[Q, K]` as `_tilts` orders them.
        tables: the release.
        prior: its prior.
        place: where the windows begin.
        layout: their lengths.
    """
    dtype, N = tables.counts.dtype, tables.n_records
    A = jnp.where(tables.real, prior.feature, 0).sum(-1)  # [I, K]
    length = jnp.exp2(jnp.arange(_STRETCHES, dtype=dtype))
    begin = jnp.cumsum(length) - length  # 0, 1, 3, 7, ...
    counts = class_counts(place, layout, dtype)
    up_, down = counts[:, -1:] + 1 + begin, counts[:, :1] - 1 - begin  # [I, stretch]
    exists = jnp.stack([up_ <= N, down >= 0])
    near = jnp.stack([jnp.minimum(up_, N), jnp.maximum(down, 0)])  # [2, I, stretch]
    far = jnp.stack([jnp.minimum(up_ + length - 1, N), jnp.maximum(down - length + 1, 0)])
    # exp(-theta n) falls away from the window, so its value at the near end bounds a stretch;
    # the rising weights are monotone, so one of their values at the two ends does.
    Q = len(_TILTS)
    chernoff = jnp.stack(
        [
            (sums[q, ..., None] - theta[q][:, None, :, None] * near[side][:, None]).min(0)
            for side, q in enumerate((slice(1, 1 + Q), slice(1 + Q, None)))
        ]
    )  # [2, I, K, stretch]
    concentration = jnp.concatenate([prior.class_[:, None], A], axis=1)[..., None]  # [I, 1 + K, 1]
    rising = log_rising(jnp.stack([near, far])[:, :, :, None], concentration)
    per_class, per_block = rising[:, :, :, 0].max(0), (-rising[:, :, :, 1:]).max(0)
    g = jnp.minimum(per_block + chernoff, log_most(near, far, tables))
    each = jnp.log(jnp.abs(far - near) + 1) + per_class + g.sum(2)
    return logsumexp(jnp.where(exists, each, -jnp.inf), axis=(0, 2))
