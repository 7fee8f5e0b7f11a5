"""Posteriors of single probabilities: Betas, and mixtures of Betas on one common total.

A `Marginal` is sum_l w(l) Beta(a + l, b + n - l) over a window of counts l, one for each parameter
of a posterior. What is asked of one is computed in `jaxprivnb.beta_mixture`; here it is asked of
all, a few at a time, and of parameters that are certain.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import expit
from jax.typing import ArrayLike

from jaxprivnb import beta_mixture, validate
from jaxprivnb._pytree import pytree_dataclass
from jaxprivnb.parallel import in_threads, map_in_chunks

R = TypeVar("R")

_CHUNK = 1 << 15
"""Numbers in each array of a search, about: what is read again at every step stays in the cache."""
_LANES = 1024
"""Most searches side by side: all of them go on until the last one is done."""


@pytree_dataclass
class Marginal:
    """sum_t weight[t] Beta(a + l, b + n - l) with l = first + t, one for each parameter `[...]`.

    Components with l outside 0..n do not exist and have no weight. The parameter is 0 where a = 0
    (a masked category), and else 1 where b = 0 (one without alternatives).
    """

    weight: jax.Array
    """Proportional to the weights of the components, `[..., W]`."""
    a: jax.Array
    """Concentration of the parameter, `[...]`."""
    b: jax.Array
    """Concentration of all others, `[...]`: passed on its own, for a total less a loses digits."""
    first: jax.Array
    """Count of the first component, integer `[...]`."""
    n: jax.Array
    """Count that all components share out, integer `[...]`."""

    @classmethod
    def beta(cls, a: jax.Array, b: jax.Array) -> "Marginal":
        """Beta(a, b), elementwise."""
        none = jnp.zeros(a.shape, jnp.int32)
        return cls(jnp.ones((*a.shape, 1), a.dtype), a, b, none, none)

    @property
    def mirrored(self) -> "Marginal":
        """The distribution of one minus the parameter."""
        beyond = jnp.asarray(self.weight.shape[-1] - 1, self.first.dtype)
        first = self.n - self.first - beyond
        return Marginal(jnp.flip(self.weight, -1), self.b, self.a, first, self.n)

    @property
    def proper(self) -> jax.Array:
        """Whether there is a density, bool `[...]`; if not the parameter is certain."""
        return (self.a > 0) & (self.b > 0)

    @jax.jit
    def cdf(self, x: ArrayLike) -> jax.Array:
        """P(p <= x) at x `[...]`, to full relative precision where it is small."""
        dtype = self.a.dtype
        x = jnp.broadcast_to(jnp.asarray(x, dtype), self.a.shape)
        inside = (x > 0) & (x < 1)

        def one(marginal: Marginal, point: jax.Array) -> jax.Array:
            return jnp.exp(beta_mixture.log_cdf(marginal._terms, point))

        safe = jnp.where(inside, x, 0.5)
        found = jnp.where(inside, _over_lanes(one, self, safe), (x >= 1).astype(dtype))
        step = jnp.where(self.a > 0, x >= 1, x >= 0).astype(dtype)
        return self._or_point(jnp.minimum(found, 1), step)

    def survival(self, x: ArrayLike) -> jax.Array:
        """P(p >= x) at x `[...]`, to full relative precision where it is small and 1 - x is known.

        For x that 1 - x does not resolve ask `mirrored.cdf` for the distance to 1.
        """
        return self.mirrored.cdf(1 - jnp.asarray(x, self.a.dtype))

    @jax.jit
    def density(self, x: ArrayLike) -> jax.Array:
        """Densities at the points x `[G]`: `[..., G]`; 0 where there is none."""
        x = jnp.asarray(x, self.a.dtype)
        inside = (x > 0) & (x < 1)
        safe = jnp.where(inside, x, 0.5)

        def one(marginal: Marginal) -> jax.Array:
            terms = marginal._terms
            value = lambda s: jnp.exp(beta_mixture.log_rate(terms, s))  # noqa: E731
            return lax.map(value, safe) / (safe * (1 - safe))

        found = jnp.where(inside, _over_lanes(one, self), 0)
        return jax.vmap(self._or_point, in_axes=(-1, None), out_axes=-1)(
            found, jnp.zeros_like(self.a)
        )

    def quantile(self, q: ArrayLike) -> jax.Array:
        """The q-quantile, for levels q that broadcast to `[...]`; NaN for one outside [0, 1]."""
        return expit(self.logit_quantile(q))

    def logit_quantile(self, q: ArrayLike) -> jax.Array:
        """Logit of the q-quantile, `[...]`: negated, it is that of the 1 - q quantile of 1 - p.

        Infinite beyond what the exponential resolves.
        """
        q = jnp.broadcast_to(jnp.asarray(q, self.a.dtype), self.a.shape)
        return self._searched(_logit_quantile, q)

    def logit_interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Logits of the equal-tailed interval's ends, both `[...]`."""
        tail = jnp.broadcast_to(jnp.asarray((1 - level) / 2, self.a.dtype), self.a.shape)
        return self._searched(_logit_interval, tail)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval: (lower, upper), both `[...]`."""
        lower, upper = self.logit_interval(level)
        return expit(lower), expit(upper)

    @property
    def _terms(self) -> beta_mixture.Terms:
        """Of one parameter."""
        return beta_mixture.terms(self.weight, self.a, self.b, self.first, self.n)

    def _searched(self, search: Callable[["Marginal", jax.Array], R], tail: jax.Array) -> R:
        """`search(self, tail)`, without searches for what is known to be certain."""
        if not validate.is_concrete(self.a) or self.a.ndim == 0:
            return search(self, tail)
        proper = np.asarray(self.proper)
        if proper.all():
            return in_threads(search, self, tail)
        a, b, q = map(np.asarray, (self.a, self.b, tail))
        point = np.where(a > 0, np.inf, -np.inf).astype(a.dtype)
        point[~((a >= 0) & (b >= 0) & (q >= 0) & (q <= 1))] = np.nan
        if not proper.any():
            return jax.tree.map(lambda _: jnp.asarray(point), jax.eval_shape(search, self, tail))
        # Few numbers of searches, so that few programs are compiled.
        at = np.flatnonzero(proper)
        rows = np.pad(at, (0, -at.size % 32), mode="edge")
        take = lambda x: np.asarray(x).reshape(-1, *x.shape[a.ndim :])[rows]  # noqa: E731
        found = in_threads(search, *jax.tree.map(take, (self, tail)))

        def put(end: jax.Array) -> jax.Array:
            whole = point.copy()
            whole.reshape(-1)[at] = np.asarray(end)[: at.size]
            return jnp.asarray(whole)

        return jax.tree.map(put, found)

    def _or_point(self, found: jax.Array, point: jax.Array) -> jax.Array:
        """What was found where there is a density, the point mass's value elsewhere."""
        found = jnp.where(self.proper, found, point)
        return jnp.where((self.a >= 0) & (self.b >= 0), found, jnp.nan)


def simplex_interval(marginal: Marginal, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """`interval` of marginals whose last axis is all of a simplex.

    With two categories the second's ends are the first's, seen from 1: only the first is searched.
    """
    if marginal.a.shape[-1] != 2:
        return marginal.interval(level)
    axis = marginal.a.ndim - 1
    first = jax.tree.map(lambda x: lax.slice_in_dim(x, 0, 1, axis=axis), marginal)
    low, high = first.logit_interval(level)
    both = lambda u, v: expit(jnp.concatenate([u, -v], axis=-1))  # noqa: E731
    return both(low, high), both(high, low)


@jax.jit
def _logit_quantile(marginal: Marginal, q: jax.Array) -> jax.Array:
    """Logits of the q-quantiles, `[...]`."""
    upper = q > 0.5
    tail, upper = (
        jnp.broadcast_to(x, marginal.a.shape) for x in (jnp.where(upper, 1 - q, q), upper)
    )

    def one(lane: Marginal, tail: jax.Array, upper: jax.Array) -> jax.Array:
        turned = jax.tree.map(lambda x, y: jnp.where(upper, y, x), lane, lane.mirrored)
        return jnp.where(upper, -1, 1) * _tail_end(turned, tail)

    return _checked(marginal, tail, _over_lanes(one, marginal, tail, upper))


@jax.jit
def _logit_interval(marginal: Marginal, tail: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits below and above which there is the probability `tail`, both `[...]`."""
    tail = jnp.broadcast_to(tail, marginal.a.shape)

    def both(lane: Marginal, tail: jax.Array) -> jax.Array:
        # Turned while its numbers are in the cache; one program for the two ends.
        ends = jax.tree.map(lambda x, y: jnp.stack([x, y]), lane, lane.mirrored)
        return jax.vmap(_tail_end, (0, None))(ends, tail) * jnp.asarray([1, -1], tail.dtype)

    ends = _over_lanes(both, marginal, tail)
    return _checked(marginal, tail, ends[..., 0]), _checked(marginal, tail, ends[..., 1])


def _tail_end(marginal: Marginal, tail: jax.Array) -> jax.Array:
    """The logit below which there is the probability `tail`, for one parameter."""
    valid = (tail > 0) & (tail < 1)
    u = beta_mixture.search(marginal._terms, jnp.where(valid, tail, 0.5))
    return jnp.where(valid, u, -jnp.inf)


def _checked(marginal: Marginal, tail: jax.Array, u: jax.Array) -> jax.Array:
    """The logits u where there is a density; a point mass has no other quantile than its own."""
    u = marginal._or_point(u, jnp.where(marginal.a > 0, jnp.inf, -jnp.inf).astype(u.dtype))
    return jnp.where((tail >= 0) & (tail < 1), u, jnp.nan)  # what is no level has none


def _over_lanes(f: Callable[..., jax.Array], marginal: Marginal, *args: jax.Array) -> jax.Array:
    """`f(marginal, *args)`, a function of one parameter, over all of them: `[..., *its shape]`."""
    shape = marginal.a.shape
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(shape) :]), (marginal, *args))
    at_once = min(_LANES, _CHUNK // marginal.weight.shape[-1])
    found = map_in_chunks(lambda lane: f(*lane), flat, at_once)
    return found.reshape(*shape, *found.shape[1:])
