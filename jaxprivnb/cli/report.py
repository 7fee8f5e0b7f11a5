"""The command `report`: a release, or a study, as one page."""

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
        "report",
        help="write one HTML file about a release or a study",
        description=run_report.__doc__,
    )
    report.add_argument(
        "source",
        metavar="FILE_OR_DIR",
        help="a file that `jaxprivnb release` wrote, or a study's folder",
    )
    report.add_argument("-o", "--out", required=True, help="the HTML file to write")
    report.add_argument("--method", choices=names("tables"), default="exact")
    report.add_argument("--level", type=level, default=0.95, help="of intervals (default: 0.95)")
    add_compilation_cache(report)
    report.set_defaults(command=run_report, stop=Stop.AT_ONCE)


def run_report(arguments: argparse.Namespace) -> int:
    """Write what was released and promised, the posterior and its pictures, into one HTML file
    that opens anywhere, without a network; of a study's folder its design, figures, summary and
    failures, and --method and --level have no part in it.
    """
    from jaxprivnb.privacy.sealed import try_output

    what = "the study" if os.path.isdir(arguments.source) else "the release"
    try_output(arguments.out, {what: arguments.source})
    # No window is needed, and there may be none.
    require("matplotlib", "figures", "a report").use("Agg")
    if os.path.isdir(arguments.source):
        from jaxprivnb.study.report import report_study

        study = report_study(arguments.source, arguments.out)
        print(f"{arguments.out}: {study.spec.name}, {study.table.num_rows:,} rows")
        return 0
    keep_compiled(arguments)
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
