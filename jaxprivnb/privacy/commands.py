"""The commands `release` and `fit`: the data holder's half and the analyst's half."""

import argparse
import csv
import inspect
import os
import sys
import tomllib
from typing import Any, NamedTuple

from jaxprivnb.study.toml_lines import find_line

_MAX_DOMAIN_BYTES = 16 * 2**20


class StatedDomain(NamedTuple):
    """A domain file: labels as they stand in the CSV."""

    class_name: str
    classes: list[str]
    categories: dict[str, list[str]]


def add_commands(commands: Any) -> None:
    """Add both parsers; imports no JAX."""
    release = commands.add_parser(
        "release", help="release a CSV file's tables with noise",
        description=inspect.cleandoc(run_release.__doc__ or ""),
        epilog=_DOMAIN_HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    release.add_argument("data", help="a CSV file with a header, one record a row")
    release.add_argument("--class", dest="class_name", metavar="COLUMN", help="the class's column")
    release.add_argument("--domain", required=True, help="a TOML file with the public domain")
    release.add_argument("-o", "--out", required=True, help="the file to write")
    budget = release.add_mutually_exclusive_group(required=True)
    budget.add_argument("--epsilon-total", type=_positive, metavar="E", help="of all tables")
    budget.add_argument("--epsilon-per-table", type=_positive, metavar="E", help="of each table")
    budget.add_argument("--rho-total", type=_positive, metavar="R", help="zCDP, of all tables")
    release.add_argument(
        "--class-table", action="store_true", help="also release the table of the class"
    )
    release.add_argument(
        "--unknown", choices=("error", "other"), default="error",
        help='values outside the domain: refuse, or count as "other" (default: %(default)s)',
    )  # fmt: skip
    release.add_argument("--ledger", metavar="FILE", help="charge this ledger, or refuse")
    release.add_argument("--epsilon-limit", type=_positive, help="of a new ledger")
    release.add_argument("--rho-limit", type=_positive, help="of a new ledger")
    release.set_defaults(command=run_release)

    fit = commands.add_parser("fit", help="fit a release", description=run_fit.__doc__)
    fit.add_argument("release", help="a file that `jaxprivnb release` wrote")
    fit.add_argument("--method", choices=("exact", "vb", "naive"), default="exact")
    fit.add_argument("--level", type=_level, default=0.95, help="of intervals (default: 0.95)")
    fit.add_argument("--format", choices=("terminal", "csv"), default="terminal")
    fit.add_argument("--draws", type=_whole, metavar="N", help="posterior draws to write")
    fit.add_argument("--draws-out", metavar="FILE", help="where to: an .npz file")
    fit.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    add_compilation_cache(fit)
    fit.set_defaults(command=run_fit)


def add_compilation_cache(parser: Any) -> None:
    """The option that `keep_compiled` reads."""
    parser.add_argument(
        "--compilation-cache", metavar="DIR", help="keep compiled programs between runs"
    )


def keep_compiled(arguments: argparse.Namespace) -> None:
    """Tell JAX, which must not be imported yet, where to keep what it compiles."""
    if arguments.compilation_cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.abspath(arguments.compilation_cache)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


_DOMAIN_HELP = """the domain file, with labels as they stand in the CSV:
  [class]
  income = ["<=50K", ">50K"]
  [features]
  sex = ["Female", "Male"]
  region = 4                  # the categories 0, 1, 2, 3
Columns it does not list are not released. The number of records is public.
"""


def run_release(arguments: argparse.Namespace) -> int:
    """Count the classes and features of a CSV file and write the counts with OpenDP's integer
    noise, for one use of the stated budget.
    """
    domain = read_domain(arguments.domain, arguments.class_name)
    ledger = _ledger(arguments)
    wanted = [domain.class_name, *domain.categories]
    columns, ignored = read_csv(arguments.data, wanted)
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
        class_table=arguments.class_table,
        unknown=arguments.unknown,
        ledger=ledger,
    )
    if os.path.exists(arguments.out):
        print(
            f"note: {arguments.out} was there and is replaced. If it was of these records, what it "
            "cost stays spent, and the budgets add up (--ledger keeps count)",
            file=sys.stderr,
        )
    made.save(arguments.out)
    print(f"{arguments.out}: {made.guarantee}, {made.guarantee.mechanism} noise, N={made.size}")
    if ledger is not None:
        print(f"{arguments.ledger}: {ledger!r}")
    return 0


def run_fit(arguments: argparse.Namespace) -> int:
    """Print the posterior of P(class) and P(feature | class), with intervals, and write draws
    if asked to.
    """
    if (arguments.draws is None) != (arguments.draws_out is None):
        raise ValueError("--draws and --draws-out go together")
    keep_compiled(arguments)
    import jax

    import jaxprivnb
    from jaxprivnb.privacy.file import load_release
    from jaxprivnb.status import Status

    with jax.enable_x64(True):
        release = load_release(arguments.release)
        posterior = getattr(jaxprivnb, f"fit_{arguments.method}")(release)
        summary = posterior.summary(arguments.level)
        if arguments.draws is not None:
            _write_draws(release, posterior, arguments)
    if arguments.format == "csv":
        print(summary.to_csv(), end="")
    else:
        print(f"{release.guarantee}, {release.guarantee.mechanism} noise, N={release.size}")
        print(f"{arguments.method} posterior, {arguments.level:g} intervals\n")
        print(summary.table())
    if summary.status != Status.SUCCESS:
        print(f"note: the fit's status is {summary.status.name}", file=sys.stderr)
    return 0


def read_domain(path: str, class_name: str | None) -> StatedDomain:
    """The domain file; every complaint names the file, the line and the key."""
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
            raise wrong(key, "must be a list of labels (text or integers) or their number")
        stripped = [str(v).strip() for v in value]
        if len(set(stripped)) != len(stripped):
            raise wrong(key, "has a label twice")
        return stripped

    return StatedDomain(
        name,
        labels_of(("class", name), labels),
        {f: labels_of(("features", f), v) for f, v in content["features"].items()},
    )


def read_csv(path: str, wanted: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The wanted columns, text without the blanks around it, and the names of the others."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            for name in wanted:
                if header.count(name) != 1:
                    how = "no" if name not in header else "more than one"
                    raise ValueError(f"{path} has {how} column {name!r}")
            places = [header.index(name) for name in wanted]
            columns: list[list[str]] = [[] for _ in wanted]
            for row in reader:
                if not row:  # a blank line
                    continue
                if len(row) != len(header):
                    raise ValueError(f"{path} has a row that is longer or shorter than its header")
                for column, place in zip(columns, places, strict=True):
                    column.append(sys.intern(row[place].strip()))
    except OSError as error:
        raise OSError(error.errno, f"cannot read {path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError):
        # Their messages can quote the data.
        raise ValueError(f"{path} is not a CSV file in UTF-8") from None
    return dict(zip(wanted, columns, strict=True)), [n for n in header if n not in wanted]


def _write_draws(release: Any, posterior: Any, arguments: argparse.Namespace) -> None:
    import io

    import jax
    import numpy as np

    from jaxprivnb.privacy.sealed import write

    class_probs, feature_probs = posterior.sample(jax.random.key(arguments.seed), arguments.draws)
    data = io.BytesIO()
    np.savez_compressed(
        data,
        class_probs=np.asarray(class_probs),
        feature_probs=np.asarray(feature_probs)[:, :, : len(release.feature_names)],
        classes=np.asarray([str(c) for c in release.classes]),
        feature_names=np.asarray(release.feature_names),
    )
    write(arguments.draws_out, data.getvalue())


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
    return PrivacyLedger(*limits, path=arguments.ledger)


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_DOMAIN_BYTES + 1)
    except OSError as error:
        raise OSError(error.errno, f"cannot read {path}: {error.strerror}") from None
    if len(data) > _MAX_DOMAIN_BYTES:
        raise ValueError(f"{path} is larger than {_MAX_DOMAIN_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def _level(text: str) -> float:
    value = _positive(text)
    if value >= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text!r}")
    return value


def _whole(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
