"""Quadratic minorisation with exact resource allocation (paper 7.2, first approach).

At a point y the entropy term is minorised by -x log x >= -x log y - x (x - y) / y, so that

    f(x) >= sum_j (A_j - |C_j| / y_j) x_j^2 + (B_j + |C_j| (1 - log y_j)) x_j,

with equality at y. The right side is a quadratic resource allocation problem over the simplex: for
the multiplier L, x_j = max(0, (b_j - L) / q_j), and sorting the b_j finds the active set exactly
(Frangioni and Gorgone, 2013).

The paper rejects this approach because the allocation tends to lie on the boundary, where the next
minorisation divides by zero. It does: the status of a solve that met the boundary is
`Status.BOUNDARY`. To go on all the same, such a step is taken only part of the way
(`boundary_step`), which stays inside and, the minoriser being concave, still ascends.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb import validate
from jaxprivnb.simplex.problem import SimplexProblem, SimplexSolution, conclude, normalise
from jaxprivnb.status import Status


@dataclasses.dataclass(frozen=True)
class MM:
    """Options of the minorise-maximise iteration."""

    inner_steps: int = 5
    """Most minorisations in one call."""
    boundary_step: float = 0.9
    """Share of a step that would end on the boundary that is taken, in (0, 1)."""

    def __post_init__(self) -> None:
        validate.whole_number("inner_steps", self.inner_steps, at_least=1)
        validate.real_number("boundary_step", self.boundary_step, above=0, below=1)

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """Up to `inner_steps` minorisations from log_x `[J]`."""
        problem = problem.centred()
        real = problem.real
        eps = jnp.finfo(log_x.dtype).eps

        def unfinished(at: _Iterate) -> jax.Array:
            return ~at.done & (at.steps < self.inner_steps)

        def maximise(at: _Iterate) -> _Iterate:
            ratio = allocate(problem, at.log_x)  # x_j / y_j of the allocation, may be 0
            on_boundary = jnp.any(real & (ratio <= 0))
            share = jnp.where(on_boundary, self.boundary_step, 1.0).astype(ratio.dtype)
            move = jnp.log(jnp.where(real, 1 - share + share * ratio, 1))
            candidate = normalise(at.log_x + move, real)
            value = problem.objective(candidate)
            ok = jnp.isfinite(value) & (value >= at.value)
            log_x = jnp.where(ok, candidate, at.log_x)
            close = problem.gap(log_x) <= 4 * eps * (1 + jnp.abs(value))
            return _Iterate(
                log_x,
                jnp.where(ok, value, at.value),
                at.on_boundary | on_boundary,
                at.steps + 1,
                ~ok | close,
            )

        never = jnp.zeros((), bool)
        end = lax.while_loop(
            unfinished,
            maximise,
            _Iterate(log_x, problem.objective(log_x), never, jnp.zeros((), jnp.int32), never),
        )
        solution = conclude(problem, end.log_x, end.steps)
        finite = solution.status != Status.NON_FINITE
        status = jnp.where(finite & end.on_boundary, Status.BOUNDARY, solution.status)
        return solution._replace(status=status.astype(jnp.int32))


class _Iterate(NamedTuple):
    """The iteration's carry."""

    log_x: jax.Array
    value: jax.Array
    on_boundary: jax.Array
    """Whether an allocation so far had a zero coordinate."""
    steps: jax.Array
    done: jax.Array


def allocate(problem: SimplexProblem, log_y: jax.Array) -> jax.Array:
    """Maximise the minoriser at y exactly; returns x_j / y_j, `[J]`, 0 for an inactive coordinate.

    As a ratio to y it keeps its digits when y_j is tiny.
    """
    real = problem.real
    y = jnp.exp(log_y)
    c = jnp.where(real, -problem.C, 1)
    b = jnp.where(real, problem.B + c * (1 - jnp.where(real, log_y, 0)), -jnp.inf)
    rate = jnp.where(real, 0.5 / (c - problem.A * y), 0)  # x_j = y_j rate_j (b_j - L)

    order = jnp.argsort(-b)
    b_sorted = jnp.where(real[order], b[order], 0)
    weight = (y * rate)[order]
    used = jnp.cumsum(weight)
    used_b = jnp.cumsum(weight * b_sorted)
    # With the m largest b active, sum x = 1 gives L_m; the active set is the last with b_m > L_m.
    usable = used > 0
    L = (used_b - 1) / jnp.where(usable, used, 1)
    active = usable & (b_sorted > L) & real[order]
    last = jnp.max(jnp.where(active, jnp.arange(L.size), 0))
    return jnp.where(real, rate * jnp.maximum(jnp.where(real, b, 0) - L[last], 0), 0)
