"""`report_study`: a study folder as one page, that opens anywhere."""

import importlib.metadata
import json
import os
import platform
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from jaxprivnb._version import __version__
from jaxprivnb.extras import require
from jaxprivnb.report import page
from jaxprivnb.report.page import Section
from jaxprivnb.status import Status
from jaxprivnb.storage import open_storage
from jaxprivnb.study.display import describe_cell, varying
from jaxprivnb.study.figures import FIGURES, draw, render, replicates_of
from jaxprivnb.study.folder import read_study
from jaxprivnb.study.load import Study, method_codes, read_study_rows
from jaxprivnb.study.spec import AS_IT_IS, Spec
from jaxprivnb.study.summary import StudySummary, brief, summarise

_PAGES = 3
"""Of a figure, or 1 where one figure has the whole grid; `jaxprivnb plot` draws them all."""
_FAILURES = 50
"""Lines of the table of failures."""
_LIBRARIES = ("jax", "jaxlib", "numpy", "optax", "pyarrow", "matplotlib")
_DPI = 110

_WORDS = {
    "figure1": "Squared error",
    "efficiency": "Efficiency",
    "coverage": "Coverage",
    "width": "Width of intervals",
    "iterations": "Iterations",
    "zip": "Intervals around the truth",
    "nested": "The whole grid at once",
}


def report_study(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> Study:
    """Write one HTML file about a study, finished or not: its design, its figures, its summary with
    Monte Carlo errors, its failures, its spec and the versions. The file loads nothing.

    Args:
        folder: the study's folder or URL.
        out: the file to write.

    Returns:
        The study that the page shows.
    """
    require("matplotlib", "figures", "a report")
    study = read_study_rows(folder)
    begun = read_study(open_storage(folder)) or {}
    page.write_page(out, study_page(study, begun.get("jaxprivnb", __version__)))
    return study


def study_page(study: Study, begun_with: str) -> str:
    """The page, as text; `begun_with` is the version that the study was begun with."""
    spec, summary = study.spec, summarise(study)
    cells, methods = len(spec.cells), len(spec.arms)
    lead = (
        f"{cells} cell{'s' * (cells != 1)}, {methods} method{'s' * (methods != 1)}, "
        f"{replicates_of(study, summary)}; {study.table.num_rows:,} rows."
    )
    return page.page(
        f"{spec.name}: a Monte Carlo study",
        lead,
        [
            Section("What was computed", list(_design(study))),
            Section("Figures", list(_figures(study, summary))),
            Section("Summary", list(_summary(study, summary))),
            Section("Failures", list(_failures(study, summary))),
            Section("Spec and versions", list(_spec(spec, begun_with))),
        ],
    )


def _design(study: Study) -> Iterator[str]:
    spec = study.spec
    if not study.complete:
        yield page.paragraph(
            f"This study is not finished: {study.chunks} of {study.wanted} chunks are done. What "
            "is missing is not below, and standard errors will be smaller.",
            "warning",
        )
    yield page.facts(_facts(spec))
    yield page.paragraph(loop_in_words(spec))


def _facts(spec: Spec) -> Iterator[tuple[str, str]]:
    names = {"n_records": "records N", "n_classes": "classes I", "n_features": "features K"}
    for name in spec.columns:
        if name == "epsilon_per_table" and name != spec.budget:
            continue
        values = dict.fromkeys(_short(c.column(name)) for c in spec.cells)
        yield names.get(name, name.replace("_", " ")), ", ".join(values)
    if not spec.truth:
        yield "truth", "drawn from the prior of the fits"
    yield (
        "methods",
        ", ".join(
            f"{arm.label} ({', '.join(said)})" if (said := _options(arm)) else arm.label
            for arm in spec.arms
        ),
    )
    if spec.published != AS_IT_IS:
        told = {k: v for k, v in spec.published._asdict().items()
                if v != AS_IT_IS._asdict()[k]}  # fmt: skip
        yield "published", ", ".join(f"{k} = {v}" for k, v in told.items())
    yield (
        "intervals",
        (
            f"every {spec.interval_every}th replicate"
            if spec.interval_every > 1
            else "all replicates"
        ),
    )


def _options(arm: Any) -> list[str]:
    own = [f"{name} = {value}" for name, value in arm.options]
    return own if arm.method == arm.label else [arm.method, *own]


def loop_in_words(spec: Spec) -> str:
    """What is drawn how often."""
    P, D, E = (f"{n:,} time{'s' * (n != 1)}" for n in spec.replicates)
    fixed = spec.truth and not any(isinstance(t, float) for t in spec.truth)
    with_parameters = spec.class_counts == "parameters"
    parameters = "the parameters are fixed" if fixed else "the parameters are drawn"
    first = f"{parameters}, and class counts from them" if with_parameters else parameters
    second = "the tables" if with_parameters else "class counts and tables"
    return (
        f"In every cell, {P}: {first}. For each of these, {D}: {second} are drawn. For each of "
        f"these, {E}: the noise is drawn, and every method fits the same noisy tables. Cells that "
        "differ only in the noise or in what the fits assume share all draws but the noise."
    )


def _figures(study: Study, summary: StudySummary) -> Iterator[str]:
    whole = bool(draw(study, "nested", summary))  # then the others are many pages
    order = sorted(FIGURES, key=lambda name: name != "nested")
    most = 1 if whole else _PAGES
    for name in order:
        pages = draw(study, name, summary)
        if not pages:
            continue
        yield page.heading(_WORDS[name])
        for figure in pages[:most]:
            words = f"{_WORDS[name]}: the numbers are in the summary below"
            data = render(figure, "png", _DPI)
            yield page.picture(data, "image/png", words, width=figure.get_figwidth() * _DPI)
        if pages[most:]:
            yield page.paragraph(
                f"{len(pages) - most} more pages: jaxprivnb plot DIR --figures {name}", "note"
            )


def _summary(study: Study, summary: StudySummary) -> Iterator[str]:
    yield page.paragraph(
        "0.0842(13) means 0.0842 with a Monte Carlo standard error of 0.0013, which is that of the "
        "means of parameter draws. Means are over replicates that have the number: those of failed "
        "fits are left out, and are counted."
    )
    header, lines = brief(study, summary)
    # Axes and the method are text in the table's sense; what follows is measured.
    yield page.table(header, lines, header.index("method") + 1)


def _failures(study: Study, summary: StudySummary) -> Iterator[str]:
    total = int(summary.failures.sum())
    if not total:
        yield page.paragraph("None: every fit of every replicate has status 0.")
        return
    spec, table = study.spec, study.table
    status = table["status"].to_numpy()
    failed = np.flatnonzero(status != 0)
    messages = np.full(failed.size, "", object)
    if "message" in table.column_names:
        found = table["message"].take(failed).to_pylist()
        messages = np.array([m or "" for m in found], object)
    codes = method_codes(table, [arm.label for arm in spec.arms])[failed].tolist()
    cells = table["cell"].to_numpy()[failed].tolist()
    counted = Counter(zip(codes, status[failed].tolist(), messages, cells, strict=True))
    yield page.paragraph(
        f"{total:,} of {table.num_rows:,} rows have a status that is not success.", "warning"
    )
    rows = []
    for (method, code, message, cell), count in counted.most_common(_FAILURES):
        rows.append((spec.arms[method].label, _status(code), message,
                     describe_where(spec, cell), f"{count:,}"))  # fmt: skip
    yield page.table(("method", "status", "message", "cell", "rows"), rows, 4)
    if len(counted) > _FAILURES:
        yield page.paragraph(f"and {len(counted) - _FAILURES} more kinds", "note")
    sentences = {c: Status(c).sentence for _, c, _, _ in counted if c in list(Status)}
    yield page.facts((f"{Status(c).name} ({c})", text) for c, text in sorted(sentences.items()))


def _status(code: int) -> str:
    return f"{Status(code).name} ({code})" if code in list(Status) else str(code)


def describe_where(spec: Spec, cell: int) -> str:
    """A cell in words, assumptions and all."""
    at = spec.cells[cell]
    named = varying(spec, at)
    words = describe_cell(at)
    return words if named in words else f"{words}; {named}"


def _spec(spec: Spec, begun_with: str) -> Iterator[str]:
    yield page.facts(_versions(spec, begun_with))
    text = json.dumps(spec.to_dict(), indent=1)
    yield page.folded("The spec, as study.json has it", f"<pre>{escape(text)}</pre>")


def _versions(spec: Spec, begun_with: str) -> Iterator[tuple[str, str]]:
    yield "begun with", f"jaxprivnb {begun_with}"
    yield "fingerprint of the spec", spec.fingerprint
    yield "seed", str(spec.seed)
    yield "dtype", spec.dtype
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    where = f"Python {platform.python_version()} on {platform.machine()}"
    yield "this page written with", ", ".join([f"jaxprivnb {__version__}", *found, where])


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
