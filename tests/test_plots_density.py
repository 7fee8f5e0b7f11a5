"""Densities as drawn, against scipy and against the enumerated mixture."""

import numpy as np
import pytest
import scipy.stats
from plotted import DOMAIN, legend, new_axes, posterior, truths

import jaxprivnb as pnb
from jaxprivnb.plots import plot_density

pytest.importorskip("matplotlib")


def marginal(p, i, k=None, j=None):
    alpha = np.asarray(p.class_alpha if k is None else p.feature_alpha[i, k])
    return scipy.stats.beta(
        alpha[i if k is None else j], np.delete(alpha, i if k is None else j).sum()
    )


def test_curves_shades_truth_and_labels():
    fits, truth = {"naive": posterior(1), "vb": posterior(2)}, truths(3)
    ax = plot_density(
        fits, class_="benign", feature="texture", category="medium", truth=truth, level=0.8,
        domain=DOMAIN, ax=new_axes(),
    )  # fmt: skip
    for line, p in zip(ax.lines, fits.values(), strict=False):
        beta = marginal(p, 0, 1, 1)
        x, y = line.get_data()
        np.testing.assert_allclose(y, beta.pdf(x), rtol=1e-8)
        np.testing.assert_allclose([x[0], x[-1]], beta.ppf([1e-4, 1 - 1e-4]), rtol=1e-6)
    for shade, p in zip(ax.collections, fits.values(), strict=True):
        x = shade.get_paths()[0].vertices[:, 0]
        np.testing.assert_allclose([x.min(), x.max()], marginal(p, 0, 1, 1).ppf([0.1, 0.9]), 1e-6)
    assert ax.lines[2].get_xdata() == [truth[1][0, 1, 1]] * 2
    assert ax.get_xlabel() == "P(texture = medium | diagnosis = benign)"
    assert ax.get_ylabel() == "posterior density\n(shaded: 80% interval)"
    assert legend(ax) == ["naive", "variational (VB)", "truth"]
    assert len({line.get_color() for line in ax.lines}) == 3


def test_a_class_without_shade():
    p = posterior(1)
    ax = plot_density(p, class_=1, level=None, ax=new_axes())
    x, y = ax.lines[0].get_data()
    np.testing.assert_allclose(y, marginal(p, 1).pdf(x), rtol=1e-8)
    assert len(ax.collections) == 0
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("P(class = 1)", "posterior density")


def test_the_exact_posterior_is_a_mixture_of_betas_over_the_class_count():
    N, counts = 12, [[[4.0, 7.5], [2.0, 6.0]], [[-3.0, 5.0], [3.0, 1.0]]]
    fit = pnb.fit_exact(pnb.NoisyTables(counts, N, pnb.Laplace(3.0)))
    x, y = plot_density(fit, class_=0, ax=new_axes()).lines[0].get_data()
    weight = np.asarray(fit.class_count_pmf[0])
    n = int(fit.class_count_offset[0]) + np.arange(weight.size)
    real = (n >= 0) & (n <= N)
    components = scipy.stats.beta(1 + n[real], 1 + N - n[real])
    np.testing.assert_allclose(y, (weight[real] * components.pdf(x[:, None])).sum(-1), rtol=1e-9)

    x, y = plot_density(fit, class_=0, feature="x1", category=0, ax=new_axes()).lines[0].get_data()
    np.testing.assert_allclose(np.trapezoid(y, x), 0.9998, atol=1e-4)
    np.testing.assert_allclose(np.trapezoid(x * y, x), fit.feature_mean[0, 1, 0], atol=2e-4)


def test_refused():
    p = posterior(0)
    with pytest.raises(TypeError, match="feature and category must be given together"):
        plot_density(p, class_=0, feature="x0", ax=new_axes())
    with pytest.raises(ValueError, match="level must be in"):
        plot_density(p, class_=0, level=95, ax=new_axes())
    alone = pnb.fit_naive(pnb.NoisyTables([[[4.0]], [[5.0]]], 9, pnb.Laplace(1.0)))
    with pytest.raises(ValueError, match="is 1 whatever the data"):
        plot_density(alone, class_=0, feature="x0", category=0, ax=new_axes())
