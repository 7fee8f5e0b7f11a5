"""Posteriors of single parameters: finite mixtures of Betas, raised to one common total.

Given its count l out of n, a feature parameter is Beta(a + l, A - a + n - l), and

    Beta(s, t) = s / (s + t) Beta(s + 1, t) + t / (s + t) Beta(s, t + 1),

so the components with class count n are carried to n + 1, joined by those that live there, and so
on to the top of the window: what is left is a mixture over l alone, a `Marginal`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb import dirichlet
from jaxprivnb.exact.classes import Shared
from jaxprivnb.exact.dataset import Cells, Dataset
from jaxprivnb.exact.fourier import Joint
from jaxprivnb.exact.windows import cut, fast_length
from jaxprivnb.marginals import Marginal
from jaxprivnb.parallel import one_by_one

_TILE = 3_072
"""Counts that are raised at once: on a CPU longer rows leave the cache, and are handed out to
threads at every step."""


class Extent(NamedTuple):
    """Counts beyond which a posterior has no mass to speak of."""

    first_n: jax.Array
    """`[I]`."""
    first_l: jax.Array
    """`[I, C]`."""


def class_marginals(data: Dataset, pmf: jax.Array, start: jax.Array) -> Marginal:
    """P(Y=i) given m: Beta(a_i + n, sum a - a_i + N - n) with weight P(n_i = n | m), `[I]`."""
    a, first = data.a_class, start.astype(jnp.int32)
    N = jnp.broadcast_to(data.n_records.astype(jnp.int32), first.shape)
    return Marginal(pmf, a, dirichlet.others(a), first, N)


def class_marginals_over_n(
    data: Dataset,
    together: Shared,
    start: jax.Array,
    first: tuple[jax.Array, jax.Array],
    lengths: tuple[int, int],
) -> Marginal:
    """The same where N is not known, every class raised to the top of N's window; `[I]`.

    Args:
        data: one dataset.
        together: the class counts with N.
        start: the first counts of their windows, `[I]`.
        first: first counts to go by, of the classes `[I]` and of N.
        lengths: how many of each, (R, T).
    """
    (first_n, first_total), (R, T) = first, lengths
    a, s = data.a_class, data.a_class.sum()
    begin = start.sum()
    own = cut(together.own, first_n - start, R)
    lowest = first_total - first_n - (R - 1)
    others = cut(together.others, lowest - (begin - start), R + T - 1)
    factor = cut(together.factor[None], (first_total - begin)[None], T)
    raise_one = lambda x, y, a, l: _raise(  # noqa: E731
        Joint(x[None], y[None], factor), a, s, l, first_total, width=R + T - 1
    )
    weight = jax.vmap(raise_one)(own, others, a, first_n)
    low = first_n.astype(jnp.int32)
    top = jnp.broadcast_to(first_total.astype(jnp.int32) + (T - 1), low.shape)
    return Marginal(weight, a, dirichlet.others(a), low, top)


def feature_marginals(
    data: Dataset, cells: Cells, joint: Joint, extent: Extent, *, whole: bool
) -> Marginal:
    """P(X_k=j | Y=i) given m, every cell raised to the top of its class's window; `[I, K, J]`.

    Args:
        data: one dataset.
        cells: its real cells.
        joint: of the cells' counts and their classes', on the windows of `extent`.
        extent: where these begin.
        whole: they hold 0..N, so that no count is beyond.
    """
    pairs = is_pairs(cells)
    some = (lambda x, axis: lax.slice_in_dim(x, 0, None, 2, axis)) if pairs else (
        lambda x, axis: x)  # fmt: skip
    a, A = cells.rows(data.a), data.A[:, cells.feature]
    rest = cells.rows(dirichlet.others(data.a))
    first_n = jnp.broadcast_to(extent.first_n[:, None], extent.first_l.shape)
    joint = Joint(*(some(x, 2) for x in joint))
    a, A, rest, first_l, first_n = (some(x, 1) for x in (a, A, rest, extent.first_l, first_n))
    T, R = joint.factor.shape[-1], joint.cell.shape[-1]
    width = R if whole else R + T - 1
    rows = lambda x: jnp.moveaxis(x, 0, 2).reshape(-1, x.shape[0], x.shape[-1])  # noqa: E731
    of_cells = tuple(x.reshape(-1) for x in (a, A, first_l, first_n))
    one = lambda row: _raise(Joint(*row[0]), *row[1], width=width)  # noqa: E731
    weight = one_by_one(one, (tuple(map(rows, joint)), of_cells))
    top = first_n.astype(jnp.int32) + (T - 1)
    found = Marginal(weight.reshape(*a.shape, width), a, rest, first_l.astype(jnp.int32), top)
    if pairs:
        found = jax.tree.map(lambda x, y: jnp.stack([x, y], 2), found, found.mirrored)
        return jax.tree.map(lambda x: x.reshape(x.shape[0], -1, 2, *x.shape[3:]), found)
    # Masked cells are certainly 0, which concentrations of 0 say.
    wide = jnp.moveaxis(cells.table(jnp.moveaxis(found.weight, -1, 0)), 0, -1)
    return Marginal(wide, *(cells.table(x, 0) for x in (found.a, found.b, found.first, found.n)))


def is_pairs(cells: Cells) -> bool:
    """Whether every feature has two categories, and its table no other cells."""
    return cells.complete and set(cells.sizes) == {2}


def pair_marginals(data: Dataset, pmf: jax.Array, *, flat: bool) -> Marginal:
    """`feature_marginals` of two categories on windows 0..W - 1, from P(n_i = n | m) `[I, W]`.

    With two cells P(n_ik1 = l | n_i = n, m) = w_1(l) w_2(n - l) / c(n) needs no other cells'
    messages: one tilt a block, under which w_1 and w_2 peak about where the posterior is.
    """
    W = pmf.shape[-1]
    log_w = data.log_weight_window(jnp.zeros_like(data.anchor), W, flat=flat)
    n = jnp.arange(W, dtype=pmf.dtype)
    middle = jnp.clip(jnp.round((pmf * n).sum(-1)), 0, W - 1).astype(jnp.int32)
    joint = jax.vmap(jax.vmap(_pair_joint, (0, None, None)))(log_w, pmf, middle)  # [I, K, 1, ...]
    a, rest = data.a[..., 0], data.a[..., 1]
    flat_rows = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    none = jnp.zeros_like(a.reshape(-1))
    raise_one = lambda row, a, A, zero: _raise(row, a, A, zero, zero, width=W)  # noqa: E731
    weight = jax.vmap(raise_one)(
        jax.tree.map(flat_rows, joint), a.reshape(-1), data.A.reshape(-1), none
    )
    first = jnp.zeros(a.shape, jnp.int32)
    found = Marginal(weight.reshape(*a.shape, W), a, rest, first, jnp.full_like(first, W - 1))
    return jax.tree.map(lambda x, y: jnp.stack([x, y], 2), found, found.mirrored)


def _pair_joint(log_w: jax.Array, pmf: jax.Array, middle: jax.Array) -> Joint:
    """P(n_ik1 = l, n_i = n | m) of one block from its log weights `[2, W]`, under one tilt."""
    (x, y), (W, dtype) = log_w, (pmf.shape[-1], pmf.dtype)
    backwards = jnp.pad(lax.rev(y, (0,)), (0, W - 1), constant_values=-jnp.inf)
    at = jnp.argmax(x + lax.dynamic_slice_in_dim(backwards, W - 1 - middle, W))
    at = jnp.stack([at.astype(jnp.int32), middle - at.astype(jnp.int32)])
    # At the likeliest split of the middle count both log weights fall to the right and rise to the
    # left under any tilt between these slopes.
    rise = jnp.pad(jnp.diff(log_w), ((0, 0), (1, 1)), constant_values=jnp.inf)
    left = jnp.take_along_axis(rise, at[:, None], 1).min()
    right = jnp.take_along_axis(rise.at[:, -1].set(-jnp.inf), at[:, None] + 1, 1).max()
    left, right = (jnp.where(jnp.isfinite(s), s, o) for s, o in ((left, right), (right, left)))
    tilt = -0.5 * (left + right)
    tilt = jnp.where(jnp.isfinite(tilt), tilt, 0)
    tilted = log_w + tilt * (jnp.arange(W, dtype=dtype) - at.astype(dtype)[:, None])
    x, y = jnp.exp(tilted - tilted.max(-1, keepdims=True))
    L = fast_length(2 * W - 1)
    c = jnp.fft.irfft(jnp.fft.rfft(x, n=L) * jnp.fft.rfft(y, n=L), n=L)[:W]
    known = c > 8 * jnp.finfo(dtype).eps * jnp.sqrt(jnp.square(c).sum())
    factor = jnp.where(known, pmf / jnp.where(known, c, 1), 0)
    others = jnp.pad(y, (W - 1, 0))  # at n - l = -(W - 1), ..., W - 1
    return Joint(x[None], others[None], factor[None])


def _raise(
    joint: Joint,
    a: jax.Array,
    A: jax.Array,
    first_l: jax.Array,
    first_n: jax.Array,
    *,
    width: int,
) -> jax.Array:
    """Weights over l once every component is at the top of the class's window, `[width]`.

    Args:
        joint: of one cell, `[M, ...]`.
        a: its concentration.
        A: the sum of its block's.
        first_l: first count of the cell's window.
        first_n: first count of the class's.
        width: of the result.
    """
    T, R = joint.factor.shape[-1], joint.cell.shape[-1]
    tiles = -(-width // _TILE)
    B = -(-width // tiles)
    cell = jnp.pad(joint.cell, ((0, 0), (0, tiles * B - R)))
    backwards = jnp.pad(lax.rev(joint.others, (1,)), ((0, 0), (0, tiles * B - R)))

    def raise_tile(left: jax.Array | None, begin: jax.Array) -> tuple[Any, jax.Array]:
        """A tile of B counts, given what stands before it at each step, `[T]`; the next one's."""
        l = first_l + begin.astype(a.dtype) + jnp.arange(B, dtype=a.dtype)
        own = lax.dynamic_slice_in_dim(cell, begin, B, axis=1)

        def at(t: jax.Array) -> jax.Array:
            near = lax.dynamic_slice_in_dim(backwards, T - 1 - t + begin, B, axis=1)
            return (own * near * lax.dynamic_slice_in_dim(joint.factor, t, 1, axis=1)).sum(0)

        def up_one(t: jax.Array, now: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
            v, ends = now
            n = first_n + (t - 1).astype(l.dtype)
            before = jnp.pad(v[:-1], (1, 0))
            if left is not None:
                before = before.at[0].set(left[t - 1])
            moved = v * jnp.maximum((A - a) + (n - l), 0) + before * (a + (l - 1))
            v = moved * (1 / (A + n)) + at(t)
            return v, None if left is None else ends.at[t].set(v[-1])

        v = at(jnp.zeros((), jnp.int32))
        ends = None if left is None else jnp.pad(v[-1:], (0, T - 1))
        v, ends = lax.fori_loop(1, T, up_one, (v, ends))
        return ends, v

    if tiles == 1:
        return raise_tile(None, jnp.zeros((), jnp.int32))[1]
    begins = B * jnp.arange(tiles, dtype=jnp.int32)
    _, found = lax.scan(raise_tile, jnp.zeros_like(joint.factor[0]), begins)
    return found.reshape(-1)[:width]
