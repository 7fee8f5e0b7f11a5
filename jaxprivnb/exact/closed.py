"""Blocks of two cells under a flat prior, in closed form: no transforms.

With concentrations of 1 the rising weights are 1, and under noise of the form exp(-|x| / b) the
message of a block is a sum of exponentials of a piecewise linear function,

    c(n) = sum_{l=0..n} exp(-f(l) / b),   f(l) = |m_1 - l| + |m_2 - (n - l)|.

Counts are clipped to 0..N first: |m - l| = |m - clip m| + |clip m - l| for every l in it. With
lo <= hi the two corners m_1 and n - m_2 of f, and D = m_1 + m_2 - n: between them f is |D|, and
outside it grows by 2 a step. Relative to exp(-|D| / b), c(n) is therefore

    W_1 A(u_1) + (n + 1 - u_1 - u_2) + W_2 A(u_2),   A(u) = sum_{d < u} exp(-2 d / b):

u_1 terms below lo, a stretch of equal terms, u_2 terms above hi, with

    u_1 = min(max(n - floor m_2, 0), ceil m_1),
    W_1 = exp(-2 (1 + floor m_2 - m_2) / b)   where D >= 0: lo = n - m_2 moves with n,
    W_1 = exp(-2 (1 + m_1 - ceil m_1) / b)    where D < 0:  lo = m_1 stays,

and u_2, W_2 the same with m_1 and m_2 exchanged, since the second cell's count is n - l. So no
exponential is taken for every n: W is one of a few numbers a row, and A(u), which grows with u, is
the smaller of a shifted table and a number. Conditional means of l + 1 and (l + 1)(l + 2), of both
cells, are sums of the same three parts, with tables of the means of d and d^2 under exp(-2 d / b),
which grow with u too. Tables are summed from positive terms: closed forms would lose every digit
when b dwarfs N.

Where the stretch is empty both other parts have terms, because clipped counts leave l = 0 and l = n
on either side, and the larger W is taken out of both, into the scale. So the sum above is at least
1, and nothing underflows.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.exact.aim import Aims
from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.fourier import Fourier
from jaxprivnb.exact.moments import Sums
from jaxprivnb.exact.path import Messages


class _Inner(NamedTuple):
    """Of both cells, `[I, K, 2, W]`."""

    first: jax.Array
    """E[l + 1 | n]."""
    second: jax.Array
    """E[(l + 1)^2 | n]."""


class _Side(NamedTuple):
    """The terms outside one corner; d = 0, 1, ... counts them from there. `[I, K, W]` each."""

    terms: jax.Array
    """u, how many there are."""
    total: jax.Array
    """A(u)."""
    first: jax.Array
    """Mean of d."""
    second: jax.Array
    """Mean of d^2."""


@dataclasses.dataclass(frozen=True)
class Closed:
    """Static shape of a fit in closed form: two categories a feature; hashable."""

    questions: Fourier
    """The path by which whole distributions of counts are computed."""

    @property
    def whole(self) -> bool:
        """All counts 0..N are computed."""
        return True

    def suits(self, data: Dataset) -> jax.Array:
        """Whether the prior is flat and every cell is real."""
        return jnp.all(data.a == 1) & jnp.all(data.real)

    @property
    def scout(self) -> None:
        """Nothing needs aiming."""
        return None

    def messages(self, data: Dataset, aims: Aims | None) -> Messages:
        """log c_ik(n), without loss, and the conditional moments of both cells."""
        (only,) = data.seen
        length, N, given = self.questions.window, data.n_records, only.low
        (scale,) = jax.tree.leaves(only.noise)  # scalar or [K, 1]
        n = jnp.arange(length, dtype=given.dtype)
        # As `clip`, but with a derivative of 1 at the ends as well, where counts of 0 are.
        m = jnp.where(given < 0, 0, jnp.where(given > N, N, given))
        low, high = jnp.floor(m), jnp.ceil(m)

        sums = _partial_sums(scale if scale.ndim == 0 else scale[:, 0], length)
        below = _side(low[..., 1], high[..., 0], sums)
        above = _side(low[..., 0], high[..., 1], sums)
        level = n + 1 - below.terms - above.terms
        D = m.sum(-1, keepdims=True) - n  # [I, K, W]
        w_1, w_2, shift = _weights(m - low, high - m, scale, D >= 0, level == 0)
        w_1, w_2 = w_1 * below.total, w_2 * above.total
        total = w_1 + level + w_2
        # l + 1 is u - d below, evenly spread about its middle between, and start + d above; the
        # second cell's, which is n + 2 less that, is the same from the other end.
        ends = (below, w_1), (above, w_2)
        first, second = [], []
        for (near, w), (far, v) in (ends, ends[::-1]):
            u, start = near.terms, n + 2 - far.terms
            middle = (u + start) / 2
            first.append(w * (u - near.first) + level * middle + v * (start + far.first))
            second.append(
                w * (u * u - 2 * u * near.first + near.second)
                + level * (middle * middle + (jnp.square(level) - 1) / 12)
                + v * (start * start + 2 * start * far.first + far.second)
            )
        inner = _Inner(*(jnp.stack(x, 2) / total[:, :, None] for x in (first, second)))
        taken = data.log_factor(m[..., None])[..., 0].sum(-1)  # [I, K]
        log_scale = taken[..., None] - (jnp.where(D >= 0, D, -D) / scale + shift)
        log_c = jnp.log(total) + log_scale
        none = jnp.zeros_like(data.a_class)
        # Distances are rounded, which small scales magnify.
        rounding = 2 * float(jnp.finfo(n.dtype).eps) * lax.stop_gradient(jnp.abs(D) / scale)
        most = log_c + jnp.log1p(rounding)
        return Messages(log_c, most, none, none, jnp.zeros_like(data.A), None, inner)

    def pulled(self, messages: Messages, z: jax.Array) -> Sums:
        """Sums of powers of l + 1 over every cell's counts, from weights z `[Q, I, K, W]`."""
        over_n = lambda x: jnp.einsum("qikn,ikjn->qikj", z, x)  # noqa: E731
        first, second = map(over_n, messages.inner)
        zeroth = jnp.broadcast_to(z.sum(-1)[..., None], first.shape)
        return Sums(zeroth, first, second, jnp.full_like(first[0], -1))


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
    slice_ = lambda x, start: lax.dynamic_slice_in_dim(x, start, length)  # noqa: E731
    by_feature = 0 if sums.ndim == 3 else None
    rows = jax.vmap(jax.vmap(slice_, (by_feature, 0)), (None, 0))
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
        falling: D >= 0, `[I, K, W]`.
        empty: where there are no terms between the corners, `[I, K, W]`.
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
