"""Classes in groups with totals of their own: the sum over class counts as a tree.

Groups are laminar: of any two, one holds the other or they have no class in common. Counts then
flow up through one sum at a time. With F_v(n) = P(what was published of group v's total | n) and v
made of the parts u_1, ..., u_r, which are smaller groups and single classes,

    H_v = F_v [H_u1 * ... * H_ur],   H_i = h_i for a class,   P(m) ~ [H_u1 * ... * H_ur](N) at last.

Parts meet two by two, so that each step is one convolution; the way back is as many correlations:

    O_a(l) = sum_n F_v(n) O_v(n) H_b(n - l),   P(n_a = l | m) = H_a(l) O_a(l) / P(m)

for v made of a and b. Totals may contradict the tables, and each other: then what matters is far
from the largest entries of a convolution, where a Fourier transform has no digits left. So sums are
taken as they stand, in logs, which costs the product of two windows for every step.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.windows import cut
from jaxprivnb.parallel import map_in_chunks

_ROUNDING = 6.0
"""Standard deviations of rounding errors that a bound allows for."""
_DRAWS = 64
"""Draws that are worked on side by side."""


class Merge(NamedTuple):
    """Two parts that become one. Parts are numbered: the I classes, then the merges in order."""

    left: int
    right: int
    groups: tuple[int, ...]
    """The groups, by number, that are exactly these two together."""


def merges(groups: Sequence[tuple[int, ...]], n_classes: int) -> tuple[Merge, ...]:
    """The steps up the tree: I - 1 of them, the last of which is of all classes.

    Args:
        groups: the classes of each, laminar; those of one class or of all have no part in this.
        n_classes: I.
    """
    found: list[Merge] = []

    def whole(classes: frozenset[int]) -> int:
        """The part that is these classes."""
        inner = {frozenset(g) for g in groups if len(g) > 1 and classes > set(g)}
        largest = sorted((g for g in inner if not any(g < other for other in inner)), key=min)
        single = sorted(classes.difference(*largest))
        parts = [whole(g) for g in largest] + single
        own = tuple(r for r, g in enumerate(groups) if classes == set(g))
        own = own if len(classes) < n_classes else ()
        for at, part in enumerate(parts[1:], 2):
            found.append(Merge(parts[0], part, own if at == len(parts) else ()))
            parts[0] = n_classes + len(found) - 1
        return parts[0]

    whole(frozenset(range(n_classes)))
    return tuple(found)


class Messages(NamedTuple):
    """The parts' messages, by number."""

    log_h: list[jax.Array]
    """log H_v(n) on each part's window, `[S_v]`; that of all classes together is not among them."""
    start: list[jax.Array]
    """First counts of the windows."""
    log_f: list[jax.Array]
    """log F_v(n), `[S_v]`, or 0."""


def root(
    log_h: jax.Array, data: Dataset, start: jax.Array, *, whole: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(log of the total, distributions of the class counts `[I, W]`, bound on rounding).

    Args:
        log_h: the classes' messages, `[I, W]`.
        data: one dataset, whose N is known.
        start: first counts of the windows, `[I]`.
        whole: they hold 0..N.
    """
    I, W = log_h.shape
    steps = _merges(data, I)
    up = _upward(log_h, data, start, steps, whole=whole)
    a, b, _ = steps[-1]
    sizes = [x.shape[0] for x in up.log_h]
    facing = lambda v, at: _reflected(up, v, data.n_records, up.start[at], sizes[at])  # noqa: E731
    both = up.log_h[a] + facing(b, a)
    log_total = logsumexp(both)
    outside = {a: facing(b, a), b: facing(a, b)}
    for v, step in reversed(list(enumerate(steps[:-1], I))):
        of_v = outside[v] + up.log_f[v]
        for one, other in (step[:2], step[1::-1]):
            outside[one] = log_sums(up.log_h[other], of_v, 1, sizes[one])
    safe = jnp.where(jnp.isfinite(log_total), log_total, 0)
    pmf = [jnp.exp(up.log_h[v] + outside[v] - safe) for v in range(len(sizes))]
    eps = float(jnp.finfo(log_h.dtype).eps)
    # Of a sum of r positive terms, and of the logs that they were made from.
    rounding = jnp.asarray(_ROUNDING * (len(steps) * W) ** 0.5, log_h.dtype)
    for v in range(len(sizes)):
        some = (pmf[v] > 0) & jnp.isfinite(up.log_h[v])
        rounding = rounding + jnp.where(some, pmf[v] * jnp.abs(up.log_h[v]), 0).sum()
    rounding = jnp.where(jnp.isfinite(log_total), eps * rounding, jnp.inf)
    return log_total, jnp.stack(pmf[:I]), lax.stop_gradient(rounding)


def draw_class_counts(
    u: jax.Array, log_h: jax.Array, data: Dataset, start: jax.Array, *, whole: bool
) -> jax.Array:
    """Class counts `[n, I]`, which add up to N, from uniforms u `[n, I]`; N is divided, then parts.

    Args:
        u: uniforms.
        log_h: the classes' messages, `[I, W]`.
        data: one dataset, whose N is known.
        start: first counts of the windows, `[I]`.
        whole: they hold 0..N.
    """
    I = len(start)
    steps = _merges(data, I)
    up = _upward(log_h, data, start, steps, whole=whole)
    count = {I + len(steps) - 1: jnp.full_like(u[:, 0], data.n_records)}
    for v, (a, b, _) in reversed(list(enumerate(steps, I))):

        def divided(x: tuple[jax.Array, jax.Array], a: int = a, b: int = b) -> jax.Array:
            """The count of part a, given that of both."""
            n, at = x
            own = up.log_h[a]
            both = own + _reflected(up, b, n, up.start[a], own.shape[0])
            upto = jnp.cumsum(jnp.exp(both - both.max()))
            return up.start[a] + (upto <= at * upto[-1]).sum().astype(own.dtype)

        least = jnp.maximum(up.start[a], count[v] - up.start[b] - (up.log_h[b].shape[0] - 1))
        drawn = map_in_chunks(divided, (count[v], u[:, v - I]), _DRAWS)
        most = jnp.minimum(up.start[a] + (up.log_h[a].shape[0] - 1), count[v] - up.start[b])
        count[a] = jnp.clip(drawn, least, most)
        count[b] = count[v] - count[a]
    return jnp.stack([count[i] for i in range(I)], -1)


def _merges(data: Dataset, I: int) -> tuple[Merge, ...]:
    return merges([group.classes for group in data.groups], I)


def _upward(
    log_h: jax.Array, data: Dataset, start: jax.Array, steps: tuple[Merge, ...], *, whole: bool
) -> Messages:
    """All messages but that of all classes together, of which one count alone matters."""
    I, W = log_h.shape
    found = Messages(list(log_h), list(start), [jnp.zeros_like(log_h[0])] * I)
    for a, b, groups in steps[:-1]:
        x, y = sorted((found.log_h[a], found.log_h[b]), key=len)
        length = W if whole else len(x) + len(y) - 1  # nothing is beyond N
        begin = found.start[a] + found.start[b]
        n = begin + jnp.arange(length, dtype=begin.dtype)
        log_f = sum((data.log_group(r, n) for r in groups), jnp.zeros_like(n))
        together = log_sums(x, y, -1, length) + log_f
        found.log_h.append(jnp.where(n <= data.n_records, together, -jnp.inf))
        found.start.append(begin)
        found.log_f.append(log_f)
    return found


def _reflected(up: Messages, v: int, N: jax.Array, first: jax.Array, length: int) -> jax.Array:
    """log H_v(N - n) for n = first, ..., first + length - 1."""
    x = up.log_h[v]
    return cut(lax.rev(x, (0,)), (len(x) - 1) - (N - first - up.start[v]), length, -jnp.inf)


@partial(jax.jit, static_argnames=("step", "length"))
def log_sums(u: jax.Array, x: jax.Array, step: int, length: int) -> jax.Array:
    """log sum_r exp(u(r) + x(n + step r)) for n = 0, ..., length - 1: to rounding for each n.

    A convolution for step = -1, a correlation for step = 1.
    """
    R, X = len(u), len(x)
    before, after = (R - 1, 0) if step < 0 else (0, R - 1)
    x = jnp.pad(x, (before, max(after + length - X, 0)), constant_values=-jnp.inf)
    at = lambda r: lax.dynamic_slice_in_dim(x, before + step * r, length)  # noqa: E731
    rows = (jnp.arange(R), u)

    def higher(top: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return jnp.maximum(top, lax.stop_gradient(row[1] + at(row[0]))), None

    def add(total: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + jnp.exp(row[1] + at(row[0]) - top), None

    none = jnp.full(length, -jnp.inf, u.dtype)
    top = lax.scan(higher, none, rows)[0]
    some = jnp.isfinite(top)
    top = jnp.where(some, top, 0)
    total = lax.scan(add, jnp.zeros_like(top), rows)[0]
    return jnp.where(some, top + jnp.log(jnp.where(some, total, 1)), -jnp.inf)
