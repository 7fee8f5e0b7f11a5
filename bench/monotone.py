"""Does the bound ever fall? Every solver, both bounds, both dtypes, over the paper's whole grid.

    python bench/monotone.py [--replicates 10000] [--only "float32 optax"]

Prints, for each combination, how many replicates ended with each status, how many reported a fall
of the bound beyond rounding, and the largest fall that was rounding. A fall that is neither would
be a bug: it is counted as unreported, and the script then fails.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import EPSILONS, SIZES, paper_grid, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.simplex import SOLVERS, Armijo  # noqa: E402

PAPER = "armijo, as in the paper"
"""Slow, so it is given a tenth of the replicates."""
CASES = {**SOLVERS, PAPER: Armijo(rule="longest", inner_steps=20)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--only", default="", help="words that a case's dtype, solver or bound has")
    arguments = parser.parse_args()
    per_cell = -(-arguments.replicates // (len(SIZES) * len(EPSILONS)))
    rows = []
    for dtype in (jnp.float64, jnp.float32):
        _, simulation = paper_grid(jax.random.key(0), per_cell, dtype)
        for name, solver in CASES.items():
            for bound in ("mixture", "quadratic"):
                if not set(arguments.only.split()) <= {np.dtype(dtype).name, name, bound}:
                    continue
                tables = simulation.tables
                if name == PAPER:
                    tables = jax.tree.map(lambda x: x[::10], tables)
                fit = pnb.fit_many(tables, "vb", solver=solver, bound=bound)
                status = np.asarray(fit.status)
                fall = np.asarray(fit.max_decrease, np.float64)
                # What a reader of the result would call rounding, computed apart from the fit.
                slack = 1e3 * np.finfo(dtype).eps * (1 + np.abs(np.asarray(fit.elbo, np.float64)))
                reported = status == pnb.Status.NOT_MONOTONE
                row = {
                    "dtype": np.dtype(dtype).name,
                    "solver": name,
                    "bound": bound,
                    "replicates": status.size,
                    "reported_falls": int(reported.sum()),
                    "unreported_falls": int(((fall > slack) & ~reported).sum()),
                    "largest_fall": float(fall.max()),
                    "mean_elbo": float(np.mean(np.asarray(fit.elbo, np.float64))),
                    "mean_iterations": float(np.mean(fit.iterations)),
                    "status": {
                        pnb.Status(code).name: int(n)
                        for code, n in zip(*np.unique(status, return_counts=True), strict=True)
                    },
                }
                rows.append(row)
                falls = f"falls reported {row['reported_falls']} not {row['unreported_falls']}"
                print(
                    f"{row['dtype']:8} {name:23} {bound:10} {falls}, "
                    f"largest {row['largest_fall']:.1e}, bound {row['mean_elbo']:.4f} "
                    f"{row['status']}",
                    flush=True,
                )
    if not arguments.only:
        write("monotone", {"rows": rows})
    unreported = sum(row["unreported_falls"] for row in rows)
    print(f"unreported falls: {unreported} of {sum(row['replicates'] for row in rows)} fits")
    raise SystemExit(unreported > 0)


if __name__ == "__main__":
    main()
