"""The common face of every fit.

`Posterior` says what a posterior of the naive Bayes parameters can be asked; `DirichletPosterior`
answers for the fits under which P(Y) and each P(X_k | Y=i) are independent Dirichlets (naive,
non-private and variational). Methods are written for one dataset and vectorise over leading axes.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxprivnb import dirichlet, validate
from jaxprivnb._pytree import aside, pytree_dataclass
from jaxprivnb.marginals import Marginal, simplex_interval

if TYPE_CHECKING:
    from jaxprivnb.report.summary import Summary

_BLOCK = 128
"""Datasets that are asked at a time."""
_NUMBERS = 2**15
"""Numbers in one dataset's answer from which on datasets are asked one by one."""

R = TypeVar("R")
S = TypeVar("S", bound="Posterior")


def over_batch(question: Callable[..., R], posterior: S, *own: jax.Array) -> R:
    """`question(posterior, *own)` of each dataset of a batch; `own` has its leading axes."""
    for _ in posterior.batch_shape:
        question = jax.vmap(question)
    return question(posterior, *own)


@pytree_dataclass
class Posterior(abc.ABC):
    """The posterior of P(Y) and P(X_k | Y) given a release."""

    mask: jax.Array
    """Real cells, bool `[..., K, J]`, or `[..., I, K, J]` where classes differ."""
    status: jax.Array
    """`Status` code of the fit, int32 `[...]`; 0 is success."""
    domain: Any = aside(default=None, kw_only=True)
    """Names of the classes, features and categories: the release's `domain`, None without one.

    It is no part of the tree, so posteriors that `jax.tree.map`, `jit` or `vmap` return have none;
    `dataclasses.replace(posterior, domain=release.domain)` gives it back.
    """

    n_records_p_value: float | None = aside(default=None, kw_only=True)
    """How well the release's totals fit N, as `NoisyTables.n_records_p_value` says; no part of the
    tree either.
    """

    n_records: Any = aside(default=None, kw_only=True)
    """N of the release, or what the fit took for it; None where that is not known. No part of the
    tree either.
    """

    headline: ClassVar[tuple[str, ...]] = ()
    """Scalar fields that a one-line description shows."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes, `()` for one dataset."""
        return self.status.shape

    @property
    def real(self) -> jax.Array:
        """Real cells, bool `[..., 1, K, J]`, or `[..., I, K, J]` where classes differ."""
        by_feature = self.mask.ndim == len(self.batch_shape) + 2
        return self.mask[..., None, :, :] if by_feature else self.mask

    @property
    def categories(self) -> jax.Array:
        """Categories that any class can have, bool `[..., K, J]`."""
        return self.real.any(-3)

    @property
    @abc.abstractmethod
    def class_mean(self) -> jax.Array:
        """E[P(Y=i) | m], `[..., I]`."""

    @property
    @abc.abstractmethod
    def feature_mean(self) -> jax.Array:
        """E[P(X_k=j | Y=i) | m], `[..., I, K, J]`; masked cells are 0."""

    @property
    @abc.abstractmethod
    def class_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I]`."""

    @property
    @abc.abstractmethod
    def feature_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I, K, J]`."""

    @abc.abstractmethod
    def class_marginal(self) -> Marginal:
        """The posterior of each P(Y=i), `[..., I]`: what the methods below ask.

        Whoever asks more than one thing builds it once.
        """

    @abc.abstractmethod
    def feature_marginal(self) -> Marginal:
        """The posterior of each P(X_k=j | Y=i), `[..., I, K, J]`."""

    def class_quantile(self, q: ArrayLike) -> jax.Array:
        """The q-quantile of each P(Y=i), `[..., I]`."""
        return self._ask(
            lambda one, q: one.class_marginal().quantile(q), self._each("q", q, self.class_mean)
        )

    def feature_quantile(self, q: ArrayLike) -> jax.Array:
        """The q-quantile of each P(X_k=j | Y=i), `[..., I, K, J]`."""
        return self._ask(
            lambda one, q: one.feature_marginal().quantile(q), self._each("q", q, self.feature_mean)
        )

    def class_cdf(self, p: ArrayLike) -> jax.Array:
        """P(P(Y=i) <= p[i] | m), `[..., I]`."""
        return self._ask(
            lambda one, p: one.class_marginal().cdf(p), self._each("p", p, self.class_mean)
        )

    def feature_cdf(self, p: ArrayLike) -> jax.Array:
        """P(P(X_k=j | Y=i) <= p[i,k,j] | m), `[..., I, K, J]`."""
        return self._ask(
            lambda one, p: one.feature_marginal().cdf(p), self._each("p", p, self.feature_mean)
        )

    def class_density(self, x: ArrayLike) -> jax.Array:
        """Posterior density of each P(Y=i) at the points x `[G]`: `[..., I, G]`."""
        x = self._points("x", x)
        return self._ask(lambda one: one.class_marginal().density(x))

    def feature_density(self, x: ArrayLike) -> jax.Array:
        """Posterior density of each P(X_k=j | Y=i) at the points x `[G]`: `[..., I, K, J, G]`.

        Masked cells, and the only category of a feature, have no density and give 0.
        """
        x = self._points("x", x)
        return self._ask(lambda one: one.feature_marginal().density(x))

    def class_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval of each P(Y=i): (lower, upper), both `[..., I]`."""
        level = _checked(level)
        return self._ask(lambda one: simplex_interval(one.class_marginal(), level))

    def feature_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval of each P(X_k=j | Y=i): (lower, upper), both `[..., I, K, J]`."""
        level = _checked(level)
        return self._ask(lambda one: simplex_interval(one.feature_marginal(), level))

    @abc.abstractmethod
    def sample(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """n i.i.d. draws: (P(Y) `[..., n, I]`, P(X|Y) `[..., n, I, K, J]`)."""

    def _sample_with_sizes(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array, list[int]]:
        """`sample` of one dataset, and a number of records for each draw.

        That is N where it is known; `fit_exact` otherwise draws it together with the parameters.
        """
        if self.n_records is None:
            raise ValueError(
                "n_records must be given: this posterior does not know N (results of fit_many, "
                "jit and vmap have none, unless they are exact)"
            )
        return *self.sample(key, n), [int(self.n_records)] * n

    def synthesize(
        self,
        key: jax.Array,
        n_records: int | None = None,
        n_datasets: int = 1,
        *,
        as_frame: bool = True,
    ) -> list[Any]:
        """Synthetic records with the release's names and labels: a list of `n_datasets` sets.

        A set's parameters are one draw from the posterior, and its records are drawn from the model
        with these: the class, and then every feature given the class. So sets differ by what the
        noise of the release leaves open, and `combine_synthetic` turns estimates from several of
        them into valid intervals; one set, taken for real records, is too sure. Within a class
        features are independent, as in the model: what depends on anything else is not in them.

        Sets are pandas data frames, a column a feature and the class last; labels are a
        categorical of the whole domain (bins an ordered one), numbers are numbers. With
        `as_frame=False`, which needs no pandas, they are dicts of numpy arrays.

        Args:
            key: JAX random key.
            n_records: of each set; if None N, or where that is not known a draw from its posterior
                for each set.
            n_datasets: number of sets.
            as_frame: whether sets are data frames.
        """
        from jaxprivnb.report.synthetic import synthesize

        return synthesize(self, key, n_records, n_datasets, as_frame)

    def predict_proba(self, x: ArrayLike) -> jax.Array:
        """Posterior predictive P(Y=i | x, m).

        Args:
            x: categories, int `[..., K]`; -1 marks a missing feature, which is left out.

        Returns:
            `[..., I]`, after the leading axes of a batch.
        """
        records = validate.categories(x, self.mask.shape[-2], self.categories)
        return self._ask(lambda one: one._predict_proba(records), numbers=records.size)

    def replicate(self, *index: int) -> Self:
        """One dataset's posterior out of a batch: an index for each leading axis."""
        if len(index) != len(self.batch_shape):
            raise ValueError(
                f"replicate needs an index for each of the leading axes {self.batch_shape}, "
                f"got {len(index)} of them"
            )
        one = jax.tree.map(lambda x: x[index], self)
        return dataclasses.replace(one, domain=self.domain)

    def summary(self, level: float = 0.95, *, counts: bool = False) -> "Summary":
        """Mean, sd and equal-tailed interval of every parameter, named where the release has names.

        With `counts`, of an exact posterior, those of the true counts stand beside them.

        Prints as a table; `.rows`, `.to_pandas()` and `.to_csv()` give the numbers. For one
        dataset: of a batch, take one with `replicate`.
        """
        from jaxprivnb.report.summary import summarise_posterior

        return summarise_posterior(self, level, counts)

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

    def _points(self, name: str, x: ArrayLike) -> jax.Array:
        return validate.as_float_array(name, x, self.class_mean.dtype)

    def _each(self, name: str, x: ArrayLike, like: jax.Array) -> jax.Array:
        """A number for every parameter, of the shape of `like`."""
        return jnp.broadcast_to(self._points(name, x), like.shape)

    def _ask(self, question: Callable[..., R], *own: jax.Array, numbers: int = 1) -> R:
        """`question(self, *own)`; `own` has the leading axes of a batch.

        `numbers` says how many times the tables' size a dataset's answer is, about.
        """
        return question(self, *own)

    @abc.abstractmethod
    def _predict_proba(self, x: jax.Array) -> jax.Array:
        """`predict_proba` of checked categories."""


@pytree_dataclass
class DirichletPosterior(Posterior):
    """Independent P(Y) ~ Dirichlet(class_alpha), P(X_k | Y=i) ~ Dirichlet(feature_alpha[i,k])."""

    class_alpha: jax.Array
    """Concentration of P(Y), `[..., I]`."""
    feature_alpha: jax.Array
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

    def class_marginal(self) -> Marginal:
        """Each P(Y=i), a Beta, `[..., I]`."""
        return dirichlet.marginals(self.class_alpha)

    def feature_marginal(self) -> Marginal:
        """Each P(X_k=j | Y=i), a Beta, `[..., I, K, J]`."""
        return dirichlet.marginals(self.feature_alpha)

    def sample(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """n i.i.d. draws: (P(Y) `[..., n, I]`, P(X|Y) `[..., n, I, K, J]`)."""
        key = validate.random_key("key", key)
        n = validate.whole_number("n", n, at_least=0)
        impl = jax.random.key_impl(key)
        words = jax.random.key_data(_replicate_keys(key, self.batch_shape))

        def draw(one: DirichletPosterior, own: jax.Array) -> tuple[jax.Array, jax.Array]:
            return _sample(one, jax.random.wrap_key_data(own, impl=impl), n)

        return self._ask(draw, words, numbers=n)

    def _ask(self, question: Callable[..., R], *own: jax.Array, numbers: int = 1) -> R:
        """The same, a block of datasets at a time, the last one filled up.

        XLA compiles a formula to other last bits for other lengths: asked in blocks of one length,
        a dataset's answer does not depend on the batch around it.
        """
        batch = self.batch_shape
        known = all(map(validate.is_concrete, jax.tree.leaves((self, own))))
        if 0 in batch or not batch or not known:
            return question(self, *own)
        total, axes = math.prod(batch), len(batch)
        flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[axes:]), (self, *own))
        size = _BLOCK if numbers * math.prod(self.feature_alpha.shape[-3:]) <= _NUMBERS else 1
        answers = []
        for start in range(0, total, size):
            index = np.minimum(np.arange(start, start + size), total - 1)
            some = jax.tree.map(lambda x, i=index: jnp.asarray(x[i]), flat)
            answers.append(jax.tree.map(np.asarray, question(*some)))

        def join(*x: np.ndarray) -> jax.Array:
            return jnp.asarray(np.concatenate(x)[:total].reshape(*batch, *x[0].shape[1:]))

        return jax.tree.map(join, *answers)

    @jax.jit
    def _predict_proba(self, x: jax.Array) -> jax.Array:
        def one(posterior: DirichletPosterior) -> jax.Array:
            # The factors are independent, so the predictive is the plug-in of the means.
            log_feature = jnp.log(posterior.feature_mean)  # [I, K, J]
            K = log_feature.shape[1]
            # Categories out of range that tracing kept from being checked give NaN.
            chosen = log_feature.at[:, jnp.arange(K), jnp.maximum(x, 0)].get(mode="fill")
            chosen = jnp.moveaxis(jnp.where(x < 0, 0, chosen), 0, -2)  # [..., I, K]
            return jax.nn.softmax(jnp.log(posterior.class_mean) + chosen.sum(-1), axis=-1)

        return over_batch(one, self)


def named_after(posterior: S, tables: Any) -> S:
    """The posterior with N, how well it fits, and the names that its tables have, if any."""
    N = tables.n_records
    return dataclasses.replace(
        posterior,
        domain=getattr(tables, "domain", None),
        n_records_p_value=tables.n_records_p_value(),
        n_records=N if N is not None and validate.is_concrete(N) and not N.ndim else None,
    )


@functools.partial(jax.jit, static_argnames="n")
def _sample(posterior: DirichletPosterior, keys: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """Each replicate's draws from its own key."""

    def draw(one: DirichletPosterior, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        class_key, feature_key = jax.random.split(key)
        p_class = dirichlet.sample(class_key, one.class_alpha, (n,))
        return p_class, dirichlet.sample(feature_key, one.feature_alpha, (n,))

    return over_batch(draw, posterior, keys)


def _replicate_keys(key: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """One key a replicate, derived from its index alone; `key` itself for one dataset."""
    if not batch:
        return key
    keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(math.prod(batch)))
    return keys.reshape(*batch, *keys.shape[1:])


def _checked(level: Any) -> Any:
    if validate.is_concrete(level):
        level = validate.real_number("level", level, above=0, below=1)
    return level
