"""An attempt to refute the privacy of `release` on neighbouring datasets.

    python bench/privacy_audit.py [--draws 200000] [--contributions 3]

Two datasets differ in c records, replaced or removed. Each is released many times, through the
public function, and events of the form {log-likelihood ratio >= t} are counted. If P(E | D) >
exp(epsilon) P(E | D') + delta for some event then the claim is false; Clopper-Pearson bounds,
Bonferroni over all events, turn the counts into a lower bound of epsilon that holds with
probability 0.999. Under a true claim it stays below the claimed epsilon. The same audit with a
fault planted must find a violation, or it could not have found anything: noise that is half as wide
as it should be, or data that differ in another way than the release was told.

One call makes many draws: the records are repeated in blocks, each block with categories of its
own, and the noise is independent from cell to cell. So a block's cells are a release of the block.
"""

import argparse
import math
import time

import numpy as np
from common import write
from scipy import stats

import jaxprivnb as pnb
from jaxprivnb.privacy import mechanism

# (class, category of feature 1, category of feature 2); neighbours differ in the last c records.
RECORDS = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
OTHER = np.array([1, 1, 1])
REPLACE, REMOVE = {"neighbours": "replace"}, {"neighbours": "add-remove"}
THREE = {"contributions": 3}
# A budget, what the release is told of neighbours, and how the data really differ.
CASES = (
    ({"epsilon_total": 1.0}, REPLACE, REPLACE),
    ({"epsilon_per_table": 0.1}, REPLACE, REPLACE),
    ({"rho_total": 0.5}, REPLACE, REPLACE),
    ({"epsilon_total": 1.0}, REMOVE, REMOVE),
    ({"rho_total": 0.5}, REMOVE, REMOVE),
    ({"epsilon_total": 1.0}, REPLACE | THREE, REPLACE | THREE),
    ({"rho_total": 0.5}, REPLACE | THREE, REPLACE | THREE),
    ({"epsilon_total": 1.0}, REMOVE | THREE, REMOVE | THREE),
    ({"epsilon_total": 1.0}, REMOVE, REPLACE),
    ({"epsilon_total": 1.0}, REPLACE, REPLACE | THREE),
    ({"rho_total": 0.5}, REMOVE, REMOVE | THREE),
)
BLOCKS = 200_000
CONFIDENCE = 0.999
DELTA = 1e-5


def neighbour(neighbours, contributions=1):
    """The dataset that differs from RECORDS in this way."""
    kept = RECORDS[:-contributions]
    if neighbours == "add-remove":
        return kept
    return np.concatenate([kept, np.tile(OTHER, (contributions, 1))])


def draws(records, n, options):
    """Noisy tables m `[n, 2 features, 2 classes, 2 categories]` of `n` releases of the records."""
    parts = []
    for begin in range(0, n, BLOCKS):
        blocks = min(BLOCKS, n - begin)
        first = 2 * np.arange(blocks)[:, None]
        columns = [(first + records[:, k]).ravel() for k in (1, 2)]
        released = pnb.release(
            np.stack(columns, -1),
            np.tile(records[:, 0], blocks),
            n_categories=2 * blocks,
            n_classes=2,
            **options,
        )
        cells = released.integers.reshape(2, 2, blocks, 2)  # class, feature, block, category
        parts.append(cells.transpose(2, 1, 0, 3))
    return np.concatenate(parts), released


def true_counts(records):
    counts = np.zeros((2, 2, 2), int)
    for y, *x in records:
        for k in (0, 1):
            counts[k, y, x[k]] += 1
    return counts


def log_ratio(m, released, other):
    """log P(m | RECORDS) / P(m | other) under the claimed noise, `[n]`."""
    scale = np.asarray(released.guarantee.scales)[:, None, None]
    if released.guarantee.measure == "epsilon":
        log_kernel = lambda x: -np.abs(x) / scale  # noqa: E731
    else:
        log_kernel = lambda x: -0.5 * (x / scale) ** 2  # noqa: E731
    difference = log_kernel(m - true_counts(RECORDS)) - log_kernel(m - true_counts(other))
    return difference.sum((1, 2, 3))


def epsilon_lower(here, there, delta, thresholds, n_events):
    """Largest epsilon that the counts of {ratio >= t} refute, and the event that does."""
    n, tail = len(here), (1 - CONFIDENCE) / (2 * n_events)
    a = np.array([(here >= t).sum() for t in thresholds])
    b = np.array([(there >= t).sum() for t in thresholds])
    lower = np.where(a > 0, stats.beta.ppf(tail, np.maximum(a, 1), n - a + 1), 0.0)
    upper = np.where(b < n, stats.beta.ppf(1 - tail, b + 1, np.maximum(n - b, 1)), 1.0)
    epsilon = np.log(np.maximum(lower - delta, 1e-300) / upper)
    best = int(epsilon.argmax())
    return float(epsilon[best]), float(thresholds[best])


def audit(n, budget, told, really):
    begin = time.perf_counter()
    other = neighbour(**really)
    (m, released), (m_neighbour, _) = (draws(r, n, budget | told) for r in (RECORDS, other))
    promise = released.guarantee
    delta = 0.0 if promise.measure == "epsilon" else DELTA
    claimed = promise.epsilon(delta)
    here, there = log_ratio(m, released, other), log_ratio(m_neighbour, released, other)
    # Fixed before the draws are seen; a little below the largest ratio, to be clear of rounding.
    thresholds = np.linspace(-claimed, claimed, 41) - 1e-6
    n_events = 2 * len(thresholds)
    found = [
        epsilon_lower(here, there, delta, thresholds, n_events),
        epsilon_lower(-there, -here, delta, thresholds, n_events),
    ]
    lower, threshold = max(found)
    return {
        "budget": budget,
        "told": told,
        "really": really,
        "delta": delta,
        "epsilon_claimed": claimed,
        "epsilon_lower_bound": lower,
        "threshold": threshold,
        "violation": lower > claimed,
        "draws_per_dataset": n,
        "seconds": time.perf_counter() - begin,
    }


def halved(measure, scale, real=mechanism.measurement):
    """The measurement with half the noise that its budget needs."""
    return real(measure, scale / 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200_000, help="of each dataset")
    parser.add_argument(
        "--contributions", type=int, help="only cases told of so many records (default: all)"
    )
    arguments = parser.parse_args()
    only = arguments.contributions
    cases = [c for c in CASES if only in (None, c[1].get("contributions", 1))]
    if not cases:
        parser.error(f"no case is told of {only} contributions")
    rows = []
    real, real_calibrate = mechanism.measurement, mechanism.calibrate
    for budget, told, really in cases:
        for halve in (False, True) if told == really else (False,):
            if halve:
                # Calibration is left as it is: the claim stays, the noise does not keep it.
                def calibrate(request):
                    mechanism.measurement = real
                    calibration = real_calibrate(request)
                    mechanism.measurement = halved
                    return calibration

                mechanism.calibrate = calibrate
            try:
                row = {"noise_halved": halve, **audit(arguments.draws, budget, told, really)}
            finally:
                mechanism.measurement, mechanism.calibrate = real, real_calibrate
            rows.append(row | {"fault_planted": halve or told != really})
            noise = "halved" if halve else "as released"
            print(
                f"{budget}, told {told}, really {really}, noise {noise}: claimed epsilon "
                f"{row['epsilon_claimed']:.4f}, at least {row['epsilon_lower_bound']:.4f}: "
                f"{'VIOLATION' if row['violation'] else 'no violation'} ({row['seconds']:.0f} s)",
                flush=True,
            )
    good = all(row["violation"] == row["fault_planted"] for row in rows)
    assert all(math.isfinite(row["epsilon_lower_bound"]) for row in rows)
    write(
        "privacy_audit" if only is None else f"privacy_audit_contributions_{only}",
        {
            "opendp": mechanism.opendp_version(),
            "confidence": CONFIDENCE,
            "as_expected": good,
            "rows": rows,
        },
    )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
