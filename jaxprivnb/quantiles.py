"""Quantiles of distributions on [0, 1] by safeguarded root finding on their CDF.

The search runs in u = logit(x), where quantiles of very uneven Betas are no longer crowded against
0 and 1, and takes Newton steps inside a bracket that every evaluation shrinks, with a bisection
whenever Newton would leave it or has stopped halving it.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import expit, gammaln

MAX_STEPS = 100
"""Bisection alone reaches machine precision from the widest bracket in fewer steps."""
MAX_TERMS = 10_000
"""Of a continued fraction; enough for a + b = 1e8."""


def invert_cdf(
    cdf_pdf: Callable[[jax.Array], tuple[jax.Array, jax.Array]], q: jax.Array, start: jax.Array
) -> jax.Array:
    """Solve F(x) = q elementwise for x in (0, 1).

    Args:
        cdf_pdf: maps x `[...]` to (F(x), F'(x)), both `[...]`.
        q: levels in (0, 1), `[...]`.
        start: first guess of x, `[...]`, in (0, 1).
    """
    dtype = q.dtype
    eps = jnp.finfo(dtype).eps
    reach = -jnp.log(jnp.finfo(dtype).tiny)  # expit(-reach) is the smallest normal number
    tolerance = 4 * eps

    class Search(NamedTuple):
        u: jax.Array
        """logit of the current guess."""
        low: jax.Array
        high: jax.Array
        """F(expit(low)) <= q <= F(expit(high))."""
        step: jax.Array
        """Length of the last move of u."""
        taken: jax.Array

    def moving(s: Search) -> jax.Array:
        return (s.step > tolerance * (1 + jnp.abs(s.u))) & (s.high - s.low > tolerance)

    def unfinished(s: Search) -> jax.Array:
        return jnp.any(moving(s)) & (s.taken < MAX_STEPS)

    def move(s: Search) -> Search:
        x = expit(s.u)
        cdf, pdf = cdf_pdf(x)
        low = jnp.where(cdf < q, s.u, s.low)
        high = jnp.where(cdf >= q, s.u, s.high)
        slope = pdf * x * (1 - x)
        newton = s.u - (cdf - q) / jnp.where(slope > 0, slope, 1)
        # Newton must stay in the bracket and at least halve the last move, else bisect.
        trusted = (slope > 0) & (newton > low) & (newton < high)
        trusted &= jnp.abs(newton - s.u) < 0.5 * s.step
        u = jnp.where(trusted, newton, 0.5 * (low + high))
        # A cell that has arrived stays, so that it does not depend on how long others take.
        keep = moving(s)
        u, step = jnp.where(keep, u, s.u), jnp.where(keep, jnp.abs(u - s.u), s.step)
        return Search(u, low, high, step, s.taken + 1)

    start = jnp.clip(start, eps, 1 - eps)
    u0 = jnp.clip(jnp.log(start) - jnp.log1p(-start), -reach, reach)
    full = jnp.full_like(u0, reach)
    found = lax.while_loop(
        unfinished, move, Search(u0, -full, full, 2 * full, jnp.zeros((), jnp.int32))
    )
    return expit(found.u)


def beta_cdf_pdf(a: jax.Array, b: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(I_x(a, b), x^(a-1) (1-x)^(b-1) / B(a, b)), elementwise, for a, b > 0 and x in [0, 1].

    `jax.scipy.special.betainc` differs in two ways that matter here. It takes log B(a, b) from
    differences of log-gammas, which leaves float32 no digits at a + b = 1e6; and its cells iterate
    until the last one has converged, so their last bits depend on their neighbours.
    """
    y = 1 - x
    kernel = jnp.exp(_log_beta_kernel(a, b, x, y))
    # The continued fraction converges fast on this side of the mean; elsewhere use I_y(b, a).
    flip = x * (a + b + 2) > a + 1
    p, r = jnp.where(flip, b, a), jnp.where(flip, a, b)
    tail = kernel / p * _beta_fraction(p, r, jnp.where(flip, y, x))
    cdf = jnp.clip(jnp.where(flip, 1 - tail, tail), 0, 1)
    interior = (x > 0) & (y > 0)
    return cdf, jnp.where(interior, kernel / jnp.where(interior, x * y, 1), 0)


def _log_beta_kernel(a: jax.Array, b: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """log(x^a y^b / B(a, b)) with y = 1 - x, as a height at the mean and a deviance from it.

    With x0 = a / (a + b), y0 = b / (a + b) and Stirling's formula for the three gammas, the terms
    of the size of a log x cancel on paper instead of in floating point.
    """
    x0, y0 = a / (a + b), b / (a + b)
    moved = jnp.where(x0 <= y0, x - x0, y0 - y)
    deviance = a * _log_deficit(moved / x0, x, x0) + b * _log_deficit(-moved / y0, y, y0)
    height = 0.5 * (jnp.log(a) + jnp.log(y0) - math.log(2 * math.pi))
    return height + _stirling_error(a + b) - _stirling_error(a) - _stirling_error(b) - deviance


def _log_deficit(e: jax.Array, z: jax.Array, z0: jax.Array) -> jax.Array:
    """The deficit e - log(1 + e) >= 0, where 1 + e = z / z0 is better known when e is near -1."""
    near = e > -0.5
    return e - jnp.where(near, jnp.log1p(jnp.where(near, e, 0)), jnp.log(z) - jnp.log(z0))


def _stirling_error(z: jax.Array) -> jax.Array:
    """Error of Stirling: log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2]."""
    large = z >= 8
    w = 1 / jnp.where(large, z, 8)
    powers = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
    series = jnp.zeros_like(z)
    for coefficient in reversed(powers):
        series = series * jnp.square(w) + coefficient
    small = jnp.where(large, 8, z)
    direct = gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * math.log(2 * math.pi)
    return jnp.where(large, series * w, direct)


class Fraction(NamedTuple):
    """Lentz's evaluation of a continued fraction."""

    value: jax.Array
    above: jax.Array
    """Ratio of successive numerators."""
    below: jax.Array
    """Ratio of successive denominators, inverted."""
    done: jax.Array
    m: jax.Array


def _beta_fraction(a: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
    """The continued fraction of I_x(a, b) (DLMF 8.17.22), for x below (a + 1) / (a + b + 2).

    It takes O(sqrt(a + b)) terms; a cell that has converged stays as it is.
    """
    dtype = x.dtype
    eps, tiny = jnp.finfo(dtype).eps, jnp.finfo(dtype).tiny
    away = lambda t: jnp.where(jnp.abs(t) < tiny, tiny, t)  # noqa: E731

    def term(s: Fraction, numerator: jax.Array) -> Fraction:
        below = 1 / away(1 + numerator * s.below)
        above = away(1 + numerator / s.above)
        return s._replace(value=s.value * above * below, above=above, below=below)

    def step(s: Fraction) -> Fraction:
        m = s.m.astype(dtype)
        even = term(s, m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)))
        odd = term(even, -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)))
        arrived = jnp.abs(odd.above * odd.below - 1) <= eps
        value, above, below = (
            jnp.where(s.done, old, new) for old, new in zip(s[:3], odd[:3], strict=True)
        )
        return Fraction(value, above, below, s.done | arrived, s.m + 1)

    def unfinished(s: Fraction) -> jax.Array:
        return ~jnp.all(s.done) & (s.m <= MAX_TERMS)

    first = 1 / away(1 - (a + b) * x / (a + 1))
    start = Fraction(
        first, jnp.ones_like(x), first, ~(jnp.isfinite(first)), jnp.ones((), jnp.int32)
    )
    return lax.while_loop(unfinished, step, start).value


def beta_quantile(a: jax.Array, b: jax.Array, q: jax.Array) -> jax.Array:
    """The q-quantile of Beta(a, b), elementwise; a = 0 is a point mass at 0 and b = 0 at 1.

    NaN for a q outside [0, 1] and for a negative or NaN parameter.
    """
    a, b, q = jnp.broadcast_arrays(a, b, jnp.asarray(q, a.dtype))
    proper = (a > 0) & (b > 0)
    alpha, beta = jnp.where(proper, a, 1), jnp.where(proper, b, 1)
    # Search from the end that the quantile is nearer to: that is where x has all its digits.
    flip = beta_cdf_pdf(alpha, beta, jnp.full_like(q, 0.5))[0] < q
    near, far = jnp.where(flip, beta, alpha), jnp.where(flip, alpha, beta)
    level = jnp.where(flip, 1 - q, q)
    x = invert_cdf(lambda t: beta_cdf_pdf(near, far, t), level, near / (near + far))
    x = jnp.where(flip, 1 - x, x)
    x = jnp.where(proper, x, jnp.where(a > 0, 1.0, 0.0).astype(x.dtype))
    x = jnp.where(q <= 0, 0.0, jnp.where(q >= 1, 1.0, x)).astype(x.dtype)
    return jnp.where((q >= 0) & (q <= 1) & (a >= 0) & (b >= 0), x, jnp.nan)
