"""What the benchmark scripts share: the paper's grid, and a stamped file of results."""

import json
import os
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxprivnb as pnb

RESULTS = Path(__file__).parent / "results"
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


def write(name, content):
    """Write bench/results/NAME.json with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    stamp = {
        "jaxprivnb": pnb.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "devices": [str(d) for d in jax.devices()],
        "date": time.strftime("%Y-%m-%d"),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"stamp": stamp, **content}, indent=1) + "\n")
    print(f"wrote {path.relative_to(Path(__file__).parent.parent)}")
