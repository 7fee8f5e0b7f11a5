"""One chunk's rows: simulate, fit, and compare with the truth.

The truth and the true counts live only here, in memory; rows hold errors, coverage and widths.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb.marginals import Marginal, simplex_interval
from jaxprivnb.methods import METHODS, NUMBERS
from jaxprivnb.noise import Gaussian, Geometric, Laplace, Neighbours, Noise
from jaxprivnb.posterior import Posterior
from jaxprivnb.published import combine, processed
from jaxprivnb.simulation import Replicate, Simulation, simulate_replicates
from jaxprivnb.study.chunks import Chunk, go_on, replicate_id
from jaxprivnb.study.fits import first_use, fit_chunk, intervals_at_once
from jaxprivnb.study.spec import Arm, Cell, Publishing, Spec
from jaxprivnb.study.truth import Truth
from jaxprivnb.tables import NoisyTables, Prior

Columns = dict[str, np.ndarray]
"""Column name to values, one a row."""


def compute_chunk(spec: Spec, chunk: Chunk, between: Callable[[], None] = go_on) -> Columns:
    """Every row of a chunk: method by method, replicates in order.

    Works in the spec's dtype whatever the caller's JAX configuration, and leaves that alone.
    `between` is called between pieces of the work, and may raise.
    """
    with jax.enable_x64(spec.dtype == "float64"):
        return _compute(spec, chunk.cell, np.arange(chunk.start, chunk.stop), between)


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
        own = (ids[0], ids[1], ids[2] + r * spec.replicates.noise_draws)
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
        posterior = fit_chunk(arm, simulation, prior, cell.n_records, between)
        wanted = np.flatnonzero(replicates % spec.interval_every == 0)
        size = intervals_at_once(arm, simulation.counts.shape, cell.n_records)
        found = intervals(posterior, simulation, spec.width_level, wanted, size, between)
        parts.append((label, names | score(spec, arm, posterior, simulation, wanted, found)))
    parts.sort(key=lambda part: part[0])
    return {name: np.concatenate([rows[name] for _, rows in parts]) for name in parts[0][1]}


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
    spec: Spec,
    arm: Arm,
    posterior: Posterior,
    truth: Simulation,
    wanted: np.ndarray,
    found: tuple[Any, Any, Any, Any],
) -> Columns:
    """What a row says of a fit, with what `intervals` found of the wanted replicates.

    Squared error is the mean over real cells of (posterior mean - truth)^2. Coverage at level L is
    the share of real cells whose equal-tailed interval has the truth in it, read off the posterior
    CDF F at the truth: |F - 1/2| <= L/2. Replicates that `interval_every` skips get nan.
    """
    size = truth.counts.shape[0]
    real = np.broadcast_to(np.asarray(posterior.real), posterior.feature_mean.shape)
    real = real.reshape(size, -1)
    by_row = lambda x: np.asarray(x, np.float64).reshape(np.shape(x)[0], -1)  # noqa: E731
    every = np.ones((size, posterior.class_mean.shape[-1]), bool)

    out: Columns = {
        "se_feature": _row_mean(
            (by_row(posterior.feature_mean) - by_row(truth.feature_probs)) ** 2, real
        ),
        "se_class": _row_mean(
            (by_row(posterior.class_mean) - by_row(truth.class_probs)) ** 2, every
        ),
    }
    F_feature, F_class, width_feature, width_class = map(by_row, found)

    def mean_over(x: np.ndarray, cells: np.ndarray) -> np.ndarray:
        column = np.full(size, np.nan)
        column[wanted] = _row_mean(x, cells[wanted])
        return column

    for level in spec.levels:
        inside = lambda F, L=level: np.abs(F - 0.5) <= L / 2  # noqa: E731
        out[coverage_name("feature", level)] = mean_over(inside(F_feature), real)
        out[coverage_name("class", level)] = mean_over(inside(F_class), every)
    out["width_feature"] = mean_over(width_feature, real)
    out["width_class"] = mean_over(width_class, every)

    numbers = METHODS[arm.method].numbers
    for name in NUMBERS:
        known = getattr(posterior, numbers[name]) if name in numbers else np.full(size, np.nan)
        out[name] = np.asarray(known, np.float64)
    out["status"] = np.asarray(posterior.status).astype(np.int8)
    return out


def coverage_name(what: str, level: float) -> str:
    """The column of coverage at a level: `coverage_feature_95`."""
    return f"coverage_{what}_{100 * level:g}"


def intervals(
    posterior: Posterior,
    truth: Simulation,
    level: float,
    wanted: np.ndarray,
    size: int,
    between: Callable[[], None],
) -> tuple[Any, Any, Any, Any]:
    """Of the wanted replicates: (CDF of P(X|Y) at the truth, CDF of P(Y), interval widths of both).

    They are asked `size` at a time, the last one filled up, so that one compiled program
    serves and no last bit depends on who else is asked.
    """
    pieces = []
    for start in range(0, wanted.size, size):
        between()
        rows = wanted[start : start + size]
        fill = rows[np.minimum(np.arange(size), rows.size - 1)]
        some, true = jax.tree.map(lambda x, f=fill: x[f], (posterior, truth))
        with first_use("intervals", jax.tree.structure(some), some.feature_mean.shape):
            feature = _against(some.feature_marginal(), true.feature_probs, level)
            class_ = _against(some.class_marginal(), true.class_probs, level)
        found = (feature[0], class_[0], feature[1], class_[1])
        pieces.append([np.asarray(x)[: rows.size] for x in found])
    if not pieces:
        return tuple(
            np.zeros((0, *x.shape[1:])) for x in (truth.feature_probs, truth.class_probs) * 2
        )  # type: ignore[return-value]
    return tuple(np.concatenate(x) for x in zip(*pieces, strict=True))  # type: ignore[return-value]


def _against(marginal: Marginal, truth: jax.Array, level: float) -> tuple[jax.Array, jax.Array]:
    """(CDF at the truth, interval width); a certain parameter is always covered: 1/2 and 0."""
    low, high = simplex_interval(marginal, level)
    return jnp.where(marginal.proper, marginal.cdf(truth), 0.5), high - low


def _row_mean(x: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Mean over the real cells of each row."""
    return np.where(real, x, 0).sum(-1) / real.sum(-1)
