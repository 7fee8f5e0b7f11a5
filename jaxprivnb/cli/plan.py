"""The command `plan`: before any data are read."""

import argparse
import inspect
import io
import os
from typing import Any

from jaxprivnb.cli.arguments import level, positive, whole
from jaxprivnb.cli.exits import Stop
from jaxprivnb.cli.release import DOMAIN_HELP, read_domain

QUANTITIES = (
    "class_width", "class_error", "feature_width", "feature_error", "count_width", "count_error",
    "found", "accuracy",
)  # fmt: skip
"""As in `jaxprivnb.planning.table`, which needs more than help should wait for."""


def add_commands(commands: Any) -> None:
    """Add the parser; imports no JAX."""
    plan = commands.add_parser(
        "plan", help="what a budget will buy, before any data are read",
        description=inspect.cleandoc(run_plan.__doc__ or ""),
        epilog=DOMAIN_HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    plan.add_argument("--domain", required=True, help="a TOML file with the public domain")
    plan.add_argument(
        "--n", dest="n_records", type=whole, required=True, metavar="N",
        help="about how many records there will be",
    )  # fmt: skip
    plan.add_argument(
        "--epsilon-total", type=positive, nargs="+", required=True, metavar="E",
        help="budgets of all tables together, to be compared",
    )  # fmt: skip
    plan.add_argument(
        "--delta", type=positive, default=1e-6, metavar="D",
        help="at which Gaussian noise keeps epsilon (default: %(default)s)",
    )  # fmt: skip
    plan.add_argument(
        "--prior", type=positive, default=1.0, metavar="A",
        help="concentration of every Dirichlet that parameters are drawn from; below 1 for "
        "features with categories that hardly occur (default: 1, uniform)",
    )  # fmt: skip
    plan.add_argument(
        "--neighbours", choices=("replace", "add-remove"), default="replace",
        help="as in `release` (default: %(default)s)",
    )  # fmt: skip
    plan.add_argument(
        "--contributions", type=whole, default=1, metavar="C",
        help="the most records that one person has (default: %(default)s)",
    )  # fmt: skip
    plan.add_argument("--level", type=level, default=0.95, help="of intervals (default: 0.95)")
    plan.add_argument("--replicates", type=whole, metavar="R", help="simulated datasets")
    plan.add_argument("--seed", type=int, default=0, help="of the simulation (default: 0)")
    plan.add_argument("--format", choices=("terminal", "csv", "json"), default="terminal")
    plan.add_argument("--plot", metavar="FILE", help="draw it too: a .png, .pdf or .svg file")
    plan.add_argument(
        "--plot-what", choices=QUANTITIES, default="feature_error",
        help="the quantity to draw (default: %(default)s)",
    )  # fmt: skip
    plan.set_defaults(command=run_plan, stop=Stop.AT_ONCE)


def run_plan(arguments: argparse.Namespace) -> int:
    """Simulate releases of N records with a domain and print how wide intervals and how large
    errors of P(class), P(feature | class) and counts will be, and how well records will be
    predicted: with discrete Laplace and discrete Gaussian noise, with and without the class's own
    table, and with the best allocation of the budget over the tables. No data are read.
    """
    suffix = os.path.splitext(arguments.plot or "")[1].lstrip(".")
    if arguments.plot is not None:  # before the work, not after it
        from jaxprivnb.extras import require
        from jaxprivnb.privacy.sealed import try_output

        if suffix not in ("png", "pdf", "svg"):
            raise ValueError(f"--plot must end in .png, .pdf or .svg, got {arguments.plot!r}")
        require("matplotlib", "figures", "--plot")
        try_output(arguments.plot, {"the domain": arguments.domain})
    stated = read_domain(arguments.domain, None)
    from jaxprivnb.planning.plan import plan
    from jaxprivnb.privacy.domain import Column, Domain

    columns = {name: Column(name, tuple(x)) for name, x in stated.categories.items()}
    columns |= {name: Column(name, x.labels, x) for name, x in stated.bins.items()}
    made = plan(
        n_records=arguments.n_records,
        epsilon_total=arguments.epsilon_total,
        domain=Domain(Column(stated.class_name, tuple(stated.classes)), tuple(columns.values())),
        delta=arguments.delta,
        prior=arguments.prior,
        neighbours=arguments.neighbours,
        contributions=arguments.contributions,
        level=arguments.level,
        replicates=arguments.replicates,
        seed=arguments.seed,
    )
    if arguments.plot is not None:
        _draw(made, arguments.plot_what, arguments.plot, suffix)
    text = {"csv": made.to_csv, "json": made.to_json}.get(arguments.format)
    print(made if text is None else text(), end="\n" if text is None else "")
    return 0


def _draw(made: Any, what: str, path: str, suffix: str) -> None:
    from jaxprivnb.extras import require
    from jaxprivnb.plots.budget import plot_plan
    from jaxprivnb.privacy.sealed import write
    from jaxprivnb.style import DPI, FONT, PAGE

    data = io.BytesIO()
    with require("matplotlib", "figures", "--plot").rc_context(FONT):
        # Not through pyplot: no window, and no backend of the user's.
        made_of = require("matplotlib.figure", "figures", "--plot")
        figure = made_of.Figure(figsize=(0.6 * PAGE, 2.6), layout="constrained")
        plot_plan(made, what, ax=figure.add_subplot())
        figure.savefig(data, format=suffix, dpi=DPI)
    write(path, data.getvalue())
