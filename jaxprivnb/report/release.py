"""`write_report`: what was released and promised, and what it says, as one page."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxprivnb import totals, validate
from jaxprivnb.extras import require
from jaxprivnb.methods import fit_function, names
from jaxprivnb.privacy.record import Release
from jaxprivnb.report import page
from jaxprivnb.report.names import shown
from jaxprivnb.report.page import Section
from jaxprivnb.report.summary import Row, Summary
from jaxprivnb.status import Status

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior

_DELTAS = (1e-5, 1e-6, 1e-9)
_COLUMNS = 24
"""Categories of a picture of noisy counts."""


def write_report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    method: str = "exact",
    level: float = 0.95,
) -> "Posterior":
    """Fit a release and write one HTML file about it, which opens anywhere and loads nothing.

    It has the promise (budget, neighbours, contributions, noise, what is public), the noisy tables,
    and the posterior of every parameter with intervals, tables and pictures; of an exact posterior
    the true counts as well. It says nothing that the release does not: whoever may have the one
    may have the other.

    Args:
        release: from `release` or `load_release`.
        path: the file to write.
        method: of the fit.
        level: of intervals.

    Returns:
        The posterior that the page shows.
    """
    if not isinstance(release, Release):
        raise TypeError(
            f"release must be a jaxprivnb.Release, got {type(release).__name__}: "
            "release or load_release"
        )
    validate.choice("method", method, names("tables"))
    level = validate.real_number("level", level, above=0, below=1)
    require("matplotlib", "figures", "a report")
    posterior = fit_function(method)(release)
    page.write_page(path, release_page(release, posterior, level))
    return posterior


def release_page(release: Release, posterior: "Posterior", level: float) -> str:
    """The page, as text."""
    domain = release.domain
    summary = posterior.summary(level, counts=hasattr(posterior, "count_interval"))
    K = len(domain.features)
    title = f"{domain.class_.name} by {K} feature{'s' * (K != 1)}: a private release"
    lead = f"{release.guarantee}, {release.guarantee.mechanism} noise, {release.size_text}."
    return page.page(
        title,
        lead,
        [
            Section("What was released", list(_released(release))),
            Section("What is promised", list(_promised(release))),
            Section("The noisy tables", list(_tables(release))),
            Section("How to read the rest", list(_reading(release, posterior, summary))),
            *_parameters(posterior, summary),
        ],
    )


def _released(release: Release) -> Iterator[str]:
    domain = release.domain
    cells = len(domain.class_) * sum(domain.n_categories)
    cells += len(domain.class_) * (release.class_integers is not None)
    N = "not published" if release.size is None else f"{release.size:,}, public"
    yield page.facts(
        [
            ("Class", f"{domain.class_.name}: {', '.join(map(shown, domain.class_.categories))}"),
            ("Tables", f"{len(domain.features)}, one a feature, of classes by categories"),
            ("Table of the class", "no" if release.class_integers is None else "one more table"),
            ("Noisy counts", f"{cells:,} in all"),
            ("Records", N),
            ("Made with", ", ".join(f"{k} {v}" for k, v in release.versions.items())),
        ]
    )
    numeric = [f for f in domain.features if f.bins is not None]
    if numeric:
        yield page.paragraph(
            f"Numbers were put into bins of public edges: {', '.join(f.name for f in numeric)}. "
            "A bin has its lower edge, the last one both."
        )
    if any(f.bins.outside == "clip" for f in numeric if f.bins is not None):
        yield page.paragraph("Numbers beyond the edges are in the end bins.", "note")


def _promised(release: Release) -> Iterator[str]:
    promise = release.guarantee
    kind = "pure" if promise.measure == "epsilon" else "zero-concentrated"
    c = promise.contributions
    people = (
        "It is to people who have one record each"
        if c == 1
        else f"It is to people who have up to {c} records each, for all of these together"
    )
    size = (
        "What their records say is protected; the number of records is public."
        if release.size is not None
        else "The number of records is not published, so that also hides who is among them"
    )
    yield page.paragraph(
        f"{kind.capitalize()} differential privacy with {promise.measure} = {promise.stated:g} for "
        f'all tables together: datasets that differ as "{promise.relation}" says give releases '
        f"whose probabilities are nearly the same. {people}. {size}"
    )
    facts: list[tuple[str, Any]] = [
        ("Neighbours", promise.relation),
        ("Records of a person, at most", c),
        ("Budget asked for", f"{promise.measure} {promise.stated:g} of all tables"),
        ("Budget proved by OpenDP", f"{promise.measure} {promise.total:.6g}"),
        ("Noise", f"{promise.mechanism}, whole numbers, cryptographic"),
        ("A table moves by", f"{promise.sensitivity:.4g} in {promise.norm}"),
    ]
    if promise.measure == "rho":
        facts += [
            (f"epsilon at delta = {delta:g}", f"{promise.epsilon(delta):.3f}") for delta in _DELTAS
        ]
    else:
        facts += [("As zCDP", f"rho {promise.rho:.4g}")]
    yield page.facts(facts)
    tables = [*release.domain.features, *([release.domain.class_] if _has_class(release) else [])]
    rows = [
        (table.name, len(table), f"{scale:.4g}", f"{_sd(release, scale):.4g}", f"{budget:.4g}")
        for table, scale, budget in zip(tables, promise.scales, promise.per_table, strict=True)
    ]
    scale = "scale b" if promise.measure == "epsilon" else "sigma"
    heads = ("table", "categories", scale, "sd of a count", promise.measure)
    yield page.table(heads, rows)
    yield page.paragraph(
        "The budgets of the tables add up to the whole. Further releases of the same records would "
        "add theirs to it.",
        "note",
    )


def _has_class(release: Release) -> bool:
    return release.class_integers is not None


def _sd(release: Release, scale: float) -> float:
    """The noise's standard deviation: of the discrete Laplace 1 / (sqrt(2) sinh(1 / 2b))."""
    if release.guarantee.measure == "rho":
        return scale
    return float(1 / (np.sqrt(2) * np.sinh(1 / (2 * scale))))


def _tables(release: Release) -> Iterator[str]:
    from jaxprivnb.plots import plot_tables

    p = release.n_records_p_value()
    if p is not None:
        odd = p < totals.DOUBTFUL
        yield page.paragraph(
            "How well the tables' totals fit N: their noise would put them this far from it with "
            f"probability {p:.2g}." + (" Is N right?" if odd else ""),
            "warning" if odd else "",
        )
    yield page.paragraph(
        "Counts with their noise, as they were published; they may be negative. Colour is the "
        "count: blue above zero, red below."
    )
    for group in _groups(release):
        titles = ", ".join(shown(name) for name in group)
        drawn = plot_tables(release, features=group)
        yield page.figure(drawn, f"Noisy counts of {titles} by class")
    classes = [shown(label) for label in release.classes]
    pieces = []
    for k, feature in enumerate(release.domain.features):
        counts = release.integers[:, k, : len(feature)]
        rows = [
            (shown(label), *(f"{n:,}" for n in counts[:, j]))
            for j, label in enumerate(feature.categories)
        ]
        pieces.append(page.table((feature.name, *classes), rows))
    if release.class_integers is not None:
        rows = [("records", *(f"{n:,}" for n in release.class_integers))]
        pieces.append(page.table((release.domain.class_.name, *classes), rows))
    yield page.folded("All noisy counts as numbers", *pieces)


def _groups(release: Release) -> Iterator[list[str]]:
    """Features whose categories fit into one picture of counts, in order."""
    group: list[str] = []
    width = 0
    for feature in release.domain.features:
        if group and width + len(feature) > _COLUMNS:
            yield group
            group, width = [], 0
        group.append(feature.name)
        width += len(feature)
    yield group


def _reading(release: Release, posterior: "Posterior", summary: Summary) -> Iterator[str]:
    level = f"{100 * summary.level:g}%"
    if summary.status != Status.SUCCESS:
        said = f"The fit ended with status {summary.status.name}: {summary.status.sentence}"
        yield page.paragraph(said, "warning")
    yield page.paragraph(
        "What the noisy tables say about the probabilities behind them, under a uniform prior "
        f"({summary.posterior}): the mean, the standard deviation, and an interval that holds the "
        f"probability with {level}, with equal tails on either side."
    )
    if summary.counts:
        yield page.paragraph(
            'The columns "count", "from" and "to" are of the true number of records in a cell: its '
            f"mean and its {level} interval, in whole numbers."
        )
    else:
        yield page.paragraph(
            "These intervals are not those of the exact posterior, and may be far too narrow.",
            "warning",
        )
    facts: list[tuple[str, Any]] = [("Status of the fit", summary.status.name)]
    facts += [
        (name.replace("_", " ").capitalize(), f"{float(getattr(posterior, name)):.6g}")
        for name in posterior.headline
    ]
    if summary.n_records is not None:
        mean, low, high = summary.n_records
        facts.append(("Number of records", f"{mean:,.1f} ({low:,} to {high:,})"))
    yield page.facts(facts)
    yield page.paragraph(
        "Intervals are of each number by itself, and with many of them some miss the truth. "
        "Within a class features are taken to be independent.",
        "note",
    )


def _parameters(posterior: "Posterior", summary: Summary) -> Iterator[Section]:
    """A section for P(Y), and one for each feature."""
    domain = posterior.domain
    rows = [row for row in summary.rows if row.class_ is None]
    yield Section(
        f"P({domain.class_.name})",
        [_picture(posterior, summary, None, rows), _rows(summary, rows)],
    )
    for feature in domain.features:
        rows = [r for r in summary.rows if r.class_ is not None and r.feature == feature.name]
        yield Section(
            f"P({feature.name} | {domain.class_.name})",
            [_picture(posterior, summary, feature.name, rows), _rows(summary, rows)],
        )


def _picture(posterior: "Posterior", summary: Summary, feature: str | None, rows: list[Row]) -> str:
    from jaxprivnb.plots import plot_forest
    from jaxprivnb.plots.forest import MOST_ROWS

    if len(rows) > MOST_ROWS:
        return page.paragraph(f"Too many intervals for one picture: {len(rows)}.", "note")
    chosen = {"what": "class"} if feature is None else {"features": [feature]}
    words = "Posterior means and intervals, as in the table"
    return page.figure(plot_forest(posterior, level=summary.level, **chosen), words)


def _rows(summary: Summary, rows: list[Row]) -> str:
    """The table of one distribution after the other."""
    shown_rows: list[list[str]] = []
    before = None
    for row in rows:
        title = summary.distribution(row)
        if title != before and row.class_ is not None:
            shown_rows.append([title])
        before = title
        shown_rows.append([shown(row.category), *summary.numbers(row)])
    return page.table(("", *summary.heads), shown_rows)
