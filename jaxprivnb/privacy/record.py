"""What is released: noisy integer tables, and the promise they were made under."""

import dataclasses
import math
import os
from typing import Any

import jax
import numpy as np

from jaxprivnb import validate
from jaxprivnb.noise import Gaussian, Geometric
from jaxprivnb.privacy.budget import Measure
from jaxprivnb.privacy.columns import read_features
from jaxprivnb.privacy.domain import Domain
from jaxprivnb.tables import NoisyTables, mask_from_categories

NEIGHBOURS = "replace one record"
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The promise: neighbouring datasets give nearly the same releases.

    Neighbours differ in one record, replaced by any other; N is the same, and public.
    """

    measure: Measure
    """"epsilon": pure differential privacy; "rho": zero-concentrated (zCDP)."""
    stated: float
    """The total that was asked for; for a budget per table, that of all tables."""
    total: float
    """The total that OpenDP's composition map proves; at most `stated`."""
    per_table: tuple[float, ...]
    """Each table's budget by OpenDP's map: the features in order, then the class if released."""
    scales: tuple[float, ...]
    """Noise scales in the same order: b with pmf proportional to exp(-|x|/b), or sigma."""

    neighbours = NEIGHBOURS

    @property
    def mechanism(self) -> str:
        """The noise that was added."""
        return "discrete Laplace" if self.measure == "epsilon" else "discrete Gaussian"

    @property
    def norm(self) -> str:
        """In which a table's sensitivity is measured."""
        return "L1" if self.measure == "epsilon" else "L2"

    @property
    def sensitivity(self) -> float:
        """How far one table moves when one record is replaced: 2 in L1, sqrt(2) in L2."""
        return 2.0 if self.measure == "epsilon" else math.sqrt(2)

    @property
    def rho(self) -> float:
        """The total as zCDP: a table that is epsilon-DP is (epsilon^2 / 2)-zCDP."""
        if self.measure == "rho":
            return self.total
        return math.fsum(e * e / 2 for e in self.per_table)

    def epsilon(self, delta: float = 0.0) -> float:
        """The smallest epsilon at which (epsilon, delta)-DP is promised, by the usual conversion.

        A zCDP release promises no epsilon at delta = 0; at delta > 0 it is
        rho + 2 sqrt(rho log(1 / delta)).
        """
        delta = validate.real_number("delta", delta, above=0, below=1, allow_zero=True)
        if self.measure == "epsilon":
            return self.total
        if delta == 0:
            return math.inf
        return self.rho + 2 * math.sqrt(self.rho * -math.log(delta))

    def __str__(self) -> str:
        kind = "pure DP" if self.measure == "epsilon" else "zCDP"
        return f"{self.measure}_total={self.stated:g} ({kind}, {self.neighbours})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Release(NoisyTables):
    """Noisy tables of real data with the promise they keep; every fit takes one.

    Made by `jaxprivnb.release` or `jaxprivnb.load_release`. Mapping or transforming it as a JAX
    tree gives a plain `NoisyTables`: changed numbers are no longer the release.

    The noise is `Geometric` for epsilon. For rho it is `Gaussian`, whose density at the integers
    is proportional to the discrete Gaussian's pmf, so posteriors are those of the noise that was
    drawn; the evidence is off by a factor within 2 exp(-2 pi^2 sigma^2) of 1, 6e-9 at sigma = 1.

    The class's own table, where it was released, informs n[i] alone: as a table of a feature that
    has one category, which every record has. It stands last in `counts`, so `n_features` is then
    K + 1, and `encode` gives records that category.
    """

    integers: np.ndarray
    """The features' tables as drawn, int64 `[I, K, J]`; masked cells are 0."""
    class_integers: np.ndarray | None = None
    """The class's table as drawn, int64 `[I]`, if it was released."""
    size: int
    """N, which float32 could not hold above 2^24."""
    domain: Domain
    guarantee: Guarantee
    versions: dict[str, str]
    """Of the libraries that made it."""

    @classmethod
    def assemble(
        cls,
        tables: list[np.ndarray],
        class_table: np.ndarray | None,
        n_records: int,
        domain: Domain,
        guarantee: Guarantee,
        versions: dict[str, str],
    ) -> "Release":
        """From noisy int64 tables `[I, J_k]`, and `[I]` for the class."""
        integers = np.zeros(domain.shape, np.int64)
        for k, table in enumerate(tables):
            integers[:, k, : table.shape[1]] = table
        counts, sizes = integers, domain.n_categories
        if class_table is not None:
            one_category = np.zeros_like(integers[:, :1])
            one_category[:, 0, 0] = class_table
            counts, sizes = np.concatenate([integers, one_category], axis=1), (*sizes, 1)
        kind = Geometric if guarantee.measure == "epsilon" else Gaussian
        scales = guarantee.scales
        noise = kind(scales[0] if len(set(scales)) == 1 else np.asarray(scales))
        for array in (integers, class_table):
            if array is not None:
                array.setflags(write=False)
        return cls(
            counts=counts,
            n_records=n_records,
            noise=noise,
            mask=mask_from_categories(sizes),
            integers=integers,
            class_integers=class_table,
            size=n_records,
            domain=domain,
            guarantee=guarantee,
            versions=dict(versions),
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The K features' names."""
        return tuple(f.name for f in self.domain.features)

    @property
    def categories(self) -> dict[str, tuple[Any, ...]]:
        """Every feature's labels, in the order of the cells."""
        return {f.name: f.categories for f in self.domain.features}

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes' labels."""
        return self.domain.class_.categories

    def encode(self, X: Any) -> np.ndarray:
        """Records as `predict_proba` takes them, int `[n, K]` (`[n, K + 1]` with a class table).

        A value outside the domain is "other" where there is one, otherwise -1, missing.
        """
        columns = read_features(X, self.feature_names)
        codes = [f.codes(columns[f.name], other=True) for f in self.domain.features]
        if self.class_integers is not None:
            codes.append(np.zeros_like(codes[0]))
        return np.stack(codes, axis=-1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one JSON file, whole or not at all; `load_release` reads it."""
        from jaxprivnb.privacy.file import save_release

        save_release(self, path)

    def __repr__(self) -> str:
        I, K, J = self.integers.shape
        class_ = " and the class table" if self.class_integers is not None else ""
        return (
            f"Release({I} classes x {K} features x {J} categories{class_}, "
            f"N={self.size}, {self.noise!r}, {self.guarantee})"
        )


_CHILDREN = tuple(f.name for f in dataclasses.fields(NoisyTables))


def _flatten(release: Release) -> tuple[tuple[Any, ...], None]:
    return tuple(getattr(release, name) for name in _CHILDREN), None


def _flatten_with_keys(release: Release) -> tuple[tuple[tuple[Any, Any], ...], None]:
    values, aux = _flatten(release)
    keys = map(jax.tree_util.GetAttrKey, _CHILDREN)
    return tuple(zip(keys, values, strict=True)), aux


def _unflatten(aux: None, values: Any) -> Any:
    plain = object.__new__(NoisyTables)
    for name, value in zip(_CHILDREN, values, strict=True):
        object.__setattr__(plain, name, value)
    return plain


# Names, labels and budgets stay out of the tree: they would key compiled programs.
jax.tree_util.register_pytree_with_keys(Release, _flatten_with_keys, _unflatten, _flatten)
