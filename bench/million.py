"""A million VB fits in bounded memory.

    python bench/million.py [--replicates 1000000]

I=2, K=5, J=2, N=200, epsilon 1, float64. Prints the rate and the peak resident memory of the
process, which holds the million datasets, their results, and one segment in work.
"""

import argparse
import resource
import time

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1_000_000)
    arguments = parser.parse_args()
    # Real releases repeat here: simulating is not what is measured.
    some = pnb.simulate(jax.random.key(0), shape=(10_000,), noise=pnb.Laplace(2.0)).tables
    index = np.arange(arguments.replicates) % 10_000
    counts = np.asarray(some.counts)[index]
    tables = pnb.NoisyTables(counts, 200, pnb.Laplace(2.0))
    begin = time.perf_counter()
    fit = pnb.fit_many(tables, "vb")
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    failures = int(np.sum(np.asarray(fit.status) != 0))
    same = bool(np.array_equal(np.asarray(fit.elbo[:10_000]), np.asarray(fit.elbo[-10_000:])))
    print(
        f"{arguments.replicates} fits in {seconds:.0f} s ({arguments.replicates / seconds:.0f} a "
        f"second), peak memory {peak:.2f} GiB, {failures} failures, repeats bit-identical: {same}"
    )
    write(
        "million",
        {
            "replicates": arguments.replicates,
            "seconds": seconds,
            "peak_gib": peak,
            "failures": failures,
            "repeats_identical": same,
        },
    )


if __name__ == "__main__":
    main()
