"""Dirichlet distributions over the last axis, with masked cells.

A masked cell has concentration 0 and probability 0; it adds nothing to any sum.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from jaxprivnb.marginals import Marginal


@jax.jit
def mean(alpha: jax.Array) -> jax.Array:
    """E p_j = alpha_j / sum alpha, `[..., J]`."""
    return alpha / _total(alpha)


@jax.jit
def sd(alpha: jax.Array) -> jax.Array:
    """Standard deviation of p_j: sqrt(E p_j (1 - E p_j) / (1 + sum alpha)), `[..., J]`."""
    total = _total(alpha)
    return jnp.sqrt(alpha / total * (others(alpha) / total) / (1 + total))


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


def marginals(alpha: jax.Array) -> Marginal:
    """p_j ~ Beta(alpha_j, sum alpha - alpha_j), `[..., J]`."""
    return Marginal.beta(alpha, others(alpha))


@jax.jit
def others(alpha: jax.Array) -> jax.Array:
    """The sum of all alpha but alpha_j, `[..., J]`, with no difference to lose digits in."""
    return _before(alpha)[0] + _before(alpha, reverse=True)[0]


def _total(alpha: jax.Array) -> jax.Array:
    """The sum of alpha, `[..., 1]`."""
    return _before(alpha)[1]


def _before(alpha: jax.Array, *, reverse: bool = False) -> tuple[jax.Array, jax.Array]:
    """(the sum of what stands before alpha_j, or behind it, `[..., J]`; of all, `[..., 1]`).

    One term after the other: XLA orders a sum by the length of the batch around it, and the last
    bits of a dataset's means would depend on its neighbours.
    """
    terms = jnp.moveaxis(alpha, -1, 0)
    total, before = jax.lax.scan(
        lambda so_far, x: (so_far + x, so_far), jnp.zeros_like(terms[0]), terms, reverse=reverse
    )
    return jnp.moveaxis(before, 0, -1), total[..., None]
