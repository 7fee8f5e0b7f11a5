"""The ascent of one fit: its state, one step, and when it ends.

A step evaluates the bound at the current point and makes one sweep from it. With acceleration three
steps make a cycle: from x0 the sweeps give x1 and x2, the three are extrapolated to x', and the
sweep from x' gives the next x0. The bound is known at every point a sweep starts from, and x' is
dropped for x2 where it has a lower bound than x1, so the points that are kept never descend.

Written for one dataset as pure `begin`, `step` and `unfinished`, so that a plain `while_loop` and a
scheduler of many lanes run the same code.
"""

import dataclasses
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.simplex.problem import SimplexSolver
from jaxprivnb.status import Status
from jaxprivnb.variational.accelerate import extrapolate
from jaxprivnb.variational.bound import Data, collapsed
from jaxprivnb.variational.local import LocalBound
from jaxprivnb.variational.starts import Theta
from jaxprivnb.variational.updates import at_theta, sweep

T = TypeVar("T")

ROUNDING_MARGIN = 4.0
"""A fall of the bound up to this many times its estimated rounding error is rounding."""


@dataclasses.dataclass(frozen=True)
class Method:
    """How a step is made; hashable, so that a compiled fit can be keyed by it."""

    solver: SimplexSolver
    local: LocalBound
    accelerate: bool

    @property
    def cycle(self) -> int:
        """Steps from one point x0 to the next."""
        return 3 if self.accelerate else 1


class Limits(NamedTuple):
    """When to stop; data, so that changing them compiles nothing."""

    tol: jax.Array
    """Stop when a cycle adds less than tol * (1 + |bound|), or less than rounding, and moves no
    probability by more than sqrt(tol)."""
    max_iterations: jax.Array
    """Most sweeps, int32."""


class Kept(NamedTuple):
    """The last point that was evaluated and kept."""

    theta: Theta
    elbo: jax.Array
    """The bound there; -inf before the first step."""
    rounding: jax.Array
    """Rounding error of `elbo`."""


class Cycle(NamedTuple):
    """The points of the current cycle."""

    x0: Theta
    x1: Theta
    x2: Theta
    """The way back from a failed extrapolation."""
    elbo_x0: jax.Array
    """The bound at x0."""


class Faults(NamedTuple):
    """What has gone wrong on the way."""

    max_decrease: jax.Array
    """The largest fall of the bound between kept points, 0 if none."""
    fell: jax.Array
    """Whether a fall was larger than rounding."""
    finite: jax.Array
    """False once a NaN or an infinity appeared; `best` is then the last finite point."""
    on_boundary: jax.Array
    """Whether a solver met the boundary of a simplex."""


class Ascent(NamedTuple):
    """The loop's carry."""

    theta: Theta
    """Where the next step starts; its bound is not known yet."""
    gap: jax.Array
    """Upper bound of what the simplex problems of the sweep that led to `theta` left undone."""
    best: Kept
    cycle: Cycle
    faults: Faults
    iterations: jax.Array
    """Sweeps so far, int32."""
    done: jax.Array
    """Whether the stopping rule was met at `best`."""

    @property
    def elbo(self) -> jax.Array:
        """The bound at `best`."""
        return self.best.elbo


def begin(theta: Theta) -> Ascent:
    """The state at a start."""
    zero = jnp.zeros((), theta.log_t_class.dtype)
    far, never = zero + jnp.inf, jnp.zeros((), bool)
    return Ascent(
        theta,
        far,
        Kept(theta, -far, zero),
        Cycle(theta, theta, theta, -far),
        Faults(zero, never, ~never, never),
        jnp.zeros((), jnp.int32),
        never,
    )


def step(data: Data, at: Ascent, limits: Limits, method: Method) -> Ascent:
    """Evaluate the bound at `theta`, keep or drop it, and sweep on from it."""
    factors = at_theta(data, *at.theta, method.local)
    bound = collapsed(data, factors, method.local)
    swept = sweep(data, factors, method.local, method.solver)
    new = Theta(swept.factors.log_t_class, swept.factors.log_t_feature)

    best, cycle, faults = at.best, at.cycle, at.faults
    phase = at.iterations % method.cycle  # theta is x0, x1 or x'
    known = jnp.isfinite(bound.elbo)
    drop = (phase == 2) & ~(known & (bound.elbo >= best.elbo))
    finite = drop | (known & jnp.isfinite(swept.gap) & _all_finite(new))
    fall = jnp.where(drop | ~known, 0, jnp.maximum(best.elbo - bound.elbo, 0))
    keep = known & ~drop

    # Has the cycle added enough to go on? Asked of x' already: what one more sweep would add to it
    # is no more than two and an extrapolation have added.
    growth = bound.elbo - cycle.elbo_x0
    small = limits.tol * (1 + jnp.abs(bound.elbo)) + bound.rounding
    # A bound that stands still because the simplex solver does is not a maximum, hence the gap; nor
    # is one whose growth is hidden by rounding while the point still moves, as near a saddle.
    still = _distance(at.theta, cycle.x0) <= jnp.sqrt(jnp.maximum(limits.tol, _eps(bound.elbo)))
    done = (phase != 1) & keep & (jnp.abs(growth) <= small) & (at.gap <= 4 * small) & still

    x0 = _choose(phase == 0, at.theta, cycle.x0)
    x1 = _choose(phase == 0, new, cycle.x1)
    x2 = _choose(phase == 1, new, cycle.x2)
    if method.accelerate:
        ahead = extrapolate(data, x0, x1, new, at.iterations // method.cycle)
        theta = _choose(phase == 1, ahead, _choose(drop, cycle.x2, new))
    else:
        theta = new
    return Ascent(
        _choose(finite, theta, at.theta),
        jnp.where(drop, at.gap, swept.gap),
        _choose(keep, Kept(at.theta, bound.elbo, bound.rounding), best),
        Cycle(x0, x1, x2, jnp.where(phase == 0, bound.elbo, cycle.elbo_x0)),
        Faults(
            jnp.maximum(faults.max_decrease, fall),
            faults.fell | (fall > ROUNDING_MARGIN * bound.rounding),
            faults.finite & finite,
            faults.on_boundary | (swept.status == Status.BOUNDARY),
        ),
        at.iterations + 1,
        done,
    )


def unfinished(at: Ascent, limits: Limits) -> jax.Array:
    """Whether another step is to be made."""
    return at.faults.finite & ~at.done & (at.iterations < limits.max_iterations)


def climb(data: Data, theta: Theta, method: Method, limits: Limits) -> Ascent:
    """From a start to the end, for one dataset."""
    return lax.while_loop(
        lambda at: unfinished(at, limits),
        lambda at: step(data, at, limits, method),
        begin(theta),
    )


def status(at: Ascent) -> jax.Array:
    """What to report, int32; the most severe of what happened."""
    code = jnp.where(at.faults.on_boundary, Status.BOUNDARY, Status.SUCCESS)
    code = jnp.where(at.done, code, Status.MAX_ITERATIONS)
    code = jnp.where(at.faults.fell, Status.NOT_MONOTONE, code)
    return jnp.where(at.faults.finite, code, Status.NON_FINITE).astype(jnp.int32)


def _choose(take: jax.Array, new: T, old: T) -> T:
    return jax.tree.map(lambda a, b: jnp.where(take, a, b), new, old)


def _distance(a: Theta, b: Theta) -> jax.Array:
    """The largest change of a probability between two points."""
    return jnp.maximum(
        jnp.max(jnp.abs(jnp.exp(a.log_t_class) - jnp.exp(b.log_t_class))),
        jnp.max(jnp.abs(jnp.exp(a.log_t_feature) - jnp.exp(b.log_t_feature))),
    )


def _eps(x: jax.Array) -> float:
    return float(jnp.finfo(x.dtype).eps)


def _all_finite(theta: Theta) -> jax.Array:
    return jnp.all(jnp.isfinite(theta.log_t_class)) & jnp.all(jnp.isfinite(theta.log_t_feature))
