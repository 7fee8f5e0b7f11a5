"""From the blocks' messages to the evidence: the classes' counts, which add up to N.

    h_i(n) = (a_i)_n / n!  prod_k c_ik(n) / ((A_ik)_n / n!)
    P(m)   = [h_1 * ... * h_I](N) / ((sum a)_N / N!)

Every class has a window of counts, start_i + (0, ..., W - 1). Two classes meet in a dot product;
more are convolved by Fourier transforms under one tilt, since their counts add up to N whatever
each of them is multiplied with.

Where N is not known it is summed over, with weights pi(N):

    P(m) = sum_N pi(N) [h_1 * ... * h_I](N) / ((sum a)_N / N!)

The largest total T of the windows less N is then one more count, with a message of its own,
rho(N) = pi(N) / ((sum a)_N / N!): all counts together add up to T, and nothing else is new.

Totals of groups of classes are factors: of a class's own message, of N, or, where a group is of
some of several classes, of a node of the tree in `groups.py`.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from jaxprivnb.exact import groups
from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.products import product_and_others
from jaxprivnb.exact.rising import log_rising, log_rising_window
from jaxprivnb.exact.windows import cut, fast_length

_HALVINGS = 40
"""Of the bracket of the classes' tilt."""


class Rows(NamedTuple):
    """Counts that add up to a number: those of the classes and, where N is not known, T - N.

    R rows; without the last they are the classes.
    """

    log_h: jax.Array
    """log h_i(n) on the rows' windows, `[R, S]`; -inf where a class's window has ended."""
    start: jax.Array
    """First counts of the windows, `[R]`."""
    total: jax.Array
    """What they add up to: N, or T. Scalar."""


class Root(NamedTuple):
    """The classes together."""

    log_total: jax.Array
    """log [h_1 * ... * h_I](N), scalar; summed over N if it is not known."""
    pmf: jax.Array
    """P(n_i = n | m), `[I, W]`."""
    n_records_pmf: jax.Array | None
    """P(N | m) for N = sum of the classes' first counts + (0, 1, ...), `[S]`; None: N is known."""
    rounding: jax.Array
    """Bound on what rounding adds to the total, relative to it, scalar."""


def class_counts(start: jax.Array, length: int) -> jax.Array:
    """The counts n in each class's window, float `[I, W]`."""
    return start[:, None] + jnp.arange(length, dtype=start.dtype)


def log_class_messages(
    log_c: jax.Array, data: Dataset, start: jax.Array, *, whole: bool
) -> jax.Array:
    """log h_i(n) `[I, W]` from log c_ik(n) `[I, K, W]`, less `log_anchor`; -inf beyond N.

    Args:
        log_c: the blocks' messages.
        data: one dataset.
        start: first counts of the windows, `[I]`.
        whole: all of them begin at 0.
    """
    length = log_c.shape[-1]
    first = None if whole else start
    by_block = None if whole else start[:, None]
    per_block = log_rising_window(by_block, data.A, length, relative=True)
    per_class = log_rising_window(first, data.a_class, length, relative=True)
    n = class_counts(start, length)
    inside = n <= data.n_records
    if data.class_totals is not None:
        public = data.class_totals[:, None]
        inside &= jnp.isnan(public) | (n == public)
    for r, i in data.single:
        per_class = per_class.at[i].add(data.log_group(r, n[i]))
    return jnp.where(inside, per_class + (log_c - per_block).sum(1), -jnp.inf)


def log_rho(data: Dataset, N: jax.Array) -> jax.Array:
    """log pi(N) - log (sum a)_N / N! for numbers of records that are not known, as N."""
    assert data.log_n is not None
    prior, size = jnp.zeros_like(N), data.log_n.shape[-1]
    if size:
        at = jnp.clip(N, 0, size - 1).astype(jnp.int32)
        prior = jnp.where(size > N, data.log_n[at], -jnp.inf)
    for r in data.all_together:
        prior = prior + data.log_group(r, N)
    return jnp.where(N >= 0, prior - log_rising(jnp.maximum(N, 0), data.a_class.sum()), -jnp.inf)


def rows(log_h: jax.Array, data: Dataset, start: jax.Array) -> Rows:
    """What adds up to a number, from the classes' messages `[I, W]`."""
    if data.log_n is None:
        return Rows(log_h, start, data.n_records)
    I, W = log_h.shape
    S = I * (W - 1) + 1  # every total that the windows have
    total = start.sum() + (S - 1)
    N = total - jnp.arange(S, dtype=start.dtype)
    classes = jnp.pad(log_h, ((0, 0), (0, S - W)), constant_values=-jnp.inf)
    log_h = jnp.concatenate([classes, log_rho(data, N)[None]])
    return Rows(log_h, jnp.concatenate([start, jnp.zeros_like(start[:1])]), total)


def log_anchor(data: Dataset, start: jax.Array) -> jax.Array:
    """The rising weights' part of log h_i at the start of its window, `[I]`."""
    concentration = jnp.concatenate([data.a_class[:, None], data.A], axis=1)
    rising = log_rising(start[:, None], concentration)
    return rising[:, 0] - rising[:, 1:].sum(-1)


def root(every: Rows, window: int | None = None) -> Root:
    """The sum over counts that add up to N, and their distributions.

    Args:
        every: the rows.
        window: None if N is known; else the last row is T - N, and the classes' windows are so
            long.
    """
    log_total, pmf, rounding = _root(*every)
    if window is None:
        return Root(log_total, pmf, None, rounding)
    return Root(log_total, pmf[:-1, :window], lax.rev(pmf[-1], (0,)), rounding)


def root_of(log_h: jax.Array, data: Dataset, start: jax.Array, *, whole: bool) -> Root:
    """The same from the classes' messages `[I, W]` on windows that begin at `start`.

    `whole` says whether these hold 0..N.
    """
    if data.nested:
        log_total, pmf, rounding = groups.root(log_h, data, start, whole=whole)
        return Root(log_total + _log_of_n(data), pmf, None, rounding)
    if data.all_together and data.log_n is None:
        found = root(rows(log_h, data, start))
        return found._replace(log_total=found.log_total + _log_of_n(data))
    every = rows(log_h, data, start)
    return root(every, None if data.log_n is None else log_h.shape[-1])


def _log_of_n(data: Dataset) -> jax.Array:
    """What totals of all classes together say of N, which is known; scalar."""
    N = data.n_records[None]
    return sum((data.log_group(r, N)[0] for r in data.all_together), jnp.zeros_like(N[0]))


def _root(
    log_h: jax.Array, start: jax.Array, N: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(log of the total, distributions `[R, S]`, bound on rounding) of rows that add up to N."""
    I, W = log_h.shape
    zero = jnp.zeros((), log_h.dtype)
    if I == 1:
        at = class_counts(start, W)[0] == N
        log_total = jnp.where(at, log_h[0], -jnp.inf).max()
        return log_total, (at & jnp.isfinite(log_h[0])).astype(log_h.dtype)[None], zero
    if I == 2:
        both = log_h[0] + reflected(log_h[1], start[1], N, start[0])
        log_total = logsumexp(both)
        first = jnp.exp(both - jnp.where(jnp.isfinite(log_total), log_total, 0))
        second = jnp.where(
            jnp.isfinite(log_h[1]), reflected(first, start[0], N, start[1], fill=0.0), 0
        )
        return log_total, jnp.stack([first, second]), zero
    messages, log_scale = tilted(log_h, start, N)
    length = _length(log_h)
    spectrum = jnp.fft.rfft(messages, n=length)
    _, others = product_and_others(spectrum)
    others = jnp.fft.irfft(others, n=length)  # of counts that begin at the other starts' sum
    others_start = start.sum() - start
    facing = jax.vmap(lambda x, s, b: reflected(x, s, N, b, fill=0.0, length=W))
    joint = messages * jnp.maximum(facing(others, others_start, start), 0)
    total = joint.sum(-1, keepdims=True)  # the same for every row, but for rounding
    safe = jnp.where(total > 0, total, 1)
    eps = float(jnp.finfo(log_h.dtype).eps)
    size = jnp.sqrt(jnp.square(messages).sum(-1)).prod()
    rounding = 8 * eps * math.sqrt(I * math.log2(length)) * size / safe[0, 0]
    some = total[0, 0] > 0
    log_total = jnp.where(some, jnp.log(safe[0, 0]) + log_scale, -jnp.inf)
    return log_total, joint / safe, jnp.where(some, rounding, jnp.inf)


def _length(log_h: jax.Array) -> int:
    """A length of transforms at which no sum of the counts of all rows wraps around."""
    return fast_length(log_h.shape[0] * log_h.shape[1])


class Shared(NamedTuple):
    """Where N is not known: P(n_i = n, N | m) = own_i(n) others_i(N - n) factor(N)."""

    own: jax.Array
    """`[I, W]`, at n = start_i + (0, ..., W - 1)."""
    others: jax.Array
    """`[I, S]`, at N - n = sum of the other classes' starts + (0, ..., S - 1)."""
    factor: jax.Array
    """`[S]`, at N = sum of all starts + (0, ..., S - 1)."""


def shared(log_h: jax.Array, data: Dataset, start: jax.Array) -> Shared:
    """The classes' counts with N, which is not known, from the classes' messages `[I, W]`."""
    (I, W), every = log_h.shape, rows(log_h, data, start)
    messages, _ = tilted(*every)
    S, length = messages.shape[-1], _length(messages)
    _, others = product_and_others(jnp.fft.rfft(messages[:I, :W], n=length))
    others = jnp.maximum(jnp.fft.irfft(others, n=length), 0)[:, :S]
    factor = lax.rev(messages[I], (0,))
    together = Shared(messages[:I, :W], others, factor)
    mass = weighted(together, jnp.ones_like(factor)[None])[0, 0].sum()
    return together._replace(factor=factor / jnp.where(mass > 0, mass, 1))


def weighted(together: Shared, q: jax.Array) -> jax.Array:
    """sum_N q(N) P(n_i = n, N | m), `[Q, I, W]`, from weights q `[Q, S]`."""
    W, S = together.own.shape[-1], together.factor.shape[-1]
    length = fast_length(S + W)
    by_total = jnp.fft.rfft(q * together.factor, n=length)[:, None]
    spectrum = jnp.conj(jnp.fft.rfft(together.others, n=length))
    return together.own * jnp.fft.irfft(by_total * spectrum, n=length)[..., :W]


def tilted(log_h: jax.Array, start: jax.Array, N: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(h_i(n) exp(phi n) with a largest entry of 1, `[I, W]`; log of what a product lacks).

    phi is such that the largest entries are at counts that add up to N: these are then the ones
    that matter, and nothing that does underflows. It is a constant to derivatives.
    """
    fixed = lax.stop_gradient(log_h)
    some = jnp.isfinite(fixed)
    fall = jnp.where(some, fixed, -jnp.inf).max() - jnp.where(some, fixed, jnp.inf).min()
    steepest = jnp.where(jnp.isfinite(fall), fall, 0) + 1
    counts = class_counts(start, log_h.shape[-1])
    # About the middle of each window, so that phi n is no larger than it need be.
    x = counts - counts.mean(-1, keepdims=True)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        modes = jnp.argmax(fixed + middle * x, axis=-1)[:, None]
        enough = jnp.take_along_axis(counts, modes, axis=-1).sum() >= N
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    phi = lax.fori_loop(0, _HALVINGS, halve, (-steepest, steepest))[1]
    tilted_h = log_h + phi * x
    top = lax.stop_gradient(tilted_h.max(-1, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0)
    return jnp.exp(tilted_h - top), top.sum() - phi * (N - counts.mean(-1).sum())


def suffixes(log_h: jax.Array, start: jax.Array, N: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """Tilted convolutions of the classes from i on, for i = 0, ..., I - 1, on their own counts.

    Returns:
        (values `[S]` for each i, not scaled; the first count of each, `[I]`).
    """
    I = log_h.shape[0]
    messages, _ = tilted(log_h, start, N)
    length = _length(log_h)
    spectrum, found = jnp.fft.rfft(messages, n=length), [messages[-1]]
    product = spectrum[-1]
    for i in reversed(range(I - 1)):
        product = product * spectrum[i]
        found.insert(0, jnp.maximum(jnp.fft.irfft(product, n=length), 0))
    return found, lax.cumsum(start, reverse=True)


def reflected(
    x: jax.Array,
    begin: jax.Array,
    N: jax.Array,
    first: jax.Array,
    *,
    fill: float = -jnp.inf,
    length: int | None = None,
) -> jax.Array:
    """x(N - n) for n = first, first + 1, ..., where x `[S]` begins at `begin`; `fill` outside."""
    length = x.shape[-1] if length is None else length
    shift = (x.shape[-1] - 1) - (N - first - begin)
    return cut(lax.rev(x, (0,)), shift, length, fill)
