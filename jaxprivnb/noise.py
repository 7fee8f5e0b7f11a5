"""The noise of a release: what was added to each count, and how its density enters inference.

Replacing one record changes two cells of a table by one each, so a table of counts has L1
sensitivity 2 and L2 sensitivity sqrt(2). A Laplace scale b = 2/epsilon makes one table
epsilon-DP; K tables together are (K epsilon)-DP. Constructors from a budget therefore ask which
of the two is meant.

`sample` is for simulation. It draws in floating point, and floating-point noise leaks the count
it was added to (Mironov, CCS 2012): to release real data use an integer mechanism.

A noise is a pytree with one array, its scale: a scalar, or one value a table (`[K]`). To add a
noise to the exact posterior, give it `log_prob`; for the variational one, also a `kernel` that
says how its log density is bounded (see `jaxprivnb.variational.local`).
"""

import math
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass

L1_SENSITIVITY = 2.0
"""L1 distance of two count tables that differ in one record, N fixed."""
L2_SENSITIVITY_SQUARED = 2.0
"""Squared L2 distance of the same two tables."""

Kernel = Literal["laplace", "gaussian"]


@runtime_checkable
class Noise(Protocol):
    """What inference needs of a noise: the log density (or log pmf) of m - n."""

    parameter: ClassVar[str]

    def log_prob(self, x: jax.Array) -> jax.Array:
        """Log density of the noise at `x`; broadcasts against the scale."""
        ...

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draws of the given shape, for simulation only."""
        ...


class _OneParameter:
    """A noise whose only array is its scale."""

    parameter: ClassVar[str]

    def __post_init__(self) -> None:
        name = self.parameter
        value = validate.as_float_array(name, getattr(self, name))
        if value.ndim <= 1:
            validate.positive(name, value, "a release without noise is fitted with fit_bayes")
        object.__setattr__(self, name, value)

    @property
    def value(self) -> jax.Array:
        """The scale, whatever this noise calls it."""
        return getattr(self, self.parameter)

    def with_value(self, value: jax.Array) -> Self:
        """The same noise with another scale array; no checks, so safe under tracing."""
        return jax.tree.unflatten(jax.tree.structure(self), [value])


@pytree_dataclass
class Laplace(_OneParameter):
    """Continuous Laplace noise, density exp(-|x|/b) / (2b)."""

    scale: Any
    """b > 0."""

    parameter: ClassVar[str] = "scale"
    kernel: ClassVar[Kernel] = "laplace"

    @classmethod
    def from_budget(
        cls,
        *,
        epsilon_per_table: float | None = None,
        epsilon_total: float | None = None,
        n_tables: int | None = None,
    ) -> Self:
        """The scale b = 2 / epsilon_per_table; epsilon_total is n_tables * epsilon_per_table."""
        return cls(_scale_from_epsilon(epsilon_per_table, epsilon_total, n_tables))

    @property
    def log_peak(self) -> jax.Array:
        """Log density at 0: -log(2b)."""
        return -jnp.log(2 * self.scale)

    def log_prob(self, x: jax.Array) -> jax.Array:
        """-|x|/b - log(2b)."""
        return self.log_peak - jnp.abs(x) / self.scale

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Floating-point draws, for simulation only."""
        return self.scale * jax.random.laplace(key, shape, self.scale.dtype)


@pytree_dataclass
class Geometric(_OneParameter):
    """Discrete Laplace noise on the integers, pmf proportional to exp(-|x|/b)."""

    scale: Any
    """b > 0."""

    parameter: ClassVar[str] = "scale"
    kernel: ClassVar[Kernel] = "laplace"

    @classmethod
    def from_budget(
        cls,
        *,
        epsilon_per_table: float | None = None,
        epsilon_total: float | None = None,
        n_tables: int | None = None,
    ) -> Self:
        """The scale b = 2 / epsilon_per_table; epsilon_total is n_tables * epsilon_per_table."""
        return cls(_scale_from_epsilon(epsilon_per_table, epsilon_total, n_tables))

    @property
    def log_peak(self) -> jax.Array:
        """Log pmf at 0: log((1 - q) / (1 + q)) = log tanh(1 / 2b), with q = exp(-1/b)."""
        return jnp.log(jnp.tanh(1 / (2 * self.scale)))

    def log_prob(self, x: jax.Array) -> jax.Array:
        """-|x|/b + log tanh(1/2b)."""
        return self.log_peak - jnp.abs(x) / self.scale

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Whole numbers (held as floats), differences of two geometrics; for simulation only."""
        # floor(b E) is geometric with ratio exp(-1/b) for E exponential.
        exponential = jax.random.exponential(key, (2, *shape), self.scale.dtype)
        ups, downs = jnp.floor(self.scale * exponential)
        return ups - downs


@pytree_dataclass
class Gaussian(_OneParameter):
    """Normal noise, density exp(-x^2 / 2 sigma^2) / (sigma sqrt(2 pi)).

    The discrete Gaussian on the integers has the same kernel, so the same posterior; only the
    evidence differs, by a constant that is below rounding for sigma > 2.
    """

    sigma: Any
    """Standard deviation > 0."""

    parameter: ClassVar[str] = "sigma"
    kernel: ClassVar[Kernel] = "gaussian"

    @classmethod
    def from_budget(
        cls,
        *,
        rho_per_table: float | None = None,
        rho_total: float | None = None,
        n_tables: int | None = None,
    ) -> Self:
        """The zCDP scale sigma^2 = 2 / (2 rho_per_table), rho_total = n_tables * rho_per_table."""
        rho = _per_table("rho", rho_per_table, rho_total, n_tables)
        return cls((L2_SENSITIVITY_SQUARED / (2 * rho)) ** 0.5)

    @property
    def log_peak(self) -> jax.Array:
        """Log density at 0: -log(sigma sqrt(2 pi))."""
        return -jnp.log(self.sigma) - 0.5 * math.log(2 * math.pi)

    def log_prob(self, x: jax.Array) -> jax.Array:
        """-x^2 / (2 sigma^2) - log(sigma sqrt(2 pi))."""
        return self.log_peak - 0.5 * jnp.square(x / self.sigma)

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Floating-point draws, for simulation only."""
        return self.sigma * jax.random.normal(key, shape, self.sigma.dtype)


def _scale_from_epsilon(
    epsilon_per_table: float | None, epsilon_total: float | None, n_tables: int | None
) -> float:
    return L1_SENSITIVITY / _per_table("epsilon", epsilon_per_table, epsilon_total, n_tables)


def _per_table(
    name: str, per_table: float | None, total: float | None, n_tables: int | None
) -> float:
    """The budget of one table, from exactly one of the two ways of stating it."""
    if (per_table is None) == (total is None):
        raise TypeError(f"give exactly one of {name}_per_table and {name}_total")
    if per_table is not None:
        return validate.real_number(f"{name}_per_table", per_table, above=0)
    if n_tables is None:
        raise TypeError(f"{name}_total is shared by all tables: say how many with n_tables")
    budget = validate.real_number(f"{name}_total", total, above=0)
    return budget / validate.whole_number("n_tables", n_tables, at_least=1)
