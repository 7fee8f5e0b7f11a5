"""The two estimators the paper compares with: noisy counts at face value, and no noise at all."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxprivnb import validate
from jaxprivnb._pytree import with_fields
from jaxprivnb.measurement import Measurement
from jaxprivnb.posterior import DirichletPosterior, named_after
from jaxprivnb.status import Status
from jaxprivnb.tables import NoisyTables, Prior, check_type, full_mask, resolve_prior


def fit_naive(tables: NoisyTables, prior: Prior | None = None) -> DirichletPosterior:
    """The Dirichlet posterior of noisy counts taken at face value (paper 4.1, "naive").

    Counts are clipped to [0, N] and made consistent: t[i] is class i's share of all clipped
    counts, t[i,k,j] the share of category j in row (i, k) (uniform for an empty row), and the
    pseudo-counts N t[i] and N t[i] t[i,k,j] are added to the prior.

    Where N is not known the mean of the tables' totals, rounded, is taken for it. Several releases
    are averaged, each weighed by the inverse of its variance; a count that is known to lie in an
    interval is its middle, or its only end, and one that was not published is 0. Public class
    totals and totals of groups of classes are not used.
    """
    check_type(tables).check("fit_naive")
    prior = resolve_prior(prior, tables.counts, tables.mask)
    posterior = named_after(_fit_naive(tables, prior), tables)
    if tables.n_records is None and validate.is_concrete(tables.counts):
        return dataclasses.replace(posterior, n_records=at_face_value(tables).n_records)
    return posterior


@jax.jit
def _fit_naive(tables: NoisyTables, prior: Prior) -> DirichletPosterior:
    ok = tables.is_valid() & prior.is_valid(tables.real)
    tables = at_face_value(tables)
    t_class, t_feature = naive_probabilities(tables)
    return _conjugate(
        prior,
        tables.real,
        tables.n_records * t_class,
        tables.n_records * t_class[:, None, None] * t_feature,
        jnp.where(ok, Status.SUCCESS, Status.BAD_INPUT).astype(jnp.int32),
    )


def at_face_value(tables: NoisyTables) -> NoisyTables:
    """One dataset's tables as if N were known and every noisy count had been published, once."""
    counts, N = tables.counts, tables.n_records
    if tables.upper is not None or tables.also:
        weighed = [_face_value(one, tables.real) for one in tables.measurements]
        total = sum(w for _, w in weighed)
        counts = sum(m * w for m, w in weighed) / jnp.where(total > 0, total, 1)
    if N is None:
        by_table = jnp.where(tables.real, counts, 0).sum((-3, -1))
        N = jnp.maximum(jnp.round(by_table.mean()), 0)
    return with_fields(
        tables, counts=counts, n_records=N, upper=None, also=(), class_totals=None, groups=()
    )


def _face_value(one: Measurement, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(Counts, the inverse of their variance but for a factor), 0 where there are none."""
    low, high, noise = one.seen(jnp.broadcast_to(real, one.counts.shape))
    scales = jax.tree.leaves(noise)
    weight = jnp.broadcast_to(1 / jnp.square(scales[0]) if scales else 1e12, low.shape)
    if high is None:
        return low, weight
    below, above = jnp.isfinite(low), jnp.isfinite(high)
    low, high = jnp.where(below, low, high), jnp.where(above, high, low)
    shown = below | above
    return jnp.where(shown, 0.5 * (low + high), 0), jnp.where(shown, weight, 0)


def naive_probabilities(tables: NoisyTables) -> tuple[jax.Array, jax.Array]:
    """Clipped, renormalised (t[i] `[I]`, t[i,k,j] `[I, K, J]`); masked cells are 0."""
    real = tables.real
    clipped = jnp.where(real, jnp.clip(tables.counts, 0, tables.n_records), 0)
    rows = clipped.sum(-1, keepdims=True)
    cells = real.astype(clipped.dtype)
    uniform = cells / cells.sum(-1, keepdims=True)
    t_feature = jnp.where(rows > 0, clipped / jnp.where(rows > 0, rows, 1), uniform)
    by_class = clipped.sum((-1, -2))
    total = by_class.sum()
    t_class = jnp.where(total > 0, by_class / jnp.where(total > 0, total, 1), 1 / by_class.size)
    return t_class, t_feature


def fit_bayes(
    counts: ArrayLike, prior: Prior | None = None, mask: ArrayLike | None = None
) -> DirichletPosterior:
    """The non-private posterior from true counts `[I, K, J]`: Dirichlet(a + n).

    For simulations and comparisons. It reads true counts, so it promises no privacy.
    """
    if isinstance(counts, NoisyTables):
        raise TypeError(
            "counts must be true counts [I, K, J], got NoisyTables: fit_exact, fit_vb and "
            "fit_naive take those"
        )
    counts = validate.as_float_array("counts", counts)
    validate.single_dataset("fit_bayes", counts)
    mask = validate.counts_and_mask(counts, mask)
    validate.true_counts(counts, mask)
    real = full_mask(counts, mask)
    posterior = _fit_bayes(counts, real, resolve_prior(prior, counts, mask))
    if not validate.is_concrete(counts):
        return posterior
    return dataclasses.replace(posterior, n_records=np.where(real, counts, 0)[:, 0].sum())


@jax.jit
def _fit_bayes(counts: jax.Array, real: jax.Array, prior: Prior) -> DirichletPosterior:
    n = jnp.where(real, counts, 0)
    by_class = n.sum(-1)  # [I, K], the same for every k
    agree = jnp.all(jnp.abs(by_class - by_class[:, :1]) <= 1e-5 * (1 + by_class))
    ok = jnp.all(jnp.isfinite(n) & (n >= 0)) & agree & prior.is_valid(real)
    status = jnp.where(ok, Status.SUCCESS, Status.BAD_INPUT).astype(jnp.int32)
    return _conjugate(prior, real, by_class[:, 0], n, status)


def _conjugate(
    prior: Prior, real: jax.Array, n_class: jax.Array, n_feature: jax.Array, status: jax.Array
) -> DirichletPosterior:
    return DirichletPosterior(
        mask=real,
        status=status,
        class_alpha=prior.class_ + n_class,
        feature_alpha=jnp.where(real, prior.feature + n_feature, 0),
    )
