"""The referee of the exact posterior against enumeration, and against what is known by hand."""

import math

import numpy as np
import oracles
import pytest
from reference import Mixture, Reference

LOG_PROB = {
    "laplace": lambda x, b: -np.abs(x) / b - np.log(2 * b),
    "geometric": lambda x, b: -np.abs(x) / b + np.log(np.tanh(1 / (2 * b))),
    "gaussian": lambda x, b: -0.5 * (x / b) ** 2 - np.log(b) - 0.5 * np.log(2 * np.pi),
}


@pytest.mark.parametrize("noise", LOG_PROB)
@pytest.mark.parametrize(
    ("N", "shape", "ragged"),
    [(4, (2, 2, 2), ()), (3, (2, 2, 3), ((0, 2), (1, 0))), (3, (3, 1, 2), ()), (5, (1, 2, 3), ())],
)
def test_equal_to_enumeration(noise, N, shape, ragged):
    rng = np.random.default_rng(N)
    I, K, J = shape
    mask = np.ones((K, J), bool)
    for cell in ragged:
        mask[cell] = False
    scale = np.exp(rng.normal(0, 1, K))
    counts = np.round(rng.normal(2, 6, shape), 0 if noise == "geometric" else 3)
    a, alpha = np.exp(rng.normal(0, 2, I)), np.exp(rng.normal(0, 2, shape))
    density = lambda x: LOG_PROB[noise](x, scale[:, None])  # noqa: E731
    slow = oracles.enumerate_posterior(counts, N, density, a, alpha, mask)
    found = Reference(counts, N, noise, scale, a, alpha, mask)
    same = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-300)  # noqa: E731
    same(found.log_evidence, slow.log_evidence)
    same(found.feature_mean, oracles.feature_moments(slow)[0])
    same(found.feature_sd, oracles.feature_moments(slow)[1])
    same(found.class_mean, oracles.class_moments(slow)[0])
    # The oracle's sd of a lone class is that of rounding.
    np.testing.assert_allclose(found.class_sd, oracles.class_moments(slow)[1], 1e-11, atol=1e-12)
    same(found.class_count_pmf, oracles.class_count_pmf(slow))
    same(found.count_pmf[:, mask], oracles.count_pmf(slow)[:, mask])
    record = [np.flatnonzero(mask[k])[-1] if k else -1 for k in range(K)]
    same(found.predict_proba(record), oracles.predict_proba(slow, record))
    x = np.full(shape, 0.3)
    same([found.class_mixture(i).cdf(0.3) for i in range(I)], oracles.class_cdf(slow, x[:, 0, 0]))
    expected = oracles.feature_cdf(slow, x)
    for i in range(I):
        for k, j in np.argwhere(mask):
            law = found.feature_mixture(i, k, j)
            same(law.cdf(0.3), expected[i, k, j])
            same(law.cdf(0.3) + law.sf(0.3), 1)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("far", [1e2, 1e4, 1e8])
def test_counts_far_outside_lose_no_digits(noise, far):
    # What two equal counts far below 0 say is that both are 0 first: the other two then share N.
    found = Reference([[[-far, 29.25, -far, 29.25]]], 59, noise, 1.0)
    near = Reference([[[29.25, 29.25]]], 59, noise, 1.0)
    mean = near.feature_mean[0, 0] * 61 / 63
    assert found.feature_mean.sum() == pytest.approx(1, abs=1e-14)
    if noise == "gaussian":
        np.testing.assert_allclose(found.feature_mean[0, 0, 1::2], mean, rtol=1e-13)
    # The same tables twice, and classes that are each other's image.
    both = Reference(np.tile([[-far, 40.5], [40.5, -far]], (2, 1, 1)), 59, noise, 1e-3)
    np.testing.assert_allclose(both.class_mean, 0.5, rtol=1e-12)


def test_quantiles_are_those_of_the_cdf():
    law = Mixture(np.array([0.3, 0.7]), np.array([1e-4, 3.0]), np.array([2.0, 5e-3]))
    for level in (1e-3, 0.025, 0.2, 0.5, 0.9, 0.975):
        assert law.holds(law.quantile(level), level, 1e-9, tiny=2.3e-308)
        assert not law.holds(0.5 * law.quantile(level) + 1e-3, level, 1e-9, tiny=2.3e-308)
    # Below all floating-point numbers: 0.3 x^a / (a B(a, 2)) with a = 1e-4.
    log_x = law.log_quantile(0.025)
    a = 1e-4
    log_beta = math.lgamma(a) + math.lgamma(2) - math.lgamma(2 + a)
    assert log_x == pytest.approx((math.log(0.025 / 0.3) + math.log(a) + log_beta) / a, rel=1e-9)
    assert law.quantile(0.025) == 0
