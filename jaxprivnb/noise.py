"""The noise of a release: what was added to each count, and how its density enters inference.

Replacing one record changes two cells of a table by one each, so a table of counts has L1
sensitivity 2 and L2 sensitivity sqrt(2). A Laplace scale b = 2/epsilon makes one table
epsilon-DP; K tables together are (K epsilon)-DP. Constructors from a budget therefore ask which
of the two is meant. Where neighbours differ by a record that is added or removed, one cell changes
and both sensitivities are 1; where they differ in c records, all of them are c times as large.

`sample` is for simulation. It draws in floating point, and floating-point noise leaks the count
it was added to (Mironov, CCS 2012): to release real data use an integer mechanism.

A noise is a pytree with one array, its scale: a scalar, or one value a table (`[K]`). To add a
noise to the exact posterior, give it `log_prob`, and `log_ratio` where a difference of two of its
values would lose digits; for counts that were rounded, clamped or suppressed also `log_interval`;
for the variational posterior a `kernel` that says how its log density is bounded (see
`jaxprivnb.variational.local`).
"""

import math
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass, set_fields, with_fields

Neighbours = Literal["replace", "add-remove"]
"""Whether neighbouring datasets differ in records, N fixed and public, or in how many there are."""
CELLS_MOVED: dict[Neighbours, int] = {"replace": 2, "add-remove": 1}
"""Cells of a table that one record moves by one."""
MAX_CONTRIBUTIONS = 2**30

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


def log_ratio(noise: Noise, x: jax.Array, step: jax.Array) -> jax.Array:
    """log f(x - step) - log f(x), with no digits lost where x is many scales away from 0.

    A noise's own `log_ratio`, or the difference of its `log_prob`.
    """
    own = getattr(noise, "log_ratio", None)
    return noise.log_prob(x - step) - noise.log_prob(x) if own is None else own(x, step)


def log_interval(noise: Noise, low: jax.Array, high: jax.Array) -> jax.Array:
    """log P(low <= X <= high) of the noise X, for low < high; either end may be infinite.

    Of noise on the whole numbers, both ends are whole numbers or infinite.
    """
    own = getattr(noise, "log_interval", None)
    if own is None:
        raise TypeError(
            f"noise of type {type(noise).__name__} has no log_interval(low, high), which counts "
            "that are only known to lie in an interval need"
        )
    return own(low, high)


def _log_less(x: jax.Array) -> jax.Array:
    """log(1 - exp(-x)) for x > 0."""
    near = x < 0.7
    return jnp.where(
        near,
        jnp.log(-jnp.expm1(-jnp.where(near, x, 0.5))),
        jnp.log1p(-jnp.exp(-jnp.where(near, 1, x))),
    )


def _absolute_fall(x: jax.Array, step: jax.Array) -> jax.Array:
    """|x| - |x - step|, of the size of the answer: min(t, 2 |x| - t), t the step towards 0."""
    t = jnp.where(x < 0, -step, step)
    return jnp.minimum(t, 2 * jnp.abs(x) - t)


class _OneParameter:
    """A noise whose only array is its scale."""

    parameter: ClassVar[str]

    def __post_init__(self) -> None:
        name = self.parameter
        value = validate.as_float_array(name, getattr(self, name))
        if value.ndim == 0:  # of several, which may be one a dataset, the tables know more
            validate.positive(name, value, "a release without noise is fitted with fit_bayes")
        set_fields(self, **{name: value})

    @property
    def value(self) -> jax.Array:
        """The scale, whatever this noise calls it."""
        return getattr(self, self.parameter)

    def with_value(self, value: jax.Array) -> Self:
        """The same noise with another scale array; no checks, so safe under tracing."""
        return with_fields(self, **{self.parameter: value})


class _TwoSidedExponential(_OneParameter):
    """exp(-|x|/b) but for its constant, over the reals or the integers."""

    parameter: ClassVar[str] = "scale"
    kernel: ClassVar[Kernel] = "laplace"
    scale: Any
    log_peak: Any
    """Log of the density, or of the pmf, at 0."""

    @classmethod
    def from_budget(
        cls,
        *,
        epsilon_per_table: float | None = None,
        epsilon_total: float | None = None,
        n_tables: int | None = None,
        neighbours: Neighbours = "replace",
        contributions: int = 1,
    ) -> Self:
        """The scale b = 2 / epsilon_per_table; epsilon_total is n_tables * epsilon_per_table.

        With neighbours="add-remove" it is 1 / epsilon_per_table; neighbours that differ in up to c
        records, contributions=c, need c times the scale.
        """
        epsilon = _per_table("epsilon", epsilon_per_table, epsilon_total, n_tables)
        scale = l1_sensitivity(neighbours, contributions) / epsilon
        return cls(**{cls.parameter: scale})

    def log_prob(self, x: jax.Array) -> jax.Array:
        """-|x|/b + log_peak."""
        return self.log_peak - jnp.abs(x) / self.scale

    def log_ratio(self, x: jax.Array, step: jax.Array) -> jax.Array:
        """(|x| - |x - step|) / b."""
        return _absolute_fall(x, step) / self.scale


@pytree_dataclass
class Laplace(_TwoSidedExponential):
    """Continuous Laplace noise, density exp(-|x|/b) / (2b)."""

    scale: Any
    """b > 0."""

    @property
    def log_peak(self) -> jax.Array:
        """Log density at 0: -log(2b)."""
        return -jnp.log(2 * self.scale)

    def log_interval(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """log of (exp(-a/b) - exp(-c/b)) / 2 on one side of 0, a and c the nearer and farther end.

        Across 0 it is 1 - exp(low/b) / 2 - exp(-high/b) / 2.
        """
        across = (low < 0) & (high > 0)
        near = jnp.where(across, 0, jnp.minimum(jnp.abs(low), jnp.abs(high)))
        width = jnp.where(across, 1, high - low)
        one_side = -near / self.scale + _log_less(width / self.scale) - math.log(2)
        inside = [-jnp.expm1(-jnp.where(across, x, 1) / self.scale) for x in (-low, high)]
        return jnp.where(across, jnp.log(0.5 * (inside[0] + inside[1])), one_side)

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Floating-point draws, for simulation only."""
        return self.scale * jax.random.laplace(key, shape, self.scale.dtype)


@pytree_dataclass
class Geometric(_TwoSidedExponential):
    """Discrete Laplace noise on the integers, pmf proportional to exp(-|x|/b)."""

    scale: Any
    """b > 0."""

    @property
    def log_peak(self) -> jax.Array:
        """Log pmf at 0: log((1 - q) / (1 + q)) = log tanh(1 / 2b), with q = exp(-1/b)."""
        return jnp.log(jnp.tanh(1 / (2 * self.scale)))

    def log_interval(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """log of (q^a - q^(c + 1)) / (1 + q) on one side of 0, a and c the nearer and farther end.

        Across 0 it is 1 - (q^(1 - low) + q^(high + 1)) / (1 + q).
        """
        across = (low < 0) & (high > 0)
        log_q = -1 / self.scale
        near = jnp.where(across, 0, jnp.minimum(jnp.abs(low), jnp.abs(high)))
        width = jnp.where(across, 1, high - low + 1)
        one_side = near * log_q + _log_less(-width * log_q)
        below = -jnp.expm1((1 - jnp.where(across, low, 0)) * log_q)
        above = -jnp.expm1(jnp.where(across, high, 1) * log_q) * jnp.exp(log_q)
        return jnp.where(across, jnp.log(below + above), one_side) - jnp.log1p(jnp.exp(log_q))

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
        neighbours: Neighbours = "replace",
        contributions: int = 1,
    ) -> Self:
        """The zCDP scale sigma^2 = 2 / (2 rho_per_table), rho_total = n_tables * rho_per_table.

        With neighbours="add-remove" it is 1 / (2 rho_per_table); neighbours that differ in up to c
        records, contributions=c, need c times the sigma.
        """
        rho = _per_table("rho", rho_per_table, rho_total, n_tables)
        return cls((l2_sensitivity_squared(neighbours, contributions) / (2 * rho)) ** 0.5)

    @property
    def log_peak(self) -> jax.Array:
        """Log density at 0: -log(sigma sqrt(2 pi))."""
        return -jnp.log(self.sigma) - 0.5 * math.log(2 * math.pi)

    def log_prob(self, x: jax.Array) -> jax.Array:
        """-x^2 / (2 sigma^2) - log(sigma sqrt(2 pi))."""
        return self.log_peak - 0.5 * jnp.square(x / self.sigma)

    def log_ratio(self, x: jax.Array, step: jax.Array) -> jax.Array:
        """step (2 x - step) / (2 sigma^2)."""
        return step / self.sigma * ((2 * x - step) / self.sigma) * 0.5

    def log_interval(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """log of Phi(high / sigma) - Phi(low / sigma), from the side on which it is the smaller."""
        flip = low + high > 0
        near = jnp.where(flip, -low, high) / self.sigma
        far = jnp.where(flip, -high, low) / self.sigma
        log_near, log_far = log_ndtr(near), log_ndtr(far)
        gone = jnp.isneginf(log_far)
        return log_near + jnp.where(gone, 0, _log_less(jnp.where(gone, 1, log_near - log_far)))

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Floating-point draws, for simulation only."""
        return self.sigma * jax.random.normal(key, shape, self.sigma.dtype)


@pytree_dataclass
class Known:
    """No noise: counts that are public as they are."""

    parameter: ClassVar[str] = "scale"

    def log_prob(self, x: jax.Array) -> jax.Array:
        """0 at 0, and -inf elsewhere."""
        return jnp.where(x == 0, jnp.zeros_like(x), -jnp.inf)

    def log_ratio(self, x: jax.Array, step: jax.Array) -> jax.Array:
        """The same at x - step, whatever x is."""
        return self.log_prob(x - step)

    def log_interval(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """0 if 0 is inside, else -inf."""
        return jnp.where((low <= 0) & (high >= 0), jnp.zeros_like(low), -jnp.inf)

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Zeros."""
        return jnp.zeros(shape)


def l1_sensitivity(neighbours: Neighbours, contributions: int) -> int:
    """Largest L1 distance of neighbours' tables: 2 c where records are replaced, else c."""
    check_neighbours(neighbours, contributions)
    return CELLS_MOVED[neighbours] * contributions


def l2_sensitivity_squared(neighbours: Neighbours, contributions: int) -> int:
    """Largest squared L2 distance of the same tables: 2 c^2 where records are replaced, else c^2.

    All c records may move from one cell to another.
    """
    check_neighbours(neighbours, contributions)
    return CELLS_MOVED[neighbours] * contributions**2


def check_neighbours(neighbours: Any, contributions: Any) -> None:
    """Raise unless these say how neighbouring datasets differ."""
    validate.choice("neighbours", neighbours, CELLS_MOVED)
    if validate.whole_number("contributions", contributions, at_least=1) > MAX_CONTRIBUTIONS:
        raise ValueError(f"contributions must be at most {MAX_CONTRIBUTIONS}")


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
