"""Public domains: which classes and categories there are, settled before the data are seen.

A category list read from the data is itself a leak: it says which values occur. So a domain is
given, or its absence is warned of. A value outside it is refused, or goes to the category
"other", which is there whether or not any record needs it.

Messages name the feature and its public domain, never a record, a value or a count.
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxprivnb import validate
from jaxprivnb.privacy.bins import Bins, is_number, read_bins
from jaxprivnb.privacy.columns import Factor

OTHER = "other"
UNKNOWN = ("error", OTHER)
"""What can become of values outside the domain."""
MAX_CELLS = 2_000_000
"""Largest I * K * J of a release, masked cells and all; files are held to it too."""
MAX_LABEL = 1000
"""Longest name or label, in characters."""

UNFIT = "the domain that was read from the data does not make a release: give the public one"

_MISSING = ("NoneType", "NAType", "NaTType")
"""Types whose only value says that there is none."""

_NAMELESS = (
    "X has no column names (an array has none, nor what a transformer makes of a table): call its "
    'columns "x0", "x1" and so on, or keep their names with transformer.set_output'
    '(transform="pandas")'
)
_RENAMED = (
    "a ColumnTransformer puts its steps' names before the columns', unless "
    "verbose_feature_names_out=False"
)

Label = str | int | float | bool


class PrivacyWarning(UserWarning):
    """Something was taken from the data that the privacy budget does not cover."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A feature, or the class: its name and its public categories."""

    name: str
    categories: tuple[Label, ...]
    """Labels in the order of the tables' cells."""
    bins: Bins | None = None
    """Of a column of numbers, whose categories are then these and perhaps "other"."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.bins is not None and self.categories not in (
            self.bins.labels,
            (*self.bins.labels, OTHER),
        ):
            raise ValueError(f"the categories of {self.name!r} must be those of its bins")
        if not self.categories:
            raise ValueError(f"the categories of {self.name!r} must not be empty")
        seen: set[Label] = set()
        for label in self.categories:
            check_label(f"the categories of {self.name!r}", label)
            if label in seen:
                raise ValueError(f"the categories of {self.name!r} hold a label twice")
            seen.add(label)

    def __len__(self) -> int:
        return len(self.categories)

    def with_other(self) -> "Column":
        """The column with a category "other", the last one unless it was listed."""
        if OTHER in self.categories:
            return self
        return Column(self.name, (*self.categories, OTHER), self.bins)

    def codes(self, column: Factor, *, other: bool) -> np.ndarray:
        """Each record's category, int `[N]`; a value outside is "other" if allowed, else -1."""
        known = {label: j for j, label in enumerate(self.categories)}
        outside = known.get(OTHER, -1) if other else -1
        lookup = [known.get(value, outside) for value in column.values]
        if self.bins is not None:
            found = self.bins.which(column.values)
            lookup = np.where(found < 0, lookup, found).tolist()
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
    bins: Any = None,
    unknown: str | Mapping[str, str] = "error",
) -> Domain:
    """The domain that the arguments state; what they leave out is read from the data, and said."""
    fate = by_column(unknown, class_name, tuple(features))
    if n_categories is not None and categories is not None:
        raise TypeError("give n_categories or categories, not both")
    if n_classes is not None and classes is not None:
        raise TypeError("give n_classes or classes, not both")
    columns = {n: Column(n, x.labels, x) for n, x in binned(bins, tuple(features)).items()}
    for argument, value in (("categories", categories), ("n_categories", n_categories)):
        twice = [n for n in columns if isinstance(value, Mapping) and n in value]
        if twice:
            raise TypeError(f"give bins or {argument} of {twice[0]!r}, not both")
    names = tuple(name for name in features if name not in columns)
    inferred = []
    if categories is not None:
        lists = _by_feature("categories", categories, names)
        columns |= {n: _listed(n, "categories", x) for n, x in zip(names, lists, strict=True)}
    elif n_categories is not None:
        if not isinstance(n_categories, Mapping | Sequence | np.ndarray):
            n_categories = [n_categories] * len(names)
        sizes = _by_feature("n_categories", n_categories, names)
        columns |= {
            n: _numbered(n, f"n_categories of {n!r}", x) for n, x in zip(names, sizes, strict=True)
        }
    elif names:
        columns |= {n: infer_column(n, features[n]) for n in names}
        inferred.append("n_categories (or categories)")
    if classes is not None:
        class_column = _listed(class_name, "classes", classes)
    elif n_classes is not None:
        class_column = _numbered(class_name, "n_classes", n_classes)
    else:
        class_column = infer_column(class_name, class_)
        inferred.append("n_classes (or classes)")
    if inferred:
        warn_inferred(inferred, stacklevel=5)
    in_order = [columns[name] for name in features]
    in_order = [c.with_other() if fate[c.name] == OTHER else c for c in in_order]
    try:
        return Domain(class_column, tuple(in_order))
    except ValueError:
        if not inferred:
            raise
        raise ValueError(UNFIT) from None  # the shape would tell of the data


def binned(bins: Any, features: tuple[str, ...]) -> dict[str, Bins]:
    """The argument `bins`: by feature, for those that have any."""
    if bins is None:
        return {}
    if not isinstance(bins, Mapping):
        raise TypeError(f"bins must be a mapping by feature, got {validate.describe(bins)}")
    extra = [name for name in bins if name not in features]
    if extra and len(extra) == len(bins):  # then they may be anything, records too
        raise ValueError(
            "bins must go by feature, and none of its keys is a feature of X"
            + (f"; {_NAMELESS}" if _has_no_names(features) else f" ({_RENAMED})")
        )
    if extra:
        shown = validate.word(extra[0]) if isinstance(extra[0], str) else "a key"
        raise ValueError(f"bins names {shown}, which is no feature of X")
    return {name: read_bins(name, bins[name]) for name in features if name in bins}


def _has_no_names(features: Sequence[str]) -> bool:
    """Whether the features are called as those of an array are."""
    return bool(features) and all(re.fullmatch(r"x\d+", name) for name in features)


def by_column(unknown: Any, class_name: str, features: tuple[str, ...]) -> dict[str, str]:
    """What becomes of values outside the domain, "error" or "other", by the column's name.

    A mapping says it of some columns; the others' are refused.
    """
    names = (class_name, *features)
    if not isinstance(unknown, Mapping):
        return dict.fromkeys(names, validate.choice("unknown", unknown, UNKNOWN))
    for name in unknown:
        validate.choice("a column of unknown", name, names, quote=False)
    fate = dict.fromkeys(names, UNKNOWN[0])
    return fate | {
        n: validate.choice(f"unknown of {n!r}", x, UNKNOWN, quote=False) for n, x in unknown.items()
    }


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
    if column.bins is not None:
        _check_numbers(column, factor, what, unknown)
    codes = column.codes(factor, other=unknown == OTHER)
    if (codes < 0).any() and column.bins is not None:
        beyond = ", or outside its edges" if column.bins.outside == "refuse" else ""
        raise ValueError(
            f"{what} {column.name!r} has a value that is missing{beyond}. {_remedy(what)}"
        )
    if (codes < 0).any():
        raise ValueError(
            f"{what} {column.name!r} has a value that is missing or not among its categories. "
            f"{_remedy(what)}"
        )
    return codes


def _check_numbers(column: Column, factor: Factor, what: str, unknown: str) -> None:
    """Raise if a column with bins has other things than numbers: all of them, if "other" is for
    some.
    """
    occurring = [factor.values[i] for i in np.unique(factor.which) if i >= 0]
    odd = [
        value
        for value in occurring
        if not is_number(value)
        and type(value).__name__ not in _MISSING
        and value not in column.categories
    ]
    if odd and (unknown != OTHER or not any(map(is_number, occurring))):
        raise ValueError(
            f"{what} {column.name!r} has bins, so its values must be numbers, "
            f"got {type(odd[0]).__name__}: convert it before the release"
        )


def check_name(name: Any, what: str = "a name") -> str:
    """Raise unless `name` can name a column."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a string, got {validate.describe(name)}")
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
        'unknown={the feature: "other"}, on the command line --unknown other --unknown-in FEATURE '
        '(labels match by value and type: 1 is not "1")'
    )


def _by_feature(argument: str, value: Any, names: tuple[str, ...]) -> list[Any]:
    """One entry a feature, from a mapping by name or a sequence in the columns' order."""
    if isinstance(value, Mapping):
        lacking = [name for name in names if name not in value]
        extra = [name for name in value if name not in names]
        if lacking:
            if _has_no_names(names) and len(extra) == len(value):
                raise ValueError(f"{argument} goes by name, but {_NAMELESS}")
            # Keys among which is no feature may be anything, records too.
            known = len(extra) < len(value)
            stray = f", and {validate.word(extra[0])} is no feature of X" if extra and known else ""
            raise ValueError(
                f"{argument} lacks feature {lacking[0]!r}{stray}; it must cover every one that is "
                "released, and feature_names= says which are"
            )
        if extra:
            raise ValueError(
                f"{argument} names {validate.word(extra[0])}, which is no feature of X"
            )
        return [value[name] for name in names]
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(
            f"{argument} must be a mapping by feature or a sequence, got {validate.describe(value)}"
        )
    if len(value) != len(names):
        raise ValueError(
            f"{argument} must have one entry a feature: X has {len(names)}, "
            f"got {validate.size(len(value))}"
        )
    return list(value)


def _listed(name: str, argument: str, labels: Any) -> Column:
    array_like = isinstance(labels, Sequence) or hasattr(labels, "__array__")
    if isinstance(labels, str) or not array_like:
        raise TypeError(
            f"{argument} of {name!r} must be a list of labels, got {type(labels).__name__}"
        )
    plain = (x.item() if isinstance(x, np.generic) else x for x in labels)
    return Column(name, tuple(plain))


def _numbered(name: str, argument: str, size: Any) -> Column:
    size = size.item() if isinstance(size, np.generic) else size
    size = validate.whole_number(argument, size, at_least=1, quote=False)
    if size > MAX_CELLS:
        raise ValueError(f"{argument} must be at most {MAX_CELLS}")
    return Column(name, tuple(range(size)))


def infer_column(name: str, factor: Factor) -> Column:
    """The labels that occur, in order; of a pandas categorical its levels, in theirs."""
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
            "public edges (bins={the feature: edges}), or give the public domain"
        )
    if not labels:
        raise ValueError(f"{name!r} has no values to read a domain from: give the public domain")
    if not factor.declared:
        # Whole floats are codes that met a missing value on their way: 1.0 is the label 1.
        labels = [int(v) if isinstance(v, float) else v for v in labels]
        labels.sort(key=lambda v: (isinstance(v, str), v))
    if len(labels) > MAX_CELLS or any(isinstance(v, int) and abs(v) >= 2**63 for v in labels):
        # Not how many, nor how large: that is the data's to know.
        raise ValueError(
            f"{name!r} has too large a domain to read from the data: give the public one"
        )
    return Column(name, tuple(labels))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
