"""The zip plot: every replicate's interval around its truth, those that miss it on top.

After rsimsum (Gasparini 2018; Morris, White and Crowther 2019). An interval of middle c and half
width w, both minus the truth, stands at the rank of |c| / w among those of its cell and method. The
truth is inside where |c| / w <= 1, so the share of strokes below the change of colour is the
coverage, and the zip of a calibrated method opens at the dashed line.
"""

from typing import Any

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.study.display import varying
from jaxprivnb.study.figures import Data, replicates_in_words
from jaxprivnb.study.load import method_codes
from jaxprivnb.style import FONT, PAGE

_STROKES = 250
"""Intervals in a panel; of more, as many evenly spaced ranks."""
_ROWS_A_PAGE = 5
_PARAMETERS = {"feature": "P(X₁=1|Y=1)", "class": "P(Y=1)"}


def pages(data: Data) -> list[Any]:
    """Of P(X|Y) and then of P(Y): a row for each combination of the axes but the budget, which is
    at its middle, and a column for each method.
    """
    width = len(data.study.spec.budgets)
    cells = [i + width // 2 for i in range(0, len(data.study.spec.cells), width)]
    found = []
    for what in _PARAMETERS:
        if f"low_{what}" not in data.study.table.column_names:  # rows of an earlier version
            continue
        shown = [c for c in cells if any(ends(data, c, m, what)[0].size for m in _methods(data))]
        for start in range(0, len(shown), _ROWS_A_PAGE):
            found.append(_page(data, shown[start : start + _ROWS_A_PAGE], what))
    return found


def ends(data: Data, cell: int, method: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The ends of a cell's intervals minus the truth, in the order of |c| / w."""
    table = data.study.table
    low, high = (_rows(table, f"{end}_{what}") for end in ("low", "high"))
    labels = [arm.label for arm in data.study.spec.arms]
    pick = (table["cell"].to_numpy() == cell) & (method_codes(table, labels) == method)
    pick &= np.isfinite(low + high)
    low, high = low[pick], high[pick]
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.abs(low + high) / (high - low), kind="stable")
    return low[order], high[order]


def _rows(table: Any, name: str) -> np.ndarray:
    return table[name].to_numpy().astype(np.float64)


def _methods(data: Data) -> range:
    return range(len(data.study.spec.arms))


def _page(data: Data, cells: list[int], what: str) -> Any:
    matplotlib = require("matplotlib", "figures", "drawing a study")
    figure_module = require("matplotlib.figure", "figures", "drawing a study")
    spec = data.study.spec
    with matplotlib.rc_context({**FONT, "axes.grid": False}):
        figure = figure_module.Figure(figsize=(PAGE, 1.2 + 1.5 * len(cells)), layout="constrained")
        axes = figure.subplots(len(cells), len(spec.arms), sharex="row", sharey=True, squeeze=False)
        for i, cell in enumerate(cells):
            for m in _methods(data):
                _panel(axes[i, m], data, cell, m, what)
                if i == 0:
                    axes[i, m].set_title(data.looks[m].name)
                if i == len(cells) - 1:
                    axes[i, m].set_xlabel("interval − truth")
            at = spec.cells[cell]
            named = f"{varying(spec, at)}\nε={at.epsilon_per_table:g}"
            axes[i, 0].set_ylabel(named.replace(", ", "\n"), fontweight="bold")
        figure.supylabel("rank of |middle − truth| / half width, %", fontsize=8)
        figure.suptitle(
            f"{100 * spec.width_level:g}% intervals of {_PARAMETERS[what]}: coloured, the truth is "
            f"inside; black, it is not\n(number: share inside; dashed: {100 * spec.width_level:g}%)"
            f"\n{replicates_in_words(spec.replicates)} in every cell",
            fontsize=8,
        )
    return figure


def _panel(axis: Any, data: Data, cell: int, method: int, what: str) -> None:
    collections = require("matplotlib.collections", "figures", "drawing a study")
    low, high = ends(data, cell, method, what)
    level = 100 * data.study.spec.width_level
    axis.set_ylim(0, 100)
    axis.axvline(0, color="#888888", linewidth=0.6)
    axis.axhline(level, color="black", linewidth=0.7, linestyle="--")
    if not low.size:
        axis.text(0.5, 0.5, "no intervals", transform=axis.transAxes, ha="center", color="#888888")
        return
    inside = (low <= 0) & (high >= 0)
    rank = 100 * (np.arange(low.size) + 0.5) / low.size
    shown = np.unique(np.linspace(0, low.size - 1, min(low.size, _STROKES)).round().astype(int))
    strokes = [((low[r], rank[r]), (high[r], rank[r])) for r in shown]
    colors = [data.looks[method].color if inside[r] else "black" for r in shown]
    axis.add_collection(collections.LineCollection(strokes, colors=colors, linewidths=0.5))
    reach = 1.05 * max(np.abs(low[shown]).max(), np.abs(high[shown]).max())
    axis.set_xlim(-max(reach, -axis.get_xlim()[0]), max(reach, axis.get_xlim()[1]))
    axis.text(
        0.04, 0.03, f"{100 * inside.mean():.0f}%", transform=axis.transAxes, fontsize=7,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip
