"""Where the ascent starts: strictly inside, because a coordinate at exactly 0 can never leave it.

The naive estimate has zeros (clipped counts), so `INTERIOR` of uniform is mixed into it and into
any start a user gives.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb import dirichlet, validate
from jaxprivnb.baselines import naive_probabilities
from jaxprivnb.simplex.problem import LOG_ZERO
from jaxprivnb.tables import NoisyTables

INTERIOR = 0.01
"""Share of the uniform distribution in every start."""

NAMES = ("naive", "uniform", "random")
GIVEN = "given"
"""The name of a start that the user passed as arrays."""

Pair = tuple[jax.Array, jax.Array]


class Theta(NamedTuple):
    """A point of the ascent, in logarithms."""

    log_t_class: jax.Array
    """`[I]`."""
    log_t_feature: jax.Array
    """`[I, K, J]`, `LOG_ZERO` in masked cells."""


def check_start(
    tables: NoisyTables, start: Any, n_starts: int, key: jax.Array | None
) -> tuple[str, Pair | None]:
    """What the user asked for, as (name, arrays or None); raises if it cannot be had."""
    if key is not None:
        validate.random_key("key", key)
    given = None
    if isinstance(start, str):
        name = validate.choice("start", start, NAMES)
    else:
        name, given = GIVEN, _given(tables, start)
    if key is None and (n_starts > 1 or name == "random"):
        raise TypeError("random starts need a key: pass key=jax.random.key(...)")
    return name, given


def start_points(
    tables: NoisyTables,
    start: str,
    n_starts: int = 1,
    key: jax.Array | None = None,
    given: Pair | None = None,
) -> Theta:
    """`n_starts` points on a leading axis: the one named, then random ones.

    Args:
        tables: one dataset.
        start: "naive", "uniform", "random", or "given" with `given`.
        n_starts: how many in total, at least 1.
        key: needed where a random start is.
        given: (t `[I]`, t `[I, K, J]`) of the user.
    """
    real = tables.real
    flat = jnp.ones_like(tables.counts[:, 0, 0]), jnp.ones_like(tables.counts)
    named = {"naive": lambda: naive_probabilities(tables), "uniform": lambda: flat}
    if given is not None:
        named[GIVEN] = lambda: given
    points = [inside(*named[start](), real)] if start in named else []
    for r in range(n_starts - len(points)):
        key_class, key_feature = jax.random.split(jax.random.fold_in(key, r))  # type: ignore[arg-type]
        cells = jnp.broadcast_to(real, tables.counts.shape).astype(tables.counts.dtype)
        t_class = dirichlet.sample(key_class, flat[0])
        points.append(inside(t_class, dirichlet.sample(key_feature, cells), real))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)


def inside(t_class: jax.Array, t_feature: jax.Array, real: jax.Array) -> Theta:
    """(1 - INTERIOR) t + INTERIOR uniform, normalised, in logarithms."""
    cells = jnp.broadcast_to(real, t_feature.shape)
    return Theta(
        _mixed(t_class, jnp.ones_like(t_class, bool)),
        _mixed(t_feature, cells),
    )


def _mixed(t: jax.Array, real: jax.Array) -> jax.Array:
    kept = jnp.where(real, t, 0)
    uniform = real.astype(t.dtype) / real.sum(-1, keepdims=True).astype(t.dtype)
    x = (1 - INTERIOR) * kept / kept.sum(-1, keepdims=True) + INTERIOR * uniform
    return jnp.where(real, jnp.log(jnp.where(real, x, 1)), LOG_ZERO)


def _given(tables: NoisyTables, start: Any) -> tuple[jax.Array, jax.Array]:
    try:
        t_class, t_feature = start
    except (TypeError, ValueError):
        raise TypeError(
            f"start must be one of {', '.join(map(repr, NAMES))} or a pair "
            "(class probabilities [I], feature probabilities [I, K, J]), "
            f"got {validate.word(start)}"
        ) from None
    dtype, shape = tables.counts.dtype, tables.counts.shape
    t_class = validate.as_float_array("start[0]", t_class, dtype)
    t_feature = validate.as_float_array("start[1]", t_feature, dtype)
    validate.probabilities("start[0]", t_class, shape[:1])
    validate.probabilities("start[1]", t_feature, shape, tables.mask)
    return t_class, t_feature
