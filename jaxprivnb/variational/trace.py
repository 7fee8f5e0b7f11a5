"""`trace_vb`: the path that `fit_vb` takes, kept step by step.

It runs the same steps under a `scan`, so that `fit_vb` itself need not carry a path.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb import validate
from jaxprivnb.simplex import SimplexSolver
from jaxprivnb.tables import NoisyTables, Prior, check_type, resolve_prior
from jaxprivnb.variational import ascent
from jaxprivnb.variational.ascent import Ascent, Limits, Method
from jaxprivnb.variational.bound import Data
from jaxprivnb.variational.fit import resolve_limits, resolve_method
from jaxprivnb.variational.starts import check_start, start_points


class Trace(NamedTuple):
    """The ascent of one fit; entry s is the point kept after s sweeps, entry 0 the start."""

    elbo: jax.Array
    """The bound, `[n_iterations]`; nan after the ascent has ended."""
    theta_class: jax.Array
    """t[i] of q(n[.]) = Multinomial(N, t), `[n_iterations, I]`; nan after the end."""
    iterations: jax.Array
    """How many entries there are before the end, int32; what `fit_vb` reports."""


def trace_vb(
    tables: NoisyTables,
    prior: Prior | None = None,
    *,
    solver: str | SimplexSolver = "kkt",
    bound: str = "mixture",
    accelerate: bool = True,
    start: Any = "naive",
    key: jax.Array | None = None,
    tol: float | None = None,
    n_iterations: int = 500,
) -> Trace:
    """The bound after every sweep of `fit_vb`, from one start.

    Every sweep costs as much as in `fit_vb`, but all `n_iterations` of them are paid for.

    Args:
        tables: one dataset, counts `[I, K, J]`.
        prior: as in `fit_vb`, and so for the rest.
        solver: of the simplex subproblem.
        bound: "mixture" or "quadratic".
        accelerate: extrapolate; where an extrapolated point is dropped the path stands still.
        start: "naive", "uniform", "random", or a pair of arrays.
        key: JAX random key, needed for a random start.
        tol: where the ascent ends.
        n_iterations: length of the path, at most so many evaluations of the bound.
    """
    check_type(tables).check("trace_vb")
    method = resolve_method(tables.noise, solver=solver, bound=bound, accelerate=accelerate)
    length = validate.whole_number("n_iterations", n_iterations, at_least=1)
    limits = resolve_limits(tables.counts.dtype, tol, length)
    prior = resolve_prior(prior, tables.counts, tables.mask)
    name, given = check_start(tables, start, 1, key)
    return _trace(tables, prior, given, key, limits, method, name, length)


@partial(jax.jit, static_argnames=("method", "start", "length"))
def _trace(
    tables: NoisyTables,
    prior: Prior,
    given: tuple[jax.Array, jax.Array] | None,
    key: jax.Array | None,
    limits: Limits,
    method: Method,
    start: str,
    length: int,
) -> Trace:
    data = Data.of(tables, prior)
    starts = start_points(tables, start, 1, key, given)
    theta = jax.tree.map(lambda x: x[0], starts)

    def move(at: Ascent, _: None) -> tuple[Ascent, tuple[jax.Array, jax.Array]]:
        going = ascent.unfinished(at, limits)
        after = ascent.step(data, at, limits, method)
        after = jax.tree.map(lambda new, old: jnp.where(going, new, old), after, at)
        seen = (after.elbo, jnp.exp(after.best.log_t_class))
        return after, jax.tree.map(lambda x: jnp.where(going, x, jnp.nan), seen)

    end, (elbo, theta_class) = lax.scan(move, ascent.begin(theta), length=length)
    return Trace(elbo, theta_class, end.iterations)
