"""Estimators in plain Python: `run_study(..., methods={"mine": fit})` and `--plugin module:fit`.

    fit(tables, prior=..., seed=..., options...)

`tables` is one release, its arrays NumPy's; `prior`, `mask` (with true counts) and `seed` are given
where the function has parameters of that name. `seed` is a whole number that names the replicate,
whatever chunk it is in. What it may give:

    (class_mean, feature_mean)          estimates of P(Y) `[I]` and P(X|Y) `[I, K, J]`
    {"class_mean": ..., ...}            the same by name, or as attributes of any object
    a `jaxprivnb.posterior.Posterior`

By name it may also give `class_interval` and `feature_interval`: a function of the level, a mapping
from levels, or one pair (lower, upper), which is at the study's `width_level`. And `status` (0 is
success), `message`, `log_evidence`, `iterations`, `max_decrease`. With a `Method(called="batch")`
all of these have a leading axis, and the whole chunk is one call.

An error that it raises is data: its replicates have `Status.FAILED` and the error as `message`.
Threads of the local engine call it side by side.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb.methods import METHODS, NUMBERS, Method, imported, parameters
from jaxprivnb.posterior import Posterior
from jaxprivnb.simulation import Simulation
from jaxprivnb.status import Status
from jaxprivnb.study.spec import Arm
from jaxprivnb.tables import Prior

_LONGEST = 200
"""Characters of a message that are kept."""

Ends = tuple[np.ndarray, np.ndarray]
"""Lower and upper ends of intervals; nan where there are none."""


class Told(NamedTuple):
    """What a method says of the replicates of a chunk."""

    class_mean: np.ndarray
    """`[R, I]`."""
    feature_mean: np.ndarray
    """`[R, I, K, J]`."""
    status: np.ndarray
    """int8 `[R]`."""
    message: np.ndarray
    """Text `[R]`, empty where there is nothing to say."""
    numbers: dict[str, np.ndarray]
    """Each of `NUMBERS`, `[R]`."""
    intervals: dict[float, tuple[Ends, Ends]]
    """For each level that was asked, of P(X|Y) `[W, I, K, J]` and P(Y) `[W, I]`, for the wanted
    replicates."""


class Asked(NamedTuple):
    """What is asked of every fit of a chunk."""

    levels: tuple[float, ...]
    width_level: float
    wanted: np.ndarray
    """Replicates whose intervals are asked for, as places in the chunk."""


def failure(error: BaseException) -> str:
    """An error as a message, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]


def ask_plain(
    arm: Arm,
    simulation: Simulation,
    prior: Prior,
    seeds: np.ndarray,
    asked: Asked,
    between: Callable[[], None],
) -> Told | tuple[Posterior, np.ndarray]:
    """What an estimator in plain Python says of a chunk.

    Where all that it gave are posteriors of one kind: them on a leading axis, and the messages,
    empty but where it failed.
    """
    method = METHODS[arm.method]
    size = simulation.counts.shape[0]
    data, mask = jax.device_get((_data(method, simulation), simulation.tables.mask))
    call = _caller(method, dict(arm.options), jax.device_get(prior))
    shape = simulation.feature_probs.shape[1:]
    message = np.full(size, "", object)
    if method.called == "batch":
        between()
        try:
            answer = call(data, mask, seeds)
            if isinstance(answer, Posterior):
                return answer, message
            return _read_all(answer, (size,), shape, method, asked)
        except Exception as error:
            return nothing_told(size, shape, failure(error), asked)
    wanted = set(asked.wanted.tolist())
    answers: list[Any] = []
    for r in range(size):
        between()
        one, own = jax.tree.map(lambda x, r=r: x[r], (data, mask))
        none = asked._replace(wanted=np.arange(int(r in wanted)))
        try:
            answer = call(one, own, int(seeds[r]))
            if not isinstance(answer, Posterior):
                answer = _read_all(answer, (), shape, method, none)
        except Exception as error:
            message[r] = failure(error)
            answer = None
        answers.append(answer)
    kinds = {jax.tree.structure(a) for a in answers if a is not None}
    posteriors = [a for a in answers if isinstance(a, Posterior)]
    if posteriors and len(kinds) == 1:
        whole = [posteriors[0] if a is None else a for a in answers]
        return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *whole), message
    for r, answer in enumerate(answers):
        none = asked._replace(wanted=np.arange(int(r in wanted)))
        if isinstance(answer, Posterior):  # of several kinds: their face will do
            try:
                answers[r] = _read_all(answer, (), shape, method, none)
            except Exception as error:
                message[r], answers[r] = failure(error), None
        if answers[r] is None:
            answers[r] = nothing_told(1, shape, message[r], none)
    return _joined(answers)


def _data(method: Method, simulation: Simulation) -> Any:
    return simulation.counts if method.reads == "counts" else simulation.tables


def _caller(method: Method, options: dict[str, Any], prior: Any) -> Callable[..., Any]:
    """The fit as a function of data, mask and seed."""
    fit = imported(method.fit)
    known = parameters(fit)[1:]

    def call(data: Any, mask: Any, seed: Any) -> Any:
        given = {"prior": prior, "mask": mask, "seed": seed}
        if method.reads == "tables":
            given.pop("mask")
        return fit(data, **{k: v for k, v in given.items() if k in known} | options)

    return call


def _read_all(
    answer: Any, lead: tuple[int, ...], shape: tuple[int, ...], method: Method, asked: Asked
) -> Told:
    """An answer for one replicate, `lead` (), or for a chunk; as for a chunk in both cases."""
    if type(answer) is tuple and len(answer) == 2:
        answer = dict(zip(("class_mean", "feature_mean"), answer, strict=True))
    get = answer.get if isinstance(answer, Mapping) else lambda name: getattr(answer, name, None)
    R = lead[0] if lead else 1

    def array(name: str, value: Any, tail: tuple[int, ...]) -> np.ndarray:
        if value is None:
            raise TypeError(f"no {name}: give (class_mean, feature_mean), or them by name")
        found = np.asarray(value, np.float64)
        if found.shape != (*lead, *tail):
            raise ValueError(f"{name} must have shape {(*lead, *tail)}, got {found.shape}")
        return found.reshape(R, *tail)

    def each(name: str, default: float) -> np.ndarray:
        value = get(name)
        value = default if value is None else value
        return np.broadcast_to(np.asarray(value, np.float64), lead).reshape(R).copy()

    def ends(name: str, level: float, tail: tuple[int, ...]) -> Ends:
        given = get(name)
        if callable(given):
            given = given(level)
        elif isinstance(given, Mapping):
            near = [x for x in given if abs(float(x) - level) < 1e-9]
            given = given[near[0]] if near else None
        elif level != asked.width_level:
            given = None
        if given is None:
            nothing = np.full((asked.wanted.size, *tail), np.nan)
            return nothing, nothing
        low, high = (array(name, x, tail)[asked.wanted] for x in given)
        return low, high

    class_mean = array("class_mean", get("class_mean"), shape[:1])
    feature_mean = array("feature_mean", get("feature_mean"), shape)
    status = each("status", 0)
    if not ((status >= 0) & (status < 128) & (status == np.floor(status))).all():
        raise ValueError("status must be a whole number from 0 to 127")
    message = np.broadcast_to(np.asarray(get("message") or "", object), lead).reshape(R)
    message = np.array([str(m)[:_LONGEST] for m in message], object)
    levels = {*asked.levels, asked.width_level} if asked.wanted.size else set()
    intervals = {
        level: (
            ends("feature_interval", level, shape),
            ends("class_interval", level, shape[:1]),
        )
        for level in sorted(levels)
    }
    numbers = {name: each(method.numbers.get(name, name), np.nan) for name in NUMBERS}
    return Told(class_mean, feature_mean, status.astype(np.int8), message, numbers, intervals)


def nothing_told(size: int, shape: tuple[int, ...], message: str, asked: Asked) -> Told:
    """Of replicates whose fit failed."""
    blank = lambda n, tail: np.full((n, *tail), np.nan)  # noqa: E731
    W = asked.wanted.size
    feature, class_ = (blank(W, shape),) * 2, (blank(W, shape[:1]),) * 2
    return Told(
        blank(size, shape[:1]),
        blank(size, shape),
        np.full(size, Status.FAILED, np.int8),
        np.full(size, message, object),
        {name: blank(size, ()) for name in NUMBERS},
        dict.fromkeys((*asked.levels, asked.width_level), (feature, class_)) if W else {},
    )


def _joined(told: list[Told]) -> Told:
    """Of one replicate each, on one axis."""
    numbers = {name: np.concatenate([t.numbers[name] for t in told]) for name in NUMBERS}
    asked = [t.intervals for t in told if t.intervals]

    def side(level: float, which: int) -> Ends:
        low, high = (np.concatenate([one[level][which][end] for one in asked]) for end in (0, 1))
        return low, high

    join = lambda field: np.concatenate([getattr(t, field) for t in told])  # noqa: E731
    return Told(
        join("class_mean"),
        join("feature_mean"),
        join("status"),
        join("message"),
        numbers,
        {level: (side(level, 0), side(level, 1)) for level in (asked[0] if asked else {})},
    )
