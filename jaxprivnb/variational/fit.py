"""`fit_vb`: the variational posterior of one release."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass, static
from jaxprivnb.noise import Noise
from jaxprivnb.posterior import DirichletPosterior, named_after
from jaxprivnb.simplex import SOLVERS, SimplexSolver
from jaxprivnb.status import Status
from jaxprivnb.tables import NoisyTables, Prior, check_type, resolve_prior
from jaxprivnb.variational import ascent
from jaxprivnb.variational.ascent import Ascent, Limits, Method
from jaxprivnb.variational.bound import Data
from jaxprivnb.variational.local import BOUNDS, local_bound
from jaxprivnb.variational.starts import Pair, check_start, start_points
from jaxprivnb.variational.updates import at_theta

TOLERANCE = 4e-10
"""Default tol; in float32 the rounding error of the bound takes its place."""


@pytree_dataclass
class VariationalPosterior(DirichletPosterior):
    """The fitted factors q(p), q(p[i,k,.]) and the bound they give."""

    elbo: jax.Array
    """The bound itself, a lower bound of log P(m), `[...]`."""
    iterations: jax.Array
    """Sweeps over all factors, int32 `[...]`."""
    max_decrease: jax.Array
    """The largest fall of the bound between two steps, `[...]`; 0 if none."""
    theta_class: jax.Array
    """t[i] of q(n[.]) = Multinomial(N, t), `[..., I]`."""
    theta_feature: jax.Array
    """t[i,k,j] of q(n[i,k,.]) = Multinomial(n[i], t[i,k,.]), `[..., I, K, J]`; 0 where masked."""
    elbo_starts: jax.Array
    """The bound reached from every start, `[..., n_starts]`; `elbo` is the largest."""

    headline = ("elbo", "iterations")


def fit_vb(
    tables: NoisyTables,
    prior: Prior | None = None,
    *,
    solver: str | SimplexSolver = "kkt",
    bound: str = "mixture",
    accelerate: bool = True,
    start: str | tuple[ArrayLike, ArrayLike] = "naive",
    n_starts: int = 1,
    key: jax.Array | None = None,
    tol: float | None = None,
    max_iterations: int = 3000,
) -> VariationalPosterior:
    """The variational posterior of Karwa, Kifer and Slavković for one release.

    It improves on taking noisy counts at face value for P(X|Y), but its intervals are far too
    narrow and at strong privacy it empties classes; `fit_exact` has neither fault.

    Args:
        tables: one dataset, counts `[I, K, J]`.
        prior: Dirichlet concentrations; uniform if None.
        solver: of the simplex subproblem: "kkt" (exact), "armijo" (the paper's ascent,
            scaled by the curvature; `Armijo(rule="longest")` is its letter), "mm", "optax", or one
            of `jaxprivnb.simplex` with options.
        bound: of the Laplace kernel, "mixture" or "quadratic"; they give the same iterates.
        accelerate: extrapolate the ascent (SQUAREM), accepting only where the bound does not fall.
        start: "naive", "uniform", "random", or a pair of arrays (t `[I]`, t `[I, K, J]`); 1% of
            uniform is mixed into any of them, since a coordinate at 0 would stay there.
        n_starts: how many starts; those after the first are random, and the best bound wins.
        key: JAX random key, needed for random starts.
        tol: stop when a step adds less than tol * (1 + |bound|) to the bound and moves no
            probability by more than sqrt(tol), or sqrt(eps) of the dtype if that is larger; growth
            below the bound's rounding error counts as none. None means 4e-10, which float32 does
            not resolve: it ends some 1e-3 below float64 (bench/float32.py).
        max_iterations: most sweeps from a start.
    """
    check_type(tables).check("fit_vb")
    tables.check_plain("fit_vb")
    settings = _settings(
        tables, solver, bound, accelerate, start, n_starts, key, tol, max_iterations
    )
    prior = resolve_prior(prior, tables.counts, tables.mask)
    return named_after(_fit(tables, prior, settings), tables)


@pytree_dataclass
class Settings:
    """The options of `fit_vb`, checked."""

    method: Method = static()
    start: str = static()
    n_starts: int = static()
    given: Pair | None
    """The start, if it was given as arrays."""
    key: jax.Array | None
    limits: Limits


def resolve(tables: NoisyTables, options: Mapping[str, Any], **fixed: Any) -> Settings:
    """Options of `fit_vb`, checked, with its defaults; the `fixed` ones are not for users."""
    defaults: dict[str, Any] = fit_vb.__kwdefaults__  # type: ignore[assignment]
    for name in options:
        validate.choice("an option", name, [known for known in defaults if known not in fixed])
    return _settings(tables, **{**defaults, **options, **fixed})


def _settings(
    tables: NoisyTables,
    solver: Any,
    bound: Any,
    accelerate: Any,
    start: Any,
    n_starts: Any,
    key: Any,
    tol: Any,
    max_iterations: Any,
) -> Settings:
    method = resolve_method(tables.noise, solver=solver, bound=bound, accelerate=accelerate)
    limits = resolve_limits(tables.counts.dtype, tol, max_iterations)
    n_starts = validate.whole_number("n_starts", n_starts, at_least=1)
    name, given = check_start(tables, start, n_starts, key)
    return Settings(method, name, n_starts, given, key, limits)


def resolve_method(noise: Noise, *, solver: Any, bound: Any, accelerate: Any) -> Method:
    """Names to objects, checked."""
    if isinstance(solver, str):
        solver = SOLVERS[validate.choice("solver", solver, SOLVERS)]
    elif not isinstance(solver, SimplexSolver):
        raise TypeError(
            f"solver must be one of {', '.join(map(repr, SOLVERS))} or an object with "
            f"solve(problem, log_x), got {validate.describe(solver)}"
        )
    validate.choice("bound", bound, BOUNDS)
    if not isinstance(accelerate, bool):
        raise TypeError(f"accelerate must be True or False, got {validate.describe(accelerate)}")
    return Method(solver, local_bound(bound, noise), accelerate)


def resolve_limits(dtype: DTypeLike, tol: float | None, max_iterations: int) -> Limits:
    """The stopping rule in the fit's dtype."""
    chosen = TOLERANCE if tol is None else tol
    chosen = validate.real_number("tol", chosen, above=0, allow_zero=True)
    cap = validate.whole_number("max_iterations", max_iterations, at_least=1)
    return Limits(jnp.asarray(chosen, dtype), jnp.asarray(cap, jnp.int32))


@jax.jit
def _fit(tables: NoisyTables, prior: Prior, settings: Settings) -> VariationalPosterior:
    """Climb from every start and keep the best."""
    method, limits, data = settings.method, settings.limits, Data.of(tables, prior)
    starts = start_points(tables, settings.start, settings.n_starts, settings.key, settings.given)
    ends = jax.vmap(lambda theta: ascent.climb(data, theta, method, limits))(starts)
    best = jax.tree.map(lambda x: x[jnp.argmax(ends.elbo)], ends)
    return posterior(tables, prior, data, best, method, ends.elbo)


def posterior(
    tables: NoisyTables,
    prior: Prior,
    data: Data,
    end: Ascent,
    method: Method,
    elbo_starts: jax.Array,
) -> VariationalPosterior:
    """What the end of an ascent says about one dataset."""
    valid = tables.is_valid() & prior.is_valid(data.real)
    code = jnp.where(valid, ascent.status(end), Status.BAD_INPUT)
    factors = at_theta(data, *end.best.theta, method.local)
    return VariationalPosterior(
        mask=data.real,
        status=code.astype(jnp.int32),
        class_alpha=factors.alpha_class,
        feature_alpha=factors.alpha_feature,
        elbo=end.elbo,
        iterations=end.iterations,
        max_decrease=end.faults.max_decrease,
        theta_class=jnp.exp(factors.log_t_class),
        theta_feature=jnp.exp(factors.log_t_feature),
        elbo_starts=elbo_starts,
    )
