"""The vocabulary: noisy tables, and the prior of the parameters they inform.

Symbols used throughout: I classes, K features, J = max_k J_k categories, N records;
n[i,k,j] = #(Y=i, X_k=j) and m = n + noise. Arrays are `[I, K, J]`; a feature with fewer than J
categories has its other cells masked, and a masked cell contributes nothing anywhere.
"""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass
from jaxprivnb.noise import Gaussian, Geometric, Laplace, Noise

_DOUBTFUL = 20.0
"""Noise sds of a table's total that are no chance."""


@pytree_dataclass
class NoisyTables:
    """A release: for each feature, a class-by-category table of noisy counts.

    Leading axes are allowed before `[I, K, J]`; every array then carries them, so a batch can be
    indexed with `jax.tree.map(lambda x: x[r], tables)` and mapped with `jax.vmap`.
    """

    counts: Any
    """m, float `[..., I, K, J]`; may be negative or fractional."""
    n_records: Any
    """N >= 0, public; float `[...]`."""
    noise: Any
    """The noise that was added; its scale is `[...]`, or `[..., K]` with one value a table.

    Where both readings fit (K values, a batch of K datasets) it is one value a dataset.
    """
    mask: Any = None
    """bool `[..., K, J]`, True for a real cell; None means that all are real."""

    def __post_init__(self) -> None:
        counts = validate.as_float_array("counts", self.counts)
        mask = validate.counts_and_mask(counts, self.mask)
        batch, K = counts.shape[:-3], counts.shape[-2]
        N = validate.n_records(self.n_records, counts.dtype, batch)
        noise = noise_for(self.noise, counts.dtype, batch, K)
        for name, value in (("counts", counts), ("n_records", N), ("noise", noise), ("mask", mask)):
            object.__setattr__(self, name, value)

    @property
    def n_classes(self) -> int:
        """I."""
        return self.counts.shape[-3]

    @property
    def n_features(self) -> int:
        """K."""
        return self.counts.shape[-2]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes, `()` for one dataset."""
        return self.counts.shape[:-3]

    @property
    def real(self) -> jax.Array:
        """The mask as an array, bool `[..., K, J]`."""
        return full_mask(self.counts, self.mask)

    def noise_by_cell(self) -> Any:
        """The noise with its scale shaped to broadcast against one dataset's `[I, K, J]`."""
        return jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, self.noise)

    def check(self, function: str) -> None:
        """Raise unless this is one dataset with finite counts, as far as values are known."""
        validate.single_dataset(function, self.counts)
        if validate.is_concrete(self.counts):
            validate.finite_counts(self.counts, self.mask)
            validate.n_records(self.n_records, self.counts.dtype, ())
            for leaf in jax.tree.leaves(self.noise):
                validate.positive(f"noise.{self.noise.parameter}", leaf)

    def is_valid(self) -> jax.Array:
        """Bool scalar, for one dataset: what the checks demand of the values, under tracing too."""
        N = self.n_records
        ok = jnp.all(jnp.isfinite(self.counts) | ~self.real) & jnp.all(self.real.any(-1))
        ok &= jnp.isfinite(N) & (N >= 0) & (jnp.floor(N) == N)
        for leaf in jax.tree.leaves(self.noise):
            ok &= jnp.all(jnp.isfinite(leaf) & (leaf > 0))
        return ok

    def __repr__(self) -> str:
        if not hasattr(self.counts, "shape"):  # a tree of something else than arrays
            fields = (self.counts, self.n_records, self.noise, self.mask)
            return f"NoisyTables({', '.join(map(repr, fields))})"
        shape = "x".join(map(str, self.batch_shape)) + " datasets of " if self.batch_shape else ""
        return (
            f"NoisyTables({shape}{self.n_classes} classes x {self.n_features} features x "
            f"{self.counts.shape[-1]} categories, N={_brief(self.n_records)}, {self.noise!r}"
            f"{self.doubt()})"
        )

    def doubt(self) -> str:
        """Words on totals that noise cannot explain, which a wrong N gives; else nothing.

        A table's total is N plus the noise of its cells. Of one dataset whose numbers are known.
        """
        leaves = jax.tree.leaves(self)
        if self.batch_shape or not all(map(validate.is_concrete, leaves)):
            return ""
        if not isinstance(self.noise, Laplace | Geometric | Gaussian):
            return ""  # of unknown spread
        unit = 1.0 if isinstance(self.noise, Gaussian) else 2**0.5
        real = np.asarray(self.real)
        total = np.where(real, self.counts, 0).sum((0, 2))  # [K]
        sd = unit * np.asarray(self.noise.value) * np.sqrt(real.sum(-1) * self.n_classes)
        furthest = float(np.max(np.abs(total - np.asarray(self.n_records)) / sd))
        if not furthest > _DOUBTFUL:
            return ""
        return f", totals up to {furthest:.0f} noise sds from N: is N right?"

    def _repr_html_(self) -> str:
        from jaxprivnb.report.html import tables_html

        return tables_html(self)


@pytree_dataclass
class Prior:
    """Dirichlet concentrations of P(Y) and of each P(X_k | Y=i)."""

    class_: Any
    """a, float `[..., I]`."""
    feature: Any
    """a, float `[..., I, K, J]`; masked cells are ignored."""

    def __post_init__(self) -> None:
        class_ = validate.as_float_array("prior.class_", self.class_)
        feature = validate.as_float_array("prior.feature", self.feature)
        if feature.ndim < 3 or class_.shape != feature.shape[:-2]:
            raise ValueError(
                "prior.class_ must have shape [I] and prior.feature [I, K, J], with the same "
                f"leading axes if any; got {class_.shape} and {feature.shape}"
            )
        if class_.ndim == 1:
            validate.positive("prior.class_", class_)
        object.__setattr__(self, "class_", class_)
        object.__setattr__(self, "feature", feature)

    @classmethod
    def uniform(cls, tables: NoisyTables) -> Self:
        """Dirichlet(1, ..., 1) on every simplex, shaped like `tables`."""
        return cls.symmetric(tables, 1.0)

    @classmethod
    def symmetric(cls, tables: NoisyTables, concentration: float) -> Self:
        """The same concentration in every cell; 1 is uniform, 1/2 is Jeffreys'."""
        validate.real_number("concentration", concentration, above=0)
        counts = check_type(tables).counts
        return cls(
            jnp.full(counts.shape[:-2], concentration, counts.dtype),
            jnp.full(counts.shape, concentration, counts.dtype),
        )

    def is_valid(self, real: jax.Array) -> jax.Array:
        """Bool scalar, for one dataset: every real concentration is finite and positive."""
        feature_ok = (jnp.isfinite(self.feature) & (self.feature > 0)) | ~real
        return jnp.all(jnp.isfinite(self.class_) & (self.class_ > 0)) & jnp.all(feature_ok)


def resolve_prior(prior: Prior | None, counts: jax.Array, mask: jax.Array | None) -> Prior:
    """The prior to use with one dataset: checked, in its dtype; uniform if None."""
    if prior is None:
        return Prior(jnp.ones_like(counts[:, 0, 0]), jnp.ones_like(counts))
    if not isinstance(prior, Prior):
        raise not_a_prior(prior)
    validate.concentration("prior.class_", prior.class_, counts.shape[:1])
    validate.concentration("prior.feature", prior.feature, counts.shape, mask)
    return jax.tree.map(lambda a: a.astype(counts.dtype), prior)


def not_a_prior(prior: Any) -> TypeError:
    """The error that says how to make a prior of what was given."""
    return TypeError(
        f"prior must be a jaxprivnb.Prior or None, got {prior!r}; one concentration for all is "
        "jaxprivnb.Prior.symmetric(tables, concentration)"
    )


def check_type(tables: Any) -> NoisyTables:
    """Raise unless the argument `tables` is a `NoisyTables`, without showing what it is: it may be
    the records.
    """
    if isinstance(tables, NoisyTables):
        return tables
    hint = "records become one with jaxprivnb.release"
    if hasattr(tables, "release_"):
        hint = "a fitted estimator has one in its release_"
    elif isinstance(getattr(tables, "tables", None), NoisyTables):
        hint = f"a {type(tables).__name__} has one in its tables"
    raise TypeError(
        f"tables must be a jaxprivnb.NoisyTables or a Release, got {type(tables).__name__}; {hint}"
    )


def noise_for(noise: Any, dtype: Any, batch: tuple[int, ...], n_features: int) -> Any:
    """The argument `noise`, checked, in `dtype`, its scale shaped `batch` or `batch + [K]`."""
    if not isinstance(noise, Noise) or isinstance(noise, type):
        raise TypeError(
            f"noise must be Laplace, Geometric, Gaussian or another noise object, got {noise!r}"
        )
    name = f"noise.{noise.parameter}"
    return jax.tree.map(
        lambda x: validate.noise_parameter(
            name, validate.as_float_array(name, x, dtype), batch, n_features
        ),
        noise,
    )


def full_mask(counts: jax.Array, mask: jax.Array | None) -> jax.Array:
    """`mask`, or all True, as bool `[..., K, J]`."""
    if mask is not None:
        return mask
    return jnp.ones((*counts.shape[:-3], *counts.shape[-2:]), bool)


def mask_from_categories(n_categories: tuple[int, ...]) -> jax.Array | None:
    """Mask `[K, J]` of features with the given numbers of categories; None if all are equal."""
    if len(set(n_categories)) == 1:
        return None
    return jnp.arange(max(n_categories)) < jnp.asarray(n_categories)[:, None]


def _brief(x: jax.Array) -> str:
    if not validate.is_concrete(x) or not hasattr(x, "shape"):
        return "?"
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    return f"{low:g}" if low == high else f"{low:g}..{high:g}"
