"""A general optimiser, made safe by accepting only ascent (paper 7.2, third approach).

An optax optimiser proposes moves of log x, unconstrained up to its normalisation. The paper's
objection to a black box is that its answer may lower the bound. Here a proposal that lowers f is
dropped and the next ones are made shorter until some succeed, so the objective never falls.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxprivnb import validate
from jaxprivnb.simplex.problem import SimplexProblem, SimplexSolution, conclude, normalise

ADAM = optax.adam(0.3)


@dataclasses.dataclass(frozen=True)
class Optax:
    """Options of the guarded optimiser."""

    optimizer: optax.GradientTransformation = ADAM
    """Any optax optimiser that needs only gradients."""
    inner_steps: int = 30
    """Most proposals in one call."""
    shrink: float = 0.5
    """Factor of the moves after a rejected proposal, in (0, 1); two accepted ones undo it."""

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, optax.GradientTransformation):
            raise TypeError(
                f"optimizer must be an optax optimiser, got {validate.describe(self.optimizer)}"
            )
        validate.whole_number("inner_steps", self.inner_steps, at_least=1)
        validate.real_number("shrink", self.shrink, above=0, below=1)

    def solve(self, problem: SimplexProblem, log_x: jax.Array) -> SimplexSolution:
        """Up to `inner_steps` proposals from log_x `[J]`."""
        problem = problem.centred()
        real = problem.real
        eps = jnp.finfo(log_x.dtype).eps

        def loss_gradient(log_x: jax.Array) -> jax.Array:
            """d(-f)/d(log x) along the simplex: -x_j (f'_j - x . f')."""
            x, g = jnp.exp(log_x), problem.gradient(log_x)
            return jnp.where(real, -x * (g - jnp.sum(x * g)), 0)

        def unfinished(at: _Proposal) -> jax.Array:
            return ~at.done & (at.steps < self.inner_steps)

        def propose(at: _Proposal) -> _Proposal:
            # Inside, optax mixes integer counters and floats, which strict promotion forbids.
            with jax.numpy_dtype_promotion("standard"):
                updates, optimizer = self.optimizer.update(
                    loss_gradient(at.log_x), at.optimizer, at.log_x
                )
            candidate = normalise(at.log_x + at.scale * jnp.where(real, updates, 0), real)
            value = problem.objective(candidate)
            ok = jnp.isfinite(value) & (value >= at.value)
            log_x = jnp.where(ok, candidate, at.log_x)
            close = problem.gap(log_x) <= 4 * eps * (1 + jnp.abs(value))
            # What the optimiser remembers led downhill: it starts again from the gradient here.
            optimizer = jax.tree.map(
                lambda new, old: jnp.where(ok, new, old), optimizer, self.optimizer.init(log_x)
            )
            factor = jnp.where(ok, self.shrink**-0.5, self.shrink).astype(value.dtype)
            scale = jnp.minimum(at.scale * factor, 1)
            return _Proposal(
                log_x, jnp.where(ok, value, at.value), optimizer, scale, at.steps + 1, close
            )

        start = _Proposal(
            log_x,
            problem.objective(log_x),
            self.optimizer.init(log_x),
            jnp.ones((), log_x.dtype),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), bool),
        )
        end = lax.while_loop(unfinished, propose, start)
        return conclude(problem, end.log_x, end.steps)


class _Proposal(NamedTuple):
    """The iteration's carry."""

    log_x: jax.Array
    value: jax.Array
    optimizer: optax.OptState
    scale: jax.Array
    """Factor of the optimiser's moves, at most 1."""
    steps: jax.Array
    done: jax.Array
