"""A study's figures, for print: Figure 1's box plots, efficiency, coverage, width, iterations.

These have the same frame: a row for each combination of the grid's other axes (the sample
size, in Figure 1), P(X|Y) on the left and P(Y) on the right, epsilon on a log axis below.
The others are in zip_plot.py and nested_loop.py.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.methods import METHODS, Look, imported
from jaxprivnb.storage import open_storage
from jaxprivnb.study.display import varying
from jaxprivnb.study.load import Study, method_codes
from jaxprivnb.study.spec import Replicates
from jaxprivnb.study.summary import StudySummary, summarise
from jaxprivnb.style import DPI, FONT, PAGE, looks

FIGURES = ("figure1", "efficiency", "coverage", "width", "iterations", "zip", "nested")
ROW_HEIGHT = 1.55
_ROWS_A_PAGE = 6
_LONG_LABEL, _FEW_TICKS = 24, 4


class Data(NamedTuple):
    """What the drawing functions share."""

    study: Study
    summary: StudySummary
    looks: list[Look]
    """One a method of the spec."""


def plot_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    figures: tuple[str, ...] = FIGURES,
    suffix: str = "png",
    summary: StudySummary | None = None,
) -> list[str]:
    """Draw figures of a study into a folder or URL; the names of the files.

    Figures that do not apply (efficiency without `exact`, iterations where no fit has any) are left
    out.
    """
    unknown = [name for name in figures if name not in FIGURES]
    if unknown:
        raise ValueError(f"figures must be among {', '.join(FIGURES)}, got {unknown[0]!r}")
    storage = open_storage(out)
    files = []
    for name in figures:
        for page, figure in enumerate(draw(study, name, summary), start=1):
            file = f"{name}.{suffix}" if page == 1 else f"{name}-{page}.{suffix}"
            storage.write(file, render(figure, suffix))
            files.append(file)
    return files


def draw(study: Study, name: str, summary: StudySummary | None = None) -> list[Any]:
    """The `matplotlib.figure.Figure` pages of one figure; empty if it does not apply."""
    data = Data(
        study, summary or summarise(study), looks((a.label, a.method) for a in study.spec.arms)
    )
    if name in _PAGES:
        return imported(_PAGES[name])(data)
    kind = _FIGURES[name]
    words = {"level": f"{100 * reported_level(study):g}%"}
    if name == "width":
        words = {"level": f"{100 * study.spec.width_level:g}%"}
    kind = kind._replace(title=kind.title.format(**words), y_label=kind.y_label.format(**words))
    if not kind.applies(data):
        return []
    width = len(study.spec.budgets)
    cells = [range(i, i + width) for i in range(0, len(study.spec.cells), width)]
    pages = [cells[i : i + _ROWS_A_PAGE] for i in range(0, len(cells), _ROWS_A_PAGE)]
    return [_page(data, rows, kind) for rows in pages]


def render(figure: Any, suffix: str = "png", dpi: int = DPI) -> bytes:
    """The figure as the bytes of a file."""
    import io

    sink = io.BytesIO()
    figure.savefig(sink, format=suffix, dpi=dpi)
    return sink.getvalue()


def _page(data: Data, rows: list[range], kind: "_Kind") -> Any:
    """One page of panels."""
    matplotlib = require("matplotlib", "figures", "drawing a study")
    figure_module = require("matplotlib.figure", "figures", "drawing a study")
    require("matplotlib.backends.backend_agg", "figures", "drawing a study")
    with matplotlib.rc_context(FONT):
        figure = figure_module.Figure(
            figsize=(PAGE, 1.1 + ROW_HEIGHT * len(rows)), layout="constrained"
        )
        axes = figure.subplots(len(rows), len(kind.sides), sharex=True, sharey="col", squeeze=False)
        drawn: set[int] = set()
        for i, cells in enumerate(rows):
            for j, what in enumerate(kind.sides):
                axis = axes[i, j]
                drawn |= kind.panel(axis, data, list(cells), what)
                axis.set_xscale("log")
                plain_numbers(axis.xaxis)
                _few_ticks(axis, [data.study.spec.cells[c].epsilon_per_table for c in cells])
                if kind.log_y:
                    axis.set_yscale("log")
                    plain_numbers(axis.yaxis)
                label = varying(data.study.spec, data.study.spec.cells[cells[0]])
                if len(label) > _LONG_LABEL:  # above what stands in the middle
                    label = f"{label}\n" if j == 0 else ""
                axis.set_title(label, loc="left", fontweight="bold")
                axis.set_title(_SIDES[what])
                if i == len(rows) - 1:
                    axis.set_xlabel("ε per table (Laplace scale b = 2/ε)")
        figure.supylabel(kind.y_label, fontsize=8)
        legend(figure, data, sorted(drawn), kind.title, markers=kind.panel is not _boxes)
    return figure


def _few_ticks(axis: Any, values: list[float]) -> None:
    """A few values of epsilon are the ticks themselves."""
    if len(values) <= _FEW_TICKS:
        axis.set_xticks(values, [f"{x:g}" for x in values])
        axis.xaxis.minorticks_off()


def plain_numbers(axis: Any) -> None:
    """Write 60 for 6 × 10¹ on a log axis whose numbers are short enough."""
    from matplotlib.ticker import LogFormatterMathtext

    class Plain(LogFormatterMathtext):
        def __call__(self, x: float, pos: Any = None) -> str:
            usual = super().__call__(x, pos)  # empty where there would be too many
            low, high = axis.get_view_interval()
            return f"{x:g}" if usual and low > 1e-5 and high < 1e5 else usual

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(labelOnlyBase=False))


def legend(
    figure: Any,
    data: Data,
    drawn: list[int],
    title: str,
    *,
    markers: bool = False,
    dashes: bool = False,
) -> None:
    """What the drawn methods look like, with the figure's title and the study's design."""
    lines = require("matplotlib.lines", "figures", "drawing a study")
    handles = [
        lines.Line2D(
            [],
            [],
            color=s.color,
            marker=s.marker if markers else "",
            markersize=4,
            linewidth=1.2 if markers or dashes else 3,
            linestyle=s.dash if dashes else "-",
            label=s.name,
        )
        for s in (data.looks[m] for m in drawn)
    ]
    title = f"{title}\n{replicates_of(data.study, data.summary)}"
    shown = figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, title=title,
        title_fontsize=8, columnspacing=1.4, handlelength=1.8,
    )  # fmt: skip
    shown.get_title().set_multialignment("center")


def replicates_of(study: Study, summary: StudySummary) -> str:
    """How many replicates a cell has, in words."""
    if study.spec.precision is None:
        return f"{replicates_in_words(study.spec.replicates)} in every cell"
    low, high = summary.replicates.min(), summary.replicates.max()
    return f"{low:,} to {high:,} replicates a cell, as many as its errors asked for"


def replicates_in_words(replicates: Replicates) -> str:
    """The nested design: `20 parameter draws × 10 data sets`; stages done once are left out."""
    names = ("parameter draw", "data set", "noise draw")
    stages = [
        f"{count:,} {name}s" for count, name in zip(replicates, names, strict=True) if count > 1
    ]
    return " × ".join(stages) or "1 replicate"


def _boxes(axis: Any, data: Data, cells: list[int], what: str) -> set[int]:
    """Squared error: boxes are quartiles, whiskers 5% and 95%, a stroke in each box its median.

    The boxes of one epsilon stand side by side on a band around it. No line joins the medians: on a
    slope it would seem above or below another for where its boxes stand.
    """
    study, spec = data.study, data.study.spec
    epsilon = np.array([spec.cells[c].epsilon_per_table for c in cells])
    table, n = study.table, len(spec.arms)
    values = table[f"se_{what}"].to_numpy()
    group = table["cell"].to_numpy().astype(np.int64) * n + method_codes(
        table, [m.label for m in spec.arms]
    )
    # Boxes of one epsilon share the space to the next, and leave a fifth of it free; half a decade
    # is enough, or a box would stand by another epsilon's tick.
    step = min([0.5, *np.diff(np.log10(np.sort(epsilon)))])
    slot = 0.8 * step / n
    for x in epsilon:
        axis.axvspan(x * 10 ** (-0.46 * step), x * 10 ** (0.46 * step), color="#f2f2f2", zorder=0.5)
    reach = 2 * np.sinh(0.41 * slot * np.log(10))  # a box is as wide as 0.82 slots
    drawn = set()
    seen: list[tuple[float, float]] = []
    for m in range(n):
        at = epsilon * 10 ** ((m - (n - 1) / 2) * slot)
        look, stats, positions = data.looks[m], [], []
        for cell, x in zip(cells, at, strict=True):
            found = values[group == cell * n + m]
            found = found[np.isfinite(found)]
            if not found.size:
                continue
            low, q1, med, q3, high = np.percentile(found, [5, 25, 50, 75, 95])
            stats.append({"med": med, "q1": q1, "q3": q3, "whislo": low, "whishi": high})
            positions.append(x)
            seen.append((q1, high))
        if not stats:
            continue
        drawn.add(m)
        axis.bxp(
            stats, positions=positions, widths=[x * reach for x in positions],
            showfliers=False, showcaps=False, patch_artist=True, manage_ticks=False,
            boxprops={
                "facecolor": look.color, "alpha": 0.35, "edgecolor": look.color, "linewidth": 0.5
            },
            whiskerprops={"color": look.color, "linewidth": 0.6},
            medianprops={"color": look.color, "linewidth": 1.6},
        )  # fmt: skip
    if seen and what == "class":  # whiskers reach far down a log axis: keep the boxes large
        old = axis.get_ylim() if axis.get_autoscaley_on() is False else (np.inf, -np.inf)
        low, high = min(q1 for q1, _ in seen), max(high for _, high in seen)
        axis.set_ylim(min(old[0], 0.3 * low), max(old[1], 1.3 * high))
    return drawn


def _lines(axis: Any, data: Data, cells: list[int], name: str) -> set[int]:
    """Means of a measure with bars of two Monte Carlo standard errors."""
    drawn = set()
    for m, look in enumerate(data.looks):
        x, mean, se = series(data, cells, m, name)
        if not np.isfinite(mean).any():
            continue
        drawn.add(m)
        axis.errorbar(
            x, mean, yerr=2 * np.nan_to_num(se), color=look.color, marker=look.marker,
            markersize=3.2, linewidth=1.1, elinewidth=0.7, capsize=1.5,
        )  # fmt: skip
    return drawn


def _coverage(axis: Any, data: Data, cells: list[int], what: str) -> set[int]:
    level = reported_level(data.study)
    axis.axhline(level, color="black", linewidth=0.8, linestyle="--")
    axis.set_ylim(0, 1.03)
    return _lines(axis, data, cells, f"coverage_{what}_{100 * level:g}")


def _widths(axis: Any, data: Data, cells: list[int], what: str) -> set[int]:
    axis.set_ylim(0, 1.0)
    return _lines(axis, data, cells, f"width_{what}")


def _iterations(axis: Any, data: Data, cells: list[int], what: str) -> set[int]:
    return _lines(axis, data, cells, "iterations")


def _efficiency(axis: Any, data: Data, cells: list[int], what: str) -> set[int]:
    """Mean squared error of the exact posterior mean over that of each private method."""
    spec = data.study.spec
    _, best, _ = series(data, cells, _exact(data)[0], f"se_{what}")
    axis.set_ylim(0, 1.15)
    drawn = set()
    for m, look in enumerate(data.looks):
        method = METHODS.get(spec.arms[m].method)
        if method is not None and method.reads == "counts":
            continue
        x, mean, _ = series(data, cells, m, f"se_{what}")
        axis.plot(
            x, best / mean, color=look.color, marker=look.marker, markersize=3.2, linewidth=1.1
        )
        drawn.add(m)
    return drawn


def _exact(data: Data) -> list[int]:
    """Which of the study's arms are the exact posterior."""
    return [m for m, arm in enumerate(data.study.spec.arms) if arm.method == "exact"]


def series(data: Data, cells: list[int], method: int, name: str) -> tuple[np.ndarray, ...]:
    """(epsilon, mean, standard error) of a measure over some cells; nan where there are no rows."""
    s, spec = data.summary, data.study.spec
    at = {
        (c, m): g for g, (c, m) in enumerate(zip(s.cell.tolist(), s.method.tolist(), strict=True))
    }
    found = [at.get((cell, method)) for cell in cells]
    pick = lambda x: np.array([np.nan if g is None else x[g] for g in found])  # noqa: E731
    epsilon = np.array([spec.cells[c].epsilon_per_table for c in cells])
    return epsilon, pick(s.mean[name]), pick(s.se[name])


def reported_level(study: Study) -> float:
    """The level nearest to 95%."""
    return min(study.spec.levels, key=lambda level: abs(level - 0.95))


_BARS = "bars: ± 2 Monte Carlo standard errors"
_SIDES = {"feature": "P(X|Y)", "class": "P(Y)", "fit": ""}


_PAGES = {
    "zip": "jaxprivnb.study.zip_plot:pages",
    "nested": "jaxprivnb.study.nested_loop:pages",
}
"""Figures with a frame of their own."""


class _Kind(NamedTuple):
    """What one figure shows; {level} in its words is that of the intervals."""

    panel: Callable[..., set[int]]
    title: str
    y_label: str
    log_y: bool = False
    applies: Callable[[Data], bool] = lambda data: True
    sides: tuple[str, ...] = ("feature", "class")


_FIGURES = {
    "figure1": _Kind(
        _boxes,
        "Squared error of posterior means: median (stroke), quartiles (box), 5% to 95% (whiskers)"
        "\na grey band holds the boxes of one ε, which is in its middle",
        "squared error",
        log_y=True,
    ),
    "efficiency": _Kind(
        _efficiency,
        "Efficiency: mean squared error of the exact posterior mean / that of the method",
        "efficiency relative to exact",
        applies=lambda data: bool(_exact(data)),
    ),
    "coverage": _Kind(
        _coverage,
        "Share of true parameters inside their {level} intervals (dashed: {level})\n" + _BARS,
        "coverage of {level} intervals",
    ),
    "width": _Kind(
        _widths,
        "Mean width of the {level} posterior intervals\n" + _BARS,
        "width of {level} intervals",
    ),
    "iterations": _Kind(
        _iterations,
        "Mean iterations of a fit\n" + _BARS,
        "iterations",
        log_y=True,
        applies=lambda data: bool(np.isfinite(data.summary.mean["iterations"]).any()),
        sides=("fit",),
    ),
}
