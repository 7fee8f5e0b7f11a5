"""A block's evidence and laws, against sums over all ways to share n records."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln

from jaxprivnb.planning.block import laws, log_evidence, log_noise, noise_sd, tilted


def by_enumeration(m, n, a, measure, scale):
    """(c(n), P(l_j = l | n, m) `[J, n + 1]`) of one block, up to the noise's constant."""
    total, law = 0.0, np.zeros((len(m), n + 1))
    for l in itertools.product(range(n + 1), repeat=len(m)):
        if sum(l) != n:
            continue
        x = np.asarray(l)
        prior = gammaln(x + a) - gammaln(x + 1) - gammaln(a)
        weight = np.exp((prior + log_noise(m - x, measure, scale)).sum())
        total += weight
        law[range(len(m)), l] += weight
    return total, law / total


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("concentration", [1.0, 0.3])
def test_a_fine_lattice_is_exact(measure, concentration):
    m = np.array([[5.0, -3.0, 9.0], [0.0, 14.0, 1.0]])
    a = np.array([[1.0, 0.5, 2.0], [1.0, 1.0, 1.0]]) * concentration
    n = np.array([12.0, 9.0])
    block = tilted(m, n, a, measure, 2.0, np.array([15.0, 11.0]))
    assert (block.step == 1).all()
    away = np.array([[0.0, 3.0, -4.0], [0.0, 2.0, -1.0]])
    log_c, _ = log_evidence(block, away)
    own = laws(tilted(m, n, a, measure, 2.0))
    first = tilted(m, n, a, measure, 2.0).first
    for b in range(2):
        expected = [
            np.log(by_enumeration(m[b], int(n[b] + d), a[b], measure, 2.0)[0]) for d in away[b]
        ]
        np.testing.assert_allclose(log_c[b] - log_c[b, 0], expected - expected[0], atol=1e-8)
        _, law = by_enumeration(m[b], int(n[b]), a[b], measure, 2.0)
        for j in range(3):
            begin = int(first[b, j])
            found = np.zeros(int(n[b]) + 1)
            inside = own[b, j][: len(found) - begin]
            found[begin : begin + len(inside)] = inside
            np.testing.assert_allclose(found, law[j], atol=1e-9)


def test_a_coarse_lattice_has_the_same_moments():
    """Flat weights: P(l_j | n) of a uniform composition, mean n / J."""
    n, J = np.array([3_000.0]), 4
    block = tilted(np.zeros((1, J)), n, np.ones((1, J)), "epsilon", 1e6)
    assert block.step[0] > 1
    counts = (block.first[..., None] + np.arange(block.pmf.shape[-1])) * block.step[0]
    law = laws(block)
    mean = (law * counts).sum(-1)
    np.testing.assert_allclose(mean[0], n[0] / J, rtol=2e-3)
    sd = np.sqrt((law * counts**2).sum(-1) - mean**2)
    p = 1 / J  # n times a Beta(1, J - 1), and the composition's own spread
    expected = np.sqrt(n[0] * (n[0] + J) * p * (1 - p) / (J + 1))
    np.testing.assert_allclose(sd[0], expected, rtol=5e-3)


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
def test_the_sd_of_the_noise(scale):
    x = np.arange(-2_000, 2_001)
    pmf = np.exp(log_noise(x, "epsilon", scale))
    expected = np.sqrt((pmf * x**2).sum() / pmf.sum())
    np.testing.assert_allclose(noise_sd("epsilon", scale), expected, rtol=1e-9)
