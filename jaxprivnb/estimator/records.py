"""What scikit-learn's users pass as X and y, checked as scikit-learn checks it."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from jaxprivnb.privacy.columns import as_array, factorise, named_columns
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
    y = validate_data(estimator, y=y)  # first: it forgets X's names
    columns = _read_columns(estimator, X, reset=True)
    check_consistent_length(next(iter(columns.values())), y)
    check_classification_targets(y)
    if not len(y):
        raise ValueError("X and y have no records")
    class_name = name if isinstance(name, str) and name else "class"
    while class_name in columns:
        class_name += "_"
    return Training({**columns, class_name: y}, class_name, y)


def encode_records(estimator: Any, X: Any, release: Release) -> np.ndarray:
    """Categories of records to predict, int `[n, K]`, -1 for what is missing or unknown."""
    columns = _read_columns(estimator, X, reset=False)
    # By place: scikit-learn has checked that a table's names, if the fit knew any, agree.
    named = dict(zip(release.feature_names, columns.values(), strict=True))
    codes = release.encode(named)
    # One record may well have a value that training did not; a whole column has been miscoded.
    for column in release.domain.features if len(codes) > 1 else ():
        name, labels = column.name, column.categories
        factor = factorise(named[name], name)
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
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        if not table:
            raise ValueError(f"Found array with 0 feature(s) (shape={X.shape})")
        return table
    if isinstance(X, list | tuple | np.ma.MaskedArray):
        X = as_array(X)
    # Missing values are the domain's affair: refused or "other" in training, left out afterwards.
    array = validate_data(estimator, X, dtype=None, ensure_all_finite=False, reset=reset)
    return {f"x{k}": array[:, k] for k in range(array.shape[1])}
