"""Interior first-order ascent with Armijo backtracking (paper 7.2, eq. 10 to 13).

From x the direction is d = x * r with r = grad f - (x . grad f), and the step s is the first of
s0, nu s0, nu^2 s0, ... with

    f(x + s d) >= f(x) + sigma s grad f . d                                       (eq. 12)

where s0 < -1 / min_j r_j keeps x + s d = x (1 + s r) inside (eq. 13). Multiplicative, so taken in
log x: log x + log(1 + s r).

The paper leaves s0 free below that limit. `first_step="longest"` starts just below the limit;
`"spectral"` starts from the Barzilai-Borwein step of the last two points in the metric of d, which
needs far fewer backtracks and steps.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb import validate
from jaxprivnb.simplex.problem import SimplexProblem, SimplexSolution, conclude, normalise

MAX_BACKTRACKS = 60
"""0.5^60 of the first step is below rounding in any float; one more halving cannot help."""


@dataclasses.dataclass(frozen=True)
class Armijo:
    """Options of the ascent."""

    nu: float = 0.5
    """Factor of a backtrack, in (0, 1)."""
    sigma: float = 1e-4
    """Share of the first-order gain that a step must realise, in (0, 1)."""
    inner_steps: int = 5
    """Most ascent steps in one call. Accelerated fits need few (bench/armijo_steps.py)."""
    tol: float = 0.0
    """Stop when the gap is below tol * (1 + |f|), never below rounding."""
    longest: float = 0.99
    """Share of the distance to the boundary that a step may go, in (0, 1)."""
    first_step: Literal["spectral", "longest"] = "spectral"
    """Where backtracking starts."""

    def __post_init__(self) -> None:
        for name in ("nu", "sigma", "longest"):
            validate.real_number(name, getattr(self, name), above=0, below=1)
        validate.whole_number("inner_steps", self.inner_steps, at_least=1)
        validate.real_number("tol", self.tol, above=0, allow_zero=True)
        validate.choice("first_step", self.first_step, ("spectral", "longest"))

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """Up to `inner_steps` ascent steps from log_x `[J]`."""
        problem = problem.centred()
        real, dtype = problem.real, log_x.dtype
        eps = jnp.finfo(dtype).eps
        tol = jnp.asarray(max(self.tol, 0.0), dtype)

        def residual(log_x: jax.Array) -> tuple[jax.Array, jax.Array]:
            x, g = jnp.exp(log_x), problem.gradient(log_x)
            return x, jnp.where(real, g - jnp.sum(x * g), 0)

        def line_search(at: _Point, x: jax.Array, r: jax.Array) -> tuple[jax.Array, ...]:
            slope = jnp.sum(x * r * r)  # grad f . d
            lowest = jnp.min(jnp.where(real, r, jnp.inf))
            limit = jnp.where(lowest < 0, self.longest / jnp.where(lowest < 0, -lowest, 1), 1e6)
            first = limit if self.first_step == "longest" else jnp.minimum(at.trial, limit)

            def try_step(s: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
                candidate = normalise(at.log_x + jnp.log1p(s * r), real)
                value = problem.objective(candidate)
                return candidate, value, value >= at.value + self.sigma * s * slope

            # A gain below the rounding of f cannot be seen, so it is not searched for.
            visible = eps * (1 + jnp.abs(at.value))

            def rejected(search: _Search) -> jax.Array:
                worth = search.step * slope > visible
                return ~search.accepted & worth & (search.backtracks < MAX_BACKTRACKS)

            def backtrack(search: _Search) -> _Search:
                s = self.nu * search.step
                return _Search(s, *try_step(s), search.backtracks + 1)

            found = lax.while_loop(
                rejected, backtrack, _Search(first, *try_step(first), jnp.zeros((), jnp.int32))
            )
            return found.log_x, found.value, found.accepted, found.step

        def spectral(x: jax.Array, r: jax.Array, new_x: jax.Array, new_r: jax.Array) -> jax.Array:
            # <dx, dx> / -<dx, dg> in the metric 1/x; at a fixed point any positive value will do.
            dx = new_x - x
            length = jnp.sum(jnp.where(real, dx * dx / jnp.maximum(x, jnp.finfo(dtype).tiny), 0))
            bend = -jnp.sum(dx * (new_r - r))
            return jnp.where(bend > eps * length, length / jnp.where(bend > 0, bend, 1), 1.0)

        def unfinished(at: _Point) -> jax.Array:
            return ~at.done & (at.steps < self.inner_steps)

        def ascend(at: _Point) -> _Point:
            x, r = residual(at.log_x)
            log_x, value, accepted, _ = line_search(at, x, r)
            ok = accepted & (value >= at.value) & jnp.all(jnp.isfinite(log_x) | ~real)
            log_x = jnp.where(ok, log_x, at.log_x)
            value = jnp.where(ok, value, at.value)
            trial = spectral(x, r, *residual(log_x))
            return _Point(
                log_x, value, trial.astype(dtype), at.steps + 1, ~ok | close(log_x, value)
            )

        def close(log_x: jax.Array, value: jax.Array) -> jax.Array:
            return problem.gap(log_x) <= jnp.maximum(tol, 4 * eps) * (1 + jnp.abs(value))

        x, r = residual(log_x)
        value = problem.objective(log_x)
        bend = jnp.sum(jnp.square(x * r) * (-2 * problem.A) + x * r * r * (-problem.C))
        slope = jnp.sum(x * r * r)
        start = _Point(
            log_x,
            value,
            jnp.where(bend > 0, slope / jnp.where(bend > 0, bend, 1), 1.0).astype(dtype),
            jnp.zeros((), jnp.int32),
            close(log_x, value),
        )
        end = lax.while_loop(unfinished, ascend, start)
        return conclude(problem, end.log_x, end.steps, self.tol)


class _Point(NamedTuple):
    """The ascent's carry."""

    log_x: jax.Array
    value: jax.Array
    """f at the point."""
    trial: jax.Array
    """Where the next line search starts."""
    steps: jax.Array
    done: jax.Array
    """Converged, or no step was accepted."""


class _Search(NamedTuple):
    """The line search's carry."""

    step: jax.Array
    log_x: jax.Array
    """The point that `step` leads to."""
    value: jax.Array
    accepted: jax.Array
    backtracks: jax.Array
