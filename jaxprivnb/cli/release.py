"""The command `release`: the data holder's half."""

import argparse
import contextlib
import inspect
import itertools
import os
import sys
import tomllib
from typing import Any, NamedTuple

from jaxprivnb.cli.arguments import positive, whole
from jaxprivnb.cli.exits import Stop
from jaxprivnb.storage import csv_rows
from jaxprivnb.study.toml_lines import find_line

_MAX_DOMAIN_BYTES = 16 * 2**20


class StatedDomain(NamedTuple):
    """A domain file: labels as they stand in the CSV."""

    class_name: str
    classes: list[str]
    categories: dict[str, list[str]]
    bins: dict[str, Any]
    """`Bins` of the features that are numbers."""


def add_commands(commands: Any) -> None:
    """Add the parser; imports no JAX."""
    release = commands.add_parser(
        "release", help="release a CSV file's tables with noise",
        description=inspect.cleandoc(run_release.__doc__ or ""),
        epilog=DOMAIN_HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    release.add_argument("data", help="a CSV file with a header, one record a row")
    release.add_argument("--class", dest="class_name", metavar="COLUMN", help="the class's column")
    release.add_argument("--domain", required=True, help="a TOML file with the public domain")
    release.add_argument("-o", "--out", required=True, help="the file to write")
    budget = release.add_mutually_exclusive_group(required=True)
    budget.add_argument("--epsilon-total", type=positive, metavar="E", help="of all tables")
    budget.add_argument("--epsilon-per-table", type=positive, metavar="E", help="of each table")
    budget.add_argument("--rho-total", type=positive, metavar="R", help="zCDP, of all tables")
    release.add_argument(
        "--class-table", action="store_true", help="also release the table of the class"
    )
    release.add_argument(
        "--unknown", choices=("error", "other"), default="error",
        help='values outside the domain: refuse, or count as "other" (default: %(default)s)',
    )  # fmt: skip
    release.add_argument(
        "--unknown-in", action="append", metavar="FEATURE",
        help="a feature that --unknown other is for; may be repeated (default: all)",
    )  # fmt: skip
    release.add_argument(
        "--neighbours", choices=("replace", "add-remove"), default="replace",
        help="whom the promise is to: one whose record is replaced, N being public, or one whose "
        "record is there or not, and N is not told (default: %(default)s)",
    )  # fmt: skip
    release.add_argument(
        "--contributions", type=whole, default=1, metavar="C",
        help="the most records that one person has (default: %(default)s)",
    )  # fmt: skip
    release.add_argument("--ledger", metavar="FILE", help="charge this ledger, or refuse")
    release.add_argument("--epsilon-limit", type=positive, help="of a new ledger")
    release.add_argument("--rho-limit", type=positive, help="of a new ledger")
    release.set_defaults(command=run_release, stop=Stop.BY_PYTHON)


DOMAIN_HELP = """the domain file, with labels as they stand in the CSV:
  [class]
  income = ["<=50K", ">50K"]
  [features]
  sex = ["Female", "Male"]
  region = 4                  # the categories 0, 1, 2, 3
  age = { edges = [0, 18, 65, 120] }                          # numbers, in bins
  fare = { bins = 8, bounds = [0, 600], outside = "refuse" }  # not in the end bins
Columns it does not list are not released. The number of records is public, unless the neighbours
are add-remove.
"""


def run_release(arguments: argparse.Namespace) -> int:
    """Count the classes and features of a CSV file and write the counts with OpenDP's integer
    noise, for one use of the stated budget.
    """
    from jaxprivnb.privacy.sealed import try_output

    lock = None if arguments.ledger is None else f"{os.path.realpath(arguments.ledger)}.lock"
    inputs = {
        "the data": arguments.data,
        "the domain": arguments.domain,
        "the ledger": arguments.ledger,
        "the ledger's lock": lock,
    }
    try_output(arguments.out, inputs)  # before a budget is spent on it
    domain = read_domain(arguments.domain, arguments.class_name)
    ledger = _ledger(arguments)
    wanted = [domain.class_name, *domain.categories, *domain.bins]
    texts, ignored = read_csv(arguments.data, wanted)
    columns: dict[str, list[Any]] = {**texts}
    for name in domain.bins:
        columns[name] = list(map(_number, texts[name]))
    if ignored:
        from jaxprivnb.report.names import shown

        names = ", ".join(map(shown, ignored))
        print(f"note: not in the domain, so not released: {names}", file=sys.stderr)
    from jaxprivnb.privacy.publish import release

    made = release(
        columns,
        domain.class_name,
        epsilon_total=arguments.epsilon_total,
        epsilon_per_table=arguments.epsilon_per_table,
        rho_total=arguments.rho_total,
        categories=domain.categories,
        classes=domain.classes,
        bins=domain.bins,
        class_table=arguments.class_table,
        unknown=_unknown(arguments),
        ledger=ledger,
        neighbours=arguments.neighbours,
        contributions=arguments.contributions,
    )
    if os.path.exists(arguments.out):
        print(
            f"note: {arguments.out} was there and is replaced. If it was of these records, what it "
            "cost stays spent, and the budgets add up (--ledger keeps count)",
            file=sys.stderr,
        )
    made.save(arguments.out)
    print(f"{arguments.out}: {made.guarantee}, {made.guarantee.mechanism} noise, {made.size_text}")
    if ledger is not None:
        print(f"{arguments.ledger}: {ledger!r}")
    return 0


def _number(text: str) -> float | str | None:
    """A cell of a column with bins: blank is missing, and what is no number stays as it is."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text or None


def _unknown(arguments: argparse.Namespace) -> Any:
    """`release`'s argument."""
    if arguments.unknown_in is None:
        return arguments.unknown
    if arguments.unknown != "other":
        raise ValueError("--unknown-in says which features --unknown other is for")
    return dict.fromkeys(arguments.unknown_in, arguments.unknown)


def read_domain(path: str, class_name: str | None) -> StatedDomain:
    """The domain file; every complaint names the file, the line and the key."""
    from jaxprivnb.privacy.bins import read_bins

    text = _read_text(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None

    def wrong(key: tuple[str, ...], message: str) -> ValueError:
        line = find_line(text, key)
        return ValueError(f"{path}{f':{line}' if line else ''}: {'.'.join(key)} {message}")

    if unknown := set(content) - {"class", "features"}:
        raise wrong((sorted(unknown)[0],), "means nothing; the tables are [class] and [features]")
    for key in ("class", "features"):
        if not isinstance(content.get(key), dict) or not content[key]:
            raise wrong((key,), "must be a table of columns and their categories")
    if len(content["class"]) != 1:
        raise wrong(("class",), "must have one column")
    ((name, labels),) = content["class"].items()
    if class_name not in (None, name):
        raise wrong(("class",), f"is {name!r}, but --class is {class_name!r}")

    def labels_of(key: tuple[str, str], value: Any) -> list[str]:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**6:
            return [str(j) for j in range(value)]
        good = isinstance(value, list) and value
        if not good or any(type(v) not in (str, int) for v in value):
            raise wrong(
                key,
                "must be a list of labels (text or integers) or their number; a feature of numbers "
                "has { edges = [0, 18, 65] }, or { bins = 8, bounds = [0, 600] }",
            )
        stripped = [str(v).strip() for v in value]
        if len(set(stripped)) != len(stripped):
            raise wrong(key, "has a label twice")
        return stripped

    def bins_of(feature: str, value: dict[str, Any]) -> Any:
        try:
            return read_bins(feature, value)
        except (ValueError, TypeError) as error:
            raise wrong(("features", feature), f"is wrong: {error}") from None

    features = content["features"].items()
    return StatedDomain(
        name,
        labels_of(("class", name), labels),
        {f: labels_of(("features", f), v) for f, v in features if not isinstance(v, dict)},
        {f: bins_of(f, v) for f, v in features if isinstance(v, dict)},
    )


def read_csv(path: str, wanted: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The wanted columns, text without the blanks around it, and the names of the others."""
    rows = csv_rows(path)
    header = [name.strip() for _, row in itertools.islice(rows, 1) for name in row]
    for name in wanted:
        if header.count(name) != 1:
            how = "no" if name not in header else "more than one"
            raise ValueError(f"{path} has {how} column {name!r}")
    places = [header.index(name) for name in wanted]
    columns: list[list[str]] = [[] for _ in wanted]
    for _, row in rows:
        if len(row) != len(header):
            raise ValueError(f"{path} has a row that is longer or shorter than its header")
        for column, place in zip(columns, places, strict=True):
            column.append(sys.intern(row[place].strip()))
    return dict(zip(wanted, columns, strict=True)), [n for n in header if n not in wanted]


def _ledger(arguments: argparse.Namespace) -> Any:
    from jaxprivnb.privacy.ledger import PrivacyLedger

    limits = (arguments.epsilon_limit, arguments.rho_limit)
    if arguments.ledger is None:
        if limits != (None, None):
            raise ValueError("--epsilon-limit and --rho-limit belong to a --ledger")
        return None
    if not os.path.exists(arguments.ledger) and limits == (None, None):
        raise ValueError(
            f"{arguments.ledger} does not exist: give --epsilon-limit or --rho-limit to begin it"
        )
    if os.path.exists(arguments.ledger):
        return PrivacyLedger(*limits, path=arguments.ledger)  # for neighbours of its own
    return PrivacyLedger(
        *limits,
        path=arguments.ledger,
        neighbours=arguments.neighbours,
        contributions=arguments.contributions,
    )


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_DOMAIN_BYTES + 1)
    except OSError as error:
        raise OSError(error.errno, f"cannot read {path}: {error.strerror}") from None
    if len(data) > _MAX_DOMAIN_BYTES:
        raise ValueError(f"{path} is larger than {_MAX_DOMAIN_BYTES} bytes")
    with contextlib.suppress(UnicodeDecodeError):  # which holds the text, in a context too
        return data.decode()
    raise ValueError(f"{path} is not UTF-8 text")
