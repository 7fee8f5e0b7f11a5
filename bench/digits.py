"""Accuracy on a real table against the total budget: scikit-learn's digits, binarised.

    python bench/digits.py [--splits 10] [--epsilons 1 2 5 10 20 50 100]

1,797 images of 10 digits, 64 pixels each on or off. Each split releases 70% of the images under
every budget and predicts the rest from the release alone. The non-private fit of the same images
is the limit. Public: N, the digits, and that a pixel is on or off. Needs scikit-learn.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import RESULTS, timed, write  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb import style  # noqa: E402

EPSILONS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
FITS = {"exact": pnb.fit_exact, "vb": pnb.fit_vb, "naive": pnb.fit_naive}
NON_PRIVATE = "non-private"


def data():
    digits = load_digits()
    return (digits.data > 7).astype(int), digits.target


def scores(posterior, x, y):
    """(accuracy, mean log probability of the true class) of a posterior's predictions."""
    p = np.asarray(posterior.predict_proba(x))
    right = np.log(np.maximum(p[np.arange(len(y)), y], 1e-300))
    return float((p.argmax(-1) == y).mean()), float(right.mean())


def true_tables(x, y):
    """n[i, k, j], `[10, 64, 2]`; for the non-private fit only."""
    on = np.stack([x[y == i].sum(0) for i in range(10)])
    n = np.bincount(y, minlength=10)[:, None]
    return np.stack([n - on, on], -1).astype(float)


def summarise(rows):
    """Means and standard errors over splits, a row for each epsilon and method."""
    table = []
    for epsilon in sorted({r["epsilon_total"] for r in rows}):
        for method in (*FITS, NON_PRIVATE):
            cell = [r for r in rows if (r["epsilon_total"], r["method"]) == (epsilon, method)]
            line = {"epsilon_total": epsilon, "method": method, "splits": len(cell)}
            for name in ("accuracy", "log_score", "seconds"):
                values = np.array([r[name] for r in cell])
                error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else None
                line[name] = [float(values.mean()), error]
            table.append(line)
    return table


def markdown(table):
    methods = (*FITS, NON_PRIVATE)
    lines = [
        "| epsilon, all 64 tables | "
        + " | ".join(f"{m}: accuracy, log score" for m in methods)
        + " |",
        "|---" * (len(methods) + 1) + "|",
    ]
    for epsilon in sorted({r["epsilon_total"] for r in table}):
        cells = []
        for method in methods:
            (r,) = (r for r in table if (r["epsilon_total"], r["method"]) == (epsilon, method))
            cells.append(
                ", ".join(
                    f"{mean:.3f}" + (f" ± {error:.3f}" if error is not None else "")
                    for mean, error in (r["accuracy"], r["log_score"])
                )
            )
        lines.append(f"| {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(table, path):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    epsilons = sorted({r["epsilon_total"] for r in table})
    splits = max(r["splits"] for r in table)
    with pyplot.rc_context(style.FONT):
        figure, axes = pyplot.subplots(1, 2, figsize=(style.PAGE, 2.9), layout="constrained")
        for axis, name, sign in zip(axes, ("accuracy", "log_score"), (1, -1), strict=True):
            for method in (*FITS, NON_PRIVATE):
                rows = [r for r in table if r["method"] == method]
                look = style.METHODS["bayes" if method == NON_PRIVATE else method]
                axis.errorbar(
                    epsilons, [sign * r[name][0] for r in rows], [r[name][1] or 0 for r in rows],
                    color=look.color, marker=look.marker, linestyle=look.dash, label=look.name,
                    markersize=4, linewidth=1.2, capsize=2,
                )  # fmt: skip
            axis.set(xscale="log", xlabel="ε of all 64 tables together")
            axis.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
            axis.minorticks_off()
        axes[0].set(ylabel="accuracy on held-out images", ylim=(0, 1))
        axes[1].set(ylabel="log loss on held-out images, nats", yscale="log")
        losses = (0.5, 1, 2, 5, 10)
        axes[1].set_yticks(losses, [f"{x:g}" for x in losses])
        axes[0].legend(frameon=False)
        figure.suptitle(
            "Digits, binarised, predicted from the release alone: "
            f"means and standard errors of {splits} splits",
            fontsize=9,
        )
        figure.savefig(path, dpi=style.DPI)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--name", default="digits", help="of the files in bench/results")
    arguments = parser.parse_args()
    X, y = data()
    n_train = int(0.7 * len(y))
    rows = []
    for split in range(arguments.splits):
        order = np.random.default_rng(split).permutation(len(y))
        train, test = order[:n_train], order[n_train:]
        limit = scores(
            pnb.fit_bayes(jnp.asarray(true_tables(X[train], y[train]))), X[test], y[test]
        )
        for epsilon in arguments.epsilons:
            released = pnb.release(
                X[train], y[train], epsilon_total=epsilon, n_categories=2, n_classes=10
            )
            common = {"split": split, "epsilon_total": epsilon}
            for method, fit in FITS.items():
                seconds, posterior = timed(lambda fit=fit, r=released: fit(r))
                accuracy, log_score = scores(posterior, X[test], y[test])
                rows.append(
                    {
                        **common,
                        "method": method,
                        "accuracy": accuracy,
                        "log_score": log_score,
                        "seconds": seconds,
                        "status": int(posterior.status),
                    }
                )
            rows.append(
                {
                    **common,
                    "method": NON_PRIVATE,
                    "accuracy": limit[0],
                    "log_score": limit[1],
                    "seconds": 0.0,
                    "status": 0,
                }
            )
        print(f"split {split + 1} of {arguments.splits}", flush=True)
    table = summarise(rows)
    print(markdown(table))
    write(arguments.name, {"n_train": n_train, "table": table, "rows": rows})
    (RESULTS / f"{arguments.name}.md").write_text(markdown(table))
    plot(table, RESULTS / f"{arguments.name}.png")


if __name__ == "__main__":
    main()
