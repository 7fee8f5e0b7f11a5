"""scikit-learn's CategoricalNB on noisy counts clipped at 0 and rounded: what most people do.

Tables of different features disagree on the class counts, and one CategoricalNB has one weight a
record. So each feature gets its own: its pseudo-records are the I x J cells, weighted by their
clipped counts, and P(Y) is that of the class counts averaged over features. Smoothing is the
default, alpha = 1. `CategoricalNB` has no posterior, hence no intervals.
"""

import numpy as np
from peers.protocol import Answer, Method, Releases, main
from sklearn.naive_bayes import CategoricalNB


def fit_one(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(P(Y) `[I]`, P(X|Y) `[I, K, J]`) from one release."""
    I, K, J = counts.shape
    clipped = np.maximum(np.rint(counts), 0)
    y, x = np.repeat(np.arange(I), J), np.tile(np.arange(J), I)[:, None]
    by_class = np.zeros(I)
    p = np.full(counts.shape, 1 / J)  # smoothing's answer where a whole table is clipped
    with np.errstate(divide="ignore"):  # a class whose counts are all clipped has log prior -inf
        for k in range(K):
            weight = clipped[:, k].ravel()
            if not weight.any():  # which CategoricalNB refuses
                continue
            found = CategoricalNB(min_categories=J).fit(x, y, sample_weight=weight)
            by_class += found.class_count_
            p[:, k] = np.exp(found.feature_log_prob_[0])
    total = by_class.sum()
    return (by_class / total if total > 0 else np.full(I, 1 / I)), p


def fit(releases: Releases) -> Answer:
    """One release after the other."""
    found = [fit_one(m) for m in releases.counts]
    return Answer(*(np.stack(x) for x in zip(*found, strict=True)))


METHODS = {
    "CategoricalNB": Method(
        fit, batched=False, check={"smoothed": 5e-3}, packages=("scikit-learn", "numpy")
    )
}

if __name__ == "__main__":
    main(METHODS)
