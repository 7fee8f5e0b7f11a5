"""What is released: noisy integer tables, and the promise they were made under."""

import dataclasses
import math
import os
from fractions import Fraction
from typing import Any

import numpy as np

from jaxprivnb import validate
from jaxprivnb._pytree import register, shapes_repr
from jaxprivnb.noise import (
    Gaussian,
    Geometric,
    Neighbours,
    check_neighbours,
    l1_sensitivity,
    l2_sensitivity_squared,
)
from jaxprivnb.privacy.bins import Bins
from jaxprivnb.privacy.budget import Measure
from jaxprivnb.privacy.columns import read_features
from jaxprivnb.privacy.conversion import epsilon_from_rho
from jaxprivnb.privacy.domain import Domain
from jaxprivnb.tables import NoisyTables, mask_from_categories

FORMAT_VERSION = 1


def relation(neighbours: Neighbours, contributions: int) -> str:
    """What makes a dataset a neighbour, in words."""
    verb = "replace" if neighbours == "replace" else "add or remove"
    return f"{verb} {'one record' if contributions == 1 else f'up to {contributions} records'}"


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The promise: neighbouring datasets give nearly the same releases.

    Neighbours differ in up to c records, one person's: replaced by any others, and then N is the
    same and public, or added or removed, and then N is not known.
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
    neighbours: Neighbours = "replace"
    """"replace" or "add-remove"."""
    contributions: int = 1
    """c, the records in which neighbours differ at most."""

    @property
    def relation(self) -> str:
        """What makes a dataset a neighbour, in words."""
        return relation(self.neighbours, self.contributions)

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
        """How far a table moves: 2 c in L1, sqrt(2) c in L2 where records are replaced; else c."""
        if self.measure == "epsilon":
            return float(l1_sensitivity(self.neighbours, self.contributions))
        return math.sqrt(l2_sensitivity_squared(self.neighbours, self.contributions))

    @property
    def rho(self) -> float:
        """The total as zCDP: a table that is epsilon-DP is (epsilon^2 / 2)-zCDP."""
        if self.measure == "rho":
            return self.total
        return math.fsum(e * e / 2 for e in self.per_table)

    def epsilon(self, delta: float = 0.0) -> float:
        """The smallest epsilon at which (epsilon, delta)-DP is promised.

        A zCDP release promises no epsilon at delta = 0. At delta > 0 it is the bound of Canonne,
        Kamath and Steinke, which is below rho + 2 sqrt(rho log(1 / delta)).
        """
        delta = validate.real_number("delta", delta, above=0, below=1, allow_zero=True)
        if self.measure == "epsilon":
            return self.total
        if delta == 0:
            return math.inf
        return epsilon_from_rho(self.rho, delta)

    def under(self, neighbours: Neighbours = "replace", contributions: int = 1) -> "Guarantee":
        """What the same noise promises to other neighbours.

        Epsilon goes with the L1 sensitivity, rho with the square of the L2 one. Where records are
        replaced N is public, and that promises nothing to one who is added or removed: a
        `ValueError`.
        """
        check_neighbours(neighbours, contributions)
        if (neighbours, contributions) == (self.neighbours, self.contributions):
            return self
        if (self.neighbours, neighbours) == ("replace", "add-remove"):
            raise ValueError(
                "neighbours must be 'replace' for a release that publishes N: who adds or removes "
                "a record changes N, so the release tells of it for certain"
            )
        moves = l1_sensitivity if self.measure == "epsilon" else l2_sensitivity_squared
        factor = Fraction(
            moves(neighbours, contributions), moves(self.neighbours, self.contributions)
        )
        total = _from_above(factor * Fraction(self.total))
        return dataclasses.replace(
            self,
            stated=total,
            total=total,
            per_table=tuple(_from_above(factor * Fraction(x)) for x in self.per_table),
            neighbours=neighbours,
            contributions=contributions,
        )

    def __str__(self) -> str:
        kind = "pure DP" if self.measure == "epsilon" else "zCDP"
        return f"{self.measure}_total={self.stated:g} ({kind}, {self.relation})"


def _from_above(x: Fraction) -> float:
    nearest = float(x)
    return nearest if nearest >= x else math.nextafter(nearest, math.inf)


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
    size: int | None
    """N, which float32 could not hold above 2^24; None where neighbours differ in N."""
    domain: Domain
    guarantee: Guarantee
    versions: dict[str, str]
    """Of the libraries that made it."""

    @classmethod
    def assemble(
        cls,
        tables: list[np.ndarray],
        class_table: np.ndarray | None,
        n_records: int | None,
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
    def bins(self) -> dict[str, Bins]:
        """The bins of the features that are numbers."""
        return {f.name: f.bins for f in self.domain.features if f.bins is not None}

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes' labels."""
        return self.domain.class_.categories

    @property
    def size_text(self) -> str:
        """N in words: "N=60", or "N unknown"."""
        return "N unknown" if self.size is None else f"N={self.size}"

    def encode(self, X: Any) -> np.ndarray:
        """Records as `predict_proba` takes them, int `[n, K]` (`[n, K + 1]` with a class table).

        Numbers of a feature with bins become their bins. A value outside the domain is "other"
        where there is one, otherwise -1, missing.
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
        if not self._is_whole():
            return shapes_repr(self)
        I, K, J = self.integers.shape
        class_ = " and the class table" if self.class_integers is not None else ""
        return (
            f"Release({I} classes x {K} features x {J} categories{class_}, "
            f"{self.size_text}, {self.noise!r}, {self.guarantee})"
        )


# Names, labels and budgets stay out of the tree: they would key compiled programs.
register(Release, NoisyTables)
