"""Cost of the exact posterior against N: it follows the noise's scale, not N.

Fits N = 10,000 and N = 1,000,000 records (epsilon = 0.1 a table, I = 2, K = 20, J = 4) in one
process, and prints times, peak memory and the bound on the mass left out.

    python bench/exact_scale.py
"""

import resource
import statistics
import time

import jax

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

REPEATS = 5


def measure(n_records):
    sim = pnb.simulate(
        jax.random.key(0),
        n_records=n_records,
        n_classes=2,
        n_categories=(4,) * 20,
        noise=pnb.Laplace.from_budget(epsilon_per_table=0.1),
    )
    seconds = []
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        fit = jax.block_until_ready(pnb.fit_exact(sim.tables))
        seconds.append(time.perf_counter() - begin)
    covered = (sim.feature_probs >= fit.feature_interval(0.95)[0]) & (
        sim.feature_probs <= fit.feature_interval(0.95)[1]
    )
    return {
        "n_records": n_records,
        "first_seconds": seconds[0],
        "seconds": statistics.median(seconds[1:]),
        "lost_mass": float(fit.lost_mass),
        "status": int(fit.status),
        "cell_window": fit.path.questions.length,
        "class_window": fit.path.questions.window,
        "covered_95": float(covered.mean()),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main():
    rows = [measure(10_000), measure(1_000_000)]
    for row in rows:
        print(
            f"N={row['n_records']:>9,}  {row['seconds']:.2f} s (first {row['first_seconds']:.1f} s)"
            f"  lost_mass {row['lost_mass']:.1e}"
            f"  windows {row['cell_window']}, {row['class_window']}"
            f"  95% interval covers {row['covered_95']:.3f}  peak {row['peak_gib']:.2f} GiB"
        )
    ratio = rows[1]["seconds"] / rows[0]["seconds"]
    print(f"ratio {ratio:.2f} (at most 3)")
    write("exact_scale", {"rows": rows, "ratio": ratio})


if __name__ == "__main__":
    main()
