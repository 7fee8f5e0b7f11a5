"""What a budget is expected to buy."""

from typing import Any

from jaxprivnb import validate
from jaxprivnb.planning.table import Plan
from jaxprivnb.plots.canvas import canvas, legend_inside
from jaxprivnb.style import PAGE, looks

WHAT = {
    "class_width": "width of intervals of P(Y)",
    "class_error": "error of P(Y)",
    "feature_width": "width of intervals of P(X | Y)",
    "feature_error": "error of P(X | Y)",
    "count_width": "width of intervals of counts",
    "count_error": "error of counts",
    "found": "share of most likely classes found",
    "accuracy": "share of records predicted right",
}
"""Quantities of a plan, as axes have them."""


def plot_plan(plan: Plan, what: str = "feature_error", *, ax: Any = None) -> Any:
    """Draw a quantity against epsilon: both noises, with and without the class's own table.

    Each point has the best of the allocations. All of them share their simulated data, so they can
    be compared; how sure their level is, the standard errors of the plan's rows say.

    Args:
        plan: what `jaxprivnb.plan` returns.
        what: one of `WHAT`, such as "feature_error" or "accuracy".
        ax: where to draw; a new figure if None.
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be what jaxprivnb.plan returns, got {validate.describe(plan)}")
    validate.choice("what", what, WHAT)
    rows = plan.chosen()
    kinds = list(dict.fromkeys((row.noise, row.class_table) for row in rows))
    series = [(noise.capitalize() + (", class table" if own else ""), "") for noise, own in kinds]
    share = what in ("found", "accuracy")
    with canvas(ax, height=2.6, width=0.6 * PAGE) as ax:
        for kind, look in zip(kinds, looks(series), strict=True):
            own = sorted(row for row in rows if (row.noise, row.class_table) == kind)
            ax.plot(
                [row.epsilon_total for row in own], [getattr(row, what) for row in own],
                color=look.color, marker=look.marker, linestyle=look.dash, markersize=3.5,
                linewidth=1.2, label=look.name,
            )  # fmt: skip
        if what == "accuracy":
            ax.axhline(
                plan.ceiling, color="black", linewidth=0.8, linestyle="--",
                label="with the true parameters",
            )  # fmt: skip
        ax.set_xscale("log")
        ax.set_xticks(sorted(plan.epsilons), [f"{e:g}" for e in sorted(plan.epsilons)])
        ax.minorticks_off()
        if not share:
            ax.set_yscale("log")
        ax.set_xlabel(f"epsilon of all tables together (Gaussian: delta {plan.delta:g})")
        ax.set_ylabel(WHAT[what])
        # Shares rise and errors fall, so these corners are free.
        legend_inside(ax, "lower right" if share else "upper right")
    return ax
