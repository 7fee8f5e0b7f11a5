"""Numbers as categories: bins between public edges.

Edges are never read off the data: a quantile or a largest value is a record's. They are given, or a
number of bins is given with the bounds to divide. Messages about edges say type and place; those
about values say types.
"""

import dataclasses
import decimal
import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxprivnb import validate

OUTSIDE = ("clip", "refuse")
"""What becomes of numbers beyond the outermost edges."""
MAX_BINS = 100_000
_KEYS = ("edges", "bins", "bounds", "outside")


@dataclasses.dataclass(frozen=True)
class Bins:
    """Bins [edges[0], edges[1]), [edges[1], edges[2]), ..., of which the last has both its ends."""

    edges: tuple[float, ...]
    """Increasing and finite, at least two."""
    outside: str = "clip"
    """"clip": numbers beyond the edges are in the end bins; "refuse": they are in none, like any
    value outside a domain."""

    def __post_init__(self) -> None:
        check_edges("bins", self.edges)
        validate.choice("outside", self.outside, OUTSIDE, quote=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins' names, such as "[18, 30)", and "[65, 120]" for the last."""
        shown = [_shown(edge) for edge in self.edges]
        *most, (low, high) = itertools.pairwise(shown)
        return (*(f"[{a}, {b})" for a, b in most), f"[{low}, {high}]")

    def which(self, values: Sequence[Any]) -> np.ndarray:
        """Each value's bin, int `[len(values)]`; -1 where it is in none."""
        x = np.asarray([_number(value) for value in values], float)
        found = np.searchsorted(np.asarray(self.edges[1:-1], float), x, side="right")
        none = np.isnan(x)
        if self.outside == "refuse":
            none |= (x < self.edges[0]) | (x > self.edges[-1])
        return np.where(none, -1, found)


def read_bins(name: str, stated: Any) -> Bins:
    """The bins of the feature `name`: edges, or a mapping.

    A mapping has "edges", or "bins" (how many, of equal width) and "bounds" (the outermost edges),
    and perhaps "outside".
    """
    where = f"bins of {name!r}"
    if isinstance(stated, Bins):
        return stated
    if isinstance(stated, numbers.Number):
        raise TypeError(
            f"{where}: a number of bins needs public bounds, which are not read from the data; "
            'give {"bins": 8, "bounds": (0, 600)}, or edges'
        )
    if not isinstance(stated, Mapping):
        return Bins(check_edges(where, stated))
    for key in stated:
        validate.choice(f"a key of {where}", key, _KEYS, quote=False)
    outside = validate.choice(
        f"outside, of {where}", stated.get("outside", "clip"), OUTSIDE, quote=False
    )
    if set(stated) - {"outside"} == {"edges"}:
        return Bins(check_edges(where, stated["edges"]), outside)
    if set(stated) - {"outside"} == {"bins", "bounds"}:
        return Bins(_equal_widths(where, stated["bins"], stated["bounds"]), outside)
    raise TypeError(f"{where} must have edges, or bins (how many) and bounds (low, high)")


def check_edges(where: str, edges: Any) -> tuple[float, ...]:
    """The edges as plain numbers; raise unless they are finite and increase."""
    listed = isinstance(edges, Sequence) or hasattr(edges, "__array__")
    if not listed or isinstance(edges, str | bytes) or getattr(edges, "ndim", 1) != 1:
        raise TypeError(f"{where} must be a list of edges, got {type(edges).__name__}")
    if hasattr(edges, "__array__"):
        edges = np.asarray(edges)
    if not 2 <= len(edges) <= MAX_BINS + 1:
        raise ValueError(f"{where} must have between 2 and {MAX_BINS + 1} edges")
    found: list[float] = []
    for place, given in enumerate(edges):
        # Not every item() of numpy's: that of a date in nanoseconds is a number.
        edge = given.item() if isinstance(given, np.integer | np.floating) else given
        if isinstance(edge, bool) or not isinstance(edge, int | float):
            raise TypeError(f"{where}: edge {place} must be a number, got {type(given).__name__}")
        if not math.isfinite(_number(edge)):
            raise ValueError(f"{where}: edge {place} must be finite")
        if found and not float(found[-1]) < float(edge):
            raise ValueError(
                f"{where}: edges must increase, and edge {place} is not above the one before"
            )
        found.append(edge)
    return tuple(found)


def is_number(value: Any) -> bool:
    """Whether a value of the records is a number; NaN is one that is missing."""
    return isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)


def _equal_widths(where: str, n_bins: Any, bounds: Any) -> tuple[float, ...]:
    """Edges of bins of one width, rounded to a thousandth of it: labels say all their digits."""
    n = validate.whole_number(f"{where}: bins", n_bins, at_least=1, quote=False)
    if n > MAX_BINS:
        raise ValueError(f"{where}: bins must be at most {MAX_BINS}")
    low, *more = check_edges(f"{where}: bounds", bounds)
    if len(more) != 1:
        raise ValueError(f"{where}: bounds must be two numbers, low and high")
    high = more[0]
    width = (high - low) / n
    if not 0 < width < math.inf:
        raise ValueError(f"{where}: bounds are too near to each other, or too far apart")
    digits = max(0, math.ceil(3 - math.log10(width)))
    inner = [round(low + k * width, digits) for k in range(1, n)]
    return check_edges(where, [low, *inner, high])


def _number(value: Any) -> float:
    """The value as a float; NaN where it is none."""
    if not is_number(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an int that is too large
        return math.inf if value > 0 else -math.inf


def _shown(edge: float) -> str:
    return str(int(edge)) if edge == int(edge) and abs(edge) < 1e15 else repr(edge)
