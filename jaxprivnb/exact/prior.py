"""Type-II maximum likelihood: the Dirichlet concentrations under which the release is most likely.

log P(m) is exact and differentiable in the prior, so its maximum over concentrations is gradient
ascent (Adam, from optax) on their logarithms. Many releases are summed: they share the prior.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass, shapes_repr, with_fields
from jaxprivnb.exact import plan
from jaxprivnb.exact.fit import benign, fit_path, refit, resolve_tolerance
from jaxprivnb.exact.path import Path
from jaxprivnb.exact.posterior import ExactPosterior
from jaxprivnb.exact.tree import upward
from jaxprivnb.status import Status
from jaxprivnb.tables import NoisyTables, Prior, check_type

TYING = ("symmetric", "per_class", "full")
_FURTHEST = 12.0
"""Logs of concentrations stay within this distance of 0: evidence can grow for ever towards an
infinite concentration, where all the prior's mass is on one point."""


@pytree_dataclass
class FittedPrior:
    """The result of `fit_prior`."""

    prior: Prior
    """The concentrations found, `[I]` and `[I, K, J]`."""
    log_evidence: jax.Array
    """sum of log P(m) over the releases that counted, under that prior, scalar."""
    status: jax.Array
    """`Status` code, int32: the worst of the releases that counted; `BAD_INPUT` if every release
    was bad, `NON_FINITE` if none had a finite evidence."""
    release_status: jax.Array
    """`Status` code of each release under the prior found, int32 `[...]`, as `fit_exact` gives it:
    bad input does not count, and the evidence of `LOST_MASS` is not certain."""
    lost_mass: jax.Array
    """Largest bound on the mass that the evidence of a release that counted left out, scalar."""
    trace: jax.Array
    """The evidence at every step, `[steps]`; the result is the best of them."""

    def __repr__(self) -> str:
        return shapes_repr(self)


def fit_prior(
    tables: NoisyTables,
    *,
    tying: str = "symmetric",
    start: Prior | None = None,
    steps: int = 200,
    learning_rate: float = 0.1,
) -> FittedPrior:
    """Concentrations that maximise the exact evidence of one or many releases.

    Args:
        tables: one release, or a batch with a leading axis, which share one prior.
        tying: "symmetric" fits two numbers, one for P(Y) and one for every P(X_k | Y=i);
            "per_class" one for each class in P(Y) and one for each P(X_. | Y=i); "full" every
            concentration, which only many releases can inform.
        start: where to begin; uniform if None. Ties take the geometric mean.
        steps: of gradient ascent.
        learning_rate: of Adam, on logs of concentrations.
    """
    validate.choice("tying", tying, TYING)
    steps = validate.whole_number("steps", steps, at_least=1)
    learning_rate = validate.real_number("learning_rate", learning_rate, above=0)
    if len(check_type(tables).batch_shape) > 1:
        raise ValueError(
            f"fit_prior takes one dataset or one leading axis, got batch shape {tables.batch_shape}"
        )
    batch = bool(tables.batch_shape)
    if not batch:
        tables = jax.tree.map(lambda x: x[None], tables)
    if not validate.is_concrete(tables.n_records):
        raise TypeError("fit_prior reads n_records, so it cannot run under jax.jit or jax.vmap")
    one = jax.tree.map(lambda x: x[0], tables)
    start = Prior.uniform(one) if start is None else start
    validate.concentration("start.class_", start.class_, one.counts.shape[:1])
    validate.concentration("start.feature", start.feature, one.counts.shape)
    start = jax.tree.map(lambda a: a.astype(one.counts.dtype), start)
    # Concentrations move: a path for any, that does not take them to be 1, and as wide as the
    # releases turn out to need.
    path = dataclasses.replace(plan.choose(tables, start).questions, flat=False, tilts=3)
    path = _fit_all(tables, start, path).path.questions
    best, trace = _ascend(tables, start, path, tying, steps, learning_rate)
    fitted = _fit_all(tables, best, path)
    codes, values = np.asarray(fitted.status), np.asarray(fitted.log_evidence)
    counted = np.isfinite(values)
    status = Status(codes[counted].max()) if counted.any() else Status.NON_FINITE
    if (codes == Status.BAD_INPUT).all():
        status = Status.BAD_INPUT
    total = values.sum(where=counted) if counted.any() else -np.inf
    lost = np.max(np.asarray(fitted.lost_mass), initial=0, where=counted)
    return FittedPrior(
        prior=best,
        log_evidence=jnp.asarray(total, values.dtype),
        status=jnp.asarray(status.value, jnp.int32),
        release_status=jnp.asarray(codes if batch else codes[0]),
        lost_mass=jnp.asarray(lost, values.dtype),
        trace=trace,
    )


def _fit_all(tables: NoisyTables, prior: Prior, path: Path) -> ExactPosterior:
    """What `fit_exact` says of every release under one prior, its wider paths included."""
    tolerance = resolve_tolerance(None, tables.counts.dtype)
    return refit(_fit_each(tables, prior, path, tolerance), tolerance)


@partial(jax.jit, static_argnames=("path", "tolerance"))
def _fit_each(tables: NoisyTables, prior: Prior, path: Path, tolerance: float) -> ExactPosterior:
    return lax.map(lambda one: fit_path(one, prior, path, tolerance), tables)


@partial(jax.jit, static_argnames=("path", "tying", "steps", "learning_rate"))
def _ascend(
    tables: NoisyTables, start: Prior, path: Path, tying: str, steps: int, learning_rate: float
) -> tuple[Prior, jax.Array]:
    """(The best prior, the evidence at every step)."""
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    theta = _untie(jnp.log(start.class_), jnp.log(start.feature), tying)

    def each(theta: Any, one: NoisyTables) -> tuple[jax.Array, Any, jax.Array]:
        """One release's evidence and its slope; 0 of a release that has none."""
        good = one.is_valid()
        clean, _ = benign(good, one, start)
        log_evidence = lambda x: upward(clean, _tie(x, start), path).log_evidence  # noqa: E731
        value, slope = jax.value_and_grad(log_evidence)(theta)
        good &= jnp.isfinite(value)
        for leaf in jax.tree.leaves(slope):
            good &= jnp.all(jnp.isfinite(leaf))
        keep = lambda x: jnp.where(good, x, 0)  # noqa: E731
        return keep(value), jax.tree.map(keep, slope), good

    class State(NamedTuple):
        theta: Any
        optimiser: Any
        best: Any
        best_value: jax.Array

    def step(s: State, _: None) -> tuple[State, jax.Array]:
        # One release after another: the reverse pass then holds the messages of one.
        values, slopes, good = lax.map(lambda one: each(s.theta, one), tables)
        value = jnp.where(good.any(), values.sum(), -jnp.inf)
        slope = jax.tree.map(lambda x: -x.sum(0), slopes)
        better = value > s.best_value
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), s.theta, s.best)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to whole numbers
            move, optimiser_state = optimiser.update(slope, s.optimiser)
        theta = optax.apply_updates(s.theta, move)
        theta = jax.tree.map(lambda x: jnp.clip(x, -_FURTHEST, _FURTHEST), theta)
        return State(theta, optimiser_state, best, jnp.maximum(value, s.best_value)), value

    nothing = jnp.full((), -jnp.inf, start.class_.dtype)
    first = State(theta, optimiser.init(theta), theta, nothing)
    last, trace = lax.scan(step, first, None, length=steps)
    return _tie(last.best, start), trace


def _untie(log_class: jax.Array, log_feature: jax.Array, tying: str) -> Any:
    """The free parameters: means of the logs over what is tied, with their axes kept."""
    if tying == "symmetric":
        return log_class.mean(keepdims=True), log_feature.mean(keepdims=True)
    if tying == "per_class":
        return log_class, log_feature.mean((1, 2), keepdims=True)
    return log_class, log_feature


def _tie(theta: Any, like: Prior) -> Prior:
    """Concentrations from free parameters; values are positive by construction."""
    log_class, log_feature = theta
    return with_fields(
        like,
        class_=jnp.broadcast_to(jnp.exp(log_class), like.class_.shape),
        feature=jnp.broadcast_to(jnp.exp(log_feature), like.feature.shape),
    )
