"""Every measurement, one after the other.

    python bench/run.py [NAME ...]     # all that take five minutes at most, if none is named
    python bench/run.py --long         # the others

Each script is a process of its own with its defaults, ends by itself and writes bench/results/. A
script that fails does not stop the rest; the exit status is 1.
"""

import argparse
import os
import subprocess
import sys
import time

from common import BENCH

LONG = 5
"""Minutes above which a script is a long one."""
MINUTES = {
    "accuracy": 1,
    "armijo_steps": 5,
    "calibration_exact": 2,
    "convergence": 5,
    "digits": 5,
    "exact_scale": 1,
    "exact_throughput": 1,
    "float32": 2,
    "fuzz": 120,
    "groups": 2,
    "growth": 5,
    "kill_resume": 4,
    "ladder": 10,
    "learned_prior": 6,
    "million": 4,
    "misspecified": 3,
    "monotone": 60,
    "open_questions": 1,
    "peers.run": 35,
    "plan": 4,
    "precision": 5,
    "privacy_audit": 25,
    "published": 6,
    "real_tables": 5,
    "synthetic": 2,
    "starts": 3,
    "super_parent": 3,
    "vb_throughput": 10,
}
"""About how long each takes on two cores; a dot is a module of a package."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MINUTES))
    parser.add_argument("--long", action="store_true", help=f"those of more than {LONG} minutes")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MINUTES)
    if unknown:
        parser.error(f"there is no script {sorted(unknown)[0]!r}; there are {', '.join(MINUTES)}")
    chosen = [name for name, minutes in MINUTES.items() if (minutes > LONG) == arguments.long]
    path = os.pathsep.join((str(BENCH), str(BENCH.parent)))
    failed = []
    for name in arguments.names or chosen:
        print(f"== {name}, about {MINUTES[name]} minutes", flush=True)
        begin = time.perf_counter()
        done = subprocess.run(
            (sys.executable, "-m", name),
            cwd=BENCH.parent,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
        print(f"== {name}, {(time.perf_counter() - begin) / 60:.1f} minutes", flush=True)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
