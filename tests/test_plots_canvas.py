"""Drawing on the caller's Axes or a new one, without side effects."""

import json
import subprocess
import sys

import pytest
from plotted import legend, new_axes, posterior

import jaxprivnb as pnb

matplotlib = pytest.importorskip("matplotlib")


def test_a_new_figure_has_this_style_and_settings_are_left_alone():
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)
    ax = pnb.plots.plot_density(posterior(0), class_=0)
    try:
        assert dict(matplotlib.rcParams) == before
        assert ax.figure in map(pyplot.figure, pyplot.get_fignums())
        ax.figure.canvas.draw()
        assert {t.get_fontsize() for t in ax.get_xticklabels() + ax.get_yticklabels()} == {7}
        assert ax.xaxis.label.get_fontsize() == 8
        assert not ax.spines["top"].get_visible()
    finally:
        pyplot.close(ax.figure)


def test_a_given_axes_is_returned_and_no_figure_made():
    from matplotlib import pyplot

    open_before = pyplot.get_fignums()
    ax = new_axes()
    assert pnb.plots.plot_density(posterior(0), class_=0, ax=ax) is ax
    assert pyplot.get_fignums() == open_before
    assert ax.spines["top"].get_visible()
    assert legend(ax) == []  # one curve needs none


def test_what_is_not_an_axes_is_refused():
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes or None, got Figure"):
        pnb.plots.plot_density(posterior(0), class_=0, ax=new_axes().figure)


def test_without_matplotlib_the_error_names_the_extra():
    code = """
import json, sys
sys.modules["matplotlib"] = None
import jaxprivnb as pnb
from jaxprivnb.variational.trace import Trace
try:
    pnb.plots.plot_bound(Trace([1.0, 2.0], None, 2))
except ImportError as error:
    print(json.dumps(str(error)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'jaxprivnb[figures]'" in json.loads(done.stdout)
