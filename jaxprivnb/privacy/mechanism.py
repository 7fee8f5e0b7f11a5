"""Counting and noise: the only module that sees true counts.

Noise is OpenDP's: integers from a cryptographic source, discrete Laplace under a budget of
epsilon, discrete Gaussian under one of rho. Its scale is not ours to claim: it is the smallest
that OpenDP's own privacy map accepts for the budget. There is no seed; noise that can be drawn
again can be subtracted.

Neighbours differ in c records. How far apart that puts their tables is OpenDP's stability map of
counting records by category: L1 and L2 are c where records are added or removed, and twice that
where they are replaced. Of the last the L2 is really sqrt(2) c: what some cells gain, others lose.
"""

import importlib.metadata
import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.noise import Neighbours, l2_sensitivity_squared
from jaxprivnb.privacy.budget import Measure, Request

SCALE_RANGE = (2.0**-20, 2.0**45)
"""Outside it there is no noise to speak of, or noise that 64-bit integers might cut off."""


class Calibration(NamedTuple):
    """Noise that keeps a budget, as OpenDP's maps prove it."""

    scales: tuple[float, ...]
    """b of the discrete Laplace or sigma of the discrete Gaussian, a table each."""
    per_table: tuple[float, ...]
    """Each table's epsilon or rho, by its measurement's map."""
    total: float
    """All tables' together, by the map of their composition."""


def calibrate(request: Request) -> Calibration:
    """The noise for a budget; looks at no data."""
    shrink, measure = 1.0, request.measure
    apart = distance(measure, request.neighbours, request.contributions)
    while True:
        found = {a: _scale_for(measure, a, apart) for a in set(request.allotments(shrink))}
        measurements = [found[a] for a in request.allotments(shrink)]
        total = _composed(measurements, apart)
        if request.per_table or total <= request.amount:
            break
        # OpenDP rounds sums up, so equal shares can pass the total by some units in the last place.
        shrink = 1 - 2 * (1 - shrink) - 2.0**-52
    scales, proved, _ = zip(*measurements, strict=True)
    return Calibration(scales, proved, total)


def noisy_table(
    class_codes: np.ndarray,
    feature_codes: np.ndarray,
    shape: tuple[int, int],
    measure: Measure,
    scale: float,
) -> np.ndarray:
    """m[i, j] of one feature, int64 `[I, J_k]`, from every record's class and category."""
    cells = class_codes * shape[1] + feature_codes
    return _noisy_counts(cells, shape[0] * shape[1], measure, scale).reshape(shape)


def noisy_classes(
    class_codes: np.ndarray, n_classes: int, measure: Measure, scale: float
) -> np.ndarray:
    """m[i] of the class, int64 `[I]`, from every record's class."""
    return _noisy_counts(class_codes, n_classes, measure, scale)


def _noisy_counts(cells: np.ndarray, n_cells: int, measure: Measure, scale: float) -> np.ndarray:
    # True counts live in this line and nowhere else.
    counts = np.bincount(cells, minlength=n_cells).tolist()
    return np.asarray(measurement(measure, scale)(counts), np.int64)


def measurement(measure: Measure, scale: float) -> Any:
    """OpenDP's measurement of a vector of counts."""
    dp = _opendp()
    cells = dp.vector_domain(dp.atom_domain(T="i64"))
    if measure == "epsilon":
        return dp.m.make_laplace(cells, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(cells, dp.l2_distance(T="f64"), scale=scale)


def distance(measure: Measure, neighbours: Neighbours, contributions: int) -> float | int:
    """How far apart neighbours' tables are, for OpenDP's maps: L1 for epsilon, L2 for rho."""
    dp = _opendp()
    codes = dp.atom_domain(T="i64")
    metric = "L1Distance<i64>" if measure == "epsilon" else "L2Distance<f64>"
    # Of any number of records and categories, since the map depends on neither.
    records = dp.vector_domain(codes, size=0 if neighbours == "replace" else None)
    count = dp.t.make_count_by_categories(
        records, dp.symmetric_distance(), categories=[0], null_category=False, MO=metric, TOA="i64"
    )
    if neighbours == "replace":
        count = dp.t.make_metric_unbounded(records, dp.change_one_distance()) >> count
    apart = count.map(contributions)
    if measure == "epsilon":
        return apart
    squared = l2_sensitivity_squared(neighbours, contributions)
    root = math.sqrt(squared)
    # From above: a root that was rounded down would claim too little.
    return min(apart, root if Fraction(root) ** 2 >= squared else math.nextafter(root, math.inf))


def opendp_version() -> str:
    """Of the library that draws the noise."""
    return importlib.metadata.version("opendp")


class _Found(NamedTuple):
    scale: float
    proved: float
    measurement: Any


def _scale_for(measure: Measure, budget: float, apart: float | int) -> _Found:
    """The smallest scale, to a unit in the last place, whose map proves the budget."""
    scale = apart / budget if measure == "epsilon" else apart / math.sqrt(2 * budget)
    low, high = SCALE_RANGE
    if not low <= scale <= high:
        too = "large: there would be no noise" if scale < low else "small for integer noise"
        raise ValueError(f"a table's {measure} of {budget:g} is too {too}")
    while True:
        candidate = measurement(measure, scale)
        proved = candidate.map(apart)
        if proved <= budget:
            return _Found(scale, proved, candidate)
        scale = math.nextafter(scale, math.inf)


def _composed(measurements: list[_Found], apart: float | int) -> float:
    """The total budget by OpenDP's composition of measurements of neighbouring tables."""
    dp = _opendp()
    return dp.c.make_composition([m.measurement for m in measurements]).map(apart)


def _opendp() -> Any:
    dp = require("opendp.prelude", "release", "releasing data")
    # OpenDP asks its users to accept what has not passed its whole review: see THREAT_MODEL.md.
    dp.enable_features("contrib")
    return dp
