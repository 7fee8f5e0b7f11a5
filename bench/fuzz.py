"""A long campaign of random problems against the referee in tests/reference.py.

    python bench/fuzz.py --cases 50000                    # all of it
    python bench/fuzz.py --first-seed 40 --minutes 10     # from a seed on, as far as time allows

A failing case (seed, index) comes back with `campaign.case_of(seed, index)`; see tests/campaign.py
for what is drawn and what is compared.
"""

import argparse
import sys
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from campaign import BOUNDS, Verdict, run_seed, spec_of  # noqa: E402
from common import write  # noqa: E402

SHOWN = 50
"""Failures of one kind that are written down."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=50_000, help="stop after so many datasets")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="or after so long")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=500, help="datasets of a seed (N to 60)")
    parser.add_argument("--singles", type=int, default=3, help="of them by fit_exact, too")
    parser.add_argument("--name", default="fuzz", help="bench/results/NAME.json")
    options = parser.parse_args()
    verdict, begin, seed, seconds = Verdict(), time.monotonic(), options.first_seed, {}
    while sum(verdict.cases.values()) < options.cases:
        if time.monotonic() - begin > 60 * options.minutes:
            break
        spec, start = spec_of(seed), time.monotonic()
        size = options.size if spec.most_records <= 60 else max(1, options.size // 20)
        run_seed(verdict, seed, size, options.singles)
        seconds[seed] = round(time.monotonic() - start, 1)
        seed += 1
        print(
            f"seed {seed - 1} {'x'.join(map(str, spec.shape))} {spec.noise} {spec.dtype} "
            f"{seconds[seed - 1]:.0f} s: {sum(verdict.cases.values())} cases, "
            f"{dict(verdict.failed) or 'no failures'}",
            flush=True,
        )
        jax.clear_caches()
        save(options, verdict, seed, seconds)
    return 1 if verdict.failures else 0


def save(options, verdict, next_seed, seconds):
    totals = {}
    for key, count in verdict.statuses.items():
        group = key.rsplit(" ", 1)[0]
        totals[key] = {"datasets": count, "share": count / verdict.cases[group]}
    shown: dict = {}
    for failure in verdict.failures:
        kind = shown.setdefault(failure.category, [])
        if len(kind) < SHOWN:
            kind.append(failure._asdict())
    write(
        options.name,
        {
            "seeds": [options.first_seed, next_seed - 1],
            "datasets_a_seed": options.size,
            "seconds": seconds,
            "bounds": {dtype: bounds._asdict() for dtype, bounds in BOUNDS.items()},
            "cases": dict(verdict.cases),
            "statuses": totals,
            "worst": {
                key: dict(zip(("error", "seed", "index", "by"), value, strict=True))
                for key, value in verdict.worst.items()
            },
            "failed": dict(verdict.failed),
            "failures": shown,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
