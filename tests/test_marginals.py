"""Betas and mixtures of them against scipy, far into the corners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_exact
from jaxprivnb.marginals import Marginal, simplex_interval

LEVELS = (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)
CONCENTRATIONS = [1e-4, 1e-3, 1e-2, 0.1, 0.5, 1, 2, 7.3, 30, 1e3, 1e4, 1e7]
TAILS = [1e-6, 5e-5, 1e-3, 0.025, 0.3, 0.5]


def tails(alpha, beta, u):
    """(P(p <= x), P(p >= x), dP/du) of Betas at u = logit x, all three to many digits."""
    x, y = scipy.special.expit(u), scipy.special.expit(-u)
    below = np.where(
        x < 0.5, scipy.special.betainc(alpha, beta, x), scipy.special.betaincc(beta, alpha, y)
    )
    above = np.where(
        x < 0.5, scipy.special.betaincc(alpha, beta, x), scipy.special.betainc(beta, alpha, y)
    )
    log_x, log_y = -np.logaddexp(0, -u), -np.logaddexp(0, u)
    rate = np.exp(alpha * log_x + beta * log_y - scipy.special.betaln(alpha, beta))
    return below, above, rate


def mixture(dtype, n, width, first, a, b, centre, scale, seed=0):
    """(Marginal of three parameters, weights, alpha, beta), the last three in float64."""
    l = first + np.arange(width)
    rough = np.random.default_rng(seed).uniform(0.5, 1, (3, width))
    weight = np.where((l >= 0) & (l <= n), np.exp(-np.abs(l - centre) / scale) * rough, 0)
    weight = weight.astype(dtype)
    full = lambda x, d: jnp.full(3, x, d)  # noqa: E731
    marginal = Marginal(
        jnp.asarray(weight),
        full(a, dtype),
        full(b, dtype),
        full(first, jnp.int32),
        full(n, jnp.int32),
    )
    exact = weight.astype(float)
    exact /= exact.sum(-1, keepdims=True)
    a, b = (float(dtype.type(x)) for x in (a, b))
    return marginal, exact, a + np.maximum(l, 0), b + np.maximum(n - l, 0)


def off(u, tail, upper, weight, alpha, beta):
    """By how much the logits u miss the tail, to first order: the relative error of x, of 1 - x."""
    below, above, rate = tails(alpha, beta, u[..., None])
    missed = ((weight * (above if upper else below)).sum(-1) - tail) / (weight * rate).sum(-1)
    return np.abs(missed)


# n, width, first, a, b, centre and scale of the weights
MIXTURES = {
    "whole window": (200, 224, 0, 1.0, 1.0, 60, 5.0),
    "at the edge": (223, 224, 0, 0.5, 7.0, 1, 2.0),
    "small prior": (10, 14, -2, 1e-3, 2e-3, 4, 0.5),
    "smallest prior": (10, 14, -2, 1e-4, 1e-4, 1, 0.5),
    "uneven prior": (60, 80, 0, 3.5e-3, 2165.0, 2, 1.0),
    "strong prior": (200, 224, -10, 1e4, 1e4, 100, 20.0),
    "many records": (10**7, 600, 10**6, 1.0, 1.0, 10**6 + 300, 40.0),
    "few of many": (10**6, 80, -3, 0.5, 0.5, 5, 2.0),
    "nearly all": (10**6, 80, 10**6 - 70, 0.5, 1e-2, 10**6 - 4, 2.0),
}


@pytest.mark.parametrize("case", MIXTURES)
def test_intervals_of_mixtures(case, dtype):
    marginal, weight, alpha, beta = mixture(dtype, *MIXTURES[case])
    reach, tol = (700, 1e-9) if dtype == np.float64 else (87, 1e-2)
    before = (np.full(3, np.inf), np.full(3, -np.inf))
    for level in LEVELS:
        tail = float(dtype.type((1 - level) / 2))
        ends = [np.asarray(u, float) for u in marginal.logit_interval(level)]
        assert not np.isnan(ends).any()
        assert (ends[0] <= before[0]).all()
        assert (ends[1] >= before[1]).all()
        before = ends
        for upper, u in enumerate(ends):
            seen = np.abs(u) < reach
            error = off(u[seen], tail, upper, weight[seen], alpha, beta)
            assert (error * scipy.special.expit(-u[seen]) < tol).all()
            # What is out of reach is so in truth.
            end = np.where(u < 0, -reach, reach)[~seen]
            mass = (weight[~seen] * tails(alpha, beta, end[:, None])[0]).sum(-1)
            level_of = 1 - tail if upper else tail
            assert np.all(np.where(end < 0, mass >= level_of * 0.999, mass <= level_of * 1.001))


def test_betas(dtype):
    a, b, q = (x.ravel().astype(dtype) for x in np.meshgrid(*[CONCENTRATIONS] * 2, TAILS))
    low = np.asarray(Marginal.beta(jnp.asarray(a), jnp.asarray(b)).logit_quantile(q), float)
    assert not np.isnan(low).any()
    reach, tol = (700, 1e-9) if dtype == np.float64 else (87, 2e-2)
    seen = np.abs(low) < reach
    one = np.ones((seen.sum(), 1))
    alpha, beta, q = (x.astype(float) for x in (a, b, q))
    error = off(low[seen], q[seen], False, one, alpha[seen, None], beta[seen, None])
    assert (error * scipy.special.expit(-low[seen]) < tol).all()
    assert seen.mean() > 0.6


def test_cdf_survival_and_density(dtype):
    marginal, weight, alpha, beta = mixture(dtype, *MIXTURES["whole window"])
    rtol = 1e-11 if dtype == np.float64 else 1e-4
    for x in (1e-6, 0.02, 0.3, 0.5, 0.97):
        point = jnp.full(3, x, dtype)
        at = float(dtype.type(x))
        below, above, rate = tails(alpha, beta, np.log(at) - np.log1p(-at))
        np.testing.assert_allclose(marginal.cdf(point), (weight * below).sum(-1), rtol)
        np.testing.assert_allclose(marginal.survival(point), (weight * above).sum(-1), rtol)
        density = (weight * rate).sum(-1) / (at * (1 - at))
        np.testing.assert_allclose(marginal.density(point[:1])[:, 0], density, rtol)
    np.testing.assert_array_equal(marginal.cdf(jnp.asarray([-0.1, 0, 1], dtype)), [0, 0, 1])
    np.testing.assert_array_equal(marginal.density(jnp.asarray([0, 1], dtype)), 0)


def test_point_masses(dtype):
    a, b = jnp.asarray([0.0, 3.0, 2.0], dtype), jnp.asarray([3.0, 0.0, 2.0], dtype)
    certain = Marginal.beta(a, b)
    np.testing.assert_array_equal(certain.quantile(0.2)[:2], [0, 1])
    np.testing.assert_array_equal(certain.proper, [False, False, True])
    below, at = jnp.asarray([-0.01, 0.99, 0.5], dtype), jnp.asarray([0.0, 1.0, 0.5], dtype)
    np.testing.assert_allclose(certain.cdf(below), [0, 0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(certain.cdf(at), [1, 1, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(certain.density(jnp.asarray([0.5], dtype))[:2], 0)
    pair = simplex_interval(Marginal.beta(a[:2], b[:2]), 0.9)
    np.testing.assert_array_equal(pair, [[0, 1], [0, 1]])


def test_levels_at_the_ends_and_beyond(dtype):
    q = jnp.asarray([0.0, 1.0, -0.1, 1.1, jnp.nan], dtype)
    two = jnp.full_like(q, 2.0)
    np.testing.assert_array_equal(
        Marginal.beta(two, two).quantile(q), [0, 1, np.nan, np.nan, np.nan]
    )


def test_a_bad_or_slow_neighbour_changes_no_bit():
    marginal, *_ = mixture(np.dtype(float), *MIXTURES["small prior"])
    clean = np.asarray(marginal.interval(0.95))
    spoiled = Marginal(
        marginal.weight.at[2].set(jnp.nan),
        marginal.a,
        marginal.b,
        marginal.first,
        marginal.n,
    )
    bad = np.asarray(spoiled.interval(0.95))
    np.testing.assert_array_equal(bad[:, :2], clean[:, :2])
    assert np.isnan(bad[:, 2]).all()
    slow = Marginal(
        marginal.weight,
        marginal.a.at[2].set(1e-2),
        marginal.b.at[2].set(1e6),
        marginal.first,
        marginal.n,
    )
    np.testing.assert_array_equal(np.asarray(slow.interval(0.95))[:, :2], clean[:, :2])


def test_leading_axes_jit_and_vmap():
    marginal, *_ = mixture(np.dtype(float), *MIXTURES["small prior"])
    lower, upper = marginal.interval(0.9)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), marginal)
    np.testing.assert_allclose(jax.jit(Marginal.quantile)(stacked, 0.05)[1], lower, rtol=1e-12)
    np.testing.assert_allclose(stacked.quantile(0.95)[0], upper, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(lambda m: m.interval(0.9)[1])(stacked)[1], upper, 1e-12)
    none = jax.tree.map(lambda x: x[:0], stacked)
    assert none.interval(0.9)[0].shape == (0, 3)


def test_mirrored_is_one_minus_the_parameter():
    marginal, *_ = mixture(np.dtype(float), *MIXTURES["small prior"])
    u = np.asarray(marginal.logit_quantile(0.3))
    np.testing.assert_allclose(marginal.mirrored.logit_quantile(0.7), -u, rtol=1e-9)


# Through the fits.


def test_quantiles_under_small_concentrations(dtype):
    counts = np.array([[[10, 0, 0]], [[0, 0, 0]]], dtype)
    tables = pnb.NoisyTables(counts, 10, pnb.Laplace(dtype.type(0.05)))
    fit = fit_exact(tables, pnb.Prior.symmetric(tables, 1e-3))
    lower, upper = (np.asarray(x, float) for x in fit.feature_interval(0.95))
    _, draws = (np.asarray(x, float) for x in fit.sample(jax.random.key(0), 4000))
    held = ((lower <= draws) & (draws <= upper)).mean(0)
    assert (held > 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / 4000)).all()
    # The counts are all but known, so the medians have a closed form: F(x) = x^a / (a B(a, b)).
    fit = fit_exact(tables, pnb.Prior.symmetric(tables, 1e-2))
    a, others = 0.01, 10.02
    log_median = (np.log(0.5) + np.log(a) + scipy.special.betaln(a, others)) / a
    assert log_median < np.log(1e-16)
    median = np.asarray(fit.feature_quantile(0.5), float)[0, 0, 1:]
    np.testing.assert_allclose(np.log(median), log_median, rtol=1e-3)


def test_upper_ends_are_monotone_in_float32():
    counts = np.array([[[3.0, 1.0]], [[30.0, 20.0]]])
    ends = {}
    for dtype in (np.float32, np.float64):
        tables = pnb.NoisyTables(counts.astype(dtype), 54, pnb.Laplace(dtype(1.0)))
        prior = pnb.Prior(np.array([3.5e-3, 2165], dtype), np.ones((2, 1, 2), dtype))
        fit = fit_exact(tables, prior)
        ends[dtype] = np.array([fit.class_interval(level) for level in LEVELS], float)
        lower, upper = ends[dtype][:, 0], ends[dtype][:, 1]
        assert (np.diff(upper, axis=0) >= 0).all()
        assert (np.diff(lower, axis=0) <= 0).all()
    np.testing.assert_allclose(
        ends[np.float32][:, 1, 0], ends[np.float64][:, 1, 0], rtol=2e-2, atol=1e-37
    )


def test_second_of_two_categories_keeps_tiny_probabilities(dtype):
    counts = np.array([[[50.0, 0.0]], [[50.0, 0.0]]], dtype)
    tables = pnb.NoisyTables(counts, 100, pnb.Laplace(dtype.type(0.05)))
    prior = pnb.Prior(np.ones(2, dtype), np.full((2, 1, 2), 0.05, dtype))
    lower, upper = fit_exact(tables, prior).feature_interval(0.5)
    first = pnb.Prior(np.ones(2, dtype), np.full((2, 1, 2), 0.05, dtype))
    turned = pnb.NoisyTables(counts[..., ::-1], 100, pnb.Laplace(dtype.type(0.05)))
    same_lower, same_upper = fit_exact(turned, first).feature_interval(0.5)
    rtol = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(lower[..., 1], same_lower[..., 0], rtol=rtol)
    np.testing.assert_allclose(upper[..., 1], same_upper[..., 0], rtol=rtol)
    assert (np.asarray(lower) > 0).all()
    expected = scipy.stats.beta.ppf([0.25, 0.75], 0.05, 50.05)
    np.testing.assert_allclose(np.log(lower[..., 1]), np.log(expected[0]), rtol=1e-2)


def test_totals_that_swallow_a_concentration(dtype):
    # In float32 the total is that of the second alone.
    alpha = jnp.asarray([1e-2, 1e7], dtype)
    posterior = pnb.posterior.DirichletPosterior(
        jnp.ones((1, 2), bool), jnp.int32(0), alpha, alpha[None, None]
    )
    _, upper = (np.asarray(x, float) for x in posterior.class_interval(0.9))
    expected = scipy.stats.beta.ppf(0.95, float(alpha[0]), 1e7)
    np.testing.assert_allclose(upper[0], expected, rtol=1e-9 if dtype == np.float64 else 1e-2)
