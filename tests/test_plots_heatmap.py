"""The noisy tables as drawn."""

import numpy as np
import pytest
from plotted import DOMAIN, MASK, new_axes

import jaxprivnb as pnb
from jaxprivnb.plots import heatmap, plot_tables
from jaxprivnb.privacy.record import Guarantee, Release

pytest.importorskip("matplotlib")

COUNTS = np.array([[[5.0, -3.0, 0.0], [1.0, 2.0, 4.0]], [[40.0, 7.0, 0.0], [12.0, 30.0, 9.0]]])
TABLES = pnb.NoisyTables(COUNTS, 60, pnb.Laplace(20.0), mask=MASK)
CELLS = [[5, -3, 1, 2, 4], [40, 7, 12, 30, 9]]


def test_cells_numbers_and_names():
    ax = plot_tables(TABLES, domain=DOMAIN, ax=new_axes())
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), CELLS)
    assert image.get_clim() == (-40, 40)  # white is zero
    written = [text.get_text() for text in ax.texts]
    assert written == [str(v) for row in CELLS for v in row] + ["radius", "texture"]
    assert [t.get_text() for t in ax.get_xticklabels()] == [
        c for f in DOMAIN.features for c in f.categories
    ]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["benign", "malignant"]
    assert ax.get_ylabel() == "diagnosis"
    assert ax.get_xlabel() == "category\nN = 60; every count has Laplace noise of scale 20"
    assert [line.get_xdata()[0] for line in ax.lines] == [1.5]
    assert ax.figure.axes[1].get_ylabel() == "noisy count"


def test_the_caption_fits_a_small_figure():
    small = pnb.NoisyTables(COUNTS[..., :1, :2], 60, pnb.Laplace(20.0))
    figure = plot_tables(small).figure
    figure.draw_without_rendering()
    words = figure.axes[0].xaxis.label.get_window_extent()
    assert 0 <= words.x0 < words.x1 <= figure.bbox.x1


def test_chosen_features_without_names_or_numbers():
    tables = pnb.NoisyTables(COUNTS, 60, pnb.Geometric([20.0, 5.0]), mask=MASK)
    ax = plot_tables(tables, features=["x1"], annotate=False, ax=new_axes())
    np.testing.assert_array_equal(ax.images[0].get_array(), [row[2:] for row in CELLS])
    assert [text.get_text() for text in ax.texts] == ["x1"]
    assert "discrete Laplace noise of scale 5" in ax.get_xlabel()
    both = plot_tables(tables, ax=new_axes())
    assert "scale 5 to 20" in both.get_xlabel()
    assert both.get_ylabel() == "class"


def test_a_release_names_itself_and_its_class_table_comes_last():
    guarantee = Guarantee("epsilon", 0.3, 0.3, (0.1,) * 3, (20.0,) * 3)
    made = Release.assemble(
        [COUNTS[:, 0, :2].astype(np.int64), COUNTS[:, 1].astype(np.int64)],
        np.array([21, 44]), 60, DOMAIN, guarantee, {},
    )  # fmt: skip
    ax = plot_tables(made, ax=new_axes())
    np.testing.assert_array_equal(ax.images[0].get_array()[:, -1], [21, 44])
    assert [t.get_text() for t in ax.texts][-3:] == ["radius", "texture", "diagnosis"]
    assert ax.get_xticklabels()[-1].get_text() == "all"


def test_numbers_are_left_out_where_they_would_not_be_read(monkeypatch):
    monkeypatch.setattr(heatmap, "MOST_NUMBERS", 9)
    ax = plot_tables(TABLES, ax=new_axes())
    assert [text.get_text() for text in ax.texts] == ["x0", "x1"]


def test_refused():
    with pytest.raises(TypeError, match="NoisyTables or a Release, got ndarray"):
        plot_tables(COUNTS, ax=new_axes())
    with pytest.raises(ValueError, match="features must name at least one table"):
        plot_tables(TABLES, features=[], ax=new_axes())
