"""The kept path against the ascent it repeats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb

TABLES = jax.tree.map(
    lambda x: x[0],
    pnb.simulate(
        jax.random.key(3), n_records=60, n_categories=(2, 3), noise=pnb.Laplace(20.0), shape=(1,)
    ).tables,
)


def test_the_path_ends_where_the_fit_does_and_every_entry_is_a_capped_fit():
    trace = pnb.trace_vb(TABLES)
    fit = pnb.fit_vb(TABLES)
    n = int(fit.iterations)
    assert int(trace.iterations) == n
    assert 5 < n < 500
    assert trace.elbo.shape == (500,)
    assert trace.theta_class.shape == (500, 2)
    for s in (1, 2, 3, 4, n):
        capped = pnb.fit_vb(TABLES, max_iterations=s)
        np.testing.assert_allclose(trace.elbo[s - 1], capped.elbo, rtol=1e-12)
        np.testing.assert_allclose(trace.theta_class[s - 1], capped.theta_class, rtol=1e-7)
    assert bool(jnp.isnan(trace.elbo[n:]).all())
    assert bool(jnp.isnan(trace.theta_class[n:]).all())
    path = np.asarray(trace.elbo[:n])
    assert (np.diff(path) > -1e-10).all()
    assert path[-1] > path[0]


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="n_iterations must be at least 1, got 0"):
        pnb.trace_vb(TABLES, n_iterations=0)
    with pytest.raises(ValueError, match="solver"):
        pnb.trace_vb(TABLES, solver="newton")
    with pytest.raises(TypeError, match="random starts need a key"):
        pnb.trace_vb(TABLES, start="random")
    for other in ("n_starts", "max_iterations", "sovler"):
        with pytest.raises(ValueError, match=f"an option must be one of 'solver', .*'{other}'"):
            pnb.trace_vb(TABLES, **{other: 1})
