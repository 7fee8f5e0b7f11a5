"""Quantiles of distributions on [0, 1] by safeguarded root finding on their CDF.

The search runs in u = logit(x), where quantiles of very uneven Betas are no longer crowded against
0 and 1, and takes Newton steps inside a bracket that every evaluation shrinks, with a bisection
whenever Newton would leave it or has stopped halving it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, betaln, expit, xlog1py, xlogy

MAX_STEPS = 100
"""Bisection alone reaches machine precision from the widest bracket in fewer steps."""


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
    """(I_x(a, b), x^(a-1) (1-x)^(b-1) / B(a, b)), elementwise."""
    return betainc(a, b, x), jnp.exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))


def beta_quantile(a: jax.Array, b: jax.Array, q: jax.Array) -> jax.Array:
    """The q-quantile of Beta(a, b), elementwise; a = 0 is a point mass at 0 and b = 0 at 1."""
    a, b, q = jnp.broadcast_arrays(a, b, jnp.asarray(q, a.dtype))
    proper = (a > 0) & (b > 0)
    alpha, beta = jnp.where(proper, a, 1), jnp.where(proper, b, 1)
    # The tail with the smaller mean is the one floating point resolves.
    flip = alpha > beta
    small, large = jnp.where(flip, beta, alpha), jnp.where(flip, alpha, beta)
    level = jnp.where(flip, 1 - q, q)
    x = invert_cdf(lambda t: beta_cdf_pdf(small, large, t), level, small / (small + large))
    x = jnp.where(flip, 1 - x, x)
    return jnp.where(proper, x, jnp.where(a > 0, 1.0, 0.0).astype(x.dtype))
