"""Where the mass is: class counts, the tilts that make them likely, and the windows of cells.

Under an exponential tilt the weights of a block's cells are w_j(l) exp(theta l), and their
convolution is c(n) exp(theta n). With theta such that the tilted means of the cells add up to n,
the entries about n are the largest ones of the convolution, and come out of Fourier transforms to
full relative precision. Any theta is right, only the conditioning changes: so what is computed here
is approximate, on a few counts a cell, and nothing is differentiated through it.
"""

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxprivnb.exact.dataset import Dataset, dataset
from jaxprivnb.tables import NoisyTables, Prior

DEPTH = {8: 37.0, 4: 20.0}
"""Nats by which tilted weights have fallen at the edges of their windows, by bytes of a float."""
_STAGES = 4
"""Times that counts are looked at: about the noisy ones, then about the means found so far."""
_STEPS = 8
"""Newton steps for theta in each stage."""
_LEAST = -1e30
"""Stands for log 0 in sums over a few counts, where infinities would meet."""


class Aim(NamedTuple):
    """One tilt a block, and the cells under it; a leading axis M where there are several."""

    tilt: jax.Array
    """theta, `[I, K]`."""
    centre: jax.Array
    """Whole numbers near the tilted mean counts, `[I, K, J]`."""
    low: jax.Array
    high: jax.Array
    """Counts between which the tilted weight is within `DEPTH` of its largest, `[I, K, J]`."""
    sd: jax.Array
    """Of the block's tilted total, `[I, K]`."""


class Aims(NamedTuple):
    """Where the class counts are expected, and the tilts that are aimed at them."""

    centre: jax.Array
    """`[I]`; they add up to N, but for those near its ends."""
    reach: jax.Array
    """Distance from there that holds all of the posterior but rounding, `[I]`."""
    sd: jax.Array
    """About their standard deviations, `[I]`."""
    aim: Aim | None = None
    """M tilts across that reach; None: yet to be found."""


@dataclasses.dataclass(frozen=True)
class Scout:
    """How aims are looked for: all of a path that its lengths have no part in; hashable."""

    offsets: int
    """Of `aim_at`."""
    flat: bool
    """All concentrations of P(X_k | Y) are 1."""
    tilts: int = 1
    """M, aimed at counts across the reach."""
    everywhere: bool = False
    """All but three are aimed across 0..N, whatever is known of the posterior's place."""

    def aims(self, data: Dataset, known: Aims | None = None) -> Aims:
        """From the tables' totals, the prior and N, if nothing better is known."""
        known = class_centre(data) if known is None else known
        centre, reach = known.centre, known.reach
        across = self.tilts - 3 if self.everywhere else 0
        steps = _steps(self.tilts - across, centre.dtype)
        goals = jnp.clip(centre + steps[:, None] * reach, 0, data.n_records)  # [M, I]
        if across:
            whole = jnp.broadcast_to(data.n_records / 2, centre.shape)
            left, right = jnp.split(whole + _steps(across, centre.dtype)[:, None] * whole, 2)
            goals = jnp.concatenate([left, goals, right])
        aim = jax.vmap(lambda n: aim_at(data, n, self.offsets, flat=self.flat))(goals)
        return Aims(centre, reach, known.sd, aim)


def _steps(M: int, dtype: jnp.dtype) -> jax.Array:
    """M steps between -1 and 1, as far from each other as from these; 0 if it is only one."""
    return jnp.linspace(-1, 1, M + 2, dtype=dtype)[1:-1]


def look(tables: NoisyTables, prior: Prior, scout: Scout, known: Aims | None = None) -> Aims:
    """The aims of one valid dataset, by programs that paths of all lengths share."""
    return _aims(tables, prior, scout, _centre(tables, prior) if known is None else known)


@jax.jit
def _centre(tables: NoisyTables, prior: Prior) -> Aims:
    return class_centre(dataset(tables, prior))


@partial(jax.jit, static_argnames="scout")
def _aims(tables: NoisyTables, prior: Prior, scout: Scout, known: Aims) -> Aims:
    return scout.aims(dataset(tables, prior), known)


def depth(dtype: jnp.dtype) -> float:
    """Nats below the largest entry that are worth keeping."""
    return DEPTH[jnp.dtype(dtype).itemsize]


def class_centre(data: Dataset) -> Aims:
    """Class counts that suit the tables' totals, the prior and N, without a look at any count."""
    N = data.n_records if data.log_n is None else data.top
    m, a_class = jnp.where(data.real, data.centre, 0), data.a_class
    J = data.real.sum(-1).astype(m.dtype)  # [I, K]
    square = jnp.where(data.real, jnp.square(data.scale), 0).sum(-1)
    scale = jnp.sqrt(square / jnp.maximum(J, 1))  # [I, K]
    within = (scale * J)[..., None]
    total = jnp.clip(m, -within, N + within).sum(-1)  # [I, K]; far outside says no more than near
    precision = 1 / (2 * square)  # [I, K]
    s = a_class.sum()
    if data.log_n is None:
        share = a_class / s
        expected = N * share
        weight = 1 / (expected * (1 - share) * ((N + s) / (1 + s)) + 1)
    else:
        expected = weight = jnp.zeros_like(a_class)
    whole = weight + precision.sum(-1)
    mean = (weight * expected + (total * precision).sum(-1)) / whole  # [I]
    # Under noise with long tails a table that contradicts the others is best ignored.
    places = jnp.concatenate([mean[:, None], jnp.clip(total, 0, N)], axis=1)  # [I, 1 + K]
    gap = (total[:, None, :] - places[..., None]) / J[:, None]
    height = (J[:, None] * _log_falls(data, gap, scale[:, None])).sum(-1)
    height = height - 0.5 * weight[:, None] * jnp.square(places - expected[:, None])
    best = jnp.argmax(height, axis=1)
    mean = jnp.take_along_axis(places, best[:, None], axis=1)[:, 0]
    variance = 1 / whole
    missing = jnp.zeros_like(N)
    if data.class_totals is not None:
        public = jnp.isfinite(data.class_totals)
        mean = jnp.where(public, data.class_totals, mean)
        variance = jnp.where(public, 1e-6 * jnp.min(variance), variance)
    alone = mean
    if data.groups:
        mean = _with_groups(data, mean, variance, N)
    if data.log_n is None:
        missing = N - mean.sum()
        for _ in range(4):
            short = N - mean.sum()
            room = jnp.where(jnp.where(short > 0, mean < N, mean > 0), variance, 0)
            mean = jnp.clip(mean + short * room / jnp.maximum(room.sum(), 1e-30), 0, N)
    # At an end of 0..N nothing but the end itself would stand out of the rounding.
    inset = jnp.minimum(jnp.sqrt(variance), N / 4)
    mean = jnp.clip(mean, inset, N - inset)
    spread = jnp.sqrt((jnp.square(total - mean[:, None]) * precision).sum(-1) / precision.sum(-1))
    reach = _fall_to(data, J, scale) + 4 * jnp.sqrt(variance) + jnp.abs(missing)
    # Tables that disagree by far more than their noise leave the mode anywhere between them.
    odd = jnp.maximum(spread - 4 / jnp.sqrt(precision.max(-1)), 0)
    if data.groups:
        odd = odd + jnp.abs(mean - alone)
    return Aims(mean, jnp.minimum(reach + 2 * odd, N + 1), jnp.sqrt(variance))


def _with_groups(data: Dataset, mean: jax.Array, variance: jax.Array, N: jax.Array) -> jax.Array:
    """Class counts `[I]` between what each is thought to be, the groups' totals, and N: as if all
    noise were normal.
    """
    least = jnp.min(variance)
    precision, pull = jnp.diag(1 / variance), mean / variance

    def add(classes: tuple[int, ...], total: jax.Array, square: jax.Array) -> None:
        nonlocal precision, pull
        own = np.zeros(len(mean), mean.dtype)
        own[list(classes)] = 1
        precision = precision + np.outer(own, own) / square
        pull = pull + own * total / square

    for group in data.groups:
        scales = jax.tree.leaves(group.noise)
        square = 2 * jnp.square(scales[0]) if scales else jnp.zeros_like(least)
        add(group.classes, group.likeliest(N), jnp.maximum(square, 1e-4 * least))
    if data.log_n is None:
        add(tuple(range(len(mean))), N, 1e-4 * least)
    return jnp.clip(jnp.linalg.solve(precision, pull), 0, N)


def _log_falls(data: Dataset, x: jax.Array, scale: jax.Array) -> jax.Array:
    """About log f(x) - log f(0) of a cell of each block, for blocks on the last two axes.

    Of one release its noise's own; of several, which fall faster, that of Laplace noise.
    """
    noise = data.seen[0].noise
    if len(data.seen) > 1 or data.seen[0].high is not None:
        return -jnp.abs(x) / scale
    noise = jax.tree.map(lambda s: s if s.ndim == 0 else s[..., 0], noise)
    return noise.log_prob(x) - noise.log_prob(jnp.zeros_like(x))


def _fall_to(data: Dataset, J: jax.Array, scale: jax.Array) -> jax.Array:
    """The distance from all tables' totals at which their messages have fallen by `depth`, `[I]`.

    At distance x from its total a table of J cells has about J log f(x / J) and, from the number of
    ways to be that far, (J - 1) log(1 + x / (J b)).
    """
    D = depth(data.a.dtype)

    def fall(x: jax.Array) -> jax.Array:
        gap = x[:, None] / J
        height = _log_falls(data, gap, scale)
        return -(J * height + (J - 1) * jnp.log1p(gap / scale)).sum(-1)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        far = fall(middle) > D
        return jnp.where(far, low, middle), jnp.where(far, middle, high)

    one = jnp.ones_like(data.a_class)
    return lax.fori_loop(0, 20, halve, (one, one * (data.n_records + 2)))[1]


def aim_at(data: Dataset, n: jax.Array, offsets: int, *, flat: bool) -> Aim:
    """Tilts under which the cells of every block add up to n.

    Args:
        data: one dataset.
        n: class counts to make likely, `[I]`.
        offsets: how many distances 1, 2, 4, ... from a cell's middle are looked at.
        flat: all concentrations are 1.
    """
    data, n = jax.tree.map(lax.stop_gradient, (data, n))
    dtype, real = data.a.dtype, data.real

    def stage(_: int, aim: Aim) -> Aim:
        l, log_w = _points(data, aim.centre, offsets, flat)
        theta, mean, variance = _solve(aim.tilt, l, log_w, aim.centre, n[:, None])
        low, high = _edges(l, log_w, theta, aim.centre)
        whole = jnp.clip(jnp.round(mean), 0, data.n_records)
        centre, low, high, variance = (jnp.where(real, x, 0) for x in (whole, low, high, variance))
        return Aim(theta, centre, low, high, jnp.sqrt(variance.sum(-1)))

    none = jnp.zeros(data.a.shape[:2], dtype)
    start = Aim(none, data.anchor, data.anchor, data.anchor, none)
    return lax.fori_loop(0, _STAGES, stage, start)


def _points(
    data: Dataset, centre: jax.Array, offsets: int, flat: bool
) -> tuple[jax.Array, jax.Array]:
    """(Counts about the centre, in order, and log w there), both `[I, K, J, 2 offsets + 1]`."""
    away = jnp.exp2(jnp.arange(offsets, dtype=centre.dtype))
    steps = jnp.concatenate([-away[::-1], jnp.zeros(1, centre.dtype), away])
    l = jnp.clip(centre[..., None] + steps, 0, data.n_records)
    return l, jnp.maximum(data.log_weight(l, flat=flat), _LEAST)


def _tilted_moments(
    l: jax.Array, log_w: jax.Array, theta: jax.Array, centre: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of each cell's count under its tilted weights, `[I, K, J]`.

    Between two counts that are looked at, log w is a straight line.
    """
    x = l - centre[..., None]
    f = log_w + theta[..., None, None] * x
    f = f - f.max(-1, keepdims=True)
    g, rise = jnp.diff(x), jnp.diff(f)
    near = jnp.exp(jnp.maximum(f[..., 1:], f[..., :-1]))
    steep = jnp.abs(rise)
    some = steep > 1e-3
    safe = jnp.where(some, steep, 1)
    # Mass of a stretch over its higher end's, and how far from that end it lies on average.
    mass = jnp.where(some, -jnp.expm1(-safe) / safe, 1 - steep / 2)
    inward = jnp.where(some, 1 / safe - jnp.exp(-safe) / -jnp.expm1(-safe), 0.5 - steep / 12)
    ends = jnp.exp(f)
    single = g <= 1  # neighbours: a sum of two halves, not an integral
    mass = jnp.where(single, 0.5 * g * (ends[..., 1:] + ends[..., :-1]), g * near * mass)
    upper = ends[..., 1:] / (ends[..., 1:] + ends[..., :-1] + 1e-37)
    along = jnp.where(single, upper, jnp.where(rise > 0, 1 - inward, inward))
    place = x[..., :-1] + along * g
    place = jnp.concatenate([x[..., :1], place, x[..., -1:]], axis=-1)
    mass = jnp.concatenate([0.5 * ends[..., :1], mass, 0.5 * ends[..., -1:]], axis=-1)
    total = mass.sum(-1)
    mean = (mass * place).sum(-1) / total
    variance = (mass * jnp.square(place - mean[..., None])).sum(-1) / total
    return centre + mean, variance


def _solve(
    theta: jax.Array, l: jax.Array, log_w: jax.Array, centre: jax.Array, n: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """theta `[I, K]` with tilted means that add up to n; the means and variances it came from.

    Newton's method, in steps that move a block by no more than it is wide, inside a bracket.
    """

    def step(_: int, s: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        theta, low, high = s[:3]
        mean, variance = _tilted_moments(l, log_w, theta, centre)
        short, spread = n - mean.sum(-1), jnp.maximum(variance.sum(-1), 1e-6)
        low, high = jnp.where(short > 0, theta, low), jnp.where(short > 0, high, theta)
        most = 1.5 / jnp.sqrt(spread)
        newton = theta + jnp.clip(short / spread, -most, most)
        inside = (newton >= low) & (newton <= high) | ~jnp.isfinite(low + high)
        return jnp.where(inside, newton, 0.5 * (low + high)), low, high, mean, variance

    endless = jnp.full_like(theta, jnp.inf)
    start = (theta, -endless, endless, centre, centre)
    theta, _, _, mean, variance = lax.fori_loop(0, _STEPS, step, start)
    return theta, mean, variance


def _edges(
    l: jax.Array, log_w: jax.Array, theta: jax.Array, centre: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Counts on either side at which the tilted weight has fallen by `depth`, `[I, K, J]`."""
    f = log_w + theta[..., None, None] * (l - centre[..., None])
    over = f - (f.max(-1, keepdims=True) - depth(l.dtype))  # >= 0 where the weight counts
    first = jnp.argmax(over >= 0, axis=-1)[..., None]
    last = (l.shape[-1] - 1 - jnp.argmax(over[..., ::-1] >= 0, axis=-1))[..., None]
    found = []
    for inner, outer in ((first, jnp.maximum(first - 1, 0)),
                         (last, jnp.minimum(last + 1, l.shape[-1] - 1))):  # fmt: skip
        at = lambda x, i: jnp.take_along_axis(x, i, axis=-1)[..., 0]  # noqa: E731
        fall = at(over, inner) - at(over, outer)
        part = jnp.clip(at(over, inner) / jnp.where(fall > 0, fall, 1), 0, 1)
        found.append(at(l, inner) + part * (at(l, outer) - at(l, inner)))
    # log w bends between two counts that are looked at: a margin.
    low, high = found
    margin = 2 + 0.1 * (high - low)
    return jnp.floor(low - margin), jnp.ceil(high + margin)


def offsets_for(n_records: float) -> int:
    """How many distances 1, 2, 4, ... reach across 0..N, in a few sizes."""
    return 4 * math.ceil((math.log2(max(n_records, 2)) + 1) / 4)
