"""log P(m), differentiable in the weights, the prior and the noise.

The messages travel as logs between stages; inside a convolution they are numbers scaled to a
largest entry of 1. Scales are neutral, so no gradient flows through them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from jaxprivnb.exact.convolve import (
    align,
    convolve,
    log_convolve,
    log_convolve_scaled,
    log_slide,
    slide,
)
from jaxprivnb.exact.weights import log_noise, log_rising, log_rising_window
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior

_HALVINGS = 60
"""Of the bracket of a tilt."""


class Blocks(NamedTuple):
    """The messages c_ik of the blocks on their class's window."""

    log_value: jax.Array
    """log c_ik(n), `[I, K, class window]`; -inf where nothing arrives."""
    log_floor: jax.Array
    """log of a bound on what underflow took from any entry of c_ik, `[I, K]`."""


def cell_counts(place: Placement, layout: Layout, dtype: jnp.dtype) -> jax.Array:
    """The counts l in each cell's window, float `[I, K, J, cell window]` (or `[cell window]`)."""
    steps = jnp.arange(layout.cell, dtype=dtype)
    return steps if layout.whole else place.cell[..., None].astype(dtype) + steps


def class_counts(place: Placement, layout: Layout, dtype: jnp.dtype) -> jax.Array:
    """The counts n in each class's window, float `[I, class window]`."""
    return place.class_[:, None].astype(dtype) + jnp.arange(layout.class_, dtype=dtype)


def log_weights(tables: NoisyTables, prior: Prior, place: Placement, layout: Layout) -> jax.Array:
    """Log w_ikj(l), `[I, K, J, cell window]`; a masked cell's count is certainly 0."""
    m, real = tables.counts, tables.real[..., None]
    n = cell_counts(place, layout, m.dtype)
    start = None if layout.whole else place.cell.astype(m.dtype)
    a = jnp.where(real[..., 0], prior.feature, 1)
    log_w = log_rising_window(start, a, layout.cell)
    log_w = log_w + log_noise(tables.noise, jnp.where(real[..., 0], m, 0), n)
    certain = jnp.where(jnp.arange(layout.cell) == 0, 0.0, -jnp.inf).astype(m.dtype)
    return jnp.where(real, jnp.where(n <= tables.n_records, log_w, -jnp.inf), certain)


def blocks(log_w: jax.Array, place: Placement, layout: Layout) -> Blocks:
    """Log c_ik = log [w_ik1 * ... * w_ikJ] on the class windows, by a tree of convolutions."""
    x, scale, floor = normalise(log_w, layout)
    x, scale, floor = tree(x, scale, floor, layout, stop_at=2)
    # From the sum of the cells' window starts to the start of the class's window.
    shift = place.class_[:, None] - place.cell.sum(-1, dtype=jnp.int32)
    if x.shape[-2] == 1:
        only = x[..., 0, :]
        c = only if layout.whole else align(only, shift, layout.class_, zero(layout))
        scale, floor = scale[..., 0], floor[..., 0]
    else:
        c, floor = join(x[..., 0, :], x[..., 1, :], shift, layout, floor)
        scale = scale.sum(-1)
    if layout.log_space:
        return Blocks(c + scale[..., None], jnp.full_like(scale, -jnp.inf))
    return Blocks(safe_log(c) + scale[..., None], jnp.log(floor) + scale)


def join(
    left: jax.Array, right: jax.Array, shift: jax.Array, layout: Layout, floor: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The last convolution of a tree, on the class's window: (values, floor).

    Args:
        left: `[I, K, S]`.
        right: `[I, K, R]`.
        shift: the entry of left * right at which the class's window begins, int `[I, K]`.
        layout: of the fit.
        floor: of both, `[I, K, 2]`.
    """
    S = left.shape[-1]
    length = layout.class_
    floor = grown_floor(floor, S)
    if layout.whole:
        if layout.log_space:
            return over_rows(log_convolve)(left, right, length), floor
        return convolve(left, right, length), floor
    reach = align(right, shift - (S - 1), length + S - 1, zero(layout))
    if layout.log_space:
        return over_rows(log_slide)(left, reach), floor
    return slide(left, reach), floor


def normalise(log_w: jax.Array, layout: Layout) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Weights as numbers of largest entry 1: (values, log scale, underflow floor)."""
    scale = lax.stop_gradient(log_w.max(-1))
    scale = jnp.where(jnp.isfinite(scale), scale, 0)
    floor = jnp.full_like(scale, jnp.finfo(log_w.dtype).tiny)
    if layout.log_space:
        return log_w, jnp.zeros_like(scale), floor
    return jnp.exp(log_w - scale[..., None]), scale, floor


def tree(
    x: jax.Array, scale: jax.Array, floor: jax.Array, layout: Layout, *, stop_at: int = 1
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Convolve neighbours along axis -2, level by level, until `stop_at` or fewer are left.

    Args:
        x: values `[..., J, S]`, scaled.
        scale: log scale of each, `[..., J]`.
        floor: underflow floor of each, `[..., J]`.
        layout: of the fit.
        stop_at: how many sequences to leave.
    """
    while x.shape[-2] > stop_at:
        J, S = x.shape[-2:]
        if J % 2:
            unit = jnp.where(jnp.arange(S) == 0, *_one_and_zero(layout)).astype(x.dtype)
            x = jnp.concatenate([x, jnp.broadcast_to(unit, (*x.shape[:-2], 1, S))], axis=-2)
            nothing = jnp.zeros_like(scale[..., :1])
            scale = jnp.concatenate([scale, nothing], axis=-1)
            floor = jnp.concatenate([floor, nothing], axis=-1)
        left, right = x[..., 0::2, :], x[..., 1::2, :]
        length = S if layout.whole else 2 * S - 1
        scale = scale[..., 0::2] + scale[..., 1::2]
        pairs = jnp.stack([floor[..., 0::2], floor[..., 1::2]], axis=-1)
        floor = grown_floor(pairs, S)
        if layout.log_space:
            x = over_rows(log_convolve)(left, right, length)
        else:
            x = convolve(left, right, length)
            top = lax.stop_gradient(x.max(-1))
            top = jnp.where(top > 0, top, 1)
            x, scale, floor = x / top[..., None], scale + jnp.log(top), floor / top
    return x, scale, floor


def grown_floor(pair: jax.Array, length: int) -> jax.Array:
    """What underflow may take from an entry of a convolution of two scaled sequences.

    Each of `length` products can flush to 0, and carries the floors of its factors (each <= 1).
    """
    tiny = jnp.finfo(pair.dtype).tiny
    return length * (pair.sum(-1) + tiny)


def log_class_messages(
    log_c: jax.Array, prior: Prior, real: jax.Array, place: Placement, layout: Layout, N: jax.Array
) -> jax.Array:
    """Log h_i(n) = log (a_i)_n / n! + sum_k [log c_ik(n) - log (A_ik)_n / n!], `[I, window]`."""
    dtype = log_c.dtype
    start = None if layout.whole else place.class_.astype(dtype)
    A = jnp.where(real, prior.feature, 0).sum(-1)
    per_block = log_rising_window(None if start is None else start[:, None], A, layout.class_)
    per_class = log_rising_window(start, prior.class_, layout.class_)
    inside = class_counts(place, layout, dtype) <= N
    return jnp.where(inside, per_class + (log_c - per_block).sum(1), -jnp.inf)


def log_most(near: jax.Array, far: jax.Array, tables: NoisyTables) -> jax.Array:
    """A bound on log g_ik(n) for the n between near and far `[..., I, S]`: `[..., I, K, S]`.

    g is a mean of prod_j f(m_j - l_j) over tables with sum_j l_j = n, and log f is concave: its
    largest value for J equal gaps, J log f((sum_j m_j - n) / J), at the n nearest to sum_j m_j.
    """
    real = tables.real
    S = jnp.where(real, tables.counts, 0).sum(-1)[..., None]  # [I, K, 1]
    J = jnp.maximum(real.sum(-1), 1).astype(S.dtype)[..., None]  # [K, 1]
    ends = jnp.stack([near, far])[..., None, :]
    gap = S - jnp.clip(S, ends.min(0), ends.max(0))
    noise = jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, tables.noise)
    return jnp.where(real.any(-1)[..., None], J * noise.log_prob(gap / J), 0)


def log_total(log_h: jax.Array, place: Placement, layout: Layout, N: jax.Array) -> jax.Array:
    """Log [h_1 * ... * h_I](N), scalar."""
    theta = tilt(log_h, place, layout, N)
    log_h = tilted(log_h, theta, place, layout)
    head, begin = prefix_messages(log_h, place, layout)[-1]
    return meet(head, begin, log_h[-1], place.class_[-1], N) - theta * N


def tilt(log_h: jax.Array, place: Placement, layout: Layout, N: jax.Array) -> jax.Array:
    """Theta for which the largest entries of exp(theta n) h_i(n) are at counts that add up to N.

    The factors multiply every term of [h_1 * ... * h_I](N) by exp(theta N). With this theta the
    terms that matter are products of the largest entries, so that numbers scaled by these do not
    underflow. 0 where messages are convolved as logs and need no tilt; a constant to derivatives.
    """
    if not layout.filters:
        return jnp.zeros((), log_h.dtype)
    log_h = lax.stop_gradient(log_h)
    some = jnp.isfinite(log_h)
    # No step of a message is larger than the whole of its fall.
    fall = jnp.where(some, log_h, -jnp.inf).max() - jnp.where(some, log_h, jnp.inf).min()
    steepest = jnp.where(jnp.isfinite(fall), fall, 0) + 1

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        modes = jnp.argmax(tilted(log_h, middle, place, layout), axis=-1).astype(jnp.int32)
        enough = (modes + place.class_).sum(dtype=jnp.int32) >= N.astype(jnp.int32)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    return lax.fori_loop(0, _HALVINGS, halve, (-steepest, steepest))[1]


def tilted(log_h: jax.Array, theta: jax.Array, place: Placement, layout: Layout) -> jax.Array:
    """Log exp(theta n) h_i(n), `[I, class window]`."""
    if not layout.filters:
        return log_h
    return log_h + theta * class_counts(place, layout, log_h.dtype)


def prefix_messages(
    log_h: jax.Array, place: Placement, layout: Layout
) -> list[tuple[jax.Array, jax.Array]]:
    """Log [h_1 * ... * h_r] and its first count, for r = 0, ..., I - 1 (r = 0 is the unit).

    Where the layout filters, windows are long and the messages should be tilted (see `tilt`).
    """
    unit = jnp.where(jnp.arange(1) == 0, 0.0, -jnp.inf).astype(log_h.dtype)
    found = [(unit, jnp.zeros((), jnp.int32))]
    for i in range(log_h.shape[0] - 1):
        head, begin = found[-1]
        if i == 0:
            found.append((log_h[0], place.class_[0]))
            continue
        if layout.filters:
            joined = log_convolve_scaled(log_h[i], head)
        else:
            joined = log_convolve(log_h[i], head, layout.class_ if layout.whole else None)
        found.append((joined, begin + place.class_[i]))
    return found


def meet(
    head: jax.Array, head_begin: jax.Array, tail: jax.Array, tail_begin: jax.Array, N: jax.Array
) -> jax.Array:
    """Log sum_n head(n) tail(N - n), both in logs with their first counts."""
    return logsumexp(head + reflected(tail, tail_begin, N, head_begin, head.shape[-1]))


def reflected(
    x: jax.Array, begin: jax.Array, N: jax.Array, first: jax.Array, length: int
) -> jax.Array:
    """x(N - n) for n = first, first + 1, ..., where x begins at count `begin`; -inf outside."""
    start = (x.shape[-1] - 1) - (N.astype(jnp.int32) - first - begin)
    return align(lax.rev(x, (0,)), start, length, -jnp.inf)


def log_evidence(tables: NoisyTables, prior: Prior, place: Placement, layout: Layout) -> jax.Array:
    """Log P(m), scalar; differentiable in the prior and in the noise's scale."""
    N = tables.n_records
    log_w = log_weights(tables, prior, place, layout)
    log_c = blocks(log_w, place, layout).log_value
    log_h = log_class_messages(log_c, prior, tables.real, place, layout, N)
    return log_total(log_h, place, layout, N) - log_rising(N, prior.class_.sum())


def safe_log(x: jax.Array) -> jax.Array:
    """Log x with -inf, and a gradient of 0, at x = 0."""
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1)), -jnp.inf)


def zero(layout: Layout) -> float:
    """What stands for 0 in a convolution's operands."""
    return -jnp.inf if layout.log_space else 0.0


def over_rows(f: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Apply a function of two vectors, and static arguments, to all rows of two arrays."""

    def mapped(u: jax.Array, x: jax.Array, *static: int) -> jax.Array:
        rows = lambda y: y.reshape(-1, y.shape[-1])  # noqa: E731
        out = jax.vmap(lambda a, b: f(a, b, *static))(rows(u), rows(x))
        return out.reshape(*u.shape[:-1], out.shape[-1])

    return mapped


def _one_and_zero(layout: Layout) -> tuple[float, float]:
    return (0.0, -jnp.inf) if layout.log_space else (1.0, 0.0)
