"""What the benchmark scripts share: the paper's grid, and a stamped file of results."""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxprivnb as pnb

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
SIZES = (50, 100, 200, 500)
EPSILONS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


def paper_grid(key, per_cell, dtype=jnp.float64, **options):
    """`per_cell` replicates of every (N, epsilon) of the paper, as one simulation."""
    cells = [(N, eps) for N in SIZES for eps in EPSILONS]
    parts = [
        pnb.simulate(
            jax.random.fold_in(key, c),
            n_records=N,
            noise=pnb.Laplace(2 / eps),
            shape=(per_cell,),
            dtype=dtype,
            **options,
        )
        for c, (N, eps) in enumerate(cells)
    ]
    return cells, jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def timed(f, repeat=1):
    """(the best wall-clock seconds of `repeat` calls, the last result)."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        result = jax.block_until_ready(f())
        best = min(best, time.perf_counter() - begin)
    return best, result


def processor_seconds(f):
    """(seconds that all threads of this process spend in one call, its result)."""
    begin = time.process_time()
    result = jax.block_until_ready(f())
    return time.process_time() - begin, result


def commit():
    """The commit that is measured, "+" where its code was changed since; None outside of git."""
    if shutil.which("git") is None:
        return None
    git = lambda *words: subprocess.run(  # noqa: E731
        ("git", *words), cwd=BENCH.parent, capture_output=True, text=True, check=False
    )
    head = git("rev-parse", "HEAD")
    if head.returncode:
        return None
    changed = git("status", "--porcelain", "--", "jaxprivnb", "bench", ":!bench/results").stdout
    return head.stdout.strip() + "+" * bool(changed)


def processor():
    """The model of the processor, or its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1] if named else platform.machine()


BEGIN, COMMIT = time.perf_counter(), commit()
"""When the script began, and what it then read: the working copy may move on."""


def stamp():
    """What a result was measured on, how, and in how many seconds."""
    return {
        "command": shlex.join(
            ["python", os.path.relpath(sys.argv[0], BENCH.parent), *sys.argv[1:]]
        ),
        "commit": COMMIT,
        "jaxprivnb": pnb.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "devices": [str(d) for d in jax.devices()],
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(time.perf_counter() - BEGIN, 1),
    }


def write(name, content):
    """Write bench/results/NAME.json, stamped."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"stamp": stamp(), **content}, indent=1) + "\n")
    print(f"wrote {path.relative_to(BENCH.parent)}")
