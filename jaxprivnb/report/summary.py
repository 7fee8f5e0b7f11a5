"""`summary()`: every parameter's mean, sd and interval, as a table."""

import csv
import dataclasses
import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxprivnb import totals, validate
from jaxprivnb.extras import require
from jaxprivnb.privacy.domain import Label
from jaxprivnb.report.names import Names, in_csv, shown
from jaxprivnb.report.text import n_records_p_value
from jaxprivnb.status import Status

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior

COLUMNS = ("feature", "category", "class", "mean", "sd", "lower", "upper")
COUNT_COLUMNS = ("count_mean", "count_lower", "count_upper")
_SHOWN = 60
"""Rows that a repr shows; printing shows all."""


class Row(NamedTuple):
    """One parameter: P(X_k=j | Y=i), or P(Y=i)."""

    feature: str
    """The feature's name; the class's in the rows of P(Y)."""
    category: Label
    """Label of the category j; of the class i in the rows of P(Y)."""
    class_: Label | None
    """Label of the class i that is given; None in the rows of P(Y)."""
    mean: float
    sd: float
    lower: float
    """Lower end of the equal-tailed interval."""
    upper: float
    """Upper end."""
    count_mean: float | None = None
    """Posterior mean of the true count, if counts were asked for."""
    count_lower: int | None = None
    """Lower end of the equal-tailed interval of the true count."""
    count_upper: int | None = None
    """Upper end."""


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """A posterior's parameters, a row each: P(Y) first, then feature by feature, class by class."""

    rows: tuple[Row, ...]
    level: float
    """Of the intervals."""
    posterior: str
    """The posterior's type."""
    status: Status
    n_records_p_value: float | None = None
    """How well the totals fit N, if that is known: see `NoisyTables.n_records_p_value`."""
    n_records: tuple[float, int, int] | None = None
    """Posterior mean of N and its interval, where N is not known."""
    prior: str = ""
    """What became of the search for a prior, and the concentrations found; empty if one was given.
    """
    counts: bool = False
    """Whether the rows say what is known of the true counts, too."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*COLUMNS, *COUNT_COLUMNS) if self.counts else COLUMNS

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with columns feature, category, class, mean, sd, lower, upper, and
        count_mean, count_lower, count_upper if counts were asked for.
        """
        pandas = require("pandas", "pandas", "to_pandas")
        size = len(self.columns)
        frame = pandas.DataFrame([row[:size] for row in self.rows], columns=list(self.columns))
        # Labels as they are: with None among them pandas would make floats of whole numbers.
        frame["class"] = pandas.Series([row.class_ for row in self.rows], dtype=object)
        return frame

    def to_csv(self) -> str:
        """The same columns as CSV text; `class` is empty in the rows of P(Y).

        A label that a spreadsheet would take for a formula has an apostrophe before it, and what is
        not printable is escaped.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        size = len(self.columns)
        writer.writerow(self.columns)
        writer.writerows([*map(in_csv, row[:3]), *row[3:size]] for row in self.rows)
        return text.getvalue()

    def heading(self) -> str:
        """What the numbers are, and below it what is wrong with them."""
        good = self.status == Status.SUCCESS
        failed = "" if good else f", status {self.status.name}"
        fits = totals.describe(self.n_records_p_value)
        means = "" if good else f"\n{self.status.sentence}"
        size = ""
        if self.n_records is not None:
            mean, low, high = self.n_records
            size = f", N = {mean:.1f} ({low} to {high})"
        prior = f"\n{self.prior}" if self.prior else ""
        return f"{self.posterior}, {self.level:g} intervals{failed}{fits}{size}{means}{prior}"

    def table(self, limit: int | None = None) -> str:
        """One line a parameter, under the distribution it belongs to; the first `limit` rows."""
        rows = self.rows[:limit]
        labels = [shown(row.category) for row in rows]
        titles = [self.distribution(row) for row in rows]
        width = max(map(len, [titles[0], *labels])) + 2
        in_columns = lambda texts: "".join(  # noqa: E731
            text.rjust(11 if c == 4 else 9) for c, text in enumerate(texts)
        )
        lines = [" " * width + in_columns(self.heads)]
        for r, (title, label, row) in enumerate(zip(titles, labels, rows, strict=True)):
            if r == 0 or title != titles[r - 1]:
                lines.append(title)
            lines.append(f"  {label:<{width - 2}}" + in_columns(self.numbers(row)))
        return "\n".join(lines)

    @property
    def heads(self) -> list[str]:
        """What stands above `numbers`."""
        return [*COLUMNS[3:], *(["count", "from", "to"] if self.counts else [])]

    def numbers(self, row: Row) -> list[str]:
        """A row's numbers as they are shown."""
        numbers = [f"{x:.4f}" for x in row[3:7]]
        if self.counts:
            numbers += [f"{row.count_mean:.1f}", f"{row.count_lower}", f"{row.count_upper}"]
        return numbers

    def distribution(self, row: Row) -> str:
        """The distribution a row is of, as P(feature | class = label)."""
        given = "" if row.class_ is None else f" | {shown(self.rows[0].feature)} = "
        return f"P({shown(row.feature)}{given}{'' if row.class_ is None else shown(row.class_)})"

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return f"{self.heading()}\n{self.table()}"

    def __repr__(self) -> str:
        more = len(self) - _SHOWN
        rest = f"\n... {more} more rows: print() shows them all" if more > 0 else ""
        return f"{self.heading()}\n{self.table(_SHOWN)}{rest}"

    def _repr_html_(self) -> str:
        from jaxprivnb.report.html import summary_html

        return summary_html(self)


def summarise_posterior(posterior: "Posterior", level: float, counts: bool = False) -> Summary:
    """The table of one dataset's posterior."""
    single("summary", posterior)
    level = validate.real_number("level", level, above=0, below=1)
    by_class = _columns(posterior, "class", level)  # [I, 4]
    by_feature = _columns(posterior, "feature", level)  # [I, K, J, 4]
    of_class, of_feature = _counts(posterior, level) if counts else ({}, {})
    domain, cells = Names.of(posterior.domain, len(by_class), posterior.categories)
    classes = domain.class_.categories
    rows = [
        Row(domain.class_.name, label, None, *by_class[i].tolist(), *of_class.get((i,), ()))
        for i, label in enumerate(classes)
    ]
    for k, feature in enumerate(domain.features):
        for i, class_ in enumerate(classes):
            for j, label in zip(cells[k], feature.categories, strict=True):
                own = (*by_feature[i, k, j].tolist(), *of_feature.get((i, k, j), ()))
                rows.append(Row(feature.name, label, class_, *own))
    status = Status(int(posterior.status))
    kind = type(posterior).__name__
    p, size = n_records_p_value(posterior), None
    if getattr(posterior, "n_records_pmf", None) is not None:
        low, high = (int(x) for x in posterior.n_records_interval(level))  # type: ignore[attr-defined]
        size = (float(posterior.n_records_mean), low, high)  # type: ignore[attr-defined]
    return Summary(tuple(rows), level, kind, status, p, size, _prior(posterior, domain), counts)


def _prior(posterior: Any, domain: Any) -> str:
    """The concentrations that were learned, by name."""
    code = getattr(posterior, "prior_status", None)
    if code is None:
        return ""
    if code != Status.SUCCESS:
        return f"prior uniform, not learned: status {Status(int(code)).name}"
    of_class, of_feature = map(np.asarray, posterior.concentrations)
    named = zip(domain.features, of_feature, strict=False)  # without the class's own table
    values = [(domain.class_.name, of_class), *((feature.name, a) for feature, a in named)]
    return "prior learned, concentrations " + ", ".join(f"{shown(n)}: {a:.2g}" for n, a in values)


def single(method: str, posterior: "Posterior") -> None:
    """Raise unless the posterior is of one dataset."""
    if posterior.batch_shape:
        first = ", ".join("0" * len(posterior.batch_shape))
        raise ValueError(
            f"{method} is of one dataset, and this posterior has leading axes "
            f"{posterior.batch_shape}: take one with posterior.replicate({first})"
        )


def _columns(posterior: Any, which: str, level: float) -> np.ndarray:
    """Mean, sd, lower and upper on the last axis."""
    mean, sd = (getattr(posterior, f"{which}_{name}") for name in ("mean", "sd"))
    lower, upper = getattr(posterior, f"{which}_interval")(level)
    return np.stack([np.asarray(x) for x in (mean, sd, lower, upper)], axis=-1)


def _counts(posterior: Any, level: float) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """(Mean, lower, upper) of true counts, by (i,) and by (i, k, j)."""
    if not hasattr(posterior, "count_interval"):
        raise TypeError(
            f"counts are known to the exact posterior alone, and this is a "
            f"{type(posterior).__name__}: fit_exact"
        )
    found = []
    for which in ("class_count", "count"):
        ends = getattr(posterior, f"{which}_interval")(level)
        mean, low, high = map(np.asarray, (getattr(posterior, f"{which}_mean"), *ends))
        at = np.ndindex(mean.shape)
        found.append({x: (float(mean[x]), int(low[x]), int(high[x])) for x in at})
    return found[0], found[1]
