"""Every command and option."""

import argparse
import sys
from collections.abc import Sequence

from jaxprivnb._version import __version__
from jaxprivnb.cli import fit, plan, release, report, study, synthesize
from jaxprivnb.cli.exits import EXIT_CODES, EXIT_USAGE, guarded


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    arguments = parser.parse_args(argv)
    return guarded(arguments.command, arguments)


def build_parser() -> argparse.ArgumentParser:
    """The parser, with a subparser for each command."""
    parser = argparse.ArgumentParser(
        prog="jaxprivnb",
        description="Bayesian inference from differentially private count tables.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxprivnb {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for family in (study, plan, release, fit, synthesize, report):
        family.add_commands(commands)
    return parser
