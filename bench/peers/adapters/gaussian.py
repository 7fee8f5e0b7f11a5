"""diffprivlib's GaussianNB on raw records, where its model applies: features of two categories.

It adds noise of its own to class counts, means and variances, so it must see RAW data: the true
records are rebuilt from the true tables (features are shuffled within a class, which leaves every
statistic it uses as it is). The mean of a feature coded 0 and 1 is P(X_k=1 | Y). It is given the
total budget of the tables, K * 2/b, under its own accounting: neighbours there have a record more
or less, while the tables protect against replacing one, which costs twice as much.
"""

import warnings

import numpy as np
from diffprivlib.models import GaussianNB
from peers.protocol import Answer, Method, Releases, main


def records(n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x `[N, K]`, y `[N]`) whose tables are n `[I, K, 2]`."""
    by_class = n[:, 0].sum(-1).astype(int)
    y = np.repeat(np.arange(len(n)), by_class)
    x = [
        np.concatenate([np.repeat([0.0, 1.0], n[i, k].astype(int)) for i in range(len(n))])
        for k in range(n.shape[1])
    ]
    return np.stack(x, -1), y


def fit_one(n: np.ndarray, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(P(Y) `[I]`, P(X|Y) `[I, K, 2]`) from true tables and the noise it may use."""
    I, K, _ = n.shape
    x, y = records(n)
    model = GaussianNB(epsilon=K * 2 / scale, bounds=(0, 1), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(x, y, classes=np.arange(I))
    seen = model.class_count_ > 0
    mean = np.where(seen[:, None], np.clip(model.theta_, 0, 1), 0.5)
    return model.class_count_ / model.class_count_.sum(), np.stack([1 - mean, mean], -1)


def fit(releases: Releases) -> Answer:
    """One dataset after the other, each from true tables."""
    found = [
        fit_one(n, b, r) for r, (n, b) in enumerate(zip(releases.raw, releases.scale, strict=True))
    ]
    return Answer(*(np.stack(x) for x in zip(*found, strict=True)))


METHODS = {
    "GaussianNB": Method(
        fit, batched=False, raw=True, check={"frequencies": 5e-3},
        packages=("diffprivlib", "scikit-learn", "numpy"),
    )
}  # fmt: skip

if __name__ == "__main__":
    main(METHODS)
