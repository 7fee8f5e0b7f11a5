"""Does a prior learned from the release predict better? Real tables and simulated ones.

    python bench/learned_prior.py [TABLE.csv[.gz][:CLASS] ...] [--releases 10] [--test 200]

Simulated sparse tables, simulated tables of a uniform prior and scikit-learn's digits, and every
CSV file that is named, with the column of its class (the last one if none is named). Each release
is of another 70% of the records, made once for each budget and fitted by every method; the
predictions are of 200 of the others. A table that is measured again replaces its rows in
bench/results/. A file's categories are taken for public, "?" is one of them; columns of numbers of
Adult have public bins (`BINS`). Log loss is in nats; the calibration error is that of the most
probable class, over ten bins of its probability. Needs scikit-learn.
"""

import argparse
import csv
import gzip
import itertools
import json
import os
import pathlib
import time

# Nearly all of the time is compiling, for fits that are done a few times.
FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", FAST)

import jax  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)

from common import RESULTS, write  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

EPSILONS = (0.5, 1.0, 5.0)
METHODS = {
    "naive": ("naive", None),
    "VB": ("vb", None),
    "exact, uniform": ("exact", None),
    "exact, learned": ("exact", "learned"),
}
OURS = "exact, learned"
SCORES = ("accuracy", "log_loss", "calibration_error")
TRAINED = 0.7
BINS = {
    "age": (25, 30, 35, 40, 45, 50, 55, 60, 65),
    "capital-gain": (1, 3_000, 5_000, 7_000, 10_000, 15_000),
    "capital-loss": (1, 1_500, 1_800, 2_000, 2_500),
    "hours-per-week": (20, 35, 40, 41, 50, 60),
}
"""Inner edges."""
LEFT_OUT = ("fnlwgt", "education-num")
"""Adult's sampling weight, and a second name of its education."""
SIMULATED = {"sparse": 0.1, "uniform": 1.0}
"""Concentrations of P(X_k | Y) that tables are drawn from."""


def read(place):
    """(Name, categories `[N, K]`, classes `[N]`) of a CSV file, given as FILE or FILE:CLASS."""
    path, _, class_name = place.partition(":")
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", newline="") as file:
        head, *rows = (row for row in csv.reader(file) if row)
    columns = dict(zip(head, zip(*rows, strict=True), strict=True))
    y = code(columns.pop(class_name or head[-1]))
    kept = [name for name in columns if name not in LEFT_OUT]
    X = np.stack([coded(name, columns[name]) for name in kept], axis=1)
    return pathlib.Path(path).name.partition(".")[0], X, y


def coded(name, values):
    """A column as categories."""
    if name in BINS:
        return np.digitize(np.asarray(values, float), BINS[name])
    return code(values)


def code(values):
    return np.unique(np.asarray(values), return_inverse=True)[1]


def simulated(concentration, seed, n_records=4_000, I=3, K=10, J=12):
    """Records of one draw of the parameters: (categories, classes)."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(J, concentration), (I, K))
    y = rng.choice(I, n_records, p=rng.dirichlet(np.ones(I) * 5))
    upto = p.cumsum(-1)[y]  # [N, K, J]
    X = (rng.uniform(size=(n_records, K, 1)) > upto).sum(-1)
    return np.minimum(X, J - 1), y


def sources(places):
    """Name -> a function of the release's number that gives its records, and the domain's sizes."""
    found = {name: (lambda r, a=a: simulated(a, r), (12,) * 10, 3) for name, a in SIMULATED.items()}
    digits = load_digits()
    real = [("digits", (digits.data > 7).astype(int), digits.target), *map(read, places)]
    for name, X, y in real:
        sizes = tuple(max(int(s), 2) for s in X.max(0) + 1)
        found[name] = (lambda r, X=X, y=y: (X, y), sizes, int(y.max()) + 1)
    return found


def scores(p, y):
    """Of predictions `[n, I]`."""
    p = p / p.sum(-1, keepdims=True)
    top, hit = p.max(-1), p.argmax(-1) == y
    which = np.minimum((10 * top).astype(int), 9)
    gaps = [abs((hit - top)[which == b].sum()) for b in range(10)]
    loss = -np.log(np.maximum(p[np.arange(len(y)), y], 1e-300))
    return float(hit.mean()), float(loss.mean()), float(sum(gaps) / len(y))


def batch(source, epsilons, n_releases, n_test):
    """(Every budget's releases as one batch, budget by budget; the test records of each split)."""
    of, sizes, n_classes = source
    counts, scales, tests = [], [], []
    splits = []
    for r in range(n_releases):
        X, y = of(r)
        order = np.random.default_rng(r).permutation(len(y))
        cut = int(TRAINED * len(y))
        train, test = order[:cut], order[cut : cut + n_test]
        splits.append((X[train], y[train]))
        tests.append((X[test], y[test]))
    for epsilon in epsilons:
        for X, y in splits:
            made = pnb.release(
                X, y, epsilon_total=epsilon, n_categories=list(sizes), n_classes=n_classes
            )
            counts.append(np.asarray(made.counts, float))
            scales.append(np.broadcast_to(np.asarray(made.noise.scale, float), len(sizes)))
    mask = np.arange(max(sizes)) < np.asarray(sizes)[:, None]
    mask = np.broadcast_to(mask, (len(counts), *mask.shape))
    N = np.full(len(counts), float(len(splits[0][1])))
    return pnb.NoisyTables(np.stack(counts), N, pnb.Geometric(np.stack(scales)), mask), tests


def measure(name, source, epsilons, n_releases, n_test):
    """(A row for each release and method, processor seconds of all fits of each method)."""
    tables, tests = batch(source, epsilons, n_releases, n_test)
    every = np.concatenate([x for x, _ in tests])
    begins = np.cumsum([0, *(len(x) for x, _ in tests)])
    rows, took = [], {"table": name}
    for method, (fit, prior) in METHODS.items():
        begin = time.process_time()
        posterior = pnb.fit_many(tables, fit, prior=prior, progress=False)
        took[method] = time.process_time() - begin
        p = np.asarray(posterior.predict_proba(every))
        for place, (epsilon, r) in enumerate(itertools.product(epsilons, range(n_releases))):
            row = {"table": name, "epsilon_total": epsilon, "release": r, "method": method}
            own = scores(p[place, begins[r] : begins[r + 1]], tests[r][1])
            row |= zip(SCORES, own, strict=True)
            row["status"] = int(posterior.status[place])
            if prior == "learned":
                row["prior_status"] = int(posterior.prior_status[place])
                a = np.asarray(posterior.prior.feature[place, 0, :, 0])
                row["concentrations"] = [float(f"{x:.3g}") for x in a]
            rows.append(row)
        print(f"{name}: {method}, {took[method]:.0f} s", flush=True)
    return rows, took


def mean_and_error(values):
    values = np.asarray(values)
    return [float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)]


def summarise(rows):
    """Means, standard errors, and losses less those of `OURS` on the same release."""
    table = []
    cells = dict.fromkeys((r["table"], r["epsilon_total"]) for r in rows)
    for name, epsilon in cells:
        here = [r for r in rows if (r["table"], r["epsilon_total"]) == (name, epsilon)]
        of = {m: [r for r in here if r["method"] == m] for m in METHODS}
        for method, own in of.items():
            line = {"table": name, "epsilon_total": epsilon, "method": method}
            for score in SCORES:
                values = np.array([r[score] for r in own])
                line[score] = mean_and_error(values)
                less = values - np.array([r[score] for r in of[OURS]])
                line[f"{score}_less_learned"] = mean_and_error(less)
            line["failed"] = sum(r["status"] != 0 for r in own)
            line["not_learned"] = sum(bool(r.get("prior_status")) for r in own)
            table.append(line)
    return table


def markdown(table):
    lines = [
        "| table, epsilon | method | accuracy | log loss | log loss less exact learned's "
        "| calibration error |",
        "|---|---|---|---|---|---|",
    ]
    shown = lambda x: f"{x[0]:.3f} ± {x[1]:.3f}"  # noqa: E731
    for r in table:
        first = f"{r['table']}, {r['epsilon_total']:g}" if r["method"] == "naive" else ""
        less = "" if r["method"] == OURS else shown(r["log_loss_less_learned"])
        cells = (shown(r["accuracy"]), shown(r["log_loss"]), less, shown(r["calibration_error"]))
        lines.append(f"| {first} | {r['method']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE.csv[.gz][:CLASS]")
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--test", type=int, default=200, help="records predicted for each release")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--only", nargs="+", help="names of tables, of those there are")
    parser.add_argument("--name", default="learned_prior", help="of the files in bench/results")
    arguments = parser.parse_args()
    for name, source in sources(arguments.tables).items():
        if arguments.only is not None and name not in arguments.only:
            continue
        rows, took = measure(name, source, arguments.epsilons, arguments.releases, arguments.test)
        print(markdown(summarise(rows)), flush=True)
        keep(arguments.name, name, rows, took)


def keep(file, name, rows, took):
    """Put the rows of a table in the place of those that it had; other tables keep theirs."""
    path = RESULTS / f"{file}.json"
    known = json.loads(path.read_text()) if path.exists() else {"rows": [], "seconds": []}
    rows = [r for r in known["rows"] if r["table"] != name] + rows
    took = [r for r in known["seconds"] if r["table"] != name] + [took]
    table = summarise(rows)
    write(file, {"table": table, "seconds": took, "rows": rows})
    (RESULTS / f"{file}.md").write_text(markdown(table))


if __name__ == "__main__":
    main()
