"""Public domains: which classes and categories there are, settled before the data are seen.

A category list read from the data is itself a leak: it says which values occur. So a domain is
given, or its absence is warned of. A value outside it is refused, or goes to the category
"other", which is there whether or not any record needs it.

Messages name the feature and its public domain, never a record, a value or a count.
"""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxprivnb import validate
from jaxprivnb.privacy.columns import Factor

OTHER = "other"
MAX_CELLS = 2_000_000
"""Largest I * K * J of a release, masked cells and all; files are held to it too."""
MAX_LABEL = 1000
"""Longest name or label, in characters."""

UNFIT = "the domain that was read from the data does not make a release: give the public one"

_MISSING = ("NoneType", "NAType", "NaTType")
"""Types whose only value says that there is none."""

Label = str | int | float | bool


class PrivacyWarning(UserWarning):
    """Something was taken from the data that the privacy budget does not cover."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A feature, or the class: its name and its public categories."""

    name: str
    categories: tuple[Label, ...]
    """Labels in the order of the tables' cells."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.categories:
            raise ValueError(f"the categories of {self.name!r} must not be empty")
        seen: set[Label] = set()
        for label in self.categories:
            check_label(f"the categories of {self.name!r}", label)
            if label in seen:
                raise ValueError(f"the categories of {self.name!r} hold {label!r} twice")
            seen.add(label)

    def __len__(self) -> int:
        return len(self.categories)

    def with_other(self) -> "Column":
        """The column with a category "other", the last one unless it was listed."""
        if OTHER in self.categories:
            return self
        return Column(self.name, (*self.categories, OTHER))

    def codes(self, column: Factor, *, other: bool) -> np.ndarray:
        """Each record's category, int `[N]`; a value outside is "other" if allowed, else -1."""
        known = {label: j for j, label in enumerate(self.categories)}
        outside = known.get(OTHER, -1) if other else -1
        lookup = [known.get(value, outside) for value in column.values]
        return np.asarray([*lookup, outside], np.intp)[column.which]  # -1 is the last


@dataclasses.dataclass(frozen=True)
class Domain:
    """The class and the features."""

    class_: Column
    features: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [self.class_.name, *(f.name for f in self.features)]
        if len(set(names)) != len(names):
            raise ValueError("the class and the features must have names of their own")
        I, K, J = self.shape
        if I * K * J > MAX_CELLS:
            raise ValueError(
                f"{I} classes x {K} features x {J} categories are more than the "
                f"{MAX_CELLS} cells a release may have"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(I, K, J) with J the largest number of categories."""
        return len(self.class_), len(self.features), max(map(len, self.features), default=0)

    @property
    def n_categories(self) -> tuple[int, ...]:
        """J_k of every feature."""
        return tuple(map(len, self.features))


def settle_domain(
    features: Mapping[str, Factor],
    class_name: str,
    class_: Factor,
    *,
    n_categories: Any = None,
    n_classes: Any = None,
    categories: Any = None,
    classes: Any = None,
    unknown: str = "error",
) -> Domain:
    """The domain that the arguments state; what they leave out is read from the data, and said."""
    validate.choice("unknown", unknown, ("error", "other"))
    if n_categories is not None and categories is not None:
        raise TypeError("give n_categories or categories, not both")
    if n_classes is not None and classes is not None:
        raise TypeError("give n_classes or classes, not both")
    names = tuple(features)
    inferred = []
    if categories is not None:
        lists = _by_feature("categories", categories, names)
        columns = [_listed(name, "categories", x) for name, x in zip(names, lists, strict=True)]
    elif n_categories is not None:
        if not isinstance(n_categories, Mapping | Sequence | np.ndarray):
            n_categories = [n_categories] * len(names)
        sizes = _by_feature("n_categories", n_categories, names)
        columns = [
            _numbered(n, f"n_categories of {n!r}", x) for n, x in zip(names, sizes, strict=True)
        ]
    else:
        columns = [infer_column(name, factor) for name, factor in features.items()]
        inferred.append("n_categories (or categories)")
    if classes is not None:
        class_column = _listed(class_name, "classes", classes)
    elif n_classes is not None:
        class_column = _numbered(class_name, "n_classes", n_classes)
    else:
        class_column = infer_column(class_name, class_)
        inferred.append("n_classes (or classes)")
    if inferred:
        warn_inferred(inferred, stacklevel=4)
    if unknown == "other":
        columns = [column.with_other() for column in columns]
    try:
        return Domain(class_column, tuple(columns))
    except ValueError:
        if not inferred:
            raise
        raise ValueError(UNFIT) from None  # the shape would tell of the data


def warn_inferred(arguments: list[str], stacklevel: int) -> None:
    """Warn that the data said what these arguments did not."""
    warnings.warn(
        f"{' and '.join(arguments)} not given, so read from the data: the release reveals "
        "which values occur, and the privacy budget does not cover that. Give the public "
        "domain instead",
        PrivacyWarning,
        stacklevel=stacklevel,
    )


def encode(column: Column, factor: Factor, *, what: str, unknown: str) -> np.ndarray:
    """Every record's category, int `[N]` in 0..J-1; a value outside the domain is refused."""
    codes = column.codes(factor, other=unknown == "other")
    if (codes < 0).any():
        raise ValueError(
            f"{what} {column.name!r} has a value that is missing or not among its categories. "
            f"{_remedy(what)}"
        )
    return codes


def check_name(name: Any, what: str = "a name") -> str:
    """Raise unless `name` can name a column."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a string, got {name!r}")
    if not 0 < len(name) <= MAX_LABEL:
        raise ValueError(f"{what} must have 1 to {MAX_LABEL} characters, got {len(name)}")
    return name


def check_label(what: str, label: Any) -> None:
    """Raise unless `label` can be a category: text, a finite number or a truth value."""
    if not isinstance(label, str | int | float):
        hint = '; with unknown="other", missing values are in "other"' if label is None else ""
        raise TypeError(
            f"{what} must be strings, numbers or booleans, got {type(label).__name__}{hint}"
        )
    if isinstance(label, str) and len(label) > MAX_LABEL:
        raise ValueError(f"{what} must have at most {MAX_LABEL} characters each")
    if isinstance(label, float) and not math.isfinite(label):
        raise ValueError(f"{what} must be finite, got {label!r}")
    if isinstance(label, int) and abs(label) >= 2**63:
        raise ValueError(f"{what} must be below 2^63 in size")


def _remedy(what: str) -> str:
    if what == "class":
        return (
            'Recode it before the release, or list a class "other" in classes and give '
            'unknown="other" (labels match by value and type: 1 is not "1")'
        )
    return (
        "Recode it before the release, widen the public domain, or give "
        'unknown="other", on the command line --unknown other (labels match by value and type: '
        '1 is not "1")'
    )


def _by_feature(argument: str, value: Any, names: tuple[str, ...]) -> list[Any]:
    """One entry a feature, from a mapping by name or a sequence in the columns' order."""
    if isinstance(value, Mapping):
        lacking = [name for name in names if name not in value]
        extra = [name for name in value if name not in names]
        if lacking:
            stray = f", and {extra[0]!r} is no feature of X" if extra else ""
            raise ValueError(
                f"{argument} lacks feature {lacking[0]!r}{stray}; it must cover every one that is "
                "released, and feature_names= says which are"
            )
        if extra:
            raise ValueError(f"{argument} names {extra[0]!r}, which is no feature of X")
        return [value[name] for name in names]
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(f"{argument} must be a mapping by feature or a sequence, got {value!r}")
    if len(value) != len(names):
        raise ValueError(
            f"{argument} must have one entry a feature: X has {len(names)}, got {len(value)}"
        )
    return list(value)


def _listed(name: str, argument: str, labels: Any) -> Column:
    array_like = isinstance(labels, Sequence) or hasattr(labels, "__array__")
    if isinstance(labels, str) or not array_like:
        raise TypeError(f"{argument} of {name!r} must be a list of labels, got {labels!r}")
    plain = (x.item() if isinstance(x, np.generic) else x for x in labels)
    return Column(name, tuple(plain))


def _numbered(name: str, argument: str, size: Any) -> Column:
    size = size.item() if isinstance(size, np.generic) else size
    size = validate.whole_number(argument, size, at_least=1)
    if size > MAX_CELLS:
        raise ValueError(f"{argument} must be at most {MAX_CELLS}, got {size}")
    return Column(name, tuple(range(size)))


def infer_column(name: str, factor: Factor) -> Column:
    """The labels that occur; for whole numbers >= 0, all up to the largest.

    Of a pandas categorical it is its levels, in their order.
    """
    if factor.declared:
        occurring = factor.values
    else:
        occurring = [factor.values[i] for i in np.unique(factor.which) if i >= 0]
    labels = [v for v in occurring if isinstance(v, str) or _is_finite(v)]
    for value in occurring:
        kind = type(value).__name__
        if not isinstance(value, str | int | float) and kind not in _MISSING:
            raise TypeError(
                f"the values of {name!r} must be strings, numbers or booleans, got {kind}: "
                "make them strings (pandas.cut has labels=), or give the public domain"
            )
    if not factor.declared and any(isinstance(v, float) and v % 1 for v in labels):
        raise ValueError(
            f"{name!r} has numbers that are not whole, which looks continuous: divide it at "
            "public edges into categories (pandas.cut with labels=), or give the public domain"
        )
    if not labels:
        raise ValueError(f"{name!r} has no values to read a domain from: give the public domain")
    if factor.declared and len(labels) <= MAX_CELLS:
        return Column(name, tuple(labels))
    if all(not isinstance(v, str | bool) and v >= 0 and v == v // 1 for v in labels):
        size = int(max(labels)) + 1
        if size <= MAX_CELLS:
            return Column(name, tuple(range(size)))
    elif len(labels) <= MAX_CELLS:
        return Column(name, tuple(sorted(labels, key=lambda v: (isinstance(v, str), v))))
    # Not how many: that is the data's to know.
    raise ValueError(f"{name!r} has too large a domain to read from the data: give the public one")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
