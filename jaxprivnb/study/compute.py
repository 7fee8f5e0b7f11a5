"""One chunk's rows: simulate, fit, and compare with the truth.

The truth and the true counts live only here, in memory; rows hold errors, coverage and widths.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb.marginals import Marginal, simplex_interval
from jaxprivnb.methods import METHODS, NUMBERS, Method, is_shipped
from jaxprivnb.noise import Gaussian, Geometric, Laplace, Neighbours, Noise
from jaxprivnb.posterior import Posterior
from jaxprivnb.published import combine, processed
from jaxprivnb.simulation import Replicate, Simulation, simulate_replicates
from jaxprivnb.status import Status
from jaxprivnb.study.chunks import Chunk, go_on, replicate_id
from jaxprivnb.study.fits import first_use, fit_chunk, intervals_at_once
from jaxprivnb.study.outside import Asked, Ends, Told, ask_plain, failure, nothing_told
from jaxprivnb.study.spec import Arm, Cell, Publishing, Spec, coverage_name
from jaxprivnb.study.truth import Truth
from jaxprivnb.tables import NoisyTables, Prior

Columns = dict[str, np.ndarray]
"""Column name to values, one a row."""
Covered = dict[float, tuple[np.ndarray, ...]]
"""For each level whether cells of P(X|Y) and of P(Y) are covered, 1 or 0, nan where nobody says."""


def compute_chunk(spec: Spec, chunk: Chunk, between: Callable[[], None] = go_on) -> Columns:
    """Every row of a chunk: method by method, replicates in order.

    Works in the spec's dtype whatever the caller's JAX configuration, and leaves that alone.
    `between` is called between pieces of the work, and may raise.
    """
    return compute_replicates(spec, chunk.cell, np.arange(chunk.start, chunk.stop), between)


def compute_replicates(
    spec: Spec, cell: int, replicates: np.ndarray, between: Callable[[], None] = go_on
) -> Columns:
    """The same for any replicates of a cell, which is an index into `spec.cells`."""
    with jax.enable_x64(spec.dtype == "float64"):
        return _compute(spec, cell, replicates, between)


def _compute(
    spec: Spec, number: int, replicates: np.ndarray, between: Callable[[], None]
) -> Columns:
    """Rows of the named replicates of a cell."""
    cell = spec.cells[number]
    ids = np.array([replicate_id(spec, int(r)) for r in replicates], np.int32).T
    dtype = jnp.dtype(spec.dtype)
    I, K, J = cell.n_classes, cell.n_features, max(cell.n_categories)
    flat = lambda a: Prior(jnp.full((I,), a, dtype), jnp.full((I, K, J), a, dtype))  # noqa: E731
    prior, drawn_from = flat(cell.prior), cell.prior if cell.truth is None else cell.truth
    fixed = fixed_parameters(drawn_from) if isinstance(drawn_from, Truth) else None
    releases = []
    for r in range(spec.published.releases):
        own = (ids[0], ids[1], ids[2] + r * spec.most.noise_draws)
        with first_use("simulate", I, cell.n_categories, cell.noise, spec.dtype):
            simulation = simulate_replicates(
                cell_key(spec, cell),
                Replicate(*map(jnp.asarray, own)),
                n_records=cell.n_records,
                n_classes=I,
                n_categories=cell.n_categories,
                noise=cell_noise(cell, public_n=spec.published.n_records),
                prior=flat(drawn_from) if fixed is None else None,
                parameters=fixed,
                class_counts=spec.class_counts,
                dtype=dtype,
            )
        tables = simulation.tables
        assumed = assumed_noise(cell, tables.noise)
        if assumed is not tables.noise:
            tables = dataclasses.replace(tables, noise=assumed)
        releases.append(as_published(tables, spec.published, cell.n_records))
    simulation = simulation._replace(tables=combine(*releases))
    seeds = replicate_seeds(spec, cell, ids)
    parts = []
    # Cells begin with different methods, so that threads compile different programs at first.
    for label in np.roll(np.arange(len(spec.arms)), -number):
        arm = spec.arms[label]
        names: Columns = {
            "cell": np.full(replicates.size, number, np.int32),
            "method": np.full(replicates.size, label, np.int16),
            "replicate": replicates.astype(np.int32),
            "parameter": ids[0],
            "dataset": ids[1],
            "noise_draw": ids[2],
        }
        found = rows_of(spec, arm, cell, simulation, prior, replicates, seeds, between)
        parts.append((label, names | found))
    parts.sort(key=lambda part: part[0])
    if all(is_shipped(METHODS[arm.method]) for arm in spec.arms):  # these have their status
        for _, rows in parts:
            del rows["message"]
    return {name: np.concatenate([rows[name] for _, rows in parts]) for name in parts[0][1]}


def rows_of(
    spec: Spec,
    arm: Arm,
    cell: Cell,
    simulation: Simulation,
    prior: Prior,
    replicates: np.ndarray,
    seeds: np.ndarray,
    between: Callable[[], None],
) -> Columns:
    """What the rows of one method say. An error of an estimator from outside is its status."""
    method, size = METHODS[arm.method], replicates.size
    wanted = np.flatnonzero(replicates % spec.interval_every == 0)
    asked = Asked(spec.levels, spec.width_level, wanted)
    stops: list[BaseException] = []

    def heard() -> None:
        try:
            between()
        except BaseException as stop:
            stops.append(stop)
            raise

    try:
        message = np.full(size, "", object)
        if method.called == "traced":
            posterior = fit_chunk(arm, simulation, prior, cell.n_records, heard)
        else:
            answer = ask_plain(arm, simulation, prior, seeds, asked, heard)
            if isinstance(answer, Told):
                return score(
                    spec, answer, covered_by_ends(answer, simulation, wanted), simulation, wanted
                )
            posterior, message = answer
        at_once = intervals_at_once(arm, simulation.counts.shape, cell.n_records)
        F, ends = intervals(posterior, simulation, spec.width_level, wanted, at_once, heard)
        held = (message != "")[wanted]  # places of failed replicates, held by a neighbour
        F, ends = jax.tree.map(lambda x: _blanked(x, held), (F, ends))
        told = told_by(posterior, method, message, spec.width_level, ends)
    except Exception as error:
        if stops or is_shipped(method):
            raise
        told = nothing_told(size, simulation.feature_probs.shape[1:], failure(error), asked)
        return score(spec, told, covered_by_ends(told, simulation, wanted), simulation, wanted)
    inside = {
        level: tuple(np.where(np.isnan(x), np.nan, np.abs(x - 0.5) <= level / 2) for x in F)
        for level in spec.levels
    }
    return score(spec, told, inside, simulation, wanted)


def replicate_seeds(spec: Spec, cell: Cell, ids: np.ndarray) -> np.ndarray:
    """A whole number for each replicate, the same whatever chunk it is in, `[R]`."""
    if all(METHODS[arm.method].called == "traced" for arm in spec.arms):
        return np.zeros(ids.shape[1], np.int64)  # nobody asks
    words = (spec.seed % 2**64, *cell.words())
    states = (np.random.SeedSequence([*words, *map(int, one)]).generate_state(1) for one in ids.T)
    return np.array([int(state[0]) for state in states])


def told_by(
    posterior: Posterior, method: Method, message: np.ndarray, level: float, ends: tuple[Ends, Ends]
) -> Told:
    """What a posterior says, with `ends` of its intervals at the level."""
    size = message.size
    numbers = {
        name: np.asarray(getattr(posterior, method.numbers[name]), np.float64)
        if name in method.numbers
        else np.full(size, np.nan)
        for name in NUMBERS
    }
    status = np.asarray(posterior.status).astype(np.int8)
    failed = message != ""
    means = [np.asarray(x, np.float64) for x in (posterior.class_mean, posterior.feature_mean)]
    if failed.any():
        means = [_blanked(x, failed) for x in means]
        status = np.where(failed, Status.FAILED, status).astype(np.int8)
        numbers = {name: np.where(failed, np.nan, x) for name, x in numbers.items()}
    return Told(means[0], means[1], status, message, numbers, {level: ends})


def covered_by_ends(told: Told, truth: Simulation, wanted: np.ndarray) -> Covered:
    """Whether the truth is between the ends, for each level: nan where there are none."""
    true = [np.asarray(x)[wanted] for x in (truth.feature_probs, truth.class_probs)]
    return {
        level: tuple(
            np.where(np.isnan(low + high), np.nan, (low <= t) & (t <= high))
            for t, (low, high) in zip(true, ends, strict=True)
        )
        for level, ends in told.intervals.items()
    }


def cell_key(spec: Spec, cell: Cell) -> jax.Array:
    """A key from the seed and the cell's own values: the rest of the grid does not matter."""
    key = jax.random.key(spec.seed)
    for word in cell.words():
        key = jax.random.fold_in(key, np.uint32(word))
    return key


def cell_noise(cell: Cell, *, public_n: bool = True) -> Noise:
    """The noise that gives each table its budget; where N is not public to neighbours that add or
    remove a record.
    """
    epsilon = cell.epsilon_per_table
    neighbours: Neighbours = "replace" if public_n else "add-remove"
    if cell.noise == "gaussian":
        return Gaussian.from_budget(rho_per_table=epsilon**2 / 2, neighbours=neighbours)
    kind = Laplace if cell.noise == "laplace" else Geometric
    return kind.from_budget(epsilon_per_table=epsilon, neighbours=neighbours)


def assumed_noise(cell: Cell, noise: Noise) -> Noise:
    """What the fits take `noise` for: of the same standard deviation, times `assumed_scale`.

    With sd s, Laplace noise has b = s / sqrt(2), Gaussian sigma = s, and geometric noise, whose
    variance is 1 / (2 sinh^2(1 / 2b)), has b = 1 / (2 asinh(1 / (s sqrt(2)))).
    """
    kind = cell.assumed_noise or cell.noise
    if kind == cell.noise and cell.assumed_scale == 1:
        return noise
    scale = noise.value  # type: ignore[attr-defined]
    if kind == cell.noise != "geometric":
        return noise.with_value(scale * cell.assumed_scale)  # type: ignore[attr-defined]
    sd = cell.assumed_scale * {
        "laplace": lambda b: math.sqrt(2) * b,
        "gaussian": lambda sigma: sigma,
        "geometric": lambda b: 1 / (math.sqrt(2) * jnp.sinh(0.5 / b)),
    }[cell.noise](scale)
    if kind == "gaussian":
        return Gaussian(sd)
    if kind == "laplace":
        return Laplace(sd / math.sqrt(2))
    return Geometric(0.5 / jnp.asinh(1 / (math.sqrt(2) * sd)))


def fixed_parameters(truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """(P(Y) `[I]`, P(X|Y) `[I, K, J]`) of a truth from a file."""
    I, sizes = len(truth.class_), truth.n_categories
    feature = np.zeros((I, len(sizes), max(sizes)))
    for k, rows in enumerate(truth.features):
        feature[:, k, : sizes[k]] = rows
    return np.array(truth.class_), feature


def as_published(tables: NoisyTables, how: Publishing, n_records: int) -> NoisyTables:
    """What is published of a batch of one cell."""
    if how == Publishing(releases=how.releases):
        return tables
    counts = np.array(tables.counts, np.float64)
    shown = counts.copy() if how.grid is None else how.grid * np.round(counts / how.grid)
    if how.threshold is not None:
        shown[counts < how.threshold] = np.nan
    clamp = (0, n_records if how.n_records else None) if how.clamp else None
    if clamp is not None:
        shown = np.clip(shown, *clamp)
    return processed(
        shown.astype(tables.counts.dtype),
        tables.n_records if how.n_records else None,
        tables.noise,
        clamp=clamp,
        grid=how.grid,
        threshold=how.threshold,
        mask=tables.mask,
    )


def score(
    spec: Spec, told: Told, inside: Covered, truth: Simulation, wanted: np.ndarray
) -> Columns:
    """What a row says of a fit, with the wanted replicates' intervals.

    Squared error is the mean over real cells of (posterior mean - truth)^2. Coverage at level L is
    the share of real cells whose equal-tailed interval has the truth in it; of a posterior with
    CDF F, where |F - 1/2| <= L/2 at the truth. The ends of two intervals, of the first P(Y=i) and
    the first P(X_k=j | Y=i), are there to look at. Replicates that `interval_every` skips get nan.
    """
    size = truth.counts.shape[0]
    real = np.asarray(truth.tables.real)
    real = real if real.ndim == truth.counts.ndim else real[:, None]  # the same in every class
    real = np.broadcast_to(real, truth.counts.shape).reshape(size, -1)
    # The size in full: of a chunk without intervals there are no rows to infer it from.
    by_row = lambda x: np.asarray(x, np.float64).reshape(len(x), math.prod(np.shape(x)[1:]))  # noqa: E731
    every = np.ones((size, told.class_mean.shape[-1]), bool)
    cells = {"feature": real, "class": every}
    true = {"feature": by_row(truth.feature_probs), "class": by_row(truth.class_probs)}
    mean = {"feature": by_row(told.feature_mean), "class": by_row(told.class_mean)}

    out: Columns = {
        f"se_{what}": _row_mean((mean[what] - true[what]) ** 2, cells[what]) for what in cells
    }

    def column(values: np.ndarray) -> np.ndarray:
        full = np.full(size, np.nan)
        full[wanted] = values
        return full

    blank = np.full(wanted.size, np.nan)
    for level in spec.levels:
        for at, what in enumerate(cells):
            found = (
                blank
                if level not in inside
                else (_row_mean(by_row(inside[level][at]), cells[what][wanted]))
            )
            out[coverage_name(what, level)] = column(found)
    ends = told.intervals.get(spec.width_level)
    for at, what in enumerate(cells):
        low, high = (blank[:, None],) * 2 if ends is None else map(by_row, ends[at])
        width = blank if ends is None else _row_mean(high - low, cells[what][wanted])
        out[f"width_{what}"] = column(width)
        for name, end in (("low", low), ("high", high)):
            first = end[:, 0] - true[what][wanted, 0]
            out[f"{name}_{what}"] = column(first).astype(np.float32)
    out |= told.numbers
    finite = np.isfinite(out["se_feature"]) & np.isfinite(out["se_class"])
    broken = ~finite & (told.status == 0)
    out["status"] = np.where(broken, Status.NON_FINITE, told.status).astype(np.int8)
    unsaid = broken & (told.message == "")
    out["message"] = np.where(unsaid, "an estimate is not a finite number", told.message)
    return out


def intervals(
    posterior: Posterior,
    truth: Simulation,
    level: float,
    wanted: np.ndarray,
    size: int,
    between: Callable[[], None],
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[Ends, Ends]]:
    """Of the wanted replicates: the CDFs of P(X|Y) and P(Y) at the truth, and their intervals.

    They are asked `size` at a time, the last one filled up, so that one compiled program
    serves and no last bit depends on who else is asked.
    """
    pieces: list[list[np.ndarray]] = []
    for start in range(0, wanted.size, size):
        between()
        rows = wanted[start : start + size]
        fill = rows[np.minimum(np.arange(size), rows.size - 1)]
        some, true = jax.tree.map(lambda x, f=fill: x[f], (posterior, truth))
        with first_use("intervals", jax.tree.structure(some), some.feature_mean.shape):
            found = (
                *_against(some.feature_marginal(), true.feature_probs, level),
                *_against(some.class_marginal(), true.class_probs, level),
            )
        pieces.append([np.asarray(x)[: rows.size] for x in found])
    if not pieces:
        shapes = [np.shape(x)[1:] for x in (truth.feature_probs, truth.class_probs)]
        pieces = [[np.zeros((0, *shape)) for shape in shapes for _ in range(3)]]
    F, low, high, F_class, low_class, high_class = map(np.concatenate, zip(*pieces, strict=True))
    return (F, F_class), ((low, high), (low_class, high_class))


def _against(
    marginal: Marginal, truth: jax.Array, level: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(CDF at the truth, interval); a certain parameter is always covered: 1/2."""
    low, high = simplex_interval(marginal, level)
    return jnp.where(marginal.proper, marginal.cdf(truth), 0.5), low, high


def _blanked(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """nan in those rows."""
    return np.where(rows.reshape(-1, *[1] * (x.ndim - 1)), np.nan, x) if rows.any() else x


def _row_mean(x: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Mean over the real cells of each row."""
    return np.where(real, x, 0).sum(-1) / real.sum(-1)
