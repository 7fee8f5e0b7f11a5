"""The variational bound is below the evidence; the exact posterior is calibrated and best."""

import jax
import numpy as np

import jaxprivnb as pnb
from jaxprivnb.exact.compare import compare_with_vb
from jaxprivnb.exact.fit import fit_exact

N_REPLICATES = 300


def test_gap_is_not_negative():
    sim = pnb.simulate(
        jax.random.key(0), n_records=40, n_categories=(2, 2), noise=pnb.Laplace(4.0), shape=(4,)
    )
    found = jax.vmap(compare_with_vb)(sim.tables)
    assert np.all(np.asarray(found.gap) >= 0)
    np.testing.assert_allclose(found.gap, found.log_evidence - found.elbo)
    assert np.all(np.asarray(found.feature_largest) < 0.5)
    assert np.all(np.asarray(found.feature_distance) <= np.asarray(found.feature_largest))


def test_calibrated_and_no_worse_than_naive():
    sim = pnb.simulate(
        jax.random.key(1),
        n_records=40,
        n_categories=(2, 2),
        noise=pnb.Laplace(4.0),
        shape=(N_REPLICATES,),
    )
    exact = jax.vmap(fit_exact)(sim.tables)
    for level in (0.5, 0.95):
        lower, upper = exact.feature_interval(level)
        inside = (lower <= sim.feature_probs) & (sim.feature_probs <= upper)
        per_replicate = np.asarray(inside).mean((1, 2, 3))
        error = per_replicate.std() / np.sqrt(N_REPLICATES)
        assert abs(per_replicate.mean() - level) < 4 * error
    rank = np.asarray(exact.feature_cdf(sim.feature_probs))[..., 0].reshape(N_REPLICATES, -1)
    error = rank.mean(-1).std() / np.sqrt(N_REPLICATES)
    assert abs(rank.mean() - 0.5) < 4 * error
    assert abs(rank.std() - np.sqrt(1 / 12)) < 0.02
    naive = jax.vmap(pnb.fit_naive)(sim.tables)
    loss = lambda fit: np.square(np.asarray(fit.feature_mean - sim.feature_probs)).mean((1, 2, 3))  # noqa: E731
    difference = loss(exact) - loss(naive)
    assert difference.mean() < 0
    assert difference.mean() + 4 * difference.std() / np.sqrt(N_REPLICATES) < 0
