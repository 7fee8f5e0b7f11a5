"""What float32 costs in accuracy, against float64 on the same tables over the paper's grid.

    python bench/float32.py [--replicates 100]

For each cell: how far the float32 bound's point lies below the float64 one, judged in float64; the
largest difference of a posterior mean, variational and exact; and the time saved. A replicate whose
bounds differ by more than 0.05 went to another local optimum and is counted apart.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import paper_grid, timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.variational.bound import Data, collapsed  # noqa: E402
from jaxprivnb.variational.local import local_bound  # noqa: E402
from jaxprivnb.variational.updates import at_theta  # noqa: E402

OTHER_OPTIMUM = 0.05
LARGEST = ("bound_below_mean", "bound_below_max", "vb_mean_apart_max", "exact_mean_apart_max")


def widened(tree):
    """Every float32 array as float64."""
    return jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree)


@jax.jit
@jax.vmap
def bound_of(tables, theta_class, theta_feature):
    """The bound at a point, in the dtype of the tables."""
    data = Data.of(tables, pnb.Prior.uniform(tables))
    local = local_bound("mixture", tables.noise)
    smallest = jnp.finfo(theta_class.dtype).tiny
    logs = (jnp.log(jnp.maximum(t, smallest)) for t in (theta_class, theta_feature))
    return collapsed(data, at_theta(data, *logs, local), local).elbo


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100, help="a cell")
    arguments = parser.parse_args()
    cells, simulation = paper_grid(jax.random.key(0), arguments.replicates, jnp.float32)
    short, long = simulation.tables, widened(simulation.tables)
    seconds, fits = {}, {}
    for method in ("vb", "exact"):
        for name, tables in (("float32", short), ("float64", long)):
            pnb.fit_many(tables, method)  # compiles
            seconds[method, name], fits[method, name] = timed(
                lambda t=tables, m=method: pnb.fit_many(t, m)
            )
    vb, exact = fits["vb", "float32"], fits["exact", "float32"]
    below = fits["vb", "float64"].elbo - bound_of(
        long, *widened((vb.theta_class, vb.theta_feature))
    )
    below = np.asarray(below).reshape(len(cells), -1)
    same = np.abs(below) <= OTHER_OPTIMUM
    apart = {
        m: np.abs(np.asarray(widened(fit.feature_mean) - fits[m, "float64"].feature_mean))
        .max((1, 2, 3))
        .reshape(len(cells), -1)
        for m, fit in (("vb", vb), ("exact", exact))
    }
    failures = int(np.sum(np.asarray(vb.status) != 0) + np.sum(np.asarray(exact.status) != 0))
    rows = []
    for c, (N, epsilon) in enumerate(cells):
        row = {
            "n_records": N,
            "epsilon": epsilon,
            "bound_below_mean": float(below[c][same[c]].mean()),
            "bound_below_max": float(below[c][same[c]].max()),
            "other_optimum_share": float(1 - same[c].mean()),
            "vb_mean_apart_median": float(np.median(apart["vb"][c][same[c]])),
            "vb_mean_apart_max": float(apart["vb"][c][same[c]].max()),
            "exact_mean_apart_max": float(apart["exact"][c].max()),
        }
        rows.append(row)
        print(
            f"N={N:3} eps={epsilon:<6g} bound below {row['bound_below_mean']:.1e} (max "
            f"{row['bound_below_max']:.1e}), other optimum {row['other_optimum_share']:.2f}, VB "
            f"means apart {row['vb_mean_apart_median']:.1e} (max {row['vb_mean_apart_max']:.1e}), "
            f"exact means apart at most {row['exact_mean_apart_max']:.1e}"
        )
    speed = {m: seconds[m, "float64"] / seconds[m, "float32"] for m in ("vb", "exact")}
    largest = {key: max(row[key] for row in rows) for key in LARGEST}
    elsewhere = float(1 - same.mean())
    print(
        f"all cells: {failures} failures; largest differences {largest}; another optimum in "
        f"{elsewhere:.2%}; float64 takes {speed['vb']:.2f} (vb) and {speed['exact']:.2f} "
        "(exact) times as long"
    )
    write(
        "float32",
        {
            "largest": largest,
            "other_optimum_share": elsewhere,
            "float64_time_over_float32": speed,
            "failures": failures,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
