"""The paper's loop in plain NumPy and SciPy, one dataset at a time: `bench/paper_loop.py`."""

import numpy as np
import paper_loop
from peers.protocol import LEVEL, Answer, Method, Releases, main
from scipy.stats import beta

TAILS = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])


def dirichlet(alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, interval `[2, ...]`) of Dirichlet(alpha) along the last axis."""
    total = alpha.sum(-1, keepdims=True)
    tails = TAILS.reshape(2, *[1] * alpha.ndim)
    return alpha / total, beta.ppf(tails, alpha, total - alpha)


def fit(releases: Releases) -> Answer:
    """q(p) of each release, from the naive start, uniform priors."""
    class_alpha, feature_alpha, sweeps = [], [], []
    for m, N, b in zip(releases.counts, releases.n_records, releases.scale, strict=True):
        _, t, T, n_sweeps = paper_loop.fit(m, N, b)
        class_alpha.append(1 + N * t)
        feature_alpha.append(1 + N * t[:, None, None] * T)
        sweeps.append(n_sweeps)
    p, p_interval = dirichlet(np.stack(class_alpha))
    q, q_interval = dirichlet(np.stack(feature_alpha))
    return Answer(p, q, p_interval, q_interval, {"sweeps": np.array(sweeps)})


METHODS = {
    "paper's loop": Method(
        fit, batched=False, check={"smoothed": 2e-3}, packages=("scipy", "numpy")
    )
}

if __name__ == "__main__":
    main(METHODS)
