"""Which convolution should the exact posterior use? Microseconds a row, by length.

    python bench/convolutions.py [--rows 320]

The first L entries of u * v for non-negative sequences of length L, float64, one thread, batched:
as one slide over zeros (L^2 products), by halving (`truncated`, about L^2 / 2), by a real FFT of
length 2L; and where v is a Laplace weight, by a filter (log2 L passes). The last column is the
relative error of the smallest entry that the FFT gives for a Laplace weight of scale 8 convolved
with itself: products over many tables reach into such tails.
"""

import argparse
import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.exact import filters  # noqa: E402
from jaxprivnb.exact.chunks import map_in_chunks  # noqa: E402
from jaxprivnb.exact.convolve import slide, truncated  # noqa: E402

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)


def by_slide(u, v):
    return slide(u, jnp.pad(v, ((0, 0), (v.shape[-1] - 1, 0))))


def by_fft(u, v):
    n = 2 * u.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(u, n) * jnp.fft.rfft(v, n), n)[..., : u.shape[-1]]


def by_filter(u, kernel):
    """U convolved with a weight, as many rows at a time as a fit would take."""
    smooth = lambda x: filters.smooth(x, kernel)  # noqa: E731
    return map_in_chunks(smooth, u, filters.CHUNK // u.shape[-1])


def kernel_of(length):
    """The kernel of one cell in the middle of its range, Laplace(8)."""
    tables = pnb.NoisyTables(np.full((1, 1, 1), 0.45 * length), length - 1, pnb.Laplace(8.0))
    return jax.tree.map(lambda x: x[0, 0, 0], filters.kernels(tables, length))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=320)
    rows = parser.parse_args().rows
    table = []
    for length in LENGTHS:
        u, v = np.random.default_rng(0).uniform(size=(2, rows, length))
        row = {"length": length}
        for name, f in (("slide", by_slide), ("truncated", truncated), ("fft", by_fft)):
            compiled = jax.jit(f)
            jax.block_until_ready(compiled(u, v))
            seconds, _ = timed(lambda c=compiled, u=u, v=v: c(u, v), 10)
            row[name] = 1e6 * seconds / rows
        kernel = kernel_of(length)
        compiled = jax.jit(by_filter)
        jax.block_until_ready(compiled(u, kernel))
        seconds, _ = timed(lambda c=compiled, u=u, k=kernel: c(u, k), 10)
        row["filter"] = 1e6 * seconds / rows
        peak = np.exp(-np.abs(np.arange(length) - 0.9 * length) / 8)[None]
        exact, fft = np.asarray(truncated(peak, peak)), np.asarray(by_fft(peak, peak))
        least = max(exact[0, 0], np.finfo(float).tiny)  # 0 itself from L = 4096 on
        row["fft_error_at_the_smallest"] = float(abs(fft[0, 0] / least - 1))
        table.append(row)
        print(
            f"L={length:5}: slide {row['slide']:8.1f}, truncated {row['truncated']:8.1f}, FFT "
            f"{row['fft']:8.1f}, filter {row['filter']:8.1f} us a row; FFT's relative error in the "
            f"tail {row['fft_error_at_the_smallest']:.0e}",
            flush=True,
        )
    write("convolutions", {"rows": rows, "table": table})


if __name__ == "__main__":
    main()
