"""The posterior density of one parameter, under one method or several.

Densities are exact: Beta for the Dirichlet posteriors, a mixture of Betas for the exact one.
"""

from typing import Any

import numpy as np

from jaxprivnb import validate
from jaxprivnb.plots.arguments import as_series, as_truth, names_for
from jaxprivnb.plots.canvas import canvas, legend_above
from jaxprivnb.posterior import Posterior
from jaxprivnb.style import TRUTH

POINTS = 257
"""On each curve."""
REACH = 0.9998
"""A curve is drawn over the equal-tailed interval of this level."""


def plot_density(
    posteriors: Any,
    *,
    class_: Any,
    feature: Any = None,
    category: Any = None,
    truth: Any = None,
    level: float | None = 0.95,
    domain: Any = None,
    ax: Any = None,
) -> Any:
    """Draw the posterior density of P(Y = class_), or of P(feature = category | Y = class_).

    Args:
        posteriors: a posterior or fitted `PrivateNaiveBayes`, or a mapping from label to such.
        class_: its label or, where labels are not numbers, its position.
        feature: the same; None for P(Y).
        category: of the feature; None for P(Y).
        truth: in simulation, a `Simulation` of one dataset or a pair (P(Y), P(X|Y)).
        level: of the equal-tailed interval to shade; None shades nothing.
        domain: a `Release` or its domain, for posteriors that carry no names; without one,
            classes and categories are numbers and features are x0, x1, ...
        ax: where to draw; a new figure if None.
    """
    series = as_series(posteriors)
    first = series[0].posterior
    names = names_for(first, domain)
    if (feature is None) != (category is None):
        raise TypeError(
            "feature and category must be given together, for P(X|Y), or both left out, for P(Y)"
        )
    at: tuple[int, ...] = (names.class_index(class_),)
    if feature is not None:
        k = names.feature_index(feature)
        at = (*at, k, names.category_index(k, category))
    siblings = first.class_mean.shape[0] if feature is None else len(names.cells[at[1]])
    if siblings == 1:
        raise ValueError(f"{names.parameter(*at)} is 1 whatever the data: it has no density")
    if level is not None:
        level = validate.real_number("level", level, above=0, below=1)
    true = as_truth(truth, first)

    with canvas(ax, height=2.3) as ax:
        for posterior, look in series:
            x = np.linspace(*_interval(posterior, at, REACH), POINTS)
            y = _density(posterior, at, x)
            ax.plot(x, y, color=look.color, linestyle=look.dash, linewidth=1.4, label=look.name)
            if level is not None:
                low, high = _interval(posterior, at, level)
                inside = np.concatenate([[low], x[(x > low) & (x < high)], [high]])
                height = np.interp(inside, x, y)
                ax.fill_between(inside, height, color=look.color, alpha=0.15, linewidth=0)
        if true is not None:
            value = true[len(at) > 1][at]
            ax.axvline(value, color=TRUTH, linewidth=1, linestyle=(0, (1, 1)), label="truth")
        ax.set_ylim(bottom=0)
        ax.set_xlabel(names.parameter(*at))
        shaded = "" if level is None else f"\n(shaded: {100 * level:g}% interval)"
        ax.set_ylabel(f"posterior density{shaded}")
        legend_above(ax)
    return ax


def _interval(posterior: Posterior, at: tuple[int, ...], level: float) -> tuple[float, float]:
    """The equal-tailed interval of the parameter at index (i,) or (i, k, j)."""
    both = posterior.class_interval(level) if len(at) == 1 else posterior.feature_interval(level)
    return float(both[0][at]), float(both[1][at])


def _density(posterior: Posterior, at: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    """The parameter's density at the points x `[G]`."""
    density = posterior.class_density if len(at) == 1 else posterior.feature_density
    return np.asarray(density(x)[at])
