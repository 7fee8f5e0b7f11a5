"""`release`: from records to noisy tables."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from jaxprivnb import validate
from jaxprivnb._version import __version__
from jaxprivnb.noise import Neighbours
from jaxprivnb.privacy import mechanism
from jaxprivnb.privacy.budget import request_budget
from jaxprivnb.privacy.columns import read_records
from jaxprivnb.privacy.domain import Column, Domain, by_column, encode, settle_domain
from jaxprivnb.privacy.ledger import PrivacyLedger
from jaxprivnb.privacy.record import Guarantee, Release

P = ParamSpec("P")
R = TypeVar("R")


def _discreet(make: Callable[P, R]) -> Callable[P, R]:
    """Name the budgets, since `epsilon` alone does not say of what; hide N where it is private."""
    known = inspect.signature(make).parameters

    @functools.wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                budgets = (
                    "; a budget is epsilon_total= (of all tables together), epsilon_per_table= "
                    "(of each) or rho_total="
                )
                hint = budgets if name.startswith(("eps", "rho", "budget")) else ""
                listed = ", ".join(known)
                raise TypeError(f"release has no argument {name!r}{hint} (there are: {listed})")
        # Where neighbours differ in N, an argument's size may be the secret.
        neighbours = kwargs.get("neighbours")
        with validate.sizes_hidden(isinstance(neighbours, str) and neighbours == "add-remove"):
            return make(*args, **kwargs)

    return checked


@_discreet
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
    bins: Any = None,
    weights: Any = None,
    class_table: bool = False,
    unknown: str | Mapping[str, str] = "error",
    ledger: PrivacyLedger | None = None,
    feature_names: Sequence[str] | None = None,
    neighbours: Neighbours = "replace",
    contributions: int = 1,
) -> Release:
    """Release class-by-feature tables of real records with OpenDP's integer noise.

    The promise is against replacing one record by any other, and the number of records N is public;
    with neighbours="add-remove" it is against a record's presence, and N is in nothing that comes
    out. The domain is public: give it, or a `PrivacyWarning` says that it was read from the data.
    There is no seed: the noise is cryptographic and cannot be repeated.

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
        bins: public edges of features that are numbers, by name: `{"age": [0, 18, 65, 120]}`, or
            `{"fare": {"bins": 8, "bounds": (0, 600)}}` for bins of equal width. Their categories
            are then "[0, 18)", "[18, 65)", "[65, 120]", and `n_categories` and `categories` are of
            the other features. Numbers beyond the edges are in the end bins; with
            `{"edges": [...], "outside": "refuse"}` they are outside the domain.
        weights: how the tables share a total, any positive numbers: the features in order and then
            the class if `class_table`, or a mapping by name. Equal if None.
        class_table: also release the table of the class itself, as one more table.
        unknown: "error" refuses values that are missing or outside the domain; "other" counts them
            in a category "other", which every feature then has. A mapping, as in
            `{"age": "other"}`, says so of some features, and leaves the others as they are: a
            category that no record needs costs precision. The class has "other" only if listed.
        ledger: charged before noise is drawn; raises if that would pass its limit.
        feature_names: of X's columns; for tables, which columns to release.
        neighbours: "replace": datasets that differ in a replaced record are to look alike.
            "add-remove": those of which one has a record more; half the noise for the same epsilon,
            but N is then unknown to the analyst too.
        contributions: the largest number of records that one person has, from knowledge that is
            not the data. Neighbours then differ in all of them, and the noise is that many times
            as wide for the same budget. Records beyond it are not noticed, and not protected.
    """
    if ledger is not None and not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"ledger must be a PrivacyLedger or None, got {type(ledger).__name__}")
    features, class_name, class_column = read_records(X, y, feature_names)
    # A name that the caller has typed may stand in messages; the columns know it by its place.
    stated = (n_categories, categories, bins, weights)
    typed = {k for m in stated if isinstance(m, Mapping) for k in m}
    features = {str(n) if n in typed else n: column for n, column in features.items()}
    request = request_budget(
        tuple(features),
        class_name,
        epsilon_total=epsilon_total,
        epsilon_per_table=epsilon_per_table,
        rho_total=rho_total,
        weights=weights,
        class_table=class_table,
        neighbours=neighbours,
        contributions=contributions,
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
        bins=bins,
        unknown=unknown,
    )
    fate = by_column(unknown, class_name, tuple(features))
    class_codes = encode(domain.class_, class_column, what="class", unknown=fate[class_name])
    codes = [
        encode(column, features[column.name], what="feature", unknown=fate[column.name])
        for column in domain.features
    ]
    guarantee = Guarantee(
        measure=request.measure,
        stated=calibration.total if request.per_table else request.amount,
        total=calibration.total,
        per_table=calibration.per_table,
        scales=calibration.scales,
        neighbours=request.neighbours,
        contributions=request.contributions,
    )
    domain = Domain(_plainly(domain.class_), tuple(map(_plainly, domain.features)))
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
    N = len(class_codes) if request.neighbours == "replace" else None
    return Release.assemble(tables, noisy_classes, N, domain, guarantee, versions)


def _plainly(column: Column) -> Column:
    """The column as it is released: its name is public, whoever said it."""
    return Column(str(column.name), column.categories, column.bins)
