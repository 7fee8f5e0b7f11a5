"""How many inner steps should the Armijo ascent make in one sweep, and by which rule?

    python bench/armijo_steps.py [--replicates 512]

I=2, K=5, J=2, N=200, float64, one thread. More inner steps make a sweep dearer and sweeps fewer.
"""

import argparse

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.simplex import KKT, Armijo  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=512)
    arguments = parser.parse_args()
    solvers = {
        f"{rule}, {n}": Armijo(inner_steps=n, rule=rule)
        for rule, steps in (("curvature", (1, 2, 5, 20)), ("longest", (5, 20)))
        for n in steps
    }
    rows = []
    for name, solver in {**solvers, "kkt": KKT()}.items():
        for epsilon in (0.01, 0.1, 1.0):
            tables = pnb.simulate(
                jax.random.key(3), shape=(arguments.replicates,), noise=pnb.Laplace(2 / epsilon)
            ).tables
            fit = lambda: pnb.fit_many(tables, "vb", solver=solver, workers=1)  # noqa: B023, E731
            fit()
            seconds, many = timed(fit)
            row = {
                "solver": name,
                "epsilon": epsilon,
                "ms_a_fit": 1e3 * seconds / arguments.replicates,
                "mean_iterations": float(np.mean(many.iterations)),
                "mean_bound": float(np.mean(many.elbo)),
                "failures": int(np.sum(np.asarray(many.status) != 0)),
            }
            rows.append(row)
            print(
                f"{name:12} epsilon {epsilon:4g}: {row['ms_a_fit']:7.3f} ms a fit, "
                f"{row['mean_iterations']:6.1f} sweeps, bound {row['mean_bound']:.6f}, "
                f"{row['failures']} failures",
                flush=True,
            )
    write("armijo_steps", {"rows": rows})


if __name__ == "__main__":
    main()
