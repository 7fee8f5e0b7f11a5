"""A Monte Carlo study as a frozen value, read from TOML.

    name = "figure1"
    seed = 1

    [grid]                                  # every combination is a cell
    n_records = [50, 100, 200, 500]         # N
    epsilon_per_table = [0.01, 0.1, 1.0]    # b = 2 / epsilon
    n_classes = 2                           # I; a single value need not be a list
    n_features = 5                          # K
    n_categories = 2                        # J; or one list a feature set, as in [[2, 3, 4]]
    prior = 1.0                             # concentration of every Dirichlet
    noise = "laplace"                       # or "geometric", "gaussian"

    [replicates]                            # nested, as in section 5 of the paper
    parameters = 20
    datasets = 10
    noise_draws = 5

    [methods.naive]
    [methods.vb]
    solver = "kkt"                          # options are passed to the method
    [methods.vb-armijo]
    method = "vb"                           # the same method again, under another label
    solver = "armijo"

Under Gaussian noise a table is rho-zCDP with rho = epsilon_per_table^2 / 2, which is what an
epsilon-DP table satisfies.

Everything is checked before work begins; an error names the key and the line. This module needs
nothing but the standard library, so the command line can read a study without importing JAX.
"""

import dataclasses
import difflib
import hashlib
import itertools
import json
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jaxprivnb.study.toml_lines import find_line

NOISES = ("laplace", "geometric", "gaussian")
METHODS = ("naive", "vb", "exact", "bayes")
DTYPES = ("float64", "float32")
DEFAULT_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


class SpecError(ValueError):
    """A study that cannot be run, with the place in the file that says so."""


class Method(NamedTuple):
    """One column of the comparison."""

    label: str
    """What rows and figures call it."""
    method: str
    """Which fit it is, one of `METHODS`."""
    options: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of the fit, sorted by name."""


class Cell(NamedTuple):
    """One point of the grid."""

    n_records: int
    epsilon_per_table: float
    n_classes: int
    n_categories: tuple[int, ...]
    """J_k for each feature k."""
    prior: float
    noise: str

    @property
    def n_features(self) -> int:
        """K."""
        return len(self.n_categories)

    @property
    def categories(self) -> str:
        """J, or J_1,J_2,... where features differ."""
        distinct = set(self.n_categories)
        return str(min(distinct)) if len(distinct) == 1 else ",".join(map(str, self.n_categories))

    def words(self) -> tuple[int, int]:
        """64 bits that name the random stream of this cell, whatever else is in the study.

        Cells that differ only in N or in the noise share their parameter draws, and cells of the
        same N their data sets too: methods and epsilons are compared on common random numbers.
        """
        shared = json.dumps((self.n_classes, self.n_categories, self.prior), separators=(",", ":"))
        digest = hashlib.sha256(shared.encode()).digest()
        return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


class Replicates(NamedTuple):
    """How often each stage of the simulation is repeated within the stage before it."""

    parameters: int
    datasets: int
    noise_draws: int

    @property
    def total(self) -> int:
        """Replicates a cell."""
        return self.parameters * self.datasets * self.noise_draws


@dataclasses.dataclass(frozen=True)
class Spec:
    """A study: what is computed, and nothing about where or by whom."""

    name: str
    seed: int
    n_records: tuple[int, ...]
    epsilon_per_table: tuple[float, ...]
    n_classes: tuple[int, ...]
    n_categories: tuple[tuple[int, ...], ...]
    """One entry a feature set: J_k for each of its features."""
    prior: tuple[float, ...]
    noise: tuple[str, ...]
    replicates: Replicates
    methods: tuple[Method, ...]
    levels: tuple[float, ...] = DEFAULT_LEVELS
    """Where coverage is computed."""
    width_level: float = 0.95
    """The level of the intervals whose width is reported."""
    interval_every: int = 1
    """Coverage and width are computed for replicates whose number is a multiple of this."""
    dtype: str = "float64"
    chunk_size: int = 512
    """Replicates in one part of the results: what a kill can cost."""
    source: str = dataclasses.field(default="", compare=False, repr=False)
    """The TOML text, for line numbers in errors."""
    path: str = dataclasses.field(default="spec", compare=False, repr=False)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The grid, epsilon fastest."""
        axes = (self.noise, self.prior, self.n_classes, self.n_categories, self.n_records)
        return tuple(
            Cell(N, epsilon, I, J, prior, noise)
            for noise, prior, I, J, N, epsilon in itertools.product(*axes, self.epsilon_per_table)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; two studies with equal dictionaries have equal rows."""
        fields = dataclasses.asdict(self)
        fields.pop("source"), fields.pop("path")
        fields["replicates"] = self.replicates._asdict()
        fields["methods"] = {m.label: {"method": m.method, **dict(m.options)} for m in self.methods}
        return json.loads(json.dumps(fields))

    @property
    def fingerprint(self) -> str:
        """A short digest of `to_dict`."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def error(self, key: tuple[str, ...], problem: str) -> SpecError:
        """An error about `key` that says where it stands."""
        return _error(self.path, self.source, key, problem)


def from_dict(fields: Mapping[str, Any]) -> Spec:
    """The inverse of `Spec.to_dict`."""
    tables = dict(fields)
    methods = tuple(
        Method(
            label, options["method"], _options({k: v for k, v in options.items() if k != "method"})
        )
        for label, options in tables.pop("methods").items()
    )
    replicates = Replicates(**tables.pop("replicates"))
    frozen = {key: _freeze(value) for key, value in tables.items()}
    return Spec(**frozen, replicates=replicates, methods=methods)


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """Read and check a study file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}") from None
    return parse_spec(text, str(path))


def shipped_spec(name: str) -> Spec:
    """A study that comes with the package: see `shipped_names`."""
    resource = resources.files("jaxprivnb.study").joinpath("specs", f"{name}.toml")
    if not resource.is_file():
        known = ", ".join(shipped_names())
        raise SpecError(f"no study called {name!r} comes with the package; there are {known}")
    return parse_spec(resource.read_text(encoding="utf-8"), f"{name}.toml")


def shipped_names() -> tuple[str, ...]:
    """The studies that come with the package."""
    folder = resources.files("jaxprivnb.study").joinpath("specs")
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml")))


def parse_spec(text: str, path: str = "spec.toml") -> Spec:
    """Check TOML text and make a `Spec` of it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: {error}") from None
    return _Reader(text, path).spec(document)


class _Reader:
    """Turns a parsed document into a Spec; every check has the key it is about at hand."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path

    def spec(self, document: dict[str, Any]) -> Spec:
        """Check the document, outermost first."""
        known = ("name", "seed", "dtype", "levels", "width_level", "interval_every", "chunk_size")
        self.only(document, (), (*known, "grid", "replicates", "methods"))
        for table in ("grid", "replicates", "methods"):
            if not isinstance(document.get(table), dict):
                self.fail((table,), f"a study needs a [{table}] table")
        name = document.get("name", Path(self.path).stem)
        if not isinstance(name, str):
            self.fail(("name",), f"must be text, got {name!r}")
        levels = self.axis(document, ("levels",), _inside_unit, DEFAULT_LEVELS)
        return Spec(
            name=name,
            seed=self.value(document, ("seed",), _at_least(0), 0),
            **self.grid(document["grid"]),
            replicates=self.replicates(document["replicates"]),
            methods=self.methods(document["methods"]),
            levels=levels,
            width_level=self.value(document, ("width_level",), _inside_unit, 0.95),
            interval_every=self.value(document, ("interval_every",), _at_least(1), 1),
            dtype=self.value(document, ("dtype",), _one_of(DTYPES), "float64"),
            chunk_size=self.value(document, ("chunk_size",), _at_least(1), 512),
            source=self.text,
            path=self.path,
        )

    def grid(self, grid: dict[str, Any]) -> dict[str, Any]:
        """The axes; features and their categories become one axis of tuples."""
        names = ("n_records", "epsilon_per_table", "n_classes", "n_features", "n_categories")
        self.only(grid, ("grid",), (*names, "prior", "noise"))
        axis = lambda name, *rest: self.axis(grid, ("grid", name), *rest)  # noqa: E731
        return {
            "n_records": axis("n_records", _at_least(0)),
            "epsilon_per_table": axis("epsilon_per_table", _positive),
            "n_classes": axis("n_classes", _at_least(1), (2,)),
            "n_categories": self.feature_sets(grid),
            "prior": axis("prior", _positive, (1.0,)),
            "noise": axis("noise", _one_of(NOISES), ("laplace",)),
        }

    def feature_sets(self, grid: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
        """J_k for each feature of each feature set."""
        key = ("grid", "n_categories")
        sizes = self.axis(grid, key, _categories, (2,))
        ragged = [s for s in sizes if isinstance(s, tuple)]
        if len(ragged) == len(sizes):
            if "n_features" in grid:
                features = self.axis(grid, ("grid", "n_features"), _at_least(1))
                if any(set(features) != {len(s)} for s in ragged):
                    self.fail(
                        ("grid", "n_features"),
                        f"is {_show(features)}, but n_categories lists the features one by one: "
                        "leave n_features out",
                    )
            return tuple(ragged)
        if ragged:
            self.fail(key, "mixes whole numbers with lists; use one or the other")
        features = self.axis(grid, ("grid", "n_features"), _at_least(1))
        return tuple((size,) * K for K in features for size in sizes)

    def replicates(self, table: dict[str, Any]) -> Replicates:
        """The nested design."""
        self.only(table, ("replicates",), Replicates._fields)
        count = lambda name: self.value(table, ("replicates", name), _at_least(1), 1)  # noqa: E731
        return Replicates(*map(count, Replicates._fields))

    def methods(self, table: dict[str, Any]) -> tuple[Method, ...]:
        """One table a method; its options are checked again when the fits are at hand."""
        if not table:
            self.fail(("methods",), f"is empty: name at least one of {_show(METHODS)}")
        found = []
        for label, options in table.items():
            key = ("methods", label)
            if not isinstance(options, dict):
                self.fail(key, f"must be a table: write [methods.{label}]")
            method = options.get("method", label)
            if "method" in options:
                self.check(method, (*key, "method"), _one_of(METHODS))
            elif method not in METHODS:
                self.fail(
                    key,
                    f"is not a method ({_show(METHODS)}){_did_you_mean(label, METHODS)}; "
                    f'a label of your own needs method = "..." in its table',
                )
            found.append(
                Method(label, method, _options({k: v for k, v in options.items() if k != "method"}))
            )
        return tuple(found)

    def axis(
        self,
        table: dict[str, Any],
        key: tuple[str, ...],
        check: Callable[[Any], str | None],
        default: tuple[Any, ...] | None = None,
    ) -> tuple[Any, ...]:
        """A list of distinct values; a single value stands for a list of one."""
        if key[-1] not in table:
            if default is None:
                raise _error(self.path, self.text, key, "is missing")
            return default
        given = table[key[-1]]
        values = given if isinstance(given, list) else [given]
        if not values:
            self.fail(key, "is empty: a grid needs at least one value on every axis")
        for value in values:
            self.check(value, key, check)
        frozen = tuple(float(v) if _is_float_axis(key[-1]) else _freeze(v) for v in values)
        for v in frozen:
            if frozen.count(v) > 1:
                self.fail(key, f"lists {v!r} more than once")
        return frozen

    def value(
        self,
        table: dict[str, Any],
        key: tuple[str, ...],
        check: Callable[[Any], str | None],
        default: Any,
    ) -> Any:
        """One value, or its default."""
        if key[-1] not in table:
            return default
        self.check(table[key[-1]], key, check)
        return table[key[-1]]

    def check(self, value: Any, key: tuple[str, ...], check: Callable[[Any], str | None]) -> None:
        """Fail unless `check` finds nothing wrong."""
        problem = check(value)
        if problem is not None:
            self.fail(key, f"{problem}, got {value!r}")

    def only(self, table: dict[str, Any], key: tuple[str, ...], known: tuple[str, ...]) -> None:
        """Fail on a key that means nothing."""
        for name in table:
            if name not in known:
                where = f"in [{'.'.join(key)}]" if key else "at the top of a study"
                hint = _did_you_mean(name, known)
                self.fail((*key, name), f"means nothing {where}{hint} (known: {', '.join(known)})")

    def fail(self, key: tuple[str, ...], problem: str) -> Any:
        """Raise, with the line."""
        raise _error(self.path, self.text, key, problem)


def _error(path: str, text: str, key: tuple[str, ...], problem: str) -> SpecError:
    line = find_line(text, key)
    place = f"{path}:{line}" if line else path
    return SpecError(f"{place}: {'.'.join(key)} {problem}")


def _at_least(low: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**31:
            return f"must be a whole number from {low} to {2**31 - 1}"
        return None

    return check


def _positive(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 0 < value < math.inf else "must be a finite number above 0"


def _inside_unit(value: Any) -> str | None:
    return (
        None if isinstance(value, float) and 0 < value < 1 else "must be a number between 0 and 1"
    )


def _categories(value: Any) -> str | None:
    sizes = value if isinstance(value, list) else [value]
    if sizes and all(_at_least(1)(s) is None for s in sizes):
        return None
    return "must be a whole number of at least 1, or a list with one such number a feature"


def _one_of(allowed: tuple[str, ...]) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value in allowed:
            return None
        hint = _did_you_mean(value, allowed) if isinstance(value, str) else ""
        return f"must be one of {_show(allowed)}{hint}"

    return check


def _is_float_axis(name: str) -> bool:
    return name in ("epsilon_per_table", "prior", "levels")


def _did_you_mean(word: str, known: tuple[str, ...]) -> str:
    near = (
        difflib.get_close_matches(word, known, n=1) or [k for k in known if k.startswith(word)][:1]
    )
    return f"; did you mean {near[0]!r}?" if near else ""


def _show(values: tuple[Any, ...]) -> str:
    return ", ".join(map(str, values))


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list | tuple) else value


def _options(table: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, _freeze(value)) for key, value in table.items()))
