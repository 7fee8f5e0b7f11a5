"""The bound's path with iterations."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxprivnb import validate
from jaxprivnb.plots.canvas import canvas, legend_inside
from jaxprivnb.style import looks
from jaxprivnb.variational.trace import Trace


def plot_bound(traces: Any, *, log_evidence: Any = None, gap: bool = False, ax: Any = None) -> Any:
    """Draw the variational bound after every sweep.

    Args:
        traces: what `trace_vb` returns, or a mapping from label to such.
        log_evidence: log P(m), as `fit_exact` gives it, which no bound exceeds.
        gap: draw on a log axis how far the bound is below the highest value that any of the paths
            reaches, which shows the rate of the last digits too.
        ax: where to draw; a new figure if None.
    """
    if isinstance(traces, Trace):
        traces = {"vb": traces}
    if not isinstance(traces, Mapping) or not traces:
        raise TypeError(
            f"traces must be what trace_vb returns, or a mapping, got {validate.describe(traces)}"
        )
    paths = {label: _path(label, trace) for label, trace in traces.items()}
    if log_evidence is not None:
        if gap:
            raise ValueError("log_evidence is drawn with gap=False only")
        log_evidence = validate.real_number("log_evidence", float(log_evidence))
    found = looks((str(label), "vb") for label in paths)
    (exact,) = looks([("exact", "exact")])
    top = max(path.max() for path in paths.values())

    with canvas(ax, height=2.3) as ax:
        for path, look in zip(paths.values(), found, strict=True):
            y = np.where(top > path, top - path, np.nan) if gap else path
            # Short paths show their points; dots of a long one would run together.
            marker = look.marker if len(path) <= 60 else None
            ax.plot(
                np.arange(len(path)), y, color=look.color, marker=marker, markersize=2.5,
                linewidth=1.2, linestyle="-" if marker else look.dash, label=look.name,
            )  # fmt: skip
        if log_evidence is not None:
            ax.axhline(
                log_evidence, color=exact.color, linewidth=1, linestyle="--",
                label="log evidence (exact)",
            )  # fmt: skip
        ax.set_xlabel("sweeps")
        if gap:
            ax.set_yscale("log")
            ax.set_ylabel("highest bound − bound (nats)")
        else:
            ax.set_ylabel("bound on log P(m) (nats)")
        # Bounds rise and gaps fall, so these corners are free.
        legend_inside(ax, "upper right" if gap else "lower right")
    return ax


def _path(label: Any, trace: Any) -> np.ndarray:
    """The bound up to the end of one ascent."""
    if not isinstance(trace, Trace):
        raise TypeError(
            "traces must be what trace_vb returns, or a mapping from label to it, "
            f"got a mapping to {validate.describe(trace)}"
        )
    elbo = np.asarray(trace.elbo)
    if elbo.ndim != 1:
        raise ValueError(f"traces[{label!r}] must be of one dataset, got shape {elbo.shape}")
    return elbo[: int(trace.iterations)]
