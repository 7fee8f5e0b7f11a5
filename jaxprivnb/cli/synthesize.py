"""The command `synthesize`: records drawn from a release's posterior."""

import argparse
import csv
import io
import os
import sys
from pathlib import Path
from typing import Any

from jaxprivnb.cli.arguments import add_compilation_cache, keep_compiled, whole
from jaxprivnb.cli.exits import Stop
from jaxprivnb.methods import names


def add_commands(commands: Any) -> None:
    """Add the parser; imports no JAX."""
    synthesize = commands.add_parser(
        "synthesize", help="draw synthetic records from a release",
        description=run_synthesize.__doc__,
    )  # fmt: skip
    synthesize.add_argument("release", help="a file that `jaxprivnb release` wrote")
    synthesize.add_argument(
        "-o", "--out", required=True, metavar="FILE_OR_DIR",
        help="a file whose name ends in .csv, for one set; or a folder, which gets 1.csv, 2.csv, "
        "... beside whatever is there",
    )  # fmt: skip
    synthesize.add_argument("--datasets", type=whole, default=1, metavar="M", help="sets to draw")
    synthesize.add_argument(
        "--records", type=whole, metavar="N",
        help="of each set (default: N of the release, or a draw of it where it is not public)",
    )  # fmt: skip
    synthesize.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    synthesize.add_argument("--method", choices=names("tables"), default="exact")
    add_compilation_cache(synthesize)
    synthesize.set_defaults(command=run_synthesize, stop=Stop.AT_ONCE)


def run_synthesize(arguments: argparse.Namespace) -> int:
    """Draw sets of synthetic records from the posterior of a release and write them as CSV files.
    Parameters are drawn anew for every set, so several of them show how much is not known:
    estimates from them are combined by `jaxprivnb.combine_synthetic`.
    """
    from jaxprivnb.privacy.sealed import try_output, write

    one_file = arguments.out.lower().endswith(".csv")
    if one_file and arguments.datasets > 1:
        raise ValueError("-o must be a folder for more than one data set, and ends in .csv")
    folder = Path(arguments.out)
    paths = [folder] if one_file else [folder / f"{d + 1}.csv" for d in range(arguments.datasets)]
    for path in paths:
        try_output(path, {"the release": arguments.release})
    keep_compiled(arguments)
    import jax

    from jaxprivnb.methods import fit_function
    from jaxprivnb.privacy.file import load_release
    from jaxprivnb.status import Status

    release = load_release(arguments.release)
    with jax.enable_x64(True):
        posterior = fit_function(arguments.method)(release)
        sets = posterior.synthesize(
            jax.random.key(arguments.seed), arguments.records, arguments.datasets, as_frame=False
        )
        status = Status(int(posterior.status))
    replaced = [path for path in paths if os.path.exists(path)]
    if replaced:
        more = f" and {len(replaced) - 1} more" if len(replaced) > 1 else ""
        print(f"note: {replaced[0]}{more} was there and is replaced", file=sys.stderr)
    for path, columns in zip(paths, sets, strict=True):
        write(path, _csv(columns))
        print(f"{path}: {len(next(iter(columns.values())))} synthetic records")
    if status != Status.SUCCESS:
        print(f"note: the fit's status is {status.name}: {status.sentence}", file=sys.stderr)
    return 0


def _csv(columns: dict[str, Any]) -> bytes:
    """As `summary` writes labels: no formulas, nothing unprintable."""
    from jaxprivnb.report.names import in_csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(in_csv, columns))
    writer.writerows(zip(*(map(in_csv, x.tolist()) for x in columns.values()), strict=True))
    return text.getvalue().encode()
