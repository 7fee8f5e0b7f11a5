"""What notebooks show. Names come from files and data: every one is escaped."""

from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxprivnb import validate
from jaxprivnb.report.names import Names, shown
from jaxprivnb.report.text import has_numbers

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior
    from jaxprivnb.report.summary import Summary
    from jaxprivnb.tables import NoisyTables

FEATURES, CLASSES, CATEGORIES = 10, 12, 12
"""Most features, and most classes and categories of each, that a notebook is shown."""
ROWS = 200
"""Most rows of a summary."""


def posterior_html(posterior: "Posterior") -> str:
    """Means and standard deviations; intervals cost more and are `summary`'s."""
    caption = _line(repr(posterior))
    if not has_numbers(posterior) or posterior.batch_shape:
        return caption
    named = Names.of(posterior.domain, posterior.class_mean.shape[0], posterior.categories)
    by_class = _pairs(posterior.class_mean, posterior.class_sd)
    by_feature = _pairs(posterior.feature_mean, posterior.feature_sd)
    class_ = named.domain.class_
    first = _grid(f"P({class_.name})", ["mean ± sd"], class_.categories, lambda i, j: by_class[i])
    tables = _feature_grids(named, lambda i, k, j: by_feature[i, k, j], "P({} | {})")
    return caption + first + tables + _line("Posterior mean ± sd; .summary() has intervals.")


def tables_html(tables: "NoisyTables") -> str:
    """The noisy counts, feature by feature."""
    caption = _line(repr(tables))
    counts = tables.counts
    known = isinstance(counts, np.ndarray) or hasattr(counts, "sharding")
    if not known or not validate.is_concrete(counts) or tables.batch_shape:
        return caption
    named = Names.of(getattr(tables, "domain", None), tables.n_classes, _categories(tables))
    values = np.asarray(counts)
    html = _feature_grids(named, lambda i, k, j: f"{values[i, k, j]:g}", "{} by {}")
    class_table = getattr(tables, "class_integers", None)
    if class_table is not None:
        class_ = named.domain.class_
        each = lambda i, j: str(class_table[i])  # noqa: E731
        html += _grid(class_.name, ["noisy count"], class_.categories, each)
    return caption + html + _line("Noisy counts; they may be negative.")


def summary_html(summary: "Summary") -> str:
    """One row a parameter."""
    body = "".join(
        _row([summary.distribution(row), shown(row.category)], summary.numbers(row))
        for row in summary.rows[:ROWS]
    )
    head = _row(["", "", *summary.heads], [])
    html = _line(summary.heading()) + f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    more = len(summary) - ROWS
    return html + (_line(f"... {more} more rows: print() shows them all") if more > 0 else "")


def _feature_grids(named: Names, cell: Callable[[int, int, int], str], title: str) -> str:
    """A table a feature: classes down, categories across."""
    domain, cells = named
    html = ""
    for k, feature in enumerate(domain.features[:FEATURES]):
        places = cells[k]
        html += _grid(
            title.format(feature.name, domain.class_.name),
            feature.categories,
            domain.class_.categories,
            lambda i, j, k=k, places=places: cell(i, k, places[j]),  # type: ignore[misc]
        )
    more = len(domain.features) - FEATURES
    return html + (_line(f"... and {more} more features") if more > 0 else "")


def _grid(
    title: str, columns: Iterable[Any], rows: Iterable[Any], cell: Callable[[int, int], str]
) -> str:
    columns, rows = list(columns), list(rows)
    across, down = columns[:CATEGORIES], rows[:CLASSES]
    cut = ["..."] if len(columns) > CATEGORIES else []
    head = _row([title, *map(shown, across), *cut], [])
    body = "".join(
        _row([shown(row)], [*(cell(i, j) for j in range(len(across))), *cut])
        for i, row in enumerate(down)
    )
    if len(rows) > CLASSES:
        body += _row(["..."], [])
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(heads: Iterable[str], cells: Iterable[str]) -> str:
    html = "".join(f"<th>{escape(shown(text))}</th>" for text in heads)
    html += "".join(f"<td>{escape(text)}</td>" for text in cells)
    return f"<tr>{html}</tr>"


def _line(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _pairs(mean: Any, sd: Any) -> np.ndarray:
    """Mean ± sd as text, in the arrays' shape."""
    both = np.vectorize(lambda m, s: f"{m:.3f} ± {s:.3f}", otypes=[object])
    return both(np.asarray(mean), np.asarray(sd))


def _categories(tables: "NoisyTables") -> Any:
    """Categories that any class can have, bool `[..., K, J]`."""
    by_feature = tables.real.ndim == len(tables.batch_shape) + 2
    return tables.real if by_feature else tables.real.any(-3)
