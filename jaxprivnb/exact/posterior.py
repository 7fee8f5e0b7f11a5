"""The posterior that `fit_exact` returns.

It keeps the release and the class counts' distribution; what costs more (mixtures, draws, the
predictive) is computed from them when asked for.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass, static
from jaxprivnb.exact import draws, mixtures, predict
from jaxprivnb.exact.chunks import map_in_chunks
from jaxprivnb.exact.moments import Moments, Pass, count_pmf, upward
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.posterior import Posterior, _replicate_keys, over_batch
from jaxprivnb.tables import NoisyTables, Prior

_CHUNK = 16_384
"""Numbers an array should hold while mixtures are raised, about."""


@pytree_dataclass
class ExactPosterior(Posterior):
    """The exact posterior of P(Y) and P(X_k | Y) given noisy tables."""

    tables: NoisyTables
    """The release it was fitted to."""
    prior: Prior
    """The concentrations it was fitted with."""
    place: Placement
    """Where the windows of counts begin."""
    log_evidence: Any
    """log P(m), `[...]`."""
    lost_mass: Any
    """Bound on the posterior mass left out by windows and underflow, `[...]`; 0 if none was."""
    lost_mass_cells: Any
    """The part of it due to the windows of single cells and to underflow, `[...]`."""
    class_count_pmf: Any
    """P(n_i = n | m), `[..., I, W]`, for n = class_count_offset + (0, ..., W - 1)."""
    moments: Moments
    """Means and standard deviations."""
    layout: Layout = static()
    """Lengths of the windows."""

    headline = ("log_evidence", "lost_mass")

    @property
    def class_count_offset(self) -> jax.Array:
        """The first n of `class_count_pmf`, int32 `[..., I]`."""
        return self.place.class_

    @property
    def count_offset(self) -> jax.Array:
        """The first count of `count_pmf`, int32 `[..., I, K, J]`."""
        return self.place.cell

    @property
    def class_mean(self) -> jax.Array:
        """E[P(Y=i) | m], `[..., I]`."""
        return self.moments.class_mean

    @property
    def feature_mean(self) -> jax.Array:
        """E[P(X_k=j | Y=i) | m], `[..., I, K, J]`; masked cells are 0."""
        return self.moments.feature_mean

    @property
    def class_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I]`."""
        return self.moments.class_sd

    @property
    def feature_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I, K, J]`."""
        return self.moments.feature_sd

    def count_pmf(self) -> jax.Array:
        """P(n_ikj = l | m), `[..., I, K, J, W]`, for l = count_offset + (0, ..., W - 1)."""
        return _count_pmf(self)

    def class_quantile(self, q: Any) -> jax.Array:
        """The q-quantile of each P(Y=i), from its mixture of Betas, `[..., I]`."""
        return _class_quantile(self, jnp.asarray(q, self.class_mean.dtype))

    def feature_quantile(self, q: Any) -> jax.Array:
        """The q-quantile of each P(X_k=j | Y=i), from its mixture of Betas, `[..., I, K, J]`."""
        q = jnp.asarray(q, self.class_mean.dtype)
        return self._feature_quantiles(jnp.stack([q, 1 - q]))[0]

    def feature_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval of each P(X_k=j | Y=i): (lower, upper), both `[..., I, K, J]`."""
        tail = (1 - validate.real_number("level", level, above=0, below=1)) / 2
        both = jnp.asarray([tail, 1 - tail], self.class_mean.dtype)
        lower, upper = self._feature_quantiles(both)
        return lower, upper

    def _feature_quantiles(self, q: jax.Array) -> jax.Array:
        """Quantiles at two levels q and 1 - q `[2]`, the levels first: `[2, ..., I, K, J]`."""
        found = _feature_quantiles(self, q)
        return jnp.moveaxis(found, len(self.batch_shape), 0)

    def class_cdf(self, p: jax.Array) -> jax.Array:
        """P(P(Y=i) <= p[i] | m), `[..., I]`."""
        return self._on_grid(_class_cdf_pdf, p, 1)[0]

    def feature_cdf(self, p: jax.Array) -> jax.Array:
        """P(P(X_k=j | Y=i) <= p[i,k,j] | m), `[..., I, K, J]`."""
        return self._on_grid(_feature_cdf_pdf, p, 3)[0]

    def class_density(self, x: jax.Array) -> jax.Array:
        """Posterior density of each P(Y=i) at the points x `[G]`: `[..., I, G]`."""
        return _class_density(self, self._points(x))

    def feature_density(self, x: jax.Array) -> jax.Array:
        """Posterior density of each P(X_k=j | Y=i) at the points x `[G]`: `[..., I, K, J, G]`.

        Masked cells, and the only category of a feature, have no density and give 0.
        """
        return _feature_density(self, self._points(x))

    def sample_tables(self, key: jax.Array, n: int) -> jax.Array:
        """N i.i.d. draws of the integer tables given m, int32 `[..., n, I, K, J]`."""
        return self._draw(key, n).counts

    def sample(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """N i.i.d. draws: (P(Y) `[..., n, I]`, P(X|Y) `[..., n, I, K, J]`).

        The tables behind them are those of `sample_tables` with the same key.
        """
        drawn = self._draw(key, n)
        return drawn.class_probs, drawn.feature_probs

    def _draw(self, key: jax.Array, n: int) -> "draws.Draws":
        n = validate.whole_number("n", n, at_least=0)
        key = validate.random_key("key", key)
        return _draw(self, _replicate_keys(key, self.batch_shape), n)

    def _predict_proba(self, x: jax.Array) -> jax.Array:
        return _predict(self, x)

    def _points(self, x: Any) -> jax.Array:
        return validate.as_float_array("x", x, self.class_mean.dtype)

    def _on_grid(self, f: Any, p: Any, ndim: int) -> Any:
        p = validate.as_float_array("p", p, self.class_mean.dtype)
        shape = (*self.batch_shape, *self.feature_mean.shape[-3:][:ndim])
        return f(self, jnp.broadcast_to(p, shape))

    def _upward(self) -> Pass:
        return upward(self.tables, self.prior, self.place, self.layout)


def _over_batch_with(f: Callable[..., Any]) -> Callable[..., Any]:
    """Jit a function of (one posterior, arrays that share its leading axes), over those axes."""

    @partial(jax.jit, static_argnums=(2,))
    def vectorised(self: ExactPosterior, x: Any, *static_args: Any) -> Any:
        call = lambda posterior, y: f(posterior, y, *static_args)  # noqa: E731
        for _ in self.batch_shape:
            call = jax.vmap(call)
        return call(self, x)

    return vectorised


def _in_chunks(f: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Apply a function of (one posterior, shared arrays) to a batch, a few replicates at a time.

    Raising a mixture passes over it once for every class count: a chunk that stays in the cache
    is several times faster than the whole batch side by side.
    """

    def chunked(self: ExactPosterior, x: jax.Array) -> jax.Array:
        batch = self.batch_shape
        if not batch:
            return f(self, x)
        flat = jax.tree.map(lambda y: y.reshape(-1, *y.shape[len(batch) :]), self)
        I, K = self.feature_mean.shape[-3:-1]
        found = map_in_chunks(lambda one: f(one, x), flat, _CHUNK // (I * K * self.layout.cell))
        return found.reshape(*batch, *found.shape[1:])

    return chunked


@jax.jit
@over_batch
def _count_pmf(self: ExactPosterior) -> jax.Array:
    return count_pmf(self._upward(), self.tables, self.place, self.layout)


@jax.jit
@over_batch
def _class_quantile(self: ExactPosterior, q: jax.Array) -> jax.Array:
    mixture = _class_mixture(self)
    return mixtures.quantiles(mixture, q[None], self.class_mean, self.class_sd)[0]


@jax.jit
@_in_chunks
def _feature_quantiles(self: ExactPosterior, q: jax.Array) -> jax.Array:
    mixture, mean, sd = _feature_mixture(self), self.feature_mean, self.feature_sd
    if mean.shape[-1] != 2:
        return mixtures.quantiles(mixture, q, mean, sd)
    # Two categories: p_1 = 1 - p_0, and the levels are q and 1 - q, so only p_0 is searched.
    first = jax.tree.map(lambda x: x[:, :, 0], mixture)
    found = mixtures.quantiles(first, q, mean[..., 0], sd[..., 0])
    return jnp.where(self.mask, jnp.stack([found, 1 - found[::-1]], axis=-1), 0)


@_over_batch_with
def _class_cdf_pdf(self: ExactPosterior, p: jax.Array) -> Any:
    return mixtures.cdf_pdf(_class_mixture(self), p)


@_over_batch_with
def _feature_cdf_pdf(self: ExactPosterior, p: jax.Array) -> Any:
    return mixtures.cdf_pdf(_feature_mixture(self), p)


@jax.jit
@over_batch
def _class_density(self: ExactPosterior, x: jax.Array) -> jax.Array:
    return mixtures.density_on_grid(_class_mixture(self), x)


@jax.jit
@over_batch
def _feature_density(self: ExactPosterior, x: jax.Array) -> jax.Array:
    return mixtures.density_on_grid(_feature_mixture(self), x)


@_over_batch_with
def _draw(self: ExactPosterior, key: jax.Array, n: int) -> draws.Draws:
    return draws.draw(key, n, self._upward(), self.tables, self.prior, self.place, self.layout)


@jax.jit
@over_batch
def _predict(self: ExactPosterior, x: jax.Array) -> jax.Array:
    up = self._upward()
    return predict.predict_proba(x, up, self.tables, self.prior, self.place, self.layout)


def _class_mixture(self: ExactPosterior) -> mixtures.Mixture:
    return mixtures.class_mixture(
        self.class_count_pmf, self.tables, self.prior, self.place, self.layout
    )


def _feature_mixture(self: ExactPosterior) -> mixtures.Mixture:
    return mixtures.feature_mixture(
        self._upward(), self.tables, self.prior, self.place, self.layout
    )
