"""The subproblem's data, its objective and the certificate of how far a point is from the top."""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxprivnb.status import Status

LOG_ZERO = -1e30
"""log x of a masked coordinate: exp gives exactly 0, and 0 * LOG_ZERO is 0 rather than NaN."""


class SimplexProblem(NamedTuple):
    """Maximise sum_j A_j x_j^2 + B_j x_j + C_j x_j log x_j over the simplex; arrays `[J]`."""

    A: jax.Array
    """A_j <= 0."""
    B: jax.Array
    """B_j, any sign."""
    C: jax.Array
    """C_j < 0."""
    real: jax.Array
    """False for a masked coordinate, which is held at 0."""

    def centred(self) -> "SimplexProblem":
        """The same problem with max B = 0: a constant less, and digits more."""
        return self._replace(B=self.B - jnp.max(jnp.where(self.real, self.B, -jnp.inf)))

    def objective(self, log_x: jax.Array) -> jax.Array:
        """f at x = exp(log_x), a scalar."""
        x = jnp.exp(log_x)
        return jnp.sum(jnp.where(self.real, x * (self.A * x + self.B + self.C * log_x), 0))

    def gradient(self, log_x: jax.Array) -> jax.Array:
        """df/dx_j = 2 A_j x_j + B_j + C_j (1 + log x_j), `[J]`; 0 in masked coordinates."""
        log_x = jnp.where(self.real, log_x, 0)
        full = 2 * self.A * jnp.exp(log_x) + self.B + self.C * (1 + log_x)
        return jnp.where(self.real, full, 0)

    def gap(self, log_x: jax.Array) -> jax.Array:
        """An upper bound of max f - f(x), a scalar >= 0.

        With c = min |C_j| and r = grad f - (x . grad f), concavity of the quadratic part gives
        f(y) <= f(x) + r . (y - x) - c KL(y || x), whose maximum over the simplex is
        c log sum_j x_j exp(r_j / c). It is second order in r, and sees a coordinate that is tiny
        but should not be.
        """
        g = self.gradient(log_x)
        r = g - jnp.sum(jnp.exp(log_x) * g)
        c = jnp.min(jnp.where(self.real, -self.C, jnp.inf))
        return jnp.maximum(c * logsumexp(jnp.where(self.real, log_x + r / c, -jnp.inf)), 0)

    def gap_rounding(self, log_x: jax.Array) -> jax.Array:
        """About how large a `gap` rounding alone makes of 0: eps times the terms it subtracts."""
        problem = self.centred()
        x = jnp.exp(log_x)
        terms = 2 * jnp.abs(problem.A) * x + jnp.abs(problem.B) + jnp.abs(problem.C * (1 + log_x))
        return jnp.finfo(x.dtype).eps * jnp.sum(jnp.where(self.real, x * terms, 0))


class SimplexSolution(NamedTuple):
    """Where a solver ended."""

    log_x: jax.Array
    """log x, `[J]`; sums to one in x, `LOG_ZERO` in masked coordinates."""
    gap: jax.Array
    """Upper bound of max f - f(x), see `SimplexProblem.gap`."""
    steps: jax.Array
    """Steps taken, int32."""
    status: jax.Array
    """`Status` code, int32."""


def conclude(
    problem: SimplexProblem, log_x: jax.Array, steps: jax.Array, tol: float = 0.0
) -> SimplexSolution:
    """Where an iteration stopped: a success if its gap is below tol * (1 + |f|), or rounding."""
    value, gap = problem.objective(log_x), problem.gap(log_x)
    small = max(tol, 64 * float(jnp.finfo(log_x.dtype).eps)) * (1 + jnp.abs(value))
    status = jnp.where(gap <= small, Status.SUCCESS, Status.MAX_ITERATIONS)
    finite = jnp.isfinite(gap) & jnp.isfinite(value)
    status = jnp.where(finite, status, Status.NON_FINITE).astype(jnp.int32)
    return SimplexSolution(log_x, gap, steps, status)


@runtime_checkable
class SimplexSolver(Protocol):
    """A hashable set of options that solves one problem from a start strictly inside."""

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """Improve on exp(log_x): the objective never falls by more than its rounding."""
        ...


def normalise(log_x: jax.Array, real: jax.Array) -> jax.Array:
    """log x - log sum exp(log x) over real coordinates, `LOG_ZERO` elsewhere."""
    inside = jnp.where(real, log_x, LOG_ZERO)
    return jnp.where(real, log_x - logsumexp(inside, axis=-1, keepdims=True), LOG_ZERO)
