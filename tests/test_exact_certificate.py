"""`lost_mass` bounds what is lost, and fits are widened by it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.exact import plan
from jaxprivnb.exact.fit import fit_exact, fit_path
from jaxprivnb.status import Status
from jaxprivnb.tables import resolve_prior

N = 250


def batch(noise):
    """(fit by a path with the given lengths, the fit that leaves nothing out) on replicates."""
    sim = pnb.simulate(
        jax.random.key(0), n_records=N, n_categories=(2, 3), noise=noise, shape=(24,)
    )
    prior = pnb.Prior.symmetric(jax.tree.map(lambda x: x[0], sim.tables), 0.8)
    whole = dataclasses.replace(plan.choose(sim.tables, prior, max_records=N), tilts=9)

    def fit(**changes):
        path = dataclasses.replace(whole, **changes)
        return jax.vmap(lambda t: fit_path(t, prior, path, 1e-9))(sim.tables)

    return fit, fit()


@pytest.mark.parametrize(
    ("noise", "lengths"),
    [
        (pnb.Laplace(3.0), [(96, 96), (512, 24), (64, 32)]),
        pytest.param(pnb.Gaussian(4.0), [(64, 32)], marks=pytest.mark.slow),
    ],
    ids=["Laplace", "Gaussian"],
)
def test_never_below_what_is_lost_and_useful(noise, lengths):
    fit, complete = batch(noise)
    assert np.all(np.asarray(complete.status) == Status.SUCCESS)
    something = 0.0
    for length, window in lengths:
        windowed = fit(length=length, window=window, whole=False, tilts=1)
        bound = np.asarray(windowed.lost_mass)
        off = np.abs(np.expm1(windowed.log_evidence - complete.log_evidence))
        something = max(something, off.max())
        assert np.all(bound >= off - 1e-11)
        np.testing.assert_array_equal(windowed.status == Status.LOST_MASS, bound > 1e-9)
        # Means can move by no more than twice the mass that is missing.
        moved = np.abs(windowed.feature_mean - complete.feature_mean).max((1, 2, 3))
        assert np.all((moved <= 2 * bound + 1e-11) | (bound == 1))
    assert something > 1e-12  # there is something to bound
    ample = fit(length=384, window=192, whole=False, tilts=3)
    assert np.asarray(ample.lost_mass).max() < 1e-9


def test_shorter_class_windows_lose_more():
    fit, _ = batch(pnb.Laplace(4.0))
    lost = [
        np.asarray(fit(length=512, window=window, whole=False).lost_mass)
        for window in (24, 48, 96, 224)
    ]
    assert lost[0].max() > 1e-3
    assert lost[-1].max() < 1e-10
    for wide, narrow in zip(lost[1:], lost[:-1], strict=True):
        assert np.all(wide <= narrow + 1e-13)


def test_wrapping_is_part_of_it():
    """Transforms that are too short fold far counts onto near ones."""
    fit, complete = batch(pnb.Laplace(20.0))
    folded = fit(length=256, tilts=3)
    off = np.abs(np.expm1(folded.log_evidence - complete.log_evidence))
    assert off.max() > 1e-9
    assert np.all(np.asarray(folded.lost_mass) >= off - 1e-11)


def test_a_window_that_does_not_hold_n_loses_everything():
    tables = pnb.NoisyTables(np.full((2, 2, 5), 300.0), 3000, pnb.Laplace(20.0))
    prior = pnb.Prior.uniform(tables)
    path = plan.choose(tables, prior, max_records=3000)
    short = dataclasses.replace(path, window=1536)
    fit = fit_path(tables, prior, short, 1e-9)
    assert int(fit.status) == Status.LOST_MASS
    assert float(fit.lost_mass) == 1


def test_a_million_records():
    sim = pnb.simulate(
        jax.random.key(1), n_records=1_000_000, n_categories=(2, 3), noise=pnb.Laplace(4.0)
    )
    fit = fit_exact(sim.tables)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) <= 1e-10
    truth = jnp.where(sim.tables.real, sim.counts, 0)
    share = truth / truth.sum(-1, keepdims=True)
    assert float(jnp.abs(fit.feature_mean - share).max()) < 1e-3
    assert bool(jnp.all(fit.feature_sd[:, 1] < 2e-3))
    lower, upper = fit.feature_interval(0.99)
    np.testing.assert_allclose((lower + upper) / 2, fit.feature_mean, atol=1e-4)


@pytest.mark.slow
def test_a_class_of_few_records_loses_nothing():
    """103 of 10,000 records, cells near 0: there Chernoff's bound alone says that all is lost."""
    tables = pnb.simulate(
        jax.random.key(1), n_records=10_000, n_classes=4, n_categories=(5,) * 20,
        noise=pnb.Laplace(4.0), shape=(4,),
    ).tables  # fmt: skip
    tables = jax.tree.map(lambda x: x[2], tables)
    prior = pnb.Prior.uniform(tables)
    path = plan.choose(tables, prior)
    assert not path.whole
    fit = fit_path(tables, prior, path, 1e-10)
    assert float(fit.lost_mass) < 1e-10


@pytest.mark.parametrize(("J", "dtype"), [(64, "float64"), (14, "float32")])
def test_many_categories_lose_nothing(J, dtype):
    sim = pnb.simulate(
        jax.random.key(10), n_records=600, n_categories=(J,) * 2, noise=pnb.Laplace(2.0),
        dtype=jnp.dtype(dtype),
    )  # fmt: skip
    fit = fit_exact(sim.tables)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) < (5e-4 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("shares", [(0.6, 0.4), (0.6, 0.397, 0.003)], ids=["even", "a rare class"])
def test_many_features_lose_nothing(shares):
    """Chernoff's bounds are a factor too high for every block, and forty of them add up."""
    sizes = (2, 3) * 20
    feature = np.zeros((len(shares), len(sizes), 3))
    for k, J in enumerate(sizes):
        feature[:, k, :J] = np.random.default_rng(k).dirichlet(np.ones(J), len(shares))
    tables = pnb.simulate(
        jax.random.key(4),
        n_records=3000,
        n_classes=len(shares),
        n_categories=sizes,
        noise=pnb.Laplace(20.0),
        parameters=(np.array(shares), feature),
    ).tables
    prior = resolve_prior(None, tables.counts, tables.mask)
    path = plan.choose(tables, prior)
    assert not path.whole
    fit = fit_path(tables, prior, path, 1e-10)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) < 1e-11
