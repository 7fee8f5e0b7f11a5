"""Totals of groups of classes, at any number of levels, against sums over every table."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import jaxprivnb as pnb
from jaxprivnb.exact import groups, plan
from jaxprivnb.exact.fit import fit_path

NOISES = cases.NOISES
TWO_LEVELS = ((0, 1), (2, 3))
THREE_LEVELS = ((0, 1, 2), (0, 2), (1,), (0, 1, 2, 3))
FAMILIES = (TWO_LEVELS, THREE_LEVELS, ((0, 1, 3), (0, 1), (0, 1)))


def published(family, noise, seed=0, public=()):
    """Totals of groups of about five records in all, those of `public` without noise."""
    rng = np.random.default_rng(seed)
    found = []
    for r, classes in enumerate(family):
        total = len(classes) + rng.normal(0, 1.5)
        if isinstance(noise, pnb.Geometric) or r in public:
            total = np.round(total)
        found.append(pnb.Group(classes, total, None if r in public else noise))
    return tuple(found)


def log_of_classes(of):
    def f(n_class):
        n = [n_class[list(g.classes)].sum() for g in of]
        each = zip(of, n, strict=True)
        return sum(float(g.noise.log_prob(jnp.asarray(g.total - x))) for g, x in each)

    return f


def problem(noise, family, seed=0, public=(), shape=(4, (2,), 5)):
    """Tables with groups, their prior, and the enumeration."""
    tables, prior, (counts, N, log_prob, a, alpha, mask) = cases.problem(shape, noise, seed)
    of = published(family, NOISES[(seed + 1) % 3] if public == () else noise, seed, public)
    tables = dataclasses.replace(tables, groups=of)
    right = oracles.enumerate_factors(
        lambda l: log_prob(counts - l), {N: 0.0}, a, alpha, mask, None, log_of_classes(of)
    )
    return tables, prior, right


def agree(fit, right, tol=1e-10):
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=tol, atol=tol)  # noqa: E731
    assert int(fit.status) == 0
    assert float(fit.lost_mass) < 1e-10
    close(fit.log_evidence, right.log_evidence)
    for found, wanted in (
        ((fit.class_mean, fit.class_sd), oracles.class_moments(right)),
        ((fit.feature_mean, fit.feature_sd), oracles.feature_moments(right)),
    ):
        for x, y in zip(found, wanted, strict=True):
            close(x, y)
    law = oracles.class_count_pmf(right)
    held = np.zeros_like(law)
    for i, first in enumerate(np.asarray(fit.class_count_offset)):
        own = np.asarray(fit.class_count_pmf[i])[: law.shape[1] - first]
        held[i, first : first + len(own)] = own
    close(held, law)


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_posteriors_are_those_of_enumeration(noise, family):
    tables, prior, right = problem(noise, family, seed=FAMILIES.index(family))
    fit = pnb.fit_exact(tables, prior)
    agree(fit, right)
    x = np.array([1])
    np.testing.assert_allclose(
        fit.predict_proba(jnp.asarray(x)), oracles.predict_proba(right, x), atol=1e-10
    )


def test_two_features_and_a_public_total():
    tables, prior, right = problem(
        NOISES[0], ((0, 1), (2,)), 3, public=(0,), shape=(3, (2, 2), 4)
    )
    fit = pnb.fit_exact(tables, prior)
    agree(fit, right)
    assert float(fit.class_count_mean[:2].sum()) == pytest.approx(2)
    np.testing.assert_allclose(
        fit.feature_marginal().cdf(jnp.full(fit.feature_mean.shape, 0.3)),
        oracles.feature_cdf(right, np.full(fit.feature_mean.shape, 0.3)),
        atol=1e-10,
    )
