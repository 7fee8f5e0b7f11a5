"""`trace_vb`: the path that `fit_vb` takes, kept step by step.

It runs the same steps under a `scan`, so that `fit_vb` itself need not carry a path.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb import validate
from jaxprivnb.tables import NoisyTables, Prior, check_type, resolve_prior
from jaxprivnb.variational import ascent
from jaxprivnb.variational.ascent import Ascent
from jaxprivnb.variational.bound import Data
from jaxprivnb.variational.fit import Settings, resolve
from jaxprivnb.variational.starts import start_points


class Trace(NamedTuple):
    """The ascent of one fit; entry s is the point kept after s sweeps, entry 0 the start."""

    elbo: jax.Array
    """The bound, `[n_iterations]`; nan after the ascent has ended."""
    theta_class: jax.Array
    """t[i] of q(n[.]) = Multinomial(N, t), `[n_iterations, I]`; nan after the end."""
    iterations: jax.Array
    """How many entries there are before the end, int32; what `fit_vb` reports."""


def trace_vb(
    tables: NoisyTables, prior: Prior | None = None, *, n_iterations: int = 500, **options: Any
) -> Trace:
    """The bound after every sweep of `fit_vb`, from one start.

    Every sweep costs as much as in `fit_vb`, but all `n_iterations` of them are paid for. Where an
    extrapolated point is dropped the path stands still.

    Args:
        tables: one dataset, counts `[I, K, J]`.
        prior: Dirichlet concentrations; uniform if None.
        n_iterations: length of the path, at most so many evaluations of the bound.
        **options: `solver`, `bound`, `accelerate`, `start`, `key` and `tol` of `fit_vb`.
    """
    check_type(tables).check("trace_vb")
    tables.check_plain("trace_vb")
    length = validate.whole_number("n_iterations", n_iterations, at_least=1)
    settings = resolve(tables, options, n_starts=1, max_iterations=length)
    return _trace(tables, resolve_prior(prior, tables.counts, tables.mask), settings, length)


@partial(jax.jit, static_argnames="length")
def _trace(tables: NoisyTables, prior: Prior, settings: Settings, length: int) -> Trace:
    data, limits = Data.of(tables, prior), settings.limits
    starts = start_points(tables, settings.start, 1, settings.key, settings.given)
    theta = jax.tree.map(lambda x: x[0], starts)

    def move(at: Ascent, _: None) -> tuple[Ascent, tuple[jax.Array, jax.Array]]:
        going = ascent.unfinished(at, limits)
        after = ascent.step(data, at, limits, settings.method)
        after = jax.tree.map(lambda new, old: jnp.where(going, new, old), after, at)
        seen = (after.elbo, jnp.exp(after.best.theta.log_t_class))
        return after, jax.tree.map(lambda x: jnp.where(going, x, jnp.nan), seen)

    end, (elbo, theta_class) = lax.scan(move, ascent.begin(theta), length=length)
    return Trace(elbo, theta_class, end.iterations)
