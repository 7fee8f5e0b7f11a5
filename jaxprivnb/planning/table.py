"""The answer of `plan`: a table, and one sentence."""

import csv
import dataclasses
import io
import json
from html import escape
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.extras import require
from jaxprivnb.noise import Neighbours
from jaxprivnb.privacy.domain import Domain

NOISES = {"laplace": "discrete Laplace", "gaussian": "discrete Gaussian"}
ALLOCATIONS = {"equal": 0.0, "sqrt J": 0.5, "J": 1.0}
"""Weights of the tables: a power of how many categories they have; the class's own table has 1."""
QUANTITIES = (
    "class_width",
    "class_error",
    "feature_width",
    "feature_error",
    "count_width",
    "count_error",
    "found",
    "accuracy",
)
_WORSE = 1.01
"""Errors up to this multiple of the least are as good."""
_NEAR = 0.01
"""Accuracy that is no more than this below the best there can be is enough."""


class Row(NamedTuple):
    """One way of spending a budget, and what a release of it is expected to say."""

    epsilon_total: float
    """Of all tables together, at the plan's delta for Gaussian noise and at 0 for Laplace."""
    noise: str
    """"laplace" or "gaussian"."""
    rho_total: float | None
    """What `release(rho_total=...)` is to be told, for Gaussian noise."""
    class_table: bool
    """Whether the class's own table is released as well."""
    allocation: str
    """Which weights: one of `ALLOCATIONS`."""
    scale_least: float
    """The narrowest table's b or sigma."""
    scale_most: float
    """The widest's."""
    class_width: float
    """Mean width of the interval of P(Y=i)."""
    class_error: float
    """Mean of |posterior mean - truth|, of P(Y=i)."""
    feature_width: float
    """The same of P(X_k=j | Y=i), over all cells of features with several categories."""
    feature_error: float
    count_width: float
    """The same of the true counts n_ikj."""
    count_error: float
    found: float
    """Share of new records whose most likely class, by the true parameters, is the one that the
    release makes most likely."""
    accuracy: float
    """Share of new records whose class is predicted right."""
    se: tuple[float, ...]
    """Monte Carlo standard errors of the last eight."""


COLUMNS = (*Row._fields[:-1], *(f"{name}_se" for name in QUANTITIES))


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """What budgets are expected to buy; `str` has the table and one sentence of advice."""

    rows: tuple[Row, ...]
    """Every epsilon with both noises, with and without the class's table, and all allocations."""
    n_records: int
    domain: Domain
    delta: float
    """At which Gaussian noise keeps epsilon."""
    level: float
    """Of the intervals."""
    ceiling: float
    """Accuracy with the true parameters."""
    neighbours: Neighbours
    contributions: int
    replicates: int
    """Simulated datasets."""
    seed: int

    def best(self, epsilon_total: float) -> Row:
        """The row with the least error of P(X|Y) at an epsilon.

        Of those that are within 1% of it, the first: Laplace before Gaussian noise, no class table
        before one, equal weights before others.
        """
        return _plainest(self._at(epsilon_total))

    def chosen(self) -> tuple[Row, ...]:
        """For each epsilon, noise, and with or without the class table, the best allocation."""
        groups: dict[Any, list[Row]] = {}
        for row in self.rows:
            groups.setdefault((row.epsilon_total, row.noise, row.class_table), []).append(row)
        return tuple(map(_plainest, groups.values()))

    def weights(self, row: Row) -> dict[str, float]:
        """A row's weights by table, for `release(weights=...)`; they add up to 1."""
        return table_weights(self.domain, row.class_table, row.allocation)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets, in the order they were asked for."""
        return tuple(dict.fromkeys(row.epsilon_total for row in self.rows))

    @property
    def advice(self) -> str:
        """One sentence: how to spend the least of the budgets that is enough, or the largest.

        Enough is an accuracy within .01 of what the true parameters give.
        """
        best = {e: self.best(e) for e in sorted(self.epsilons)}
        enough = [row for row in best.values() if row.accuracy >= self.ceiling - _NEAR]
        row = enough[0] if enough else best[max(best)]
        how = f"{NOISES[row.noise]} noise"
        if row.rho_total is not None:
            how += f" (rho_total={row.rho_total:.4g})"
        how += " and the class's own table" if row.class_table else ""
        how += {"equal": ", the budget shared equally"}.get(
            row.allocation, f", the budget shared in proportion to {_POWERS.get(row.allocation)}"
        )
        why = (
            "the least of these budgets whose predictions are nearly as good as any"
            if enough
            else "the largest of these budgets, whose predictions are still not as good as any"
        )
        return (
            f"Epsilon {row.epsilon_total:g} is {why} ({row.accuracy:.3f} right, "
            f"{self.ceiling:.3f} with the true parameters): spend it on {how}; "
            f"P(X|Y) is then off by {row.feature_error:.2g} on average, and its "
            f"{self.level:g} intervals are {row.feature_width:.2g} wide."
        )

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of all rows, with standard errors in columns that end in _se."""
        pandas = require("pandas", "pandas", "to_pandas")
        return pandas.DataFrame([_flat(row) for row in self.rows], columns=list(COLUMNS))

    def to_csv(self) -> str:
        """The same as CSV text; `rho_total` is empty for Laplace noise."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(_flat, self.rows))
        return text.getvalue()

    def to_json(self) -> str:
        """All rows with their weights by table, what was asked, and the advice."""
        about = {
            name: getattr(self, name)
            for name in (
                "n_records", "delta", "level", "ceiling", "neighbours", "contributions",
                "replicates", "seed", "advice",
            )
        }  # fmt: skip
        rows = [
            dict(zip(COLUMNS, _flat(row), strict=True)) | {"weights": self.weights(row)}
            for row in self.rows
        ]
        return json.dumps({**about, "rows": rows}, indent=1) + "\n"

    def heading(self) -> str:
        """What the numbers are."""
        I, K, _ = self.domain.shape
        return (
            f"N={self.n_records}, {I} classes, {K} features; {self.level:g} intervals, expected "
            f"over {self.replicates} simulated datasets;\nGaussian noise at delta {self.delta:g}; "
            f"accuracy with the true parameters {self.ceiling:.3f}"
        )

    def table(self) -> str:
        """One line for each epsilon, noise, and with or without the class table."""
        best = {e: self.best(e) for e in self.epsilons}
        lines = [
            f"{'':34}{'':>14}  {'P(Y)':>14}  {'P(X|Y)':>14}  {'counts':>14}",
            f"{'epsilon':>9} {'noise':<9}{'class':<6}{'weights':<9}{'scale':>14}  "
            + "  ".join([f"{'width':>7}{'error':>7}"] * 3)
            + f"{'found':>8}{'right':>7}",
        ]
        for row in self.chosen():
            numbers = [row[COLUMNS.index(name)] for name in QUANTITIES]
            pairs = [f"{_short(x):>7}{_short(y):>7}" for x, y in zip(*[iter(numbers[:6])] * 2)]  # noqa: B905
            star = "*" if row == best[row.epsilon_total] else " "
            own = "yes" if row.class_table else "no"
            lines.append(
                f"{star}{row.epsilon_total:>8g} {row.noise:<9}{own:<6}"
                f"{row.allocation:<9}{_span(row):>14}  "
                + "  ".join(pairs)
                + f"{row.found:>8.3f}{row.accuracy:>7.3f}"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.heading()}\n{self.table()}\n\n{self.advice}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _at(self, epsilon_total: float) -> list[Row]:
        epsilon = validate.real_number("epsilon_total", epsilon_total, above=0)
        found = [row for row in self.rows if row.epsilon_total == epsilon]
        if not found:
            listed = ", ".join(f"{e:g}" for e in self.epsilons)
            raise ValueError(
                f"epsilon_total must be one that was planned, {listed}; got {epsilon:g}"
            )
        return found


_POWERS = {
    "sqrt J": "the square root of a table's number of categories",
    "J": "a table's number of categories",
}


def table_weights(domain: Domain, class_table: bool, allocation: str) -> dict[str, float]:
    """Weights by table that add up to 1."""
    sizes = {f.name: len(f) for f in domain.features}
    if class_table:
        sizes[domain.class_.name] = 1
    each = {name: float(size) ** ALLOCATIONS[allocation] for name, size in sizes.items()}
    total = sum(each.values())
    return {name: weight / total for name, weight in each.items()}


def _plainest(rows: list[Row]) -> Row:
    least = min(row.feature_error for row in rows)
    return next(row for row in rows if row.feature_error <= _WORSE * least)


def _flat(row: Row) -> list[Any]:
    return [*row[:-1], *row.se]


def _short(x: float) -> str:
    """Three digits, without an exponent."""
    digits = 4 if x < 1 else 3 if x < 10 else 1 if x < 1000 else 0
    return f"{x:.{digits}f}"


def _span(row: Row) -> str:
    ends = [np.format_float_positional(x, 3, fractional=False, trim="-") for x in row[5:7]]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
