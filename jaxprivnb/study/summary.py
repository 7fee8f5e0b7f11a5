"""A study summarised: means with Monte Carlo standard errors, a line for each cell and method.

The errors are those of `precision.py`: replicates that share a parameter draw count as one.
"""

import csv
import io
import math
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb.study.load import Study
from jaxprivnb.study.precision import clustered_mean
from jaxprivnb.study.schema import DRAWS, method_codes

FORMATS = ("terminal", "csv", "markdown")


class StudySummary(NamedTuple):
    """One entry a cell and method that has rows."""

    cell: np.ndarray
    """Index into `spec.cells`, `[G]`."""
    method: np.ndarray
    """Index into `spec.arms`, `[G]`."""
    replicates: np.ndarray
    """Rows, `[G]`."""
    failures: np.ndarray
    """Rows whose status is not success, `[G]`."""
    mean: dict[str, np.ndarray]
    """Mean of each measure over rows where it is finite, `[G]`; nan if there are none."""
    se: dict[str, np.ndarray]
    """Monte Carlo standard error of `mean`, `[G]`; nan if a cell has one independent draw."""
    median: dict[str, np.ndarray]
    """Median of the squared errors, `[G]`."""


def summarise(study: Study) -> StudySummary:
    """Group the rows by cell and method."""
    spec, table = study.spec, study.table
    methods = len(spec.arms)
    labels = [m.label for m in spec.arms]
    group = table["cell"].to_numpy().astype(np.int64) * methods + method_codes(table, labels)
    present, group = np.unique(group, return_inverse=True)
    cluster = table[DRAWS[spec.replicates.stage]].to_numpy().astype(np.int64)
    mean, se = {}, {}
    for name in measures(table.column_names):
        mean[name], se[name] = clustered_mean(table[name].to_numpy(), group, cluster, len(present))
    median = {
        name: _medians(table[name].to_numpy(), group, len(present))
        for name in ("se_feature", "se_class")
    }
    failed = (table["status"].to_numpy() != 0).astype(np.int64)
    return StudySummary(
        cell=present // methods,
        method=present % methods,
        replicates=np.bincount(group, minlength=len(present)),
        failures=np.bincount(group, weights=failed, minlength=len(present)).astype(np.int64),
        mean=mean,
        se=se,
        median=median,
    )


def measures(columns: list[str]) -> list[str]:
    """The columns that are averaged."""
    starts = ("se_", "coverage_", "width_", "iterations", "log_evidence")
    return [name for name in columns if name.startswith(starts)]


def format_summary(study: Study, summary: StudySummary, style: str = "terminal") -> str:
    """The table as text: "csv" has every number in full, the others the main ones, rounded."""
    if style == "csv":
        return _csv(study, summary)
    header, lines = brief(study, summary)
    if style == "markdown":
        rule = "|" + "|".join(["---:"] * len(header)) + "|"
        draw = lambda row: "| " + " | ".join(x.replace("|", r"\|") for x in row) + " |"  # noqa: E731
        return "\n".join([draw(header), rule, *map(draw, lines)])
    if style != "terminal":
        raise ValueError(f"style must be one of {', '.join(FORMATS)}, got {style!r}")
    widths = [max(len(row[i]) for row in (header, *lines)) for i in range(len(header))]
    draw = lambda row: "  ".join(map(str.rjust, row, widths))  # noqa: E731
    return "\n".join([draw(header), "  ".join("-" * w for w in widths), *map(draw, lines)])


def brief(study: Study, summary: StudySummary) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the rounded table; axes that do not vary are left out."""
    spec = study.spec
    axes = [name for name in spec.columns if len({c.column(name) for c in spec.cells}) > 1]
    if spec.budget != "epsilon_per_table" and spec.budget in axes:  # one of them says it all
        axes = [name for name in axes if name != "epsilon_per_table"]
    axes = axes or ["epsilon_per_table"]
    level = max(spec.levels, key=lambda x: -abs(x - 0.95))
    cover = [f"coverage_{what}_{100 * level:g}" for what in ("feature", "class")]
    shown = {
        "se p(x|y)": "se_feature",
        "se p(y)": "se_class",
        f"cover{100 * level:g} p(x|y)": cover[0],
        f"cover{100 * level:g} p(y)": cover[1],
        "width p(x|y)": "width_feature",
        "width p(y)": "width_class",
        "iterations": "iterations",
    }
    short = {"n_records": "N", "epsilon_per_table": "epsilon", "n_features": "K", "n_classes": "I"}
    header = [short.get(a, a) for a in axes] + ["method", "replicates", "failures", *shown]
    lines = []
    for g in range(len(summary.cell)):
        cell = spec.cells[summary.cell[g]]
        lines.append(
            [_plain(cell.column(a)) for a in axes]
            + [
                spec.arms[summary.method[g]].label,
                str(summary.replicates[g]),
                str(summary.failures[g]),
            ]
            + [with_error(summary.mean[name][g], summary.se[name][g]) for name in shown.values()]
        )
    return header, lines


def _csv(study: Study, summary: StudySummary) -> str:
    spec = study.spec
    names = list(summary.mean)
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    statistics = [f"{name}_{what}" for name in names for what in ("mean", "mcse")]
    medians = [f"{name}_median" for name in summary.median]
    writer.writerow([*spec.columns, "method", "replicates", "failures", *statistics, *medians])
    blank = lambda x: "" if math.isnan(x) else repr(float(x))  # noqa: E731
    for g in range(len(summary.cell)):
        cell = spec.cells[summary.cell[g]]
        numbers = [x[name][g] for name in names for x in (summary.mean, summary.se)]
        numbers += [column[g] for column in summary.median.values()]
        writer.writerow(
            [cell.column(name) for name in spec.columns]
            + [spec.arms[summary.method[g]].label, summary.replicates[g], summary.failures[g]]
            + [blank(x) for x in numbers]
        )
    return sink.getvalue().rstrip("\n")


def with_error(mean: float, se: float) -> str:
    """`0.0842(13)`: the mean, with its standard error in units of the last digits shown."""
    if math.isnan(mean):
        return "-"
    if not se > 0:
        return f"{mean:.4g}"
    digits = min(5, max(0, 1 - math.floor(math.log10(se))))
    if round(se * 10**digits) == 0:
        return f"{mean:.{digits}f}"
    if digits == 0:
        return f"{mean:.0f}({se:.0f})"
    return f"{mean:.{digits}f}({round(se * 10**digits)})"


def _medians(values: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    order = np.argsort(group, kind="stable")
    pieces = np.split(values[order], np.cumsum(np.bincount(group, minlength=n_groups))[:-1])
    finite = (piece[np.isfinite(piece)] for piece in pieces)
    return np.array([np.median(piece) if piece.size else np.nan for piece in finite])


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
