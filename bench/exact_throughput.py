"""How close is `fit_many` with the exact posterior to the price of bare Fourier transforms?

    python bench/exact_throughput.py [--replicates 10000]

I=2, K=5, J=2, N=200, float64 and float32; a uniform prior, whose blocks have a closed form, and
Jeffreys', whose blocks are transformed. A plain fit by Fourier transforms that gives the evidence,
means and standard deviations needs, for each of the I K blocks, J transforms of the weights and one
back for the message; and for each of three cotangents (counts, E p, E p^2) one transform and J
back: 1 + J + 3 (1 + J) real transforms of length 512, the power of two that holds a convolution of
two sequences of 201. Those transforms alone, batched, are timed in the same run, on as many threads
as `fit_many` uses.
"""

import argparse
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

I, K, J, N, LENGTH = 2, 5, 2, 200, 512
TRANSFORMS = I * K * (1 + J + 3 * (1 + J))
BATCH = 128


@jax.jit
def transforms(x):
    """Half forward, half back: as many as one batch of fits needs."""
    spectrum = jnp.fft.rfft(x, axis=-1)
    return jnp.fft.irfft(spectrum, n=LENGTH, axis=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=10_000)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rows = []
    for dtype in (jnp.float64, jnp.float32):
        key = jax.random.key(0)
        pairs = jax.random.uniform(key, (BATCH, TRANSFORMS // 2, LENGTH), dtype)
        jax.block_until_ready(transforms(pairs))
        calls = -(-arguments.replicates // BATCH)

        def bare():
            with ThreadPoolExecutor(cores) as pool:
                run = lambda _: jax.block_until_ready(transforms(pairs)).shape  # noqa: B023, E731
                return list(pool.map(run, range(calls)))  # noqa: B023

        bare_seconds = timed(bare, 2)[0] * arguments.replicates / (calls * BATCH)
        for a, epsilon in itertools.product((1.0, 0.5), (0.01, 0.1, 1.0)):
            prior = pnb.Prior(jnp.full(I, a, dtype), jnp.full((I, K, J), a, dtype))
            simulation = pnb.simulate(
                jax.random.key(3),
                shape=(arguments.replicates,),
                noise=pnb.Laplace(2 / epsilon),
                dtype=dtype,
            )
            fit = lambda: pnb.fit_many(simulation.tables, "exact", prior=prior)  # noqa: B023, E731
            fit()
            seconds, many = timed(fit, 2)
            row = {
                "dtype": np.dtype(dtype).name,
                "prior": a,
                "epsilon": epsilon,
                "fit_many_ms": 1e3 * seconds / arguments.replicates,
                "transforms_ms": 1e3 * bare_seconds / arguments.replicates,
                "share_of_bare_throughput": bare_seconds / seconds,
                "failures": int(np.sum(np.asarray(many.status) != 0)),
            }
            rows.append(row)
            print(
                f"{row['dtype']} a = {a:g} epsilon {epsilon:g}: "
                f"fit_many {row['fit_many_ms']:.3f} ms a fit, "
                f"{TRANSFORMS} bare transforms {row['transforms_ms']:.3f} ms: "
                f"{row['share_of_bare_throughput']:.0%} of their throughput",
                flush=True,
            )
    write("exact_throughput", {"transforms": TRANSFORMS, "length": LENGTH, "rows": rows})


if __name__ == "__main__":
    main()
