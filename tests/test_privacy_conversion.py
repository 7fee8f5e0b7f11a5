"""From rho to (epsilon, delta): between the exact curve of a Gaussian and the usual formula."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from jaxprivnb.privacy.conversion import epsilon_from_rho, rho_from_epsilon

RHOS = [1e-8, 1e-3, 0.1, 0.5, 3.0, 100.0]
DELTAS = [1e-300, 1e-12, 1e-6, 1e-3, 0.1, 0.9]


def exact_delta(rho, epsilon):
    """Balle and Wang's curve of the Gaussian mechanism with mu = sensitivity / sigma: its rho is
    mu^2 / 2, and it is (epsilon, delta)-DP exactly from this delta on."""
    mu = math.sqrt(2 * rho)
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


def usual(rho, delta):
    return rho + 2 * math.sqrt(rho * -math.log(delta))


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", DELTAS)
def test_it_is_above_the_exact_curve_and_below_the_usual_formula(rho, delta):
    epsilon = epsilon_from_rho(rho, delta)
    assert 0 <= epsilon < usual(rho, delta)
    # scipy's tails have an absolute error of some 1e-16.
    assert exact_delta(rho, epsilon) <= delta * (1 + 1e-9) + 1e-16


def test_the_curve_and_the_formula_are_not_far():
    rho, delta = 0.1, 1e-6
    epsilon = epsilon_from_rho(rho, delta)
    assert round(epsilon, 2) == 2.14
    assert round(usual(rho, delta), 2) == 2.45
    assert exact_delta(rho, 0.9 * epsilon) > delta  # so the first test can fail


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", DELTAS)
def test_it_is_the_best_of_all_alphas(rho, delta):
    alphas = 1 + np.geomspace(1e-6, 1e12, 40_001)
    log_delta = math.log(delta)
    # The bound solved for epsilon, in terms of alpha.
    epsilons = alphas * rho + (-log_delta + alphas * np.log1p(-1 / alphas) - np.log(alphas - 1)) / (
        alphas - 1
    )
    best = max(epsilons.min(), 0)
    assert epsilon_from_rho(rho, delta) == pytest.approx(best, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", [d for d in DELTAS if d < 0.5])
def test_it_is_opendps_number(rho, delta):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    gaussian = dp.m.make_gaussian(*space, scale=1 / math.sqrt(2 * rho))
    theirs = dp.c.make_zCDP_to_approxDP(gaussian).map(1.0).epsilon(delta)
    assert epsilon_from_rho(rho, delta) == pytest.approx(theirs, rel=1e-12, abs=1e-12)


def test_a_search_that_goes_wrong_is_still_a_bound(monkeypatch):
    import scipy.optimize

    class Found:
        x = 1.0

    monkeypatch.setattr(scipy.optimize, "minimize_scalar", lambda *_, **__: Found)
    poor = epsilon_from_rho(0.1, 1e-6)
    monkeypatch.undo()
    assert poor > 1.5 * epsilon_from_rho(0.1, 1e-6)
    assert exact_delta(0.1, poor) <= 1e-6


@pytest.mark.parametrize(
    "arguments", [(0.0, 0.1), (-1, 0.1), (1.0, 0.0), (1.0, 1.0), (math.nan, 0.1)]
)
def test_what_is_no_budget(arguments):
    with pytest.raises(ValueError, match=r"must be in \(0"):
        epsilon_from_rho(*arguments)


def test_extremes_are_finite():
    for rho in (5e-324, 1e-300, 1e300):
        for delta in (5e-324, 1e-16, 1 - 1e-16):
            assert 0 <= epsilon_from_rho(rho, delta) <= usual(rho, delta) * (1 + 1e-14)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 2.14, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_the_largest_rho_of_an_epsilon(epsilon, delta):
    rho = rho_from_epsilon(epsilon, delta)
    assert epsilon_from_rho(rho, delta) <= epsilon
    assert epsilon_from_rho(rho * (1 + 1e-6), delta) > epsilon
