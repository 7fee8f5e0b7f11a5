"""Starting points: the bound, and the errors, that each ends in; when the best bound is the worse.

The paper's optimum is looked for from naive, uniform, the true parameters, and ten random starts;
"best" is the start that ended in the largest bound.

    python bench/starts.py [--replicates 100] [--seed 0]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.baselines import naive_probabilities  # noqa: E402

GRID = [(N, epsilon) for N in (50, 200, 500) for epsilon in (0.001, 0.01, 0.1, 1.0)]
RANDOM = 10
NAMES = ("naive", "uniform", "true", *(f"random {r}" for r in range(RANDOM)))
APART = 1e-4
"""Optima whose bounds differ by more, relative to 1 + |bound|, are two."""


@jax.jit
def fit(tables, start):
    """(bound, E n_i / N, mean of P(Y), mean of P(X|Y), sweeps) from a start a dataset."""
    f = jax.vmap(lambda t, s: pnb.fit_vb(t, start=s))(tables, start)
    return f.elbo, f.theta_class, f.class_mean, f.feature_mean, f.status


def starts_of(key, sim):
    """Every start, by name."""
    shape = sim.tables.counts.shape
    found = {
        "naive": jax.vmap(naive_probabilities)(sim.tables),
        "uniform": (jnp.full(shape[:-2], 0.5), jnp.full(shape, 0.5)),
        "true": (sim.class_probs, sim.feature_probs),
    }
    for r in range(RANDOM):
        one, two = jax.random.split(jax.random.fold_in(key, r))
        found[f"random {r}"] = (
            jax.random.dirichlet(one, jnp.ones(2), shape[:1], jnp.float64),
            jax.random.dirichlet(two, jnp.ones(2), shape[:-1], jnp.float64),
        )
    return found


def measure(key, N, epsilon, replicates):
    """One cell."""
    sim = pnb.simulate(
        key, n_records=N, n_categories=(2,) * 5, noise=pnb.Laplace(2 / epsilon), shape=(replicates,)
    )  # fmt: skip
    begins = starts_of(jax.random.fold_in(key, 1), sim)
    ends = [fit(sim.tables, start) for start in begins.values()]
    elbo, t_class, class_mean, feature_mean, status = (np.stack(x) for x in zip(*ends, strict=True))
    mean = lambda x: x.reshape(*x.shape[:2], -1).mean(-1)  # noqa: E731
    class_error = mean(np.square(class_mean - np.asarray(sim.class_probs)))  # [S, R]
    feature_error = mean(np.square(feature_mean - np.asarray(sim.feature_probs)))
    emptied = (N * t_class < 1).any(-1)
    best = elbo.argmax(0)
    rows = {name: slice(s, s + 1) for s, name in enumerate(NAMES[:3])}
    rows["random"] = slice(3, None)
    of = lambda x, s: float(x[s].mean())  # noqa: E731
    cell = {"n_records": N, "epsilon": epsilon, "replicates": replicates, "starts": {}}
    for name, s in rows.items():
        cell["starts"][name] = [of(x, s) for x in (elbo, class_error, feature_error, emptied)]
    at_best = lambda x: x[best, np.arange(replicates)]  # noqa: E731
    cell["starts"]["best"] = [
        float(at_best(x).mean()) for x in (elbo, class_error, feature_error, emptied)
    ]
    apart = np.abs(elbo - elbo[:1]) > APART * (1 + np.abs(elbo[:1]))  # from where naive ends
    differs = at_best(apart)
    worse = at_best(class_error) > class_error[0]
    cell["optima"] = float(
        np.mean([len(np.unique(np.round(e / (APART * (1 + abs(e[0])))))) for e in elbo.T])
    )
    cell["elsewhere"] = {name: of(apart, s) for name, s in rows.items()}
    cell["best_elsewhere"] = float(differs.mean())
    cell["best_worse"] = float((differs & worse).sum() / max(differs.sum(), 1))
    cell["differing"] = int(differs.sum())
    cell["failed"] = int((status != 0).sum())
    print(f"N={N} eps={epsilon:g}: {cell}", flush=True)
    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    key = jax.random.key(arguments.seed)
    cells = [
        measure(jax.random.fold_in(key, c), *cell, arguments.replicates)
        for c, cell in enumerate(GRID)
    ]
    write("starts", {"seed": arguments.seed, "random": RANDOM, "cells": cells})


if __name__ == "__main__":
    main()
