"""What does the exact posterior cost on tables of the size that people have?

    python bench/real_tables.py [--rows titanic adult ...] [--repeats 3]

Simulated tables of the shapes of well-known data and of three large designs, Laplace noise of scale
b, float64. Each row runs in a process of its own: the first and the warm seconds of a fit, of 95%
intervals of all parameters, of predictions for 1,000 records and of 1,000 draws, and peak memory;
and the fit of the same tables without N.
Answers are kept on a posterior, so every warm time is that of a fresh fit. The unit is the bare
transforms of that table, timed in the same process: one rfft and one irfft of the fit's own length
for every real cell. Multiples are of processor seconds, which other work on a machine leaves alone,
and of those that passed. Only a run of all rows is written to bench/results/.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import processor_seconds, timed, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

MUSHROOM = (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 2, 4, 3, 5, 9, 6, 7)
ADULT = (9, 16, 7, 15, 6, 5, 2, 42)
ROWS = {
    "titanic": {"N": 891, "I": 2, "J": (3, 2, 8, 6, 5, 3, 4), "b": 16.0},
    "mushroom": {"N": 8_124, "I": 2, "J": MUSHROOM, "b": 46.0},
    "adult": {"N": 32_561, "I": 2, "J": ADULT, "b": 18.0},
    "adult-noisy": {"N": 32_561, "I": 2, "J": ADULT, "b": 180.0},
    "four-classes": {"N": 10_000, "I": 4, "J": (5,) * 20, "b": 40.0},
    "million": {"N": 1_000_000, "I": 2, "J": (10,) * 10, "b": 22.0},
}
QUESTIONS = ("fit", "intervals", "predict", "draws")
MANY = 1_000


def tables_of(N, I, J, b):
    """The model in plain NumPy, and records to predict: `(NoisyTables, int [MANY, K])`."""
    rng = np.random.default_rng(0)
    per_class = rng.multinomial(N, rng.dirichlet(np.ones(I)))
    counts = np.zeros((I, len(J), max(J)))
    mask = np.arange(max(J)) < np.asarray(J)[:, None]
    for k, size in enumerate(J):
        probs = rng.dirichlet(np.ones(size), I)
        counts[:, k, :size] = rng.multinomial(per_class, probs) + rng.laplace(0, b, (I, size))
    records = rng.integers(0, J, (MANY, len(J)))
    return pnb.NoisyTables(counts, N, pnb.Laplace(b), mask), records


def spent(f):
    """([seconds that passed, processor seconds of all threads], the result)."""
    begin = time.perf_counter()
    processor, result = processor_seconds(f)
    return np.array([time.perf_counter() - begin, processor]), result


def bare_transforms(length, n_cells):
    """One rfft and one irfft for every real cell, as a function to time."""
    cells = jnp.asarray(np.random.default_rng(1).uniform(size=(n_cells, length)))
    there = jax.jit(jnp.fft.rfft)
    back = jax.jit(lambda spectrum: jnp.fft.irfft(spectrum, n=length))
    return lambda: back(there(cells))


def answers(tables, records):
    """What each of `QUESTIONS` about a fresh fit took, as `spent`, and the fit."""
    key = jax.random.key(1)
    took = {}
    took["fit"], fit = spent(lambda: pnb.fit_exact(tables))
    ask = {
        "intervals": lambda: (fit.class_interval(0.95), fit.feature_interval(0.95)),
        "predict": lambda: fit.predict_proba(records),
        "draws": lambda: fit.sample(key, MANY),
    }
    for name, question in ask.items():
        took[name], _ = spent(question)
    return took, fit


def measure(name, repeats):
    """One row of the table."""
    design = ROWS[name]
    tables, records = tables_of(**design)
    cold, fit = answers(tables, records)
    path = fit.path.questions
    n_cells = design["I"] * sum(design["J"])
    transforms = bare_transforms(path.length, n_cells)
    transforms()
    warm, units = [], []
    for _ in range(repeats):
        warm.append(answers(tables, records)[0])
        units += [spent(transforms)[0] for _ in range(5)]
    unit = np.min(units, axis=0)
    best = {q: np.min([took[q] for took in warm], axis=0) for q in QUESTIONS}
    of = lambda clock: {q: float((best[q] / unit)[clock]) for q in QUESTIONS}  # noqa: E731
    hidden = dataclasses.replace(tables, n_records=None)
    without_n = [timed(lambda: pnb.fit_exact(hidden).feature_mean)[0] for _ in range(1 + repeats)]
    return {
        "name": name,
        **design,
        "cells": n_cells,
        "length": path.length,
        "tilts": path.tilts,
        "status": int(fit.status),
        "lost_mass": float(fit.lost_mass),
        "cold_seconds": {q: float(cold[q][0]) for q in QUESTIONS},
        "warm_seconds": {q: float(best[q][0]) for q in QUESTIONS},
        "without_n_seconds": {"cold": without_n[0], "warm": min(without_n[1:])},
        "without_n_status": int(pnb.fit_exact(hidden).status),
        "without_n_times_fit": float(min(without_n[1:]) / best["fit"][0]),
        "transforms_seconds": float(unit[0]),
        "times_transforms": of(1),
        "passed_times_transforms": of(0),
        "repeats": repeats,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def show(row):
    """One line of the printed table."""
    asked = "  ".join(
        f"{q} {row['cold_seconds'][q]:6.2f} {row['warm_seconds'][q]:7.3f} s "
        f"{row['times_transforms'][q]:5.0f} x"
        for q in QUESTIONS
    )
    print(
        f"{row['name']:12}  {asked}  peak {row['peak_gib']:.2f} GiB  transforms "
        f"{1e3 * row['transforms_seconds']:.2f} ms  lost {row['lost_mass']:.0e}  "
        f"status {row['status']}  without N {row['without_n_times_fit']:.2f} of the fit",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument(
        "--repeats", type=int, default=3, help="warm fits, of which the best counts"
    )
    parser.add_argument("--json", action="store_true", help="one row as JSON, nothing written")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(measure(arguments.rows[0], arguments.repeats)))
        return
    rows = []
    print("cold and warm seconds, and the processor's as multiples of the bare transforms")
    for name in arguments.rows:
        command = [sys.executable, __file__, "--json", "--rows", name]
        command += ["--repeats", str(arguments.repeats)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        show(rows[-1])
    if len(rows) == len(ROWS):
        write("real_tables", {"rows": rows})


if __name__ == "__main__":
    main()
