"""Intervals as drawn, against scipy."""

import numpy as np
import pytest
import scipy.stats
from plotted import DOMAIN, legend, new_axes, posterior, truths

from jaxprivnb.plots import forest, plot_forest

pytest.importorskip("matplotlib")


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_every_row_is_the_parameter_it_is_labelled():
    fits, truth = {"naive": posterior(1), "exact": posterior(2)}, truths(3)
    ax = plot_forest(fits, level=0.9, truth=truth, domain=DOMAIN, ax=new_axes())
    expected = [
        f"{f.name} = {c} | {y}"
        for f in DOMAIN.features
        for c in f.categories
        for y in DOMAIN.class_.categories
    ]
    assert labels(ax) == expected
    cells = [(i, k, j) for k, J in ((0, 2), (1, 3)) for j in range(J) for i in range(2)]
    bars = ax.collections
    for bar, line, p in zip(bars, ax.lines, fits.values(), strict=False):
        alpha = np.asarray(p.feature_alpha)
        beta = [scipy.stats.beta(alpha[c], alpha[c[:2]].sum() - alpha[c]) for c in cells]
        ends = np.array([segment[:, 0] for segment in bar.get_segments()])
        np.testing.assert_allclose(ends, [b.ppf([0.05, 0.95]) for b in beta], rtol=1e-6)
        np.testing.assert_allclose(line.get_xdata(), [b.mean() for b in beta], rtol=1e-12)
        heights = [segment[0, 1] for segment in bar.get_segments()]
        np.testing.assert_allclose(heights, line.get_ydata())
        assert (np.round(heights) == np.arange(10)).all()
    true = [segment[0, 0] for segment in bars[2].get_segments()]
    np.testing.assert_array_equal(true, [truth[1][c] for c in cells])
    assert ax.get_ylim() == (9.5, -0.5)  # the first row on top
    assert legend(ax) == ["naive", "exact posterior", "truth"]
    assert ax.get_xlabel() == "P(X | Y)\nposterior mean and 90% interval"
    # One line between the two features, after the radius's four rows.
    assert [line.get_ydata()[0] for line in ax.lines if line.get_color() == "#999999"] == [3.5]


def test_classes_and_choices():
    p = posterior(1)
    ax = plot_forest(p, "class", ax=new_axes())
    assert labels(ax) == ["class = 0", "class = 1"]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), p.class_mean)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0, 1])
    ax = plot_forest(p, classes=[1], features=["x1"], categories=[0, 2], ax=new_axes())
    assert labels(ax) == ["x1 = 0 | class = 1", "x1 = 2 | class = 1"]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), p.feature_mean[1, 1, [0, 2]])


def test_refused(monkeypatch):
    p = posterior(0)
    with pytest.raises(ValueError, match="what must be one of"):
        plot_forest(p, "classes", ax=new_axes())
    with pytest.raises(ValueError, match='features are chosen with what="feature" only'):
        plot_forest(p, "class", features=["x0"], ax=new_axes())
    with pytest.raises(ValueError, match="no parameter is left"):
        plot_forest(p, categories=["large"], ax=new_axes())
    monkeypatch.setattr(forest, "MOST_ROWS", 9)
    with pytest.raises(ValueError, match="10 intervals are too many"):
        plot_forest(p, ax=new_axes())
