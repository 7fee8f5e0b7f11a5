"""The exact solution, from the stationarity conditions.

At the maximum 2 A_j x_j + B_j + C_j (1 + log x_j) = L for every j and one multiplier L. With
a_j = 2 A_j / C_j >= 0 and y_j = (B_j + C_j - L) / |C_j|, coordinate j is the root of

    a_j x + log x = y_j,        a_j x_j = omega(y_j + log a_j),

where omega is Wright's function, omega + log omega = z (a Lambert W). Each x_j falls as L grows,
so sum_j x_j(L) = 1 is one monotone equation. It is solved as log sum_j x_j(L) = 0 by Newton's
method inside a bracket: x_j <= 1 for all j gives L >= max_j f'_j(1), and x_j >= 1/J for some j
gives L <= max_j f'_j(1/J).

Near the maximum, where a fit spends its time, Newton's method on all conditions at once in log x is
several times cheaper (one exponential a coordinate and step), so it is tried first for a few steps;
the bracket takes over where it has not converged. f is strictly concave, so wherever the conditions
hold is the maximum.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from jaxprivnb import validate
from jaxprivnb.simplex.problem import LOG_ZERO, SimplexProblem, SimplexSolution, normalise
from jaxprivnb.status import Status


@dataclasses.dataclass(frozen=True)
class KKT:
    """Options of the root search."""

    quick_steps: int = 12
    """Most steps of Newton's method from the start before the bracket is used; may be 0."""

    max_steps: int = 100
    """Cap in the bracket; Newton takes about five, bisection from the widest one fewer."""

    polish: int = 1
    """Newton steps on the part of L below its rounding."""

    def __post_init__(self) -> None:
        validate.whole_number("quick_steps", self.quick_steps, at_least=0)
        validate.whole_number("max_steps", self.max_steps, at_least=1)
        validate.whole_number("polish", self.polish, at_least=0)

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """The maximum, to rounding; log_x `[J]` is only where the search begins."""
        problem = problem.centred()

        def bracket(s: _Search) -> _Search:
            # Behind the barrier, since the compiler would move what does not change out of the loop
            # and so compute it for batches that make no round.
            hidden, s = lax.optimization_barrier((problem, s))
            end = _bracketed(hidden, log_x, self.max_steps, self.polish)
            return _Search(end.log_x, s.steps + end.steps, jnp.ones((), bool), end.done)

        quick = _quick(problem, log_x, self.quick_steps)
        # A loop of at most one round, and of none where every problem of a batch was quick.
        end = lax.while_loop(lambda s: ~s.done, bracket, _Search(*quick, converged=quick.done))
        solution = normalise(end.log_x, problem.real)
        finite = jnp.all(jnp.isfinite(solution))
        status = jnp.where(end.converged, Status.SUCCESS, Status.MAX_ITERATIONS)
        status = jnp.where(finite, status, Status.NON_FINITE).astype(jnp.int32)
        solution = jnp.where(finite, solution, log_x)
        return SimplexSolution(solution, problem.gap(solution), end.steps, status)


class _Search(NamedTuple):
    """The carry of the choice between the two searches."""

    log_x: jax.Array
    steps: jax.Array
    done: jax.Array
    """Whether the bracket is not needed, or has been used."""
    converged: jax.Array


def _quick(problem: SimplexProblem, log_x: jax.Array, max_steps: int) -> "_Found":
    """Newton's method on 2 A x + B + C (1 + log x) = L and sum x = 1, in log x and L together."""
    real, eps = problem.real, jnp.finfo(log_x.dtype).eps

    def unfinished(s: _Found) -> jax.Array:
        return ~s.done & (s.steps < max_steps)

    def step(s: _Found) -> _Found:
        x, g = jnp.exp(s.log_x), problem.gradient(s.log_x)
        bend = jnp.where(real, -problem.C - 2 * problem.A * x, 1)
        weight = x / bend
        missing = 1 - jnp.sum(x)
        L = (jnp.sum(weight * g) - missing) / jnp.sum(weight)
        change = jnp.where(real, (g - L) / bend, 0)
        terms = jnp.abs(problem.B) + jnp.abs(problem.C * s.log_x) + bend
        scale = jnp.max(jnp.where(real, terms, 0))
        off = jnp.max(jnp.abs(change * bend))
        done = (off <= 8 * eps * scale) & (jnp.abs(missing) <= 8 * eps)
        return _Found(s.log_x + change, s.steps + 1, done)

    none = jnp.zeros((), jnp.int32)
    return lax.while_loop(unfinished, step, _Found(log_x, none, jnp.zeros((), bool)))


class _Found(NamedTuple):
    """Where a search is, or has ended."""

    log_x: jax.Array
    steps: jax.Array
    done: jax.Array
    """Whether it has converged to rounding."""


def _bracketed(problem: SimplexProblem, log_x: jax.Array, max_steps: int, polish: int) -> _Found:
    """The root of log sum_j x_j(L) in a bracket that always holds it."""
    real = problem.real
    c = jnp.where(real, -problem.C, 1)
    a = jnp.where(real, -2 * problem.A, 0) / c
    log_a = jnp.log(jnp.where(a > 0, a, 1))
    eps = jnp.finfo(log_x.dtype).eps

    def coordinates(L: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array]:
        """At the multiplier L + rest: (log x_j `[J]`, d log x_j / dy_j = 1 / (1 + a_j x_j))."""
        y = ((problem.B - L) - rest - c) / c
        z = y + log_a
        omega = wright_omega(z)
        # log x is y - a x, or log(a x) - log a: each is exact where the other cancels.
        log_x = jnp.where(z < 1, y - omega, jnp.log(jnp.maximum(omega, eps)) - log_a)
        log_x = jnp.where(a > 0, log_x, y)
        slope = jnp.where(a > 0, 1 / (1 + omega), 1.0)
        return jnp.where(real, log_x, LOG_ZERO), slope

    def newton(log_x: jax.Array, slope: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(log sum x, which is > 0 where L is too low; Newton's change of L)."""
        excess = logsumexp(log_x)
        fall = jnp.sum(jnp.exp(log_x - excess) * jnp.where(real, slope / c, 0))
        return excess, excess / fall

    def f_prime_max(x: jax.Array, log_x: jax.Array) -> jax.Array:
        slopes = 2 * problem.A * x + problem.B - c * (1 + log_x)
        return jnp.max(jnp.where(real, slopes, -jnp.inf))

    zero = jnp.zeros((), log_x.dtype)
    count = real.sum().astype(log_x.dtype)
    one = jnp.ones_like(count)
    low, high = f_prime_max(one, 0 * one), f_prime_max(1 / count, -jnp.log(count))
    resolution = 2 * eps * (1 + jnp.maximum(jnp.abs(low), jnp.abs(high)))

    def unfinished(s: _Bracket) -> jax.Array:
        return ~s.done & (s.steps < max_steps)

    def narrow(s: _Bracket) -> _Bracket:
        excess, change = newton(*coordinates(s.L, zero))
        low = jnp.where(excess >= 0, s.L, s.low)
        high = jnp.where(excess <= 0, s.L, s.high)
        L = s.L + change
        L = jnp.where((low <= L) & (high >= L), L, 0.5 * (low + high))
        solved = jnp.abs(excess) <= 8 * eps
        L = jnp.where(solved, s.L, L)
        settled = (jnp.abs(L - s.L) <= 2 * eps * (1 + jnp.abs(L))) | (high - low <= resolution)
        return _Bracket(L, low, high, s.steps + 1, solved | settled)

    guess = jnp.sum(jnp.exp(log_x) * problem.gradient(log_x))
    guess = jnp.clip(jnp.where(jnp.isfinite(guess), guess, low), low, high)
    start = _Bracket(guess, low, high, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    end = lax.while_loop(unfinished, narrow, start)
    # L is only as fine as its own magnitude; the last digits of x need L + rest.
    rest = zero
    for _ in range(polish):
        rest = rest + newton(*coordinates(end.L, rest))[1]
    return _Found(coordinates(end.L, rest)[0], end.steps, end.done)


class _Bracket(NamedTuple):
    """The search's carry: sum x(low) >= 1 >= sum x(high)."""

    L: jax.Array
    low: jax.Array
    high: jax.Array
    steps: jax.Array
    done: jax.Array


def wright_omega(z: jax.Array) -> jax.Array:
    """Wright's omega of a real z: the root of omega + log omega = z, elementwise.

    Two steps of the fourth-order iteration of Fritsch, Shafer and Crowley (CACM 16, 1973) from a
    guess that is right to leading order at both ends.
    """
    tiny_z = jnp.log(jnp.finfo(z.dtype).eps)
    small = z < tiny_z  # omega = exp(z) there to rounding
    inside = jnp.where(small, 0.0, z)
    positive = jnp.maximum(inside, 1.0)
    below = jnp.exp(jnp.minimum(inside, 1.0))
    omega = jnp.where(
        inside > 1,
        positive - jnp.log(positive) * positive / (1 + positive),
        below / (1 + 0.76 * below),
    )
    for _ in range(2):
        r = inside - omega - jnp.log(omega)
        step = 1 + omega
        lead = 2 * step * (step + 2 * r / 3)
        omega = omega * (1 + r / step * (lead - r) / (lead - 2 * r))
    return jnp.where(small, jnp.exp(jnp.minimum(z, 0.0)), omega)
