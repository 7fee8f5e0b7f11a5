"""How does time grow with N, K, I, J and the number of datasets?

    python bench/growth.py

Doubles one of them at a time from a common base and fits time ~ size^exponent by least squares on
logarithms. Times are the processor's, of one worker, the better of two warm calls. Exact fits have
Jeffreys' prior, so that all go by Fourier transforms: under a uniform one J = 2 would not. Writes
the table and a plot to bench/results/.
"""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import RESULTS, processor_seconds, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

SCALE = 20.0
BASE = {"N": 200, "K": 5, "I": 2, "J": 2, "datasets": 512}
SIZES = {
    "N": (50, 100, 200, 400, 800),
    "K": (2, 5, 10, 20, 40),
    "I": (2, 4, 8),
    "J": (2, 4, 8),
    "datasets": (512, 1024, 2048, 4096),
}


def tables_of(N, K, I, J, datasets):
    """The paper's model in plain NumPy: simulating in JAX would compile for every shape."""
    rng = np.random.default_rng(0)
    p_class = rng.dirichlet(np.ones(I), datasets)
    per_class = rng.multinomial(N, p_class)[:, :, None]  # [D, I, 1]
    p_feature = rng.dirichlet(np.ones(J), (datasets, I, K))
    counts = rng.multinomial(np.broadcast_to(per_class, p_feature.shape[:-1]), p_feature)
    noise = rng.laplace(scale=SCALE, size=counts.shape)
    return pnb.NoisyTables(
        counts + noise, np.full(datasets, N), pnb.Laplace(np.full(datasets, SCALE))
    )


def seconds(method, **sizes):
    """Of one warm call."""
    tables = tables_of(**sizes)
    I, K, J = tables.counts.shape[1:]
    prior = pnb.Prior(np.full(I, 0.5), np.full((I, K, J), 0.5)) if method == "exact" else None
    fit = lambda: pnb.fit_many(tables, method, prior=prior, workers=1)  # noqa: E731
    fit()
    return min(processor_seconds(fit)[0] for _ in range(2))


def plot(rows):
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots(1, len(SIZES), sharey=True)
    for axis, (name, sizes) in zip(axes, SIZES.items(), strict=True):
        exponents = []
        for method, color, marker in (("vb", "#0072B2", "o"), ("exact", "#009E73", "s")):
            row = next(r for r in rows if r["method"] == method and r["size"] == name)
            axis.loglog(sizes, row["seconds"], color=color, marker=marker, label=method)
            exponents.append(f"{method} {row['exponent']:.2f}")
        axis.set_title("exponent: " + ", ".join(exponents), fontsize=7)
        axis.set_xticks(sizes, [f"{s:g}" for s in sizes], fontsize=8)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.tick_params(axis="x", which="minor", length=0)
        axis.set_xlabel(name)
    axes[0].set_ylabel("processor seconds of fit_many")
    axes[0].legend(fontsize=8, frameon=False)
    figure.savefig(RESULTS / "growth.png", dpi=150)


def main():
    rows = []
    for method in ("vb", "exact"):
        for name, sizes in SIZES.items():
            times = [seconds(method, **{**BASE, name: size}) for size in sizes]
            exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
            rows.append(
                {
                    "method": method,
                    "size": name,
                    "sizes": sizes,
                    "seconds": times,
                    "exponent": exponent,
                }
            )
            listed = ", ".join(f"{s}: {t:.2f} s" for s, t in zip(sizes, times, strict=True))
            print(f"{method:6} {name:9} exponent {exponent:5.2f}   ({listed})", flush=True)
    write("growth", {"base": BASE, "rows": rows})
    plot(rows)


if __name__ == "__main__":
    main()
