"""What was asked for: a budget, and how the tables share it.

One record is in every table, so the tables' budgets add up (basic composition): K feature tables,
and the table of the class if it is released, share one total.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from jaxprivnb import validate
from jaxprivnb.noise import Neighbours, check_neighbours

Measure = Literal["epsilon", "rho"]


@dataclasses.dataclass(frozen=True)
class Request:
    """A total to share by weight, or one amount for each table."""

    measure: Measure
    """epsilon: pure differential privacy; rho: zero-concentrated."""
    amount: float
    per_table: bool
    """Whether `amount` is each table's (True) or all tables' together."""
    shares: tuple[float, ...]
    """Weights that sum to 1, a table each: the features in order, then the class if released."""
    neighbours: Neighbours = "replace"
    contributions: int = 1
    """Records in which neighbours differ, at most."""

    def allotments(self, shrink: float = 1.0) -> tuple[float, ...]:
        """Each table's budget; a total is first multiplied by `shrink`."""
        if self.per_table:
            return (self.amount,) * len(self.shares)
        return tuple(self.amount * shrink * share for share in self.shares)


def request_budget(
    feature_names: Sequence[str],
    class_name: str,
    *,
    epsilon_total: float | None = None,
    epsilon_per_table: float | None = None,
    rho_total: float | None = None,
    weights: Any = None,
    class_table: bool = False,
    neighbours: Neighbours = "replace",
    contributions: int = 1,
) -> Request:
    """Exactly one way of stating the budget, with the tables it is for."""
    stated = {
        "epsilon_total": epsilon_total,
        "epsilon_per_table": epsilon_per_table,
        "rho_total": rho_total,
    }
    given = {name: value for name, value in stated.items() if value is not None}
    if len(given) != 1:
        raise TypeError(
            "give exactly one of epsilon_total, epsilon_per_table and rho_total, "
            f"got {' and '.join(given) or 'none'}"
        )
    if not isinstance(class_table, bool):
        raise TypeError(f"class_table must be True or False, got {validate.describe(class_table)}")
    ((name, value),) = given.items()
    amount = validate.real_number(name, value, above=0)
    per_table = name == "epsilon_per_table"
    if per_table and weights is not None:
        raise TypeError("weights share a total: give epsilon_total or rho_total with them")
    check_neighbours(neighbours, contributions)
    tables = [*feature_names, *([class_name] if class_table else [])]
    measure: Measure = "rho" if name == "rho_total" else "epsilon"
    shares = _shares(weights, tables)
    return Request(measure, amount, per_table, shares, neighbours, int(contributions))


def _shares(weights: Any, tables: list[str]) -> tuple[float, ...]:
    if weights is None:
        return (1 / len(tables),) * len(tables)
    if isinstance(weights, Mapping):
        if set(weights) != set(tables):
            # A table before a key: one of a mapping without every table may be data.
            odd = next((t for t in tables if t not in weights), None)
            odd = odd if odd is not None else next(key for key in weights if key not in tables)
            raise ValueError(f"weights must name every table and no other; see {odd!r}")
        values = [weights[name] for name in tables]
    elif isinstance(weights, Sequence | np.ndarray) and not isinstance(weights, str):
        values = list(weights)
    else:
        raise TypeError(
            f"weights must be a sequence or a mapping by table, got {validate.describe(weights)}"
        )
    if len(values) != len(tables):
        raise ValueError(
            f"weights must have one entry a table ({len(tables)}: the features in order, then "
            f"the class if class_table), got {validate.size(len(values))}"
        )
    checked = [
        validate.real_number(f"weights of {name!r}", value, above=0, quote=False)
        for name, value in zip(tables, values, strict=True)
    ]
    total = math.fsum(checked)
    return tuple(value / total for value in checked)
