"""How fast is `fit_many` with VB, against a plain vmapped fit and against a SciPy loop?

    python bench/vb_throughput.py [--replicates 10000] [--sample 60] [--scipy 10] [--repeats 4]

I=2, K=5, J=2, N=200, epsilon in 0.01, 0.1, 1, float64. In one run and from the same starts, with
the same tolerance: `fit_many` on all replicates; `jax.vmap` of the paper's Armijo ascent (20
inner steps, no acceleration) on a sample; the paper's loop in NumPy and SciPy on a few, which are
others in each repeat. Compilation is not counted. All have one worker, and
times are the processor's: other work on the machine counts little, and a second core not at all.

The time of the loop is very uneven: a dataset that creeps to its optimum takes many times as long
as the median one. A ratio is that of means, and its spread that of the repeats; the median is given
too, for who times single fits (`make peers`).
"""

import argparse
from functools import partial

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import paper_loop  # noqa: E402
from common import processor_seconds, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.simplex import Armijo  # noqa: E402

TOL = 1e-9
N = 200
PLAIN = Armijo(rule="longest", inner_steps=20)


def looped(counts, b):
    """(milliseconds, bounds) of the paper's loop, one a dataset."""
    milliseconds, bounds = [], []
    for m in counts:
        seconds, found = processor_seconds(
            lambda m=m: paper_loop.fit(np.array(m), float(N), b, TOL)
        )
        milliseconds.append(1e3 * seconds)
        bounds.append(found[0])
    return np.array(milliseconds), np.array(bounds)


def measure(epsilon, arguments):
    """One row: every time, and the ratios of means with the least and the most of a repeat."""
    b = 2 / epsilon
    simulation = pnb.simulate(
        jax.random.key(3), n_records=N, shape=(arguments.replicates,), noise=pnb.Laplace(b)
    )
    tables = simulation.tables
    work = []
    fit = partial(pnb.fit_many, tables, "vb", tol=TOL, workers=1)
    fit(on_work=lambda *w: work.append(w))
    useful, executed = np.sum(work, axis=0)
    sample = jax.tree.map(lambda x: x[: arguments.sample], tables)
    plain = partial(pnb.fit_vb, solver=PLAIN, accelerate=False, tol=TOL)
    compiled = jax.jit(jax.vmap(plain)).lower(sample).compile()

    fit_ms, plain_ms, loop_ms, loop_bounds = [], [], [], []
    for repeat in range(arguments.repeats):
        seconds, many = processor_seconds(fit)
        fit_ms.append(1e3 * seconds / arguments.replicates)
        seconds, reference = processor_seconds(lambda: compiled(sample))
        plain_ms.append(1e3 * seconds / arguments.sample)
        here = slice(repeat * arguments.scipy, (repeat + 1) * arguments.scipy)
        milliseconds, bounds = looped(tables.counts[here], b)
        loop_ms.append(milliseconds)
        loop_bounds.append(bounds)

    loops = np.concatenate(loop_ms)
    gain = np.asarray(many.elbo[: arguments.sample] - reference.elbo)
    loop_gain = np.asarray(many.elbo[: loops.size]) - np.concatenate(loop_bounds)
    return {
        "epsilon": epsilon,
        "replicates": arguments.replicates,
        "repeats": arguments.repeats,
        "fit_many_ms": spread(fit_ms),
        "plain_armijo_ms": spread(plain_ms),
        "scipy_ms": spread([m.mean() for m in loop_ms]),
        "scipy_median_ms": float(np.median(loops)),
        "scipy_datasets": loops.size,
        "times_plain": spread(plain_ms, fit_ms),
        "times_scipy": spread([m.mean() for m in loop_ms], fit_ms),
        "mean_bound_gain": float(gain.mean()),
        "other_optimum_share": float(np.mean(np.abs(gain) > 1e-2)),
        "scipy_bound_gain": float(loop_gain.mean()),
        "utilisation": float(useful / executed),
        "mean_iterations": float(np.mean(many.iterations)),
        "plain_mean_iterations": float(np.mean(reference.iterations)),
        "failures": int(np.sum(np.asarray(many.status) != 0)),
    }


def spread(values, over=None):
    """The mean of all repeats, or a ratio of means, and the least and the most of one repeat."""
    values = np.asarray(values)
    over = np.ones_like(values) if over is None else np.asarray(over)
    each = values / over
    return {
        "all": float(values.mean() / over.mean()),
        "least": float(each.min()),
        "most": float(each.max()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--scipy", type=int, default=10, help="datasets of one repeat")
    parser.add_argument("--repeats", type=int, default=4)
    arguments = parser.parse_args()
    rows = []
    for epsilon in (0.01, 0.1, 1.0):
        row = measure(epsilon, arguments)
        rows.append(row)
        told = lambda key, row=row: "{all:.4g} ({least:.4g} to {most:.4g})".format(**row[key])  # noqa: E731
        print(
            f"epsilon {epsilon:g}: fit_many {told('fit_many_ms')} ms a fit; plain Armijo "
            f"{told('plain_armijo_ms')} ms, {told('times_plain')} times; SciPy loop "
            f"{told('scipy_ms')} ms, {told('times_scipy')} times, median "
            f"{row['scipy_median_ms']:.0f} ms; utilisation {row['utilisation']:.3f}; bound higher "
            f"by {row['mean_bound_gain']:.1e} on average; {row['other_optimum_share']:.1%} in "
            f"another optimum; {row['failures']} failures",
            flush=True,
        )
    write("vb_throughput", {"rows": rows})


if __name__ == "__main__":
    main()
