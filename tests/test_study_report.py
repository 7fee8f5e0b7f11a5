"""Zip and nested-loop plots, and a study as one page: they show the rows they were given."""

import dataclasses
import re

import numpy as np
import pytest
from test_study_summary import SPEC, made_up

from jaxprivnb.study.load import Study
from jaxprivnb.study.schema import row_table
from jaxprivnb.study.specfile import parse_spec
from jaxprivnb.study.summary import summarise

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

MANY = """\
name = "many <axes>"
levels = [0.5, 0.95]
[grid]
n_records = [50, 200]
epsilon_per_table = [0.01, 0.1, 1.0]
n_features = 2
truth = [0.2, 1.0]
assumed_noise = ["laplace", "gaussian"]
[replicates]
parameters = 20
[methods.naive]
[methods.exact]
"""


def with_intervals(spec, seed=1):
    """Made-up rows whose intervals are off by more in the second method."""
    _, columns = made_up(spec, seed)
    rng = np.random.default_rng(seed)
    for what in ("feature", "class"):
        size = len(columns["cell"])
        middle, half = rng.normal(size=size) * (1 + columns["method"]), 1 + rng.random(size)
        columns[f"low_{what}"] = (middle - half).astype(np.float32)
        columns[f"high_{what}"] = (middle + half).astype(np.float32)
    columns["message"] = np.where(columns["status"] != 0, "ValueError: <none>", "")
    return Study(spec, row_table(spec, columns), 1, len(spec.cells)), columns


@pytest.fixture(scope="module")
def many():
    return with_intervals(parse_spec(MANY))


def test_the_zip_opens_where_intervals_begin_to_miss(many):
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_hex

    from jaxprivnb.study.figures import draw

    study, columns = many
    pages = draw(study, "zip")
    assert len(pages) == 4  # eight combinations, five a page, of two parameters
    axis = pages[0].axes[1]
    cell = 1  # the middle epsilon
    pick = (columns["cell"] == cell) & (columns["method"] == 1)
    low, high = (columns[f"{end}_feature"][pick] for end in ("low", "high"))
    inside = (low <= 0) & (high >= 0)
    assert 0 < inside.sum() < inside.size
    (strokes,) = [c for c in axis.collections if isinstance(c, LineCollection)]
    drawn = np.array(strokes.get_segments())  # [R, 2, 2]
    missed = np.array([to_hex(c) == "#000000" for c in strokes.get_colors()])
    assert (np.sort(drawn[:, 0, 0]) == np.sort(low)).all()
    assert (missed == (drawn[:, 0, 0] > 0) | (drawn[:, 1, 0] < 0)).all()
    assert (np.diff(drawn[:, 0, 1]) > 0).all()
    assert not missed[: inside.sum()].any()  # those that miss are on top
    assert missed[inside.sum() :].all()
    assert f"{100 * inside.mean():.0f}%" in [text.get_text() for text in axis.texts]
    assert "95% intervals of P(X₁=1|Y=1)" in pages[0].get_suptitle()


def test_rows_without_intervals_have_no_zip():
    from jaxprivnb.study.figures import draw

    assert draw(made_up(SPEC)[0], "zip") == []


def test_the_nested_loop_has_a_step_for_every_cell(many):
    from jaxprivnb.study.figures import draw

    study, columns = many
    (page,) = draw(study, "nested")
    *panels, lanes = page.axes
    assert [axis.get_ylabel().split("\n")[0] for axis in panels] == [
        "squared error", "squared error", "95% coverage", "95% coverage",
    ]  # fmt: skip
    for axis, name in zip(panels, ("se_feature", "se_class", "coverage_feature_95"), strict=False):
        for m, step in enumerate(axis.patches):
            means = [
                columns[name][(columns["cell"] == c) & (columns["method"] == m)].mean()
                for c in range(len(study.spec.cells))
            ]
            np.testing.assert_allclose(step.get_data().values, means)
    said = [text.get_text() for text in lanes.texts]
    assert [text.split(":")[0] for text in said] == ["noise taken for", "truth", "N", "ε per table"]
    heights = lanes.patches[1].get_data().values
    truth = [cell.truth for cell in study.spec.cells]
    assert len({(h, t) for h, t in zip(heights, truth, strict=True)}) == 2
    assert draw(made_up(SPEC)[0], "nested") == []  # two axes need none


def test_a_page_has_it_all_and_loads_nothing(many):
    from jaxprivnb.study.report import study_page

    study, columns = many
    html = study_page(study, "0.0.1")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert "<script" not in html
    assert "many &lt;axes&gt;: a Monte Carlo study" in html
    assert html.count("<img") == 7
    failures = int((columns["status"] != 0).sum())
    assert failures
    assert f"{failures} of {len(columns['status']):,} rows" in html
    assert "ValueError: &lt;none&gt;" in html
    assert study.spec.fingerprint in html
    assert "jaxprivnb 0.0.1" in html
    assert "taken for=gaussian" in html
    assert f"1 of {len(study.spec.cells)} chunks are done" in html
    assert re.search(r"<pre>.*assumed_noise.*</pre>", html, re.DOTALL)
    summary = summarise(study)
    assert html.count("<tr>") >= len(summary.cell)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", "20 times: the parameters are drawn. For each of these, 1 time: class counts and"),
        (
            "[replicates]",
            '[replicates]\nclass_counts = "parameters"',
            "the parameters are drawn, and class counts from them. For each of these, 1 ",
        ),
        (
            "truth = [0.2, 1.0]",
            "truth = {class = [1, 1], features = [[[1, 1], [1, 1]], [[1, 1], [1, 1]]]}",
            "the parameters are fixed",
        ),
    ],
)
def test_the_page_says_what_is_drawn_how_often(old, new, words):
    from jaxprivnb.study.report import loop_in_words

    assert words in loop_in_words(parse_spec(MANY.replace(old, new) if old else MANY))


def test_a_million_rows_are_a_page():
    from jaxprivnb.study.report import study_page

    replicates = SPEC.replicates._replace(parameters=1042, datasets=40, noise_draws=1)
    study, _ = with_intervals(dataclasses.replace(SPEC, replicates=replicates))
    assert study.table.num_rows > 1_000_000
    html = study_page(study, "0.0.1")
    assert f"{study.table.num_rows:,} rows" in html
