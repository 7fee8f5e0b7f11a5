"""How methods look in every figure: their colours, markers and names, and the type they are set in.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; lines carry markers or
dashes as well, so that a figure also reads in grey.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

COLUMN = 3.4
"""Width of one column of print, in inches."""
PAGE = 6.9
"""Width of two."""
DPI = 200
TRUTH = "#000000"
FONT = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
"""Matplotlib settings, for an `rc_context` around the drawing; never set globally."""


class Style(NamedTuple):
    """How a method looks."""

    color: str
    marker: str
    dash: str
    name: str
    """What legends call it."""


METHODS = {
    "naive": Style("#D55E00", "s", "--", "naive"),
    "vb": Style("#0072B2", "o", "-.", "variational (VB)"),
    "exact": Style("#009E73", "D", "-", "exact posterior"),
    "bayes": Style("#555555", "^", ":", "non-private"),
}
"""By what follows `fit_` in the name of the function."""
MORE = (
    Style("#CC79A7", "v", "-", ""),
    Style("#E69F00", "P", "--", ""),
    Style("#56B4E9", "X", "-.", ""),
    Style("#F0E442", "*", ":", ""),
)
"""For what is not one of the methods, or is one of them again."""


def styles(series: Iterable[tuple[str, str]]) -> list[Style]:
    """A look for each (label, method): the method's own for its first label, then another.

    A label that is a method's name is written out; any other is the legend's text.
    """
    more, taken, found = itertools.cycle(MORE), set(), []
    for label, method in series:
        own = method in METHODS and method not in taken
        look = METHODS[method] if own else next(more)
        taken.add(method)
        found.append(look._replace(name=METHODS[label].name if label in METHODS else label))
    return found
