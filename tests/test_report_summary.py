"""`summary()` against SciPy's Betas."""

import csv
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from cases import example_release, random_posterior

import jaxprivnb as pnb
from jaxprivnb.report.summary import COLUMNS, Row, Summary


def test_rows_are_the_marginals_by_name():
    made = example_release()  # y in a, b; sex in f, m; z in 0, 1, 2
    fit = pnb.fit_naive(made)
    summary = fit.summary(0.9)
    assert len(summary) == 2 + 2 * 2 + 2 * 3
    names = [(r.feature, r.category, r.class_) for r in summary.rows]
    assert names[:4] == [("y", "a", None), ("y", "b", None), ("sex", "f", "a"), ("sex", "m", "a")]
    assert names[-1] == ("z", 2, "b")
    alpha = np.asarray(fit.feature_alpha)
    for row, (i, k, j) in (
        (summary.rows[3], (0, 0, 1)),
        (summary.rows[5], (1, 0, 1)),
        (summary.rows[-1], (1, 1, 2)),
    ):
        beta = scipy.stats.beta(alpha[i, k, j], alpha[i, k].sum() - alpha[i, k, j])
        expected = [beta.mean(), beta.std(), beta.ppf(0.05), beta.ppf(0.95)]
        np.testing.assert_allclose(row[3:7], expected, rtol=1e-9)
    assert summary.level == 0.9


def test_text():
    text = str(pnb.fit_naive(example_release()).summary())
    lines = text.splitlines()
    assert lines[0] == "DirichletPosterior, 0.95 intervals, totals given N: p = 0.79"
    assert lines[1].split() == ["mean", "sd", "lower", "upper"]
    assert lines[2] == "P(y)"
    assert lines[3].split() == ["a", "0.2857", "0.1166", "0.0909", "0.5381"]
    assert "P(sex | y = b)" in lines


def test_other_forms_hold_the_same_numbers():
    pytest.importorskip("pandas")
    summary = pnb.fit_naive(example_release()).summary()
    frame = summary.to_pandas()
    assert tuple(frame.columns) == COLUMNS
    np.testing.assert_array_equal(frame["upper"], [r.upper for r in summary.rows])
    assert frame["class"].isna().tolist() == [True] * 2 + [False] * 10
    rows = list(csv.DictReader(io.StringIO(summary.to_csv())))
    assert rows[0]["class"] == ""
    assert float(rows[7]["mean"]) == summary.rows[7].mean


def test_to_pandas_keeps_whole_numbers_as_class_labels():
    pytest.importorskip("pandas")
    frame = random_posterior(0).summary().to_pandas()
    assert frame["class"].tolist() == [None] * 2 + ([0] * 3 + [1] * 3 + [0] * 2 + [1] * 2)
    assert {type(label) for label in frame["class"][2:]} == {int}


def test_without_names_cells_are_numbered_and_masked_ones_left_out():
    summary = random_posterior(0).summary()
    assert len(summary) == 2 + 2 * (3 + 2)
    assert (summary.rows[-1].feature, summary.rows[-1].category) == ("x1", 1)


def test_a_long_table_is_cut_in_the_repr_and_whole_in_print():
    fit = pnb.fit_naive(pnb.NoisyTables(np.ones((2, 20, 2)), 40, pnb.Laplace(1.0)))
    summary = fit.summary()
    assert "... 22 more rows" in repr(summary)
    assert "P(x19 | class = 1)" not in repr(summary)
    assert "P(x19 | class = 1)" in str(summary)


def test_a_batch_says_what_to_do_and_a_replicate_does_it():
    batch = random_posterior(1, batch=(2, 2))
    with pytest.raises(ValueError, match=r"take one with posterior.replicate\(0, 0\)"):
        batch.summary()
    with pytest.raises(ValueError, match="an index for each"):
        batch.replicate(0)
    one = batch.replicate(1, 0)
    np.testing.assert_array_equal(one.class_alpha, batch.class_alpha[1, 0])
    assert one.summary().rows[0].mean == float(batch.class_mean[1, 0, 0])


def test_a_failure_is_in_the_heading():
    import dataclasses

    bad = dataclasses.replace(random_posterior(0), status=jnp.int32(pnb.Status.LOST_MASS))
    first, second, *_ = str(bad.summary()).splitlines()
    assert first.endswith("status LOST_MASS")
    assert second == pnb.Status.LOST_MASS.sentence
    with pytest.raises(ValueError, match="level"):
        bad.summary(1.0)


def test_names_are_no_part_of_the_tree():
    fit = pnb.fit_naive(example_release("sex"))
    other = pnb.fit_naive(example_release("age"))
    assert fit.domain.features[0].name == "sex"
    assert jax.tree.structure(fit) == jax.tree.structure(other)
    traces = []
    total = jax.jit(lambda p: traces.append(1) or p.class_mean.sum())
    total(fit)
    total(other)
    assert len(traces) == 1
    again = jax.tree.map(lambda x: x, fit)
    assert again.domain is None
    assert again.summary().rows[0].feature == "class"
    stacked = jax.tree.map(lambda *x: jnp.stack(x), fit, other)
    assert stacked.batch_shape == (2,)


def test_labels_in_csv_are_no_formulas_and_write_to_no_terminal():
    hostile = ("=HYPERLINK(1)", " @SUM(A1)", "+1-cmd", "-5", "\x1b[31m\rred", "＝1", "a=b", "+")
    values = (0.0,) * 4
    rows = [Row("@x", label, -1, *values) for label in hostile]
    summary = Summary((Row("=class", -1, None, *values), *rows), 0.95, "P", pnb.Status.SUCCESS)
    text = summary.to_csv()
    assert all(c.isprintable() or c == "\n" for c in text)
    table = list(csv.reader(io.StringIO(text)))[1:]
    assert [row[0] for row in table] == ["'=class"] + ["'@x"] * len(hostile)
    assert [row[2] for row in table] == [""] + ["-1"] * len(hostile)
    assert [row[1] for row in table] == [
        "-1", "'=HYPERLINK(1)", "' @SUM(A1)", "'+1-cmd", "-5", "'\\x1b[31m\\rred'", "'＝1", "a=b",
        "'+",
    ]  # fmt: skip
    assert summary.rows[1].category == "=HYPERLINK(1)"
