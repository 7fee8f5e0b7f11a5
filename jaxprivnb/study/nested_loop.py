"""The nested-loop plot: a measure over every cell of a grid with many axes.

After Rücker and Schwarzer (2014). Cells stand side by side in the order of the grid, the budget
fastest; below, a staircase for each axis says which of its values a cell has.
"""

from typing import Any

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.study.figures import Data, legend, plain_numbers, reported_level, series
from jaxprivnb.study.spec import Spec
from jaxprivnb.style import FONT, PAGE

_LEAST_AXES = 3
"""Axes that vary from which on this plot shows more than rows of panels do."""
_NAMES = {
    "n_records": "N",
    "epsilon_per_table": "ε per table",
    "epsilon_total": "ε in all",
    "rho_total": "ρ in all",
    "n_classes": "I",
    "n_features": "K",
    "n_categories": "J",
    "assumed_noise": "noise taken for",
    "assumed_scale": "sd taken for, times",
}


def pages(data: Data) -> list[Any]:
    """One page; none where few axes vary."""
    axes = varying_axes(data.study.spec)
    return [_page(data, axes)] if len(axes) >= _LEAST_AXES else []


def varying_axes(spec: Spec) -> dict[str, list[Any]]:
    """For each axis with several values, the value of every cell; the slowest first."""
    order = (
        "noise", "assumed_noise", "assumed_scale", "truth", "prior", "n_classes", "n_features",
        "n_categories", "n_records", spec.budget,
    )  # fmt: skip
    found = {
        name: [cell.column(name) for cell in spec.cells] for name in order if name in spec.columns
    }
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _page(data: Data, steps: dict[str, list[Any]]) -> Any:
    matplotlib = require("matplotlib", "figures", "drawing a study")
    figure_module = require("matplotlib.figure", "figures", "drawing a study")
    spec = data.study.spec
    level = reported_level(data.study)
    panels = [
        ("se_feature", "squared error\nP(X|Y)"),
        ("se_class", "squared error\nP(Y)"),
        (f"coverage_feature_{100 * level:g}", f"{100 * level:g}% coverage\nP(X|Y)"),
        (f"coverage_class_{100 * level:g}", f"{100 * level:g}% coverage\nP(Y)"),
    ]
    with matplotlib.rc_context({**FONT, "axes.grid.axis": "y"}):
        heights = [1.35] * len(panels) + [0.34 * len(steps)]
        figure = figure_module.Figure(figsize=(PAGE, 0.9 + sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
        cells = list(range(len(spec.cells)))
        drawn: set[int] = set()
        for axis, (name, label) in zip(axes, panels, strict=False):
            axis.set_ylabel(label)
            if name.startswith("se_"):
                axis.set_yscale("log")
                plain_numbers(axis.yaxis)
            else:
                axis.axhline(level, color="black", linewidth=0.8, linestyle="--")
                axis.set_ylim(0, 1.03)
            for m, look in enumerate(data.looks):
                mean = series(data, cells, m, name)[1]
                if np.isfinite(mean).any():
                    drawn.add(m)
                    axis.stairs(
                        mean, np.arange(len(cells) + 1) - 0.5, baseline=None, color=look.color,
                        linewidth=1.1, linestyle=look.dash,
                    )  # fmt: skip
            _boundaries(axis, steps)
        _staircases(axes[-1], steps)
        axes[-1].set_xlim(-0.5, len(cells) - 0.5)
        title = "Every cell of the grid, one step each; the staircases below say which it is"
        legend(figure, data, sorted(drawn), title, dashes=True)
    return figure


def _boundaries(axis: Any, steps: dict[str, list[Any]]) -> None:
    """A grey line wherever an axis that is not the fastest changes."""
    slow = list(zip(*list(steps.values())[:-1], strict=True))
    for c in range(1, len(slow)):
        if slow[c] != slow[c - 1]:
            axis.axvline(c - 0.5, color="#dddddd", linewidth=0.5, zorder=0.5)


def _staircases(axis: Any, steps: dict[str, list[Any]]) -> None:
    """A lane for each axis, its values from below to above in their order."""
    axis.set_yticks([])
    axis.grid(False)
    axis.set_xticks([])
    for name in ("left", "bottom"):
        axis.spines[name].set_visible(False)
    axis.set_ylim(-len(steps), 0)
    fastest = list(steps)[-1]
    for lane, (name, values) in enumerate(steps.items()):
        levels = list(dict.fromkeys(values))
        height = {v: -lane - 0.9 + 0.38 * i / (len(levels) - 1) for i, v in enumerate(levels)}
        edges = np.arange(len(values) + 1) - 0.5
        axis.stairs([height[v] for v in values], edges, baseline=None, color="#555555")
        shown = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in levels)
        order = " (of each group, from left to right)" if name == fastest else ""
        axis.text(
            -0.4, -lane - 0.42, f"{_NAMES.get(name, name)}: {shown}{order}", va="bottom", fontsize=7
        )
