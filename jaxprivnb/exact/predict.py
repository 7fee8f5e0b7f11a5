"""The exact posterior predictive.

Features are independent given the class *and* its count, not given the class alone, so the
predictive is not the plug-in of the means:

    P(Y=i, x | m) = sum_n P(n_i = n | m) (n + a_i) / (N + sum a) prod_k E[p_{i,k,x_k} | n_i = n, m]
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxprivnb.exact import filters
from jaxprivnb.exact.chunks import map_in_chunks
from jaxprivnb.exact.evidence import cell_counts, class_counts
from jaxprivnb.exact.moments import Pass
from jaxprivnb.exact.outside import log_mean_count, outside
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior

_CHUNK = 4_000_000
"""Numbers held at once while predicting, about."""


def conditional_mean(
    up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> jax.Array:
    """E[p_ikj | n_i = n, m] = (E[n_ikj | n_i = n, m] + a) / (n + A), `[I, K, J, class window]`.

    Where n cannot be reached it is the prior's, which no P(n_i = n | m) > 0 ever meets.
    """
    dtype, real = tables.counts.dtype, tables.real
    a = jnp.where(real, prior.feature, 0)[..., None]
    if layout.filters:
        kernel = filters.kernels(tables, layout.filters)
        found = filters.chains(kernel, layout.filters)
        mean_count = filters.mean_counts(kernel, found, place, layout)
    else:
        out = outside(up.log_w, tables, place, layout, real.shape[-1])
        counts = jnp.broadcast_to(cell_counts(place, layout, dtype), up.log_w.shape)
        mean_count = jnp.exp(log_mean_count(out, up.blocks.log_value, counts, layout))
    n = class_counts(place, layout, dtype)[:, None, None]
    return (mean_count + a) / (n + a.sum(2, keepdims=True))


def predict_proba(
    x: jax.Array, up: Pass, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> jax.Array:
    """P(Y=i | x, m) for records x int `[..., K]`, -1 for missing: `[..., I]`."""
    dtype, real = tables.counts.dtype, tables.real
    mean = conditional_mean(up, tables, prior, place, layout)
    log_mean = jnp.log(jnp.where(real[..., None] & (mean > 0), mean, 1))
    I, K, J, W = log_mean.shape
    # Sums over features of chosen entries, as a product with indicators.
    table = log_mean.transpose(1, 2, 0, 3).reshape(K * J, I * W)
    reached = up.class_count_pmf > 0
    log_pmf = jnp.where(reached, jnp.log(jnp.where(reached, up.class_count_pmf, 1)), -jnp.inf)
    log_class = log_pmf + jnp.log(
        class_counts(place, layout, dtype) + prior.class_[:, None]
    )  # [I, W]

    def one(record: jax.Array) -> jax.Array:
        chosen = (record[:, None] == jnp.arange(J, dtype=record.dtype)).astype(dtype)
        total = (chosen.reshape(-1) @ table).reshape(I, W)
        return jax.nn.softmax(logsumexp(total + log_class, axis=-1))

    return map_in_chunks(one, x.reshape(-1, K), _CHUNK // (I * W)).reshape(*x.shape[:-1], I)
