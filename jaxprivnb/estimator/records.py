"""What scikit-learn's users pass as X and y, checked as scikit-learn checks it."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from jaxprivnb import validate
from jaxprivnb.privacy.columns import ReadName, as_array, factorise, named_columns
from jaxprivnb.privacy.record import Release


class Training(NamedTuple):
    """Records to release. Holds private data: never shown, logged or saved."""

    columns: dict[str, Any]
    """Every feature's column by name, and the class's last."""
    class_name: str
    y: np.ndarray

    def __repr__(self) -> str:
        return "Training(private)"

    @property
    def feature_names(self) -> list[str]:
        """In the columns' order."""
        return [name for name in self.columns if name != self.class_name]


def read_training(estimator: Any, X: Any, y: Any) -> Training:
    """Check X and y, and set `n_features_in_` and, for tables, `feature_names_in_`."""
    name = getattr(y, "name", None)
    y = _checked("y", y)
    y = validate_data(estimator, y=y)  # first: it forgets X's names
    columns = _read_columns(estimator, X, reset=True)
    if len(next(iter(columns.values()))) != len(y):  # scikit-learn's own check tells N
        raise ValueError("X and y must have one row a record, and are of different lengths")
    check_classification_targets(y)
    if not len(y):
        raise ValueError("X and y have no records")
    class_name = name if isinstance(name, str) and name else "class"
    while class_name in columns:
        class_name += "_"
    if name:
        class_name = ReadName(class_name, "y")
    return Training({**columns, class_name: y}, class_name, y)


def read_classes(y: Any) -> np.ndarray:
    """The classes of records to predict, as they are, `[n]`."""
    array = as_array(_checked("y", y))
    if array.ndim == 2 and array.shape[1] == 1:  # a table of one column
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"y must be one column of classes, got {validate.describe(y)}")
    return array


def encode_records(estimator: Any, X: Any, release: Release) -> np.ndarray:
    """Categories of records to predict, int `[n, K]`, -1 for what is missing or unknown."""
    columns = _read_columns(estimator, X, reset=False)
    # By place: scikit-learn has checked that a table's names, if the fit knew any, agree.
    named = dict(zip(release.feature_names, columns.values(), strict=True))
    codes = release.encode(named)
    # One record may well have a value that training did not; a whole column has been miscoded.
    for column in release.domain.features if len(codes) > 1 else ():
        name, labels = column.name, column.categories
        factor = factorise(named[name], repr(name))
        occurring = [factor.values[i] for i in np.unique(factor.which) if i >= 0]
        known = column.codes(factor, other=False) >= 0
        if known.any() or not any(map(_is_present, occurring)):
            continue
        warnings.warn(
            f"no value of {name!r} is one of its categories "
            f"{', '.join(map(repr, labels[:5]))}{', ...' if len(labels) > 5 else ''}, so the "
            'feature is as good as missing (labels match by value and type: 1 is not "1")',
            UserWarning,
            stacklevel=4,
        )
    return codes


def _is_present(value: Any) -> bool:
    """Whether a value is neither None nor NaN of any kind; pandas.NA has no truth value."""
    try:
        return value is not None and bool(value == value)
    except (TypeError, ValueError):
        return False


def _read_columns(estimator: Any, X: Any, *, reset: bool) -> dict[str, Any]:
    """Columns by name; those of an array are x0, x1, ..."""
    table = None if isinstance(X, dict) else named_columns(X)
    if table is not None:
        if not reset:
            _check_seen(getattr(estimator, "feature_names_in_", None), X)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        if not table:
            raise ValueError(f"Found array with 0 feature(s) (shape={X.shape})")
        return table
    X = _checked("X", X)
    # Missing values are the domain's affair: refused or "other" in training, left out afterwards.
    array = validate_data(estimator, X, dtype=None, ensure_all_finite=False, reset=reset)
    return {f"x{k}": array[:, k] for k in range(array.shape[1])}


def _check_seen(known: Any, X: Any) -> None:
    """Raise on names that the fit has not seen, which scikit-learn would list.

    Of a table that was read without its header they are a record.
    """
    names = list(X.column_names if hasattr(X, "column_names") else X.columns)
    if known is None or not all(isinstance(name, str) for name in names):
        return  # scikit-learn warns of it
    unseen, missing = set(names) - set(known), sorted(set(known) - set(names))
    if unseen:
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            f"{len(unseen)} of {len(names)} were unseen at fit time"
            + (f"; now missing: {', '.join(missing[:5])}" if missing else "")
        )


def _checked(name: str, x: Any) -> Any:
    """Raise on what scikit-learn would refuse and print; lists in X become arrays."""
    if x is None or hasattr(x, "tocsr"):  # refused by their type
        return x
    if isinstance(x, dict):
        raise TypeError(
            f"{name} must be an array or a table, got {validate.describe(x)}: make a table of it "
            "(pandas.DataFrame), or release it with jaxprivnb.release and use from_release"
        )
    array = as_array(x)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold categories")
    if name == "y":
        if array.ndim > 1 and array.shape[1:] != (1,):
            # Of a table without header that has a value twice, scikit-learn shows "names".
            raise ValueError(f"y should be a 1d array, got {validate.describe(x)}")
        return x
    if array.ndim < 2:
        raise ValueError(
            f"X must be records by features, [N, K], got {validate.describe(x)}. Reshape your data "
            "if it is one feature (array.reshape(-1, 1)) or one record (array.reshape(1, -1))"
        )
    return array if isinstance(x, list | tuple | np.ma.MaskedArray) else x
