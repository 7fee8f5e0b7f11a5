"""Brute force: posteriors by listing every integer table, in plain NumPy and float64.

Nothing here uses the convolutions of the package: each table of counts is enumerated and weighed by
its Dirichlet-multinomial probability and the density of the noise. Tiny sizes only; for larger ones
there is `reference`.

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
    factor = lambda l: np.asarray(noise_log_prob(counts - l), np.float64)  # noqa: E731
    return enumerate_factors(factor, {int(n_records): 0.0}, prior_class, prior_feature, mask)


def enumerate_factors(
    log_factor,
    log_weight_of_n,
    prior_class,
    prior_feature,
    mask=None,
    class_totals=None,
    log_of_classes=None,
):
    """Weigh every integer table, whatever was published of its cells.

    Args:
        log_factor: of a count l, log P(what was published | l) of every cell, `[I, K, J]`.
        log_weight_of_n: N -> its log weight; one N if it is known.
        prior_class: `[I]`.
        prior_feature: `[I, K, J]`.
        mask: bool `[K, J]` or `[I, K, J]`.
        class_totals: `[I]`, NaN where they are not public.
        log_of_classes: of class counts `[I]`, log P(what else was published | these).
    """
    alpha = np.asarray(prior_feature, np.float64)
    I, K, J = alpha.shape
    mask = np.broadcast_to(True if mask is None else np.asarray(mask), alpha.shape)
    a = np.asarray(prior_class, np.float64)
    alpha = np.where(mask, alpha, 0.0)
    most = max(log_weight_of_n)
    # A cell's factor depends on its own count only: tabulate it once, [N + 1, I, K, J].
    factors = np.stack([log_factor(l) for l in range(most + 1)])

    def block_tables(n, i, k):
        cells = np.flatnonzero(mask[i, k])
        rows, logs = [], []
        for split in compositions(n, len(cells)):
            row = np.zeros(J, int)
            row[cells] = split
            log_p = dirichlet_multinomial(np.asarray(split), alpha[i, k, cells])
            log_p += sum(factors[row[j], i, k, j] for j in cells)
            if log_p > -np.inf:
                rows.append(row)
                logs.append(log_p)
        return rows, logs

    tables, log_weight = [], []
    for N, log_n in log_weight_of_n.items():
        for n_class in compositions(N, I):
            n_class = np.asarray(n_class)
            if class_totals is not None:
                public = np.isfinite(class_totals)
                if (n_class[public] != np.asarray(class_totals)[public]).any():
                    continue
            log_class = log_n + dirichlet_multinomial(n_class, a)
            if log_of_classes is not None:
                log_class += log_of_classes(n_class)
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


def n_records_pmf(posterior: Enumeration):
    """P(N | m) for N = 0, 1, ..., `[S]`."""
    return np.bincount(posterior.class_counts.sum(-1), weights=posterior.probability)


def count_pmf(posterior: Enumeration):
    """P(n[i,k,j] = l | m), `[I, K, J, N + 1]`."""
    N = int(posterior.class_counts.sum(-1).max())
    hit = posterior.tables[..., None] == np.arange(N + 1)
    return np.tensordot(posterior.probability, hit, 1)


def class_count_pmf(posterior: Enumeration):
    """P(n_i = n | m), `[I, N + 1]`."""
    N = int(posterior.class_counts.sum(-1).max())
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


def log_convolve(u, v):
    """log of the convolution of exp(u) and exp(v), both `[N + 1]`, cut to N + 1 entries."""
    n = len(u)
    table = np.full((n, n), -np.inf)
    for row in range(n):
        table[row, : row + 1] = u[: row + 1] + v[row::-1]
    return logsumexp(table, axis=1)
