"""What budgets buy, as drawn."""

import numpy as np
import pytest
from plotted import legend, new_axes

from jaxprivnb.planning.table import Plan, Row
from jaxprivnb.plots import plot_plan
from jaxprivnb.privacy.domain import Column, Domain

pytest.importorskip("matplotlib")


def row(epsilon, noise, class_table, error):
    numbers = (*(0.1,) * 3, error, *(0.1,) * 3, 0.8 - error)
    return Row(epsilon, noise, None, class_table, "equal", 1.0, 1.0, *numbers, (0.01,) * 8)


ROWS = [
    row(e, noise, own, 0.1 / e)
    for e in (1.0, 0.5)
    for noise in ("laplace", "gaussian")
    for own in (False, True)
]
DOMAIN = Domain(Column("class", (0, 1)), (Column("x0", (0, 1)),))
PLAN = Plan(tuple(ROWS), 100, DOMAIN, 1e-6, 0.95, 0.9, "replace", 1, 2, 0)


def test_a_line_for_each_noise_with_and_without_the_class_table():
    ax = plot_plan(PLAN, ax=new_axes())
    assert legend(ax) == ["Laplace", "Laplace, class table", "Gaussian", "Gaussian, class table"]
    for line in ax.lines:
        np.testing.assert_allclose(line.get_data(), [[0.5, 1.0], [0.2, 0.1]])
    assert ax.get_ylabel() == "error of P(X | Y)"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_accuracy_stands_below_its_ceiling():
    ax = plot_plan(PLAN, "accuracy", ax=new_axes())
    assert set(ax.lines[-1].get_ydata()) == {0.9}
    assert legend(ax)[-1] == "with the true parameters"
    assert ax.get_yscale() == "linear"


def test_refused():
    with pytest.raises(TypeError, match=r"plan must be what jaxprivnb\.plan returns"):
        plot_plan(ROWS)
    with pytest.raises(ValueError, match="what must be one of"):
        plot_plan(PLAN, "error")
