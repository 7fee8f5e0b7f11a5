"""Bounds of the noise's log density that are quadratic in m - n (paper 4.1).

The Laplace kernel is not quadratic; it is bounded below by a family of quadratics with one free
parameter a cell. There are two ways to write the family.

Mixture bound. m | n, beta ~ Normal(n, b^2 / beta) with density beta^-2 exp(-1 / (2 beta)) / 2 of
beta is a Laplace. With q(beta) = InverseGaussian(mean mu, shape 1),

    E_q log f(m - n) >= log f(0) - mu c / (2 b^2) - 1 / (2 mu),   best at mu = b / sqrt(c) (eq. 3).

Quadratic bound. -|x| / b >= -(x^2 / alpha + alpha) / (2 b), so

    E_q log f(m - n) >= log f(0) - (c / alpha + alpha) / (2 b),   best at alpha = sqrt(c).

They are the same bound under alpha = b / mu. The geometric kernel on the integers is the Laplace
kernel with another f(0). Gaussian noise needs no bound: its log density is quadratic.

A local bound has one parameter a cell, `[I, K, J]`, and three functions of it. A noise names its
bound by its `kernel`: "laplace", "gaussian", or a `LocalBound` of its own.
"""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp


@runtime_checkable
class LocalBound(Protocol):
    """A lower bound of E_q log f(m - n) that is linear in c = E_q (m - n)^2; hashable."""

    def optimum(self, noise: Any, c: jax.Array) -> jax.Array:
        """The parameter that makes the bound tightest at c."""
        ...

    def precision(self, noise: Any, parameter: jax.Array) -> jax.Array:
        """w, where the bound is a constant minus w c / 2."""
        ...

    def value(self, noise: Any, parameter: jax.Array, c: jax.Array) -> jax.Array:
        """The bound itself."""
        ...


def _root(c: jax.Array) -> jax.Array:
    """sqrt(c), kept off 0: a cell known exactly would have an infinite precision.

    Stopping short of the optimum leaves a valid bound, lower by less than this floor over b.
    """
    return jnp.sqrt(jnp.maximum(c, jnp.finfo(c.dtype).eps))


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The parameter is mu = E beta."""

    def optimum(self, noise: Any, c: jax.Array) -> jax.Array:
        """mu = b / sqrt(c) (eq. 3)."""
        return noise.scale / _root(c)

    def precision(self, noise: Any, parameter: jax.Array) -> jax.Array:
        """mu / b^2."""
        return parameter / noise.scale / noise.scale

    def value(self, noise: Any, parameter: jax.Array, c: jax.Array) -> jax.Array:
        """log f(0) - mu c / (2 b^2) - 1 / (2 mu)."""
        return noise.log_peak - 0.5 * self.precision(noise, parameter) * c - 0.5 / parameter


@dataclasses.dataclass(frozen=True)
class Quadratic:
    """The parameter is alpha, where the quadratic touches -|x| / b."""

    def optimum(self, noise: Any, c: jax.Array) -> jax.Array:
        """alpha = sqrt(c)."""
        return _root(c) + jnp.zeros_like(noise.scale)

    def precision(self, noise: Any, parameter: jax.Array) -> jax.Array:
        """1 / (b alpha)."""
        return 1 / (noise.scale * parameter)

    def value(self, noise: Any, parameter: jax.Array, c: jax.Array) -> jax.Array:
        """log f(0) - (c / alpha + alpha) / (2 b)."""
        return noise.log_peak - (c / parameter + parameter) / (2 * noise.scale)


@dataclasses.dataclass(frozen=True)
class Exact:
    """Gaussian noise: E_q log f = log f(0) - c / (2 sigma^2); the parameter is not used."""

    def optimum(self, noise: Any, c: jax.Array) -> jax.Array:
        """Ones, a placeholder."""
        return jnp.ones_like(c)

    def precision(self, noise: Any, parameter: jax.Array) -> jax.Array:
        """1 / sigma^2."""
        return jnp.ones_like(parameter) / jnp.square(noise.sigma)

    def value(self, noise: Any, parameter: jax.Array, c: jax.Array) -> jax.Array:
        """log f(0) - c / (2 sigma^2)."""
        return noise.log_peak - 0.5 * c / jnp.square(noise.sigma)


BOUNDS: dict[str, LocalBound] = {"mixture": Mixture(), "quadratic": Quadratic()}
"""The bounds of the Laplace kernel by name."""


def local_bound(name: str, noise: Any) -> LocalBound:
    """The bound to use with a noise.

    The named one for a Laplace kernel, the exact one for a Gaussian, or the one the noise brings.
    """
    kernel = getattr(noise, "kernel", None)
    if isinstance(kernel, LocalBound):
        return kernel
    if kernel == "laplace":
        return BOUNDS[name]
    if kernel == "gaussian":
        return Exact()
    raise TypeError(
        f"noise {type(noise).__name__} has no quadratic bound (its `kernel` must be 'laplace', "
        "'gaussian' or a LocalBound), so fit_vb cannot use it; fit_exact needs only its log_prob"
    )
