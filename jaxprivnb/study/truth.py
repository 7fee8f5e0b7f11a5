"""Parameters that a study takes as the truth: from a file, such as a real table's.

Two kinds of file, both of weights >= 0 that are divided by their sums, so counts will do:

    JSON    {"class": [w_1, ..., w_I], "features": {"sex": [[w_11, ..., w_1J], ...], ...}}
    CSV     feature,class,category,count: a line a cell, as `jaxprivnb.load_tables` reads

A feature's weights have a row for each class. A CSV file's class weights are the totals of its
tables. Only the standard library is needed, as in all that reads a spec.
"""

import csv
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

Rows = tuple[tuple[float, ...], ...]

_COLUMNS = {"feature", "class", "category", "count"}


class Truth(NamedTuple):
    """P(Y) and every P(X_k | Y), fixed."""

    name: str
    """What rows and figures call it."""
    class_: tuple[float, ...]
    """P(Y=i), `[I]`."""
    features: tuple[Rows, ...]
    """P(X_k=j | Y=i), `[I][J_k]` for each feature k."""

    def __str__(self) -> str:
        return self.name

    @property
    def n_categories(self) -> tuple[int, ...]:
        """J_k for each feature k."""
        return tuple(len(rows[0]) for rows in self.features)

    @property
    def digest(self) -> str:
        """Of the numbers, whatever their file is called."""
        return hashlib.sha256(json.dumps(self[1:]).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """As a JSON file has it, with its name."""
        return {"name": self.name, "class": self.class_, "features": self.features}


def read_truth(path: Path) -> Truth:
    """From a file; ValueError where it does not say what the parameters are, OSError for none."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".csv":
        return _from_csv(text, path.name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is neither JSON nor named .csv") from None
    return truth_of(found, path.name)


def truth_of(found: Any, name: str) -> Truth:
    """From what a JSON file holds, or what `Truth.to_dict` gave."""
    if not isinstance(found, Mapping) or not {"class", "features"} <= set(found):
        raise ValueError(f'{name} must have "class" and "features"')
    name = found.get("name", name)
    features = found["features"]
    tables = list(features.values() if isinstance(features, Mapping) else features)
    class_ = _shares(found["class"], f"{name}: class")
    read = []
    for k, table in enumerate(tables, 1):
        place = f"{name}: feature {k}"
        if not isinstance(table, list | tuple) or len(table) != len(class_):
            raise ValueError(f"{place} must have a row for each of the {len(class_)} classes")
        rows = tuple(_shares(row, f"{place}, class {i}") for i, row in enumerate(table, 1))
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"{place} must have rows of one length")
        read.append(rows)
    if not read:
        raise ValueError(f"{name} must have a feature")
    return Truth(str(name), class_, tuple(read))


def _from_csv(text: str, name: str) -> Truth:
    reader = csv.DictReader(text.splitlines())
    if set(reader.fieldnames or ()) != _COLUMNS:
        raise ValueError(f"{name} must have the columns feature, class, category and count")
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for line, row in enumerate(reader, 2):
        table = tables.setdefault(row["feature"], {})
        try:
            table.setdefault(row["category"], {})[row["class"]] = float(row["count"])
        except (TypeError, ValueError):
            raise ValueError(f"{name}, line {line}: count must be a number") from None
    found = (c for table in tables.values() for cells in table.values() for c in cells)
    classes = list(dict.fromkeys(found))
    weights = {
        feature: [[cells.get(c, 0.0) for cells in table.values()] for c in classes]
        for feature, table in tables.items()
    }
    totals = [sum(sum(rows[i]) for rows in weights.values()) for i in range(len(classes))]
    return truth_of({"class": totals, "features": weights}, name)


def _shares(weights: Any, place: str) -> tuple[float, ...]:
    """Weights over their sum; as they are where they add up to 1 already."""
    numbers = isinstance(weights, list | tuple) and all(
        isinstance(w, int | float) and not isinstance(w, bool) and 0 <= w < math.inf
        for w in weights
    )
    total = math.fsum(weights) if numbers else 0
    if not 0 < total < math.inf:
        raise ValueError(f"{place} must be a list of weights >= 0, and not all of them 0")
    if abs(total - 1) < 1e-12:
        return tuple(float(w) for w in weights)
    return tuple(w / total for w in weights)
