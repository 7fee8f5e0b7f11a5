"""What the classes, features and categories are called, and which cells they stand in."""

from typing import Any, NamedTuple

import numpy as np

from jaxprivnb.privacy.domain import Column, Domain


class Named(NamedTuple):
    """A domain, and where its categories stand in arrays `[..., K, J]`.

    The table of the class, which a release may hold after the features', has no name and is left
    out.
    """

    domain: Domain
    cells: tuple[np.ndarray, ...]
    """The cells of each feature's categories, int `[J_k]`."""


def name_cells(domain: Domain | None, n_classes: int, mask: Any) -> Named:
    """The given names, or numbers: classes 0, 1, ..., features x0, x1, ..., categories 0, 1, ...

    Args:
        domain: the names, or None.
        n_classes: I.
        mask: real cells of one dataset, bool `[K, J]`.
    """
    cells = tuple(np.flatnonzero(row) for row in np.asarray(mask))
    if domain is None:
        features = tuple(Column(f"x{k}", tuple(c.tolist())) for k, c in enumerate(cells))
        return Named(Domain(Column("class", tuple(range(n_classes))), features), cells)
    cells = cells[: len(domain.features)]
    if len(domain.class_) != n_classes or domain.n_categories != tuple(map(len, cells)):
        raise ValueError(
            f"domain has {len(domain.class_)} classes and features of {domain.n_categories} "
            f"categories; the arrays have {n_classes} classes and {tuple(map(len, cells))}"
        )
    return Named(domain, cells)


def shown(label: Any) -> str:
    """A label for a person: what is not printable is escaped."""
    text = str(label)
    return text if text.isprintable() else ascii(text)
