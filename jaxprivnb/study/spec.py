"""A Monte Carlo study as a frozen value: its grid, its replicates, its methods.

How a study is written down is in `jaxprivnb.study.specfile`. Neither module needs anything but the
standard library, so the command line can read a study without importing JAX.
"""

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxprivnb.study.toml_lines import find_line
from jaxprivnb.study.truth import Truth, truth_of

NOISES = ("laplace", "geometric", "gaussian")
DTYPES = ("float64", "float32")
DEFAULT_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
BUDGETS = ("epsilon_per_table", "epsilon_total", "rho_total")
"""The ways of stating the noise."""
CLASS_COUNTS = ("datasets", "parameters")
"""With which stage the class counts n_i can be drawn anew; the paper's is the second."""
CELL_COLUMNS = (
    "n_records",
    "epsilon_per_table",
    "n_classes",
    "n_features",
    "n_categories",
    "prior",
    "noise",
)
"""What names a cell in every table; a spec with more axes has more (`Spec.columns`)."""


class SpecError(ValueError):
    """A study that cannot be run, with the place in the file that says so."""


class Arm(NamedTuple):
    """One side of the comparison: a method with its options."""

    label: str
    """What rows and figures call it."""
    method: str
    """Which fit it is, a name in `jaxprivnb.methods`."""
    options: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of the fit, sorted by name."""

    @classmethod
    def of(cls, label: str, table: Mapping[str, Any]) -> "Arm":
        """From its table in a spec: options, and `method` if that is not the label."""
        options = {key: freeze(value) for key, value in table.items() if key != "method"}
        return cls(label, table.get("method", label), tuple(sorted(options.items())))


class Cell(NamedTuple):
    """One point of the grid."""

    n_records: int
    epsilon_per_table: float
    n_classes: int
    n_categories: tuple[int, ...]
    """J_k for each feature k."""
    prior: float
    """Concentration of every Dirichlet, in the fits."""
    noise: str
    """What is added to the counts."""
    truth: float | Truth | None = None
    """Concentration of the Dirichlets that parameters are drawn from, or the parameters themselves;
    None: as the prior."""
    assumed_noise: str | None = None
    """What the fits take the noise for; None: what it is."""
    assumed_scale: float = 1.0
    """Standard deviation that the fits take the noise to have, over what it has."""
    budget: float | None = None
    """As the spec states it, where that is not epsilon_per_table."""

    @property
    def n_features(self) -> int:
        """K."""
        return len(self.n_categories)

    @property
    def categories(self) -> str:
        """J, or J_1,J_2,... where features differ."""
        distinct = set(self.n_categories)
        return str(min(distinct)) if len(distinct) == 1 else ",".join(map(str, self.n_categories))

    def column(self, name: str) -> Any:
        """What stands in the column of that name."""
        own = {
            "n_categories": self.categories,
            "truth": f"{self.truth:g}" if isinstance(self.truth, float) else str(self.truth),
            "assumed_noise": self.assumed_noise or self.noise,
            "epsilon_total": self.budget,
            "rho_total": self.budget,
        }
        return own[name] if name in own else getattr(self, name)

    def words(self) -> tuple[int, int]:
        """64 bits that name the random stream of this cell, whatever else is in the study.

        Cells that differ only in N, in the noise or in what the fits assume share their parameter
        draws, and cells of the same N their data sets too: methods, epsilons and assumptions are
        compared on common random numbers.
        """
        truth = self.prior if self.truth is None else self.truth
        drawn = truth.digest if isinstance(truth, Truth) else truth
        shared = json.dumps((self.n_classes, self.n_categories, drawn), separators=(",", ":"))
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

    @property
    def stage(self) -> int:
        """The outermost stage that is repeated: its draws are independent of each other, those
        within one of them are not.
        """
        return next((i for i, size in enumerate(self[:2]) if size > 1), 2)

    def grown(self, total: int) -> "Replicates":
        """With more draws of the stage, for at most `total` replicates."""
        within = self.total // self[self.stage]
        return self._replace(**{self._fields[self.stage]: max(total // within, self[self.stage])})


class Precision(NamedTuple):
    """How sure a study has to be: Monte Carlo standard errors, by measure."""

    relative: tuple[tuple[str, float], ...]
    """Largest errors in units of the measure's mean."""
    absolute: tuple[tuple[str, float], ...]
    """Largest errors as they are."""
    max_replicates: int
    """Of a cell, whether it is so sure by then or not."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the empty tables."""
        fields = {"relative": dict(self.relative), "absolute": dict(self.absolute)}
        return {k: v for k, v in fields.items() if v} | {"max_replicates": self.max_replicates}

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Precision":
        """The inverse of `to_dict`."""
        relative, absolute = (table.get(name, {}).items() for name in cls._fields[:2])
        floats = lambda items: tuple(sorted((k, float(v)) for k, v in items))  # noqa: E731
        return cls(floats(relative), floats(absolute), table["max_replicates"])


class Publishing(NamedTuple):
    """What became of the noisy counts before anybody saw them."""

    n_records: bool = True
    """Whether N is public."""
    releases: int = 1
    """How often the same records are released, each time with noise of the same scale."""
    threshold: float | None = None
    """Noisy counts below it are suppressed."""
    grid: float | None = None
    """What is left is rounded to multiples of it."""
    clamp: bool = False
    """At last, it is clamped to 0..N (at 0 alone where N is not public)."""


AS_IT_IS = Publishing()
"""Noisy counts as they come from the noise, with N."""


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
    arms: tuple[Arm, ...]
    levels: tuple[float, ...] = DEFAULT_LEVELS
    """Where coverage is computed."""
    width_level: float = 0.95
    """The level of the intervals whose width is reported."""
    interval_every: int = 1
    """Coverage and width are computed for replicates whose number is a multiple of this."""
    dtype: str = "float64"
    chunk_size: int = 512
    """Replicates in one part of the results: what a kill can cost."""
    published: Publishing = AS_IT_IS
    """What is published of the noisy counts."""
    precision: Precision | None = None
    """When a cell has enough replicates; `replicates` is then where it begins."""
    epsilon_total: tuple[float, ...] = ()
    """K epsilon_per_table, in place of it."""
    rho_total: tuple[float, ...] = ()
    """K epsilon_per_table^2 / 2, in place of it."""
    truth: tuple[float | Truth, ...] = ()
    """Where parameters come from; empty: from each cell's prior."""
    assumed_noise: tuple[str, ...] = ()
    """What the fits take the noise for; empty: what it is."""
    assumed_scale: tuple[float, ...] = (1.0,)
    """Factors on the noise's standard deviation, in the fits."""
    class_counts: str = "datasets"
    """With what n_i is drawn anew: "datasets" or, as in section 5 of the paper, "parameters"."""
    source: str = dataclasses.field(default="", compare=False, repr=False)
    """The TOML text, for line numbers in errors."""
    path: str = dataclasses.field(default="spec", compare=False, repr=False)

    @property
    def budget(self) -> str:
        """How the noise is stated, one of `BUDGETS`."""
        return next(name for name in BUDGETS if getattr(self, name))

    @property
    def budgets(self) -> tuple[float, ...]:
        """The axis of that: how much noise there is."""
        return getattr(self, self.budget)

    @property
    def columns(self) -> tuple[str, ...]:
        """What names a cell of this study, in its tables."""
        more = [self.budget] if self.budget != BUDGETS[0] else []
        more += ["truth"] if self.truth else []
        more += ["assumed_noise"] if self.assumed_noise else []
        more += ["assumed_scale"] if self.assumed_scale != (1.0,) else []
        return (*CELL_COLUMNS, *more)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The grid, epsilon fastest."""
        axes = (
            self.noise, self.assumed_noise or (None,), self.assumed_scale, self.truth or (None,),
            self.prior, self.n_classes, self.n_categories, self.n_records, self.budgets,
        )  # fmt: skip
        plain = self.budget == BUDGETS[0]
        return tuple(
            Cell(
                N, self.per_table(budget, len(J)), I, J, prior, noise, truth, assumed, scale,
                None if plain else budget,
            )
            for noise, assumed, scale, truth, prior, I, J, N, budget in itertools.product(*axes)
        )  # fmt: skip

    def per_table(self, budget: float, n_features: int) -> float:
        """The epsilon of a table; a rho-zCDP table has that of rho = epsilon^2 / 2."""
        if self.budget == "rho_total":
            return math.sqrt(2 * budget / n_features)
        return budget / n_features if self.budget == "epsilon_total" else budget

    @property
    def most(self) -> Replicates:
        """The replicates that a cell can come to."""
        if self.precision is None:
            return self.replicates
        return self.replicates.grown(self.precision.max_replicates)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; two studies with equal dictionaries have equal rows."""
        fields = dataclasses.asdict(self)
        fields.pop("source"), fields.pop("path")
        fields["replicates"] = self.replicates._asdict()
        fields["published"] = self.published._asdict()
        if self.published == AS_IT_IS:
            fields.pop("published")
        fields.pop("precision")
        if self.precision is not None:
            fields["precision"] = self.precision.to_dict()
        fields["truth"] = [t.to_dict() if isinstance(t, Truth) else t for t in self.truth]
        for name, left_out in _UNSAID.items():
            if getattr(self, name) == left_out:
                fields.pop(name)
        fields.pop("arms")
        fields["methods"] = {a.label: {"method": a.method, **dict(a.options)} for a in self.arms}
        return json.loads(json.dumps(fields))

    @property
    def fingerprint(self) -> str:
        """A short digest of `to_dict`."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def error(self, key: tuple[str, ...], problem: str) -> SpecError:
        """An error about `key` that says where it stands."""
        return located(self.path, self.source, key, problem)


_UNSAID = {
    "epsilon_per_table": (),
    "epsilon_total": (),
    "rho_total": (),
    "truth": (),
    "assumed_noise": (),
    "assumed_scale": (1.0,),
    "class_counts": "datasets",
}
"""What a study does not say in `to_dict` where it is so."""


def from_dict(fields: Mapping[str, Any]) -> Spec:
    """The inverse of `Spec.to_dict`."""
    tables = {"epsilon_per_table": (), **fields}
    truth = tables.pop("truth", ())
    tables["truth"] = [truth_of(t, "truth") if isinstance(t, Mapping) else t for t in truth]
    arms = tuple(Arm.of(label, table) for label, table in tables.pop("methods").items())
    replicates = Replicates(**tables.pop("replicates"))
    published = Publishing(**tables.pop("published", {}))
    precision = Precision.of(tables.pop("precision")) if "precision" in tables else None
    frozen = {key: freeze(value) for key, value in tables.items()}
    return Spec(
        **frozen, replicates=replicates, arms=arms, published=published, precision=precision
    )


def coverage_name(what: str, level: float) -> str:
    """The column of coverage at a level: `coverage_feature_95`."""
    return f"coverage_{what}_{100 * level:g}"


def measure_names(levels: tuple[float, ...]) -> tuple[str, ...]:
    """The columns that a summary averages, and that `Precision` can be about."""
    sides = ("feature", "class")
    cover = (coverage_name(what, level) for level in levels for what in sides)
    per_side = (f"{kind}_{what}" for kind in ("se", "width") for what in sides)
    return (*per_side, *cover, "iterations", "log_evidence")


def located(path: str, text: str, key: tuple[str, ...], problem: str) -> SpecError:
    """An error about `key` of the study in `text`, with its line if it has one."""
    line = find_line(text, key)
    place = f"{path}:{line}" if line else path
    return SpecError(f"{place}: {'.'.join(key)} {problem}")


def freeze(value: Any) -> Any:
    """Lists, at any depth, as tuples."""
    return tuple(map(freeze, value)) if isinstance(value, list | tuple) else value
