"""Posteriors of single parameters: finite mixtures of Betas, raised to one common total.

Given its count l out of n, a feature parameter is Beta(a + l, A - a + n - l), and

    Beta(s, t) = s / (s + t) Beta(s + 1, t) + t / (s + t) Beta(s, t + 1),

so the components with class count n are carried to n + 1, joined by those that live there, and so
on to the top of the window: what is left is a mixture over l alone. Neighbouring components of one
total differ by a single term,

    I_x(s, t) - I_x(s + 1, t - 1) = x^s (1 - x)^(t - 1) Gamma(s + t) / (Gamma(s + 1) Gamma(t)),

so the CDF is one incomplete beta and a sum of such terms weighted by the cumulated weights (Abel
summation), and so is one minus the CDF. Every sum is of non-negative terms.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, expit, gammaln, logit, ndtri

from jaxprivnb.exact.chunks import map_in_chunks
from jaxprivnb.exact.evidence import zero
from jaxprivnb.exact.moments import Pass
from jaxprivnb.exact.outside import Outside, log_share, outside, reversed_last
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior

_CHUNK = 16_384
"""Numbers that are raised side by side, about: each class count passes over all of them."""
_MAX_STEPS = 100
"""Bisection alone reaches rounding from the widest bracket in fewer steps."""
_PATIENCE = 12
"""Newton steps before bisection takes turns."""


class Mixture(NamedTuple):
    """sum_t weight[t] Beta(first + t, total - first - t), one for each parameter."""

    weight: jax.Array
    """`[..., W]`, sums to 1."""
    first: jax.Array
    """`[...]`."""
    total: jax.Array
    """`[...]`."""
    last: jax.Array
    """The last component that exists, int32 `[...]`; weights beyond it are 0."""
    proper: jax.Array
    """Whether the parameter has a density; if not it is 1 (`certain`) or 0."""
    certain: jax.Array
    """bool `[...]`: the only category of its feature, or the only class."""


def class_mixture(
    pmf: jax.Array, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> Mixture:
    """P(Y=i) given m: Beta(a_i + n, sum a - a_i + N - n) with weight P(n_i = n | m)."""
    N, a = tables.n_records, prior.class_
    last = jnp.minimum(N.astype(jnp.int32) - place.class_, layout.class_ - 1)
    several = jnp.full(a.shape, a.shape[0] > 1)
    total = jnp.broadcast_to(N + a.sum(), a.shape)
    return Mixture(pmf, a + place.class_.astype(a.dtype), total, last, several, ~several)


def feature_mixture(
    up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> Mixture:
    """P(X_k=j | Y=i) given m, every cell raised to the top of its class's window; `[I, K, J]`."""
    dtype, real = tables.counts.dtype, tables.real
    J = real.shape[-1]
    a = jnp.where(real, prior.feature, 0)
    A = a.sum(-1, keepdims=True)
    # With two categories the second mixture is the first one read backwards.
    n_cells = 1 if J == 2 else J
    out = outside(up.log_w, tables, place, layout, n_cells)
    arrivals = _arrivals(out, up, layout)
    first_n = place.class_.astype(dtype)[:, None, None]
    first_l = place.cell.astype(dtype)[..., :n_cells]
    weight = _raise(arrivals, a[..., :n_cells], A, first_l, first_n, layout)
    top = place.class_[:, None, None] + (layout.class_ - 1)
    first = place.cell
    if J == 2:
        width = weight.shape[-1]
        weight = jnp.concatenate([weight, reversed_last(weight)], axis=-2)
        first = jnp.concatenate([first[..., :1], top - first[..., :1] - (width - 1)], axis=-1)
    total = A + top.astype(dtype)
    last = jnp.minimum(top - first, weight.shape[-1] - 1)
    certain = real & (real.sum(-1, keepdims=True) == 1)
    everywhere = lambda x: jnp.broadcast_to(x, first.shape)  # noqa: E731
    return Mixture(
        weight,
        a + first.astype(dtype),
        everywhere(total),
        last,
        everywhere(real & ~certain),
        everywhere(certain),
    )


class _Arrivals(NamedTuple):
    """P(n_ikj = l, n_i = n | m) = cell(l) others(n - l) factor(n); logs in log space.

    Leading axes `[I, K, cells]`; both windows of l are W long, the width of the raised mixture.
    """

    cell: jax.Array
    """`[..., W]`, 0 beyond the cell's window."""
    others: jax.Array
    """`[..., class window - 1 + W]`, backwards: at the t-th n, the l from place class window - 1
    - t on."""
    factor: jax.Array
    """`[..., class window]`."""


def _arrivals(out: Outside, up: Pass, layout: Layout) -> _Arrivals:
    share, reached = log_share(out, up.blocks.log_value, up.class_count_pmf)
    pmf = up.class_count_pmf[:, None, None]
    if layout.log_space:
        factor = jnp.where(reached, share + jnp.log(jnp.where(reached, pmf, 1)), -jnp.inf)
    else:
        factor = jnp.where(reached, pmf * jnp.exp(share), 0)
    beyond = [(0, 0)] * 3 + [(0, 0 if layout.whole else layout.class_ - 1)]
    pad = lambda x: jnp.pad(x, beyond, constant_values=zero(layout))  # noqa: E731
    return _Arrivals(pad(out.cell), pad(reversed_last(out.others)), factor)


def _raise(
    arrivals: _Arrivals,
    a: jax.Array,
    A: jax.Array,
    first_l: jax.Array,
    first_n: jax.Array,
    layout: Layout,
) -> jax.Array:
    """Weights over l once every component is at the top of the class window, `[I, K, cells, W]`.

    Args:
        arrivals: what comes in at each class count.
        a: concentrations, `[I, K, cells]`.
        A: their sums, `[I, K, 1]`.
        first_l: first counts of the cells' windows, `[I, K, cells]`.
        first_n: first counts of the classes' windows, `[I, 1, 1]`.
        layout: of the fit.
    """
    shape = arrivals.cell.shape
    of_cells = [jnp.broadcast_to(x, shape[:3]) for x in (a, A, first_l, first_n)]
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), (arrivals, of_cells))
    one = lambda row: _raise_cell(layout, row[0], *row[1])  # noqa: E731
    raised = map_in_chunks(one, rows, _CHUNK // shape[-1])
    return raised.reshape(shape)


def _raise_cell(
    layout: Layout,
    arrivals: _Arrivals,
    a: jax.Array,
    A: jax.Array,
    first_l: jax.Array,
    first_n: jax.Array,
) -> jax.Array:
    """`_raise` for one cell, without the leading axes: `[W]`."""
    width = arrivals.cell.shape[-1]
    l = first_l + jnp.arange(width, dtype=a.dtype)

    def at(t: jax.Array) -> jax.Array:
        near = lax.dynamic_slice_in_dim(arrivals.others, layout.class_ - 1 - t, width)
        factor = arrivals.factor[t]
        if layout.log_space:
            return jnp.exp(arrivals.cell + near + factor)
        return arrivals.cell * near * factor

    def up_one(t: jax.Array, v: jax.Array) -> jax.Array:
        n = first_n + (t - 1).astype(l.dtype)
        stay = v[1:] * ((A - a) + (n - l))
        move = v[:-1] * (a + (l - 1))
        new = (stay + move) * (1 / (A + n)) + at(t)
        return lax.dynamic_update_slice_in_dim(v, new, 1, axis=0)

    # A 0 before the first entry: slices are faster than shifts.
    start = jnp.pad(at(jnp.zeros((), jnp.int32)), (1, 0))
    return lax.fori_loop(1, layout.class_, up_one, start)[1:]


class _Terms(NamedTuple):
    """What a mixture's CDF needs at every x."""

    below: jax.Array
    """Weight of the components up to t, 0 from `last` on, `[..., W]`."""
    above: jax.Array
    """Weight of the components after t, `[..., W]`."""
    slope: jax.Array
    """weight times alpha, `[..., W]`."""
    alpha: jax.Array
    """first + t, `[..., W]`."""
    log_coefficient: jax.Array
    """log Gamma(total) / (Gamma(alpha + 1) Gamma(total - alpha)), `[..., W]`."""
    ends: jax.Array
    """alpha of the last and of the first component that exists, `[2, ...]`."""


class _At(NamedTuple):
    """A mixture at one point, both tails to full relative precision."""

    cdf: jax.Array
    """P(p <= x), `[...]`."""
    survival: jax.Array
    """P(p > x), `[...]`."""
    x_density: jax.Array
    """x times the density, `[...]`."""


def _terms(mixture: Mixture) -> _Terms:
    dtype = mixture.weight.dtype
    t = jnp.arange(mixture.weight.shape[-1], dtype=jnp.int32)
    alpha = mixture.first[..., None] + t.astype(dtype)
    # A mixture read backwards may begin below a count of 0, with weights of 0.
    exists = (t <= mixture.last[..., None]) & (alpha > 0) & mixture.proper[..., None]
    alpha = jnp.where(exists, alpha, 1)
    ends = jnp.stack(
        [jnp.where(exists, alpha, 0).max(-1), jnp.where(exists, alpha, jnp.inf).min(-1)]
    )
    ends = jnp.where(mixture.proper, ends, 1)
    # Coefficients from that of the first component, by the ratios of neighbours.
    total = jnp.where(mixture.proper, mixture.total, 2)
    upper, lower, rest = gammaln(jnp.stack([total, ends[1] + 1, total - ends[1]]))
    onward = exists & (t < mixture.last[..., None])
    ratio = (total[..., None] - alpha - 1) / (alpha + 1)
    step = jnp.log(jnp.where(onward, ratio, 1))
    coefficient = (upper - lower - rest)[..., None] + jnp.cumsum(step, axis=-1) - step
    weight = jnp.where(exists, mixture.weight, 0)
    upto = jnp.cumsum(weight, axis=-1)
    onwards = lax.cumsum(weight, axis=weight.ndim - 1, reverse=True)
    after = jnp.concatenate([onwards[..., 1:], jnp.zeros_like(onwards[..., :1])], axis=-1)
    return _Terms(
        jnp.where(onward, upto, 0),
        jnp.where(onward, after, 0),
        weight * alpha,
        alpha,
        coefficient,
        ends,
    )


def _steps(total: jax.Array, terms: _Terms, x: jax.Array, rest: jax.Array) -> jax.Array:
    """What the CDFs of neighbouring components differ by at x `[...]`, `[..., W]`."""
    log_x, log_rest = jnp.log(x)[..., None], jnp.log(rest)[..., None]
    power = terms.alpha * log_x + (total[..., None] - terms.alpha - 1) * log_rest
    return jnp.exp(power + terms.log_coefficient)


def _evaluate(mixture: Mixture, terms: _Terms, x: jax.Array, rest: jax.Array) -> _At:
    """Proper parameters at x `[...]` strictly inside (0, 1), with rest = 1 - x."""
    total = jnp.where(mixture.proper, mixture.total, 2)
    term = _steps(total, terms, x, rest)
    last, first = terms.ends
    s, t = jnp.stack([last, total - first]), jnp.stack([total - last, first])
    shape = (2, *x.shape)
    s, t = (
        jnp.broadcast_to(y.reshape(2, *(1,) * (x.ndim - last.ndim), *last.shape), shape)
        for y in (s, t)
    )
    mass = mixture.weight.sum(-1)
    all_last, none_first = betainc(s, t, jnp.stack([x, rest])) * mass
    cdf = all_last + (terms.below * term).sum(-1)
    survival = none_first + (terms.above * term).sum(-1)
    # Each tail is right where it is small: the incomplete beta errs by 1e-6 just below 1.
    low = cdf < 0.5 * mass
    return _At(
        jnp.where(low, cdf, mass - survival),
        jnp.where(low, mass - cdf, survival),
        (terms.slope * term).sum(-1),
    )


def cdf_pdf(mixture: Mixture, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(CDF, density) at x `[...]`; a parameter without a density is a step at its value."""
    dtype = x.dtype
    inside = (x > 0) & (x < 1)
    safe = jnp.where(inside, x, 0.5)
    at = _evaluate(mixture, _terms(mixture), safe, 1 - safe)
    cdf = jnp.where(inside, jnp.minimum(at.cdf, 1), (x >= 1).astype(dtype))
    step = jnp.where(mixture.certain, x >= 1, x >= 0).astype(dtype)
    density = jnp.where(mixture.proper & inside, at.x_density / safe, 0)
    return jnp.where(mixture.proper, cdf, step), density


class _Search(NamedTuple):
    """Safeguarded Newton in u = logit(x), one for each parameter and level."""

    u: jax.Array
    """Where F is evaluated next."""
    low: jax.Array
    high: jax.Array
    """F(expit(low)) < q <= F(expit(high)), or the ends of what floating point resolves."""
    moving: jax.Array
    """bool: not yet at a root."""
    taken: jax.Array
    """Steps so far, int32 scalar."""


def quantiles(mixture: Mixture, q: jax.Array, mean: jax.Array, sd: jax.Array) -> jax.Array:
    """The q-quantiles for levels q `[Q]`: `[Q, ...]`.

    Newton's method solves logit F(x) = logit q in logit x, in which mixtures of Betas are close to
    straight lines, from a normal guess; it stays in a bracket and gives way to bisection.

    Args:
        mixture: of parameters `[...]`.
        q: levels in (0, 1).
        mean: of the parameters, `[...]`.
        sd: of the parameters, `[...]`.
    """
    terms = _terms(mixture)
    info = jnp.finfo(q.dtype)
    level = jnp.broadcast_to(q.reshape(-1, *(1,) * mean.ndim), (q.shape[0], *mean.shape))
    logit_level = logit(level)
    centre = jnp.clip(jnp.where(mixture.proper, mean, 0.5), info.tiny, 1 - info.epsneg)
    slope = jnp.maximum(centre * (1 - centre), info.tiny)
    guess = logit(centre) + ndtri(level) * jnp.minimum(sd / slope, 4)
    reach = jnp.full_like(level, -math.log(float(info.tiny)))
    anywhere = jnp.ones_like(level, bool) & mixture.proper

    def unfinished(s: _Search) -> jax.Array:
        return jnp.any(s.moving) & (s.taken < _MAX_STEPS)

    def move(s: _Search) -> _Search:
        x, rest = jnp.maximum(expit(s.u), info.tiny), jnp.maximum(expit(-s.u), info.tiny)
        at = _evaluate(mixture, terms, x, rest)
        cdf, survival = jnp.maximum(at.cdf, info.tiny), jnp.maximum(at.survival, info.tiny)
        gap = logit_level - (jnp.log(cdf) - jnp.log(survival))
        low, high = jnp.where(gap > 0, s.u, s.low), jnp.where(gap > 0, s.high, s.u)
        rate = at.x_density * rest * (1 / cdf + 1 / survival)
        step = gap / jnp.where(rate > 0, rate, 1)
        newton = s.u + step
        # Newton may not leave the bracket; should it dawdle, every other step bisects.
        trusted = (rate > 0) & (newton > low) & (newton < high)
        trusted &= (s.taken < _PATIENCE) | (s.taken % 2 == 0)
        u = jnp.where(trusted, newton, 0.5 * (low + high))
        # Done when F is at q, or u at the root, to rounding; a NaN is not worth pursuing.
        done = jnp.abs(gap) <= 8 * info.eps * (1 + jnp.abs(logit_level))
        done |= trusted & (jnp.abs(step) <= 4 * info.eps * (1 + jnp.abs(s.u)))
        done |= (high - low <= 4 * info.eps) | ~jnp.isfinite(gap)
        # Whoever is done stays where it is, so that a neighbour's search cannot change it.
        moving = s.moving & ~done
        keep = lambda new, old: jnp.where(moving, new, old)  # noqa: E731
        return _Search(keep(u, s.u), keep(low, s.low), keep(high, s.high), moving, s.taken + 1)

    start = _Search(
        jnp.clip(guess, -reach, reach), -reach, reach, anywhere, jnp.zeros((), jnp.int32)
    )
    found = expit(lax.while_loop(unfinished, move, start).u)
    return jnp.where(mixture.proper, found, mixture.certain.astype(found.dtype))


def density_on_grid(mixture: Mixture, x: jax.Array) -> jax.Array:
    """Densities at the points x `[G]`: `[..., G]`, one point at a time to bound memory."""
    terms = _terms(mixture)
    total = jnp.where(mixture.proper, mixture.total, 2)

    def at(point: jax.Array) -> jax.Array:
        inside = (point > 0) & (point < 1)
        safe = jnp.where(inside, point, 0.5)
        x_density = (terms.slope * _steps(total, terms, safe, 1 - safe)).sum(-1)
        return jnp.where(mixture.proper & inside, x_density / safe, 0)

    return jnp.moveaxis(lax.map(at, x), 0, -1)
