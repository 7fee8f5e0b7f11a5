"""What is really published: calibration of the exact posterior, and what ignoring the fact does.

Parameters are drawn from the prior, so intervals must cover at their nominal rate in every case.
Beside each stands a fit that takes the same numbers for something that they are not.

    python bench/published.py [--replicates 2000] [--chunk 500] [--seed 0]
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

N, I, SIZES, B = 200, 2, (2, 2, 3), 10.0
LEVEL = 0.95


def simulated(key, size, noise=None, copy=0):
    """Replicates; `copy` names further noise on the same records."""
    from jaxprivnb.simulation import Replicate, simulate_replicates

    r = np.arange(size, dtype=np.int32)
    ids = Replicate(r, np.zeros_like(r), np.full_like(r, copy))
    noise = pnb.Laplace(B) if noise is None else noise
    return simulate_replicates(key, ids, n_records=N, n_classes=I, n_categories=SIZES, noise=noise)


def unknown_n(sim, key):
    """N is not known; ignored: it is taken to be the mean of the tables' totals."""
    m = np.where(sim.tables.real[..., None, :, :], sim.tables.counts, 0)
    total = np.maximum(np.round(m.sum((-3, -1)).mean(-1)), 0)
    return (
        dataclasses.replace(sim.tables, n_records=None),
        dataclasses.replace(sim.tables, n_records=jnp.asarray(total)),
    )


def two_releases(sim, key):
    """Two releases; ignored: their average is taken for one release of the same noise."""
    second = simulated(key, sim.counts.shape[0], copy=1).tables
    average = dataclasses.replace(sim.tables, counts=(sim.tables.counts + second.counts) / 2)
    return pnb.combine(sim.tables, second), average


def clamped(sim, key):
    """Gaussian noise, clamped to 0..N; ignored: taken for what came from the noise."""
    shown = jnp.clip(sim.tables.counts, 0, N)
    tables = sim.tables
    right = pnb.processed(shown, tables.n_records, tables.noise, clamp=(0, N), mask=tables.mask)
    return right, dataclasses.replace(tables, counts=shown)


def rounded(sim, key):
    """Rounded to multiples of 50; ignored: taken for what came from the noise."""
    shown = 50 * jnp.round(sim.tables.counts / 50)
    tables = sim.tables
    right = pnb.processed(shown, tables.n_records, tables.noise, grid=50, mask=tables.mask)
    return right, dataclasses.replace(tables, counts=shown)


def suppressed(sim, key):
    """Suppressed below 20; ignored: suppressed counts are taken for 0."""
    m, tables = np.asarray(sim.tables.counts), sim.tables
    shown = np.where(m < 20, np.nan, m)
    right = pnb.processed(shown, tables.n_records, tables.noise, threshold=20, mask=tables.mask)
    return right, dataclasses.replace(tables, counts=jnp.asarray(np.where(m < 20, 0, m)))


def holes(sim, key):
    """A fifth of the cells is not published; ignored: they are taken for 0."""
    m, tables = np.asarray(sim.tables.counts), sim.tables
    hidden = np.asarray(jax.random.bernoulli(key, 0.2, m.shape))
    right = pnb.processed(
        np.where(hidden, np.nan, m), tables.n_records, tables.noise, mask=tables.mask
    )
    return right, dataclasses.replace(tables, counts=jnp.asarray(np.where(hidden, 0, m)))


def class_totals(sim, key):
    """Class totals are public; ignored: not used, which is valid, and wider."""
    n = jnp.where(sim.tables.real[..., None, :, :], sim.counts, 0)[..., 0, :].sum(-1)
    return dataclasses.replace(sim.tables, class_totals=n), sim.tables


CASES = (unknown_n, two_releases, clamped, rounded, suppressed, holes, class_totals)
NOISES = {"clamped": pnb.Gaussian(B)}


def scores(fit, sim):
    """One array a quantity, the replicates first."""
    size, found = sim.counts.shape[0], {}
    rows = lambda x: np.asarray(x).reshape(size, -1)  # noqa: E731
    real = np.broadcast_to(np.asarray(fit.real), sim.counts.shape)
    count = jnp.where(real, sim.counts, 0)
    for what, truth, (low, high), cells in (
        ("P(Y)", sim.class_probs, fit.class_interval(LEVEL), None),
        ("P(X|Y)", sim.feature_probs, fit.feature_interval(LEVEL), real),
        ("counts", count, fit.count_interval(LEVEL), real),
    ):
        cells = np.ones(truth.shape, bool) if cells is None else cells
        inside = rows((low <= truth) & (truth <= high))
        each = rows(cells)
        share = lambda x, c=each: (x * c).sum(-1) / c.sum(-1)  # noqa: E731
        found[f"coverage of {what}"] = share(inside)
        found[f"width of {what}"] = share(rows(high - low))
    error = rows(jnp.square(fit.feature_mean - sim.feature_probs))
    found["squared error of P(X|Y)"] = (error * rows(real)).sum(-1) / rows(real).sum(-1)
    found["squared error of P(Y)"] = rows(jnp.square(fit.class_mean - sim.class_probs)).mean(-1)
    if fit.n_records_pmf is not None:
        low, high = fit.n_records_interval(LEVEL)
        found["coverage of N"] = np.asarray((low <= N) & (high >= N), float)
        found["width of N"] = np.asarray(high - low, float)
    found["failed"] = np.asarray(fit.status != 0, float)
    return found


def halving(key, replicates):
    """One row of two cells, N = 200, b = 20: one release, the average of two, and the product."""
    from jaxprivnb.simulation import Replicate, simulate_replicates

    r = np.arange(replicates, dtype=np.int32)
    make = lambda c: simulate_replicates(  # noqa: E731
        key, Replicate(r, 0 * r, 0 * r + c), n_records=N, n_classes=1, n_categories=(2,),
        noise=pnb.Laplace(20.0),
    )  # fmt: skip
    first, second = make(0), make(1)
    average = (first.tables.counts + second.tables.counts) / 2
    fits = {
        "one release": first.tables,
        "the average of two, as one": dataclasses.replace(first.tables, counts=average),
        "two releases": pnb.combine(first.tables, second.tables),
    }
    out = {}
    for name, tables in fits.items():
        mean = pnb.fit_many(tables, "exact", progress=False).feature_mean
        error = np.asarray(jnp.square(mean - first.feature_probs)).reshape(replicates, -1).mean(-1)
        out[name] = [float(error.mean()), float(error.std() / replicates**0.5)]
        print(f"{name:28} squared error of P(X|Y) {out[name][0]:.4f} ± {out[name][1]:.4f}")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    key = jax.random.key(arguments.seed)
    results = {"halving": halving(jax.random.fold_in(key, 99), arguments.replicates)}
    for number, case in enumerate(CASES):
        parts = {"taken in": [], "ignored": []}
        for c in range(-(-arguments.replicates // arguments.chunk)):
            own = jax.random.fold_in(jax.random.fold_in(key, number), c)
            noise = NOISES.get(case.__name__)
            sim = simulated(own, arguments.chunk, noise)
            extra = own if case is two_releases else jax.random.fold_in(own, 1)
            for name, tables in zip(parts, case(sim, extra), strict=True):
                fit = pnb.fit_many(tables, "exact", progress=False)
                parts[name].append(scores(fit, sim))
        own = {}
        for name, found in parts.items():
            every = {q: np.concatenate([x[q] for x in found]) for q in found[0]}
            own[name] = {
                q: [float(x.mean()), float(x.std() / len(x) ** 0.5)] for q, x in every.items()
            }
            shown = "  ".join(
                f"{q} {m:.3f}±{e:.3f}" for q, (m, e) in own[name].items() if "coverage" in q
            )
            print(f"{case.__name__:13} {name:9} {shown}", flush=True)
        results[case.__name__] = {"what": case.__doc__, **own}
    write("published", {"replicates": arguments.replicates, "level": LEVEL, "cases": results})


if __name__ == "__main__":
    main()
