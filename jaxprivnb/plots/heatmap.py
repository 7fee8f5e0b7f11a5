"""A release's noisy tables, as the analyst gets them."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxprivnb.plots.canvas import canvas
from jaxprivnb.report.names import Names, shown
from jaxprivnb.style import PAGE
from jaxprivnb.tables import NoisyTables, check_type

MOST_NUMBERS = 160
"""Cells up to which counts are written."""
COLORS = "RdBu"
"""Blue above zero, red below, white at it; colour-blind readers can tell the two."""
_KINDS = {"Geometric": "discrete Laplace"}


def plot_tables(
    tables: NoisyTables,
    *,
    features: Sequence[Any] | None = None,
    annotate: bool | None = None,
    domain: Any = None,
    ax: Any = None,
) -> Any:
    """Draw the tables side by side: a row a class, a column a category, colour the noisy count.

    No true count is below zero, so a red cell shows noise at work.

    Args:
        tables: a `Release`, whose names are used, or the `NoisyTables` of one dataset.
        features: which tables, names or positions; all if None.
        annotate: write the counts; None means where they can be read.
        domain: names, for tables that carry none; without, numbers and x0, x1, ...
        ax: where to draw; a new figure, as wide as its columns need, if None.
    """
    check_type(tables).check("plot_tables")
    source = getattr(tables, "domain", None) if domain is None else domain
    real, I = np.asarray(tables.real), tables.n_classes
    names = Names.of(source, I, real)
    known = names.domain.features
    chosen = [
        names.feature_index(f) for f in ([f.name for f in known] if features is None else features)
    ]
    if not chosen:
        raise ValueError("features must name at least one table, got none")
    counts = np.asarray(tables.counts)
    blocks = [counts[:, k, list(names.cells[k])] for k in chosen]
    titles = [shown(known[k].name) for k in chosen]
    labels = [shown(c) for k in chosen for c in known[k].categories]
    if features is None and len(known) < tables.n_features:  # the class's own table comes last
        chosen, titles = [*chosen, len(known)], [*titles, shown(names.domain.class_.name)]
        blocks, labels = [*blocks, counts[:, -1, :1]], [*labels, "all"]
    classes = [shown(c) for c in names.domain.class_.categories]
    cells = np.concatenate(blocks, axis=1)
    if annotate is None:
        annotate = cells.size <= MOST_NUMBERS
    high = float(np.abs(cells).max()) or 1.0
    rotate = max(map(len, labels)) > 4
    longest = max(map(len, classes))
    caption = _noise(tables, chosen)
    width = min(2 * PAGE, max(0.36 * cells.shape[1], 1.6) + 1.5 + 0.06 * longest)
    width = max(width, 0.06 * len(caption) + 1.2)  # centred on the cells, left of the colour bar
    height = 0.24 * I + 1.1 + (0.05 * max(map(len, labels)) if rotate else 0)

    with canvas(ax, height, width) as ax:
        image = ax.imshow(cells, cmap=COLORS, vmin=-high, vmax=high, aspect="auto")
        ax.grid(False)
        if annotate:
            for (i, c), value in np.ndenumerate(cells):
                dark = abs(value) > 0.6 * high
                ax.text(
                    c, i, f"{value:.0f}", ha="center", va="center", fontsize=7,
                    color="white" if dark else "black",
                )  # fmt: skip
        ends = np.cumsum([b.shape[1] for b in blocks])
        for end in ends[:-1]:
            ax.axvline(end - 0.5, color="black", linewidth=1)
        for end, block, title in zip(ends, blocks, titles, strict=True):
            ax.text(
                end - 0.5 - block.shape[1] / 2, -0.6, title,
                ha="center", va="bottom", fontsize=7,
            )  # fmt: skip
        ax.set_xticks(np.arange(len(labels)), labels, rotation=90 if rotate else 0)
        ax.set_yticks(np.arange(I), classes)
        ax.tick_params(length=0)
        ax.set_ylabel(shown(names.domain.class_.name))
        ax.set_xlabel(f"category\n{caption}")
        ax.figure.colorbar(image, ax=ax, label="noisy count", pad=0.02)
    return ax


def _noise(tables: NoisyTables, chosen: list[int]) -> str:
    """N and the noise in words."""
    noise: Any = tables.noise
    kind = _KINDS.get(type(noise).__name__, type(noise).__name__)
    value = np.broadcast_to(np.asarray(noise.value), (tables.n_features,))[chosen]
    low, high = float(value.min()), float(value.max())
    scale = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    known = tables.n_records is not None
    N = f"N = {int(jax.device_get(tables.n_records))}" if known else "N unknown"
    return f"{N}; every count has {kind} noise of {noise.parameter} {scale}"
