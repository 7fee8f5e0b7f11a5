"""Calibration and optimality of the exact posterior, over a grid of N and epsilon.

Parameters are drawn from the prior, so the exact posterior must cover at the nominal rate, its
ranks must be uniform, and no estimator can have a smaller mean squared error than its mean. Every
cell has its own replicates; an error is one standard error over replicates, and z is in those.

    python bench/calibration_exact.py [--replicates 2000] [--chunk 1000] [--seed 0]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

GRID = [(50, 0.01), (50, 0.1), (50, 1.0), (200, 0.01), (200, 0.1), (200, 1.0)]
LEVELS = (0.5, 0.95)
CATEGORIES = (2,) * 5
RANK_DRAWS = 19


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
    exact, vb, naive = (pnb.fit_many(sim.tables, method) for method in ("exact", "vb", "naive"))
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
        # Holm's first step: the smallest p-value, times the number of parameters looked at.
        adjusted = min(1.0, len(p_values) * float(min(p_values)))
        out[f"ranks {what}"] = {"adjusted p": adjusted, "parameters": len(p_values)}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report, begin = [], time.perf_counter()
    for number, (n_records, epsilon) in enumerate(GRID):
        cell_key = jax.random.fold_in(jax.random.key(arguments.seed), number)
        chunks = [
            chunk_rows(jax.random.fold_in(cell_key, c), n_records, epsilon, arguments.chunk)
            for c in range(-(-arguments.replicates // arguments.chunk))
        ]
        rows = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
        cell = {"n_records": n_records, "epsilon": epsilon, **summarise(rows)}
        report.append(cell)
        print(f"N={n_records} eps={epsilon}  ({time.perf_counter() - begin:.0f} s)")
        for name, value in cell.items():
            if isinstance(value, dict):
                print(
                    f"    {name:22s}",
                    "  ".join(f"{k} {v:.4g}" for k, v in value.items()),
                    flush=True,
                )
    z = [abs(v["z"]) for cell in report for k, v in cell.items() if k.startswith("cover")]
    best = [v["z"] for cell in report for k, v in cell.items() if k.startswith("mse") and "z" in v]
    p = [v["adjusted p"] for cell in report for k, v in cell.items() if k.startswith("ranks")]
    print(
        f"{len(z)} coverages: largest |z| {max(z):.2f}; excess errors of VB and naive: smallest z "
        f"{min(best):.2f}; {len(p)} rank tests: smallest adjusted p {min(p):.3f}"
    )
    write("calibration_exact", {"seed": arguments.seed, "cells": report})


if __name__ == "__main__":
    main()
