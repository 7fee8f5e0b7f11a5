"""What a target of precision saves, and whether the errors that it reaches are what they say.

    python bench/precision.py [--target 0.01] [--studies 200]

A grid runs until the Monte Carlo error of squared error is a given share of its mean for every
method in every cell. The fixed design that reaches it everywhere has, in every cell, what the worst
cell needed; the ratio of the two numbers of replicates is what is saved. Then many small studies
that differ in their seeds alone stop by the same rule: the spread of their means is the true error.
"""

import argparse
import dataclasses
import tempfile

import numpy as np
from common import write

from jaxprivnb.study.load import read_study_rows
from jaxprivnb.study.missing import study_status
from jaxprivnb.study.run import run_study
from jaxprivnb.study.specfile import parse_spec
from jaxprivnb.study.summary import summarise

GRID = """\
name = "precision"
seed = 1
chunk_size = 2048
interval_every = 1000000

[grid]
n_records = [50, 500]
epsilon_per_table = [0.01, 0.1, 1.0]
n_features = 5

[replicates]
parameters = 100

[precision]
relative = {{ se_feature = {target} }}
max_replicates = 1000000

[methods.naive]
[methods.bayes]
"""
SMALL = """\
name = "small"
chunk_size = 2048
interval_every = 1000000

[grid]
n_records = 100
epsilon_per_table = [0.03, 0.3]
n_features = 2

[replicates]
parameters = 30
datasets = 2

[precision]
relative = {{ se_class = {target} }}
max_replicates = 100000

[methods.naive]
[methods.bayes]
"""


def saved(target):
    """How many replicates the cells of a grid needed."""
    with tempfile.TemporaryDirectory() as out:
        outcome = run_study(parse_spec(GRID.format(target=target)), out, display="log")
        status = study_status(out)
        rows = read_study_rows(out)
    assert status.complete
    assert all(look.met for look in status.looks.values())
    summary = summarise(rows)
    needed = [look.replicates for look in status.looks.values()]
    largest = float((summary.se["se_feature"] / summary.mean["se_feature"]).max())
    assert largest <= target
    return {
        "cells": len(needed),
        "replicates": sum(needed),
        "fewest": min(needed),
        "most": max(needed),
        "fixed": len(needed) * max(needed),
        "factor": len(needed) * max(needed) / sum(needed),
        "largest_error": largest,
        "seconds": outcome.seconds,
    }


def agreement(target, studies):
    """Errors that studies state against the spread of their means, by cell and method."""
    spec = parse_spec(SMALL.format(target=target))
    means, errors, sizes = [], [], []
    for seed in range(studies):
        with tempfile.TemporaryDirectory() as out:
            run_study(dataclasses.replace(spec, seed=seed), out)
            summary = summarise(read_study_rows(out))
        means.append(summary.mean["se_class"])
        errors.append(summary.se["se_class"])
        sizes.append(summary.replicates)
    means, errors, sizes = (np.array(x) for x in (means, errors, sizes))
    centre = np.average(means, axis=0, weights=sizes)  # of all replicates there are
    spread = np.sqrt(((means - centre) ** 2).sum(0) / (studies - 1))
    stated = np.sqrt((errors**2).mean(0))
    inside = np.abs(means - centre) <= 1.96 * errors
    return [
        {
            "cell": int(cell),
            "method": spec.arms[method].label,
            "spread_over_stated": float(spread[g] / stated[g]),
            "spread_over_asked": float(spread[g] / centre[g] / target),
            "bias_over_asked": float((means[:, g].mean() - centre[g]) / centre[g] / target),
            "coverage_95": float(inside[:, g].mean()),
            "replicates": float(sizes[:, g].mean()),
        }
        for g, (cell, method) in enumerate(zip(summary.cell, summary.method, strict=True))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--small-target", type=float, default=0.1)
    options = parser.parse_args()
    spread = agreement(options.small_target, options.studies)
    for row in spread:
        print(row, flush=True)
    grid = saved(options.target)
    print(grid)
    write(
        "precision",
        {
            "target": options.target,
            "grid": grid,
            "studies": options.studies,
            "small_target": options.small_target,
            "spread": spread,
        },
    )


if __name__ == "__main__":
    main()
