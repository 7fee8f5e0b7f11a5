"""How fast is `fit_many` with VB, against a plain vmapped fit and against a SciPy loop?

    python bench/vb_throughput.py [--replicates 10000] [--sample 200] [--scipy 10]

I=2, K=5, J=2, N=200, epsilon in 0.01, 0.1, 1, float64. In one run and from the same starts, with
the same tolerance: `fit_many` on all replicates; `jax.vmap` of the paper's Armijo ascent (20
inner steps, no acceleration) on a sample; the paper's loop in NumPy and SciPy on a few.
Compilation is not counted.
"""

import argparse
import time
from functools import partial

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import paper_loop  # noqa: E402
from common import timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.simplex import Armijo  # noqa: E402

TOL = 1e-9
PLAIN = Armijo(rule="longest", inner_steps=20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--scipy", type=int, default=10)
    arguments = parser.parse_args()
    rows = []
    for epsilon in (0.01, 0.1, 1.0):
        b = 2 / epsilon
        simulation = pnb.simulate(
            jax.random.key(3), shape=(arguments.replicates,), noise=pnb.Laplace(b)
        )
        work = []
        fit = lambda: pnb.fit_many(simulation.tables, "vb", tol=TOL)  # noqa: B023, E731
        pnb.fit_many(simulation.tables, "vb", tol=TOL, on_work=lambda *w: work.append(w))  # noqa: B023
        seconds, many = timed(fit)
        useful, executed = np.sum(work, axis=0)

        sample = jax.tree.map(lambda x: x[: arguments.sample], simulation.tables)
        plain = partial(pnb.fit_vb, solver=PLAIN, accelerate=False, tol=TOL)
        compiled = jax.jit(jax.vmap(plain)).lower(sample).compile()
        plain_seconds, reference = timed(lambda: compiled(sample))  # noqa: B023

        begin = time.perf_counter()
        looped = [
            paper_loop.fit(np.array(simulation.tables.counts[r]), 200.0, b, TOL)[0]
            for r in range(arguments.scipy)
        ]
        loop_seconds = time.perf_counter() - begin

        gain = np.asarray(many.elbo[: arguments.sample] - reference.elbo)
        row = {
            "epsilon": epsilon,
            "replicates": arguments.replicates,
            "fit_many_ms": 1e3 * seconds / arguments.replicates,
            "plain_armijo_ms": 1e3 * plain_seconds / arguments.sample,
            "scipy_ms": 1e3 * loop_seconds / arguments.scipy,
            "mean_bound_gain": float(gain.mean()),
            "other_optimum_share": float(np.mean(np.abs(gain) > 1e-2)),
            "scipy_bound_gain": float(np.mean(np.asarray(many.elbo[: len(looped)]) - looped)),
            "utilisation": float(useful / executed),
            "mean_iterations": float(np.mean(many.iterations)),
            "plain_mean_iterations": float(np.mean(reference.iterations)),
            "failures": int(np.sum(np.asarray(many.status) != 0)),
        }
        row["times_plain"] = row["plain_armijo_ms"] / row["fit_many_ms"]
        row["times_scipy"] = row["scipy_ms"] / row["fit_many_ms"]
        rows.append(row)
        print(
            f"epsilon {epsilon:g}: fit_many {row['fit_many_ms']:.3f} ms a fit; plain Armijo "
            f"{row['plain_armijo_ms']:.1f} ms, {row['times_plain']:.0f} times; SciPy loop "
            f"{row['scipy_ms']:.0f} ms, {row['times_scipy']:.0f} times; utilisation "
            f"{row['utilisation']:.3f}; bound higher by {row['mean_bound_gain']:.1e} on average; "
            f"{row['other_optimum_share']:.1%} in another optimum; {row['failures']} failures",
            flush=True,
        )
    write("vb_throughput", {"rows": rows})


if __name__ == "__main__":
    main()
