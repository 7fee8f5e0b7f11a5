"""Which assumption of the paper costs what: its bound, q(n) free, and the exact posterior.

The paper's q has two assumptions: parameters and tables are independent, and tables are
multinomial. Between its bound and the evidence stands q(p) q(n) with q(n) free. For parameters with
means E log p the best q(n) is the posterior of the tables under weights exp(l E log p) / l!, so

    bound = log Z(E log p) - KL(q(p) || prior),     q(p) = Dirichlet(a + E n),
    E n   = d log Z / d E log p,

with Z from the tree of the exact posterior: n! for a block, over n! for a class. A sweep is
E log p -> E n -> E log p; SQUAREM extrapolates it, and a point is kept where the bound does not
fall. The ascent starts at the paper's optimum, so that what it ends in is above it whichever of
the local optima that is.

    python bench/ladder.py [--replicates 10000] [--features 100] [--workers 2]
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import digamma, gammaln, logsumexp

jax.config.update("jax_enable_x64", True)

from common import EPSILONS, RESULTS, SIZES, write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402
from jaxprivnb.exact.groups import log_sums  # noqa: E402
from jaxprivnb.exact.windows import fast_length  # noqa: E402
from jaxprivnb.posterior import DirichletPosterior  # noqa: E402

RUNGS = ("paper", "free", "exact")
FEATURES = (2, 5, 10, 20)
FEATURE_EPSILONS = (0.01, 0.1, 1.0)
LANES = 64
CYCLES = 8
"""Of a segment; finished lanes then make room."""
MOST = 400
"""Cycles of three evaluations."""
TOLERANCE = 1e-11
"""Growth of the bound in a cycle, relative to 1 + |bound|, at which an ascent ends; and the square
of the largest step of log alpha."""
DOUBLINGS = 10


class Point(NamedTuple):
    """Dirichlet q(p), in logs, of P(Y) and of P(X|Y)."""

    log_class: jax.Array
    log_feature: jax.Array


class State(NamedTuple):
    """An ascent between two cycles."""

    at: Point
    tilt: jax.Array
    """theta, `[I, K]`."""
    n: jax.Array
    """E n_i, `[I]`."""
    bound: jax.Array
    """At the last point that was kept."""
    fall: jax.Array
    """Its largest fall."""
    cycles: jax.Array
    done: jax.Array


def log_p(point):
    """E log p under q(p): `[I]`, `[I, K, J]`."""
    alphas = jnp.exp(point.log_class), jnp.exp(point.log_feature)
    return [digamma(a) - digamma(a.sum(-1, keepdims=True)) for a in alphas]


def divergence(point):
    """KL(q(p) || prior) under the uniform prior."""
    total = 0.0
    for a, e in zip((jnp.exp(point.log_class), jnp.exp(point.log_feature)), log_p(point),
                    strict=True):  # fmt: skip
        J = a.shape[-1]
        normaliser = gammaln(a.sum(-1)) - gammaln(a).sum(-1) - gammaln(jnp.asarray(float(J)))
        total += (normaliser + ((a - 1) * e).sum(-1)).sum()
    return total


def log_weights(m, b, N, of_feature):
    """log f(m - l) - log l! + l E log p, `[I, K, J, N + 1]`."""
    l = jnp.arange(N + 1.0)
    noise = -jnp.abs(m[..., None] - l) / b - jnp.log(2 * b)
    return noise - gammaln(l + 1) + l * of_feature[..., None]


def log_classes(log_c, of_class, N):
    """log Z from log c_ik(n), `[I, K, N + 1]`."""
    n = jnp.arange(N + 1.0)
    log_h = n * of_class[:, None] - gammaln(n + 1) + (gammaln(n + 1) + log_c).sum(1)
    return gammaln(N + 1.0) + logsumexp(log_h[0] + log_h[1, ::-1])


def log_z(logs, m, b, N, tilt, n_class):
    """(log Z(E log p), the tilts that were used): two classes, blocks by tilted transforms."""
    of_class, of_feature = logs
    x = log_weights(m, b, N, of_feature)
    l = jnp.arange(N + 1.0)
    fixed, goal = lax.stop_gradient(x), lax.stop_gradient(n_class)[:, None]

    def newton(_, ends):
        """Safeguarded: a step that leaves the bracket becomes a bisection."""
        theta, low, high = ends
        p = jax.nn.softmax(fixed + theta[..., None, None] * l, axis=-1)
        mean = (p * l).sum(-1)
        spread = (p * jnp.square(l - mean[..., None])).sum((-1, -2))
        spread = jnp.maximum(spread, 1e-3)
        short, most = goal - mean.sum(-1), 1.5 / jnp.sqrt(spread)
        low, high = jnp.where(short > 0, theta, low), jnp.where(short > 0, high, theta)
        step = theta + jnp.clip(short / spread, -most, most)
        inside = (step >= low) & (step <= high)
        return jnp.where(inside, step, 0.5 * (low + high)), low, high

    wide = jnp.full_like(tilt, 60.0)
    tilt = lax.stop_gradient(lax.fori_loop(0, 16, newton, (tilt, -wide, wide))[0])
    tilted = x + tilt[..., None, None] * l
    scale = logsumexp(tilted, axis=-1)
    L = fast_length(2 * N + 2)
    spectra = jnp.fft.rfft(jnp.exp(tilted - scale[..., None]), n=L)
    c = jnp.fft.irfft(spectra.prod(2), n=L)[..., : N + 1]
    known = c > 1e-15 * c.max(-1, keepdims=True)
    log_c = jnp.where(known, jnp.log(jnp.where(known, c, 1)), -jnp.inf)
    log_c = log_c - tilt[..., None] * l + scale.sum(-1)[..., None]
    return log_classes(log_c, of_class, N), tilt


def log_z_in_logs(logs, m, b, N):
    """The same by sums in logs: slow, and right to rounding."""
    x = log_weights(m, b, N, logs[1])
    log_c = jax.vmap(jax.vmap(lambda y: log_sums(y[0], y[1], -1, N + 1)))(x)
    return log_classes(log_c, logs[0], N)


def evaluate(point, tilt, n_class, m, b, N):
    """(The bound, what the sweep makes of the point, tilts, E n_i)."""
    (value, tilt), (n, n_feature) = jax.value_and_grad(log_z, has_aux=True)(
        log_p(point), m, b, N, tilt, n_class
    )
    bound = value - divergence(point)
    swept = Point(jnp.log1p(jnp.maximum(n, 0)), jnp.log1p(jnp.maximum(n_feature, 0)))
    return bound, swept, tilt, n


def cycle(state, m, b, N):
    """Two sweeps, an extrapolation, and a sweep from there."""
    x0 = state.at
    bound_0, x1, tilt, n = evaluate(x0, state.tilt, state.n, m, b, N)
    bound_1, x2, tilt, n = evaluate(x1, tilt, n, m, b, N)
    r = jax.tree.map(lambda a, b: b - a, x0, x1)
    v = jax.tree.map(lambda b, c, d: c - b - d, x1, x2, r)
    size = lambda z: sum(jnp.square(y).sum() for y in z)  # noqa: E731
    longest = jnp.exp2(jnp.minimum(state.cycles, DOUBLINGS).astype(bound_0.dtype))
    s = jnp.clip(jnp.sqrt(size(r) / jnp.maximum(size(v), 1e-300)), 1, longest)
    far = jax.tree.map(lambda x, r, v: x + 2 * s * r + s * s * v, x0, r, v)
    far = jax.tree.map(lambda x: jnp.clip(x, -5, 12), far)
    bound_2, x3, far_tilt, far_n = evaluate(far, tilt, n, m, b, N)
    keep = bound_2 >= bound_1
    at = jax.tree.map(lambda a, b: jnp.where(keep, a, b), x3, x2)
    bound = jnp.where(keep, bound_2, bound_1)
    fall = jnp.maximum(state.bound - bound_0, bound_0 - bound_1)
    step = jnp.sqrt(jnp.maximum(*(jnp.square(y).max() for y in r)))
    small = (bound - bound_0 <= TOLERANCE * (1 + jnp.abs(bound))) & (step <= TOLERANCE**0.5)
    return State(
        at,
        jnp.where(keep, far_tilt, tilt),
        jnp.where(keep, far_n, n),
        bound,
        jnp.maximum(state.fall, fall),
        state.cycles + 1,
        small,
    )


@partial(jax.jit, static_argnames="N")
def segment(states, m, b, N):
    """A few cycles of every lane that is not done."""

    def one(state, m, b):
        def step(_, s):
            new = cycle(s, m, b, N)
            return jax.tree.map(lambda x, y: jnp.where(s.done, x, y), s, new)

        return lax.fori_loop(0, CYCLES, step, state)

    return jax.vmap(one)(states, m, b)


@partial(jax.jit, static_argnames="N")
def in_logs(point, m, b, N):
    """The bound at points, by sums in logs."""
    one = lambda p, m, b: log_z_in_logs(log_p(p), m, b, N) - divergence(p)  # noqa: E731
    return lax.map(lambda x: one(*x), (point, m, b))


def climb(vb, m, b, N):
    """The free ascents of a batch from the paper's optima: their final states."""
    R, K = len(m), m.shape[2]
    start = State(
        Point(np.log(vb.class_alpha), np.log(vb.feature_alpha)),
        # Without noise exp(l E log p) / l! has its mode about n_i under the tilt log n_i.
        np.log(np.repeat(np.asarray(vb.theta_class)[..., None] * N + 0.05, K, -1)),
        np.asarray(vb.theta_class) * N,
        np.full(R, -np.inf),
        np.zeros(R),
        np.zeros(R, np.int64),
        np.zeros(R, bool),
    )
    start = jax.tree.map(np.array, start)
    waiting, lanes = list(range(R)), []
    while waiting or lanes:
        lanes += [waiting.pop() for _ in range(min(LANES - len(lanes), len(waiting)))]
        rows = np.resize(np.asarray(lanes), LANES)
        begin = jax.tree.map(lambda x, rows=rows: x[rows], start)
        ran = jax.tree.map(np.asarray, segment(begin, m[rows], b[rows], N))
        for all_, some in zip(jax.tree.leaves(start), jax.tree.leaves(ran), strict=True):
            all_[rows] = some
        lanes = [r for r in lanes if not start.done[r] and start.cycles[r] < MOST]
    return start


def rung(fit, bound, n_class, sim, evidence):
    """What one rung says, one entry a replicate."""
    R = len(bound)
    found = {"gap": evidence - bound, "emptied": (n_class < 1).any(-1)}
    for name, mean, interval, truth in (
        ("class", fit.class_mean, fit.class_interval(0.95), sim.class_probs),
        ("feature", fit.feature_mean, fit.feature_interval(0.95), sim.feature_probs),
    ):
        found[f"{name}_error"] = np.square(mean - truth).reshape(R, -1).mean(-1)
        inside = (interval[0] <= truth) & (truth <= interval[1])
        found[f"{name}_coverage"] = inside.reshape(R, -1).mean(-1)
    return {name: np.asarray(x, np.float64) for name, x in found.items()}


def measure(key, N, epsilon, K, replicates):
    """All rungs on the same releases."""
    noise = pnb.Laplace(2 / epsilon)
    sim = pnb.simulate(
        key, n_records=N, n_categories=(2,) * K, noise=noise, shape=(replicates,)
    )  # fmt: skip
    m = np.asarray(sim.tables.counts)
    b = np.full(replicates, 2 / epsilon)
    vb, exact = (pnb.fit_many(sim.tables, name) for name in ("vb", "exact"))
    end = climb(vb, m, b, N)
    alpha = [np.exp(x) for x in end.at]
    free = DirichletPosterior(vb.mask, vb.status, *map(jnp.asarray, alpha))
    evidence = np.asarray(exact.log_evidence)
    rungs = {
        "paper": rung(vb, np.asarray(vb.elbo), np.asarray(vb.theta_class) * N, sim, evidence),
        "free": rung(free, end.bound, end.n, sim, evidence),
        "exact": rung(exact, evidence, np.asarray(exact.class_count_mean), sim, evidence),
    }
    some = slice(None, None, 20)
    rows = jax.tree.map(lambda x: x[some], (end.at, m, b))
    # The point moved on by the last sweep: no lower, and by no more than the tolerance.
    off = np.abs(np.asarray(in_logs(*rows, N)) - end.bound[some])
    cell = {
        "n_records": N,
        "epsilon": epsilon,
        "n_features": K,
        "replicates": replicates,
        "failed": int((np.asarray(exact.status) != 0).sum() + (np.asarray(vb.status) != 0).sum()),
        "unfinished": int((~end.done).sum()),
        "largest_fall": float(end.fall.max()),
        "largest_off": float(off.max()),
        "evaluations": [float(3 * end.cycles.mean()), int(3 * end.cycles.max())],
        "least_above_paper": float((end.bound - np.asarray(vb.elbo)).min()),
        "least_below_evidence": float((evidence - end.bound).min()),
        "truly_empty": float((np.asarray(sim.counts)[:, :, 0].sum(-1) < 1).any(-1).mean()),
    }
    for name, one in rungs.items():
        cell[name] = {
            q: [float(x.mean()), float(x.std(ddof=1) / np.sqrt(replicates))] for q, x in one.items()
        }
    print(
        f"N={N} eps={epsilon:g} K={K}: gap {cell['paper']['gap'][0]:.3g}, "
        f"{cell['free']['gap'][0]:.3g}; off {cell['largest_off']:.0e}, unfinished "
        f"{cell['unfinished']}, evaluations {cell['evaluations']}",
        flush=True,
    )
    return cell


def measure_all(cells):
    """Cells of one shape: a process compiles for its own alone."""
    return [measure(jax.random.key(seed), *cell) for seed, cell in cells]


def measured(seed):
    """Cells of an earlier run of the same seed in which every ascent ended, by what they are of."""
    path = RESULTS / "ladder.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    if before.get("seed") != seed:
        return {}
    whole = [c for c in before["grid"] + before["features"] if c["unfinished"] == 0]
    own = ("n_records", "epsilon", "n_features", "replicates")
    return {tuple(c[name] for name in own): c for c in whole}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=10_000, help="on the paper's grid")
    parser.add_argument("--features", type=int, default=100, help="for each K and epsilon")
    parser.add_argument("--n-records", type=int, nargs="*", default=SIZES, help="of the grid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--resume", action="store_true", help="keep cells that were measured")
    arguments = parser.parse_args()
    grid = [(N, epsilon, 5) for N in arguments.n_records for epsilon in EPSILONS]
    more = [(200, epsilon, K) for K in FEATURES for epsilon in FEATURE_EPSILONS]
    more = more if arguments.features else []
    per_cell = -(-arguments.replicates // len(grid))
    cells = [(*cell, per_cell) for cell in grid] + [(*cell, arguments.features) for cell in more]
    before = measured(arguments.seed) if arguments.resume else {}
    found, by_shape = {}, {}
    for number, cell in enumerate(cells):
        seed = 1000 * arguments.seed + number
        if cell in before:
            found[seed] = before[cell]
        else:
            by_shape.setdefault((cell[0], cell[2]), []).append((seed, cell))
    shapes = sorted(by_shape.values(), key=lambda own: -own[0][1][0] * own[0][1][2])
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        parts = pool.map(measure_all, shapes)
        for own, part in zip(shapes, parts, strict=True):
            for (seed, _), cell in zip(own, part, strict=True):
                found[seed] = cell
    ordered = [found[seed] for seed in sorted(found)]
    report = {
        "seed": arguments.seed,
        "grid": ordered[: len(grid)],
        "features": ordered[len(grid) :],
    }
    least = lambda q: min(cell[q] for cell in report["grid"])  # noqa: E731
    print(
        f"{per_cell * len(grid)} replicates of the paper's grid: free - paper >= "
        f"{least('least_above_paper'):.3g}, evidence - free >= {least('least_below_evidence'):.3g}"
    )
    write("ladder", report)


if __name__ == "__main__":
    main()
