"""One update a factor, and the sweep that makes all of them once (eq. 3 to 6)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb import dirichlet
from jaxprivnb.simplex.problem import SimplexProblem, SimplexSolution, SimplexSolver
from jaxprivnb.variational.bound import Data, Factors, second_moment
from jaxprivnb.variational.local import LocalBound

GAP_MARGIN = 4.0
"""A gap up to this many times its estimated rounding error is rounding."""


class Swept(NamedTuple):
    """The state after a sweep, and what its simplex solvers said."""

    factors: Factors
    gap: jax.Array
    """Upper bound of what exact solutions of the two simplex problems would still have added to
    the bound, less what is only its rounding, scalar."""
    status: jax.Array
    """The worst solver status, int32."""


def update_local(data: Data, factors: Factors, local: LocalBound) -> Factors:
    """q(beta), or the touching point of the quadratic, at its optimum (eq. 3)."""
    c = second_moment(data, factors.log_t_class, factors.log_t_feature)
    return factors._replace(local=local.optimum(data.noise, c))


def update_alpha_feature(data: Data, factors: Factors) -> Factors:
    """q(p[i,k,.]) = Dirichlet(a + N t[i] t[i,k,.]) (eq. 4)."""
    e = jnp.exp(factors.log_t_class[:, None, None] + factors.log_t_feature)
    return factors._replace(alpha_feature=data.prior_feature + data.N * e)


def update_alpha_class(data: Data, factors: Factors) -> Factors:
    """q(p) = Dirichlet(a + N t) (eq. 5)."""
    return factors._replace(alpha_class=data.prior_class + data.N * jnp.exp(factors.log_t_class))


def update_t_feature(
    data: Data, factors: Factors, local: LocalBound, solver: SimplexSolver
) -> tuple[Factors, SimplexSolution]:
    """Every t[i,k,.] by the simplex solver (eq. 6); solution arrays lead with `[I, K]`."""
    w, linear = _noise_terms(data, factors, local)
    t_class = jnp.exp(factors.log_t_class)[:, None, None]
    A = -0.5 * jnp.maximum(data.N - 1, 0) * t_class * w
    C = jnp.full_like(A, -1)
    real = jnp.broadcast_to(data.real, A.shape)
    solution = jax.vmap(jax.vmap(partial(_solve, solver)))(
        SimplexProblem(A, linear, C, real), factors.log_t_feature
    )
    return factors._replace(log_t_feature=solution.log_x), solution


def update_t_class(
    data: Data, factors: Factors, local: LocalBound, solver: SimplexSolver
) -> tuple[Factors, SimplexSolution]:
    """t by the simplex solver, coefficients D, E, F."""
    w, linear = _noise_terms(data, factors, local)
    real = data.real
    t = jnp.exp(factors.log_t_feature)
    D = -0.5 * jnp.maximum(data.N - 1, 0) * jnp.sum(jnp.where(real, t * t * w, 0), (1, 2))
    inner = jnp.where(real, t * (linear - factors.log_t_feature), 0)
    every = jnp.ones_like(D, bool)
    E = jnp.sum(inner, (1, 2)) + dirichlet.mean_log(factors.alpha_class, every)
    problem = SimplexProblem(D, E, jnp.full_like(D, -1), every)
    solution = _solve(solver, problem, factors.log_t_class)
    return factors._replace(log_t_class=solution.log_x), solution


def refresh(data: Data, factors: Factors, local: LocalBound) -> Factors:
    """The closed-form factors, q(beta), q(p) and q(p[i,k,.]), at their optima given the t."""
    factors = update_local(data, factors, local)
    return update_alpha_class(data, update_alpha_feature(data, factors))


def at_theta(
    data: Data, log_t_class: jax.Array, log_t_feature: jax.Array, local: LocalBound
) -> Factors:
    """The state with the given t and everything else at its optimum."""
    bare = Factors(
        log_t_class,
        log_t_feature,
        jnp.zeros_like(log_t_class),
        jnp.zeros_like(log_t_feature),
        jnp.zeros_like(log_t_feature),
    )
    return refresh(data, bare, local)


def sweep(data: Data, factors: Factors, local: LocalBound, solver: SimplexSolver) -> Swept:
    """Every factor once: t[i,k,.], t, then the closed forms. The bound does not fall."""
    factors, features = update_t_feature(data, factors, local, solver)
    # In units of the bound: the problems were divided by N t[i] and by N.
    weight = data.N * jnp.exp(factors.log_t_class)[:, None]
    factors, classes = update_t_class(data, factors, local, solver)
    gap = jnp.sum(weight * features.gap) + data.N * classes.gap
    status = jnp.maximum(jnp.max(features.status), classes.status)
    return Swept(refresh(data, factors, local), gap, status)


def _solve(solver: SimplexSolver, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
    """The solver's solution, with a gap that is 0 where rounding explains it."""
    solution = solver.solve(problem, log_x)
    noise = GAP_MARGIN * problem.gap_rounding(solution.log_x)
    return solution._replace(gap=jnp.maximum(solution.gap - noise, 0))


def _noise_terms(data: Data, factors: Factors, local: LocalBound) -> tuple[jax.Array, jax.Array]:
    """(w, (m - 1/2) w + E log p[i,k,j]), both `[I, K, J]`."""
    w = local.precision(data.noise, factors.local)
    return w, (data.m - 0.5) * w + dirichlet.mean_log(factors.alpha_feature, data.real)
