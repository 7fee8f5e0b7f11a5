"""Brute force: posteriors by listing every integer table, in plain NumPy and float64.

Nothing here uses the convolutions of the package: each table of counts is enumerated and weighed by
its Dirichlet-multinomial probability and the density of the noise. Tiny sizes only; for larger ones
`log_space_posterior`, at the end, sums over counts slowly and in logs.

Arguments shared by all functions: `counts` m `[I, K, J]`; `n_records` N; `noise_log_prob`, a
function of an array of differences m - n of shape `[..., I, K, J]`; `prior_class` `[I]`;
`prior_feature` `[I, K, J]`; `mask` bool `[K, J]` or None.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, gammaln, logsumexp


class Enumeration(NamedTuple):
    """Every integer table with its posterior probability."""

    tables: np.ndarray
    """n, int `[T, I, K, J]`."""
    probability: np.ndarray
    """P(n | m), `[T]`."""
    log_evidence: float
    """log P(m)."""
    prior_class: np.ndarray
    prior_feature: np.ndarray
    mask: np.ndarray

    @property
    def class_counts(self):
        """n_i, `[T, I]`."""
        return self.tables[:, :, 0].sum(-1)


def compositions(total, parts):
    """All ways to write `total` as an ordered sum of `parts` whole numbers >= 0."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def enumerate_posterior(counts, n_records, noise_log_prob, prior_class, prior_feature, mask=None):
    """Weigh every integer table; see the module for the arguments."""
    counts = np.asarray(counts, np.float64)
    I, K, J = counts.shape
    N = int(n_records)
    mask = np.ones((K, J), bool) if mask is None else np.asarray(mask)
    a = np.asarray(prior_class, np.float64)
    alpha = np.where(mask, np.asarray(prior_feature, np.float64), 0.0)
    residual = lambda n: np.asarray(noise_log_prob(counts - n), np.float64)  # noqa: E731

    # One cell's log density depends on its own count only: tabulate it once, [N+1, I, K, J].
    log_noise = np.stack([residual(np.full(counts.shape, n)) for n in range(N + 1)])

    def block_tables(n, i, k):
        cells = np.flatnonzero(mask[k])
        rows, logs = [], []
        for split in compositions(n, len(cells)):
            row = np.zeros(J, int)
            row[cells] = split
            log_p = dirichlet_multinomial(np.asarray(split), alpha[i, k, cells])
            log_p += sum(log_noise[row[j], i, k, j] for j in cells)
            rows.append(row)
            logs.append(log_p)
        return rows, logs

    tables, log_weight = [], []
    for n_class in compositions(N, I):
        log_class = dirichlet_multinomial(np.asarray(n_class), a)
        blocks = [
            list(zip(*block_tables(n_class[i], i, k), strict=True))
            for i in range(I)
            for k in range(K)
        ]
        for choice in itertools.product(*blocks):
            tables.append(np.stack([row for row, _ in choice]).reshape(I, K, J))
            log_weight.append(log_class + sum(w for _, w in choice))
    log_weight = np.array(log_weight)
    log_evidence = float(logsumexp(log_weight))
    return Enumeration(
        np.stack(tables), np.exp(log_weight - log_evidence), log_evidence, a, alpha, mask
    )


def dirichlet_multinomial(n, a):
    """Log probability of counts n under Multinomial(p), p ~ Dirichlet(a)."""
    total, A = n.sum(), a.sum()
    return (
        math.lgamma(total + 1)
        + math.lgamma(A)
        - math.lgamma(total + A)
        + float((gammaln(n + a) - gammaln(n + 1.0) - gammaln(a)).sum())
    )


def log_evidence(counts, n_records, noise_log_prob, prior_class, prior_feature, mask=None):
    """log P(m)."""
    return enumerate_posterior(
        counts, n_records, noise_log_prob, prior_class, prior_feature, mask
    ).log_evidence


def count_pmf(posterior: Enumeration):
    """P(n[i,k,j] = l | m), `[I, K, J, N + 1]`."""
    N = int(posterior.class_counts[0].sum())
    hit = posterior.tables[..., None] == np.arange(N + 1)
    return np.tensordot(posterior.probability, hit, 1)


def class_count_pmf(posterior: Enumeration):
    """P(n_i = n | m), `[I, N + 1]`."""
    N = int(posterior.class_counts[0].sum())
    hit = posterior.class_counts[..., None] == np.arange(N + 1)
    return np.tensordot(posterior.probability, hit, 1)


def _betas(posterior: Enumeration):
    """(alpha, beta) of p_i and of p_ikj given each table: two `[T, I]`, two `[T, I, K, J]`."""
    ac = posterior.prior_class + posterior.class_counts
    af = posterior.prior_feature + np.where(posterior.mask, posterior.tables, 0)
    return ac, ac.sum(-1, keepdims=True) - ac, af, af.sum(-1, keepdims=True) - af


def _moments(alpha, beta, probability):
    total = alpha + beta
    mean = np.tensordot(probability, alpha / total, 1)
    p = alpha / total
    within = p * np.maximum(1 - p, 0) / (total + 1)
    return mean, np.sqrt(np.tensordot(probability, within + np.square(p - mean), 1))


def class_moments(posterior: Enumeration):
    """(mean, sd) of P(Y=i), `[I]` each."""
    ac, bc, _, _ = _betas(posterior)
    return _moments(ac, bc, posterior.probability)


def feature_moments(posterior: Enumeration):
    """(mean, sd) of P(X_k=j | Y=i), `[I, K, J]` each; masked cells are 0."""
    _, _, af, bf = _betas(posterior)
    mean, sd = _moments(af, bf, posterior.probability)
    return np.where(posterior.mask, mean, 0), np.where(posterior.mask, sd, 0)


def _mixture_cdf(alpha, beta, x, probability):
    point = beta <= 0  # a lone category: all mass at 1
    inside = betainc(np.where(alpha > 0, alpha, 1), np.where(point, 1, beta), x)
    inside = np.where(point, x >= 1, inside)
    return np.tensordot(probability, np.where(alpha > 0, inside, x >= 0), 1)


def class_cdf(posterior: Enumeration, x):
    """P(p_i <= x[i] | m), `[I]`."""
    ac, bc, _, _ = _betas(posterior)
    return _mixture_cdf(ac, bc, np.asarray(x), posterior.probability)


def feature_cdf(posterior: Enumeration, x):
    """P(p_ikj <= x[i,k,j] | m), `[I, K, J]`."""
    _, _, af, bf = _betas(posterior)
    return _mixture_cdf(af, bf, np.asarray(x), posterior.probability)


def predict_proba(posterior: Enumeration, x):
    """P(Y=i | x, m), `[I]`, for one record x int `[K]`; -1 is missing."""
    ac, _, af, _ = _betas(posterior)
    joint = ac / ac.sum(-1, keepdims=True)
    p = af / af.sum(-1, keepdims=True)
    for k, category in enumerate(x):
        if category >= 0:
            joint = joint * p[:, :, k, category]
    joint = posterior.probability @ joint
    return joint / joint.sum()


class SlowPosterior(NamedTuple):
    """What `log_space_posterior` returns."""

    log_evidence: float
    class_count_pmf: np.ndarray
    """`[I, N + 1]`."""
    class_mean: np.ndarray
    feature_mean: np.ndarray


def log_convolve(u, v):
    """log of the convolution of exp(u) and exp(v), both `[N + 1]`, cut to N + 1 entries."""
    n = len(u)
    table = np.full((n, n), -np.inf)
    for row in range(n):
        table[row, : row + 1] = u[: row + 1] + v[row::-1]
    return logsumexp(table, axis=1)


def log_space_posterior(
    counts, n_records, noise_log_prob, prior_class, prior_feature, mask=None
) -> SlowPosterior:
    """Evidence and means by sums over counts, each in log space: slow, and nothing underflows."""
    counts = np.asarray(counts, np.float64)
    I, K, J = counts.shape
    N = int(n_records)
    mask = np.ones((K, J), bool) if mask is None else np.asarray(mask)
    a, alpha = np.asarray(prior_class, np.float64), np.asarray(prior_feature, np.float64)
    n = np.arange(N + 1.0)
    rising = lambda c: gammaln(n + c) - gammaln(n + 1) - gammaln(c)  # noqa: E731
    residual = np.asarray(noise_log_prob(counts[None] - n[:, None, None, None]))
    log_h = np.empty((I, N + 1))
    conditional = np.zeros((I, K, J, N + 1))
    for i in range(I):
        log_h[i] = rising(a[i])
        for k in range(K):
            cells = np.flatnonzero(mask[k])
            w = [rising(alpha[i, k, j]) + residual[:, i, k, j] for j in cells]
            unit = np.where(n == 0, 0.0, -np.inf)
            before, after = [unit], [unit]
            for j in range(len(cells)):
                before.append(log_convolve(before[-1], w[j]))
                after.append(log_convolve(after[-1], w[len(cells) - 1 - j]))
            c, A = before[-1], alpha[i, k, cells].sum()
            log_h[i] += c - rising(A)
            with np.errstate(divide="ignore"):
                log_n = np.log(n)
            for j, cell in enumerate(cells):
                others = log_convolve(before[j], after[len(cells) - 1 - j])
                mean_count = np.exp(log_convolve(w[j] + log_n, others) - c)
                conditional[i, k, cell] = (mean_count + alpha[i, k, cell]) / (n + A)
    unit = np.where(n == 0, 0.0, -np.inf)
    log_pmf = np.empty((I, N + 1))
    for i in range(I):
        rest = unit
        for other in range(I):
            if other != i:
                rest = log_convolve(rest, log_h[other])
        log_pmf[i] = log_h[i] + rest[::-1]
    total = logsumexp(log_pmf[0])
    pmf = np.exp(log_pmf - total)
    return SlowPosterior(
        float(total - rising(a.sum())[-1]),
        pmf,
        (pmf * (n + a[:, None])).sum(-1) / (N + a.sum()),
        np.einsum("in,ikjn->ikj", pmf, conditional),
    )
