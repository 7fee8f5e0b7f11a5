"""Where a picture is drawn: on the caller's Axes, or on a new one in this package's style."""

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxprivnb.extras import require
from jaxprivnb.style import COLUMN, FONT


@contextlib.contextmanager
def canvas(ax: Any, height: float, width: float = COLUMN) -> Iterator[Any]:
    """The Axes to draw on; a given one keeps its own fonts, grid and size.

    Args:
        ax: the caller's Axes, or None for a new figure.
        height: of a new figure, inches.
        width: of a new figure, inches.
    """
    matplotlib = require("matplotlib", "figures", "a plot")
    if ax is not None:
        axes = require("matplotlib.axes", "figures", "a plot")
        if not isinstance(ax, axes.Axes):
            raise TypeError(f"ax must be a matplotlib Axes or None, got {type(ax).__name__}")
        yield ax
        return
    pyplot = require("matplotlib.pyplot", "figures", "a plot")
    # Through pyplot, so that a notebook shows the figure without being asked; and before the block,
    # whose end would undo what a backend sets when its first figure is made.
    figure = pyplot.figure(figsize=(width, height), layout="constrained")
    with matplotlib.rc_context(FONT):
        ax = figure.add_subplot()
        # Ticks are made when they are first needed, outside of this block: fix their size now.
        ax.tick_params(axis="x", labelsize=FONT["xtick.labelsize"])
        ax.tick_params(axis="y", labelsize=FONT["ytick.labelsize"])
        yield ax


def legend_above(ax: Any, side: str = "left") -> None:
    """The legend over the Axes, where no curve can be under it; none for a single entry.

    Args:
        ax: whose artists it explains.
        side: where it is flush with the Axes: "left", or "right" where tick labels leave room.
    """
    handles, labels = ax.get_legend_handles_labels()
    if len(handles) > 1:
        ax.legend(
            handles,
            labels,
            loc=f"lower {side}",
            bbox_to_anchor=(float(side == "right"), 1),
            ncols=2,
            frameon=False,
            borderaxespad=0.2,
            columnspacing=1.2,
            handlelength=2.0,
        )


def legend_inside(ax: Any, corner: str) -> None:
    """The legend in a corner that the curves leave free; none for a single entry."""
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(loc=corner, frameon=False, borderaxespad=0.4, labelspacing=0.3)
