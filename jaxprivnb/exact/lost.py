"""A bound on the posterior mass that windows and floating point left out.

Let "in" mean inside the windows. Write S_j for the sum and M_j for the maximum of a cell's weight
over *all* counts 0..N: the window's, plus its tails. A cell outside its window adds to any entry
of its block at most |w_c out|_1 times the maximum of the convolution of the others, so

    c_ik(n) <= c_ik in(n) + eta_ik,   eta_ik = sum_c |w_c out|_1 min_{j != c} (M_j / S_j) prod_{j != c} S_j

for every n; underflow adds its own floor to eta. Evidence computed with c + eta therefore
dominates the mass of all tables whose class counts are inside their windows. For class counts
outside, Chernoff's bound c_ik(n) <= exp(-theta n) prod_j sum_l w_j(l) exp(theta l) holds for any
theta; it is summed over stretches of doubling length, on which every other factor is monotone.
One minus the ratio of the computed evidence to the sum of these is `lost_mass`.

Tails of a weight are geometric bounds. They need a noise whose log density is concave, as those of
Laplace, geometric and Gaussian noise are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxprivnb.exact.evidence import class_counts, log_class_messages, log_total
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


def bound(
    up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> Lost:
    """The mass left out by this pass; see the module."""
    N, real = tables.n_records, tables.real
    log_eta = up.blocks.log_floor
    if not layout.whole:
        log_eta = jnp.logaddexp(log_eta, _log_eta(up, tables, prior, place, layout))
    log_c = jnp.logaddexp(up.blocks.log_value, log_eta[..., None])
    # Below rounding the sum is to change nothing at all, so that the bound can be exactly 0.
    negligible = log_eta[..., None] - up.blocks.log_value < jnp.log(jnp.finfo(log_c.dtype).eps / 8)
    log_c = jnp.where(negligible, up.blocks.log_value, log_c)
    log_h = log_class_messages(log_c, prior, real, place, layout, N)
    inside = log_total(log_h, place, layout, N)
    if layout.whole:
        missing = jnp.where(N < layout.class_, _share(up.log_total, inside), 1)
        return Lost(missing, missing)
    if log_h.shape[0] == 1:  # one class: its count is N, which its window holds
        missing = _share(up.log_total, inside)
        return Lost(missing, missing)

    beyond = _log_beyond(up, tables, prior, place, layout)  # [I]
    sums = jnp.logaddexp(logsumexp(log_h, axis=-1), beyond)
    tops = jnp.minimum(jnp.logaddexp(log_h.max(-1), beyond) - sums, 0)
    others = sums.sum() - sums + _least_other(tops)
    total = jnp.logaddexp(inside, logsumexp(beyond + others))
    return Lost(_share(up.log_total, total), _share(up.log_total, inside))


def _share(found: jax.Array, bound_: jax.Array) -> jax.Array:
    """1 - exp(found - bound), in [0, 1]; 1 when there is nothing to compare."""
    share = -jnp.expm1(found - bound_)
    return jnp.where(jnp.isfinite(share), jnp.clip(share, 0, 1), 1)


def _least_other(x: jax.Array) -> jax.Array:
    """min over the other entries of the last axis (0 if there are none), the shape of x."""
    J = x.shape[-1]
    self_ = jnp.eye(J, dtype=bool)
    least = jnp.where(self_, jnp.inf, x[..., None, :]).min(-1)
    return jnp.where(jnp.isfinite(least), least, 0)


def _log_eta(
    up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> jax.Array:
    """log eta_ik without the floor, `[I, K]`."""
    tails = _tails(up, tables, prior, place, layout, jnp.zeros((1, 1), tables.counts.dtype))
    outside, total = tails.outside[0], tails.total[0]
    top = jnp.maximum(up.log_w.max(-1), outside)
    others = total.sum(-1, keepdims=True) - total + _least_other(jnp.minimum(top - total, 0))
    return logsumexp(outside + others, axis=-1)


def _tails(
    up: Pass,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
    theta: jax.Array,
) -> Tails:
    """Sums over all counts, tilted by exp(theta l), for theta `[Q, K]` (or `[Q, 1]`)."""
    m, N = tables.counts, tables.n_records
    real = tables.real
    a = jnp.where(real, prior.feature, 1)
    tilt = theta[:, None, :, None]  # [Q, 1, K, 1]
    low = place.cell.astype(m.dtype)

    above = low + layout.cell  # the first count to the right, and the ratio of the next to it
    f0, f1 = _noise_at(tables, above), _noise_at(tables, above + 1)
    ratio = f1 - f0 + jnp.log(jnp.maximum((above + a) / (above + 1), 1)) + tilt
    right = f0 + log_rising(above, a) + tilt * above + _log_geometric(ratio)
    right = jnp.where(real & (above <= N), right, -jnp.inf)

    below = low - 1
    f0, f1 = _noise_at(tables, below), _noise_at(tables, below - 1)
    # The rising weight is at most its value at the window (a >= 1) or at 0, where it is 1.
    rising = jnp.where(a >= 1, log_rising(jnp.maximum(below, 0), a), 0)
    left = f0 + rising + tilt * below + _log_geometric(f1 - f0 - tilt)
    left = jnp.where(real & (below >= 0), left, -jnp.inf)

    steps = jnp.arange(layout.cell, dtype=m.dtype)
    top = up.log_w.max(-1)
    # exp(theta * step) stays within exp(+-DEPTH), so the product below neither over- nor underflows.
    growth = jnp.exp(theta[..., None] * (steps - layout.cell // 2))  # [Q, K or 1, window]
    growth = jnp.broadcast_to(growth, (theta.shape[0], m.shape[1], layout.cell))
    weight = jnp.exp(up.log_w - top[..., None])
    window = jnp.einsum("ikjl,qkl->qikj", weight, growth)
    window = jnp.log(window) + top + tilt * (low + layout.cell // 2)
    outside = jnp.logaddexp(left, right)
    return Tails(outside, jnp.logaddexp(window, outside))


def _noise_at(tables: NoisyTables, n: jax.Array) -> jax.Array:
    """log f(m - n), `[I, K, J]`."""
    return log_noise(tables.noise, tables.counts, n[..., None])[..., 0]


def _log_geometric(log_ratio: jax.Array) -> jax.Array:
    """log 1 / (1 - ratio), and +inf for a ratio of 1 or more."""
    falling = log_ratio < 0
    return jnp.where(falling, -jnp.log(-jnp.expm1(jnp.where(falling, log_ratio, -1))), jnp.inf)


def _log_beyond(
    up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> jax.Array:
    """log of a bound on sum of h_i(n) over n outside the class's window, `[I]`."""
    dtype, N, real = tables.counts.dtype, tables.n_records, tables.real
    # The slope of the noise at the edge of a cell's window, one a table.
    edge = jnp.full(real.shape, layout.cell // 2, dtype)[None, :, :1]
    noise = jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, tables.noise)
    slope = (noise.log_prob(edge) - noise.log_prob(edge + 1))[0, :, 0]  # [K]
    theta = jnp.asarray(_TILTS, dtype)[:, None] * slope

    A = jnp.where(real, prior.feature, 0).sum(-1)  # [I, K]
    length = jnp.exp2(jnp.arange(_STRETCHES, dtype=dtype))
    begin = jnp.cumsum(length) - length  # 0, 1, 3, 7, ...
    counts = class_counts(place, layout, dtype)

    def one_side(near: jax.Array, far: jax.Array, exists: jax.Array, theta: jax.Array) -> jax.Array:
        """near, far `[I, stretch]`: the ends of each stretch, near being next to the window."""
        sums = _tails(up, tables, prior, place, layout, theta).total.sum(-1)  # [Q, I, K]
        chernoff = (sums[..., None] - theta[:, None, :, None] * near[:, None]).min(0)
        ends = jnp.stack([near, far])
        rising = log_rising(ends, prior.class_[:, None]).max(0)
        kappa = (-log_rising(ends[:, :, None], A[..., None])).max(0)  # [I, K, stretch]
        size = jnp.log(jnp.abs(far - near) + 1)
        each = size + rising + (kappa + chernoff).sum(1)
        return logsumexp(jnp.where(exists, each, -jnp.inf), axis=-1)

    first = counts[:, -1:] + 1 + begin  # right of the window
    right = one_side(
        jnp.minimum(first, N), jnp.minimum(first + length - 1, N), first <= N, theta
    )
    first = counts[:, :1] - 1 - begin  # left of it
    left = one_side(
        jnp.maximum(first, 0), jnp.maximum(first - length + 1, 0), first >= 0, -theta
    )
    return jnp.logaddexp(left, right)
