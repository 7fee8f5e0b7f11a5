"""Calibration: do intervals hold the truth as often as they say?

The equal-tailed interval of level L has the truth in it where the posterior CDF F at the truth is
within L/2 of 1/2, so one evaluation of F gives the coverage at every level.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.plots.arguments import WHAT, as_series, as_truth
from jaxprivnb.plots.canvas import canvas, legend_inside
from jaxprivnb.posterior import Posterior
from jaxprivnb.style import COLUMN

LEVELS = tuple(np.round(np.arange(0.02, 1.0, 0.02), 2).tolist())
BAND = 2
"""Half the width of a Monte Carlo band, in standard errors."""


class Coverage(NamedTuple):
    """Shares of true parameters inside their intervals."""

    levels: np.ndarray
    """Nominal levels, `[L]`."""
    rate: np.ndarray
    """Mean over replicates of the share of parameters covered, `[L]`."""
    error: np.ndarray
    """Monte Carlo standard error of `rate`, sd over replicates / sqrt(their number), `[L]`.

    The parameters of one replicate depend on each other, so it is replicates that are counted.
    """
    replicates: int
    """Replicates that count."""
    failed: int
    """Replicates left out because their fit is not finite."""


def coverage(
    posterior: Posterior, truth: Any, what: str = "feature", levels: Sequence[float] = LEVELS
) -> Coverage:
    """The coverage of equal-tailed intervals in simulation.

    Args:
        posterior: a batch, as from `fit_many`.
        truth: the `Simulation` it was fitted to, or a pair (P(Y) `[..., I]`, P(X|Y)
            `[..., I, K, J]`).
        what: "class" for P(Y), "feature" for P(X|Y).
        levels: nominal levels in (0, 1).
    """
    as_series(posterior, batched=True)
    validate.choice("what", what, WHAT)
    at = np.asarray([validate.real_number("levels", x, above=0, below=1) for x in levels])
    true = as_truth(truth, posterior)
    if true is None:
        raise TypeError("truth must be given: coverage is known in simulation only")
    dtype = posterior.class_mean.dtype
    if what == "class":
        F = np.asarray(posterior.class_cdf(true[0].astype(dtype)))
        real = np.full(F.shape, F.shape[-1] > 1)
    else:
        F = np.asarray(posterior.feature_cdf(true[1].astype(dtype)))
        mask = np.asarray(posterior.real)
        mask = mask & (mask.sum(-1, keepdims=True) > 1)  # an only category is always right
        real = np.broadcast_to(mask, F.shape)
    axes = len(posterior.batch_shape)
    rows = (-1, int(np.prod(F.shape[axes:])))
    F, real = F.reshape(rows), real.reshape(rows)
    # A CDF with NaN for parameters may well be 0 or 1, so it is the means that are asked.
    mean = np.asarray(getattr(posterior, f"{what}_mean")).reshape(rows)
    finite = (np.isfinite(F) & np.isfinite(mean) | ~real).all(-1) & real.any(-1)
    F, real = F[finite], real[finite]
    n = len(F)
    if n < 2:
        raise ValueError(f"coverage needs at least two replicates with finite fits, got {n}")
    distance = np.where(real, np.abs(F - 0.5), np.inf)
    share = np.stack([(distance <= L / 2).sum(-1) for L in at], -1) / real.sum(-1)[:, None]
    error = share.std(0, ddof=1) / np.sqrt(n)
    return Coverage(at, share.mean(0), error, n, int((~finite).sum()))


def plot_calibration(
    posteriors: Any,
    truth: Any,
    what: str = "feature",
    *,
    levels: Sequence[float] = LEVELS,
    ax: Any = None,
) -> Any:
    """Draw coverage against nominal level, with bands of two Monte Carlo standard errors.

    On the diagonal, intervals hold the truth as often as they say; below it they are too narrow.

    Args:
        posteriors: a batch, as from `fit_many`, or a mapping from label to batch.
        truth: the `Simulation` they were fitted to, or a pair (P(Y), P(X|Y)).
        what: "class" for P(Y), "feature" for P(X|Y).
        levels: nominal levels in (0, 1).
        ax: where to draw; a new figure if None.
    """
    series = as_series(posteriors, batched=True)
    found = [coverage(one.posterior, truth, what, levels) for one in series]
    with canvas(ax, height=COLUMN) as ax:
        ax.plot([0, 1], [0, 1], color="#000000", linewidth=0.8, linestyle="--", label="nominal")
        for (_, look), curve in zip(series, found, strict=True):
            name = look.name + (f" ({curve.failed} failed)" if curve.failed else "")
            every = max(1, len(curve.levels) // 8)
            ax.plot(
                curve.levels, curve.rate, color=look.color, linewidth=1.2, label=name,
                marker=look.marker, markersize=3.2, markevery=(every // 2, every),
            )  # fmt: skip
            band = BAND * curve.error
            ax.fill_between(
                curve.levels, curve.rate - band, curve.rate + band,
                color=look.color, alpha=0.2, linewidth=0,
            )  # fmt: skip
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_aspect("equal")
        ax.set_xlabel("nominal level of the interval")
        parameter = "P(Y)" if what == "class" else "P(X | Y)"
        ax.set_ylabel(f"share of true {parameter} inside")
        legend_inside(ax, "upper left")
    return ax
