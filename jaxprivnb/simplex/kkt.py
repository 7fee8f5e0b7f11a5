"""The exact solution, from the stationarity conditions.

At the maximum 2 A_j x_j + B_j + C_j (1 + log x_j) = L for every j and one multiplier L. With
a_j = 2 A_j / C_j >= 0 and y_j = (B_j + C_j - L) / |C_j|, coordinate j is the root of

    a_j x + log x = y_j,        a_j x_j = omega(y_j + log a_j),

where omega is Wright's function, omega + log omega = z (a Lambert W). Each x_j falls as L grows,
so sum_j x_j(L) = 1 is one monotone equation. It is solved as log sum_j x_j(L) = 0 by Newton's
method inside a bracket: x_j <= 1 for all j gives L >= max_j f'_j(1), and x_j >= 1/J for some j
gives L <= max_j f'_j(1/J).
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

    max_steps: int = 100
    """Cap; Newton takes about five, bisection from the widest bracket fewer than this."""

    polish: int = 1
    """Newton steps on the part of L below its rounding."""

    def __post_init__(self) -> None:
        validate.whole_number("max_steps", self.max_steps, at_least=1)
        validate.whole_number("polish", self.polish, at_least=0)

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """The maximum, to rounding; log_x `[J]` only places the first guess of L."""
        problem = problem.centred()
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
            return jnp.max(
                jnp.where(real, 2 * problem.A * x + problem.B - c * (1 + log_x), -jnp.inf)
            )

        zero = jnp.zeros((), log_x.dtype)
        count = real.sum().astype(log_x.dtype)
        one = jnp.ones_like(count)
        low, high = f_prime_max(one, 0 * one), f_prime_max(1 / count, -jnp.log(count))
        resolution = 2 * eps * (1 + jnp.maximum(jnp.abs(low), jnp.abs(high)))

        def unfinished(s: _Bracket) -> jax.Array:
            return ~s.done & (s.steps < self.max_steps)

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
        end = lax.while_loop(
            unfinished,
            narrow,
            _Bracket(guess, low, high, jnp.zeros((), jnp.int32), jnp.zeros((), bool)),
        )
        # L is only as fine as its own magnitude; the last digits of x need L + rest.
        rest = zero
        for _ in range(self.polish):
            rest = rest + newton(*coordinates(end.L, rest))[1]
        solution = normalise(coordinates(end.L, rest)[0], real)
        finite = jnp.all(jnp.isfinite(solution))
        status = jnp.where(end.done, Status.SUCCESS, Status.MAX_ITERATIONS)
        status = jnp.where(finite, status, Status.NON_FINITE).astype(jnp.int32)
        solution = jnp.where(finite, solution, log_x)
        return SimplexSolution(solution, problem.gap(solution), end.steps, status)


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
