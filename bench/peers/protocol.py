"""What every adapter reads and writes, how it is timed, and the inputs whose answers are known.

An adapter is a module of `peers.adapters` with a dictionary `METHODS`. It runs as a process of its
own, in the environment of its peer, and depends on this file and NumPy beyond the peer itself:

    python -m peers.adapters.NAME check METHOD              exit status 1 if an answer is wrong
    python -m peers.adapters.NAME run METHOD JOB.npz OUT.npz

Everyone gets the same input (noisy tables, N, the scale of the Laplace noise) and is timed by the
same code. Seconds are wall clock; `compile` is the first call less a warm one.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.95
"""Level of all intervals, equal-tailed."""
BATCHES_TIMED = 5
"""Warm calls of a batch; the best counts."""
INTERVALS_TIMED = 100
"""Releases in the batch on which intervals are timed."""


class Releases(NamedTuple):
    """Releases of one shape, replicates first."""

    counts: np.ndarray
    """m, float `[R, I, K, J]`."""
    n_records: np.ndarray
    """N, float `[R]`."""
    scale: np.ndarray
    """b of Laplace(b), float `[R]`."""
    raw: np.ndarray | None = None
    """TRUE counts `[R, I, K, J]`: only for a method that makes its own release from raw data."""

    def part(self, start: int, stop: int) -> "Releases":
        """Releases [start, stop)."""
        return Releases(*(None if x is None else x[start:stop] for x in self))

    @property
    def size(self) -> int:
        """R."""
        return len(self.counts)


class Answer(NamedTuple):
    """What a method says of R releases."""

    class_mean: np.ndarray
    """P(Y=i), `[R, I]`."""
    feature_mean: np.ndarray
    """P(X_k=j | Y=i), `[R, I, K, J]`."""
    class_interval: np.ndarray | None = None
    """(lower, upper), `[2, R, I]`, or of the first releases only; None: the method has none."""
    feature_interval: np.ndarray | None = None
    """(lower, upper), `[2, R, I, K, J]`."""
    extra: dict[str, np.ndarray] | None = None
    """More numbers, one a release: `{name: [R]}`."""


@dataclass(frozen=True)
class Method:
    """One way to fit, and how to check and chunk it."""

    fit: Callable[[Releases], Answer]
    """Fit a batch."""
    batched: bool = True
    """Whether `fit` works on releases side by side; otherwise it loops."""
    alone: Callable[[Releases], Answer] | None = None
    """Fit a batch of one as a user would; `fit` if None."""
    intervals: Callable[[Releases], Answer] | None = None
    """As `fit` with intervals, where they cost time of their own."""
    diagnosed: Callable[[Releases], Answer] | None = None
    """As `fit` with diagnostics in `extra`, which are not part of the time of a fit."""
    check: dict[str, float] = field(default_factory=dict)
    """Tolerances, `{name of a known case: largest error of a mean}`."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions are recorded."""
    raw: bool = False
    """Whether it must be given true counts, because it makes a release of its own."""


# Inputs whose answers are known.


def known_cases() -> dict[str, tuple[Releases, np.ndarray, np.ndarray]]:
    """`{name: (one release, P(Y) [I], P(X|Y) [I, K, J])}`.

    frequencies:  next to no noise, so an estimator of frequencies must return n / N;
    smoothed:     the same release, answered by the posterior mean of true counts, (n+1) / (N+I);
    gentle:       the same with noise of scale 1, which moves that mean by less than .003;
    noisy:        one feature and noise that matters, answered by listing every integer table.
    """
    n = np.array([[[60.0, 90.0], [110.0, 40.0]], [[30.0, 70.0], [55.0, 45.0]]])
    rows = n.sum(-1, keepdims=True)
    still = Releases(n[None] + 1e-6, np.array([250.0]), np.array([1e-3]), n[None])
    by_class = rows[:, 0, 0]
    noisy = Releases(
        np.array([[[[31.5, 12.0]], [[-2.0, 24.0]]]]), np.array([60.0]), np.array([4.0])
    )
    return {
        "frequencies": (still, by_class / 250, n / rows),
        "smoothed": (still, (by_class + 1) / 252, (n + 1) / (rows + 2)),
        "gentle": (
            still._replace(scale=np.array([1.0])),
            (by_class + 1) / 252,
            (n + 1) / (rows + 2),
        ),
        "noisy": (noisy, *enumerate_tables(noisy.counts[0, :, 0], 60, 4.0)),
    }


def enumerate_tables(m: np.ndarray, N: int, b: float) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means for two classes and one binary feature, by listing every table.

    Under uniform priors all class counts are equally likely, and given n_i all n_i + 1 rows are:
    P(n | m) is proportional to prod_i 1 / (n_i + 1) times the density of the noise.
    """
    n = np.array(
        [(a, c, d, N - a - c - d) for a in range(N + 1) for c in range(N + 1 - a)
         for d in range(N + 1 - a - c)], float
    ).reshape(-1, 2, 2)  # fmt: skip
    rows = n.sum(-1)
    log_weight = -np.log(rows + 1).sum(-1) - np.abs(m - n).sum((-1, -2)) / b
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    p_class = weight @ ((rows + 1) / (N + 2))
    p_feature = np.tensordot(weight, (n + 1) / (rows + 2)[..., None], 1)
    return p_class, p_feature[:, None, :]


# Running.


def errors(answer: Answer, p_class: np.ndarray, p_feature: np.ndarray) -> float:
    """The largest distance of a mean from what is known; infinite if it is not finite."""
    far = [np.abs(answer.class_mean[0] - p_class), np.abs(answer.feature_mean[0] - p_feature)]
    worst = max(x.max() for x in far)
    return float(worst) if np.isfinite(worst) else float("inf")


def check(method: Method) -> dict[str, float]:
    """The error in each known case; raises where one is larger than the method allows."""
    if not method.check:
        raise ValueError("a method without a known answer cannot be measured: give `check`")
    cases = known_cases()
    found = {}
    for name, tolerance in method.check.items():
        releases, p_class, p_feature = cases[name]
        releases = releases if method.raw else releases._replace(raw=None)
        for fit in (method.fit, method.alone or method.fit):
            found[name] = max(found.get(name, 0.0), errors(fit(releases), p_class, p_feature))
        if not found[name] <= tolerance:
            raise AssertionError(f"case {name}: error {found[name]:.3g}, allowed {tolerance:g}")
    return found


def seconds_of(f: Callable[[], Any]) -> tuple[float, Any]:
    """(wall-clock seconds, the result)."""
    begin = time.perf_counter()
    result = f()
    return time.perf_counter() - begin, result


def time_method(method: Method, releases: Releases, cap: float, lanes: int) -> dict[str, float]:
    """Seconds a fit alone and in a batch on releases of one design, compilation apart.

    Warm seconds alone are the median over at most 20 releases, those of a batch the best of at most
    `BATCHES_TIMED` calls of `lanes` releases (1: no batch). At least one warm call of each is made;
    beyond that, `cap` seconds end the timing.
    """
    begin = time.perf_counter()
    late = lambda share: time.perf_counter() - begin > share * cap  # noqa: E731
    alone = method.alone or method.fit
    first, _ = seconds_of(lambda: alone(releases.part(0, 1)))
    warm: list[float] = []
    for r in range(1, 21):
        r = r % releases.size
        warm.append(seconds_of(lambda r=r: alone(releases.part(r, r + 1)))[0])
        if late(0.4):
            break
    out = {"alone": float(np.median(warm)), "compile": max(0.0, first - float(np.median(warm)))}
    if not method.batched or lanes == 1:
        return out | {"batch": out["alone"], "batch_size": 1, "compile_batch": 0.0}
    size = min(lanes, releases.size)
    batch = releases.part(0, size)
    first, _ = seconds_of(lambda: method.fit(batch))
    best = seconds_of(lambda: method.fit(batch))[0]
    for _ in range(BATCHES_TIMED - 1):
        if late(0.8):
            break
        best = min(best, seconds_of(lambda: method.fit(batch))[0])
    out |= {"batch": best / size, "batch_size": size, "compile_batch": max(0.0, first - best)}
    if method.intervals is not None:
        few = releases.part(0, min(size, INTERVALS_TIMED))
        method.intervals(few)
        with_intervals = seconds_of(lambda: method.intervals(few))[0]
        without = seconds_of(lambda: (method.fit(few), method.fit(few)))[0] / 2
        out["intervals"] = max(0.0, with_intervals - without) / few.size
    return out


def answer_all(
    method: Method, releases: Releases, cap: float, step: int, lanes: int, intervals: int
) -> Answer:
    """Answers to as many leading releases as `cap` seconds allow, in whole multiples of `step`.

    Chunks have one length, so that nothing is compiled twice; the last is padded. Where intervals
    cost time of their own, chunks that begin after `intervals` releases go without.
    """
    begin = time.perf_counter()
    size = min(releases.size, step * max(1, lanes // step))
    if method.intervals is not None:
        size = min(size, step * max(1, intervals // step))
    parts: list[Answer] = []
    done = 0
    while done < releases.size:
        stop = min(done + size, releases.size)
        pad = np.r_[np.arange(done, stop), np.full(size - (stop - done), done)]
        chunk = Releases(*(None if x is None else x[pad] for x in releases))
        timed = method.intervals if done < intervals else None
        parts.append(_head((method.diagnosed or timed or method.fit)(chunk), stop - done))
        done = stop
        elapsed = time.perf_counter() - begin
        if elapsed + elapsed / len(parts) > cap:
            break
    return _join(parts)


def _head(answer: Answer, size: int) -> Answer:
    cut = lambda x, axis: None if x is None else np.take(x, range(size), axis)  # noqa: E731
    extra = {k: np.asarray(v)[:size] for k, v in (answer.extra or {}).items()}
    return Answer(
        cut(answer.class_mean, 0), cut(answer.feature_mean, 0),
        cut(answer.class_interval, 1), cut(answer.feature_interval, 1), extra,
    )  # fmt: skip


def _join(parts: list[Answer]) -> Answer:
    def join(name: str, axis: int) -> np.ndarray | None:
        arrays = [x for x in (getattr(p, name) for p in parts) if x is not None]
        return np.concatenate(arrays, axis) if arrays else None

    extra = {k: np.concatenate([p.extra[k] for p in parts]) for k in parts[0].extra or {}}
    return Answer(
        join("class_mean", 0), join("feature_mean", 0),
        join("class_interval", 1), join("feature_interval", 1), extra,
    )  # fmt: skip


def peak_mib() -> float:
    """The largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def save_job(
    path: Any, accuracy: Releases, timing: dict[str, Releases], **options: float | int
) -> None:
    """Write what an adapter is to do: releases to answer, releases to time, and limits."""
    arrays = {}
    for name, releases in {"accuracy": accuracy, **timing}.items():
        for key, value in releases._asdict().items():
            if value is not None:
                arrays[f"{name}/{key}"] = value
    np.savez(path, options=json.dumps({"timing": list(timing), **options}), **arrays)


def load_releases(file: Any, name: str) -> Releases:
    """The releases stored under a name in an open job file."""
    found = {f: file[f"{name}/{f}"] for f in Releases._fields if f"{name}/{f}" in file}
    return Releases(**found)


def run(method: Method, job: Any, out: Any) -> None:
    """Time the method, then answer all releases; write both."""
    with np.load(job) as file:
        options = json.loads(str(file["options"]))
        accuracy = load_releases(file, "accuracy")
        timing = {name: load_releases(file, name) for name in options["timing"]}
    cap = options["cap"]
    times = {
        name: time_method(method, releases, 0.5 * cap / len(timing), options["lanes"])
        for name, releases in timing.items()
    }
    report: dict[str, Any] = {"peak_mib": peak_mib(), "times": times}
    limits = (cap / 2, options["step"], options["lanes"], options["intervals"])
    seconds, answer = seconds_of(lambda: answer_all(method, accuracy, *limits))
    report |= {
        "answer_seconds": seconds,
        "versions": {p: metadata.version(p) for p in method.packages},
        "python": sys.version.split()[0],
    }
    arrays = {f"extra/{k}": v for k, v in (answer.extra or {}).items()}
    for name in ("class_mean", "feature_mean", "class_interval", "feature_interval"):
        value = getattr(answer, name)
        if value is not None:
            arrays[name] = value
    np.savez(out, report=json.dumps(report), **arrays)


def load_answer(path: Any) -> tuple[Answer, dict[str, Any]]:
    """(the answers, the report) that `run` wrote."""
    with np.load(path) as file:
        report = json.loads(str(file["report"]))
        arrays = {k: file[k] for k in file.files if k != "report"}
    extra = {k.removeprefix("extra/"): arrays.pop(k) for k in list(arrays) if k[:6] == "extra/"}
    return Answer(**arrays, extra=extra), report


def from_draws(p: np.ndarray, q: np.ndarray, extra: dict[str, np.ndarray]) -> Answer:
    """Means and intervals of draws p `[R, S, I]` and q `[R, S, I, K, J]`."""
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    return Answer(
        p.mean(1), q.mean(1), np.quantile(p, tails, axis=1), np.quantile(q, tails, axis=1), extra
    )


def main(methods: dict[str, Method]) -> None:
    """The command line of an adapter."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("check", "run"))
    parser.add_argument("method", choices=methods)
    parser.add_argument("job", nargs="?")
    parser.add_argument("out", nargs="?")
    arguments = parser.parse_args()
    method = methods[arguments.method]
    if arguments.action == "check":
        print(json.dumps(check(method)))
    else:
        run(method, arguments.job, arguments.out)
