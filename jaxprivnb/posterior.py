"""The common face of every fit.

`Posterior` says what a posterior of the naive Bayes parameters can be asked; `DirichletPosterior`
answers for the fits under which P(Y) and each P(X_k | Y=i) are independent Dirichlets (naive,
non-private and variational). Methods are written for one dataset and vectorise over leading axes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import jax
import jax.numpy as jnp

from jaxprivnb import dirichlet, validate
from jaxprivnb._pytree import aside, pytree_dataclass

if TYPE_CHECKING:
    from jaxprivnb.report.summary import Summary

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Posterior")


def over_batch(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Vectorise a method of one dataset's posterior over the leading axes of a batch.

    Arguments are shared by the batch.
    """

    @functools.wraps(method)
    def vectorised(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        call = lambda posterior: method(posterior, *args, **kwargs)  # noqa: E731
        for _ in self.batch_shape:
            call = jax.vmap(call)
        return call(self)

    return vectorised


@pytree_dataclass
class Posterior:
    """The posterior of P(Y) and P(X_k | Y) given a release."""

    mask: Any
    """Real cells, bool `[..., K, J]`."""
    status: Any
    """`Status` code of the fit, int32 `[...]`; 0 is success."""
    domain: Any = aside(default=None, kw_only=True)
    """Names of the classes, features and categories: the release's `domain`, None without one.

    It is no part of the tree, so posteriors that `jax.tree.map`, `jit` or `vmap` return have none;
    `dataclasses.replace(posterior, domain=release.domain)` gives it back.
    """

    headline: ClassVar[tuple[str, ...]] = ()
    """Scalar fields that a one-line description shows."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes, `()` for one dataset."""
        return self.mask.shape[:-2]

    @property
    def class_mean(self) -> jax.Array:
        """E[P(Y=i) | m], `[..., I]`."""
        raise AttributeError

    @property
    def feature_mean(self) -> jax.Array:
        """E[P(X_k=j | Y=i) | m], `[..., I, K, J]`; masked cells are 0."""
        raise AttributeError

    @property
    def class_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I]`."""
        raise AttributeError

    @property
    def feature_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I, K, J]`."""
        raise AttributeError

    def class_quantile(self, q: Any) -> jax.Array:
        """The q-quantile of each P(Y=i), `[..., I]`."""
        raise AttributeError

    def feature_quantile(self, q: Any) -> jax.Array:
        """The q-quantile of each P(X_k=j | Y=i), `[..., I, K, J]`."""
        raise AttributeError

    def class_cdf(self, p: jax.Array) -> jax.Array:
        """P(P(Y=i) <= p[i] | m), `[..., I]`."""
        raise AttributeError

    def feature_cdf(self, p: jax.Array) -> jax.Array:
        """P(P(X_k=j | Y=i) <= p[i,k,j] | m), `[..., I, K, J]`."""
        raise AttributeError

    def class_density(self, x: jax.Array) -> jax.Array:
        """Posterior density of each P(Y=i) at the points x `[G]`: `[..., I, G]`."""
        raise AttributeError

    def feature_density(self, x: jax.Array) -> jax.Array:
        """Posterior density of each P(X_k=j | Y=i) at the points x `[G]`: `[..., I, K, J, G]`."""
        raise AttributeError

    def class_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval of each P(Y=i): (lower, upper), both `[..., I]`."""
        tail = _tail(level)
        return self.class_quantile(tail), self.class_quantile(1 - tail)

    def feature_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval of each P(X_k=j | Y=i): (lower, upper), both `[..., I, K, J]`."""
        tail = _tail(level)
        return self.feature_quantile(tail), self.feature_quantile(1 - tail)

    def sample(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """I.i.d. draws, n of them: (P(Y) `[..., n, I]`, P(X|Y) `[..., n, I, K, J]`)."""
        key = validate.random_key("key", key)
        n = validate.whole_number("n", n, at_least=0)
        return _sample(self, _replicate_keys(key, self.batch_shape), n)

    def predict_proba(self, x: Any) -> jax.Array:
        """Posterior predictive P(Y=i | x, m).

        Args:
            x: categories, int `[..., K]`; -1 marks a missing feature, which is left out.

        Returns:
            `[..., I]`, after the leading axes of a batch.
        """
        records = validate.categories(x, self.mask.shape[-2], self.mask)
        return self._predict_proba(records)

    def replicate(self, *index: int) -> Self:
        """One dataset's posterior out of a batch: an index for each leading axis."""
        if len(index) != len(self.batch_shape):
            raise ValueError(
                f"replicate needs an index for each of the leading axes {self.batch_shape}, "
                f"got {index}"
            )
        one = jax.tree.map(lambda x: x[index], self)
        return dataclasses.replace(one, domain=self.domain)

    def summary(self, level: float = 0.95) -> "Summary":
        """Mean, sd and equal-tailed interval of every parameter, named where the release has names.

        Prints as a table; `.rows`, `.to_pandas()` and `.to_csv()` give the numbers. For one
        dataset: of a batch, take one with `replicate`.
        """
        from jaxprivnb.report.summary import summarise_posterior

        return summarise_posterior(self, level)

    def to_arviz(
        self, key: jax.Array, n: int = 1000, *, chains: int = 4, by_feature: bool = False
    ) -> Any:
        """I.i.d. draws for ArviZ: an `InferenceData`, or a `DataTree` from ArviZ 1.0 on.

        Variables `p_class` (chain, draw, class) and `p_feature` (chain, draw, class, feature,
        category); a feature with fewer categories has NaN in the cells it lacks. The draws are
        independent: chains only suit ArviZ's habits.

        Args:
            key: JAX random key.
            n: draws in each chain.
            chains: number of chains.
            by_feature: instead of `p_feature`, one variable `p_feature_NAME` a feature, with the
                feature's own categories, and so without NaN.
        """
        from jaxprivnb.report.arviz import to_arviz

        return to_arviz(self, key, n, chains=chains, by_feature=by_feature)

    def __repr__(self) -> str:
        from jaxprivnb.report.text import describe_posterior

        return describe_posterior(self)

    def _repr_html_(self) -> str:
        from jaxprivnb.report.html import posterior_html

        return posterior_html(self)

    def _sample_one(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        raise AttributeError

    def _predict_proba(self, x: jax.Array) -> jax.Array:
        raise AttributeError


@pytree_dataclass
class DirichletPosterior(Posterior):
    """Independent P(Y) ~ Dirichlet(class_alpha), P(X_k | Y=i) ~ Dirichlet(feature_alpha[i,k])."""

    class_alpha: Any
    """Concentration of P(Y), `[..., I]`."""
    feature_alpha: Any
    """Concentrations of P(X_k | Y=i), `[..., I, K, J]`; masked cells are 0."""

    @property
    def class_mean(self) -> jax.Array:
        """alpha_i / sum alpha, `[..., I]`."""
        return dirichlet.mean(self.class_alpha)

    @property
    def feature_mean(self) -> jax.Array:
        """alpha_ikj / sum_j alpha_ikj, `[..., I, K, J]`."""
        return dirichlet.mean(self.feature_alpha)

    @property
    def class_sd(self) -> jax.Array:
        """sqrt(p (1 - p) / (1 + sum alpha)) with p the mean, `[..., I]`."""
        return dirichlet.sd(self.class_alpha)

    @property
    def feature_sd(self) -> jax.Array:
        """sqrt(p (1 - p) / (1 + sum_j alpha)) with p the mean, `[..., I, K, J]`."""
        return dirichlet.sd(self.feature_alpha)

    def class_quantile(self, q: Any) -> jax.Array:
        """The q-quantile of each Beta marginal, `[..., I]`."""
        return dirichlet.marginal_quantile(self.class_alpha, q)

    def feature_quantile(self, q: Any) -> jax.Array:
        """The q-quantile of each Beta marginal, `[..., I, K, J]`."""
        return dirichlet.marginal_quantile(self.feature_alpha, q)

    def class_cdf(self, p: jax.Array) -> jax.Array:
        """The Beta marginal's CDF at p `[..., I]`."""
        return dirichlet.marginal_cdf(self.class_alpha, p)

    def feature_cdf(self, p: jax.Array) -> jax.Array:
        """The Beta marginal's CDF at p `[..., I, K, J]`."""
        return dirichlet.marginal_cdf(self.feature_alpha, p)

    def class_density(self, x: jax.Array) -> jax.Array:
        """The Beta marginal's density at the points x `[G]`: `[..., I, G]`."""
        x = validate.as_float_array("x", x, self.class_alpha.dtype)
        return dirichlet.marginal_density(self.class_alpha, x)

    def feature_density(self, x: jax.Array) -> jax.Array:
        """The Beta marginal's density at the points x `[G]`: `[..., I, K, J, G]`.

        Masked cells, and the only category of a feature, have no density and give 0.
        """
        x = validate.as_float_array("x", x, self.class_alpha.dtype)
        return dirichlet.marginal_density(self.feature_alpha, x)

    def _sample_one(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        class_key, feature_key = jax.random.split(key)
        p_class = dirichlet.sample(class_key, self.class_alpha, (n,))
        p_feature = dirichlet.sample(feature_key, self.feature_alpha, (n,))
        return p_class, p_feature

    @jax.jit
    @over_batch
    def _predict_proba(self, x: jax.Array) -> jax.Array:
        # The factors are independent, so the predictive is the plug-in of the means.
        log_feature = jnp.log(self.feature_mean)  # [I, K, J]
        K = log_feature.shape[1]
        # Categories out of range that tracing kept from being checked give NaN.
        chosen = log_feature.at[:, jnp.arange(K), jnp.maximum(x, 0)].get(mode="fill")  # [I, ..., K]
        chosen = jnp.moveaxis(jnp.where(x < 0, 0, chosen), 0, -2)  # [..., I, K]
        return jax.nn.softmax(jnp.log(self.class_mean) + chosen.sum(-1), axis=-1)


def named_after(posterior: S, tables: Any) -> S:
    """The posterior with the names that its tables have, if any."""
    domain = getattr(tables, "domain", None)
    return posterior if domain is None else dataclasses.replace(posterior, domain=domain)


@functools.partial(jax.jit, static_argnames="n")
def _sample(posterior: Posterior, keys: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """Each replicate's draws from its own key."""
    draw = lambda one, key: one._sample_one(key, n)  # noqa: E731
    for _ in posterior.batch_shape:
        draw = jax.vmap(draw)
    return draw(posterior, keys)


def _replicate_keys(key: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """One key a replicate, derived from its index alone; `key` itself for one dataset."""
    if not batch:
        return key
    keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(math.prod(batch)))
    return keys.reshape(*batch, *keys.shape[1:])


def _tail(level: float) -> float:
    if validate.is_concrete(level):
        level = validate.real_number("level", level, above=0, below=1)
    return (1 - level) / 2
