"""How figures look: their sizes, their type, and which look a series gets.

Methods bring their own (`jaxprivnb.methods`). Colours are Okabe and Ito's, which colour-blind
readers can tell apart; lines carry markers or dashes as well, so that a figure also reads in grey.
"""

import itertools
from collections.abc import Iterable

from jaxprivnb.methods import METHODS, Look

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
    "text.parse_math": False,  # labels are data: two dollar signs are no formula
}
"""Matplotlib settings, for an `rc_context` around the drawing; never set globally."""


MORE = (
    Look("#CC79A7", "v", "-", ""),
    Look("#E69F00", "P", "--", ""),
    Look("#56B4E9", "X", "-.", ""),
    Look("#F0E442", "*", ":", ""),
)
"""For what is no method, is a method without a look of its own, or is a method again."""


def looks(series: Iterable[tuple[str, str]]) -> list[Look]:
    """A look for each (label, method): the method's own for its first label, then another.

    A label that is a method's name is written out; any other is the legend's text.
    """
    own = {name: method.look for name, method in METHODS.items() if method.look is not None}
    more, taken, found = itertools.cycle(MORE), set(), []
    for label, method in series:
        look = own[method] if method in own and method not in taken else next(more)
        taken.add(method)
        found.append(look._replace(name=own[label].name if label in own else label))
    return found
