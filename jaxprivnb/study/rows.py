"""One chunk's rows: simulate, fit, and compare with the truth.

The truth and the true counts live only here, in memory; rows hold errors, coverage and widths.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from jaxprivnb.noise import Gaussian, Geometric, Laplace, Noise
from jaxprivnb.posterior import DirichletPosterior, Posterior
from jaxprivnb.simulation import Replicate, Simulation, simulate_replicates
from jaxprivnb.study.chunks import Chunk, replicate_id
from jaxprivnb.study.methods import BATCH, first_use, fit_batch
from jaxprivnb.study.spec import Cell, Spec
from jaxprivnb.tables import Prior

Columns = dict[str, np.ndarray]
"""Column name to values, one a row."""


def compute_chunk(spec: Spec, chunk: Chunk) -> Columns:
    """Every row of a chunk: method by method, replicates in order.

    Works in the spec's dtype whatever the caller's JAX configuration, and leaves that alone.
    """
    # Replicates that are asked for intervals go first, so that they share batches.
    asked = np.arange(chunk.start, chunk.stop)
    asked = asked[np.argsort(asked % spec.interval_every != 0, kind="stable")]
    with jax.enable_x64(spec.dtype == "float64"):
        batches = [
            _compute_batch(spec, chunk.cell, asked[start : start + BATCH])
            for start in range(0, chunk.size, BATCH)
        ]
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    order = np.lexsort((rows["replicate"], rows["method"]))
    return {name: column[order] for name, column in rows.items()}


def _compute_batch(spec: Spec, number: int, replicates: np.ndarray) -> Columns:
    """Rows of at most `BATCH` replicates of a cell."""
    cell = spec.cells[number]
    # Lanes beyond the last replicate repeat it, so that every batch runs the same program.
    lanes = np.concatenate([replicates, np.repeat(replicates[-1:], BATCH - replicates.size)])
    ids = np.array([replicate_id(spec, int(r)) for r in lanes], np.int32).T
    dtype = jnp.dtype(spec.dtype)
    I, K, J = cell.n_classes, cell.n_features, max(cell.n_categories)
    prior = Prior(jnp.full((I,), cell.prior, dtype), jnp.full((I, K, J), cell.prior, dtype))
    with first_use("simulate", I, cell.n_categories, cell.noise, spec.dtype):
        simulation = simulate_replicates(
            cell_key(spec, cell),
            Replicate(*map(jnp.asarray, ids)),
            n_records=cell.n_records,
            n_classes=I,
            n_categories=cell.n_categories,
            noise=cell_noise(cell),
            prior=prior,
            dtype=dtype,
        )
    size = replicates.size
    parts = []
    # Cells begin with different methods, so that threads compile different programs at first.
    for label in np.roll(np.arange(len(spec.methods)), -number):
        method = spec.methods[label]
        names: Columns = {
            "cell": np.full(size, number, np.int32),
            "method": np.full(size, label, np.int16),
            "replicate": replicates.astype(np.int32),
            "parameter": ids[0][:size],
            "dataset": ids[1][:size],
            "noise_draw": ids[2][:size],
        }
        posterior = fit_batch(method, simulation, prior, cell.n_records)
        parts.append(names | score(spec, posterior, simulation, replicates))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def cell_key(spec: Spec, cell: Cell) -> jax.Array:
    """A key from the seed and the cell's own values: the rest of the grid does not matter."""
    key = jax.random.key(spec.seed)
    for word in cell.words():
        key = jax.random.fold_in(key, np.uint32(word))
    return key


def cell_noise(cell: Cell) -> Noise:
    """The noise that gives each table its budget."""
    epsilon = cell.epsilon_per_table
    if cell.noise == "gaussian":
        return Gaussian.from_budget(rho_per_table=epsilon**2 / 2)
    kind = Laplace if cell.noise == "laplace" else Geometric
    return kind.from_budget(epsilon_per_table=epsilon)


def score(spec: Spec, posterior: Posterior, truth: Simulation, replicates: np.ndarray) -> Columns:
    """What a row says of a fit; the first lanes of the batch are the replicates named.

    Squared error is the mean over real cells of (posterior mean - truth)^2. Coverage at level L is
    the share of real cells whose equal-tailed interval has the truth in it, read off the posterior
    CDF F at the truth: |F - 1/2| <= L/2. Replicates that `interval_every` skips get nan.
    """
    size = replicates.size
    real = np.broadcast_to(np.asarray(posterior.mask)[:, None], posterior.feature_mean.shape)
    real = real[:size].reshape(size, -1)
    flat = lambda x: np.asarray(x, np.float64)[:size].reshape(size, -1)  # noqa: E731
    over_feature = lambda x: _row_mean(x, real)  # noqa: E731
    over_class = lambda x: _row_mean(x, np.ones_like(x, bool))  # noqa: E731

    out: Columns = {
        "se_feature": over_feature((flat(posterior.feature_mean) - flat(truth.feature_probs)) ** 2),
        "se_class": over_class((flat(posterior.class_mean) - flat(truth.class_probs)) ** 2),
    }
    wanted = replicates % spec.interval_every == 0
    if wanted.any():
        found = [flat(x) for x in intervals(posterior, truth, spec.width_level)]
    else:
        found = [
            np.full(flat(x).shape, np.nan) for x in (truth.feature_probs, truth.class_probs) * 2
        ]
    F_feature, F_class, width_feature, width_class = found
    keep = lambda x: np.where(wanted, x, np.nan)  # noqa: E731
    for level in spec.levels:
        inside = lambda F, L=level: np.abs(F - 0.5) <= L / 2  # noqa: E731
        out[coverage_name("feature", level)] = keep(over_feature(inside(F_feature)))
        out[coverage_name("class", level)] = keep(over_class(inside(F_class)))
    out["width_feature"] = keep(over_feature(width_feature))
    out["width_class"] = keep(over_class(width_class))

    bound = getattr(posterior, "log_evidence", getattr(posterior, "elbo", None))
    out["log_evidence"] = _optional(bound, size)
    out["iterations"] = _optional(getattr(posterior, "iterations", None), size)
    out["max_decrease"] = _optional(getattr(posterior, "max_decrease", None), size)
    out["status"] = np.asarray(posterior.status)[:size].astype(np.int8)
    return out


def coverage_name(what: str, level: float) -> str:
    """The column of coverage at a level: `coverage_feature_95`."""
    return f"coverage_{what}_{100 * level:g}"


def intervals(posterior: Posterior, truth: Simulation, level: float) -> tuple[Any, Any, Any, Any]:
    """Of every lane: (CDF of P(X|Y) at the truth, CDF of P(Y), interval widths of both)."""
    if isinstance(posterior, DirichletPosterior):
        return (
            _beta_cdf(posterior.feature_alpha, truth.feature_probs),
            _beta_cdf(posterior.class_alpha, truth.class_probs),
            _beta_width(posterior.feature_alpha, level),
            _beta_width(posterior.class_alpha, level),
        )
    with first_use("intervals", jax.tree.structure(posterior), posterior.feature_mean.shape):
        feature_low, feature_high = posterior.feature_interval(level)
        class_low, class_high = posterior.class_interval(level)
        return (
            posterior.feature_cdf(truth.feature_probs),
            posterior.class_cdf(truth.class_probs),
            feature_high - feature_low,
            class_high - class_low,
        )


# Dirichlet marginals are scored on the host: scipy inverts the incomplete beta function hundreds of
# times faster than a vectorised root search, and element by element, whatever the batch.


def _beta_cdf(alpha: Any, p: Any) -> np.ndarray:
    """F(p) of each marginal; 1/2 where the marginal is a point mass, which is always covered."""
    a, b, proper = _beta_parameters(alpha)
    return np.where(proper, scipy.special.betainc(a, b, np.asarray(p, np.float64)), 0.5)


def _beta_width(alpha: Any, level: float) -> np.ndarray:
    """Width of each marginal's equal-tailed interval; 0 where it is a point mass."""
    a, b, proper = _beta_parameters(alpha)
    tail = (1 - level) / 2
    low, high = (scipy.special.betaincinv(a, b, q) for q in (tail, 1 - tail))
    return np.where(proper, high - low, 0.0)


def _beta_parameters(alpha: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(a, b, proper) of each marginal; a category that is alone, or masked, is not proper."""
    a = np.asarray(alpha, np.float64)
    b = a.sum(-1, keepdims=True) - a
    proper = (a > 0) & (b > 0)
    return np.where(proper, a, 1), np.where(proper, b, 1), proper


def _row_mean(x: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Mean over the real cells of each row."""
    return np.where(real, x, 0).sum(-1) / real.sum(-1)


def _optional(x: Any, size: int) -> np.ndarray:
    """A float column; nan where the method has no such number."""
    return np.full(size, np.nan) if x is None else np.asarray(x, np.float64)[:size]
