"""Measures of an answer, one number a release, and their means with Monte Carlo errors.

All methods are measured by one rule from their means of P(Y) and P(X|Y), q[i] and q[i,k,j]:

    squared error       mean over cells of (q - p)^2, of P(X|Y) and of P(Y)
    coverage, width     of 95% intervals, mean over cells, where there are intervals
    log density         E log q(y, x) - E log p(y, x) over fresh records (y, x) of the truth p: the
                        nats lost a record, in closed form and thus without drawing records
    accuracy            P(Y = argmax q(y | x)) over fresh x, the share of right classes: each
                        x counts with its true probability of the class predicted

Predictions plug the means in. A method that says "never" would lose infinitely many nats, so
probabilities below `FLOOR` are raised to it first, for everyone.
"""

import numpy as np
from peers.protocol import Answer
from scipy import stats

FLOOR = 1e-4
FRESH = 1000
"""Fresh records a release for the accuracy."""
CHUNK = 500


def per_release(answer: Answer, p_class: np.ndarray, p_feature: np.ndarray) -> dict:
    """`{measure: [R]}` of answers to R releases against what they were drawn from."""
    size = len(answer.class_mean)
    p_class, p_feature = p_class[:size], p_feature[:size]
    flat = lambda x: x.reshape(size, -1).mean(-1)  # noqa: E731
    out = {
        "se_feature": flat((answer.feature_mean - p_feature) ** 2),
        "se_class": flat((answer.class_mean - p_class) ** 2),
    }
    for what, interval, truth in (
        ("feature", answer.feature_interval, p_feature),
        ("class", answer.class_interval, p_class),
    ):
        if interval is not None:
            low, high = interval.reshape(2, interval.shape[1], -1)
            truth = truth[: len(low)].reshape(low.shape)
            out[f"coverage_{what}"] = ((low <= truth) & (truth <= high)).mean(-1)
            out[f"width_{what}"] = (high - low).mean(-1)
    q_class, q_feature = floored(answer.class_mean), floored(answer.feature_mean)
    out["log_density"] = log_density_lost(q_class, q_feature, p_class, p_feature)
    out["accuracy"] = accuracy(q_class, q_feature, p_class, p_feature)
    return out


def floored(q: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis, none below `FLOOR`, summing to 1."""
    q = np.maximum(q, FLOOR)
    return q / q.sum(-1, keepdims=True)


def log_density_lost(q_class, q_feature, p_class, p_feature) -> np.ndarray:
    """-KL(p || q) of whole records, `[R]`: 0 is the truth, and less is worse."""

    def relative(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return np.where(p > 0, p * (np.log(q) - np.log(np.where(p > 0, p, 1))), 0).sum(-1)

    within = relative(p_feature, q_feature).sum(-1)  # [R, I], over features
    return relative(p_class, q_class) + (p_class * within).sum(-1)


def accuracy(q_class, q_feature, p_class, p_feature, seed: int = 0) -> np.ndarray:
    """The chance of naming the class of a fresh record, `[R]`, over `FRESH` records."""
    rng = np.random.default_rng(seed)
    out = np.empty(len(q_class))
    for start in range(0, len(out), CHUNK):
        part = slice(start, start + CHUNK)
        x = fresh_records(rng, p_class[part], p_feature[part])
        predicted = joint(q_class[part], q_feature[part], x).argmax(-1)
        truth = joint(p_class[part], p_feature[part], x)
        truth = np.exp(truth - truth.max(-1, keepdims=True))
        truth /= truth.sum(-1, keepdims=True)
        out[part] = np.take_along_axis(truth, predicted[..., None], -1)[..., 0].mean(-1)
    return out


def fresh_records(rng, p_class: np.ndarray, p_feature: np.ndarray) -> np.ndarray:
    """Records int `[R, FRESH, K]` drawn from the truth; the same for every method."""
    R, I, K, J = p_feature.shape
    u = rng.random((R, FRESH, K + 1))
    y = (np.cumsum(p_class, -1)[:, None] < u[..., :1]).sum(-1).clip(max=I - 1)
    ladder = np.cumsum(p_feature, -1)
    steps = ladder[np.arange(R)[:, None], y]  # [R, FRESH, K, J]
    return (steps < u[..., 1:, None]).sum(-1).clip(max=J - 1)


def joint(p_class: np.ndarray, p_feature: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Log of P(Y=i, x), `[R, FRESH, I]`."""
    R, _, K, _ = p_feature.shape
    with np.errstate(divide="ignore"):
        log_p, out = np.log(p_feature), np.log(p_class)[:, None]
    for k in range(K):
        out = out + np.moveaxis(log_p[:, :, k], 1, 2)[np.arange(R)[:, None], x[..., k]]
    return out


def mean_se(x: np.ndarray) -> tuple[float, float]:
    """(mean, standard error); the error of a single number is nan."""
    x = np.asarray(x, float)
    error = x.std(ddof=1) / x.size**0.5 if x.size > 1 else float("nan")
    return float(x.mean()), float(error)


def by_cell(values: dict, cell: np.ndarray, n_cells: int) -> list[dict]:
    """Mean and standard error of every measure in each cell."""
    rows = []
    for c in range(n_cells):
        row = {}
        for name, x in values.items():
            here = x[cell[: len(x)] == c]
            row[name] = mean_se(here) if len(here) else (float("nan"), float("nan"))
            count = "replicates_of_intervals" if name[:8] == "coverage" else "replicates"
            row[count] = len(here)
        rows.append(row)
    return rows


def paired(ours: np.ndarray, theirs: np.ndarray, cell: np.ndarray, n_cells: int) -> list[dict]:
    """Their squared error less ours on the releases both answered, a row for each cell.

    `p` is the one-sided p-value of Student's t for "they are no better": small if they are better.
    """
    size = min(len(ours), len(theirs))
    gap, cell = theirs[:size] - ours[:size], cell[:size]
    rows = []
    for c in range(n_cells):
        here = gap[cell == c]
        mean, error = mean_se(here) if here.size else (float("nan"), float("nan"))
        t = mean / error if error > 0 else float("nan")
        p = float(stats.t.cdf(t, here.size - 1)) if np.isfinite(t) else float("nan")
        rows.append({"gap": mean, "se": error, "t": t, "p": p})
    return rows


def off_nominal(mean: float, error: float, size: int, level: float) -> float:
    """Two-sided p-value of Student's t for a coverage of `level`."""
    if error == 0:
        return float(mean == level)
    return float(2 * stats.t.sf(abs(mean - level) / error, size - 1))


def seconds_to_precision(
    seconds: float, warmup: int, samples: int, ess: float, precision: float
) -> float:
    """Seconds until a chain's error of a posterior mean is `precision` posterior sds.

    That takes 1 / precision^2 effective samples. A chain of `warmup` + `samples` steps took
    `seconds` and gave `ess`; all steps are held to cost the same, and the warm-up is paid once.
    """
    needed = samples / (ess * precision**2)
    return seconds * (warmup + needed) / (warmup + samples)
