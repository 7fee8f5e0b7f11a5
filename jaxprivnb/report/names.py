"""What the classes, features and categories are called, and which cells they stand in."""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.privacy.domain import Column, Domain

_FORMULA = tuple("=+-@＝＋－＠")
"""How what spreadsheets take for a formula begins."""


class Names(NamedTuple):
    """Labels of classes, features and categories, and where they stand in arrays `[..., K, J]`.

    The table of the class, which a release may hold after the features', has no name and is left
    out.
    """

    domain: Domain
    cells: tuple[tuple[int, ...], ...]
    """The cells of each feature's categories."""

    @classmethod
    def of(cls, domain: Any, n_classes: int, mask: Any) -> "Names":
        """The given names, or numbers: classes 0, 1, ..., features x0, ..., categories 0, 1, ...

        Args:
            domain: a `Domain`, what has one, or None.
            n_classes: I.
            mask: real cells of one dataset, bool `[K, J]`.
        """
        given = getattr(domain, "domain", domain)
        if not isinstance(given, Domain | None):
            raise TypeError(
                f"domain must be a Release, a Domain or None, got {validate.describe(domain)}"
            )
        cells = tuple(tuple(np.flatnonzero(row).tolist()) for row in np.asarray(mask))
        if given is None:
            features = tuple(Column(f"x{k}", own) for k, own in enumerate(cells))
            return cls(Domain(Column("class", tuple(range(n_classes))), features), cells)
        cells = cells[: len(given.features)]
        if len(given.class_) != n_classes or given.n_categories != tuple(map(len, cells)):
            raise ValueError(
                f"domain has {len(given.class_)} classes and features of {given.n_categories} "
                f"categories; the arrays have {n_classes} classes and {tuple(map(len, cells))}"
            )
        return cls(given, cells)

    def class_index(self, label: Any) -> int:
        """The index of a class given by label or position."""
        return _index("class_", label, self.domain.class_.categories)

    def feature_index(self, label: Any) -> int:
        """The index of a feature given by name or position."""
        return _index("feature", label, [f.name for f in self.domain.features])

    def category_index(self, k: int, label: Any) -> int:
        """The cell of a category of feature k, given by label or position."""
        feature = self.domain.features[k]
        return self.cells[k][_index(f"category of {feature.name}", label, feature.categories)]

    def event(self, k: int, j: int) -> str:
        """X_k = j in words, for the category in cell j."""
        feature = self.domain.features[k]
        return shown(f"{feature.name} = {feature.categories[self.cells[k].index(j)]}")

    def class_event(self, i: int) -> str:
        """Y = i in words."""
        return shown(f"{self.domain.class_.name} = {self.domain.class_.categories[i]}")

    def parameter(self, i: int, k: int | None = None, j: int | None = None) -> str:
        """How P(Y=i), or P(X_k=j | Y=i), is written."""
        if k is None or j is None:
            return f"P({self.class_event(i)})"
        return f"P({self.event(k, j)} | {self.class_event(i)})"


def _index(what: str, label: Any, known: Sequence[Any]) -> int:
    """Labels come before positions: the class called 2 need not be class number 2."""
    if label in known:
        return known.index(label)
    position = isinstance(label, int | np.integer) and not any(isinstance(x, int) for x in known)
    if position and 0 <= label < len(known):
        return int(label)
    listed = ", ".join(map(repr, known[:12])) + (", ..." if len(known) > 12 else "")
    raise ValueError(f"{what} must be one of {listed}; got {validate.word(label)}")


def in_csv(label: Any) -> Any:
    """A label for a CSV file that a spreadsheet may open: escaped, and never a formula.

    Numbers stay as they are, as text too.
    """
    if not isinstance(label, str):
        return label
    text = shown(label)
    if not text.lstrip().startswith(_FORMULA):
        return text
    with contextlib.suppress(ValueError):
        float(text)
        return text
    return f"'{text}"


def shown(label: Any) -> str:
    """A label for a person: what is not printable is escaped."""
    text = str(label)
    return text if text.isprintable() else ascii(text)
