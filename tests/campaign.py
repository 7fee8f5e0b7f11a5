"""Random problems for the exact posterior, wild and sane, and the judge of what is answered.

A case is (seed, index): the seed gives a batch its shape, noise and dtype, the index one dataset
of it. Results are compared with `reference`, which reads the numbers as rounded to the dtype.
Only public members of posteriors are looked at.
"""

import dataclasses
import warnings
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from reference import Reference

import jaxprivnb as pnb

SHAPES = ((2, 2, 2), (2, 3, 3), (1, 1, 4), (3, 2, 3), (2, 6, 2), (3, 1, 5), (2, 4, 6), (4, 6, 6))
"""I, K and J of the batches: few, since every one is compiled."""
NOISES = ("Laplace", "Geometric", "Gaussian")
LEVEL = 0.95
CELLS = 4
"""Feature probabilities of a dataset whose interval is checked, chosen at random."""


class Bounds(NamedTuple):
    """How far off an answer with status 0 may be."""

    mean: float
    """Absolute."""
    sd: float
    """Relative; so for the ends of intervals, in x or in the tail's probability."""
    end: float
    certificate: float
    """Rounding that an error may have beyond `lost_mass`."""


BOUNDS = {"float64": Bounds(1e-7, 1e-6, 1e-6, 1e-12), "float32": Bounds(1e-3, 1e-2, 1e-2, 1e-5)}


class Spec(NamedTuple):
    """What the datasets of a batch share."""

    shape: tuple[int, int, int]
    most_records: int
    noise: str
    dtype: str
    by_table: bool
    """Whether every table has a scale of its own."""


def spec_of(seed: int) -> Spec:
    """The batch of a seed; one seed in 25 has N to 500, and small tables."""
    rng = np.random.default_rng(seed)
    large = seed % 25 == 24
    return Spec(
        SHAPES[rng.integers(4 if large else len(SHAPES))],
        500 if large else 60,
        NOISES[rng.integers(3)],
        ("float64", "float32")[rng.integers(2)],
        bool(rng.integers(3) == 0),
    )


class Case(NamedTuple):
    """One dataset's arrays, in the batch's dtype."""

    counts: np.ndarray
    n_records: np.ndarray
    scale: np.ndarray
    prior_class: np.ndarray
    prior_feature: np.ndarray
    mask: np.ndarray


def case_of(seed: int, index: int, spec: Spec | None = None) -> Case:
    """The dataset `index` of a seed; a `spec` of one's own if given."""
    spec = spec_of(seed) if spec is None else spec
    rng = np.random.default_rng((seed, index))
    wild = rng.random() < 0.6
    I, K, J = spec.shape
    N = int(rng.choice([rng.integers(0, spec.most_records + 1), rng.integers(0, 4)], p=[0.9, 0.1]))
    J_k = rng.integers(1 if wild else min(2, J), J + 1, K) if rng.random() < 0.4 else np.full(K, J)
    mask = np.arange(J) < J_k[:, None]
    scale = 10 ** (rng.uniform(-3, 6) if wild else rng.uniform(-1, 2))
    scale = scale * 10 ** rng.uniform(-1, 1, K) if spec.by_table else np.full(K, scale)
    scale = np.clip(scale, 1e-3, 1e6)
    p_class = rng.dirichlet(np.ones(I))
    n_class = rng.multinomial(N, p_class)
    n = np.zeros(spec.shape)
    for i in range(I):
        for k in range(K):
            row = rng.dirichlet(np.ones(J_k[k]))
            n[i, k, : J_k[k]] = rng.multinomial(n_class[i], row)
    counts = n + _sample(rng, spec.noise, scale[:, None], spec.shape)
    if wild:
        counts = _spoil(rng, counts, n, scale[:, None], N)
    if spec.noise == "Geometric":
        counts = np.rint(counts)
    cast = lambda x: np.asarray(x, spec.dtype)  # noqa: E731
    return Case(
        cast(np.where(mask, counts, 0)),
        cast(N),
        cast(scale if spec.by_table else scale[0]),
        cast(_concentrations(rng, wild, (I,))),
        cast(np.where(mask, _concentrations(rng, wild, spec.shape), 1)),
        mask,
    )


def _sample(rng, noise, scale, shape):
    if noise == "Gaussian":
        return rng.normal(0, 1, shape) * scale
    if noise == "Laplace":
        return rng.laplace(0, 1, shape) * scale
    return np.floor(rng.exponential(1, shape) * scale) - np.floor(rng.exponential(1, shape) * scale)


def _spoil(rng, counts, n, scale, N):
    """Tables as no noise makes them."""
    kind = rng.integers(7)
    far = 10 ** rng.uniform(0, 8)
    if kind == 0:  # some cells far outside, each by its own distance
        hit = rng.random(counts.shape) < rng.choice([0.1, 0.5, 1.0])
        each = 10 ** rng.uniform(0, 8, counts.shape) * rng.choice([-1, 1], counts.shape)
        return np.where(hit, counts + each * scale, counts)
    if kind == 1:  # some cells equally far outside, so that they tie
        hit = rng.random(counts.shape) < rng.choice([0.3, 0.7, 1.0])
        side = rng.choice([-1, 1])
        return np.where(hit, N * (side > 0) + side * far * scale, counts)
    if kind == 2:  # classes that differ from table to table
        shift = 10 ** rng.uniform(0, 3) * rng.choice([-1, 1], counts.shape[:2])[..., None]
        return counts + shift * scale
    if kind == 3:  # totals of another N
        return counts + rng.normal(0, 1) * far / 1e4 * scale
    if kind == 4:  # half-way between counts
        return np.full(counts.shape, rng.integers(0, N + 1) + 0.5)
    if kind == 5:  # no noise at all
        return n
    return counts


def _concentrations(rng, wild, shape):
    if not wild:
        kind = rng.integers(3)
        return np.full(shape, (1.0, 0.5)[kind]) if kind < 2 else rng.uniform(0.3, 3, shape)
    kind = rng.integers(3)
    if kind == 0:
        return np.ones(shape)
    return 10 ** (rng.uniform(-4, 4, shape) if kind == 1 else np.full(shape, rng.uniform(-4, 4)))


def release(spec: Spec, cases: Case):
    """(NoisyTables, Prior) of one case, or of many stacked."""
    noise = getattr(pnb, spec.noise)
    kind = noise(jnp.ones((), cases.counts.dtype)).with_value(jnp.asarray(cases.scale))
    tables = pnb.NoisyTables(jnp.asarray(cases.counts), cases.n_records, kind, cases.mask)
    return tables, pnb.Prior(jnp.asarray(cases.prior_class), jnp.asarray(cases.prior_feature))


class Answer(NamedTuple):
    """What a fit said, as NumPy arrays; the ends are (lower, upper)."""

    status: np.ndarray
    lost_mass: np.ndarray
    class_mean: np.ndarray
    class_sd: np.ndarray
    class_ends: np.ndarray
    feature_mean: np.ndarray
    feature_sd: np.ndarray
    feature_ends: np.ndarray
    class_count_pmf: np.ndarray
    class_count_offset: np.ndarray

    @classmethod
    def of(cls, fit) -> "Answer":
        """All that is judged of a posterior, with its leading axes."""
        axis = len(fit.batch_shape)
        ends = lambda pair: np.stack([np.asarray(x) for x in pair], axis)  # noqa: E731
        return cls(
            *map(np.asarray, (fit.status, fit.lost_mass, fit.class_mean, fit.class_sd)),
            ends(fit.class_interval(LEVEL)),
            *map(np.asarray, (fit.feature_mean, fit.feature_sd)),
            ends(fit.feature_interval(LEVEL)),
            *map(np.asarray, (fit.class_count_pmf, fit.class_count_offset)),
        )


class Failure(NamedTuple):
    """An answer with status 0 that is off, or two that do not agree."""

    category: str
    """mean, sd, end, certificate, status or exception."""
    seed: int
    index: int
    by: str
    """fit_many or fit_exact."""
    error: float
    """How far off, in the category's measure."""
    detail: str


def judge(case: Case, spec: Spec, answer: Answer, chosen: np.random.Generator) -> dict:
    """Category -> (error, what is worst), for an answer with status 0.

    An error of an end is 0 where it holds and 1 where it does not.
    """
    bounds = BOUNDS[spec.dtype]
    right = Reference(
        case.counts,
        case.n_records,
        spec.noise.lower(),
        case.scale,
        case.prior_class,
        case.prior_feature,
        case.mask,
    )
    real = case.mask[None] & np.ones((spec.shape[0], 1, 1), bool)
    found = {
        "mean": _worst(
            np.abs(answer.class_mean - right.class_mean),
            np.abs(answer.feature_mean - right.feature_mean),
        ),
        "sd": _worst(
            _relative(answer.class_sd, right.class_sd),
            np.where(real, _relative(answer.feature_sd, right.feature_sd), 0),
        ),
        "end": (0.0, ""),
    }
    tail, tiny = (1 - LEVEL) / 2, float(np.finfo(spec.dtype).tiny)
    cells = np.argwhere(real)
    cells = chosen.permutation(cells)[:CELLS]
    laws = [("class", (i,), right.class_mixture(i)) for i in range(spec.shape[0])]
    laws += [("feature", tuple(c), right.feature_mixture(*c)) for c in cells]
    for which, at, law in laws:
        ends = answer.class_ends if which == "class" else answer.feature_ends
        for side, level in enumerate((tail, 1 - tail)):
            x = float(ends[(side, *at)])
            if not law.holds(x, level, bounds.end, tiny):
                where = tuple(map(int, at))
                wrong = f"{which} {where} at {level:g}: {x!r}, not {law.quantile(level)!r}"
                found["end"] = (1.0, wrong)
    beyond = max(found["mean"][0], _total_variation(answer, right)) - float(answer.lost_mass)
    found["certificate"] = (beyond, f"lost_mass {float(answer.lost_mass):.2g}")
    return found


def _total_variation(answer, right):
    """The largest distance of a class count's law from the right one."""
    worst = 0.0
    for i, (pmf, start) in enumerate(
        zip(answer.class_count_pmf, answer.class_count_offset, strict=True)
    ):
        law = np.zeros(right.N + 1)
        count = int(start) + np.arange(len(pmf))
        inside = (count >= 0) & (count <= right.N)
        np.add.at(law, count[inside], pmf[inside])
        off = np.abs(law - right.class_count_pmf[i]).sum() + np.abs(pmf[~inside]).sum()
        worst = max(worst, off / 2)
    return worst if np.isfinite(answer.class_count_pmf).all() else np.inf


def _relative(x, y):
    """|x - y| / y; a standard deviation of exactly 0 is met by rounding."""
    return np.where(y > 0, np.abs(x - y) / np.where(y > 0, y, 1), np.where(x < 1e-12, 0, np.inf))


def _worst(class_, feature):
    """The larger of both with its place; NaN is infinite."""
    both = [("class", class_), ("feature", feature)]
    found = (0.0, "")
    for which, error in both:
        error = np.where(np.isnan(error), np.inf, error)
        at = np.unravel_index(np.argmax(error), error.shape)
        if error[at] > found[0]:
            found = (float(error[at]), f"{which} {tuple(map(int, at))}")
    return found


@dataclasses.dataclass
class Verdict:
    """What a campaign has found so far."""

    cases: Counter = dataclasses.field(default_factory=Counter)
    """Datasets by dtype and function."""
    statuses: Counter = dataclasses.field(default_factory=Counter)
    """By dtype, function and name."""
    worst: dict = dataclasses.field(default_factory=dict)
    """Largest error by dtype and category, with its case."""
    failed: Counter = dataclasses.field(default_factory=Counter)
    """By dtype and category."""
    failures: list = dataclasses.field(default_factory=list)

    def fail(self, dtype: str, failure: Failure) -> None:
        """Note a failure."""
        self.failed[f"{dtype} {failure.category}"] += 1
        self.failures.append(failure)

    def add(self, seed, index, by, case, spec, answer) -> None:
        """Judge one answer."""
        self.cases[f"{spec.dtype} {by}"] += 1
        name = pnb.Status(int(answer.status)).name
        self.statuses[f"{spec.dtype} {by} {name}"] += 1
        if int(answer.status) != 0:
            return
        bounds = BOUNDS[spec.dtype]
        found = judge(case, spec, answer, np.random.default_rng((seed, index, 1)))
        for category, (error, detail) in found.items():
            key = f"{spec.dtype} {category}"
            if category != "end" and error > self.worst.get(key, (0.0,))[0]:
                self.worst[key] = (error, seed, index, by)
            limit = 0.5 if category == "end" else getattr(bounds, category)
            if error > limit:
                self.fail(spec.dtype, Failure(category, seed, index, by, error, detail))


def run_seed(verdict: Verdict, seed: int, size: int, singles: int, spec: Spec | None = None):
    """Fit and judge `size` datasets of a seed together, and the first `singles` one by one too."""
    spec = spec_of(seed) if spec is None else spec
    cases = [case_of(seed, index, spec) for index in range(size)]
    tables, prior = release(spec, Case(*map(np.stack, zip(*cases, strict=True))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # totals that no noise explains
        many = _tried(verdict, spec, seed, -1, lambda: pnb.fit_many(tables, "exact", prior=prior))
        for index, case in enumerate(cases):
            one = many and Answer(*(x[index] for x in many))
            if one:
                verdict.add(seed, index, "fit_many", case, spec, one)
            if index >= singles:
                continue
            alone = _tried(
                verdict, spec, seed, index, lambda case=case: pnb.fit_exact(*release(spec, case))
            )
            if alone:
                verdict.add(seed, index, "fit_exact", case, spec, alone)
            if one and alone and int(one.status) != int(alone.status):
                detail = f"{int(one.status)} in fit_many, {int(alone.status)} in fit_exact"
                verdict.fail(spec.dtype, Failure("status", seed, index, "both", 1.0, detail))


def _tried(verdict, spec, seed, index, fit):
    """The answer of a fit; None if it raised, which is a failure."""
    try:
        return Answer.of(fit())
    except (ValueError, TypeError, ArithmeticError, jax.errors.JaxRuntimeError) as error:
        by = "fit_many" if index < 0 else "fit_exact"
        detail = f"{type(error).__name__}: {str(error)[:200]}"
        verdict.fail(spec.dtype, Failure("exception", seed, index, by, 1.0, detail))
        return None
