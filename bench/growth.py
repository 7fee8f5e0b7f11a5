"""How does time grow with N, K, I, J and the number of datasets?

    python bench/growth.py

Doubles one of them at a time from a common base and fits time ~ size^exponent by least squares on
logarithms. Writes the table and a plot to bench/results/.
"""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import RESULTS, timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

BASE = {"N": 200, "K": 5, "I": 2, "J": 2, "datasets": 512}
SIZES = {
    "N": (50, 100, 200, 400, 800),
    "K": (2, 5, 10, 20, 40),
    "I": (2, 4, 8),
    "J": (2, 4, 8),
    "datasets": (512, 1024, 2048, 4096),
}


def seconds(method, N, K, I, J, datasets):
    """Wall-clock of one warm call."""
    simulation = pnb.simulate(
        jax.random.key(0),
        n_records=N,
        n_classes=I,
        n_categories=(J,) * K,
        noise=pnb.Laplace(20.0),
        shape=(datasets,),
    )
    fit = lambda: pnb.fit_many(simulation.tables, method)  # noqa: E731
    fit()
    return timed(fit, 2)[0]


def plot(rows):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(SIZES), sharey=True)
    for axis, name in zip(axes, SIZES, strict=True):
        for method, marker in (("vb", "o"), ("exact", "s")):
            row = next(r for r in rows if r["method"] == method and r["size"] == name)
            label = f"{method}: {row['exponent']:.2f}"
            axis.loglog(row["sizes"], row["seconds"], marker=marker, label=label)
        axis.set_xlabel(name)
        axis.legend(fontsize=7, title="exponent", title_fontsize=7)
    axes[0].set_ylabel("seconds")
    figure.suptitle("Time of fit_many, one size varied at a time", fontsize=10)
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
