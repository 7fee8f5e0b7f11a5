"""Draws come from the exact posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import NOISES, SHAPES, path_of, problem
from scipy import stats

from jaxprivnb.exact.draws import _levels, _log_gammas, _pick
from jaxprivnb.exact.fit import fit_path

N_DRAWS = 4000


@pytest.fixture(
    scope="module",
    params=["whole-1", "windowed-3", pytest.param("whole-9", marks=pytest.mark.slow)],
)
def drawn(request):
    tables, prior, args = problem(SHAPES[0], NOISES[0])
    fit = fit_path(tables, prior, path_of(request.param, tables, prior), 1e-9)
    key = jax.random.key(1)
    p_class, p_feature = fit.sample(key, N_DRAWS)
    draws = tuple(map(np.asarray, (fit.sample_tables(key, N_DRAWS), p_class, p_feature)))
    return fit, oracles.enumerate_posterior(*args), draws


def within_four_errors(sample, expected):
    error = sample.std(0, ddof=1) / np.sqrt(len(sample))
    assert np.all(np.abs(sample.mean(0) - expected) <= 4 * error + 1e-12)


def test_tables_are_tables(drawn):
    _, brute, (tables, _, _) = drawn
    assert tables.dtype == np.int32
    np.testing.assert_array_equal(tables[:, :, 0].sum(-1), tables[:, :, 1].sum(-1))
    np.testing.assert_array_equal(tables.sum((1, 3)), 6)
    assert np.all(tables[:, ~brute.mask] == 0)


def test_means_and_covariances_of_tables(drawn):
    _, brute, (tables, _, _) = drawn
    flat = tables.reshape(N_DRAWS, -1).astype(float)
    every = brute.tables.reshape(len(brute.tables), -1)
    mean = brute.probability @ every
    within_four_errors(flat, mean)
    products = np.einsum("ta,tb->tab", flat - mean, flat - mean)
    covariance = np.einsum("t,ta,tb->ab", brute.probability, every - mean, every - mean)
    within_four_errors(products, covariance)


def test_means_and_variances_of_parameters(drawn):
    fit, _, (_, p_class, p_feature) = drawn
    within_four_errors(p_class, np.asarray(fit.class_mean))
    within_four_errors(p_feature, np.asarray(fit.feature_mean))
    within_four_errors(np.square(p_class - fit.class_mean), np.square(fit.class_sd))
    within_four_errors(np.square(p_feature - fit.feature_mean), np.square(fit.feature_sd))
    np.testing.assert_allclose(p_feature.sum(-1), 1, atol=1e-12)


def test_marginals_by_kolmogorov_smirnov(drawn):
    # The statistic over a grid of points is at most the statistic over all of them.
    _, brute, (_, p_class, p_feature) = drawn
    critical = stats.kstwo.isf(1e-4, N_DRAWS)
    for x in np.linspace(0.02, 0.98, 25):
        expected = oracles.class_cdf(brute, np.full(p_class.shape[1:], x))
        assert np.abs((p_class <= x).mean(0) - expected).max() < critical
        expected = oracles.feature_cdf(brute, np.full(p_feature.shape[1:], x))
        difference = np.abs((p_feature <= x).mean(0) - expected)
        assert difference[brute.mask].max() < critical


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gammas_by_kolmogorov_smirnov(dtype):
    alpha = np.repeat(np.array([[0.01, 0.4, 1.0, 3.5, 5e4]], dtype), N_DRAWS, axis=0)
    drawn = np.asarray(_log_gammas(jax.random.key(2), jnp.asarray(alpha)), float)
    assert drawn.shape == alpha.shape
    for x, a in zip(drawn.T, alpha[0].astype(float), strict=True):
        assert stats.kstest(x, stats.loggamma(a).cdf).pvalue > 1e-4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 48, 49, 500, 3000])
def test_a_uniform_picks_where_the_weights_pass_it(size, dtype):
    rng = np.random.default_rng(size)
    weights = rng.exponential(size=size).astype(dtype) * (rng.uniform(size=size) < 0.7)
    weights[rng.integers(size)] = 1
    padded = jnp.pad(weights, (0, int(np.prod(_levels(size))) - size))
    u = np.append(rng.uniform(size=200), [0, 1 - np.finfo(dtype).epsneg]).astype(dtype)
    scale = np.arange(1.0, len(u) + 1, dtype=dtype)
    weight = lambda s, at, length: s * jax.lax.dynamic_slice_in_dim(padded, at, length)  # noqa: E731
    got = np.asarray(_pick(jnp.asarray(u), weight, (jnp.asarray(scale),), size))
    assert np.all(weights[got] > 0)
    upto = np.cumsum(weights, dtype=float) / weights.sum(dtype=float)
    slack = 64 * np.finfo(dtype).eps
    assert np.all(
        (upto[got] >= u - slack) & (upto[got] - weights[got] / weights.sum() <= u + slack)
    )
