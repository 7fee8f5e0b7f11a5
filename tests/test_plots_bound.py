"""Paths as drawn."""

import numpy as np
import pytest
from plotted import legend, new_axes

from jaxprivnb.plots import plot_bound
from jaxprivnb.variational.trace import Trace

pytest.importorskip("matplotlib")

NAN = float("nan")
SHORT = Trace(np.array([-9.0, -5.0, -4.5, NAN]), np.full((4, 2), 0.5), np.int32(3))
LONG = Trace(np.array([-9.0, -8.0, -7.0, -4.0]), np.full((4, 2), 0.5), np.int32(4))


def test_paths_end_where_the_ascent_did_below_the_evidence():
    ax = plot_bound({"fast": SHORT, "slow": LONG}, log_evidence=-3.0, ax=new_axes())
    np.testing.assert_array_equal(ax.lines[0].get_data(), [[0, 1, 2], [-9, -5, -4.5]])
    np.testing.assert_array_equal(ax.lines[1].get_data(), [[0, 1, 2, 3], [-9, -8, -7, -4]])
    assert set(ax.lines[2].get_ydata()) == {-3.0}
    assert legend(ax) == ["fast", "slow", "log evidence (exact)"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("sweeps", "bound on log P(m) (nats)")


def test_the_gap_is_to_the_highest_of_all_paths():
    ax = plot_bound({"fast": SHORT, "slow": LONG}, gap=True, ax=new_axes())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [5, 1, 0.5])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [5, 4, 3, NAN])
    assert ax.get_yscale() == "log"
    assert "highest bound" in ax.get_ylabel()


def test_one_path_needs_no_label():
    ax = plot_bound(SHORT, ax=new_axes())
    assert len(ax.lines) == 1
    assert legend(ax) == []


def test_refused():
    with pytest.raises(TypeError, match="traces must be what trace_vb returns"):
        plot_bound([1.0, 2.0], ax=new_axes())
    with pytest.raises(TypeError, match=r"traces must be what trace_vb returns"):
        plot_bound({"a": np.zeros(3)}, ax=new_axes())
    with pytest.raises(ValueError, match="of one dataset"):
        plot_bound(Trace(np.zeros((2, 3)), None, np.zeros(2)), ax=new_axes())
    with pytest.raises(ValueError, match="gap=False"):
        plot_bound(SHORT, gap=True, log_evidence=-3.0, ax=new_axes())
