"""Pictures of posteriors, fits and releases (needs the extra `figures`).

Every function takes an optional matplotlib `Axes` and returns the one it drew on, so that pictures
can be arranged and changed; without one it makes a figure of its own, a column of print wide.
None of them shows a window or changes matplotlib's settings.

Posteriors are given alone or as a mapping from label to posterior. The labels "naive", "vb",
"exact" and "bayes" have their own colours and names, the same in every figure of this package.
"""

from jaxprivnb.plots.bound import plot_bound
from jaxprivnb.plots.budget import plot_plan
from jaxprivnb.plots.calibration import Coverage, coverage, plot_calibration
from jaxprivnb.plots.density import plot_density
from jaxprivnb.plots.forest import plot_forest
from jaxprivnb.plots.heatmap import plot_tables

__all__ = [
    "Coverage",
    "coverage",
    "plot_bound",
    "plot_calibration",
    "plot_density",
    "plot_forest",
    "plot_plan",
    "plot_tables",
]
