"""Records as columns, from arrays, pandas or Arrow; neither library is imported for it.

A column is kept factorised: its distinct values, and for every record the index of its value.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate


class ReadName(str):
    """A column's name that only the records say; its repr is where the column stands.

    Messages quote names by repr: of a table that was read without its header, they would otherwise
    show the first record.
    """

    place: str

    def __new__(cls, name: Any, place: str) -> "ReadName":  # noqa: D102
        self = super().__new__(cls, name)
        self.place = place
        return self

    def __repr__(self) -> str:
        return self.place


class Factor(NamedTuple):
    """One column of the records. Holds private data: never shown, logged or saved."""

    values: list[Any]
    """Distinct values, as Python objects; may hold NaN and None."""
    which: np.ndarray
    """Which value each record has, int `[N]`; -1 for none."""
    declared: bool = False
    """Whether the values are the levels of a pandas categorical, in its order, used or not."""

    def __repr__(self) -> str:
        return "Factor(private)"


def read_records(
    X: Any, y: Any, feature_names: Sequence[str] | None
) -> tuple[dict[str, Factor], str, Factor]:
    """The features by name, the class's name and the class, of N records each."""
    named = named_columns(X)
    if isinstance(y, str):
        if named is None:
            raise TypeError("y is a column's name, but X is an array without column names")
        if y not in named:
            raise ValueError(f"X has no column {validate.word(y)}")
        class_name, class_ = y, factorise(named.pop(y), "the class")
    else:
        name = getattr(y, "name", None)
        class_name = ReadName(name, "y") if name else "class"
        class_ = factorise(y, "y")
    features = read_features(X if named is None else named, feature_names)
    if not features:
        raise ValueError("X must have at least one feature")
    if class_name in features:
        raise ValueError("one name names the class and a feature: give feature_names")
    n_records = len(class_.which)
    for name, column in features.items():
        if len(column.which) != n_records:
            raise ValueError(f"X and y must have one row a record; feature {name!r} does not")
    return features, class_name, class_


def read_features(X: Any, feature_names: Sequence[str] | None) -> dict[str, Factor]:
    """The features by name: those asked for of a table, all of an array."""
    named = named_columns(X)
    if named is None:
        return _array_columns(X, feature_names)
    wanted = list(named) if feature_names is None else list(feature_names)
    _check_names(wanted)
    lacking = [name for name in wanted if name not in named]
    if lacking and len(lacking) == len(wanted) > 1:  # then it may be anything, records too
        raise ValueError("X has none of the columns in feature_names")
    if lacking:
        raise ValueError(f"X has no column {validate.word(lacking[0])}")
    return {name: factorise(named[name], f"feature {name!r}") for name in wanted}


def factorise(column: Any, name: str) -> Factor:
    """A column's distinct values and every record's index into them."""
    if hasattr(column, "dictionary_encode") or hasattr(column, "dictionary"):
        return _arrow_factor(column)
    levels = getattr(column, "cat", column)
    if hasattr(levels, "codes") and hasattr(levels, "categories"):  # a pandas categorical
        codes = np.asarray(levels.codes, np.intp)
        return Factor(levels.categories.tolist(), codes, declared=True)
    array = column.to_numpy() if hasattr(column, "to_numpy") else as_array(column)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one column, got an array of {array.ndim} dimensions")
    if array.dtype.kind in "mM":  # in nanoseconds they would turn into whole numbers
        array = array.astype(f"{array.dtype.kind}8[us]")
    if array.dtype != object:
        values, index = np.unique(array, return_inverse=True)
        return Factor(values.tolist(), index)
    seen: dict[Any, int] = {}
    index = np.empty(len(array), np.intp)
    for row, value in enumerate(array.tolist()):
        value = value.item() if isinstance(value, np.generic) else value
        try:
            index[row] = seen.setdefault(value, len(seen))
        except TypeError:  # not hashable, so no label of any domain
            index[row] = -1
    return Factor(list(seen), index)


def named_columns(X: Any) -> dict[str, Any] | None:
    """The columns of a pandas or Arrow table, or of a dict of columns; None for arrays."""
    if isinstance(X, dict):
        names = _read_names(X)
        _check_names(names)
        return dict(zip(names, X.values(), strict=True))
    if hasattr(X, "column_names"):  # Arrow
        names = _read_names(X.column_names)
        _check_names(names)
        return {name: X.column(k) for k, name in enumerate(names)}
    if hasattr(X, "columns") and hasattr(X, "iloc"):  # pandas
        names = _read_names(X.columns)
        _check_names(names)
        return {name: X.iloc[:, k] for k, name in enumerate(names)}
    return None


def _array_columns(X: Any, feature_names: Sequence[str] | None) -> dict[str, Factor]:
    array = as_array(X)
    if array.ndim != 2:
        raise ValueError(
            f"X must be records by features, [N, K]; got an array of {array.ndim} dimensions"
        )
    if feature_names is None:
        names = [f"x{k}" for k in range(array.shape[1])]
    else:
        names = list(feature_names)
        _check_names(names)
    if len(names) != array.shape[1]:
        raise ValueError(
            "feature_names must have one name a feature: X has "
            f"{validate.size(array.shape[1])}, got {validate.size(len(names))} names"
        )
    return {name: factorise(array[:, k], f"feature {name!r}") for k, name in enumerate(names)}


def as_array(x: Any) -> np.ndarray:
    """Records that are no table, with their values as they were."""
    if isinstance(x, np.ma.MaskedArray):
        return np.ma.filled(x.astype(object), None)  # a masked value is a missing one
    if not isinstance(x, list | tuple):
        return np.asarray(x)
    # Lists keep their objects: numpy would turn a row of a word and a number into two words.
    try:
        return np.asarray(x, object)
    except ValueError:  # rows of unequal lengths; the message would show their values
        return np.empty(0)


def _arrow_factor(column: Any) -> Factor:
    if hasattr(column, "unify_dictionaries"):  # chunked
        if not hasattr(column.type, "index_type"):
            column = column.dictionary_encode()
        column = column.unify_dictionaries()
        chunks = column.chunks
        values = chunks[0].dictionary.to_pylist() if chunks else []
    else:
        if not hasattr(column.type, "index_type"):
            column = column.dictionary_encode()
        chunks, values = [column], column.dictionary.to_pylist()
    # Indices may be int8: widen before -1 stands for null.
    parts = [np.asarray(c.indices.cast("int64").fill_null(-1)) for c in chunks]
    return Factor(values, np.concatenate(parts) if parts else np.empty(0, np.intp))


def _read_names(names: Iterable[Any]) -> list[str]:
    """Names of a table's columns, where they are not known as such already."""
    return [
        name if isinstance(name, ReadName) or name == f"x{k}" else ReadName(name, f"column {k}")
        for k, name in enumerate(names)
    ]


def _check_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"feature names must be strings, got {type(name).__name__}")
    if len(set(names)) != len(names):
        twice = next(k for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"feature names must differ; number {twice} was there before")
