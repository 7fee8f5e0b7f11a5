"""Summaries against numpy by hand, and figures that show what they were given."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from jaxprivnb.study.load import Study
from jaxprivnb.study.schema import row_table
from jaxprivnb.study.spec import Replicates
from jaxprivnb.study.specfile import parse_spec
from jaxprivnb.study.summary import clustered_mean, format_summary, summarise, with_error

pytest.importorskip("pyarrow")

TEXT = """\
name = "made-up"
levels = [0.5, 0.95]

[grid]
n_records = [50, 200]
epsilon_per_table = [0.01, 0.1, 1.0]
n_features = 2

[replicates]
parameters = 6
datasets = 3
noise_draws = 2

[methods.naive]
[methods.vb]
[methods.exact]
[methods.bayes]
"""


def made_up(spec, seed=0):
    """Rows with known structure, without running anything."""
    rng = np.random.default_rng(seed)
    M, R = len(spec.arms), spec.replicates.total
    size = len(spec.cells) * M * R
    cell, method, r = (x.ravel() for x in np.indices((len(spec.cells), M, R)))
    outer, noise_draw = np.divmod(r, spec.replicates.noise_draws)
    parameter, dataset = np.divmod(outer, spec.replicates.datasets)
    effect = rng.normal(size=spec.replicates.parameters)[parameter]
    columns = {
        "cell": cell.astype(np.int32),
        "method": method.astype(np.int16),
        "replicate": r.astype(np.int32),
        "parameter": parameter.astype(np.int32),
        "dataset": dataset.astype(np.int32),
        "noise_draw": noise_draw.astype(np.int32),
        "se_feature": (1 + method) * 0.01 * np.exp(effect + 0.1 * rng.normal(size=size)),
        "se_class": (4 - method) * 0.001 * np.exp(rng.normal(size=size)),
        "coverage_feature_50": rng.random(size),
        "coverage_class_50": rng.random(size),
        "coverage_feature_95": rng.random(size),
        "coverage_class_95": rng.random(size),
        "width_feature": rng.random(size),
        "width_class": rng.random(size),
        "log_evidence": np.where((method == 1) | (method == 2), rng.normal(size=size), np.nan),
        "iterations": np.where(method == 1, rng.integers(1, 99, size), np.nan),
        "max_decrease": np.where(method == 1, 0.0, np.nan),
        "status": (rng.random(size) < 0.01).astype(np.int8),
    }
    return Study(spec, row_table(spec, columns), 1, 1), columns


SPEC = parse_spec(TEXT)


@pytest.fixture(scope="module")
def study():
    return made_up(SPEC)


def test_means_and_errors_by_hand(study):
    table, columns = study
    summary = summarise(table)
    assert len(summary.cell) == 24
    for g in (0, 9, 23):
        pick = (columns["cell"] == summary.cell[g]) & (columns["method"] == summary.method[g])
        x = columns["se_feature"][pick]
        draws = x.reshape(6, 6).mean(1)
        assert summary.mean["se_feature"][g] == pytest.approx(x.mean(), rel=1e-12)
        assert summary.se["se_feature"][g] == pytest.approx(draws.std(ddof=1) / 6**0.5, rel=1e-12)
        assert summary.median["se_feature"][g] == np.median(x)
        assert summary.failures[g] == (columns["status"][pick] != 0).sum()
    # Replicates of one parameter draw agree, so counting them as independent would be wrong.
    naive = columns["se_feature"][:36].std(ddof=1) / 6
    assert summary.se["se_feature"][0] > 1.5 * naive


def test_one_parameter_draw_uses_data_sets(study):
    spec = dataclasses.replace(SPEC, replicates=SPEC.replicates._replace(parameters=1))
    table, columns = made_up(spec)
    x = columns["width_class"][:6].reshape(3, 2).mean(1)
    assert summarise(table).se["width_class"][0] == pytest.approx(x.std(ddof=1) / 3**0.5)


def test_missing_numbers_are_left_out():
    values = np.array([1.0, np.nan, 3.0, np.nan])
    mean, se = clustered_mean(values, np.array([0, 0, 0, 1]), np.array([0, 1, 2, 0]), 2)
    assert mean[0] == 2.0
    assert se[0] == pytest.approx(1.0)
    assert np.isnan([mean[1], se[1]]).all()


def test_csv_has_every_number(study):
    table, _ = study
    summary = summarise(table)
    lines = list(csv.DictReader(io.StringIO(format_summary(table, summary, "csv"))))
    assert len(lines) == 24
    assert float(lines[5]["se_class_mean"]) == summary.mean["se_class"][5]
    assert float(lines[5]["se_class_mcse"]) == summary.se["se_class"][5]
    assert (lines[5]["method"], lines[5]["n_records"], lines[5]["epsilon_per_table"]) == (
        "vb",
        "50",
        "0.1",
    )
    assert lines[0]["iterations_mean"] == ""


def test_terminal_and_markdown(study):
    table, _ = study
    summary = summarise(table)
    text = format_summary(table, summary).splitlines()
    assert len(text) == 26
    assert len({len(line) for line in text}) == 1
    markdown = format_summary(table, summary, "markdown").splitlines()
    assert markdown[0].startswith("| N | epsilon | method | replicates |")
    assert len({line.replace(r"\|", "").count("|") for line in markdown}) == 1
    with pytest.raises(ValueError, match="style must be"):
        format_summary(table, summary, "html")


@pytest.mark.parametrize(
    ("mean", "se", "text"),
    [
        (0.08417, 0.00132, "0.0842(13)"),
        (123.4, 5.6, "123.4(56)"),
        (1234.0, 56.0, "1234(56)"),
        (0.95, 0.0, "0.95"),
        (0.94999650, 2.5e-8, "0.95000"),
        (0.5, float("nan"), "0.5"),
        (float("nan"), 0.1, "-"),
    ],
)
def test_errors_in_brackets(mean, se, text):
    assert with_error(mean, se) == text


def test_figures_show_the_rows(study):
    pytest.importorskip("matplotlib")
    from matplotlib.patches import PathPatch

    from jaxprivnb.study.figures import draw

    table, columns = study
    (figure,) = draw(table, "figure1")
    assert len(figure.axes) == 4
    cell, method = 4, 2  # N = 200, epsilon = 0.1, exact; the lower left panel
    x = columns["se_feature"][(columns["cell"] == cell) & (columns["method"] == method)]
    panel = figure.axes[2]
    assert panel.get_title("left") == "N=200"
    assert panel.get_xscale() == panel.get_yscale() == "log"
    medians = [line.get_ydata() for line in panel.lines]
    assert any(np.allclose(y, np.median(x)) for y in medians if len(set(y)) == 1)
    boxes = [p.get_path().vertices for p in panel.patches if isinstance(p, PathPatch)]
    bands = [p for p in panel.patches if not isinstance(p, PathPatch)]
    assert len(boxes) == 12
    q1, q3 = np.percentile(x, [25, 75])
    assert any(np.isclose(v[:, 1].min(), q1) and np.isclose(v[:, 1].max(), q3) for v in boxes)
    assert max(v[:, 0].max() for v in boxes) < 3
    # Every stroke is in its box, and every box on the band of its epsilon: no line runs elsewhere.
    bands = [p.get_extents().transformed(panel.transData.inverted()) for p in bands]
    assert [round(np.sqrt(b.x0 * b.x1), 9) for b in bands] == [0.01, 0.1, 1.0]
    for m in range(4):
        for band, v in zip(bands, boxes[3 * m : 3 * m + 3], strict=True):
            assert band.x0 < v[:, 0].min() < v[:, 0].max() < band.x1
    for line in panel.lines:
        low, high = min(line.get_xdata()), max(line.get_xdata())
        assert any(v[:, 0].min() * 0.999 <= low <= high <= v[:, 0].max() * 1.001 for v in boxes)

    (figure,) = draw(table, "efficiency")
    drawn = figure.axes[0].lines
    se = [
        columns["se_feature"][(columns["cell"] == 0) & (columns["method"] == m)].mean()
        for m in (2, 0)
    ]
    assert any(np.isclose(line.get_ydata()[0], se[0] / se[1]) for line in drawn)

    (figure,) = draw(table, "coverage")
    mean = columns["coverage_class_95"][(columns["cell"] == 5) & (columns["method"] == 3)].mean()
    assert any(np.isclose(line.get_ydata()[-1], mean) for line in figure.axes[3].lines)
    assert len(draw(table, "iterations")[0].axes) == 2


def words(figure):
    """The legend's title and entries, and the label of the vertical axis."""
    (legend,) = figure.legends
    entries = [text.get_text() for text in legend.get_texts()]
    return legend.get_title().get_text(), entries, figure.get_supylabel()


def test_figures_say_which_intervals_and_what_bars_they_show():
    pytest.importorskip("matplotlib")
    from jaxprivnb.study.figures import draw

    table, _ = made_up(dataclasses.replace(SPEC, width_level=0.8))
    for name, level in (("coverage", "95%"), ("width", "80%")):
        title, _, label = words(*draw(table, name))
        assert level in title
        assert level in label
        assert "± 2 Monte Carlo standard errors" in title


def test_the_legend_of_efficiency_shows_its_lines(study):
    pytest.importorskip("matplotlib")
    from jaxprivnb.study.figures import draw

    (figure,) = draw(study[0], "efficiency")
    look = lambda line: (line.get_color(), line.get_marker(), line.get_linestyle())  # noqa: E731
    shown = [look(handle) for handle in figure.legends[0].legend_handles]
    assert shown == [look(line) for line in figure.axes[0].lines]
    assert words(figure)[1] == ["naive", "variational (VB)", "exact posterior"]


def test_an_axis_of_less_than_a_decade_has_plain_numbers():
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from jaxprivnb.study.figures import draw

    _, columns = made_up(SPEC)
    columns["iterations"] = np.where(columns["method"] == 1, 55.0 + columns["cell"], np.nan)
    (figure,) = draw(Study(SPEC, row_table(SPEC, columns), 1, 1), "iterations")
    FigureCanvasAgg(figure).draw()
    axis = figure.axes[0].yaxis
    labels = [text.get_text() for text in axis.get_ticklabels(which="both")]
    assert "60" in labels
    assert not [label for label in labels if "times" in label]


def test_replicates_in_words():
    pytest.importorskip("matplotlib")
    from jaxprivnb.study.figures import replicates_in_words

    assert replicates_in_words(Replicates(20, 10, 5)) == (
        "20 parameter draws × 10 data sets × 5 noise draws"
    )
    assert replicates_in_words(Replicates(1000, 1, 1)) == "1,000 parameter draws"
    assert replicates_in_words(Replicates(1, 1, 1)) == "1 replicate"


def test_figures_that_do_not_apply_are_left_out(tmp_path):
    pytest.importorskip("matplotlib")
    from jaxprivnb.study.figures import plot_study

    spec = dataclasses.replace(SPEC, arms=SPEC.arms[:1], n_records=(1, 2, 3, 4, 5, 6, 7))
    table, _ = made_up(spec)
    files = plot_study(table, tmp_path, suffix="svg")
    assert files == [f"{n}{p}.svg" for n in ("figure1", "coverage", "width") for p in ("", "-2")]
    assert all((tmp_path / name).stat().st_size > 1000 for name in files)
    with pytest.raises(ValueError, match="figures must be among"):
        plot_study(table, tmp_path, figures=("figure2",))


def test_a_million_rows_are_drawn():
    pytest.importorskip("matplotlib")
    from jaxprivnb.study.figures import draw

    replicates = SPEC.replicates._replace(parameters=1042, datasets=40, noise_draws=1)
    table, _ = made_up(dataclasses.replace(SPEC, replicates=replicates))
    assert table.table.num_rows > 1_000_000
    summary = summarise(table)
    draw(table, "figure1", summary)
    assert summary.replicates.sum() == table.table.num_rows
