"""`summary()`: every parameter's mean, sd and interval, as a table."""

import csv
import dataclasses
import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.privacy.domain import Label
from jaxprivnb.report.names import name_cells, shown
from jaxprivnb.report.text import doubt
from jaxprivnb.status import Status
from jaxprivnb.study.extras import require

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior

COLUMNS = ("feature", "category", "class", "mean", "sd", "lower", "upper")
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


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """A posterior's parameters, a row each: P(Y) first, then feature by feature, class by class."""

    rows: tuple[Row, ...]
    level: float
    """Of the intervals."""
    posterior: str
    """The posterior's type."""
    status: Status
    doubt: str = ""
    """What is odd about the release, if anything: see `NoisyTables.doubt`."""

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with columns feature, category, class, mean, sd, lower, upper."""
        pandas = require("pandas", "pandas", "to_pandas")
        return pandas.DataFrame(self.rows, columns=list(COLUMNS))

    def to_csv(self) -> str:
        """The same columns as CSV text; `class` is empty in the rows of P(Y)."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self.rows)
        return text.getvalue()

    def heading(self) -> str:
        """What the numbers are."""
        failed = "" if self.status == Status.SUCCESS else f", status {self.status.name}"
        return f"{self.posterior}, {self.level:g} intervals{failed}{self.doubt}"

    def table(self, limit: int | None = None) -> str:
        """One line a parameter, under the distribution it belongs to; the first `limit` rows."""
        rows = self.rows[:limit]
        labels = [shown(row.category) for row in rows]
        titles = [self.distribution(row) for row in rows]
        width = max(map(len, [titles[0], *labels])) + 2
        lines = [f"{'':{width}}" + "".join(f"{name:>9}" for name in COLUMNS[3:])]
        for r, (title, label, row) in enumerate(zip(titles, labels, rows, strict=True)):
            if r == 0 or title != titles[r - 1]:
                lines.append(title)
            lines.append(f"  {label:<{width - 2}}" + "".join(f"{x:9.4f}" for x in row[3:]))
        return "\n".join(lines)

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


def summarise_posterior(posterior: "Posterior", level: float) -> Summary:
    """The table of one dataset's posterior."""
    single("summary", posterior)
    level = validate.real_number("level", level, above=0, below=1)
    by_class = _columns(posterior, "class", level)  # [I, 4]
    by_feature = _columns(posterior, "feature", level)  # [I, K, J, 4]
    domain, cells = name_cells(posterior.domain, len(by_class), posterior.mask)
    classes = domain.class_.categories
    rows = [
        Row(domain.class_.name, label, None, *by_class[i].tolist())
        for i, label in enumerate(classes)
    ]
    for k, feature in enumerate(domain.features):
        for i, class_ in enumerate(classes):
            for j, label in zip(cells[k], feature.categories, strict=True):
                rows.append(Row(feature.name, label, class_, *by_feature[i, k, j].tolist()))
    status = Status(int(posterior.status))
    return Summary(tuple(rows), level, type(posterior).__name__, status, doubt(posterior))


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
