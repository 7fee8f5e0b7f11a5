"""Calibration and optimality of the exact posterior, over a grid of N and epsilon.

Parameters are drawn from the prior, so the exact posterior must cover at the nominal rate, its
ranks must be uniform, and no estimator can have a smaller mean squared error than its mean. Every
cell has its own replicates; an error is one standard error over replicates, and z is in those.

    python bench/calibration_exact.py [--replicates 2000] [--chunk 250]
"""

import argparse
import functools
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import jaxprivnb as pnb
from jaxprivnb.exact import window
from jaxprivnb.exact.fit import fit_window
from jaxprivnb.tables import resolve_prior
from jaxprivnb.variational.fit import fit_vb

GRID = [(50, 0.01), (50, 0.1), (50, 1.0), (200, 0.01), (200, 0.1), (200, 1.0)]
LEVELS = (0.5, 0.95)
CATEGORIES = (2,) * 5
RANK_DRAWS = 19
RESULTS = pathlib.Path(__file__).parent / "results" / "calibration_exact.json"


@functools.partial(jax.jit, static_argnames=("layout",))
def fit_both(tables, layout):
    one = jax.tree.map(lambda x: x[0], tables)
    prior = resolve_prior(None, one.counts, None)
    exact = jax.vmap(lambda t: fit_window(t, prior, layout, 1e-10))(tables)
    return exact, jax.vmap(pnb.fit_naive)(tables)


@jax.jit
def fit_variational(tables):
    return jax.vmap(fit_vb)(tables)


def chunk_rows(key, n_records, epsilon, size):
    """One array a quantity, the replicates first."""
    key, draw_key = jax.random.split(key)
    sim = pnb.simulate(
        key,
        n_records=n_records,
        n_categories=CATEGORIES,
        noise=pnb.Laplace(2 / epsilon),
        shape=(size,),
    )
    exact, naive = fit_both(sim.tables, window.plan(sim.tables))
    vb = fit_variational(sim.tables)
    rows = {"failed": np.asarray(exact.status != 0)}
    for level in LEVELS:
        for what, truth, interval in (
            ("p(y)", sim.class_probs, exact.class_interval(level)),
            ("p(x|y)", sim.feature_probs, exact.feature_interval(level)),
        ):
            inside = (interval[0] <= truth) & (truth <= interval[1])
            rows[f"cover {what} {level}"] = np.asarray(inside).reshape(size, -1).mean(-1)
    for name, fit in (("exact", exact), ("vb", vb), ("naive", naive)):
        for what, truth, mean in (
            ("p(y)", sim.class_probs, fit.class_mean),
            ("p(x|y)", sim.feature_probs, fit.feature_mean),
        ):
            error = jnp.square(mean - truth).reshape(size, -1).mean(-1)
            rows[f"mse {what} {name}"] = np.asarray(error)
    # Ranks of the truth among draws: one category a feature, since the two of them sum to one.
    p_class, p_feature = exact.sample(draw_key, RANK_DRAWS)
    below = p_class[..., 0] < sim.class_probs[:, None, 0]
    rows["rank p(y)"] = np.asarray(below.sum(1))[:, None]
    below = p_feature[..., 0] < sim.feature_probs[:, None, ..., 0]
    rows["rank p(x|y)"] = np.asarray(below.sum(1)).reshape(size, -1)
    return rows


def summarise(rows):
    """Coverage with z, errors with paired z, and p-values of uniform ranks."""
    out = {"failed": int(rows["failed"].sum()), "replicates": len(rows["failed"])}
    root = np.sqrt(out["replicates"])
    for what in ("p(y)", "p(x|y)"):
        for level in LEVELS:
            covered = rows[f"cover {what} {level}"]
            z = (covered.mean() - level) / (covered.std(ddof=1) / root)
            out[f"cover {what} {level}"] = {"rate": float(covered.mean()), "z": float(z)}
        best = rows[f"mse {what} exact"]
        out[f"mse {what} exact"] = {"mean": float(best.mean())}
        for name in ("vb", "naive"):
            excess = rows[f"mse {what} {name}"] - best
            z = excess.mean() / (excess.std(ddof=1) / root)
            out[f"mse {what} {name}"] = {
                "mean": float(rows[f"mse {what} {name}"].mean()),
                "z": float(z),
            }
        # Ranks within a replicate depend on each other: test each parameter on its own.
        ranks = rows[f"rank {what}"]
        p_values = [
            stats.chisquare(np.bincount(column, minlength=RANK_DRAWS + 1)).pvalue
            for column in ranks.T
        ]
        out[f"ranks {what}"] = {"smallest p": float(min(p_values)), "parameters": len(p_values)}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=250)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    report, begin = [], time.perf_counter()
    for number, (n_records, epsilon) in enumerate(GRID):
        chunks = [
            chunk_rows(
                jax.random.fold_in(jax.random.key(number), c), n_records, epsilon, args.chunk
            )
            for c in range(-(-args.replicates // args.chunk))
        ]
        rows = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
        cell = {"n_records": n_records, "epsilon": epsilon, **summarise(rows)}
        report.append(cell)
        print(f"N={n_records} eps={epsilon}  ({time.perf_counter() - begin:.0f} s)")
        for name, value in cell.items():
            if isinstance(value, dict):
                print(f"    {name:22s}", "  ".join(f"{k} {v:.4g}" for k, v in value.items()))
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
