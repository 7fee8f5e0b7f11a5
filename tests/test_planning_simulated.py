"""Simulated data and noise, against the laws that they are drawn from."""

import numpy as np
import pytest

from jaxprivnb.planning.block import log_noise
from jaxprivnb.planning.simulated import Concentrations, draw_data, draw_noise


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("scale", [0.4, 3.0, 40.0])
def test_noise_has_its_law(measure, scale):
    noise = draw_noise(np.random.default_rng(0), (200_000,), measure, scale)
    x = np.arange(-1_000, 1_001)
    pmf = np.exp(log_noise(x, measure, scale))
    pmf /= pmf.sum()
    for power in (1, 2):
        each = noise**power
        away = each.mean() - (pmf * x**power).sum()
        assert abs(away) < 4 * each.std() / np.sqrt(noise.size)
    near = np.abs(x) <= 1 + scale / 2
    assert abs(np.isin(noise, x[near]).mean() - pmf[near].sum()) < 0.005
    assert (noise == np.round(noise)).all()


def test_data_come_from_the_prior():
    prior = Concentrations(np.array([2.0, 1.0, 3.0]), (np.full((3, 2), 0.5), np.full((3, 4), 1.0)))
    data = draw_data(np.random.default_rng(1), prior, 500, 4_000)
    np.testing.assert_allclose(data.class_probs.mean(0), prior.class_ / 6, atol=0.01)
    expected = prior.class_ * (6 - prior.class_) / (36 * 7)
    np.testing.assert_allclose(data.class_probs.var(0), expected, rtol=0.1)
    assert (data.class_counts.sum(-1) == 500).all()
    for n, p, a in zip(data.counts, data.feature_probs, prior.feature, strict=True):
        assert (n.sum(-1) == data.class_counts).all()
        J = a.shape[1]
        variance = (1 / J) * (1 - 1 / J) / (a[0].sum() + 1)
        np.testing.assert_allclose(p.var(0), variance, rtol=0.15)
    x = np.asarray(data.records[1])
    by_class = data.class_probs[..., None] * data.feature_probs[1]
    expected = by_class.sum(1)[:, 0].mean()
    assert abs((x == 0).mean() - expected) < 0.01
