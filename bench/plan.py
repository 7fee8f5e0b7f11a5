"""Is what `plan` expects what releases of simulated data then have?

    python bench/plan.py [--replicates 100] [--only NAME ...]

A grid of N, epsilon, sizes, priors and kinds of neighbours, with both noises. What was expected
comes from `plan`; what came true, from datasets drawn anew by `simulate`, released with OpenDP's
noise and fitted by `fit_exact`: widths of its intervals, errors of its means, classes that its
predictions name. Each number has its Monte Carlo standard error, over datasets; z is a difference
in those of both together. Every case runs in a process of its own; with --only the other cases'
rows stay as they were.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import RESULTS, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.planning.table import QUANTITIES  # noqa: E402
from jaxprivnb.privacy.mechanism import measurement  # noqa: E402

ADULT = (5, 8, 16, 16, 7, 15, 6, 5, 2, 8, 8, 10, 9, 42)
CASES = {
    "small": {"N": 200, "J": (2,) * 5, "epsilon": 2.0},
    "small, strong privacy": {"N": 200, "J": (2,) * 5, "epsilon": 0.2},
    "N unknown": {
        "N": 500,
        "J": (2, 3),
        "epsilon": 0.5,
        "neighbours": "add-remove",
        "replicates": 30,
    },
    "classes": {"N": 1_000, "I": 3, "J": (2, 3, 7), "epsilon": 1.0, "class": True},
    "sparse": {"N": 2_000, "J": (4,) * 5, "epsilon": 0.5, "concentration": 0.3},
    "Adult": {"N": 48_842, "J": ADULT, "epsilon": 1.0, "replicates": 10},
}
ENUMERATED = 1_000
"""Kinds of records up to which all are predicted."""


def released(counts, scale, gaussian):
    """OpenDP's noise on true counts."""
    noisy = measurement("rho" if gaussian else "epsilon", scale)
    flat = np.asarray(counts).astype(np.int64).ravel().tolist()
    return np.asarray(noisy(flat), float).reshape(counts.shape)


def came_true(case, row, replicates, key):
    """Each quantity of `QUANTITIES`, one number a dataset."""
    I, J, a = case.get("I", 2), case["J"], case.get("concentration", 1.0)
    K, most, gaussian = len(J), max(J), row.noise == "gaussian"
    prior = pnb.Prior(jnp.full(I, a), jnp.full((I, K, most), a))
    drawn = pnb.simulate(
        key, n_records=case["N"], n_classes=I, n_categories=J, prior=prior, shape=(replicates,)
    )
    real = np.arange(most) < np.asarray(J)[:, None]
    n = np.where(real, np.asarray(drawn.counts), 0)
    counts, mask = np.where(real, released(n, row.scale_least, gaussian), 0), real
    if row.class_table:
        own = np.zeros_like(counts[:, :, :1])
        own[..., 0] = released(n[:, :, 0].sum(-1)[..., None], row.scale_least, gaussian)
        counts, mask = np.concatenate([counts, own[..., :most]], 2), np.eye(K + 1, most) > 1
        mask[:K], mask[K, 0] = real, True
    noise = (pnb.Gaussian if gaussian else pnb.Geometric)(row.scale_least)
    N = None if case.get("neighbours") == "add-remove" else np.full(replicates, float(case["N"]))
    each = np.broadcast_to(mask, (replicates, *mask.shape))
    tables = pnb.NoisyTables(counts, N, noise, each)
    prior = pnb.Prior(jnp.full(I, a), jnp.full((I, *mask.shape), a))
    fit = pnb.fit_many(tables, "exact", prior=prior)
    cells = np.broadcast_to(real & (real.sum(-1, keepdims=True) > 1), n.shape)

    def mean(x):
        return np.where(cells, np.asarray(x)[:, :, :K], 0).sum((1, 2, 3)) / cells.sum((1, 2, 3))

    ends = {q: getattr(fit, f"{q}_interval")(0.95) for q in ("class", "feature", "count")}
    p_class, p_feature = (np.asarray(x) for x in (drawn.class_probs, drawn.feature_probs))
    found, accuracy = predicted(fit, p_class, p_feature, J, row.class_table)
    return int((np.asarray(fit.status) != 0).sum()), {
        "class_width": np.asarray(ends["class"][1] - ends["class"][0]).mean(-1),
        "class_error": np.abs(np.asarray(fit.class_mean) - p_class).mean(-1),
        "feature_width": mean(ends["feature"][1] - ends["feature"][0]),
        "feature_error": mean(np.abs(np.asarray(fit.feature_mean)[:, :, :K] - p_feature)),
        "count_width": mean(ends["count"][1] - ends["count"][0]),
        "count_error": mean(np.abs(np.asarray(fit.count_mean)[:, :, :K] - n)),
        "found": found,
        "accuracy": accuracy,
    }


def predicted(fit, p_class, p_feature, J, class_table):
    """(Share of most likely classes found, accuracy): over all kinds of records where they are few
    and by the exact predictive, else over 500 records and by the means, which is nearly the same.
    """
    K, rng = len(J), np.random.default_rng(0)
    few = np.prod(np.asarray(J, float)) <= ENUMERATED
    if few:
        x = np.asarray(list(itertools.product(*map(range, J))))
        asked = np.concatenate([x, np.zeros_like(x[:, :1])], 1) if class_table else x
        named = np.asarray(fit.predict_proba(asked)).argmax(-1)
    out = []
    for r in range(len(p_class)):
        if not few:
            y = rng.choice(len(p_class[r]), 500, p=p_class[r])
            u = rng.uniform(size=(500, K, 1))
            x = (np.cumsum(p_feature[r], -1)[y] < u).sum(-1).clip(max=np.asarray(J) - 1)
        truth = np.exp(scores(p_class[r], p_feature[r], x))
        weight = truth.sum(-1) if few else np.full(len(x), 1 / len(x))
        truth = truth / truth.sum(-1, keepdims=True)
        own = scores(np.asarray(fit.class_mean[r]), np.asarray(fit.feature_mean[r]), x)
        name = named[r] if few else own.argmax(-1)
        right = np.take_along_axis(truth, name[:, None], -1)[:, 0]
        out.append(((weight * (truth.argmax(-1) == name)).sum(), (weight * right).sum()))
    found, accuracy = np.asarray(out).T
    return found, accuracy


def scores(p_class, p_feature, x):
    """log P(Y=i) + sum_k log P(X_k = x_k | Y=i) for records x `[M, K]`: `[M, I]`."""
    chosen = p_feature[:, np.arange(x.shape[-1]), x]
    return (np.log(p_class)[:, None] + np.log(np.maximum(chosen, 1e-300)).sum(-1)).T


def measure(name, replicates):
    """The rows of one case, one a noise."""
    case = CASES[name]
    replicates = case.get("replicates", replicates)
    begin = time.process_time()
    made = pnb.plan(
        n_records=case["N"],
        n_classes=case.get("I", 2),
        n_categories=case["J"],
        epsilon_total=case["epsilon"],
        prior=case.get("concentration", 1.0),
        neighbours=case.get("neighbours", "replace"),
        contributions=case.get("contributions", 1),
        replicates=max(replicates, 32),
    )
    took = time.process_time() - begin
    rows = []
    for row in made.rows:
        if row.allocation != "equal" or row.class_table != case.get("class", False):
            continue
        key = jax.random.fold_in(jax.random.key(2), len(rows))
        failed, values = came_true(case, row, replicates, key)
        entry = {"name": name, **case, "noise": row.noise, "scale": row.scale_least}
        entry |= {"replicates": replicates, "failed": failed, "plan_processor_seconds": took}
        for which, own, se in zip(QUANTITIES, row[7:15], row.se, strict=True):
            x = values[which]
            mean, error = float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))
            both = float(np.hypot(error, se)) or 1e-12
            entry[which] = {
                "expected": own, "came_true": mean, "se": both, "z": (own - mean) / both,
            }  # fmt: skip
        rows.append(entry)
    return rows


def kept(names):
    """The rows of an earlier run that this one does not measure."""
    path = RESULTS / "plan.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if row["name"] in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--json", action="store_true", help="one case as JSON, nothing written")
    arguments = parser.parse_args()
    chosen = arguments.only or list(CASES)
    if arguments.json:
        print(json.dumps(measure(chosen[0], arguments.replicates)))
        return
    rows = kept(set(CASES) - set(chosen))
    for name in chosen:
        command = [sys.executable, __file__, "--json", "--only", name]
        command += ["--replicates", str(arguments.replicates)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for row in json.loads(done.stdout.splitlines()[-1]):
            rows.append(row)
            print(f"{name}, {row['noise']}, {row['failed']} failed")
            for which in QUANTITIES:
                q = row[which]
                print(
                    f"    {which:14} expected {q['expected']:10.5g}, came true "
                    f"{q['came_true']:10.5g} ± {q['se']:.2g}  z {q['z']:5.1f}",
                    flush=True,
                )
    z = [abs(row[which]["z"]) for row in rows for which in QUANTITIES]
    print(f"{len(z)} expectations; largest |z| {max(z):.2f}, beyond 2: {sum(x > 2 for x in z)}")
    write("plan", {"largest_z": max(z), "beyond_2": sum(x > 2 for x in z), "rows": rows})


if __name__ == "__main__":
    main()
