"""What the exact posterior of simulated releases says: widths, errors, predictions.

The class's counts n_i are what ties the tables together. For a few values of each (nodes) the
tables' evidence is computed (`block`), between them its log is a cubic spline, and the classes add
up to N where N is known:

    P(n_i = n | m) ~ h_i(n) sum_t [* of the other h](t) f(n + t)
    h_i(n) = Gamma(n + a_i) / n! prod_k c_ik(n) n! / Gamma(n + A)

with f(t) = [t = N], or t! / Gamma(t + sum a) where N is not known. Given the class's count a
parameter is Beta, and everything else is asked of weighted draws (`ATOMS` a node and cell): their
error is far below that of simulating few releases.

Errors are the posterior's own, E|parameter - its mean|: as data are drawn from the prior, they are
on average those of the means.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxprivnb.planning.block import laws, log_evidence, log_noise, noise_sd, tilted
from jaxprivnb.planning.simulated import Concentrations, Data, draw_noise
from jaxprivnb.privacy.budget import Measure

ATOMS = 256
"""Draws for each cell."""
_CLASS_ATOMS = 4096
"""Draws for each class."""
_LATTICE = 257
"""Most values of a class's count."""
_BETWEEN = 5
"""Parts of the way from node to node."""
_NOWHERE = -1e4
"""The log of what is as good as nothing."""
_TINY = 1e-300
_EDGE = 1e-4
"""Mass at the ends of a class's window from which on a wider one is tried."""


class Expected(NamedTuple):
    """One number for each simulated release, `[R]`; what they are `plan` says."""

    class_width: np.ndarray
    class_error: np.ndarray
    feature_width: np.ndarray
    feature_error: np.ndarray
    count_width: np.ndarray
    count_error: np.ndarray
    found: np.ndarray
    accuracy: np.ndarray


class Mechanism(NamedTuple):
    """Noise of a release: a scale a table, the features in order, then the class if released."""

    measure: Measure
    scales: tuple[float, ...]
    known: bool
    """Whether N is."""


class _Release(NamedTuple):
    tables: list[np.ndarray]
    """m_k, `[B, J_k]` for B = R I blocks."""
    classes: list[tuple[np.ndarray, float]]
    """Noisy class counts `[R, I]`, each with its scale: tables that have one column."""


class _Grid(NamedTuple):
    """Values of the class counts: low + step (0, ..., T - 1), and the nodes among them."""

    low: np.ndarray
    """`[R, I]`."""
    step: np.ndarray
    """`[R]`."""
    size: int
    nodes: np.ndarray
    """Places of the nodes, `[Q]`."""

    @property
    def places(self) -> np.ndarray:
        """Places at which the evidence is computed, the nodes among them."""
        ends = [self.nodes[:1]]
        for low, high in itertools.pairwise(self.nodes):
            ends.append(np.round(np.linspace(low, high, _BETWEEN + 1)[1:]).astype(int))
        return np.unique(np.concatenate(ends))

    @property
    def counts(self) -> np.ndarray:
        """`[R, I, T]`."""
        return self.low[..., None] + self.step[:, None, None] * np.arange(self.size)


def expect(
    data: Data,
    mechanism: Mechanism,
    prior: Concentrations,
    n_records: int,
    level: float,
    rng: np.random.Generator,
) -> Expected:
    """Release each dataset once and look at its posterior."""
    noise, rng = rng.spawn(2)
    made = _release(data, mechanism, noise)
    a = [np.tile(x, (len(data.class_counts), 1)) for x in prior.feature]
    grid, q, log_h = _class_counts(made, mechanism, prior, a, n_records)
    class_width, class_error, class_mean = _class_answers(
        grid, q, log_h, mechanism, prior, n_records, level, rng
    )
    R, I = class_mean.shape
    means, sums, n_cells = [], np.zeros((4, R)), 0
    for k, m in enumerate(made.tables):
        if m.shape[1] == 1:
            means.append(np.ones((R, I, 1)))
            continue
        scale = mechanism.scales[k]
        mean, *others = _feature_answers(m, a[k], grid, q, mechanism, scale, level, rng)
        means.append(mean.reshape(R, I, -1))
        sums += [x.reshape(R, -1).sum(-1) for x in others]
        n_cells += mean.size // R
    p_width, p_error, n_width, n_error = sums / max(n_cells, 1)
    named = _predictions(data, class_mean, means)
    return Expected(class_width, class_error, p_width, p_error, n_width, n_error, *named)


def _release(data: Data, mechanism: Mechanism, rng: np.random.Generator) -> _Release:
    tables, classes = [], []
    R, I = data.class_counts.shape
    for n, scale in zip(data.counts, mechanism.scales, strict=False):
        m = n + draw_noise(rng, n.shape, mechanism.measure, scale)
        tables.append(m.reshape(R * I, -1))
        if n.shape[-1] == 1:
            classes.append((m[..., 0], scale))
    if len(mechanism.scales) > len(data.counts):
        scale = mechanism.scales[-1]
        noise = draw_noise(rng, (R, I), mechanism.measure, scale)
        classes.append((data.class_counts + noise, scale))
    return _Release(tables, classes)


def _class_counts(
    made: _Release,
    mechanism: Mechanism,
    prior: Concentrations,
    a: list[np.ndarray],
    n_records: int,
) -> tuple[_Grid, np.ndarray, np.ndarray]:
    """(Grid, P(n_i = n | m) `[R, I, T]` on it, log h `[R, I, T]`)."""
    I = len(prior.class_)
    middle, sd = _from_totals(made, mechanism, I, n_records)
    for times in (10.0, 25.0, 60.0):
        grid = _grid(middle, times * sd.max(-1) + 8, mechanism, n_records)
        log_h = _log_h(made, mechanism, prior, a, grid)
        q = _joined(log_h, grid, mechanism, prior, n_records)
        edge = np.where(grid.low > 0, q[..., 0], 0) + q[..., -1]
        if mechanism.known:
            edge -= np.where(grid.counts[..., -1] >= n_records, q[..., -1], 0)
        if (edge < _EDGE).all():
            break
    return grid, q, log_h


def _from_totals(
    made: _Release, mechanism: Mechanism, I: int, n_records: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where the class counts are, about: means and sds `[R, I]` of the tables' totals."""
    precision, weighted = np.zeros(()), np.zeros(())
    for m, scale in zip(made.tables, mechanism.scales, strict=False):
        one = 1 / (m.shape[1] * noise_sd(mechanism.measure, scale) ** 2 + 1e-3)
        precision, weighted = precision + one, weighted + one * m.sum(-1).reshape(-1, I)
    if len(mechanism.scales) > len(made.tables):
        m, scale = made.classes[-1]
        one = 1 / (noise_sd(mechanism.measure, scale) ** 2 + 1e-3)
        precision, weighted = precision + one, weighted + one * m
    middle = weighted / precision
    if mechanism.known:
        middle = middle + (n_records - middle.sum(-1, keepdims=True)) / I
    return middle, np.full(middle.shape, precision**-0.5)


def _grid(middle: np.ndarray, width: np.ndarray, mechanism: Mechanism, n_records: int) -> _Grid:
    N = n_records if mechanism.known else np.inf
    width = np.minimum(width, N)
    T = int(min(_LATTICE, width.max() + 1))
    step = np.maximum(1, np.ceil(width / max(T - 1, 1)))
    span = (step * (T - 1))[:, None]
    low = np.clip(np.round(middle - span / 2), 0, np.maximum(N - span, 0))
    if mechanism.known:
        # Counts of the grid must be able to add up to N.
        low[:, 0] -= (low.sum(-1) - n_records) % step
    Q = min(T, 9)
    return _Grid(low, step, T, np.unique(np.round(np.linspace(0, T - 1, Q)).astype(int)))


def _log_h(
    made: _Release,
    mechanism: Mechanism,
    prior: Concentrations,
    a: list[np.ndarray],
    grid: _Grid,
) -> np.ndarray:
    """log h_i(n), `[R, I, T]`, the largest 0; -inf below no records."""
    from scipy.interpolate import CubicSpline
    from scipy.special import gammaln

    n = np.maximum(grid.counts, 0)
    places = grid.places
    found = np.zeros((*n.shape[:2], len(places)))
    for k, m in enumerate(made.tables):
        if m.shape[1] == 1:
            continue
        # Each place is asked of the node under whose tilt it is the largest.
        best, log_g = np.zeros((len(m), len(places))), np.full((len(m), len(places)), _NOWHERE)
        for c, t in enumerate(grid.nodes):
            first, last = grid.nodes[max(c - 1, 0)], grid.nodes[min(c + 1, len(grid.nodes) - 1)]
            near = np.flatnonzero((places >= first) & (places <= last))
            own = n[..., places[near]].reshape(len(m), -1)
            at = n[..., t].ravel()
            block = tilted(m, at, a[k], mechanism.measure, mechanism.scales[k], own[:, -1])
            log_c, size = log_evidence(block, own - at[:, None])
            better = size > best[:, near]
            best[:, near] = np.where(better, size, best[:, near])
            log_g[:, near] = np.where(better, log_c, log_g[:, near])
        found += log_g.reshape(found.shape)
        each = n[..., places]
        found += gammaln(each + 1) - gammaln(each + prior.feature[k].sum(-1)[:, None])
    # So far down nothing is seen, and a spline would swing.
    found = np.maximum(found, found.max(-1, keepdims=True) - 200)
    log_h = found
    if len(places) > 1:
        log_h = found @ CubicSpline(places, np.eye(len(places)))(np.arange(grid.size)).T
    log_h = log_h + gammaln(n + prior.class_[:, None]) - gammaln(n + 1)
    for m, scale in made.classes:
        log_h = log_h + log_noise(m[..., None] - n, mechanism.measure, scale)
    log_h = np.where(grid.counts < 0, -np.inf, log_h)
    return log_h - log_h.max(-1, keepdims=True)


def _joined(
    log_h: np.ndarray, grid: _Grid, mechanism: Mechanism, prior: Concentrations, n_records: int
) -> np.ndarray:
    """P(n_i = n | m) from the classes' own evidence, `[R, I, T]`."""
    h = np.exp(log_h)
    others = _others(h)
    f = _of_totals(grid, others.shape[-1], mechanism, prior, n_records)
    # sum_t others(t) f(n + t) for each place n, by a correlation.
    L = 2 * others.shape[-1]
    there = np.fft.rfft(f, L)[:, None] * np.conj(np.fft.rfft(others, L))
    q = h * np.maximum(np.fft.irfft(there, L)[..., : grid.size], 0)
    total = q.sum(-1, keepdims=True)
    return np.where(total > 0, q / np.where(total > 0, total, 1), 1 / grid.size)


def _others(h: np.ndarray) -> np.ndarray:
    """The law of the sum of the other classes' places, `[R, I, I T]`, but for a factor."""
    _, I, T = h.shape
    spectra = np.fft.rfft(h, I * T)
    product = np.ones_like(spectra)
    for i in range(I):
        for other in range(I):
            if other != i:
                product[:, i] *= spectra[:, other]
    found = np.maximum(np.fft.irfft(product, I * T), 0)
    return found / found.max(-1, keepdims=True)


def _of_totals(
    grid: _Grid, size: int, mechanism: Mechanism, prior: Concentrations, n_records: int
) -> np.ndarray:
    """f of the classes' places together, `[R, size]`."""
    places = np.arange(size)
    if mechanism.known:
        return (places == np.round((n_records - grid.low.sum(-1)) / grid.step)[:, None]) * 1.0
    from scipy.special import gammaln

    N = grid.low.sum(-1)[:, None] + grid.step[:, None] * places
    log_f = gammaln(N + 1) - gammaln(N + prior.class_.sum())
    return np.exp(log_f - log_f.max(-1, keepdims=True))


def _class_answers(
    grid: _Grid,
    q: np.ndarray,
    log_h: np.ndarray,
    mechanism: Mechanism,
    prior: Concentrations,
    n_records: int,
    level: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Mean width, mean error `[R]`; means `[R, I]`) of P(Y)."""
    R, I, T = q.shape
    # Where N is not known each draw has a law of the other classes of its own.
    draws = _CLASS_ATOMS if mechanism.known else _CLASS_ATOMS // 8
    place = _inverse(q.reshape(R * I, T), _even(rng, (R * I, draws)))
    n = np.maximum(grid.low.reshape(-1, 1) + np.repeat(grid.step, I)[:, None] * place, 0)
    if mechanism.known:
        N = np.full(n.shape, float(n_records))
    else:
        others = _others(np.exp(log_h))
        f = _of_totals(grid, 2 * others.shape[-1], mechanism, prior, n_records)
        N = np.empty(n.shape)
        sums = np.arange(others.shape[-1])
        for row in range(R * I):
            r, i = divmod(row, I)
            law = others[r, i] * f[r][place[row][:, None] + sums]
            t = _inverse(law / law.sum(-1, keepdims=True), rng.uniform(size=(len(law), 1)))[:, 0]
            N[row] = np.maximum(grid.low[r].sum() + grid.step[r] * (place[row] + t), n[row])
    a = np.tile(prior.class_, R)[:, None]
    rest = prior.class_.sum() - a
    p = _beta(rng, n + a, N - n + rest)
    mean = ((n + a) / (N + prior.class_.sum())).mean(-1)
    width, error = _width(p, level), np.abs(p - mean[:, None]).mean(-1)
    return width.reshape(R, I).mean(-1), error.reshape(R, I).mean(-1), mean.reshape(R, I)


def _feature_answers(
    m: np.ndarray,
    a: np.ndarray,
    grid: _Grid,
    q: np.ndarray,
    mechanism: Mechanism,
    scale: float,
    level: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """(Means, widths and errors of P(X_k | Y), widths and errors of counts), each `[B, J]`."""
    B, J = m.shape
    q = q.reshape(B, -1)
    counts, rows = grid.counts.reshape(B, -1), np.arange(B)[:, None]
    at = rng.permuted(_inverse(q, _even(rng, (B, ATOMS))), axis=1)
    n = np.maximum(counts[rows, at], 0)  # [B, S]
    nodes = np.maximum(counts[rows, _inverse(q, _nodes(q, counts, J, mechanism, scale))], 0)
    u = _even(rng, (B * J, ATOMS))
    l = np.zeros((B, J, ATOMS))
    after = np.clip((n[:, None] >= nodes[..., None]).sum(1), 1, nodes.shape[1] - 1)
    low, high = nodes[rows, after - 1], nodes[rows, after]
    share = np.where(high > low, (n - low) / np.maximum(high - low, 1), 0.5)
    for c in range(nodes.shape[1]):
        weight = np.where(after == c, share, 0) + np.where(after - 1 == c, 1 - share, 0)
        block = tilted(m, nodes[:, c], a, mechanism.measure, scale)
        place = _inverse(laws(block).reshape(B * J, -1), u, spread=True).reshape(B, J, -1)
        # A point of a coarse lattice stands for the counts on either side.
        place = np.where((block.step == 1)[:, None, None], np.round(place), place)
        # Between nodes the quantiles of a count are linear in the class's.
        l += weight[:, None] * np.abs(block.first[..., None] + place) * block.step[:, None, None]
    n = n[:, None]
    l = np.clip(l, 0, n)
    count_mean = l.mean(-1)
    rest = (a.sum(-1)[:, None] - a)[..., None]
    p = _beta(rng, l + a[..., None], n - l + rest)
    mean = ((l + a[..., None]) / (n + a.sum(-1)[:, None, None])).mean(-1)
    width, error = _width(p, level), np.abs(p - mean[..., None]).mean(-1)
    count_error = np.abs(l - count_mean[..., None]).mean(-1)
    return mean, width, error, _width(np.round(l), level), count_error


def _nodes(
    q: np.ndarray, counts: np.ndarray, J: int, mechanism: Mechanism, scale: float
) -> np.ndarray:
    """Levels `[B, Q]` of the quantiles of n_i at which the laws of its cells are computed.

    Few where the table says less of n_i than all tables together do.
    """
    mean = (q * counts).sum(-1)
    variance = (q * counts**2).sum(-1) - mean**2
    few = variance.max() < 0.05 * J * noise_sd(mechanism.measure, scale) ** 2
    levels = (0.1, 0.5, 0.9) if few else (0.003, 0.04, 0.16, 0.36, 0.64, 0.84, 0.96, 0.997)
    return np.tile(levels, (len(q), 1))


def ceiling(data: Data) -> np.ndarray:
    """Share of the new records whose class the true parameters predict right, `[R]`."""
    return _true_classes(data).max(-1).mean(-1)


def _predictions(
    data: Data, class_mean: np.ndarray, means: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(Share of most likely classes found, accuracy), `[R]`.

    A record counts as right with the probability that the true parameters give its class.
    """
    truth = _true_classes(data)
    chosen = _scores(class_mean, means, data.records).argmax(-1)
    right = np.take_along_axis(truth, chosen[..., None], -1)[..., 0]
    return (truth.argmax(-1) == chosen).mean(-1), right.mean(-1)


def _true_classes(data: Data) -> np.ndarray:
    """P(Y=i | x) of the new records under the true parameters, `[R, RECORDS, I]`."""
    scores = _scores(data.class_probs, data.feature_probs, data.records)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def _scores(
    p_class: np.ndarray, p_feature: Sequence[np.ndarray], records: Sequence[np.ndarray]
) -> np.ndarray:
    """log P(Y=i) + sum_k log P(X_k = x_k | Y=i), `[R, RECORDS, I]`."""
    total = np.log(np.maximum(p_class, _TINY))[..., None]
    for p, x in zip(p_feature, records, strict=True):
        chosen = np.take_along_axis(p, np.repeat(x[:, None], p.shape[1], 1), -1)
        total = total + np.log(np.maximum(chosen, _TINY))
    return total.transpose(0, 2, 1)


def _even(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Uniform numbers, one in each of as many intervals as a row is long."""
    return (np.arange(shape[1]) + rng.uniform(size=shape)) / shape[1]


def _inverse(pmf: np.ndarray, u: np.ndarray, *, spread: bool = False) -> np.ndarray:
    """The places at which laws `[B, T]` reach u `[B, S]`; within half a place if `spread`."""
    B, T = pmf.shape
    upto = np.cumsum(pmf, -1)
    upto = np.minimum(upto / upto[:, -1:], 1)
    rows = np.arange(B)[:, None]
    found = np.searchsorted((upto + rows).ravel(), (u + rows).ravel()).reshape(u.shape)
    found = np.clip(found - T * rows, 0, T - 1)
    if not spread:
        return found
    own, end = (np.take_along_axis(x, found, -1) for x in (pmf, upto))
    share = (end - u) / np.where(own > 0, own, 1)
    return found + 0.5 - np.clip(share, 0, 1)


def _beta(rng: np.random.Generator, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Draws, where b = 0 is certainty."""
    return np.where(b > 0, rng.beta(a, np.where(b > 0, b, 1)), 1.0)


def _width(x: np.ndarray, level: float) -> np.ndarray:
    """Of the equal-tailed interval of draws on the last axis."""
    low, high = np.quantile(x, ((1 - level) / 2, (1 + level) / 2), axis=-1, method="hazen")
    return high - low
