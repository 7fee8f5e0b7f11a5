"""Dirichlet distributions over the last axis, with masked cells.

A masked cell has concentration 0 and probability 0; it adds nothing to any sum.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from jaxprivnb.quantiles import beta_cdf_pdf, beta_quantile


def mean(alpha: jax.Array) -> jax.Array:
    """E p_j = alpha_j / sum alpha, `[..., J]`."""
    return alpha / alpha.sum(-1, keepdims=True)


def sd(alpha: jax.Array) -> jax.Array:
    """Standard deviation of p_j: sqrt(E p_j (1 - E p_j) / (1 + sum alpha)), `[..., J]`."""
    total = alpha.sum(-1, keepdims=True)
    return jnp.sqrt(alpha / total * (_others(alpha) / total) / (1 + total))


def mean_log(alpha: jax.Array, real: jax.Array) -> jax.Array:
    """E log p_j = digamma(alpha_j) - digamma(sum alpha), `[..., J]`; 0 in masked cells."""
    total = digamma(jnp.where(real, alpha, 0).sum(-1, keepdims=True))
    return jnp.where(real, digamma(jnp.where(real, alpha, 1)) - total, 0)


def log_beta_terms(alpha: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The parts of log B(alpha) = sum_j log Gamma(alpha_j) - log Gamma(sum alpha).

    Returns:
        (log Gamma(alpha_j) `[..., J]`, 0 in masked cells; log Gamma(sum alpha) `[...]`).
    """
    cells = jnp.where(real, gammaln(jnp.where(real, alpha, 1)), 0)
    return cells, gammaln(jnp.where(real, alpha, 0).sum(-1))


def sample(key: jax.Array, alpha: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Draws of shape `shape + alpha.shape`; the gammas are drawn in log space, so small
    concentrations do not underflow.
    """
    real = alpha > 0
    log_gamma = jax.random.loggamma(
        key, jnp.where(real, alpha, 1), (*shape, *alpha.shape), alpha.dtype
    )
    return jax.nn.softmax(log_gamma, axis=-1, where=real)


@jax.jit
def marginal_quantile(alpha: jax.Array, q: jax.Array) -> jax.Array:
    """The q-quantile of each p_j ~ Beta(alpha_j, sum alpha - alpha_j), `[..., J]`."""
    return beta_quantile(alpha, _others(alpha), q)


@jax.jit
def marginal_cdf(alpha: jax.Array, p: jax.Array) -> jax.Array:
    """P(p_j <= p[j]), `[..., J]`."""
    others = _others(alpha)
    proper = (alpha > 0) & (others > 0)
    a, b = jnp.where(proper, alpha, 1), jnp.where(proper, others, 1)
    inside, _ = beta_cdf_pdf(a, b, jnp.clip(p, 0, 1))
    point_mass = jnp.where(alpha > 0, p >= 1, p >= 0).astype(inside.dtype)
    return jnp.where(proper, inside, point_mass)


@jax.jit
def marginal_density(alpha: jax.Array, x: jax.Array) -> jax.Array:
    """Density of each p_j at the points x `[G]`: `[..., J, G]`; 0 where it has none."""
    a, b = alpha[..., None], _others(alpha)[..., None]
    proper = (a > 0) & (b > 0)
    inside = (x > 0) & (x < 1)
    a, b, safe = jnp.where(proper, a, 1), jnp.where(proper, b, 1), jnp.where(inside, x, 0.5)
    return jnp.where(proper & inside, beta_cdf_pdf(a, b, safe)[1], 0)


def _others(alpha: jax.Array) -> jax.Array:
    """The sum of all alpha but alpha_j, `[..., J]`, with no difference to lose digits in."""
    first = [(0, 0)] * (alpha.ndim - 1) + [(1, 0)]
    last = [(0, 0)] * (alpha.ndim - 1) + [(0, 1)]
    before = jnp.pad(jnp.cumsum(alpha[..., :-1], -1), first)
    after = jnp.pad(jnp.flip(jnp.cumsum(jnp.flip(alpha[..., 1:], -1), -1), -1), last)
    return before + after
