"""The variational state and the bound it gives on log P(m) (eq. 2 and 7, corrected).

`collapsed` takes a state whose closed-form factors are at their optima, as all points of the ascent
are. It is used for convergence and for the check that every step ascends, so it is written to lose
few digits and says how large its own rounding error may be.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb import dirichlet
from jaxprivnb.gamma import log_gamma_excess
from jaxprivnb.noise import Noise
from jaxprivnb.tables import NoisyTables, Prior
from jaxprivnb.variational.local import LocalBound


class Data(NamedTuple):
    """What one fit is given, in the form the updates use."""

    m: jax.Array
    """Noisy counts `[I, K, J]`, 0 in masked cells."""
    N: jax.Array
    """Number of records, scalar."""
    noise: Noise
    """The noise, its scale broadcastable against `[I, K, J]`."""
    real: jax.Array
    """Real cells, bool `[K, J]`."""
    prior_class: jax.Array
    """a, `[I]`."""
    prior_feature: jax.Array
    """a, `[I, K, J]`; 0 in masked cells."""
    log_beta_prior: jax.Array
    """log B(a) + sum_ik log B(a[i,k,.]), the priors' normalisers, scalar."""

    @classmethod
    def of(cls, tables: NoisyTables, prior: Prior) -> "Data":
        """From one checked dataset."""
        real = tables.real
        every = jnp.ones_like(prior.class_, bool)
        log_beta = [
            jnp.sum(cells) - jnp.sum(total)
            for cells, total in (
                dirichlet.log_beta_terms(prior.class_, every),
                dirichlet.log_beta_terms(prior.feature, real),
            )
        ]
        return cls(
            jnp.where(real, tables.counts, 0),
            tables.n_records,
            tables.noise_by_cell(),
            real,
            prior.class_,
            jnp.where(real, prior.feature, 0),
            log_beta[0] + log_beta[1],
        )


class Factors(NamedTuple):
    """The variational state: one field a factor of q."""

    log_t_class: jax.Array
    """log t[i], `[I]`."""
    log_t_feature: jax.Array
    """log t[i,k,j], `[I, K, J]`; `simplex.problem.LOG_ZERO` in masked cells."""
    alpha_class: jax.Array
    """Concentration of q(p), `[I]`."""
    alpha_feature: jax.Array
    """Concentrations of q(p[i,k,.]), `[I, K, J]`; 0 in masked cells."""
    local: jax.Array
    """Parameter of the local bound (E beta, or alpha), `[I, K, J]`."""


class Bound(NamedTuple):
    """The bound and what its last digits are worth."""

    elbo: jax.Array
    """A lower bound of log P(m), scalar."""
    rounding: jax.Array
    """An estimate of the rounding error in `elbo`: machine epsilon times its terms' magnitudes."""


def second_moment(data: Data, log_t_class: jax.Array, log_t_feature: jax.Array) -> jax.Array:
    """c = E_q (m - n)^2 = N e (1 - e) + (N e - m)^2, `[I, K, J]`; 1 in masked cells.

    Written so that nothing cancels when m is large.
    """
    e = jnp.exp(log_t_class[:, None, None] + log_t_feature)
    c = data.N * e * (1 - e) + jnp.square(data.N * e - data.m)
    return jnp.where(data.real, c, 1)


def collapsed(data: Data, factors: Factors, local: LocalBound) -> Bound:
    """The bound where q(p) = Dirichlet(a + N t) and q(p[i,k,.]) likewise; their alpha is not read.

    The sums over E log p cancel. With phi(n, a) = log Gamma(n + a) - n log n + n, n[i] = N t[i],
    n[i,k,j] = n[i] t[i,k,j] and A = sum a, what remains of a block is

        sum_j phi(n[i,k,j], a[i,k,j]) - phi(n[i], A[i,k]),

    about log n in size where the bound as it stands subtracts terms of n log n, and flat in the
    rounding of t.
    """
    real = data.real
    n_class, n_feature = _expected_counts(data, factors)
    cells = jnp.where(real, log_gamma_excess(n_feature, jnp.where(real, data.prior_feature, 1)), 0)
    blocks = log_gamma_excess(n_class[:, None], data.prior_feature.sum(-1))
    classes = log_gamma_excess(n_class, data.prior_class)
    whole = log_gamma_excess(data.N, data.prior_class.sum())
    noise = _noise_terms(data, factors, local)
    terms = (noise, cells, -blocks, classes, -whole, -data.log_beta_prior)
    elbo = jnp.sum(jnp.stack([jnp.sum(term) for term in terms]))
    magnitude = jnp.sum(jnp.stack([jnp.sum(jnp.abs(term)) for term in terms]))
    return Bound(elbo, magnitude * jnp.finfo(elbo.dtype).eps)


def _expected_counts(data: Data, factors: Factors) -> tuple[jax.Array, jax.Array]:
    """(N t[i] `[I]`, N t[i] t[i,k,j] `[I, K, J]`)."""
    n_class = data.N * jnp.exp(factors.log_t_class)
    return n_class, n_class[:, None, None] * jnp.exp(factors.log_t_feature)


def _noise_terms(data: Data, factors: Factors, local: LocalBound) -> jax.Array:
    """The local bound of E log f(m - n), `[I, K, J]`; 0 in masked cells."""
    c = second_moment(data, factors.log_t_class, factors.log_t_feature)
    return jnp.where(data.real, local.value(data.noise, factors.local, c), 0)
