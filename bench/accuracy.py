"""Squared error and coverage of every estimator, good and bad columns alike.

    python bench/accuracy.py [--replicates 1000]

I=2, K=5, J=2, uniform priors. Squared errors are means over cells of (posterior mean - truth)^2;
coverage is of 95% intervals of p(x|y). Each number has its Monte Carlo standard error. The medians
over replicates are kept too: naive's errors of p(y) have a longer tail than exact's, and at small
epsilon a lower median.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

CELLS = ((50, 0.001), (50, 0.1), (200, 0.01), (200, 0.1), (200, 1.0))


def mean_se(x):
    """(mean, standard error) of one number a replicate."""
    x = np.asarray(x, np.float64)
    return float(x.mean()), float(x.std(ddof=1) / x.size**0.5)


def squared(mean, truth):
    return jnp.square(mean - truth).reshape(truth.shape[0], -1).mean(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1000)
    arguments = parser.parse_args()
    rows = []
    columns = (("p(x|y)", 17), ("p(y)", 17), ("coverage", 17), ("emptied", 8))
    print(f"{'N':>4} {'eps':>6} {'method':>12}", *(f"{c:>{w}}" for c, w in columns))
    for c, (N, eps) in enumerate(CELLS):
        simulation = pnb.simulate(
            jax.random.fold_in(jax.random.key(1), c),
            n_records=N,
            noise=pnb.Laplace(2 / eps),
            shape=(arguments.replicates,),
        )
        fits = {m: pnb.fit_many(simulation.tables, m) for m in ("naive", "vb", "exact")}
        fits["non-private"] = jax.vmap(pnb.fit_bayes)(simulation.counts)
        for name, fit in fits.items():
            feature_error = squared(fit.feature_mean, simulation.feature_probs)
            class_error = squared(fit.class_mean, simulation.class_probs)
            level = fit.feature_cdf(simulation.feature_probs)
            inside = (
                ((level >= 0.025) & (level <= 0.975)).reshape(arguments.replicates, -1).mean(-1)
            )
            row = {
                "n_records": N,
                "epsilon": eps,
                "method": name,
                "feature_squared_error": mean_se(feature_error),
                "class_squared_error": mean_se(class_error),
                "feature_squared_error_median": float(jnp.median(feature_error)),
                "class_squared_error_median": float(jnp.median(class_error)),
                "feature_coverage_95": mean_se(inside),
                "share_with_an_emptied_class": float(
                    jnp.mean(fit.class_mean.min(-1) < 1.5 / (N + 2))
                ),
            }
            rows.append(row)
            cells = " ".join(
                f"{row[k][0]:9.4f} ±{row[k][1]:.4f}"
                for k in ("feature_squared_error", "class_squared_error", "feature_coverage_95")
            )
            print(
                f"{N:4} {eps:6g} {name:>12} {cells} {row['share_with_an_emptied_class']:8.2f}",
                flush=True,
            )
    write("accuracy", {"rows": rows})


if __name__ == "__main__":
    main()
