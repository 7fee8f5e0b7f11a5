"""Convolution of non-negative sequences that keeps every digit of every entry.

Products over the K tables reach into the tails of each table's message, where an FFT has only
rounding noise left (its error is 1e-16 of the *largest* entry). A direct sum of non-negative
products has no cancellation: every entry is right to rounding, however small, until it underflows.

One thread in float64, the first L entries, microseconds a row (`bench/convolutions.py`):

    L           64    128    256    512   1024   2048   4096
    direct     0.5    1.4    4.2     11     38    115    485
    halving    0.5    1.4    2.5     11     34    137    416
    FFT        0.6    1.3    1.9    5.6     10     25     88
    filter     0.9    2.0    4.2    9.6     21     50    117

so up to a few hundred counts exactness is almost free, and beyond that windows keep L small. The
FFT's relative error in the tail of a Laplace weight of scale 8 is 5e-5 at L = 128 and without bound
from 256 on. Filters (filters.py) keep every digit too, but know one kind of weight only.

The log-space pair at the end never underflows; it costs an exponential for each product and serves
the few convolutions over classes, where messages are products over all K tables.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

_TAPS = 16
"""Products fused into one pass over the output; below 16 the passes are bound by memory."""
_LEAF = 64
"""Truncated convolutions up to this length are not halved."""
_LOG_TAPS = 4
_LEAST = -jnp.inf


@jax.custom_vjp
def slide(u: jax.Array, x: jax.Array) -> jax.Array:
    """out[t] = sum_s u[s] x[t + S - 1 - s], for u `[..., S]`, x `[..., T + S - 1]`: `[..., T]`.

    The part of the convolution u * x in which u overlaps x fully. Its two transposes are slides
    too, and the reverse rule says so, because differentiating the loop would store its every step.
    """
    S = u.shape[-1]
    T = x.shape[-1] - S + 1
    steps = -(-S // _TAPS)
    surplus = steps * _TAPS - S
    u = _pad(u, 0, surplus)
    x = _pad(x, surplus, 0)

    def step(q: jax.Array, out: jax.Array) -> jax.Array:
        taps = lax.dynamic_slice_in_dim(u, q * _TAPS, _TAPS, axis=-1)
        reach = lax.dynamic_slice_in_dim(x, (steps - 1 - q) * _TAPS, T + _TAPS - 1, axis=-1)
        for p in range(_TAPS):
            out = out + taps[..., p, None] * reach[..., _TAPS - 1 - p : _TAPS - 1 - p + T]
        return out

    shape = jnp.broadcast_shapes(u.shape[:-1], x.shape[:-1])
    return lax.fori_loop(0, steps, step, jnp.zeros((*shape, T), x.dtype))


def _slide_forward(u: jax.Array, x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return slide(u, x), (u, x)


def _slide_reverse(
    saved: tuple[jax.Array, jax.Array], ct: jax.Array
) -> tuple[jax.Array, jax.Array]:
    u, x = saved
    S = u.shape[-1]
    return _flip(slide(_flip(ct), x)), slide(_flip(u), _pad(ct, S - 1, S - 1))


slide.defvjp(_slide_forward, _slide_reverse)


@jax.custom_vjp
def truncated(u: jax.Array, v: jax.Array) -> jax.Array:
    """The first L entries of u * v for u, v `[..., L]`: out[t] = sum_{s <= t} u[s] v[t - s].

    Halving L leaves two truncated convolutions of half the length and one full square, so less than
    the square that a single slide over zeros would take. The transposes are truncated convolutions
    as well.
    """
    L = u.shape[-1]
    if L <= _LEAF or L % 2:
        return slide(u, _pad(v, L - 1, 0))
    h = L // 2
    low = truncated(u[..., :h], v[..., :h])
    high = slide(u[..., :h], v[..., 1:]) + truncated(u[..., h:], v[..., :h])
    return jnp.concatenate([low, high], axis=-1)


def _truncated_forward(u: jax.Array, v: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return truncated(u, v), (u, v)


def _truncated_reverse(
    saved: tuple[jax.Array, jax.Array], ct: jax.Array
) -> tuple[jax.Array, jax.Array]:
    u, v = saved
    return _flip(truncated(_flip(ct), v)), _flip(truncated(_flip(ct), u))


truncated.defvjp(_truncated_forward, _truncated_reverse)


def convolve(u: jax.Array, v: jax.Array, length: int | None = None) -> jax.Array:
    """The first `length` entries (default all) of u * v, over the last axis."""
    S, R = u.shape[-1], v.shape[-1]
    length = S + R - 1 if length is None else length
    if S == R == length:
        return truncated(*jnp.broadcast_arrays(u, v))
    # Entry t needs v[t - S + 1 .. t]; what lies outside v is 0.
    return slide(u, _pad(v, S - 1, length - R) if length >= R else _pad(v[..., :length], S - 1, 0))


def align(x: jax.Array, start: jax.Array, length: int, fill: float = 0.0) -> jax.Array:
    """x[start], ..., x[start + length - 1] with `fill` outside x; one start a row.

    Args:
        x: `[..., R]`.
        start: int `[...]`, any sign.
        length: of the result.
        fill: what stands outside of x.
    """
    R = x.shape[-1]
    padded = _pad(x, length, length, fill)
    # A window wholly outside stays wholly in the padding.
    begin = jnp.clip(start, -length, R) + length
    take = partial(lax.dynamic_slice_in_dim, slice_size=length, axis=-1)
    for _ in start.shape:
        take = jax.vmap(take)
    return take(padded, begin)


@jax.custom_vjp
def log_slide(u: jax.Array, x: jax.Array) -> jax.Array:
    """`slide` of exp(u) and exp(x), in logs: out[t] = logsumexp_s(u[s] + x[t + S - 1 - s]).

    Vectors only: u `[S]`, x `[T + S - 1]`, out `[T]`; -inf is a zero.
    """
    T = x.shape[-1] - u.shape[-1] + 1
    terms = _log_terms(u, x)
    steps = -(-u.shape[-1] // _LOG_TAPS)

    def highest(q: jax.Array, top: jax.Array) -> jax.Array:
        return jnp.maximum(top, terms(q).max(0))

    top = lax.fori_loop(0, steps, highest, jnp.full((T,), _LEAST, x.dtype))
    shift = jnp.where(jnp.isfinite(top), top, 0)

    def add(q: jax.Array, total: jax.Array) -> jax.Array:
        return total + jnp.exp(terms(q) - shift).sum(0)

    total = lax.fori_loop(0, steps, add, jnp.zeros((T,), x.dtype))
    empty = total <= 0
    return jnp.where(empty, _LEAST, jnp.log(jnp.where(empty, 1, total)) + shift)


def _log_slide_forward(u: jax.Array, x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    out = log_slide(u, x)
    return out, (u, x, out)


def _log_slide_reverse(saved: tuple[jax.Array, ...], ct: jax.Array) -> tuple[jax.Array, jax.Array]:
    u, x, out = saved
    S, T = u.shape[-1], out.shape[-1]
    # Where out is a zero nothing flows back: +inf there makes every share exp(-inf).
    level = jnp.where(jnp.isfinite(out), out, jnp.inf)

    def step(t: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        to_u, to_x = sums
        reach = lax.dynamic_slice_in_dim(x, t, S)
        share = ct[t] * jnp.exp(_flip(u) + reach - level[t])
        old = lax.dynamic_slice_in_dim(to_x, t, S)
        return to_u + share, lax.dynamic_update_slice_in_dim(to_x, old + share, t, 0)

    to_u, to_x = lax.fori_loop(0, T, step, (jnp.zeros_like(u), jnp.zeros_like(x)))
    return _flip(to_u), to_x


log_slide.defvjp(_log_slide_forward, _log_slide_reverse)


def log_convolve(u: jax.Array, v: jax.Array, length: int | None = None) -> jax.Array:
    """`convolve` of exp(u) and exp(v), in logs; vectors only."""
    S, R = u.shape[-1], v.shape[-1]
    length = S + R - 1 if length is None else length
    if length < R:
        v, R = v[..., :length], length
    return log_slide(u, _pad(v, S - 1, length - R, _LEAST))


def log_convolve_scaled(u: jax.Array, v: jax.Array) -> jax.Array:
    """All of `log_convolve`, vectors only, as numbers scaled to a largest entry of 1.

    An exponential for each entry and not for each product; entries below the smallest number times
    S + R are lost, and others may lack as much.
    """
    values, scale = zip(*map(_scaled_exp, (u, v)), strict=True)
    out = convolve(*values)
    empty = out <= 0
    return jnp.where(empty, _LEAST, jnp.log(jnp.where(empty, 1, out)) + sum(scale))


def _scaled_exp(u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(exp(u - top), top), where top is the largest entry; no gradient in it."""
    top = lax.stop_gradient(u.max(-1))
    top = jnp.where(jnp.isfinite(top), top, 0)
    return jnp.exp(u - top), top


def _log_terms(u: jax.Array, x: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Q -> the terms of a few taps from q * _LOG_TAPS on, `[_LOG_TAPS, T]`."""
    S = u.shape[-1]
    T = x.shape[-1] - S + 1
    steps = -(-S // _LOG_TAPS)
    surplus = steps * _LOG_TAPS - S
    u = _pad(u, 0, surplus, _LEAST)
    x = _pad(x, surplus, 0, _LEAST)

    def terms(q: jax.Array) -> jax.Array:
        taps = lax.dynamic_slice_in_dim(u, q * _LOG_TAPS, _LOG_TAPS)
        reach = lax.dynamic_slice_in_dim(x, (steps - 1 - q) * _LOG_TAPS, T + _LOG_TAPS - 1)
        return jnp.stack(
            [taps[p] + reach[_LOG_TAPS - 1 - p : _LOG_TAPS - 1 - p + T] for p in range(_LOG_TAPS)]
        )

    return terms


def _flip(x: jax.Array) -> jax.Array:
    return lax.rev(x, (x.ndim - 1,))


def _pad(x: jax.Array, before: int, after: int, fill: float = 0.0) -> jax.Array:
    widths = [(0, 0)] * (x.ndim - 1) + [(before, after)]
    return jnp.pad(x, widths, constant_values=fill)
