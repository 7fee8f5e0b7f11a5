"""How far the variational posterior is from the exact one, on the same release."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb.exact.fit import fit_exact
from jaxprivnb.tables import NoisyTables, Prior


class Gap(NamedTuple):
    """The variational posterior measured against the exact one; leading axes of a batch first."""

    log_evidence: jax.Array
    """log P(m), `[...]`."""
    elbo: jax.Array
    """The variational bound on it, `[...]`."""
    gap: jax.Array
    """log_evidence - elbo >= 0: the divergence of q from the posterior, `[...]`."""
    class_distance: jax.Array
    """Root mean squared difference of the posterior means of P(Y=i), `[...]`."""
    feature_distance: jax.Array
    """The same for P(X_k=j | Y=i), over real cells, `[...]`."""
    class_largest: jax.Array
    """Largest difference of the means of P(Y=i), `[...]`."""
    feature_largest: jax.Array
    """Largest difference of the means of P(X_k=j | Y=i), `[...]`."""


def compare_with_vb(tables: NoisyTables, prior: Prior | None = None, **options: Any) -> Gap:
    """Fit both posteriors to one release and return the gap of the bound and of the means.

    Args:
        tables: one release, counts `[I, K, J]`; `jax.vmap` for more.
        prior: uniform if None.
        **options: passed to `fit_vb`.
    """
    from jaxprivnb.variational.fit import fit_vb  # the two fits do not otherwise meet

    return gap(fit_exact(tables, prior), fit_vb(tables, prior, **options))


def gap(exact: Any, vb: Any) -> Gap:
    """Compare two posteriors of the same release, or of the same batch of them."""
    difference = jnp.abs(exact.class_mean - vb.class_mean)
    real = jnp.broadcast_to(exact.real, exact.feature_mean.shape)
    cells = jnp.where(real, jnp.abs(exact.feature_mean - vb.feature_mean), 0)
    n_cells = real.sum((-3, -2, -1)).astype(cells.dtype)
    return Gap(
        exact.log_evidence,
        vb.elbo,
        exact.log_evidence - vb.elbo,
        jnp.sqrt(jnp.square(difference).mean(-1)),
        jnp.sqrt(jnp.square(cells).sum((-3, -2, -1)) / n_cells),
        difference.max(-1),
        cells.max((-3, -2, -1)),
    )
