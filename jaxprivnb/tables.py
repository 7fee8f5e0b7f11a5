"""The vocabulary: noisy tables, and the prior of the parameters they inform.

Symbols used throughout: I classes, K features, J = max_k J_k categories, N records;
n[i,k,j] = #(Y=i, X_k=j) and m = n + noise. Arrays are `[I, K, J]`; a feature with fewer than J
categories has its other cells masked, and a masked cell contributes nothing anywhere.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxprivnb import totals, validate
from jaxprivnb._pytree import pytree_dataclass, set_fields, shapes_repr, with_fields
from jaxprivnb.measurement import Group, Measurement
from jaxprivnb.noise import Known, Noise


@pytree_dataclass
class NoisyTables:
    """A release: for each feature, a class-by-category table of noisy counts.

    Leading axes are allowed before `[I, K, J]`; every array then carries them, so a batch can be
    indexed with `jax.tree.map(lambda x: x[r], tables)` and mapped with `jax.vmap`.

    The last five fields are for tables that were not published as they came from the noise, or not
    alone; `jaxprivnb.processed` and `jaxprivnb.combine` fill some of them in. The exact posterior
    takes all of them; other fits say what they do not take.
    """

    counts: Any
    """m, float `[..., I, K, J]`; may be negative or fractional."""
    n_records: Any
    """N >= 0, public; float `[...]`. None: it is not known, and inference is about it as well."""
    noise: Any
    """The noise that was added; its scale is `[...]`, or `[..., K]` with one value a table.

    Where both readings fit (K values, a batch of K datasets) it is one value a dataset.
    """
    mask: Any = None
    """bool `[..., K, J]`, True for a real cell; None means that all are real.

    `[..., I, K, J]` where a class cannot have a category (structural zeros): such a cell has no
    count and no probability. Where both readings fit (I classes, a batch of I datasets) it is one
    mask a dataset.
    """
    upper: Any = None
    """Upper ends, `[..., I, K, J]`, where noisy counts are only known to lie in intervals, whose
    lower ends are `counts`; both may be infinite, and are equal where the count is known. None: all
    are known."""
    also: tuple[Measurement, ...] = ()
    """Further releases of the same counts; each has `counts` of the same shape."""
    class_totals: Any = None
    """n_i where they are public, float `[..., I]`; NaN for those that are not."""
    groups: tuple[Group, ...] = ()
    """Totals of groups of classes, each published with noise of its own, at any number of levels:
    of any two groups one holds the other, or they have no class in common."""

    def __post_init__(self) -> None:
        counts = validate.as_float_array("counts", self.counts)
        mask = validate.counts_and_mask(counts, self.mask, finite=self.upper is None)
        batch, K = counts.shape[:-3], counts.shape[-2]
        known = self.n_records is not None
        N = validate.n_records(self.n_records, counts.dtype, batch) if known else None
        noise = noise_for(self.noise, counts.dtype, batch, K)
        upper = _like_counts("upper", self.upper, counts)
        also = tuple(_resolved(f"also[{r}].", x, counts) for r, x in enumerate(self.also))
        public = self.class_totals
        if public is not None:
            public = validate.as_float_array("class_totals", public, counts.dtype)
            validate.class_totals(public, counts.shape[:-2])
        set_fields(self, counts=counts, n_records=N, noise=noise, mask=mask)
        set_fields(self, upper=upper, also=also, class_totals=public)
        set_fields(self, groups=_resolved_groups(self.groups, counts, known))
        if not batch:
            for name, one in self._named_measurements():
                if one.upper is not None:
                    one.check(name, mask)
            self._check_groups()

    def _check_groups(self) -> None:
        for r, group in enumerate(self.groups):
            group.check(f"groups[{r}].")

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What was published of the counts, `counts` first."""
        return (Measurement(self.counts, self.noise, self.upper), *self.also)

    @property
    def is_plain(self) -> bool:
        """Whether N is known and noisy counts, published once and as they are, are all there is."""
        beside = (self.upper, self.class_totals, *self.also, *self.groups)
        return self.n_records is not None and all(x is None for x in beside)

    def _named_measurements(self) -> Iterator[tuple[str, Measurement]]:
        first, *more = self.measurements
        yield "", first
        for r, one in enumerate(more):
            yield f"also[{r}].", one

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
        """The mask as an array, bool `[..., K, J]`, or `[..., I, K, J]` where classes differ."""
        return full_mask(self.counts, self.mask)

    def noise_by_cell(self) -> Any:
        """The noise with its scale shaped to broadcast against one dataset's `[I, K, J]`."""
        return jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, self.noise)

    def check(self, function: str) -> None:
        """Raise unless this is one dataset with finite counts, as far as values are known.

        Warns, at the line that called the function, of totals that N cannot explain.
        """
        validate.single_dataset(function, self.counts)
        if validate.is_concrete(self.counts):
            for name, one in self._named_measurements():
                one.check(name, self.mask)
            self._check_groups()
            if self.n_records is not None:
                validate.n_records(self.n_records, self.counts.dtype, ())
            totals.warn(self, stacklevel=4)

    def check_plain(self, function: str) -> None:
        """Raise unless `function`, which knows nothing else, can take these tables."""
        way_on = "fit_exact takes them as they are"
        if self.n_records is None:
            raise ValueError(
                f"{function} needs n_records, which these tables do not have; {way_on}, or state "
                "a number: dataclasses.replace(tables, n_records=...)"
            )
        for what, there in (
            ("intervals of noisy counts (upper)", self.upper is not None),
            ("several releases (also)", bool(self.also)),
            ("public class totals (class_totals)", self.class_totals is not None),
            ("totals of groups of classes (groups)", bool(self.groups)),
        ):
            if there:
                raise ValueError(f"{function} does not take {what}; {way_on}")

    def is_valid(self) -> jax.Array:
        """Bool scalar, for one dataset: what the checks demand of the values, under tracing too."""
        ok = jnp.all(self.real.any(-1))
        for one in self.measurements:
            ok &= one.is_valid(self.real)
        if self.n_records is not None:
            ok &= _is_count(self.n_records)
        if self.class_totals is not None:
            ok &= jnp.all(jnp.isnan(self.class_totals) | _is_count(self.class_totals))
        for group in self.groups:
            ok &= group.is_valid()
        return ok

    def __repr__(self) -> str:
        if not self._is_whole():
            return shapes_repr(self)
        shape = "x".join(map(str, self.batch_shape)) + " datasets of " if self.batch_shape else ""
        return (
            f"NoisyTables({shape}{self.n_classes} classes x {self.n_features} features x "
            f"{self.counts.shape[-1]} categories, N={_brief(self.n_records)}, {self.noise!r}"
            f"{self._beside()}"
            f"{totals.describe(self.n_records_p_value(), only_doubts=True)})"
        )

    def _beside(self) -> str:
        """What a description says of the rest."""
        found = [f", {len(self.also) + 1} releases"] if self.also else []
        found += [", intervals"] if any(x.upper is not None for x in self.measurements) else []
        found += [", public class totals"] if self.class_totals is not None else []
        found += [f", totals of {len(self.groups)} groups"] if self.groups else []
        return "".join(found)

    def _is_whole(self) -> bool:
        """Whether these are tables, and not what JAX or a failed check left of them."""
        names = ("counts", "n_records", "noise", "mask", "upper", "class_totals")
        parts: Iterator[Any] = (getattr(self, name, None) for name in names)
        counts, n_records, noise, mask, upper, totals_ = parts
        scales = jax.tree.leaves(noise)
        optional = (n_records, mask, upper, totals_)
        arrays = [counts, *scales, *(x for x in optional if x is not None)]
        also = getattr(self, "also", None)
        if not isinstance(also, tuple) or not all(isinstance(x, Measurement) for x in also):
            return False
        groups = getattr(self, "groups", None)
        if not isinstance(groups, tuple) or not all(isinstance(x, Group) for x in groups):
            return False
        if not isinstance(noise, Noise) or not all(
            isinstance(x, jax.Array | np.ndarray) for x in arrays
        ):
            return False
        *batch, I, K, J = counts.shape if counts.ndim >= 3 else (None, 0, 0, 0)
        per_dataset, per_table = tuple(batch), (*batch, K)
        return (
            (n_records is None or n_records.shape == per_dataset)
            and all(x.shape in (per_dataset, per_table) for x in scales)
            and (mask is None or mask.shape in ((*per_table, J), (*batch, I, K, J)))
        )

    def n_records_p_value(self) -> float | None:
        """How well the totals fit N: a tail probability, uniform in (0, 1) where N is right.

        A table's total is N plus the noise of its cells; see `jaxprivnb.totals` for how tables are
        combined. Below 1e-3 a description asks whether N is right, below 1e-6 a fit warns. Of one
        dataset whose numbers are known; else, and for a noise of one's own, None.
        """
        return totals.p_value(self)

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
    n_records: Any = None
    """log weights of N = 0, 1, ..., S - 1, float `[..., S]`, where N is not known; other N have
    none. None: all N have the same weight, 1."""

    def __post_init__(self) -> None:
        class_ = validate.as_float_array("prior.class_", self.class_)
        feature = validate.as_float_array("prior.feature", self.feature)
        if self.n_records is not None:
            weights = validate.as_float_array("prior.n_records", self.n_records)
            validate.log_weights("prior.n_records", weights, feature.shape[:-3])
            set_fields(self, n_records=weights)
        if feature.ndim < 3 or class_.shape != feature.shape[:-2]:
            raise ValueError(
                "prior.class_ must have shape [I] and prior.feature [I, K, J], with the same "
                f"leading axes if any; got {class_.shape} and {feature.shape}"
            )
        if class_.ndim == 1:
            validate.positive("prior.class_", class_)
        set_fields(self, class_=class_, feature=feature)

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
        ok = jnp.all(jnp.isfinite(self.class_) & (self.class_ > 0)) & jnp.all(feature_ok)
        if self.n_records is None:
            return ok
        return ok & jnp.all(self.n_records < jnp.inf) & jnp.any(self.n_records > -jnp.inf)


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
        f"prior must be a jaxprivnb.Prior, None or, in exact fits, 'learned', got "
        f"{validate.word(prior)}; one concentration for all is "
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


def noise_for(
    noise: Any, dtype: DTypeLike, batch: tuple[int, ...], n_features: int, *, name: str = "noise"
) -> Any:
    """A noise, checked, in `dtype`, its scale shaped `batch` or `batch + [K]`."""
    if not isinstance(noise, Noise) or isinstance(noise, type):
        raise TypeError(
            f"{name} must be Laplace, Geometric, Gaussian or another noise object, "
            f"got {validate.describe(noise)}"
        )
    name = f"{name}.{noise.parameter}"
    return jax.tree.map(
        lambda x: validate.noise_parameter(
            name, validate.as_float_array(name, x, dtype), batch, n_features
        ),
        noise,
    )


def _like_counts(name: str, x: Any, counts: jax.Array) -> jax.Array | None:
    """An optional array of the shape and dtype of `counts`."""
    if x is None:
        return None
    array = validate.as_float_array(name, x, counts.dtype)
    if array.shape != counts.shape:
        raise ValueError(f"{name} must have the shape of counts {counts.shape}, got {array.shape}")
    return array


def _resolved_groups(groups: Any, counts: jax.Array, n_known: bool) -> tuple[Group, ...]:
    """The argument `groups`, checked, in the dtype of `counts` and with its leading axes."""
    if isinstance(groups, Group) or not isinstance(groups, Iterable):
        raise TypeError(f"groups must be a sequence of Group, got {validate.describe(groups)}")
    batch, I, found = counts.shape[:-3], counts.shape[-3], []
    for r, group in enumerate(groups):
        if not isinstance(group, Group):
            raise TypeError(f"groups[{r}] must be a Group, got {validate.describe(group)}")
        name, noise = f"groups[{r}].", group.noise
        total = validate.as_float_array(f"{name}total", group.total, counts.dtype)
        total = validate.broadcast_to_batch(f"{name}total", total, batch)
        if not isinstance(noise, Known):
            noise = noise_for(noise, counts.dtype, batch, 1, name=f"{name}noise")
            noise = jax.tree.map(lambda s: s.reshape(batch), noise)
        found.append(with_fields(group, total=total, noise=noise))
        if not n_known and 1 < len(group.classes) < I:
            raise ValueError(
                f"n_records must be known beside {name[:-1]}, the total of some of several classes;"
                " without it groups may be of one class, or of all"
            )
    validate.laminar("groups", [group.classes for group in found], I)
    return tuple(found)


def _resolved(name: str, one: Any, counts: jax.Array) -> Measurement:
    """A further measurement, checked, in the shape and dtype of `counts`."""
    if not isinstance(one, Measurement):
        raise TypeError(f"{name[:-1]} must be a Measurement, got {type(one).__name__}")
    own = _like_counts(f"{name}counts", one.counts, counts)
    noise = noise_for(one.noise, counts.dtype, counts.shape[:-3], counts.shape[-2])
    return Measurement(own, noise, _like_counts(f"{name}upper", one.upper, counts))


def _is_count(x: jax.Array) -> jax.Array:
    """Whether all entries are whole numbers >= 0, bool scalar for one dataset's N."""
    return jnp.isfinite(x) & (x >= 0) & (jnp.floor(x) == x)


def full_mask(counts: jax.Array, mask: jax.Array | None) -> jax.Array:
    """`mask`, or all True, as bool `[..., K, J]` or `[..., I, K, J]`."""
    if mask is not None:
        return mask
    return jnp.ones((*counts.shape[:-3], *counts.shape[-2:]), bool)


def mask_from_categories(n_categories: tuple[int, ...]) -> jax.Array | None:
    """Mask `[K, J]` of features with the given numbers of categories; None if all are equal."""
    if len(set(n_categories)) == 1:
        return None
    return jnp.arange(max(n_categories)) < jnp.asarray(n_categories)[:, None]


def _brief(x: jax.Array | None) -> str:
    if x is None:
        return "unknown"
    if not validate.is_concrete(x) or not hasattr(x, "shape"):
        return "?"
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    return f"{low:g}" if low == high else f"{low:g}..{high:g}"
