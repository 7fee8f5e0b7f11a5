"""A bound on the posterior mass that a fit left out or may have wrong.

Every path gives an upper bound on c_ik(n) for the n in the class's window: what it found, plus what
windows of cells, wrapping and rounding may have done to it. The evidence of these bounds dominates
the mass of all tables whose class counts are inside their windows. For class counts outside there
are Chernoff's bounds c_ik(n) <= exp(b - s n), secants where c_ik is log-concave, and the concavity
of log f:

    g_ik(n) = c_ik(n) / ((A_ik)_n / n!)

is a mean of prod_j f(m_j - l_j) over tables with sum_j l_j = n, at most f((S - n) / J)^J with
S = sum_j m_j (`measurement.py`). The smallest is summed over stretches of doubling length, on which
every other factor is monotone. What a group's total says is at most its largest value, which was
taken out of it, and for totals beyond that no more than at the least total there. One minus the
ratio of the computed evidence to the sum of these is `lost_mass`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxprivnb.exact.classes import (
    Root,
    class_counts,
    log_anchor,
    log_class_messages,
    root_of,
)
from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.path import Messages
from jaxprivnb.exact.rising import log_rising

_STRETCHES = 31
"""Stretches of length 1, 2, 4, ...: together longer than any N that int32 holds."""


class _Secants(NamedTuple):
    """log c_ik(n) <= height + slope |n - edge| for n on the far side of the edge: `[2, I, K]` each,
    of the last count that is known and of the first one.
    """

    edge: jax.Array
    """The count itself."""
    height: jax.Array
    """The most that log c_ik can be there; inf where there is no such bound."""
    slope: jax.Array
    """Outwards; where c_ik falls it is negative."""


def _secants(messages: Messages, data: Dataset) -> _Secants:
    """Where all concentrations of a block are at least 1 its weights are log-concave, as noise is,
    and so is their convolution c: beyond two of its points it is below their secant. Chernoff's
    bound, which holds for all, is some sqrt(2 pi) sd higher, for every block.
    """
    log_c, log_most = messages.log_c, messages.log_most
    known = jnp.isfinite(log_c) & (log_most - log_c < 0.5)
    last = log_c.shape[-1] - 1 - jnp.argmax(known[..., ::-1], axis=-1)
    first = jnp.argmax(known, axis=-1)
    step = jnp.maximum((last - first) // 8, 1)
    edge, inner = jnp.stack([last, first]), jnp.stack([last - step, first + step])
    inner = jnp.clip(inner, 0, log_c.shape[-1] - 1)
    at = lambda x, i: jnp.take_along_axis(x, i[..., None], axis=-1)[..., 0]  # noqa: E731
    good = jnp.stack([at(known, edge[s]) & at(known, inner[s]) for s in (0, 1)])
    good &= jnp.all((data.a >= 1) | ~data.real, axis=-1) & (edge != inner)
    most, found, off = (
        jnp.where(good, jnp.stack([at(x, i[s]) for s in (0, 1)]), 0)
        for x, i in ((log_most, edge), (log_c, inner), (log_most - log_c, inner))
    )
    # The least that c may be where it was found: what may be too little may be too much as well.
    slope = (most - found - jnp.log1p(-jnp.expm1(off))) / step.astype(most.dtype)
    edge = messages.start[:, None] + edge.astype(most.dtype)
    return _Secants(edge, jnp.where(good, most, jnp.inf), slope)


def _tightened(messages: Messages, secants: _Secants) -> Messages:
    """With secants for the counts of the windows that are beyond them."""
    n = class_counts(messages.start, messages.log_c.shape[-1])[:, None]  # [I, 1, W]
    away = (n - secants.edge[..., None]) * jnp.asarray([1, -1], n.dtype)[:, None, None, None]
    line = secants.height[..., None] + secants.slope[..., None] * away
    line = jnp.where(away > 0, line, jnp.inf).min(0)
    return messages._replace(log_most=jnp.minimum(messages.log_most, line))


def lost_mass(
    messages: Messages, found: Root, data: Dataset, *, whole: bool
) -> tuple[jax.Array, jax.Array]:
    """(The bound, scalar in [0, 1]; P(n_i = n) under the upper bounds, `[I, W]`)."""
    N, start, window = data.n_records, messages.start, messages.log_c.shape[-1]
    secants = _secants(messages, data)
    if not whole:  # where every count is computed nothing is taken for granted of the noise
        messages = _tightened(messages, secants)
    log_h = log_class_messages(messages.log_most, data, start, whole=whole)
    most = root_of(log_h, data, start, whole=whole)
    inside = most.log_total + jnp.log1p(most.rounding) + _rounding_of_logs(messages, log_h, found)
    if messages.tails is None:
        share = jnp.where(window > N, _share(found.log_total, inside), 1)
        return jnp.maximum(share, _small(found.rounding)), most.pmf
    total = inside
    if data.log_n is not None:
        total = jnp.logaddexp(inside, _log_outside_unknown(messages, secants, data, log_h))
    elif log_h.shape[0] > 1:  # the count of an only class is N, which its window holds
        beyond = _log_beyond(messages, secants, data)  # [I]
        sums = jnp.logaddexp(logsumexp(log_h, axis=-1), beyond)
        tops = jnp.minimum(jnp.logaddexp(log_h.max(-1), beyond) - sums, 0)
        others = sums.sum() - sums + _least_other(tops)
        total = jnp.logaddexp(inside, logsumexp(beyond + others))
    share = _share(found.log_total, total)
    return jnp.maximum(share, _small(found.rounding)), most.pmf


def _rounding_of_logs(messages: Messages, log_h: jax.Array, found: Root) -> jax.Array:
    """What rounding may add to log h_i(n), a sum of logs, where the posterior is."""
    blocks = jnp.sqrt(jnp.square(messages.log_most).sum(1))
    sizes = jnp.abs(log_h) + blocks  # [I, W]
    sizes = jnp.where((found.pmf > 0) & jnp.isfinite(sizes), sizes, 0)
    return float(jnp.finfo(log_h.dtype).eps) * (found.pmf * sizes).sum()


def _small(rounding: jax.Array) -> jax.Array:
    return jnp.where(rounding < 1, rounding, 1)


def _share(found: jax.Array, bound: jax.Array) -> jax.Array:
    """1 - exp(found - bound), in [0, 1]; 1 when there is nothing to compare."""
    share = -jnp.expm1(found - bound)
    return jnp.where(jnp.isfinite(share), jnp.clip(share, 0, 1), 1)


def _least_other(x: jax.Array) -> jax.Array:
    """min over the other entries of the last axis (0 if there are none), the shape of x."""
    self_ = jnp.eye(x.shape[-1], dtype=bool)
    least = jnp.where(self_, jnp.inf, x[..., None, :]).min(-1)
    return jnp.where(jnp.isfinite(least), least, 0)


def _log_outside_unknown(
    messages: Messages, secants: _Secants, data: Dataset, log_h: jax.Array
) -> jax.Array:
    """log of a bound on the mass of all class counts of which one is outside, where N is not known.

    rho(N) / pi(N) is log-convex or log-concave in N. With N_0 = sum_i n_0i in the middle of the
    windows it is at most rho(N_0) (1 + exp(slope (N - N_0))), by its chord from 0 in the one case
    and by its tangent in the other, and exp(slope (N - N_0)) = prod_i exp(slope (n_i - n_0i)): the
    sums of the classes are then independent.
    """
    assert data.log_n is not None
    middle, s = messages.middle, data.a_class.sum()
    N_0 = jnp.maximum(middle.sum(), 1)
    at = -log_rising(N_0, s)
    # Where s < 1 the tangent at N_0 rises less than (1 - s) / N_0.
    slope = jnp.where(s >= 1, at / N_0, (1 - s) / N_0)
    n = class_counts(messages.start, log_h.shape[-1]) - middle[:, None]
    found = []
    for tilt in (jnp.zeros_like(slope), slope):
        beyond = _log_beyond(messages, secants, data, tilt)
        sums = jnp.logaddexp(logsumexp(log_h + tilt * n, axis=-1), beyond)
        found.append(logsumexp(beyond + sums.sum() - sums) + tilt * (middle.sum() - N_0))
    weight = data.log_n.max() if data.log_n.shape[-1] else 0.0
    return jnp.logaddexp(*found) + at + weight


def _log_beyond(
    messages: Messages, secants: _Secants, data: Dataset, slope: jax.Array | float = 0.0
) -> jax.Array:
    """log of a bound on sum of h_i(n) over n outside the class's window, `[I]`.

    Less what log h_i itself is less, and each term times exp(slope (n - middle)).
    """
    dtype, N, tails = data.a.dtype, data.n_records, messages.tails
    assert tails is not None
    start, window = messages.start, messages.log_c.shape[-1]
    length = jnp.exp2(jnp.arange(_STRETCHES, dtype=dtype))
    begin = jnp.cumsum(length) - length  # 0, 1, 3, 7, ...
    up = start[:, None] + window + begin  # [I, stretch]
    down = start[:, None] - 1 - begin
    exists = jnp.stack([up <= N, down >= 0])
    near = jnp.stack([jnp.minimum(up, N), jnp.maximum(down, 0)])  # [2, I, stretch]
    far = jnp.stack([jnp.minimum(up + length - 1, N), jnp.maximum(down - length + 1, 0)])
    # A line is monotone, so one of its ends bounds it on a stretch; so it is with rising weights.
    at = lambda n: (  # noqa: E731
        tails.log_bound[..., None]
        - tails.slope[..., None] * (n - messages.middle[:, None])[:, None, :, None]
    )  # [2, Q, I, K, stretch]
    chernoff = jnp.maximum(at(near), at(far)).min(1)  # [2, I, K, stretch]
    edge = secants.edge[..., None]  # [2, I, K, 1]
    out = lambda n: (  # noqa: E731
        secants.height[..., None] + secants.slope[..., None] * jnp.abs(n[:, :, None] - edge)
    )
    chernoff = jnp.minimum(chernoff, jnp.maximum(out(near), out(far)))
    concentration = jnp.concatenate([data.a_class[:, None], data.A], axis=1)[..., None]
    rising = log_rising(jnp.stack([near, far])[:, :, :, None], concentration)
    per_class, per_block = rising[:, :, :, 0].max(0), (-rising[:, :, :, 1:]).max(0)
    ends = jnp.stack([near, far])[..., None, :]  # [2, 2, I, 1, stretch]
    most = data.log_most(ends.min(0), ends.max(0)) - messages.log_shift[..., None]
    g = jnp.minimum(per_block + chernoff, most)
    line = slope * (jnp.stack([near, far]) - messages.middle[:, None])  # [2, 2, I, stretch]
    each = jnp.log(jnp.abs(far - near) + 1) + per_class + g.sum(2) + line.max(0)
    each = each - log_anchor(data, start)[:, None]
    if data.class_totals is not None:
        n = data.class_totals[:, None]
        least, most = jnp.minimum(near, far), jnp.maximum(near, far)
        exists &= jnp.isnan(n) | ((least <= n) & (n <= most))
    for r, group in enumerate(data.groups):
        # A group has no fewer records than any class in it; a class alone has no more, either.
        best = group.likeliest(N)
        for i in group.classes:
            up, down = near[0, i], near[1, i]  # the counts nearest to the window
            each = each.at[0, i].add(data.log_group(r, jnp.maximum(up, best)))
            if len(group.classes) == 1:
                each = each.at[1, i].add(data.log_group(r, jnp.minimum(down, best)))
    return logsumexp(jnp.where(exists, each, -jnp.inf), axis=(0, 2))
