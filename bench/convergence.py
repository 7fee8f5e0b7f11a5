"""How the paper's ascent converges: rate, sweeps, and the optimum it ends in.

Against N, epsilon, K and the solver of the simplex problem, by plain sweeps and with SQUAREM. The
rate of plain sweeps is that of their last steps: each moves rate times as far as the one before,
and adds rate^2 times as much to the bound.

    python bench/convergence.py [--replicates 32] [--seed 0]
"""

import argparse
from functools import partial

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

SIZES = (50, 200, 500, 2000)
EPSILONS = (0.001, 0.01, 0.1, 1.0)
FEATURES = (2, 5, 20)
SOLVERS = ("kkt", "armijo", "mm")
MOST = 5000
LENGTH = 1500
"""Of the paths that rates are read from."""
BACK = 4
APART = 1e-4
"""Optima whose bounds differ by more, relative to 1 + |bound|, are two."""


@partial(jax.jit, static_argnames=("solver", "accelerate"))
def fit(tables, solver, accelerate):
    """The fits of a batch."""
    options = {"solver": solver, "accelerate": accelerate, "max_iterations": MOST}
    f = jax.vmap(lambda t: pnb.fit_vb(t, **options))(tables)
    return {
        "elbo": f.elbo,
        "sweeps": f.iterations,
        "status": f.status,
        "theta": (f.theta_class, f.theta_feature),
    }


@jax.jit
def path(tables):
    """The bound after each of the first plain sweeps, `[R, LENGTH]`; nan after the end."""
    trace = lambda t: pnb.trace_vb(t, accelerate=False, n_iterations=LENGTH).elbo  # noqa: E731
    return jax.vmap(trace)(tables)


def last_rate(elbo):
    """The rate at the end of a path: the bound's growth shrinks by its square with every sweep."""
    growth = np.diff(elbo[np.isfinite(elbo)])[-1 - BACK :]
    if len(growth) <= BACK or growth[-1] <= 0 or growth[0] <= 0:
        return np.nan  # it ended before there was a trend
    return float((growth[-1] / growth[0]) ** (0.5 / BACK))


def numbers(x):
    """Median, 90% quantile and largest."""
    return [float(np.quantile(x, q)) for q in (0.5, 0.9, 1.0)]


def measure(key, N, epsilon, K, solver, replicates):
    """One cell."""
    sim = pnb.simulate(
        key, n_records=N, n_categories=(2,) * K, noise=pnb.Laplace(2 / epsilon), shape=(replicates,)
    )  # fmt: skip
    plain, fast = (fit(sim.tables, solver, accelerate) for accelerate in (False, True))
    bounds = [np.asarray(f["elbo"]) for f in (plain, fast)]
    apart = np.abs(bounds[0] - bounds[1]) > APART * (1 + np.abs(bounds[0]))
    cell = {
        "n_records": N,
        "epsilon": epsilon,
        "n_features": K,
        "solver": solver,
        "replicates": replicates,
        "plain": numbers(plain["sweeps"]),
        "squarem": numbers(fast["sweeps"]),
        "unfinished": [int((np.asarray(f["status"]) != 0).sum()) for f in (plain, fast)],
        "other_optimum": float(apart.mean()),
        "squarem_higher": float((bounds[1] > bounds[0])[apart].mean()) if apart.any() else None,
    }
    if solver == "kkt" and K == 5:
        rates = np.array([last_rate(one) for one in np.asarray(path(sim.tables))])
        cell["rate"] = numbers(rates[np.isfinite(rates)]) if np.isfinite(rates).any() else None
        cell["emptied"] = float((np.asarray(fast["theta"][0]) * N < 1).any(-1).mean())
    print(cell, flush=True)
    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    key = jax.random.key(arguments.seed)
    grid = [(N, epsilon, 5, "kkt") for N in SIZES for epsilon in EPSILONS]
    grid += [(200, epsilon, K, "kkt") for K in FEATURES if K != 5 for epsilon in EPSILONS]
    grid += [(200, epsilon, 5, s) for s in SOLVERS if s != "kkt" for epsilon in EPSILONS]
    cells = []
    for N, epsilon, K, solver in grid:
        # All solvers, and all numbers of features, on their own replicates of a cell.
        own = jax.random.fold_in(jax.random.fold_in(key, N), round(1 / epsilon))
        cells.append(measure(own, N, epsilon, K, solver, arguments.replicates))
    write("convergence", {"seed": arguments.seed, "cells": cells})


if __name__ == "__main__":
    main()
