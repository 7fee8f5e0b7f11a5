"""Marginal distributions of single parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import SMALL, problem

import jaxprivnb as pnb
from jaxprivnb.exact import mixtures, posterior
from jaxprivnb.exact.fit import fit_exact


@pytest.mark.parametrize(("shape", "noise"), SMALL)
def test_cdf_equals_brute_force(shape, noise):
    tables, prior, args = problem(shape, noise)
    fit, brute = fit_exact(tables, prior), oracles.enumerate_posterior(*args)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.uniform(0.001, 0.999, shape[0])
        np.testing.assert_allclose(fit.class_cdf(x), oracles.class_cdf(brute, x), atol=1e-10)
        x = rng.uniform(0.001, 0.999, tables.counts.shape)
        np.testing.assert_allclose(fit.feature_cdf(x), oracles.feature_cdf(brute, x), atol=1e-10)


def test_quantiles_invert_brute_force():
    tables, prior, args = problem(*SMALL[0])
    fit, brute = fit_exact(tables, prior), oracles.enumerate_posterior(*args)
    real = np.broadcast_to(args[-1], tables.counts.shape)
    for level in (0.5, 0.95, 0.999):
        lower, upper = (np.asarray(x) for x in fit.feature_interval(level))
        tail = (1 - level) / 2
        np.testing.assert_allclose(oracles.feature_cdf(brute, lower)[real], tail, rtol=1e-8)
        np.testing.assert_allclose(oracles.feature_cdf(brute, upper)[real], 1 - tail, rtol=1e-10)
        assert np.all(lower[~real] == 0)
        lower, upper = fit.class_interval(level)
        np.testing.assert_allclose(oracles.class_cdf(brute, lower), tail, rtol=1e-8)
        np.testing.assert_allclose(oracles.class_cdf(brute, upper), 1 - tail, rtol=1e-10)


def test_two_categories_mirror_each_other():
    sim = pnb.simulate(jax.random.key(0), n_records=40, n_categories=(2, 2), shape=(4,))
    fit = jax.vmap(fit_exact)(sim.tables)
    lower, upper = fit.feature_interval(0.8)
    np.testing.assert_allclose(lower[..., 0], 1 - upper[..., 1], atol=1e-12)
    np.testing.assert_allclose(fit.feature_cdf(lower), 0.1, atol=1e-11)
    np.testing.assert_allclose(fit.feature_cdf(upper), 0.9, atol=1e-11)
    np.testing.assert_allclose(fit.feature_quantile(0.1), lower, atol=1e-13)


def test_densities_integrate_to_the_moments():
    tables, prior, _ = problem(*SMALL[0])
    prior = pnb.Prior(prior.class_ + 1, prior.feature + 1)  # bounded densities
    fit = fit_exact(tables, prior)
    x = (np.arange(4000) + 0.5) / 4000
    density = np.asarray(fit.feature_density(jnp.asarray(x)))
    real = np.broadcast_to(np.asarray(tables.real), tables.counts.shape)
    np.testing.assert_allclose(density.mean(-1)[real], 1, atol=1e-4)
    np.testing.assert_allclose((density * x).mean(-1), fit.feature_mean, atol=1e-4)
    density = np.asarray(fit.class_density(jnp.asarray(x)))
    np.testing.assert_allclose((density * x).mean(-1), fit.class_mean, atol=1e-4)
    variance = (density * np.square(x - np.asarray(fit.class_mean)[:, None])).mean(-1)
    np.testing.assert_allclose(np.sqrt(variance), fit.class_sd, atol=1e-4)


def test_shorter_windows_and_tiles_leave_intervals_as_they_are(monkeypatch):
    rng = np.random.default_rng(0)
    mask = np.arange(3) < np.array([[2], [3]])
    counts = np.where(mask, rng.multinomial(2000, np.ones(6) / 6, 2).reshape(2, 2, 3), 0.0)
    tables = pnb.NoisyTables(
        counts + rng.laplace(0, 4, counts.shape) * mask, 4000, pnb.Laplace(4), mask
    )
    fit = fit_exact(tables)
    shorter = fit.feature_interval(0.95)
    assert fit._extent()[1][0] < fit.path.questions.length
    monkeypatch.setattr(posterior, "_LEFT_OUT", 1e-17)
    monkeypatch.setattr(mixtures, "_TILE", 100)
    for got, expected in zip(shorter, fit_exact(tables).feature_interval(0.95), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)
        assert np.all(np.asarray(got)[:, ~mask] == 0)
