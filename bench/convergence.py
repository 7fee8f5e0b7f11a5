"""How the paper's ascent converges: rate, sweeps, and the optimum it ends in.

Against N, epsilon, K and the solver of the simplex problem, by plain sweeps and with SQUAREM. The
rate of plain sweeps is that of their last steps: each adds rate^2 times what the one before added
to the bound, and moves rate times as far.

    python bench/convergence.py [--replicates 64] [--seed 0]
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

SIZES = (50, 100, 200, 500, 2000)
EPSILONS = (0.001, 0.01, 0.1, 1.0)
FEATURES = (2, 5, 10, 20)
SOLVERS = ("kkt", "armijo", "mm")
MOST = 20_000
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
def last_rate(tables, theta):
    """The rate of plain sweeps from just beside an optimum: by the power method on their map."""
    from jaxprivnb.simplex import SOLVERS
    from jaxprivnb.tables import Prior
    from jaxprivnb.variational.bound import Data
    from jaxprivnb.variational.local import local_bound
    from jaxprivnb.variational.starts import Theta
    from jaxprivnb.variational.updates import at_theta, sweep

    def one(t, theta):
        prior = Prior(jnp.ones_like(theta[0]), jnp.ones_like(theta[1]))
        data, local = Data.of(t, prior), local_bound("mixture", t.noise)

        def swept(x):
            factors = at_theta(data, x.log_t_class, x.log_t_feature, local)
            after = sweep(data, factors, local, SOLVERS["kkt"]).factors
            return Theta(after.log_t_class, after.log_t_feature)

        def settle(_, x):
            return swept(x)

        at = Theta(*map(jnp.log, theta))
        at = jax.lax.fori_loop(0, 200, settle, at)
        # In the metric of the probabilities, in which an emptied class does not count.
        weigh = lambda d: jax.tree.map(lambda z, x: z * jnp.exp(0.5 * x), d, at)  # noqa: E731
        norm = lambda d: jnp.sqrt(sum(jnp.sum(z * z) for z in weigh(d)))  # noqa: E731
        key = jax.random.key(0)
        d = jax.tree.map(lambda x: 1e-5 * jax.random.normal(key, x.shape, x.dtype), at)

        def power(_, carry):
            d, _ = carry
            moved = jax.tree.map(lambda x, z: x + z, at, d)
            base, after = swept(at), swept(moved)
            new = jax.tree.map(lambda a, b: a - b, after, base)
            rate = norm(new) / norm(d)
            return jax.tree.map(lambda z: z * (1e-5 / norm(new)), new), rate

        return jax.lax.fori_loop(0, 60, power, (d, jnp.zeros(())))[1]

    return jax.vmap(one)(tables, theta)


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
    if solver == "kkt":
        rate = np.asarray(last_rate(sim.tables, fast["theta"]))
        cell["rate"] = numbers(rate)
        cell["emptied"] = float((np.asarray(fast["theta"][0]) * N < 1).any(-1).mean())
    print(cell, flush=True)
    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=64)
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
