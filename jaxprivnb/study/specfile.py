"""From a TOML file to a study.

    name = "figure1"
    seed = 1

    [grid]                                  # every combination is a cell
    n_records = [50, 100, 200, 500]         # N
    epsilon_per_table = [0.01, 0.1, 1.0]    # b = 2 / epsilon
    n_classes = 2                           # I; a single value need not be a list
    n_features = 5                          # K
    n_categories = 2                        # J; or one list a feature set, as in [[2, 3, 4]]
    prior = 1.0                             # concentration of every Dirichlet, in the fits
    truth = [1.0, "table.csv"]              # in the draws, or parameters; the prior if absent
    noise = "laplace"                       # or "geometric", "gaussian"
    assumed_noise = "gaussian"              # what the fits take it for, of the same deviation
    assumed_scale = [0.5, 1.0]              # or of so many times that

    [replicates]                            # nested, as in section 5 of the paper
    parameters = 20
    datasets = 10
    noise_draws = 5
    class_counts = "parameters"             # n_i is drawn with them, or with the "datasets"

    [precision]                             # every cell goes on until every method is this sure
    relative = { se_feature = 0.01 }        # Monte Carlo standard error / mean
    absolute = { coverage_feature_95 = 0.005 }
    max_replicates = 100_000                # of a cell; [replicates] is where it begins

    [published]                             # if noisy counts are not published as they are
    n_records = false                       # N is not public: neighbours add or remove a record
    releases = 2                            # each with noise of its own
    threshold = 10                          # suppressed below
    grid = 5                                # rounded to multiples of
    clamp = true                            # to 0..N

    [methods.naive]
    [methods.vb]
    solver = "kkt"                          # options are passed to the method
    [methods.vb-armijo]
    method = "vb"                           # the same method again, under another label
    solver = "armijo"

Instead of epsilon_per_table a study can state epsilon_total = K epsilon_per_table, or rho_total.
Under Gaussian noise a table is rho-zCDP with rho = epsilon_per_table^2 / 2, which is what an
epsilon-DP table satisfies; rho_total is K times that, and epsilon_total has no meaning there.

Everything is checked before work begins; an error names the key and the line.
"""

import dataclasses
import difflib
import os
import sys
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from jaxprivnb.methods import names
from jaxprivnb.storage import check_path
from jaxprivnb.study.spec import (
    BUDGETS,
    CLASS_COUNTS,
    DEFAULT_LEVELS,
    DTYPES,
    NOISES,
    Arm,
    Precision,
    Publishing,
    Replicates,
    Spec,
    SpecError,
    freeze,
    located,
    measure_names,
)
from jaxprivnb.study.truth import Truth, read_truth, truth_of

MIN_DRAWS = 20
"""Independent draws that `[precision]` begins with, at the least: an error that few draws say is
small may be so by luck."""


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """Read and check a study file."""
    name = check_path("spec", path)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{name}: cannot be read: it is not UTF-8 text") from None
    return parse_spec(text, name)


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


def check_fields(fields: dict[str, Any], path: str) -> Spec:
    """The study that `Spec.to_dict` described in the file `path`, checked like any other.

    Its methods may be unknown here: rows can be read by who cannot compute them.
    """
    grid = ("n_records", *BUDGETS, "n_classes", "n_categories", "prior", "noise", *_ASSUMPTIONS)
    document = {key: value for key, value in fields.items() if key not in (*grid, "seed")}
    document["grid"] = {key: fields[key] for key in grid if key in fields}
    if "class_counts" in fields and isinstance(fields.get("replicates"), dict):
        stage = {"class_counts": document.pop("class_counts")}
        document["replicates"] = {**fields["replicates"], **stage}
    seed = fields.get("seed")
    if type(seed) is not int:  # of any size: the command line takes every one
        raise SpecError(f"{path}: seed must be a whole number")
    return dataclasses.replace(_Reader("", path, any_method=True).spec(document), seed=seed)


class _Reader:
    """Turns a parsed document into a Spec; every check has the key it is about at hand."""

    def __init__(self, text: str, path: str, *, any_method: bool = False) -> None:
        self.text, self.path, self.any_method = text, path, any_method

    def spec(self, document: dict[str, Any]) -> Spec:
        """Check the document, outermost first."""
        known = ("name", "seed", "dtype", "levels", "width_level", "interval_every", "chunk_size")
        self.only(document, (), (*known, "grid", "replicates", "methods", "published", "precision"))
        for table in ("grid", "replicates", "methods"):
            if not isinstance(document.get(table), dict):
                self.fail((table,), f"a study needs a [{table}] table")
        name = document.get("name", Path(self.path).stem)
        if not isinstance(name, str):
            self.fail(("name",), f"must be text, got {name!r}")
        levels = self.axis(document, ("levels",), _inside_unit, DEFAULT_LEVELS)
        replicates = self.replicates(document["replicates"])
        return Spec(
            name=name,
            seed=self.value(document, ("seed",), _at_least(0), 0),
            **self.grid(document["grid"]),
            replicates=replicates,
            class_counts=self.value(
                document["replicates"],
                ("replicates", "class_counts"),
                _one_of(CLASS_COUNTS),
                CLASS_COUNTS[0],
            ),
            arms=self.arms(document["methods"]),
            levels=levels,
            width_level=self.value(document, ("width_level",), _inside_unit, 0.95),
            interval_every=self.value(document, ("interval_every",), _at_least(1), 1),
            dtype=self.value(document, ("dtype",), _one_of(DTYPES), "float64"),
            chunk_size=self.value(document, ("chunk_size",), _at_least(1), 512),
            published=self.published(document.get("published", {})),
            precision=self.precision(document.get("precision"), replicates, levels),
            source=self.text,
            path=self.path,
        )

    def grid(self, grid: dict[str, Any]) -> dict[str, Any]:
        """The axes; features and their categories become one axis of tuples."""
        names = ("n_records", *BUDGETS, "n_classes", "n_features", "n_categories")
        self.only(grid, ("grid",), (*names, "prior", "noise", *_ASSUMPTIONS))
        axis = lambda name, *rest: self.axis(grid, ("grid", name), *rest)  # noqa: E731
        truth = self.truth(grid)
        noise = axis("noise", _one_of(NOISES), ("laplace",))
        fixed = [t for t in truth if isinstance(t, Truth)]
        if fixed and not {"n_features", "n_categories"} & set(grid):  # the file says what they are
            grid = {**grid, "n_categories": [list(fixed[0].n_categories)]}
        sizes = self.feature_sets(grid)
        classes = axis("n_classes", _at_least(1), (len(fixed[0].class_),) if fixed else (2,))
        for t in fixed:
            if (classes, sizes) != ((len(t.class_),), (t.n_categories,)):
                self.fail(
                    ("grid", "truth"),
                    f"has {len(t.class_)} classes and n_categories = [{list(t.n_categories)}] in "
                    f"{t.name}: leave n_classes, n_features and n_categories to it",
                )
        return {
            "n_records": axis("n_records", _at_least(0)),
            **self.budget(grid, noise),
            "n_classes": classes,
            "n_categories": sizes,
            "prior": axis("prior", _positive, (1.0,)),
            "noise": noise,
            "truth": truth,
            "assumed_noise": axis("assumed_noise", _one_of(NOISES), ()),
            "assumed_scale": axis("assumed_scale", _positive, (1.0,)),
        }

    def budget(self, grid: dict[str, Any], noise: tuple[str, ...]) -> dict[str, Any]:
        """How much noise, as exactly one of `BUDGETS` says it."""
        stated = [name for name in BUDGETS if name in grid] or list(BUDGETS[:1])
        if len(stated) > 1:
            self.fail(("grid", stated[1]), f"and {stated[0]} say the same: leave one out")
        if stated == ["epsilon_total"] and "gaussian" in noise:
            self.fail(("grid", "epsilon_total"), "is not what Gaussian noise has: state rho_total")
        values = self.axis(grid, ("grid", stated[0]), _positive)
        return {name: values if name in stated else () for name in BUDGETS}

    def truth(self, grid: dict[str, Any]) -> tuple[float | Truth, ...]:
        """Concentrations, and parameters from files beside the spec."""
        key = ("grid", "truth")
        if "truth" not in grid:
            return ()
        given = grid["truth"] if isinstance(grid["truth"], list) else [grid["truth"]]
        found: list[float | Truth] = []
        for value in given:
            try:
                if isinstance(value, str):
                    found.append(read_truth(Path(self.path).parent / value))
                elif isinstance(value, dict):
                    found.append(truth_of(value, "truth"))
                else:
                    self.check(value, key, _concentration)
                    found.append(float(value))
            except ValueError as error:
                if isinstance(error, SpecError):
                    raise
                self.fail(key, f"cannot be taken: {error}")
            except OSError as error:
                self.fail(key, f"cannot be read: {value}: {error.strerror}")
        names = [str(t) for t in found]
        if not found or len(set(names)) < len(names):
            self.fail(key, "must list one or more different values")
        return tuple(found)

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
        if "n_features" not in grid and isinstance(grid.get("n_categories"), list):
            listed = _show(sizes)
            self.fail(
                key,
                f"without n_features must list the features of each set: [[{listed}]] is one set "
                f"of {len(sizes)} features; [{listed}] with n_features tries each size in turn",
            )
        features = self.axis(grid, ("grid", "n_features"), _at_least(1))
        return tuple((size,) * K for K in features for size in sizes)

    def replicates(self, table: dict[str, Any]) -> Replicates:
        """The nested design."""
        self.only(table, ("replicates",), (*Replicates._fields, "class_counts"))
        count = lambda name: self.value(table, ("replicates", name), _at_least(1), 1)  # noqa: E731
        return Replicates(*map(count, Replicates._fields))

    def published(self, table: Any) -> Publishing:
        """What is published of the noisy counts."""
        if not isinstance(table, dict):
            self.fail(("published",), "must be a table: write [published]")
        self.only(table, ("published",), Publishing._fields)
        checks = (_yes_or_no, _at_least(1), _number, _positive, _yes_or_no)
        found = (
            self.value(table, ("published", name), check, Publishing._field_defaults[name])
            for name, check in zip(Publishing._fields, checks, strict=True)
        )
        return Publishing(*found)

    def precision(
        self, table: Any, replicates: Replicates, levels: tuple[float, ...]
    ) -> Precision | None:
        """When a cell has enough."""
        if table is None:
            return None
        key = ("precision",)
        if not isinstance(table, dict):
            self.fail(key, "must be a table: write [precision]")
        self.only(table, key, Precision._fields)
        known = measure_names(levels)
        for kind in ("relative", "absolute"):
            targets = table.get(kind, {})
            if not isinstance(targets, dict):
                self.fail((*key, kind), "must be a table, as in { se_feature = 0.01 }")
            for name, target in targets.items():
                if name not in known:
                    hint = _did_you_mean(name, known)
                    self.fail((*key, kind, name), f"is not a measure ({_show(known)}){hint}")
                self.check(target, (*key, kind, name), _positive)
        if not any(table.get(kind) for kind in ("relative", "absolute")):
            self.fail(key, "names no measure: write relative = { se_feature = 0.01 }, say")
        most = (*key, "max_replicates")
        if "max_replicates" not in table:
            self.fail(key, "must say max_replicates, where a cell ends that is not so sure by then")
        self.check(table["max_replicates"], most, _at_least(1))
        if table["max_replicates"] < replicates.total:
            self.fail(most, f"is below the {replicates.total} replicates that a cell begins with")
        if replicates[replicates.stage] < MIN_DRAWS:
            name = Replicates._fields[replicates.stage]
            self.fail(
                ("replicates", name),
                f"must be at least {MIN_DRAWS} under [precision], which needs independent draws "
                f"to say what the error is, got {replicates[replicates.stage]}",
            )
        return Precision.of(table)

    def arms(self, table: dict[str, Any]) -> tuple[Arm, ...]:
        """One table an arm; its options are checked again when the fits are at hand."""
        known = names()
        if not table:
            self.fail(("methods",), f"is empty: name at least one of {_show(known)}")
        found = []
        for label, options in table.items():
            key = ("methods", label)
            if not isinstance(options, dict):
                self.fail(key, f"must be a table: write [methods.{label}]")
            method = options.get("method", label)
            if "method" in options:
                allowed = _text if self.any_method else _one_of(known)
                self.check(method, (*key, "method"), allowed)
            elif method not in known:
                self.fail(
                    key,
                    f"is not a method ({_show(known)}){_did_you_mean(label, known)}; "
                    f'a label of your own needs method = "..." in its table',
                )
            found.append(Arm.of(label, options))
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
                raise located(self.path, self.text, key, "is missing")
            return default
        given = table[key[-1]]
        values = given if isinstance(given, list) else [given]
        if not values:
            self.fail(key, "is empty: a grid needs at least one value on every axis")
        for value in values:
            self.check(value, key, check)
        frozen = tuple(float(v) if _is_float_axis(key[-1]) else freeze(v) for v in values)
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
        raise located(self.path, self.text, key, problem)


_MAX = sys.float_info.max
"""Compared with, not converted to: whole numbers of TOML and JSON may be larger."""


def _at_least(low: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**31:
            return f"must be a whole number from {low} to {2**31 - 1}"
        return None

    return check


_ASSUMPTIONS = ("truth", "assumed_noise", "assumed_scale")
"""Axes that set what is so apart from what the fits assume."""


def _concentration(value: Any) -> str | None:
    wrong = _positive(value)
    return wrong and "must be a finite number above 0, or the name of a file"


def _positive(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 0 < value <= _MAX else "must be a finite number above 0"


def _number(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and abs(value) <= _MAX else "must be a finite number"


def _yes_or_no(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _inside_unit(value: Any) -> str | None:
    return (
        None if isinstance(value, float) and 0 < value < 1 else "must be a number between 0 and 1"
    )


def _categories(value: Any) -> str | None:
    sizes = value if isinstance(value, list) else [value]
    if sizes and all(_at_least(1)(s) is None for s in sizes):
        return None
    return "must be a whole number of at least 1, or a list with one such number a feature"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "must be text"


def _one_of(allowed: tuple[str, ...]) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value in allowed:
            return None
        hint = _did_you_mean(value, allowed) if isinstance(value, str) else ""
        return f"must be one of {_show(allowed)}{hint}"

    return check


def _is_float_axis(name: str) -> bool:
    return name in (*BUDGETS, "prior", "levels", "assumed_scale")


def _did_you_mean(word: str, known: tuple[str, ...]) -> str:
    near = [k for k in known if k.startswith(word)][:1] or difflib.get_close_matches(
        word, known, n=1
    )
    return f"; did you mean {near[0]!r}?" if near else ""


def _show(values: tuple[Any, ...]) -> str:
    return ", ".join(map(str, values))
