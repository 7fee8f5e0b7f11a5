"""Intervals of many parameters, one below the other, for one method or several side by side."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.plots.arguments import WHAT, Series, as_series, as_truth, names_for
from jaxprivnb.plots.canvas import canvas, legend_above
from jaxprivnb.report.names import Names, shown
from jaxprivnb.style import TRUTH

COUNTS = ("class_count", "count")
"""True counts, which exact posteriors know."""
_PARAMETER = {
    "class": "P(Y)",
    "feature": "P(X | Y)",
    "class_count": "true number of records",
    "count": "true number of records",
}
MOST_ROWS = 120
"""More would not be read."""
_LETTER = 0.055
"""Width of a letter of the row labels, inches."""
_SPREAD = 0.62
"""Share of a row's height that its methods are spread over."""


class Row(NamedTuple):
    """One parameter of the picture."""

    at: tuple[int, ...]
    """(i,) for P(Y=i), (i, k, j) for P(X_k=j | Y=i)."""
    label: str
    group: int
    """Changes from one feature to the next."""


def plot_forest(
    posteriors: Any,
    what: str = "feature",
    *,
    classes: Sequence[Any] | None = None,
    features: Sequence[Any] | None = None,
    categories: Sequence[Any] | None = None,
    level: float = 0.95,
    truth: Any = None,
    domain: Any = None,
    ax: Any = None,
) -> Any:
    """Draw posterior means and equal-tailed intervals.

    Args:
        posteriors: a posterior or fitted `PrivateNaiveBayes`, or a mapping from label to such.
        what: "class" for P(Y), "feature" for P(X|Y); "class_count" and "count" for the true
            counts, of exact posteriors.
        classes: which to draw, labels or positions; all if None.
        features: the same, for "feature".
        categories: labels to draw; a feature that lacks one is drawn without it.
        level: of the intervals.
        truth: in simulation, a `Simulation` of one dataset or a pair (P(Y), P(X|Y)).
        domain: a `Release` or its domain, for posteriors that carry no names; without one,
            classes and categories are numbers and features are x0, x1, ...
        ax: where to draw; a new figure, as high as its rows need, if None.
    """
    validate.choice("what", what, (*WHAT, *COUNTS))
    level = validate.real_number("level", level, above=0, below=1)
    series = as_series(posteriors)
    first = series[0].posterior
    names = names_for(first, domain)
    rows = _rows(names, what.startswith("class"), classes, features, categories)
    if what in COUNTS and truth is not None:
        raise ValueError("truth is of parameters: it cannot be drawn beside counts")
    true = as_truth(truth, first)
    height = max(0.16, 0.11 * len(series)) * len(rows) + 1.0
    width = 2.5 + _LETTER * max(len(row.label) for row in rows)

    with canvas(ax, height, width) as ax:
        at = np.arange(len(rows))
        for s, one in enumerate(series):
            offset = _SPREAD * ((s + 0.5) / len(series) - 0.5) if len(series) > 1 else 0.0
            _intervals(ax, one, rows, at + offset, what, level)
        if true is not None:
            values = [true[what == "feature"][row.at] for row in rows]
            ax.vlines(values, at - 0.42, at + 0.42, color=TRUTH, linewidth=1, zorder=4)
            ax.plot([], [], "|", color=TRUTH, markersize=8, label="truth")
        for r in range(1, len(rows)):
            if rows[r].group != rows[r - 1].group:
                ax.axhline(r - 0.5, color="#999999", linewidth=0.5)
        ax.set_yticks(at, [row.label for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
        if what not in COUNTS:
            ax.set_xlim(-0.01, 1.01)
        ax.set_xlabel(f"{_PARAMETER[what]}\nposterior mean and {100 * level:g}% interval")
        legend_above(ax, side="right")
    return ax


def _intervals(
    ax: Any, one: Series, rows: list[Row], y: np.ndarray, what: str, level: float
) -> None:
    """One method's means and intervals."""
    posterior, look = one
    mean = np.asarray(getattr(posterior, f"{what}_mean"))
    low, high = (np.asarray(x) for x in getattr(posterior, f"{what}_interval")(level))
    pick = lambda x: np.array([x[row.at] for row in rows])  # noqa: E731
    ax.hlines(y, pick(low), pick(high), color=look.color, linewidth=1.2)
    ax.plot(
        pick(mean), y, linestyle="none", marker=look.marker, markersize=3.2, color=look.color,
        label=look.name,
    )  # fmt: skip


def _rows(names: Names, of_class: bool, classes: Any, features: Any, categories: Any) -> list[Row]:
    """Feature by feature and category by category, so that the classes stand side by side."""
    labels, known = names.domain.class_.categories, names.domain.features
    chosen = [names.class_index(c) for c in (labels if classes is None else classes)]
    # A name speaks for itself; a number needs to be told from a category's.
    given = [shown(c) if isinstance(c, str) else names.class_event(i) for i, c in enumerate(labels)]
    rows = []
    if of_class:
        for name, value in (("features", features), ("categories", categories)):
            if value is not None:
                raise ValueError(
                    f'{name} are chosen with what="feature" only, got {validate.describe(value)}'
                )
        rows = [Row((i,), names.class_event(i), 0) for i in chosen]
    else:
        for feature in [f.name for f in known] if features is None else features:
            k = names.feature_index(feature)
            for j, category in zip(names.cells[k], known[k].categories, strict=True):
                if categories is None or category in categories:
                    rows += [Row((i, k, j), f"{names.event(k, j)} | {given[i]}", k) for i in chosen]
    if not rows:
        raise ValueError("no parameter is left to draw: check classes, features and categories")
    if len(rows) > MOST_ROWS:
        raise ValueError(
            f"{len(rows)} intervals are too many for one picture (at most {MOST_ROWS}): "
            "choose with classes, features or categories"
        )
    return rows
