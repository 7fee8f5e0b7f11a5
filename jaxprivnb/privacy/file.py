"""A release as one file, so that who holds the data and who analyses them need not meet.

The file describes itself: names, labels, N if it is public, the promise with each table's noise and
budget, the libraries' versions, and the noisy integers, class by class. Reading it needs no OpenDP.
"""

import dataclasses
import math
import os
from typing import Any

import numpy as np

from jaxprivnb.noise import CELLS_MOVED, MAX_CONTRIBUTIONS, Neighbours
from jaxprivnb.privacy import sealed
from jaxprivnb.privacy.bins import Bins, check_edges
from jaxprivnb.privacy.domain import MAX_CELLS, Column, Domain
from jaxprivnb.privacy.mechanism import SCALE_RANGE
from jaxprivnb.privacy.record import FORMAT_VERSION, Guarantee, Release, relation

FORMAT = "jaxprivnb release"
MAX_COUNT = 2**62
"""Largest size of a noisy count."""
MAX_RECORDS = 2**53
_AGREE = 1e-9
_NUMBER = (float, int)
_LAYOUT = "counts[class * n_categories + category], noisy integers"


def save_release(release: Release, path: str | os.PathLike[str]) -> None:
    """Write the release to one file, whole or not at all."""
    sealed.write(path, sealed.seal(FORMAT, FORMAT_VERSION, _content(release)))


def load_release(path: str | os.PathLike[str]) -> Release:
    """Read a release that `Release.save` wrote.

    The file may come from anywhere: what is not a whole, consistent release is a `ValueError` that
    names the field. The checksum shows damage, not who wrote the file.
    """
    content = sealed.unseal(path, FORMAT, FORMAT_VERSION)
    try:
        return _release(content)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def _content(release: Release) -> dict[str, Any]:
    promise, domain = release.guarantee, release.domain
    features = [
        {
            "name": column.name,
            "categories": list(column.categories),
            "bins": None if column.bins is None else dataclasses.asdict(column.bins),
            "noise_scale": promise.scales[k],
            "budget": promise.per_table[k],
            "counts": release.integers[:, k, : len(column)].ravel().tolist(),
        }
        for k, column in enumerate(domain.features)
    ]
    class_table = None
    if release.class_integers is not None:
        class_table = {
            "noise_scale": promise.scales[-1],
            "budget": promise.per_table[-1],
            "counts": release.class_integers.tolist(),
        }
    return {
        "n_records": release.size,
        "privacy": {
            "neighbours": promise.relation,
            "contributions": promise.contributions,
            "measure": promise.measure,
            "mechanism": promise.mechanism,
            "norm": promise.norm,
            "sensitivity": promise.sensitivity,
            "stated_total": promise.stated,
            "proved_total": promise.total,
        },
        "layout": _LAYOUT,
        "class": {
            "name": domain.class_.name,
            "categories": list(domain.class_.categories),
            "table": class_table,
        },
        "features": features,
        "versions": release.versions,
    }


def _release(content: dict[str, Any]) -> Release:
    n_records, privacy, layout, class_, features, versions = sealed.fields(
        content,
        "content",
        {"n_records": (int, type(None)), "privacy": dict, "layout": str, "class": dict,
         "features": list, "versions": dict},
    )  # fmt: skip
    if n_records is not None and not 0 <= n_records <= MAX_RECORDS:
        raise ValueError(f"n_records must be between 0 and {MAX_RECORDS}")
    if layout != _LAYOUT:
        raise ValueError("layout is not the one of this version")
    name, labels, class_table = sealed.fields(
        class_, "class", {"name": str, "categories": list, "table": (dict, type(None))}
    )
    class_column = Column(name, tuple(labels))
    if not features:
        raise ValueError("features must not be empty")
    rows = [
        sealed.fields(
            feature,
            f"features[{k}]",
            {"name": str, "categories": list, "noise_scale": _NUMBER, "budget": _NUMBER,
             "counts": list, "bins": (dict, type(None))},
            defaults={"bins": None},
        )
        for k, feature in enumerate(features)
    ]  # fmt: skip
    # The padded shape is what will be allocated: the domain refuses it when it is too large.
    columns = [
        Column(row[0], tuple(row[1]), _bins(row[5], f"features[{k}].bins"))
        for k, row in enumerate(rows)
    ]
    domain = Domain(class_column, tuple(columns))
    I = len(class_column)
    tables = [
        _counts(row[4], f"features[{k}].counts", I * len(column)).reshape(I, len(column))
        for k, (row, column) in enumerate(zip(rows, domain.features, strict=True))
    ]
    noises = [(f"features[{k}]", row[2], row[3]) for k, row in enumerate(rows)]
    noisy_classes = None
    if class_table is not None:
        scale, budget, counts = sealed.fields(
            class_table,
            "class.table",
            {"noise_scale": _NUMBER, "budget": _NUMBER, "counts": list},
        )
        noises.append(("class.table", scale, budget))
        noisy_classes = _counts(counts, "class.table.counts", I)
    guarantee = _guarantee(privacy, noises)
    if (n_records is None) != (guarantee.neighbours == "add-remove"):
        raise ValueError(
            "n_records must be null where records are added or removed, and only there"
        )
    for key, value in versions.items():
        if not isinstance(value, str) or len(key) > 100 or len(value) > 100:
            raise ValueError("versions must be short texts")
    return Release.assemble(tables, noisy_classes, n_records, domain, guarantee, versions)


def _bins(value: dict[str, Any] | None, where: str) -> Bins | None:
    if value is None:
        return None
    edges, outside = sealed.fields(value, where, {"edges": list, "outside": str})
    return Bins(check_edges(where, edges), outside)


def _counts(values: list[Any], where: str, size: int) -> np.ndarray:
    """Noisy integers, as many as there are cells."""
    if len(values) != size or size > MAX_CELLS:
        raise ValueError(f"{where} must have {size} values, got {len(values)}")
    if any(type(v) is not int or not -MAX_COUNT <= v <= MAX_COUNT for v in values):
        raise ValueError(f"{where} must be integers within {MAX_COUNT}")
    return np.asarray(values, np.int64)


def _guarantee(privacy: dict[str, Any], noises: list[tuple[str, Any, Any]]) -> Guarantee:
    """The promise, if its parts agree with each other."""
    words, contributions, measure, mechanism, norm, sensitivity, stated, total = sealed.fields(
        privacy,
        "privacy",
        {"neighbours": str, "contributions": int, "measure": str, "mechanism": str, "norm": str,
         "sensitivity": _NUMBER, "stated_total": _NUMBER, "proved_total": _NUMBER},
        defaults={"contributions": 1},
    )  # fmt: skip
    if measure not in ("epsilon", "rho"):
        raise ValueError('privacy.measure must be "epsilon" or "rho"')
    promise = Guarantee(
        measure=measure,
        stated=float(stated),
        total=float(total),
        per_table=tuple(float(n[2]) for n in noises),
        scales=tuple(float(n[1]) for n in noises),
        neighbours=_neighbours(words, contributions),
        contributions=contributions,
    )
    low, high = SCALE_RANGE
    for where, scale, budget in noises:
        if not low <= scale <= 2 * high:
            raise ValueError(f"{where}.noise_scale must be between {low:g} and {high:g}")
        moved = promise.sensitivity / scale
        if not _close(budget, moved if measure == "epsilon" else moved**2 / 2):
            raise ValueError(f"{where}.budget is not what its noise_scale gives")
    if (mechanism, norm) != (promise.mechanism, promise.norm):
        raise ValueError("privacy.mechanism and privacy.norm must be those of its measure")
    if not _close(sensitivity, promise.sensitivity):
        raise ValueError(f"privacy.sensitivity must be {promise.sensitivity:g}")
    if not _close(total, math.fsum(promise.per_table)):
        raise ValueError("privacy.proved_total must be the sum of the tables' budgets")
    if not (total <= stated and _close(total, stated)):
        raise ValueError("privacy.stated_total must be the proved total, up to rounding")
    return promise


def _neighbours(words: str, contributions: int) -> Neighbours:
    if not 1 <= contributions <= MAX_CONTRIBUTIONS:
        raise ValueError(f"privacy.contributions must be between 1 and {MAX_CONTRIBUTIONS}")
    known = {relation(n, contributions): n for n in CELLS_MOVED}
    if words not in known:
        raise ValueError(
            f"privacy.neighbours must be one of {', '.join(map(repr, known))}, as its contributions"
        )
    return known[words]


def _close(found: float, expected: float) -> bool:
    return abs(found - expected) <= _AGREE * abs(expected)
