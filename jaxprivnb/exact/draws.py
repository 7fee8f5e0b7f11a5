"""Exact i.i.d. posterior draws: integer tables backward through the messages, then Dirichlets.

Class counts are drawn one at a time, n_i from h_i(n) [h_{i+1} * ... * h_I](rest - n); then, given
n_i, the cells of each block in the same way. No chain, no burn-in.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxprivnb.exact import groups
from jaxprivnb.exact.classes import rows, suffixes, tilted
from jaxprivnb.exact.dataset import Cells, Dataset
from jaxprivnb.exact.fourier import Splits
from jaxprivnb.parallel import one_by_one

_RADIX = 48
"""Weights are added up in pieces, at most so many at each of a few levels: only the piece that
holds a draw is looked at closely."""


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
    data: Dataset,
    cells: Cells,
    log_h: jax.Array,
    start: jax.Array,
    splits: Splits,
    first_l: jax.Array,
    *,
    whole: bool,
) -> Draws:
    """n draws; the tables of a key do not depend on whether parameters are used.

    Args:
        key: random key.
        n: how many.
        data: one dataset.
        cells: its real cells.
        log_h: the classes' messages, `[I, W]`.
        start: the first counts of these, `[I]`.
        splits: of the blocks.
        first_l: the first counts of its windows of cells, `[I, C]`.
        whole: the messages hold 0..N.
    """
    key_n, key_cells, key_probs = jax.random.split(key, 3)
    if data.nested:
        u = jax.random.uniform(key_n, (n, len(log_h)), log_h.dtype)
        n_class = groups.draw_class_counts(u, log_h, data, start, whole=whole)
    else:
        every = rows(log_h, data, start)
        u = jax.random.uniform(key_n, (n, len(every.log_h)), log_h.dtype)
        n_class = _class_counts(u, *every)[:, : len(log_h)]  # [n, I]
    drawn = _cells(key_cells, n_class, cells, splits, first_l, start)
    probs = _dirichlets(key_probs, data.a_class + n_class, cells.rows(data.a) + drawn, cells)
    return Draws(cells.table(drawn).astype(jnp.int32), *probs)


def _class_counts(u: jax.Array, log_h: jax.Array, start: jax.Array, N: jax.Array) -> jax.Array:
    """Counts of all rows `[n, R]`, which add up to N, from uniforms u `[n, R]`."""
    I, W = log_h.shape
    h, _ = tilted(log_h, start, N)
    after, begins = suffixes(log_h, start, N)
    rest, drawn = jnp.full_like(u[:, 0], N), []
    for i in range(I - 1):
        size = math.prod(_levels(W))
        own = jnp.pad(h[i], (0, size - W))
        facing = jnp.pad(lax.rev(after[i + 1], (0,)), size)
        last = facing.shape[-1] - size  # from here on there is nothing
        shift = last - 1 - (rest - start[i] - begins[i + 1])  # of after(rest - l) at l = start
        shift = jnp.clip(shift, 0, last).astype(jnp.int32)

        weight = partial(_facing_weight, own, facing)
        drawn.append(start[i] + _pick(u[:, i], weight, (shift,), W).astype(u.dtype))
        rest = rest - drawn[-1]
    return jnp.stack([*drawn, rest], -1)


def _facing_weight(
    own: jax.Array, facing: jax.Array, shift: jax.Array, at: jax.Array, length: int
) -> jax.Array:
    """The weights own(l) facing(l + shift) for l = at, at + 1, ..., `[length]`."""
    near = lax.dynamic_slice_in_dim(facing, shift + at, length)
    return lax.dynamic_slice_in_dim(own, at, length) * near


def _cells(
    key: jax.Array,
    n_class: jax.Array,
    cells: Cells,
    splits: Splits,
    first_l: jax.Array,
    start: jax.Array,
) -> jax.Array:
    """Counts of all cells, `[n, I, C]`, given class counts `[n, I]`."""
    n, I = n_class.shape
    C, R = splits.cell.shape[-2:]
    L, W = splits.later.shape[-1], splits.pick.shape[-1]
    at = jnp.clip(n_class - start, 0, W - 1).astype(jnp.int32)
    size = math.prod(_levels(R))
    tilt = splits.pick[jnp.arange(I)[None], :, at]  # [n, I, K]
    which = jnp.broadcast_to(jnp.arange(I, dtype=jnp.int32), (n, I))
    sizes = np.asarray(cells.sizes)
    is_last = np.zeros(C, bool)
    is_last[np.cumsum(sizes) - 1] = True
    is_first = np.roll(is_last, 1)
    u = jax.random.uniform(key, (C, n, I), n_class.dtype)

    def one(c: jax.Array, v: jax.Array, rest: jax.Array, t: jax.Array) -> jax.Array:
        """Cell c of all draws, `[n, I]`."""
        at_c = lambda x: lax.dynamic_index_in_dim(x, c, axis=2, keepdims=False)  # noqa: E731
        cell, later, base = map(at_c, (splits.cell, splits.later, splits.base))  # [M, I, ...]
        first = lax.dynamic_index_in_dim(first_l, c, axis=1, keepdims=False)  # [I]
        cell = jnp.pad(cell, ((0, 0), (0, 0), (0, size - R)))
        long = jnp.concatenate([later] * (1 + -(-size // L)), axis=-1)
        # Backwards, place L - 1 - r holds the count r + base, mod L.
        shift = jnp.mod(L - 1 - (rest - first - base[t, which]), L).astype(jnp.int32)
        most = jnp.clip(rest - first, -1, R).astype(jnp.int32)  # no cell has more than the rest

        def weight(*lane: Any) -> jax.Array:
            # Slices of what all draws share: nothing is copied for each.
            i, t, shift, most, at, length = lane
            own = lax.dynamic_slice(cell, (t, i, at), (1, 1, length))[0, 0]
            near = lax.dynamic_slice(long, (t, i, shift + at), (1, 1, length))[0, 0]
            return jnp.where(at + jnp.arange(length, dtype=at.dtype) <= most, own * near, 0)

        lanes = tuple(x.reshape(-1) for x in (which, t, shift, most))
        return first + _pick(v.reshape(-1), weight, lanes, R).reshape(n, I).astype(v.dtype)

    def step(rest: jax.Array, x: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        c, k, first, last, v = x
        rest = jnp.where(first, n_class, rest)
        t = lax.dynamic_index_in_dim(tilt, k, axis=2, keepdims=False)  # [n, I]
        l = lax.cond(last, lambda: rest, lambda: one(c, v, rest, t))
        return rest - l, l

    xs = (jnp.arange(C), jnp.asarray(cells.feature), jnp.asarray(is_first), jnp.asarray(is_last), u)
    _, drawn = lax.scan(step, n_class, xs)
    return jnp.moveaxis(drawn, 0, -1)


def _pick(u: jax.Array, weight: Callable[..., jax.Array], lanes: Any, size: int) -> jax.Array:
    """Indices drawn by uniforms u `[S]`, int32 `[S]`.

    Args:
        u: a uniform for each of S draws.
        weight: `weight(*lane, at, length)` is `length` of a draw's weights from `at` on; beyond
            `size` they are 0 as far as `_levels` go.
        lanes: what `weight` takes for each draw, arrays `[S]`.
        size: number of weights.
    """
    levels = _levels(size)
    at, goal = jnp.zeros(u.shape, jnp.int32), None
    for depth, pieces in enumerate(levels):
        piece = math.prod(levels[depth + 1 :])

        def sums(x: Any, shape: tuple[int, int] = (pieces, piece)) -> jax.Array:
            return weight(*x[0], x[1], math.prod(shape)).reshape(shape).sum(-1)

        index, goal = _reach(u, goal, one_by_one(sums, (lanes, at)))
        at = at + index * piece
    return jnp.minimum(at, size - 1)


def _levels(size: int) -> tuple[int, ...]:
    """Numbers of pieces at each level, whose product is at least `size`."""
    count = max(1, math.ceil(math.log(size) / math.log(_RADIX) - 1e-9))
    return (math.ceil(size ** (1 / count) - 1e-9),) * count


def _reach(u: jax.Array, goal: jax.Array | None, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where the cumulated weights `[S, P]` pass goals `[S]`, and what of each is left there.

    Without goals they are fractions u of the sums. Never at a weight of 0, should there be others.
    """
    upto = [weight[:, 0]]
    for p in range(1, weight.shape[-1]):  # many times faster than cumulated sums of rows
        upto.append(upto[-1] + weight[:, p])
    most = upto[-1] * (1 - float(jnp.finfo(u.dtype).eps))
    goal = jnp.minimum(u * upto[-1] if goal is None else goal, most)
    at, before = jnp.zeros(u.shape, jnp.int32), jnp.zeros_like(goal)
    for total in upto[:-1]:
        passed = total <= goal
        at, before = at + passed.astype(jnp.int32), jnp.where(passed, total, before)
    return at, goal - before


def _dirichlets(
    key: jax.Array, class_alpha: jax.Array, alpha: jax.Array, cells: Cells
) -> tuple[jax.Array, jax.Array]:
    """Draws `[n, I]` and `[n, I, K, J]` with concentrations `[n, I]` and `[n, I, C]`."""
    n, I = class_alpha.shape
    every = jnp.concatenate([class_alpha, alpha.reshape(n, -1)], axis=-1)
    # A masked cell has no concentration.
    drawn = _log_gammas(key, jnp.where(every > 0, every, 1))
    drawn = jnp.where(every > 0, drawn, -jnp.inf)
    of_cells = cells.table(drawn[:, I:].reshape(alpha.shape), -jnp.inf)
    return jax.nn.softmax(drawn[:, :I]), jax.nn.softmax(of_cells)


def _log_gammas(key: jax.Array, alpha: jax.Array) -> jax.Array:
    """Logs of draws of Gamma(alpha, 1), as alpha: Marsaglia and Tsang's rejection, all at once.

    Few are rejected, and go on together. One with alpha < 1 is u^(1 / alpha) times one with
    alpha + 1.
    """
    a = alpha.reshape(-1)
    small = a < 1
    key_u, key_first, key_again = jax.random.split(key, 3)
    d = jnp.where(small, a + 1, a) - 1 / 3
    more = min(a.size, max(64, a.size // 16))

    def propose(key: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(log v with d v the draw, whether it is accepted)."""
        key_x, key_u = jax.random.split(key)
        x = jax.random.normal(key_x, d.shape, d.dtype)
        root = 1 + x / (3 * jnp.sqrt(d))
        log_v = 3 * jnp.log(jnp.where(root > 0, root, 1))
        most = 0.5 * x * x + d * (1 - root * root * root + log_v)
        return log_v, (root > 0) & (jnp.log(jax.random.uniform(key_u, d.shape, d.dtype)) < most)

    def again(state: Any) -> Any:
        log_v, done, turn = state
        (at,) = jnp.nonzero(~done, size=more, fill_value=a.size)
        new, accepted = propose(jax.random.fold_in(key_again, turn), d[at])
        at = jnp.where(accepted, at, a.size)
        return log_v.at[at].set(new, mode="drop"), done.at[at].set(True, mode="drop"), turn + 1

    first = (*propose(key_first, d), jnp.zeros((), jnp.int32))
    log_v, _, _ = lax.while_loop(lambda s: ~s[1].all(), again, first)
    u = jax.random.uniform(key_u, a.shape, a.dtype)
    boost = jnp.where(small, jnp.log1p(-u) / jnp.where(small, a, 1), 0)
    return (jnp.log(d) + log_v + boost).reshape(alpha.shape)
