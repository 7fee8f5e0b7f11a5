"""The ascent of one fit: its state, one step, and when it ends.

Written for one dataset as pure `begin`, `step` and `unfinished`, so that a plain `while_loop` and a
scheduler of many lanes run the same code.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.simplex.problem import SimplexSolver
from jaxprivnb.status import Status
from jaxprivnb.variational.accelerate import extrapolate
from jaxprivnb.variational.bound import Bound, Data, Factors, evaluate
from jaxprivnb.variational.local import LocalBound
from jaxprivnb.variational.starts import Theta
from jaxprivnb.variational.updates import Swept, at_theta, sweep

ROUNDING_MARGIN = 4.0
"""A fall of the bound up to this many times its estimated rounding error is rounding."""


@dataclasses.dataclass(frozen=True)
class Method:
    """How a step is made; hashable, so that a compiled fit can be keyed by it."""

    solver: SimplexSolver
    local: LocalBound
    accelerate: bool

    @property
    def sweeps_per_step(self) -> int:
        """A squared extrapolation takes two sweeps and is followed by a third."""
        return 3 if self.accelerate else 1


class Limits(NamedTuple):
    """When to stop; data, so that changing them compiles nothing."""

    tol: jax.Array
    """Stop when a step adds less than tol * (1 + |bound|), or less than rounding."""
    max_iterations: jax.Array
    """Most sweeps, int32."""


class Ascent(NamedTuple):
    """The loop's carry."""

    factors: Factors
    elbo: jax.Array
    """The bound at `factors`."""
    growth: jax.Array
    """What the last step added to the bound; infinite before the first."""
    gap: jax.Array
    """Upper bound of what the last sweep's simplex problems still have to give."""
    rounding: jax.Array
    """Rounding error of `elbo`."""
    max_decrease: jax.Array
    """The largest fall of the bound between two steps, 0 if none."""
    fell: jax.Array
    """Whether a fall was larger than rounding."""
    finite: jax.Array
    """False once a step gave a NaN or an infinity; `factors` is then the last finite state."""
    on_boundary: jax.Array
    """Whether a solver met the boundary of a simplex."""
    iterations: jax.Array
    """Sweeps so far, int32."""


def begin(data: Data, theta: Theta, method: Method) -> Ascent:
    """The state at a start, every closed-form factor at its optimum."""
    factors = at_theta(data, *theta, method.local)
    bound = evaluate(data, factors, method.local)
    never = jnp.zeros((), bool)
    far = jnp.full_like(bound.elbo, jnp.inf)
    return Ascent(
        factors,
        elbo=bound.elbo,
        growth=far,
        gap=far,
        rounding=bound.rounding,
        max_decrease=jnp.zeros_like(bound.elbo),
        fell=never,
        finite=jnp.isfinite(bound.elbo),
        on_boundary=never,
        iterations=jnp.zeros((), jnp.int32),
    )


def step(data: Data, at: Ascent, method: Method) -> Ascent:
    """One sweep, or one squared extrapolation of sweeps; the bound does not fall."""
    propose = _accelerated if method.accelerate else _plain
    swept, bound, on_boundary = propose(data, at, method)
    finite = jnp.isfinite(bound.elbo) & jnp.isfinite(swept.gap)
    growth = bound.elbo - at.elbo
    new = at._replace(
        factors=swept.factors,
        elbo=bound.elbo,
        growth=growth,
        gap=swept.gap,
        rounding=bound.rounding,
        max_decrease=jnp.maximum(at.max_decrease, -growth),
        fell=at.fell | (-growth > ROUNDING_MARGIN * bound.rounding),
        on_boundary=at.on_boundary | on_boundary,
    )
    new = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, at)
    return new._replace(
        finite=at.finite & finite, iterations=at.iterations + method.sweeps_per_step
    )


def converged(data: Data, at: Ascent, limits: Limits) -> jax.Array:
    """Whether the last step added less than the tolerance and its simplex problems were solved.

    The second condition is for solvers that stop early: a bound that stands still because the
    solver does is not a maximum.
    """
    small = limits.tol * (1 + jnp.abs(at.elbo)) + at.rounding
    return (jnp.abs(at.growth) <= small) & (at.gap <= 4 * small)


def unfinished(data: Data, at: Ascent, limits: Limits) -> jax.Array:
    """Whether another step is to be made."""
    going = at.finite & (at.iterations < limits.max_iterations)
    return going & ~converged(data, at, limits)


def climb(data: Data, theta: Theta, method: Method, limits: Limits) -> Ascent:
    """From a start to the end, for one dataset."""
    return lax.while_loop(
        lambda at: unfinished(data, at, limits),
        lambda at: step(data, at, method),
        begin(data, theta, method),
    )


def status(data: Data, at: Ascent, limits: Limits) -> jax.Array:
    """What to report, int32; the most severe of what happened."""
    code = jnp.where(at.on_boundary, Status.BOUNDARY, Status.SUCCESS)
    code = jnp.where(converged(data, at, limits), code, Status.MAX_ITERATIONS)
    code = jnp.where(at.fell, Status.NOT_MONOTONE, code)
    return jnp.where(at.finite, code, Status.NON_FINITE).astype(jnp.int32)


def _plain(data: Data, at: Ascent, method: Method) -> tuple[Swept, Bound, jax.Array]:
    swept = sweep(data, at.factors, method.local, method.solver)
    bound = evaluate(data, swept.factors, method.local)
    return swept, bound, swept.status == Status.BOUNDARY


def _accelerated(data: Data, at: Ascent, method: Method) -> tuple[Swept, Bound, jax.Array]:
    local, solver = method.local, method.solver
    first = sweep(data, at.factors, local, solver)
    second = sweep(data, first.factors, local, solver)
    safe = evaluate(data, second.factors, local)
    theta = [Theta(f.log_t_class, f.log_t_feature) for f in (at.factors, first.factors, second.factors)]
    ahead = at_theta(data, *extrapolate(data, *theta), local)
    third = sweep(data, ahead, local, solver)
    bold = evaluate(data, third.factors, local)
    take = jnp.isfinite(bold.elbo) & jnp.isfinite(third.gap) & (bold.elbo >= safe.elbo)
    choose = lambda a, b: jnp.where(take, a, b)  # noqa: E731
    on_boundary = first.status == Status.BOUNDARY
    on_boundary |= (second.status == Status.BOUNDARY) | (third.status == Status.BOUNDARY)
    return (
        jax.tree.map(choose, third, second),
        jax.tree.map(choose, bold, safe),
        on_boundary,
    )
