"""One chunk's rows: simulate, fit, and compare with the truth.

The truth and the true counts live only here, in memory; rows hold errors, coverage and widths.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from jaxprivnb.many.lanes import BLOCK
from jaxprivnb.noise import Gaussian, Geometric, Laplace, Noise
from jaxprivnb.posterior import DirichletPosterior, Posterior
from jaxprivnb.simulation import Replicate, Simulation, simulate_replicates
from jaxprivnb.study.chunks import Chunk, replicate_id
from jaxprivnb.study.methods import first_use, fit_chunk
from jaxprivnb.study.spec import Cell, Spec
from jaxprivnb.tables import Prior

Columns = dict[str, np.ndarray]
"""Column name to values, one a row."""


def compute_chunk(spec: Spec, chunk: Chunk) -> Columns:
    """Every row of a chunk: method by method, replicates in order.

    Works in the spec's dtype whatever the caller's JAX configuration, and leaves that alone.
    """
    with jax.enable_x64(spec.dtype == "float64"):
        return _compute(spec, chunk.cell, np.arange(chunk.start, chunk.stop))


def _compute(spec: Spec, number: int, replicates: np.ndarray) -> Columns:
    """Rows of the named replicates of a cell."""
    cell = spec.cells[number]
    ids = np.array([replicate_id(spec, int(r)) for r in replicates], np.int32).T
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
    parts = []
    # Cells begin with different methods, so that threads compile different programs at first.
    for label in np.roll(np.arange(len(spec.methods)), -number):
        method = spec.methods[label]
        names: Columns = {
            "cell": np.full(replicates.size, number, np.int32),
            "method": np.full(replicates.size, label, np.int16),
            "replicate": replicates.astype(np.int32),
            "parameter": ids[0],
            "dataset": ids[1],
            "noise_draw": ids[2],
        }
        posterior = fit_chunk(method, simulation, prior, cell.n_records)
        parts.append((label, names | score(spec, posterior, simulation, replicates)))
    parts.sort(key=lambda part: part[0])
    return {name: np.concatenate([rows[name] for _, rows in parts]) for name in parts[0][1]}


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
    """What a row says of a fit.

    Squared error is the mean over real cells of (posterior mean - truth)^2. Coverage at level L is
    the share of real cells whose equal-tailed interval has the truth in it, read off the posterior
    CDF F at the truth: |F - 1/2| <= L/2. Replicates that `interval_every` skips get nan.
    """
    size = replicates.size
    real = np.broadcast_to(np.asarray(posterior.mask)[:, None], posterior.feature_mean.shape)
    real = real.reshape(size, -1)
    flat = lambda x: np.asarray(x, np.float64).reshape(np.shape(x)[0], -1)  # noqa: E731
    every = np.ones((size, posterior.class_mean.shape[-1]), bool)

    out: Columns = {
        "se_feature": _row_mean(
            (flat(posterior.feature_mean) - flat(truth.feature_probs)) ** 2, real
        ),
        "se_class": _row_mean((flat(posterior.class_mean) - flat(truth.class_probs)) ** 2, every),
    }
    wanted = np.flatnonzero(replicates % spec.interval_every == 0)
    found = [flat(x) for x in intervals(posterior, truth, spec.width_level, wanted)]
    F_feature, F_class, width_feature, width_class = found

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

    bound = getattr(posterior, "log_evidence", getattr(posterior, "elbo", None))
    out["log_evidence"] = _optional(bound, size)
    out["iterations"] = _optional(getattr(posterior, "iterations", None), size)
    out["max_decrease"] = _optional(getattr(posterior, "max_decrease", None), size)
    out["status"] = np.asarray(posterior.status).astype(np.int8)
    return out


def coverage_name(what: str, level: float) -> str:
    """The column of coverage at a level: `coverage_feature_95`."""
    return f"coverage_{what}_{100 * level:g}"


def intervals(
    posterior: Posterior, truth: Simulation, level: float, wanted: np.ndarray
) -> tuple[Any, Any, Any, Any]:
    """Of the wanted replicates: (CDF of P(X|Y) at the truth, CDF of P(Y), interval widths of both).

    Posteriors other than Dirichlets are asked in blocks of one size, the last one filled up, so
    that one compiled program serves and no last bit depends on who else is asked.
    """
    if isinstance(posterior, DirichletPosterior):
        alpha = [np.asarray(a)[wanted] for a in (posterior.feature_alpha, posterior.class_alpha)]
        p = [np.asarray(x)[wanted] for x in (truth.feature_probs, truth.class_probs)]
        return (
            _beta_cdf(alpha[0], p[0]),
            _beta_cdf(alpha[1], p[1]),
            _beta_width(alpha[0], level),
            _beta_width(alpha[1], level),
        )
    pieces = []
    for start in range(0, wanted.size, BLOCK):
        rows = wanted[start : start + BLOCK]
        fill = rows[np.minimum(np.arange(BLOCK), rows.size - 1)]
        some, true = jax.tree.map(lambda x, f=fill: x[f], (posterior, truth))
        with first_use("intervals", jax.tree.structure(some), some.feature_mean.shape):
            feature_low, feature_high = some.feature_interval(level)
            class_low, class_high = some.class_interval(level)
            block = (
                some.feature_cdf(true.feature_probs),
                some.class_cdf(true.class_probs),
                feature_high - feature_low,
                class_high - class_low,
            )
        pieces.append([np.asarray(x)[: rows.size] for x in block])
    if not pieces:
        return tuple(
            np.zeros((0, *x.shape[1:])) for x in (truth.feature_probs, truth.class_probs) * 2
        )  # type: ignore[return-value]
    return tuple(np.concatenate(x) for x in zip(*pieces, strict=True))  # type: ignore[return-value]


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
    return np.full(size, np.nan) if x is None else np.asarray(x, np.float64)
