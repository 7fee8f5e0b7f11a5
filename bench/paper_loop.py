"""The paper's loop written plainly in NumPy and SciPy: a peer to time against, and a cross-check.

One dataset at a time: closed-form updates of q(beta) and q(p) (eq. 3 to 5), and each simplex
problem (eq. 6) handed to `scipy.optimize.minimize` (SLSQP) with the constraint sum x = 1.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

INTERIOR = 0.01
TINY = 1e-12


def maximise(A, B, x):
    """Argmax over the simplex of sum A x^2 + B x - x log x, from x."""
    shift = B.max()

    def loss(x):
        x = np.maximum(x, TINY)
        gradient = 2 * A * x + B - shift - 1 - np.log(x)
        return -np.sum(x * (A * x + B - shift - np.log(x))), -gradient

    found = minimize(
        loss,
        x,
        jac=True,
        method="SLSQP",
        bounds=[(TINY, 1.0)] * x.size,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
        options={"maxiter": 50, "ftol": 1e-12},
    )
    new = np.maximum(found.x, TINY)
    new = new / new.sum()
    return new if loss(new)[0] <= loss(x)[0] else x  # a black box may descend: keep only ascent


def naive_start(m, N):
    """The clipped, renormalised counts with a little uniform mixed in."""
    clipped = np.clip(m, 0, N)
    rows = clipped.sum(-1, keepdims=True)
    t_feature = np.where(rows > 0, clipped / np.where(rows > 0, rows, 1), 1 / m.shape[-1])
    total = clipped.sum()
    share = clipped.sum((1, 2)) / total if total > 0 else np.full(m.shape[0], 1 / m.shape[0])
    mix = lambda t: (1 - INTERIOR) * t + INTERIOR / t.shape[-1]  # noqa: E731
    return mix(share), mix(t_feature)


def bound(m, N, b, t, T):
    """The bound with q(beta) and q(p) at their optima, uniform priors."""
    e = t[:, None, None] * T
    c = N * e * (1 - e) + (N * e - m) ** 2
    log_beta = lambda a: gammaln(a).sum(-1) - gammaln(a.sum(-1))  # noqa: E731
    ones = np.ones_like(T)
    features = (log_beta(1 + N * e) - log_beta(ones)).sum() - (N * e * np.log(T)).sum()
    classes = log_beta(1 + N * t) - log_beta(np.ones_like(t)) - (N * t * np.log(t)).sum()
    return (-np.log(2 * b) - np.sqrt(c) / b).sum() + features + classes


def fit(m, N, b, tol=1e-9, max_iterations=3000):
    """Coordinate ascent for one dataset; returns (bound, t, T, sweeps)."""
    t, T = naive_start(m, N)
    old = -np.inf
    sweeps = 0
    while sweeps < max_iterations:
        sweeps += 1
        e = t[:, None, None] * T
        w = 1 / (b * np.sqrt(N * e * (1 - e) + (N * e - m) ** 2))  # E beta / b^2
        log_p = digamma(1 + N * e) - digamma((1 + N * e).sum(-1, keepdims=True))
        log_p_class = digamma(1 + N * t) - digamma((1 + N * t).sum())
        linear = (m - 0.5) * w + log_p
        for i, k in np.ndindex(T.shape[:2]):
            T[i, k] = maximise(-0.5 * (N - 1) * t[i] * w[i, k], linear[i, k], T[i, k])
        D = -0.5 * (N - 1) * (T**2 * w).sum((1, 2))
        E = (T * (linear - np.log(T))).sum((1, 2)) + log_p_class
        t = maximise(D, E, t)
        new = bound(m, N, b, t, T)
        if new - old < tol * (1 + abs(new)):
            break
        old = new
    return new, t, T, sweeps
