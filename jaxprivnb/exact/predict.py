"""The exact posterior predictive.

Features are independent given the class *and* its count, not given the class alone, so the
predictive is not the plug-in of the means:

    P(Y=i, x | m) = sum_n P(n_i = n | m) (n + a_i) / (N + sum a) prod_k E[p_{i,k,x_k} | n_i = n, m]
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from jaxprivnb.exact.classes import class_counts
from jaxprivnb.exact.dataset import Cells, Dataset
from jaxprivnb.parallel import map_in_chunks

_CHUNK = 1 << 18
"""Numbers held at once while predicting, about."""


class Predictive(NamedTuple):
    """All that a prediction needs."""

    log_mean: jax.Array
    """log E[p_ikj | n_i = n, m], `[C + 1, I, T]`; the last row, of a missing feature, is 0."""
    log_class: jax.Array
    """log P(n_i = n | m) (n + a_i), `[I, T]`."""


def predictive(
    data: Dataset, cells: Cells, mean_counts: jax.Array, pmf: jax.Array, start: jax.Array
) -> Predictive:
    """The table of conditional means (E[n_ikj | n_i = n, m] + a) / (n + A).

    Args:
        data: one dataset.
        cells: its real cells.
        mean_counts: E[n_ikj | n_i = n, m], `[I, C, T]`.
        pmf: P(n_i = n | m), `[I, T]`; where N is not known sum_N P(n_i = n, N | m) / (N + sum a).
        start: the first n of both, `[I]`.
    """
    n = class_counts(start, pmf.shape[-1])
    mean = (mean_counts + cells.rows(data.a)[..., None]) / (
        n[:, None] + data.A[:, cells.feature, None]
    )
    log_mean = jnp.log(jnp.where(mean > 0, mean, 1))
    cannot = ~cells.rows(data.real)[..., None]  # a category that a class cannot have
    log_mean = jnp.where(cannot, -jnp.inf, log_mean).transpose(1, 0, 2)
    missing = jnp.zeros_like(log_mean[:1])
    reached = pmf > 0
    log_pmf = jnp.where(reached, jnp.log(jnp.where(reached, pmf, 1)), -jnp.inf)
    log_class = log_pmf + jnp.log(n + data.a_class[:, None])
    return Predictive(jnp.concatenate([log_mean, missing]), log_class)


def predict_proba(table: Predictive, cells: Cells, x: jax.Array) -> jax.Array:
    """P(Y=i | x, m) for records x int `[..., K]`, -1 for missing: `[..., I]`."""
    I, T = table.log_class.shape
    K, J = cells.row.shape
    # A row for each category, and one for what is missing; categories out of range give NaN.
    row = jnp.asarray(np.pad(cells.row, ((0, 0), (1, 0)), constant_values=len(cells.feature)))
    known = (x >= -1) & (x < J)

    def one(record: jax.Array) -> jax.Array:
        chosen = table.log_mean[row[jnp.arange(K), jnp.clip(record + 1, 0, J)]].sum(0)
        found = logsumexp(chosen + table.log_class, axis=-1)
        # No class can have it all: it says nothing.
        alone = logsumexp(table.log_class, axis=-1)
        return jax.nn.softmax(jnp.where(jnp.isneginf(found).all(), alone, found))

    found = map_in_chunks(one, x.reshape(-1, K), max(1, _CHUNK // (K * I * T)))
    return jnp.where(known.all(-1, keepdims=True), found.reshape(*x.shape[:-1], I), jnp.nan)
