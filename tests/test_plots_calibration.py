"""Coverage by the CDF against coverage counted from scipy's intervals."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
from plotted import MASK, legend, new_axes, posterior, truths

from jaxprivnb.plots import coverage, plot_calibration

pytest.importorskip("matplotlib")

R = 40
FIT, TRUTH = posterior(5, (R,)), truths(6, (R,))


def counted(alpha, truth, real, level):
    """Each replicate's share of parameters inside their intervals, one by one."""
    beta = scipy.stats.beta(
        np.where(real, alpha, 1), np.where(real, alpha.sum(-1, keepdims=True) - alpha, 1)
    )
    low, high = beta.ppf((1 - level) / 2), beta.ppf((1 + level) / 2)
    inside = (low <= truth) & (truth <= high) & real
    return inside.reshape(R, -1).sum(-1) / real.reshape(R, -1).sum(-1)


@pytest.mark.parametrize("what", ["class", "feature"])
def test_rates_and_errors(what):
    alpha = np.asarray(getattr(FIT, f"{what}_alpha"))
    truth = TRUTH[what == "feature"]
    real = np.broadcast_to(MASK if what == "feature" else True, alpha.shape)
    found = coverage(FIT, TRUTH, what, (0.5, 0.9))
    for n, level in enumerate((0.5, 0.9)):
        share = counted(alpha, truth, real, level)
        np.testing.assert_allclose(found.rate[n], share.mean(), rtol=1e-12)
        np.testing.assert_allclose(found.error[n], share.std(ddof=1) / R**0.5, rtol=1e-12)
    assert (found.replicates, found.failed) == (R, 0)


def test_posterior_draws_as_truths_are_covered_at_the_nominal_rate():
    rng = np.random.default_rng(0)
    big = posterior(7, (4000,))
    alpha = np.asarray(big.class_alpha)
    p = rng.beta(alpha[:, 0], alpha[:, 1])
    found = coverage(big, (np.stack([p, 1 - p], -1), truths(8, (4000,))[1]), "class")
    assert (np.abs(found.rate - found.levels) < 4 * found.error + 1e-9).all()


def test_curves_bands_and_failures_are_drawn():
    alpha = np.asarray(FIT.class_alpha).copy()
    alpha[3] = np.nan
    broken = dataclasses.replace(FIT, class_alpha=np.asarray(alpha))
    fits = {"exact": FIT, "vb": broken}
    ax = plot_calibration(fits, TRUTH, "class", levels=(0.2, 0.5, 0.8), ax=new_axes())
    nominal, *curves = ax.lines
    np.testing.assert_array_equal(nominal.get_data(), [[0, 1], [0, 1]])
    for line, band, p in zip(curves, ax.collections, fits.values(), strict=True):
        expected = coverage(p, TRUTH, "class", (0.2, 0.5, 0.8))
        np.testing.assert_array_equal(line.get_data(), [(0.2, 0.5, 0.8), expected.rate])
        y = band.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose(y.max(), (expected.rate + 2 * expected.error).max())
        np.testing.assert_allclose(y.min(), (expected.rate - 2 * expected.error).min())
    assert legend(ax) == ["nominal", "exact posterior", "variational (VB) (1 failed)"]
    assert ax.get_xlabel() == "nominal level of the interval"
    assert ax.get_ylabel() == "share of true P(Y) inside"


def test_refused():
    with pytest.raises(ValueError, match="a leading axis"):
        plot_calibration(posterior(0), truths(0), ax=new_axes())
    with pytest.raises(TypeError, match="truth must be given"):
        coverage(FIT, None)
    with pytest.raises(ValueError, match="levels must be in"):
        coverage(FIT, TRUTH, levels=(95,))
    with pytest.raises(ValueError, match="at least two replicates"):
        coverage(posterior(0, (1,)), truths(0, (1,)))
