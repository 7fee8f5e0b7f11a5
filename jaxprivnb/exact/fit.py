"""`fit_exact`: from a release to its exact posterior."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxprivnb import validate
from jaxprivnb.exact import filters, window
from jaxprivnb.exact import lost as lost_mass
from jaxprivnb.exact.moments import Moments, upward_and_moments
from jaxprivnb.exact.posterior import ExactPosterior
from jaxprivnb.exact.window import Layout
from jaxprivnb.posterior import named_after
from jaxprivnb.status import Status
from jaxprivnb.tables import NoisyTables, Prior, check_type, resolve_prior

MAX_WIDENINGS = 12


def fit_exact(
    tables: NoisyTables,
    prior: Prior | None = None,
    *,
    tolerance: float | None = None,
    max_records: int | None = None,
) -> "ExactPosterior":
    """The exact posterior given noisy tables.

    Nothing is approximated. For large N only the counts that carry mass are computed; the windows
    are widened until a bound on the mass left out (`lost_mass`) is below the tolerance.

    Args:
        tables: one release, counts `[I, K, J]`.
        prior: Dirichlet concentrations; uniform if None.
        tolerance: largest acceptable `lost_mass`; 1e-10 in float64 and 1e-4 in float32 if None.
        max_records: an upper limit of N that is known when tracing. Only of use under an outer
            `jax.jit`, where N itself cannot be read: all counts 0..max_records are then computed.
            Without it, such a fit uses windows of fixed length, and a replicate that needs more
            says so with `Status.LOST_MASS`.
    """
    check_type(tables).check("fit_exact")
    given, prior = prior, resolve_prior(prior, tables.counts, tables.mask)
    flat = is_flat(given, tables)
    tolerance = resolve_tolerance(tolerance, tables.counts.dtype)
    if max_records is not None:
        max_records = validate.whole_number("max_records", max_records)
    if all(validate.is_concrete(x) for x in jax.tree.leaves((tables, prior))):
        return named_after(_fit_widening(tables, prior, tolerance, max_records, flat), tables)
    layout = _layout_when_traced(tables, max_records, flat)
    return fit_window(tables, prior, layout, tolerance, flat)


def resolve_tolerance(tolerance: float | None, dtype: Any) -> float:
    """The tolerance to use with a dtype: the caller's, or its default."""
    if tolerance is None:
        return 1e-10 if jnp.finfo(dtype).eps < 1e-10 else 1e-4
    return validate.real_number("tolerance", tolerance, above=0, below=1)


def is_flat(prior: Prior | None, tables: NoisyTables) -> bool:
    """Whether every cell's weight is geometric on both sides of its noisy count.

    That takes the right noise and concentrations of 1, as far as these can be known while tracing.
    """
    if not filters.applies(tables.noise):
        return False
    if prior is None:
        return True
    a = prior.feature
    return validate.is_concrete(a) and bool(jnp.all((a == 1) | (a == 0)))  # 0 in masked cells only


@partial(jax.jit, static_argnames=("layout", "tolerance", "flat"))
def fit_window(
    tables: NoisyTables, prior: Prior, layout: Layout, tolerance: float, flat: bool = False
) -> "ExactPosterior":
    """The posterior of one dataset on windows of the given lengths; pure, for `jax.vmap`.

    Args:
        tables: one release.
        prior: concentrations of the same shapes and dtype; see `resolve_prior`.
        layout: from `window.plan`, for the dataset or for a whole batch.
        tolerance: above this `lost_mass` the status is `LOST_MASS`.
        flat: from `is_flat`.
    """
    good = tables.is_valid() & prior.is_valid(tables.real)
    tables, prior = _benign(good, tables, prior)
    place = window.place(tables, layout)
    up, found = upward_and_moments(tables, prior, place, layout, flat=flat)
    lost = lost_mass.bound(up, tables, prior, place, layout)
    finite = jnp.isfinite(up.log_evidence)
    for leaf in found:
        finite &= jnp.all(jnp.isfinite(leaf))
    too_much = lost.total > tolerance
    status = jnp.where(too_much, Status.LOST_MASS.value, Status.SUCCESS.value)
    # Windows too short to hold N records lose everything, and the evidence is then 0.
    everything = too_much & jnp.isneginf(up.log_evidence)
    status = jnp.where(finite | everything, status, Status.NON_FINITE.value)
    status = jnp.where(good, status, Status.BAD_INPUT.value)
    blank = lambda x: jnp.where(good, x, jnp.nan)  # noqa: E731
    return ExactPosterior(
        mask=tables.real,
        status=status.astype(jnp.int32),
        tables=tables,
        prior=prior,
        layout=layout,
        place=place,
        log_evidence=blank(up.log_evidence),
        lost_mass=blank(lost.total),
        lost_mass_cells=blank(lost.cell),
        class_count_pmf=blank(up.class_count_pmf),
        moments=Moments(*map(blank, found)),
    )


def _fit_widening(
    tables: NoisyTables, prior: Prior, tolerance: float, max_records: int | None, flat: bool
) -> "ExactPosterior":
    """Fit, and widen the windows while they lose too much."""
    layout = window.plan(tables, flat=flat)
    if max_records is not None:
        layout = window.whole(max(max_records, int(tables.n_records)))
    for _ in range(MAX_WIDENINGS):
        fitted = fit_window(tables, prior, layout, tolerance, flat)
        if int(fitted.status) not in (Status.LOST_MASS, Status.NON_FINITE):
            break
        wider = window.widen(
            layout,
            int(tables.n_records),
            float(fitted.lost_mass_cells),
            float(fitted.lost_mass),
            tolerance,
        )
        if wider == layout:
            break
        layout = wider
    return fitted


def _layout_when_traced(tables: NoisyTables, max_records: int | None, flat: bool) -> Layout:
    """The layout of a fit that cannot look at its own data."""
    if max_records is not None:
        return window.whole(max_records)
    seen = _seen_through_vmap(tables)
    if seen is not None:
        return window.plan(seen, flat=flat)
    return Layout(window.UNKNOWN_LENGTH, window.UNKNOWN_LENGTH, False)


def _seen_through_vmap(tables: NoisyTables) -> NoisyTables | None:
    """The whole batch, if the only transformations around are eager `jax.vmap`s; else None.

    A custom batching rule is handed the batched arrays themselves. Outside of `jit` these are
    known, and planning needs no more than to look at them.
    """
    leaves, structure = jax.tree.flatten(tables)
    found: list[list[Any]] = []

    @jax.custom_batching.custom_vmap
    def look(*xs: jax.Array) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    @look.def_vmap
    def _(axis_size: int, in_batched: list[bool], *xs: jax.Array) -> tuple[jax.Array, bool]:
        if all(validate.is_concrete(x) for x in xs):
            found.append(list(xs))
        else:
            look(*xs)
        return jnp.zeros((), jnp.int32), False

    look(*leaves)
    if not found:
        return None
    return jax.tree.unflatten(structure, found[-1])


def _benign(good: jax.Array, tables: NoisyTables, prior: Prior) -> tuple[NoisyTables, Prior]:
    """The same data if `good`, else an empty dataset, so that no NaN travels through the fit.

    The prior stays what it is beside bad tables: shared by a batch, it is then worked on once.
    """
    pick = lambda x, safe: jnp.where(good, x, jnp.asarray(safe, x.dtype))  # noqa: E731
    counts = pick(jnp.where(tables.real, tables.counts, 0), 0)
    noise = jax.tree.map(lambda s: pick(s, 1), tables.noise)
    values = (("counts", counts), ("n_records", pick(tables.n_records, 0)), ("noise", noise))
    clean = jax.tree.unflatten(jax.tree.structure(tables), jax.tree.leaves(tables))
    for name, value in values:
        object.__setattr__(clean, name, value)
    prior_good = prior.is_valid(tables.real)
    safe = [
        jnp.where(prior_good, prior.class_, 1),
        jnp.where(prior_good & tables.real, prior.feature, 1),
    ]
    return clean, jax.tree.unflatten(jax.tree.structure(prior), safe)
