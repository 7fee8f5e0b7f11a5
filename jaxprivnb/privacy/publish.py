"""`release`: from records to noisy tables."""

from collections.abc import Sequence
from typing import Any

from jaxprivnb._version import __version__
from jaxprivnb.privacy import mechanism
from jaxprivnb.privacy.budget import request_budget
from jaxprivnb.privacy.columns import read_records
from jaxprivnb.privacy.domain import encode, settle_domain
from jaxprivnb.privacy.ledger import PrivacyLedger
from jaxprivnb.privacy.record import Guarantee, Release


def release(
    X: Any,
    y: Any,
    *,
    epsilon_total: float | None = None,
    epsilon_per_table: float | None = None,
    rho_total: float | None = None,
    n_categories: Any = None,
    n_classes: int | None = None,
    categories: Any = None,
    classes: Any = None,
    weights: Any = None,
    class_table: bool = False,
    unknown: str = "error",
    ledger: PrivacyLedger | None = None,
    feature_names: Sequence[str] | None = None,
) -> Release:
    """Release class-by-feature tables of real records with OpenDP's integer noise.

    The promise is against replacing one record by any other. The number of records N is public by
    definition of the mechanism, and so is the domain: give it, or a `PrivacyWarning` says that it
    was read from the data. There is no seed: the noise is cryptographic and cannot be repeated.

    Args:
        X: N records of K features: an array, a pandas or Arrow table, or a dict of columns.
        y: their classes, or the name of X's column that has them.
        epsilon_total: pure differential privacy of all tables together (discrete Laplace).
        epsilon_per_table: the same, of each table.
        rho_total: zero-concentrated privacy of all tables together (discrete Gaussian).
        n_categories: numbers of categories, which are then 0, 1, ...: one for all features, one
            a feature, or a mapping by name.
        n_classes: number of classes, which are then 0, 1, ...
        categories: instead of `n_categories`, each feature's labels: lists in order, or a mapping.
            Left out, they are read from the data: the levels of a pandas categorical, and
            otherwise the values that occur.
        classes: instead of `n_classes`, the classes' labels.
        weights: how the tables share a total, any positive numbers: the features in order and then
            the class if `class_table`, or a mapping by name. Equal if None.
        class_table: also release the table of the class itself, as one more table.
        unknown: "error" refuses values that are missing or outside the domain; "other" counts them
            in a category "other", which every feature then has. The class has one only if listed.
        ledger: charged before noise is drawn; raises if that would pass its limit.
        feature_names: of X's columns; for tables, which columns to release.
    """
    if ledger is not None and not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"ledger must be a PrivacyLedger or None, got {type(ledger).__name__}")
    features, class_name, class_column = read_records(X, y, feature_names)
    request = request_budget(
        tuple(features),
        class_name,
        epsilon_total=epsilon_total,
        epsilon_per_table=epsilon_per_table,
        rho_total=rho_total,
        weights=weights,
        class_table=class_table,
    )
    calibration = mechanism.calibrate(request)
    domain = settle_domain(
        features,
        class_name,
        class_column,
        n_categories=n_categories,
        n_classes=n_classes,
        categories=categories,
        classes=classes,
        unknown=unknown,
    )
    class_codes = encode(domain.class_, class_column, what="class", unknown=unknown)
    codes = [
        encode(column, features[column.name], what="feature", unknown=unknown)
        for column in domain.features
    ]
    guarantee = Guarantee(
        measure=request.measure,
        stated=calibration.total if request.per_table else request.amount,
        total=calibration.total,
        per_table=calibration.per_table,
        scales=calibration.scales,
    )
    if ledger is not None:
        ledger.charge(guarantee)
    I, measure = len(domain.class_), request.measure
    scales = iter(calibration.scales)
    tables = [
        mechanism.noisy_table(class_codes, x, (I, len(column)), measure, next(scales))
        for x, column in zip(codes, domain.features, strict=True)
    ]
    noisy_classes = None
    if class_table:
        noisy_classes = mechanism.noisy_classes(class_codes, I, measure, next(scales))
    versions = {"jaxprivnb": __version__, "opendp": mechanism.opendp_version()}
    return Release.assemble(tables, noisy_classes, len(class_codes), domain, guarantee, versions)
