"""The bound on lost mass is a bound, and windows are widened by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_exact, fit_window
from jaxprivnb.exact.window import Layout, bucket, plan, whole, widen
from jaxprivnb.status import Status


def batch(noise):
    """(fit with a layout, the fit that leaves nothing out) on a few replicates."""
    sim = pnb.simulate(
        jax.random.key(0), n_records=250, n_categories=(2, 3), noise=noise, shape=(24,)
    )
    prior = pnb.Prior.symmetric(jax.tree.map(lambda x: x[0], sim.tables), 0.8)
    fit = lambda layout: jax.vmap(lambda t: fit_window(t, prior, layout, 1e-9))(sim.tables)  # noqa: E731
    return fit, fit(whole(250))


@pytest.mark.parametrize(
    ("noise", "layouts"),
    [
        (pnb.Laplace(3.0), [Layout(48, 250, False), Layout(250, 24, False)]),
        pytest.param(pnb.Gaussian(4.0), [Layout(40, 32, False)], marks=pytest.mark.slow),
    ],
    ids=["Laplace", "Gaussian"],
)
def test_never_below_what_is_lost_and_useful(noise, layouts):
    fit, complete = batch(noise)
    for layout in layouts:
        windowed = fit(layout)
        bound = np.asarray(windowed.lost_mass)
        lost = -np.expm1(windowed.log_evidence - complete.log_evidence)
        assert lost.max() > 1e-12  # there is something to bound
        assert np.all(bound >= lost - 1e-12)
        np.testing.assert_array_equal(windowed.status == Status.LOST_MASS, bound > 1e-9)
        # Means can move by no more than twice the mass that is missing.
        moved = np.abs(windowed.feature_mean - complete.feature_mean).max((1, 2, 3))
        assert np.all(moved <= 2 * bound + 1e-11)
    ample = fit(Layout(192, 160, False))
    assert np.asarray(ample.lost_mass).max() < 1e-9


def test_widening_ends_in_the_whole():
    layout, seen = Layout(64, 64, False), []
    for _ in range(12):
        layout = widen(layout, 1000, 1.0, 1.0, 1e-9)
        seen.append(layout)
    assert whole(1000) in seen
    assert seen[-1].log_space
    assert widen(seen[-1], 1000, 1.0, 1.0, 1e-9) == seen[-1]


def test_lengths_are_few():
    lengths = {bucket(n) for n in range(1, 5000)}
    assert len(lengths) <= 24
    assert all(bucket(n) >= n for n in range(1, 5000))
    sizes = {
        plan(pnb.NoisyTables(np.ones((2, 5, 2)), N, pnb.Laplace(20.0))) for N in range(40, 500)
    }
    assert len(sizes) == 15


def test_a_million_records():
    sim = pnb.simulate(
        jax.random.key(1), n_records=1_000_000, n_categories=(2, 3), noise=pnb.Laplace(4.0)
    )
    fit = fit_exact(sim.tables)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) <= 1e-9
    assert fit.layout.cell < 1000
    truth = jnp.where(sim.tables.real, sim.counts, 0)
    share = truth / truth.sum(-1, keepdims=True)
    assert float(jnp.abs(fit.feature_mean - share).max()) < 1e-3
    assert bool(jnp.all(fit.feature_sd[:, 1] < 2e-3))
    lower, upper = fit.feature_interval(0.99)
    middle = (lower + upper) / 2
    np.testing.assert_allclose(middle, fit.feature_mean, atol=1e-4)


def test_a_class_of_few_records_loses_nothing():
    """103 of 10,000 records, cells near 0: there Chernoff's bound alone says that all is lost."""
    tables = pnb.simulate(
        jax.random.key(1), n_records=10_000, n_classes=4, n_categories=(5,) * 20,
        noise=pnb.Laplace(4.0), shape=(4,),
    ).tables  # fmt: skip
    tables = jax.tree.map(lambda x: x[2], tables)
    layout = plan(tables)
    assert not layout.whole
    fit = fit_window(tables, pnb.Prior.uniform(tables), layout, 1e-10)
    assert float(fit.lost_mass) < 1e-10
