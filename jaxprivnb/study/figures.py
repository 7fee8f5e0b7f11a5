"""A study's figures, for print: Figure 1's box plots, efficiency, coverage, width, iterations.

Every figure has the same frame: a row for each combination of the grid's other axes (the sample
size, in Figure 1), P(X|Y) on the left and P(Y) on the right, epsilon on a log axis below.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb.study.display import varying
from jaxprivnb.study.extras import require
from jaxprivnb.study.load import Study, method_codes
from jaxprivnb.study.spec import Replicates
from jaxprivnb.study.storage import open_storage
from jaxprivnb.study.summary import Summary, summarise
from jaxprivnb.style import DPI, FONT, PAGE, Style, styles

FIGURES = ("figure1", "efficiency", "coverage", "width", "iterations")
ROW_HEIGHT = 1.55
_ROWS_A_PAGE = 6


class Data(NamedTuple):
    """What the drawing functions share."""

    study: Study
    summary: Summary
    styles: list[Style]
    """One a method of the spec."""


def plot_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    figures: tuple[str, ...] = FIGURES,
    suffix: str = "png",
    summary: Summary | None = None,
) -> list[str]:
    """Draw figures of a study into a folder or URL; the names of the files.

    Figures that do not apply (efficiency without `exact`, iterations without `vb`) are left out.
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


def draw(study: Study, name: str, summary: Summary | None = None) -> list[Any]:
    """The `matplotlib.figure.Figure` pages of one figure; empty if it does not apply."""
    panel, title, y_label, log_y, needs = _FIGURES[name]
    data = Data(
        study, summary or summarise(study), styles((m.label, m.method) for m in study.spec.methods)
    )
    methods = [m.method for m in study.spec.methods]
    if needs is not None and needs not in methods:
        return []
    width = len(study.spec.epsilon_per_table)
    cells = [range(i, i + width) for i in range(0, len(study.spec.cells), width)]
    pages = [cells[i : i + _ROWS_A_PAGE] for i in range(0, len(cells), _ROWS_A_PAGE)]
    return [_page(data, rows, panel, title, y_label, log_y, needs) for rows in pages]


def render(figure: Any, suffix: str = "png") -> bytes:
    """The figure as the bytes of a file."""
    import io

    sink = io.BytesIO()
    figure.savefig(sink, format=suffix, dpi=DPI)
    return sink.getvalue()


def _page(
    data: Data,
    rows: list[range],
    panel: Callable[..., set[int]],
    title: str,
    y_label: str,
    log_y: bool,
    needs: str | None,
) -> Any:
    """One page of panels."""
    matplotlib = require("matplotlib", "figures", "drawing a study")
    figure_module = require("matplotlib.figure", "figures", "drawing a study")
    require("matplotlib.backends.backend_agg", "figures", "drawing a study")
    with matplotlib.rc_context(FONT):
        both = needs != "vb"  # iterations belong to the whole fit, not to one of the two
        figure = figure_module.Figure(
            figsize=(PAGE, 1.1 + ROW_HEIGHT * len(rows)), layout="constrained"
        )
        axes = figure.subplots(
            len(rows), 2 if both else 1, sharex=True, sharey="col", squeeze=False
        )
        drawn: set[int] = set()
        for i, cells in enumerate(rows):
            for j, what in enumerate(("feature", "class")[: axes.shape[1]]):
                axis = axes[i, j]
                drawn |= panel(axis, data, list(cells), what)
                axis.set_xscale("log")
                if log_y:
                    axis.set_yscale("log")
                label = varying(data.study.spec, data.study.spec.cells[cells[0]])
                axis.set_title(label, loc="left", fontweight="bold")
                if both:
                    axis.set_title(("P(X|Y)", "P(Y)")[j])
                if i == len(rows) - 1:
                    axis.set_xlabel("ε per table (Laplace scale b = 2/ε)")
        figure.supylabel(y_label, fontsize=8)
        _legend(figure, data, sorted(drawn), title, markers=panel is not _boxes)
    return figure


def _legend(figure: Any, data: Data, drawn: list[int], title: str, markers: bool) -> None:
    lines = require("matplotlib.lines", "figures", "drawing a study")
    handles = [
        lines.Line2D(
            [],
            [],
            color=s.color,
            marker=s.marker if markers else "",
            markersize=4,
            linewidth=1.2 if markers else 3,
            label=s.name,
        )
        for s in (data.styles[m] for m in drawn)
    ]
    title = f"{title}\n{replicates_in_words(data.study.spec.replicates)} in every cell"
    legend = figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, title=title,
        title_fontsize=8, columnspacing=1.4, handlelength=1.8,
    )  # fmt: skip
    legend.get_title().set_multialignment("center")


def replicates_in_words(replicates: Replicates) -> str:
    """The nested design: `20 parameter draws × 10 data sets`; stages done once are left out."""
    names = ("parameter draw", "data set", "noise draw")
    stages = [
        f"{count:,} {name}s" for count, name in zip(replicates, names, strict=True) if count > 1
    ]
    return " × ".join(stages) or "1 replicate"


def _boxes(axis: Any, data: Data, cells: list[int], what: str) -> set[int]:
    """Squared error: boxes are quartiles, whiskers 5% and 95%, a line joins the medians.

    Boxes stand side by side, but lines run through the epsilons themselves: on a slope a line that
    followed its boxes would seem above or below another for where it stands.
    """
    study, spec = data.study, data.study.spec
    epsilon = np.array(spec.epsilon_per_table)
    table, n = study.table, len(spec.methods)
    values = table[f"se_{what}"].to_numpy()
    group = table["cell"].to_numpy().astype(np.int64) * n + method_codes(
        table, [m.label for m in spec.methods]
    )
    # Boxes of one epsilon share the space to the next, and leave a fifth of it free; half a decade
    # is enough, or a box would stand by another epsilon's tick.
    step = min([0.5, *np.diff(np.log10(np.sort(epsilon)))])
    slot = 0.8 * step / n
    reach = 2 * np.sinh(0.41 * slot * np.log(10))  # a box is as wide as 0.82 slots
    drawn = set()
    seen: list[tuple[float, float]] = []
    for m in range(n):
        at = epsilon * 10 ** ((m - (n - 1) / 2) * slot)
        style, stats, medians = data.styles[m], [], []
        for cell, true_x, x in zip(cells, epsilon, at, strict=True):
            found = values[group == cell * n + m]
            found = found[np.isfinite(found)]
            if not found.size:
                continue
            low, q1, med, q3, high = np.percentile(found, [5, 25, 50, 75, 95])
            stats.append({"med": med, "q1": q1, "q3": q3, "whislo": low, "whishi": high, "at": x})
            medians.append((true_x, med))
            seen.append((q1, high))
        if not stats:
            continue
        drawn.add(m)
        positions = [s.pop("at") for s in stats]
        axis.bxp(
            stats, positions=positions, widths=[x * reach for x in positions],
            showfliers=False, showcaps=False, patch_artist=True, manage_ticks=False,
            boxprops={
                "facecolor": style.color, "alpha": 0.35, "edgecolor": style.color, "linewidth": 0.5
            },
            whiskerprops={"color": style.color, "linewidth": 0.6},
            medianprops={"color": style.color, "linewidth": 1.6},
        )  # fmt: skip
        axis.plot(*zip(*medians, strict=True), color=style.color, linewidth=0.9, zorder=1.5)
    if seen and what == "class":  # whiskers reach far down a log axis: keep the boxes large
        old = axis.get_ylim() if axis.get_autoscaley_on() is False else (np.inf, -np.inf)
        low, high = min(q1 for q1, _ in seen), max(high for _, high in seen)
        axis.set_ylim(min(old[0], 0.3 * low), max(old[1], 1.3 * high))
    return drawn


def _lines(axis: Any, data: Data, cells: list[int], name: str) -> set[int]:
    """Means of a measure with bars of two Monte Carlo standard errors."""
    drawn = set()
    for m, style in enumerate(data.styles):
        x, mean, se = series(data, cells, m, name)
        if not np.isfinite(mean).any():
            continue
        drawn.add(m)
        axis.errorbar(
            x, mean, yerr=2 * np.nan_to_num(se), color=style.color, marker=style.marker,
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
    exact = next(m for m, method in enumerate(spec.methods) if method.method == "exact")
    _, best, _ = series(data, cells, exact, f"se_{what}")
    axis.axhline(1, color=data.styles[exact].color, linewidth=0.8, linestyle="--")
    axis.set_ylim(0, 1.15)
    drawn = {exact}
    for m, style in enumerate(data.styles):
        if m == exact or spec.methods[m].method == "bayes":
            continue
        x, mean, _ = series(data, cells, m, f"se_{what}")
        axis.plot(
            x, best / mean, color=style.color, marker=style.marker, markersize=3.2, linewidth=1.1
        )
        drawn.add(m)
    return drawn


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


_FIGURES: dict[str, tuple[Callable[..., set[int]], str, str, bool, str | None]] = {
    "figure1": (
        _boxes,
        "Squared error of posterior means: quartiles (boxes), 5% to 95% (whiskers), median (lines)",
        "squared error",
        True,
        None,
    ),
    "efficiency": (
        _efficiency,
        "Efficiency: mean squared error of the exact posterior mean / that of the method",
        "efficiency relative to exact",
        False,
        "exact",
    ),
    "coverage": (
        _coverage,
        "Share of true parameters inside their intervals; dashed: the nominal level",
        "coverage",
        False,
        None,
    ),
    "width": (_widths, "Mean width of the posterior intervals", "interval width", False, None),
    "iterations": (_iterations, "Mean iterations of the variational fit", "iterations", True, "vb"),
}
"""Figure name: (panel, title, y label, log y axis, method it needs)."""
