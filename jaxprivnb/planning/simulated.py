"""Simulated releases: parameters from a prior, counts from parameters, integer noise.

The noise is made of standard draws and a scale, so that releases of the same data at different
budgets differ as little as their budgets do, and comparisons need few of them.
"""

from typing import NamedTuple

import numpy as np

from jaxprivnb.privacy.budget import Measure

RECORDS = 500
"""New records that every release is asked to predict."""
_EXACT = 32.0
"""Sigma below which the discrete Gaussian is not a rounded one."""


class Concentrations(NamedTuple):
    """The prior: of P(Y), `[I]`, and of P(X_k | Y), `[I, J_k]` each."""

    class_: np.ndarray
    feature: tuple[np.ndarray, ...]


class Data(NamedTuple):
    """R datasets of N records, and records to predict."""

    class_probs: np.ndarray
    """P(Y), `[R, I]`."""
    feature_probs: tuple[np.ndarray, ...]
    """P(X_k | Y), `[R, I, J_k]` each."""
    class_counts: np.ndarray
    """n_i, `[R, I]`."""
    counts: tuple[np.ndarray, ...]
    """n_ikj, `[R, I, J_k]` each."""
    records: tuple[np.ndarray, ...]
    """X_k of new records, int `[R, RECORDS]` each."""


def draw_data(
    rng: np.random.Generator, prior: Concentrations, n_records: int, replicates: int
) -> Data:
    """The model of the paper's section 5, with P(Y_0) spread evenly over its quantiles.

    What is most uncertain about a release is how rare its rarest class is; independent draws would
    spread that less evenly, and to no end.
    """
    R, I = replicates, len(prior.class_)
    p_class = _even_dirichlet(rng, prior.class_, R)
    n_class = rng.multinomial(n_records, p_class)
    p_feature = tuple(_dirichlet(rng, np.broadcast_to(a, (R, *a.shape))) for a in prior.feature)
    counts = tuple(rng.multinomial(n_class, p) for p in p_feature)
    y = _categorical(rng, np.broadcast_to(p_class[:, None], (R, RECORDS, I)))
    rows = np.arange(R)[:, None]
    x = tuple(_categorical(rng, p[rows, y]) for p in p_feature)
    return Data(p_class, p_feature, n_class, counts, x)


def draw_noise(
    rng: np.random.Generator, shape: tuple[int, ...], measure: Measure, scale: float
) -> np.ndarray:
    """Discrete Laplace or discrete Gaussian noise from floating-point draws: for simulation."""
    normal, first, second = rng.standard_normal(shape), *rng.exponential(size=(2, *shape))
    if measure == "epsilon":
        # floor(b E) is geometric with ratio exp(-1/b) for E exponential.
        return np.floor(scale * first) - np.floor(scale * second)
    if scale >= _EXACT:
        # Rounding adds a twelfth to a variance, and changes nothing else that could be seen.
        return np.round(normal * np.sqrt(scale**2 - 1 / 12))
    from scipy.special import ndtr

    x = np.arange(-int(10 * scale) - 2, int(10 * scale) + 3)
    upto = np.cumsum(np.exp(-0.5 * (x / scale) ** 2))
    return x[np.searchsorted(upto / upto[-1], ndtr(normal))].astype(float)


def _dirichlet(rng: np.random.Generator, a: np.ndarray) -> np.ndarray:
    """Draws with concentrations on the last axis; in logs, since small ones give tiny gammas."""
    log_gamma = np.log(rng.standard_gamma(a + 1)) + np.log1p(-rng.uniform(size=a.shape)) / a
    p = np.exp(log_gamma - log_gamma.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def _even_dirichlet(rng: np.random.Generator, a: np.ndarray, size: int) -> np.ndarray:
    """Draws `[size, I]`, of the first one from each of `size` equally likely intervals."""
    if len(a) == 1:
        return np.ones((size, 1))
    from scipy.special import betaincinv

    u = (rng.permutation(size) + rng.uniform(size=size)) / size
    first = betaincinv(a[0], a[1:].sum(), u)[:, None]
    others = _dirichlet(rng, np.broadcast_to(a[1:], (size, len(a) - 1)))
    return np.concatenate([first, (1 - first) * others], axis=1)


def _categorical(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """One draw for each distribution on the last axis."""
    u = rng.uniform(size=p.shape[:-1])[..., None]
    return np.minimum((np.cumsum(p, -1) < u).sum(-1), p.shape[-1] - 1)
