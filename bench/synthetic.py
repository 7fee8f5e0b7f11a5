"""Coverage of 95% intervals from synthetic records: one set at face value, 5 and 20 combined.

    python bench/synthetic.py [--replicates 1000] [--seed 0]

Parameters are drawn from the prior, tables from them, noise on those; every release has an exact
posterior of its own, from which 20 sets of N records are drawn as `synthesize` draws them. An
analyst estimates shares in every set as if its records were real, and is right if the interval
holds the share in the model that made the data. Beside `combine_synthetic` stand the t of
Raghunathan, Reiter and Rubin with T = (1 + 1/m) b - u, and the rule for partially synthetic data,
b / m + u, which takes the sampling variance for the posterior's. Errors are standard errors over
replicates.
"""

import argparse

import jax
import numpy as np
from scipy import stats

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.report.synthetic import draw_records  # noqa: E402

N = 500
CATEGORIES = (2, 3)
EPSILONS = (0.05, 0.2, 1.0)
SETS = (5, 20)
LEVEL = 0.95
CLASS, FEATURE = 4.0, 2.0
"""Concentrations: no class so small that a share in it has no normal law."""
QUANTITIES = ("P(Y=0)", "P(X0=0|Y=0)", "P(X1=0|Y=1)", "P(X1=0)", "P(X0=0|Y=1)-P(X0=0|Y=0)")


def shares(y, x):
    """Estimates of the quantities from records, and their squared standard errors, `[2, 5]`."""

    def share(of, among):
        n = max(int(among.sum()), 1)
        p = float((of & among).sum()) / n
        return p, p * (1 - p) / n

    everyone = np.ones(len(y), bool)
    first, second = (share(x[:, 0] == 0, y == i) for i in (0, 1))
    found = [
        share(y == 0, everyone),
        first,
        share(x[:, 1] == 0, y == 1),
        share(x[:, 1] == 0, everyone),
        (second[0] - first[0], second[1] + first[1]),
    ]
    return np.array(found).T


def truths(p, q):
    """The quantities in the model, `[..., 5]`."""
    second = (p * q[..., 1, 0]).sum(-1)
    return np.stack(
        [p[..., 0], q[..., 0, 0, 0], q[..., 1, 1, 0], second, q[..., 1, 0, 0] - q[..., 0, 0, 0]], -1
    )


def intervals(q, u):
    """Every rule's (estimate, half the width), `[replicates, 5]`, from `[sets, replicates, 5]`."""
    z = stats.norm.ppf((1 + LEVEL) / 2)
    yield "one set at face value", q[0], z * np.sqrt(u[0])
    for m in SETS:
        some, within = q[:m], u[:m]
        made = pnb.combine_synthetic(some, within, LEVEL)
        yield f"{m} sets", made.estimate, (made.upper - made.lower) / 2
        half = stats.t.ppf((1 + LEVEL) / 2, made.df) * np.sqrt(made.variance)
        yield f"{m} sets, t", made.estimate, half
        b = some.var(0, ddof=1)
        half = z * np.sqrt(b / m + within.mean(0))
        yield f"{m} sets, as if partially synthetic", made.estimate, half


def cell(key, epsilon, replicates):
    """The rows of one epsilon."""
    key, draws = jax.random.split(key)
    prior = pnb.Prior(np.full(2, CLASS), np.full((2, 2, 3), FEATURE))
    sim = pnb.simulate(
        key,
        n_records=N,
        n_categories=CATEGORIES,
        noise=pnb.Laplace(2 / epsilon),
        prior=prior,
        shape=(replicates,),
    )
    posterior = pnb.fit_many(sim.tables, "exact", prior=prior)
    failed = int((np.asarray(posterior.status) != 0).sum())
    p, q = (np.asarray(x) for x in posterior.sample(draws, max(SETS)))
    seed = int(jax.random.randint(jax.random.fold_in(draws, 1), (), 0, 2**30))
    rngs = np.random.default_rng(seed)
    found = np.array(
        [
            [shares(*draw_records(rngs, p[r, d], q[r, d], N)) for r in range(replicates)]
            for d in range(max(SETS))
        ]
    )  # [sets, replicates, 2, 5]
    truth = truths(np.asarray(sim.class_probs), np.asarray(sim.feature_probs))
    rows = []
    for rule, estimate, half in intervals(found[:, :, 0], found[:, :, 1]):
        inside = np.abs(estimate - truth) <= half
        error = np.sqrt(inside.mean(-1).var(ddof=1) / replicates)
        rows.append(
            {
                "epsilon_per_table": epsilon,
                "rule": rule,
                "coverage": float(inside.mean()),
                "standard_error": float(error),
                "by_quantity": dict(zip(QUANTITIES, inside.mean(0).tolist(), strict=True)),
                "median_width": float(np.median(2 * half)),
                "replicates": replicates,
                "failed_fits": failed,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for number, epsilon in enumerate(EPSILONS):
        key = jax.random.fold_in(jax.random.key(arguments.seed), number)
        rows += cell(key, epsilon, arguments.replicates)
        for row in rows[-len(rows) // (number + 1) :]:
            print(
                f"epsilon {epsilon:<5g}{row['rule']:36s} {row['coverage']:.3f} ± "
                f"{row['standard_error']:.3f}, median width {row['median_width']:.3g}",
                flush=True,
            )
    write("synthetic", {"n_records": N, "level": LEVEL, "seed": arguments.seed, "rows": rows})


if __name__ == "__main__":
    main()
