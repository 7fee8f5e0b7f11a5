"""Type-II maximum likelihood: the Dirichlet concentrations under which the release is most likely.

log P(m) is exact and differentiable in the prior, so its maximum over concentrations is gradient
ascent (Adam, from optax) on their logarithms. Many releases are summed: they share the prior.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxprivnb import validate
from jaxprivnb.exact import window
from jaxprivnb.exact.evidence import log_evidence
from jaxprivnb.exact.window import Layout
from jaxprivnb.tables import NoisyTables, Prior, check_type

TYING = ("symmetric", "per_class", "full")
_FURTHEST = 12.0
"""Logs of concentrations stay within this distance of 0: evidence can grow for ever towards an
infinite concentration, where all the prior's mass is on one point."""


class FittedPrior(NamedTuple):
    """The result of `fit_prior`."""

    prior: Prior
    """The concentrations found, `[I]` and `[I, K, J]`."""
    log_evidence: jax.Array
    """sum of log P(m) over the releases under that prior, scalar."""
    trace: jax.Array
    """The same at every step, `[steps]`; the result is the best of them."""


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
    if not tables.batch_shape:
        tables = jax.tree.map(lambda x: x[None], tables)
    if not validate.is_concrete(tables.n_records):
        raise TypeError("fit_prior reads n_records, so it cannot run under jax.jit or jax.vmap")
    one = jax.tree.map(lambda x: x[0], tables)
    start = Prior.uniform(one) if start is None else start
    validate.concentration("start.class_", start.class_, one.counts.shape[:1])
    validate.concentration("start.feature", start.feature, one.counts.shape)
    start = jax.tree.map(lambda a: a.astype(one.counts.dtype), start)
    return _ascend(tables, start, window.plan(tables), tying, steps, learning_rate)


@partial(jax.jit, static_argnames=("layout", "tying", "steps", "learning_rate"))
def _ascend(
    tables: NoisyTables, start: Prior, layout: Layout, tying: str, steps: int, learning_rate: float
) -> FittedPrior:
    places = jax.vmap(lambda t: window.place(t, layout))(tables)
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    theta = _untie(jnp.log(start.class_), jnp.log(start.feature), tying)

    def loss(theta: Any) -> jax.Array:
        prior = _tie(theta, start)
        # One release after another: the reverse pass then holds the messages of one.
        each = lax.map(lambda x: log_evidence(x[0], prior, x[1], layout), (tables, places))
        return -each.sum()

    class State(NamedTuple):
        theta: Any
        optimiser: Any
        best: Any
        best_loss: jax.Array

    def step(s: State, _: None) -> tuple[State, jax.Array]:
        value, slope = jax.value_and_grad(loss)(s.theta)
        better = value < s.best_loss  # never true of a NaN
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), s.theta, s.best)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to whole numbers
            move, optimiser_state = optimiser.update(slope, s.optimiser)
        theta = optax.apply_updates(s.theta, move)
        theta = jax.tree.map(lambda x: jnp.clip(x, -_FURTHEST, _FURTHEST), theta)
        state = State(theta, optimiser_state, best, jnp.where(better, value, s.best_loss))
        return state, -value

    infinite = jnp.full((), jnp.inf, start.class_.dtype)
    first = State(theta, optimiser.init(theta), theta, infinite)
    last, trace = lax.scan(step, first, None, length=steps)
    return FittedPrior(_tie(last.best, start), -last.best_loss, trace)


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
    leaves = [
        jnp.broadcast_to(jnp.exp(log_class), like.class_.shape),
        jnp.broadcast_to(jnp.exp(log_feature), like.feature.shape),
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
