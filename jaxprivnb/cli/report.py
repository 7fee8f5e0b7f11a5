"""The command `report`: a release as one page."""

import argparse
import os
import sys
from typing import Any

from jaxprivnb.cli.arguments import add_compilation_cache, keep_compiled, level
from jaxprivnb.cli.exits import Stop
from jaxprivnb.extras import require
from jaxprivnb.methods import names


def add_commands(commands: Any) -> None:
    """Add the parser; imports no JAX."""
    report = commands.add_parser(
        "report", help="write one HTML file about a release", description=run_report.__doc__
    )
    report.add_argument("source", metavar="FILE", help="a file that `jaxprivnb release` wrote")
    report.add_argument("-o", "--out", required=True, help="the HTML file to write")
    report.add_argument("--method", choices=names("tables"), default="exact")
    report.add_argument("--level", type=level, default=0.95, help="of intervals (default: 0.95)")
    add_compilation_cache(report)
    report.set_defaults(command=run_report, stop=Stop.AT_ONCE)


def run_report(arguments: argparse.Namespace) -> int:
    """Write what was released and promised, the posterior and its pictures, into one HTML file
    that opens anywhere, without a network.
    """
    from jaxprivnb.privacy.sealed import try_output

    try_output(arguments.out, {"the release": arguments.source})
    if os.path.isdir(arguments.source):
        return _report_folder(arguments)
    keep_compiled(arguments)
    # No window is needed, and there may be none.
    require("matplotlib", "figures", "a report").use("Agg")
    import jax

    from jaxprivnb.privacy.file import load_release
    from jaxprivnb.report.release import write_report
    from jaxprivnb.status import Status

    release = load_release(arguments.source)
    with jax.enable_x64(True):
        posterior = write_report(
            release, arguments.out, method=arguments.method, level=arguments.level
        )
        status = Status(int(posterior.status))
    print(f"{arguments.out}: {release.guarantee}, {arguments.method} posterior")
    if status != Status.SUCCESS:
        print(f"note: the fit's status is {status.name}: {status.sentence}", file=sys.stderr)
    return 0


def _report_folder(arguments: argparse.Namespace) -> int:
    raise ValueError(f"{arguments.source} is a folder: a report is of a release's file")
