"""Mixtures of Betas on one common total, one parameter at a time: CDF, density and quantiles.

The density of sum_l w(l) Beta(a + l, b + n - l) in u = logit x is a sum of the kernels

    k_l(x) = x^alpha (1 - x)^beta / B(alpha, beta),    alpha = a + l, beta = b + n - l,

and neighbouring components differ by a single term (DLMF 8.17.20),

    I_x(alpha, beta) - I_x(alpha + 1, beta - 1) = k_l(x) / (alpha (1 - x)),

so the CDF is one incomplete beta, that of the last component, and a sum of such terms weighted by
the cumulated weights (Abel summation). All of it is positive, so the lower tail keeps its relative
precision however small it is; the upper tail is the lower tail of 1 - x.

Kernels are never taken on their own. That of the component nearest to x is computed on the log
scale, in a form whose terms are of the size of the answer, and the others follow from the ratios of
neighbours, k_{l+1} / k_l = x / (1 - x) (beta - 1) / alpha.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import softplus
from jax.scipy.special import expit, gammaln, ndtri

from jaxprivnb.gamma import log_gamma_ratio, stirling_tail

_MAX_STEPS = 100
"""Bisection alone reaches rounding from the widest bracket in fewer steps."""
_PATIENCE = 8
"""Steps before bisection takes turns."""
_MAX_TERMS = 20_000
"""Of a continued fraction, which takes about the square root of the total."""
_SMALL = 8
"""Parameters from here on are as near to Stirling's formula as floating point resolves."""


class Terms(NamedTuple):
    """What the CDF of one mixture needs at every x."""

    rows: jax.Array
    """`[3, W]`, 0 in the last component: weight up to t over alpha; weight; weight times t."""
    log_ratio: jax.Array
    """log k_t - log k_last at `u0`, `[W]`; -inf for components that do not exist."""
    u0: jax.Array
    """A logit near the middle."""
    a: jax.Array
    b: jax.Array
    first: jax.Array
    n: jax.Array
    """As `terms` was given them; of harmless values for a point mass."""
    last: jax.Array
    """Index of the last component, int32."""
    last_weight: jax.Array
    matched: tuple[jax.Array, jax.Array]
    """Parameters of about the Beta with the same mean and variance."""


def terms(weight: jax.Array, a: jax.Array, b: jax.Array, first: jax.Array, n: jax.Array) -> Terms:
    """What the CDF needs of one `Marginal`: weights `[W]` and scalars."""
    dtype, W = weight.dtype, weight.shape[-1]
    proper = (a > 0) & (b > 0)
    a, b, weight = (jnp.where(proper, x, 1) for x in (a, b, weight))
    first, n = (jnp.where(proper, x, 0) for x in (first, n))
    t = jnp.arange(W, dtype=jnp.int32)
    l = first + t.astype(first.dtype)
    exists = (l >= 0) & (l <= n)
    last = jnp.clip(n - first, 0, W - 1).astype(jnp.int32)
    weight = jnp.where(exists, weight, 0)

    # Moments choose u0 and where a search starts: their rounding does not matter.
    middle = (W - 1) / 2
    centred = t.astype(dtype) - middle
    powers = jnp.stack([jnp.ones(W, dtype), centred, jnp.square(centred)], axis=-1)
    mass, mean, square = _dot("w,wk->k", weight, powers)
    mean, square = mean / mass, square / mass
    total = a + b + n.astype(dtype)
    ahead = jnp.maximum(a + (first.astype(dtype) + middle + mean), a)
    behind = jnp.maximum(b + ((n - first).astype(dtype) - middle - mean), b)
    p, rest = ahead / total, behind / total
    spread = jnp.maximum(square - jnp.square(mean), 0) / jnp.square(total)
    within = jnp.maximum(p * rest - spread, 0) / (total + 1)
    like = jnp.maximum(p * rest / jnp.maximum(within + spread, jnp.finfo(dtype).tiny) - 1, 1e-4)

    # Ratios of neighbours at u0, where they are near 1 as far as there is weight.
    u0 = jnp.clip(jnp.log(ahead) - jnp.log(behind), -30, 30)
    onward = exists & (l > 0) & (t > 0)
    up, down = b + (n - l).astype(dtype), a + (l - 1).astype(dtype)
    ratio = jnp.exp(u0) * (jnp.where(onward, up, 1) / jnp.where(onward, down, 1))
    log_ratio = _cumsum(jnp.where(onward, jnp.log(ratio), 0))
    log_ratio = jnp.where(exists, log_ratio - log_ratio[last], -jnp.inf)

    inner = exists & (t < last)
    weight = weight / mass
    upto = _cumsum(weight) / jnp.where(inner, a + l.astype(dtype), 1)
    rows = jnp.where(inner, jnp.stack([upto, weight, weight * t.astype(dtype)]), 0)
    return Terms(rows, log_ratio, u0, a, b, first, n, last, weight[last], (p * like, rest * like))


class _Point(NamedTuple):
    """A point of (0, 1) and its distance to 1, each with its logarithm."""

    u: jax.Array
    x: jax.Array
    y: jax.Array
    log_x: jax.Array
    log_y: jax.Array


def _at(x: jax.Array) -> _Point:
    log_x, log_y = jnp.log(x), jnp.log1p(-x)
    return _Point(log_x - log_y, x, 1 - x, log_x, log_y)


def _at_logit(u: jax.Array) -> _Point:
    return _Point(u, expit(u), expit(-u), -softplus(-u), -softplus(u))


class _Value(NamedTuple):
    """A mixture at one point."""

    log_cdf: jax.Array
    """log F."""
    log_rate: jax.Array
    """log dF/du."""
    bend: jax.Array
    """d/du log dF/du."""


def log_cdf(terms: Terms, x: jax.Array) -> jax.Array:
    """log F at x, inside (0, 1)."""
    return _evaluate(terms, _at(x)).log_cdf


def log_rate(terms: Terms, x: jax.Array) -> jax.Array:
    """log dF/du at x, inside (0, 1)."""
    return _evaluate(terms, _at(x), cdf=False).log_rate


def _evaluate(terms: Terms, at: _Point, *, cdf: bool = True) -> _Value:
    """A mixture at a point; without `cdf` only its density is right."""
    dtype, W = at.u.dtype, terms.log_ratio.shape[-1]
    total = terms.a + terms.b + terms.n.astype(dtype)
    # The component nearest to x, whose kernel is about the largest.
    last_l = terms.first + terms.last.astype(terms.first.dtype)
    near = jnp.clip(jnp.round(total * at.x - terms.a), 0, terms.n.astype(dtype))
    near = jnp.clip(near.astype(terms.first.dtype), jnp.maximum(terms.first, 0), last_l)
    near_t = (near - terms.first).astype(jnp.int32)
    alpha, beta = terms.a + near.astype(dtype), terms.b + (terms.n - near).astype(dtype)
    log_scale, unit = _log_kernel(alpha, beta, at), jnp.minimum(alpha, beta)
    # Kernels relative to that one; those before the last over 1 - x, which they vanish with.
    base = terms.log_ratio[near_t]
    du = at.u - terms.u0
    t = jnp.arange(W, dtype=jnp.int32)
    away = (t - near_t).astype(dtype)
    power = terms.log_ratio + away * du - (base + at.log_y)
    power = jnp.where(t < terms.last, power, -jnp.inf)
    below, rate, moment = _dot("kw,w->k", terms.rows, jnp.exp(power))
    at_last = jnp.exp((terms.last - near_t).astype(dtype) * du - base)
    last_rate = terms.last_weight * at_last
    rate, moment = at.y * rate, at.y * moment
    whole = rate + last_rate
    moved = moment + last_rate * terms.last.astype(dtype)
    bend = moved / whole - near_t.astype(dtype) + (alpha * at.y - beta * at.x)
    log_rate = log_scale + jnp.log(unit * whole)
    if not cdf:
        return _Value(log_rate, log_rate, bend)
    below = unit * below
    # The incomplete beta of the last component, from the side on which its fraction converges.
    p, r = terms.a + last_l.astype(dtype), terms.b + (terms.n - last_l).astype(dtype)
    kernel = unit * at_last
    far = _lead(p, r, at.x, at.y) + 1 < 2 * at.x
    scale = jnp.exp(log_scale)
    needed = jnp.where(far, scale * kernel / r, kernel / p)
    enough = jnp.where(far, 1, below) * (jnp.finfo(dtype).eps / 4)
    turn = lambda here, there: (jnp.where(far, there, here), jnp.where(far, here, there))  # noqa: E731
    fraction = _fraction(*turn(p, r), *turn(at.x, at.y), needed, enough)
    near_side = log_scale + jnp.log(below + kernel / p * fraction)
    far_side = jnp.log(jnp.maximum(1 - scale * kernel / r * fraction, 0) + scale * below)
    return _Value(jnp.where(far, far_side, near_side), log_rate, bend)


def _dot(subscripts: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """Einsum in full precision, which accelerators do not do unasked."""
    return jnp.einsum(subscripts, x, y, precision=lax.Precision.HIGHEST)


def _cumsum(x: jax.Array) -> jax.Array:
    """Cumulated sums of x `[W]`, by products with triangles: several times faster on a CPU."""
    W, size = x.shape[0], 16
    upper = lambda k: jnp.triu(jnp.ones((k, k), x.dtype))  # noqa: E731
    if size >= W:
        return _dot("w,wv->v", x, upper(W))
    n = -(-W // size)
    inside = _dot("nw,wv->nv", jnp.pad(x, (0, n * size - W)).reshape(n, size), upper(size))
    before = _cumsum(jnp.pad(inside[:-1, -1], (1, 0)))
    return (inside + before[:, None]).reshape(-1)[:W]


def _log_kernel(p: jax.Array, r: jax.Array, at: _Point) -> jax.Array:
    """log(x^p y^r / B(p, r)) - log min(p, r).

    Its terms are of the size of the answer: with both parameters large, a height at the mean and a
    deviance from it (Stirling's formula for the three gammas, in which what is of the size of
    p log x cancels on paper); with one of them small, the ratio of two gammas, which goes to 1 with
    it, as min(p, r) B(p, r) does.
    """
    least, most = jnp.minimum(p, r), jnp.maximum(p, r)
    small = least < _SMALL
    d = jnp.where(small, least, 1)
    by_ratio = log_gamma_ratio(jnp.where(small, most, 1), d) - gammaln(1 + d)
    by_ratio = by_ratio + p * at.log_x + r * at.log_y
    p, r = jnp.where(small, _SMALL, p), jnp.where(small, _SMALL, r)
    x0, y0 = p / (p + r), r / (p + r)
    moved = jnp.where(x0 <= y0, at.x - x0, y0 - at.y)
    deviance = p * _log_deficit(moved / x0, at.log_x, x0)
    deviance = deviance + r * _log_deficit(-moved / y0, at.log_y, y0)
    height = 0.5 * jnp.log(jnp.maximum(x0, y0) / (2 * math.pi * jnp.minimum(p, r)))
    height = height + stirling_tail(p + r) - stirling_tail(p) - stirling_tail(r)
    return jnp.where(small, by_ratio, height - deviance)


def _log_deficit(e: jax.Array, log_z: jax.Array, z0: jax.Array) -> jax.Array:
    """The deficit e - log(1 + e); 1 + e = z / z0 is better known by its log when e is near -1."""
    close = e > -0.5
    return e - jnp.where(close, jnp.log1p(jnp.where(close, e, 0)), log_z - jnp.log(z0))


class _Fraction(NamedTuple):
    """Forward evaluation of a continued fraction, scaled to a last denominator of 1."""

    value: jax.Array
    """The last convergent, and so its numerator."""
    above: jax.Array
    below: jax.Array
    """Numerator and denominator of the convergent before."""
    done: jax.Array
    m: jax.Array


def _fraction(
    a: jax.Array,
    b: jax.Array,
    x: jax.Array,
    y: jax.Array,
    needed: jax.Array,
    enough: jax.Array,
) -> jax.Array:
    """I_x(a, b) a B(a, b) / (x^a y^b) with y = 1 - x, for x up to about the mean.

    The even part of the continued fraction DLMF 8.17.22, in which a - (a + b) x is known to full
    precision: its elements do not cancel. It takes O(sqrt(a + b)) terms. Where `needed` times a
    bound on it is at most `enough`, the bound will do.
    """
    dtype = x.dtype
    eps = jnp.finfo(dtype).eps
    lead = _lead(a, b, x, y) + 1

    def step(s: _Fraction) -> _Fraction:
        m = s.m.astype(dtype)
        across = m * (b - m) * x / (a + 2 * m - 1)
        # The first numerator has lost its factor a to the a of the value.
        front = jnp.where(s.m == 1, 1, a + m - 1) / (a + 2 * m - 1)
        numerator = front * ((a + b + m - 1) * x) * across
        denominator = m + across + (a + m) / (a + 2 * m + 1) * (lead + m * (1 + y))
        above = numerator * s.above + denominator * s.value
        below = numerator * s.below + denominator
        value = above / below
        done = (jnp.abs(value - s.value) <= eps * value) | ~jnp.isfinite(value)
        return _Fraction(value, s.value / below, 1 / below, done, s.m + 1)

    def unfinished(s: _Fraction) -> jax.Array:
        return ~s.done & (s.m <= _MAX_TERMS)

    # The first convergent, the sum of a geometric series, bounds the rest.
    first = (a + 1) / lead
    done = ~jnp.isfinite(first * needed) | (first * needed <= enough)
    start = _Fraction(first, jnp.zeros_like(x), first, done, jnp.ones((), jnp.int32))
    return lax.while_loop(unfinished, step, start).value


def _lead(a: jax.Array, b: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Lead of the mean over x: a - (a + b) x = (a + b) y - b, by the form that cancels less."""
    return jnp.where(x <= y, a - (a + b) * x, (a + b) * y - b)


class _Search(NamedTuple):
    """Safeguarded root finding in u = logit x."""

    u: jax.Array
    """Where F is evaluated next; at the end, the root."""
    low: jax.Array
    high: jax.Array
    """F(low) < q <= F(high), or the ends of what floating point resolves."""
    moving: jax.Array
    """bool: not yet at a root."""
    taken: jax.Array
    """Steps so far, int32."""


def search(terms: Terms, tail: jax.Array) -> jax.Array:
    """The logit u with F(u) = tail."""
    log_odds = jnp.log(tail) - jnp.log1p(-tail)
    return _root(terms, log_odds, _guess(*terms.matched, tail))


def _root(terms: Terms, log_odds: jax.Array, start: jax.Array) -> jax.Array:
    """Halley's method for logit F(u) = log_odds.

    Logits against logits, mixtures of Betas are close to straight lines. Steps stay in a bracket
    and give way to bisection should they dawdle.
    """
    info = jnp.finfo(start.dtype)
    # Below the lowest logit x is 0; above the highest 1 - x is not a normal number.
    lowest = 1.1 * math.log(float(info.smallest_subnormal))
    highest = math.log(float(info.max)) - 1e-3
    # A Halley step from here leaves an error of its cube.
    close = float(info.eps) ** 0.25

    def unfinished(s: _Search) -> jax.Array:
        return s.moving & (s.taken < _MAX_STEPS)

    def move(s: _Search) -> _Search:
        log_cdf, log_rate, bend = _evaluate(terms, _at_logit(s.u))
        cdf = jnp.exp(log_cdf)
        rest = jnp.maximum(1 - cdf, info.eps)
        gap = log_odds - (log_cdf - jnp.log(rest))
        low, high = jnp.where(gap > 0, s.u, s.low), jnp.where(gap > 0, s.high, s.u)
        hazard = jnp.exp(log_rate - log_cdf)
        newton = gap * rest / jnp.where(hazard > 0, hazard, 1)
        curve = bend - hazard * (1 - 2 * cdf) / rest
        step = newton / jnp.clip(1 + 0.5 * newton * curve, 0.5, 2)
        # Where F is almost 1 it is too flat to say how far away the root is.
        step = jnp.where(cdf > 0.9, jnp.maximum(step, -2), step)
        u = jnp.clip(s.u + step, lowest, highest)
        trusted = (hazard > 0) & (u > low) & (u < high)
        arrived = trusted & (jnp.abs(gap) <= close) & (jnp.abs(step) <= close)
        trusted &= (s.taken < _PATIENCE) | (s.taken % 2 == 0) | arrived
        # A bracket at rounding is the end, and so is a NaN.
        beyond = ((s.u <= lowest) & (gap <= 0)) | ((s.u >= highest) & (gap > 0))
        shut = high - low <= 2 * info.eps * (1 + jnp.abs(s.u))
        stay = beyond | shut | (gap == 0) | jnp.isnan(gap)
        u = jnp.where(stay, s.u, jnp.where(trusted, u, 0.5 * (low + high)))
        return _Search(u, low, high, ~stay & ~arrived, s.taken + 1)

    start = jnp.clip(jnp.where(jnp.isnan(start), 0, start), lowest, highest)
    low, high = jnp.full_like(start, lowest - 1), jnp.full_like(start, highest + 1)
    moving, none = jnp.ones(start.shape, bool), jnp.zeros(start.shape, jnp.int32)
    u = lax.while_loop(unfinished, move, _Search(start, low, high, moving, none)).u
    u = jnp.where(u <= lowest, -jnp.inf, jnp.where(u >= highest, jnp.inf, u))
    return jnp.where(jnp.isnan(terms.last_weight), jnp.nan, u)


def _guess(a: jax.Array, b: jax.Array, q: jax.Array) -> jax.Array:
    """Logit of about the q-quantile of Beta(a, b)."""
    # A normal deviate moved to where the Beta is (Carter's formula, AS 26.5.22).
    z = -ndtri(q)
    a1, b1 = 1 / (2 * jnp.maximum(a, 1) - 1), 1 / (2 * jnp.maximum(b, 1) - 1)
    h, third = 2 / (a1 + b1), (z * z - 3) / 6
    w = z * jnp.sqrt(jnp.maximum(third + h, 0)) / h - (b1 - a1) * (third + 5 / 6 - 2 / (3 * h))
    smooth = jnp.log(a) - jnp.log(b) - 2 * w
    # With a parameter below 1: powers of x and of 1 - x that share the mass.
    log_a, log_b, log_t = jnp.log(a), jnp.log(b), jnp.log(a + b)
    left, right = a * (log_a - log_t) - log_a, b * (log_b - log_t) - log_b
    both = jnp.logaddexp(left, right)
    log_q, log_rest = jnp.log(q), jnp.log1p(-q)
    log_x = (log_a + both + log_q) / a
    log_y = (log_b + both + log_rest) / b
    most = -jnp.finfo(q.dtype).eps
    odds = lambda z: z - jnp.log(-jnp.expm1(jnp.minimum(z, most)))  # noqa: E731
    steep = jnp.where(log_q < left - both, odds(log_x), -odds(log_y))
    return jnp.where((a < 1) | (b < 1), steep, smooth)
