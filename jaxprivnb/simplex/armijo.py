"""Interior first-order ascent with Armijo backtracking (paper 7.2, eq. 10 to 13).

From x the direction is d = W r, with a positive diagonal W and r = grad f - L, where L makes d sum
to 0. The step s is the first of s0, nu s0, nu^2 s0, ... with

    f(x(s)) >= f(x) + sigma s grad f . d                                          (eq. 12)

A rule chooses W, the path x(s) and s0. `Longest` is the paper's to the letter; `Curvature` scales
by the Hessian. Where A spans many orders of magnitude the paper's direction often does not reach
its tolerance in thousands of steps. `Curvature` does on every problem of the tests, and so it is
the default.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

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
    inner_steps: int = 1
    """Most ascent steps in one call. A fit needs no more than one (bench/armijo_steps.py)."""
    tol: float = 0.0
    """Stop when the gap is below tol * (1 + |f|), never below rounding."""
    rule: "Rule | Literal['curvature', 'longest']" = "curvature"
    """Direction, path and first step: a `Rule`, or the name of one."""

    def __post_init__(self) -> None:
        for name in ("nu", "sigma"):
            validate.real_number(name, getattr(self, name), above=0, below=1)
        validate.whole_number("inner_steps", self.inner_steps, at_least=1)
        validate.real_number("tol", self.tol, above=0, allow_zero=True)
        _named(self.rule)

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """Up to `inner_steps` ascent steps from log_x `[J]`."""
        problem = problem.centred()
        eps = jnp.finfo(log_x.dtype).eps
        rule = _named(self.rule)

        def close(log_x: jax.Array, value: jax.Array) -> jax.Array:
            small = jnp.maximum(jnp.asarray(self.tol, log_x.dtype), 4 * eps)
            return problem.gap(log_x) <= small * (1 + jnp.abs(value))

        def unfinished(at: _Point) -> jax.Array:
            return ~at.done & (at.steps < self.inner_steps)

        def ascend(at: _Point) -> _Point:
            log_x, value, found = self._search(problem, at, rule.ray(problem, at.log_x, at.value))
            return _Point(log_x, value, at.steps + 1, ~found | close(log_x, value))

        value = problem.objective(log_x)
        start = _Point(log_x, value, jnp.zeros((), jnp.int32), close(log_x, value))
        end = lax.while_loop(unfinished, ascend, start)
        return conclude(problem, end.log_x, end.steps, self.tol)

    def _search(
        self, problem: SimplexProblem, at: "_Point", ray: "Ray"
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Backtrack along a ray: (log x, f, whether a step was accepted)."""
        real = problem.real

        def try_step(s: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            candidate = normalise(ray.path(s), real)
            value = problem.objective(candidate)
            return candidate, value, value >= at.value + self.sigma * s * ray.slope

        def rejected(search: _Search) -> jax.Array:
            worth = search.step >= ray.shortest
            return ~search.accepted & worth & (search.backtracks < MAX_BACKTRACKS)

        def backtrack(search: _Search) -> _Search:
            s = self.nu * search.step
            return _Search(s, *try_step(s), search.backtracks + 1)

        first = _Search(ray.first, *try_step(ray.first), jnp.zeros((), jnp.int32))
        found = lax.while_loop(rejected, backtrack, first)
        inside = jnp.all(jnp.isfinite(found.log_x) | ~real)
        ok = found.accepted & (found.value >= at.value) & inside
        return (
            jnp.where(ok, found.log_x, at.log_x),
            jnp.where(ok, found.value, at.value),
            ok,
        )


class Ray(NamedTuple):
    """What a line search goes along."""

    path: Callable[[jax.Array], jax.Array]
    """The step s to log x(s), not normalised."""
    slope: jax.Array
    """grad f . d."""
    first: jax.Array
    """s0."""
    shortest: jax.Array
    """Steps below this are not tried."""


@runtime_checkable
class Rule(Protocol):
    """A hashable choice of W, the path and s0."""

    def ray(self, problem: SimplexProblem, log_x: jax.Array, value: jax.Array) -> Ray:
        """The ray from log_x `[J]`, where f is `value`."""
        ...


@dataclasses.dataclass(frozen=True)
class Curvature:
    """W = diag(x / (|C| + 2 |A| x)), the inverse of the Hessian, which is diagonal.

    The path is the arc log x(s) = log x + s d / x, which has the straight one's direction at s = 0
    and never leaves. Under eq. 13 a coordinate that is on its way to exp(-1e6) holds up all others
    at a factor 100 a step; along the arc it does not. s0 = 1, or less where a rising coordinate
    would go beyond min(1, |C / 2A|).
    """

    def ray(self, problem: SimplexProblem, log_x: jax.Array, value: jax.Array) -> Ray:
        """The arc from log_x `[J]`."""
        real = problem.real
        x, g = jnp.exp(log_x), problem.gradient(log_x)
        bend = jnp.where(real, -problem.C - 2 * problem.A * x, 1)
        weight = x / bend
        r = jnp.where(real, g - jnp.sum(weight * g) / jnp.sum(weight), 0)
        speed = r / bend
        # A rising coordinate is carried no further than where its own curvature sets in.
        rising, tiny = speed > 0, jnp.finfo(log_x.dtype).tiny
        ceiling = jnp.minimum(jnp.log(-problem.C) - jnp.log(jnp.maximum(-2 * problem.A, tiny)), 0)
        room = jnp.maximum(ceiling - log_x, 1) / jnp.where(rising, speed, 1)
        first = jnp.minimum(1, jnp.min(jnp.where(rising, room, jnp.inf)))
        # A coordinate at exp(-500) has no slope and much to gain, so no step is too short to try.
        nothing = jnp.zeros((), log_x.dtype)
        return Ray(lambda s: log_x + s * speed, jnp.sum(x * speed * r), first, nothing)


@dataclasses.dataclass(frozen=True)
class Longest:
    """W = diag(x), so L = x . grad f (eq. 11), along the straight path x(s) = x + s d.

    That is log x + log(1 + s r) in logarithms. s0 is just below -1 / min_j r_j, where the path
    leaves (eq. 13).
    """

    share: float = 0.99
    """Of the distance to the boundary that a step may go, in (0, 1)."""

    def __post_init__(self) -> None:
        validate.real_number("share", self.share, above=0, below=1)

    def ray(self, problem: SimplexProblem, log_x: jax.Array, value: jax.Array) -> Ray:
        """The straight line from log_x `[J]`."""
        real = problem.real
        x, g = jnp.exp(log_x), problem.gradient(log_x)
        r = jnp.where(real, g - jnp.sum(x * g), 0)
        slope = jnp.sum(x * r * r)  # grad f . d
        lowest = jnp.min(jnp.where(real, r, jnp.inf))
        first = jnp.where(lowest < 0, self.share / jnp.where(lowest < 0, -lowest, 1), 1e6)
        # A gain below the rounding of f cannot be seen, so it is not searched for.
        visible = jnp.finfo(log_x.dtype).eps * (1 + jnp.abs(value))
        shortest = visible / jnp.where(slope > 0, slope, 1)
        return Ray(lambda s: log_x + jnp.log1p(s * r), slope, first, shortest)


RULES: dict[str, Rule] = {"curvature": Curvature(), "longest": Longest()}
"""The rules by name."""


def _named(rule: Any) -> Rule:
    """The rule itself, checked."""
    if isinstance(rule, Rule):
        return rule
    return RULES[validate.choice("rule", rule, RULES)]


class _Point(NamedTuple):
    """The ascent's carry."""

    log_x: jax.Array
    value: jax.Array
    """f at the point."""
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
