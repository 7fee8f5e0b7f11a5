"""Notebook tables: the right numbers, few of them, and no markup from names."""

import re

import jax
import numpy as np
from cases import example_release, random_posterior

import jaxprivnb as pnb

HOSTILE = "<script>alert('x')</script>"


def cells(html):
    return re.findall(r"<td>(.*?)</td>", html)


def heads(html):
    return re.findall(r"<th>(.*?)</th>", html)


def test_a_release_shows_its_noisy_counts():
    html = example_release()._repr_html_()
    assert cells(html) == ["3", "-1", "5", "7", "1", "2", "3", "4", "5", "6"]
    assert heads(html)[:5] == ["sex by y", "f", "m", "a", "b"]
    assert "epsilon_total=1" in html


def test_a_class_table_is_shown_as_such():
    made = example_release()
    both = pnb.Release.assemble(
        [made.integers[:, 0, :2], made.integers[:, 1]], np.array([90, -4]), 12,
        made.domain, made.guarantee, {},
    )  # fmt: skip
    assert cells(both._repr_html_())[-2:] == ["90", "-4"]


def test_a_posterior_shows_means_and_sds():
    fit = random_posterior(0)
    html = fit._repr_html_()
    mean, sd = np.asarray(fit.feature_mean), np.asarray(fit.feature_sd)
    assert f"{mean[1, 1, 1]:.3f} ± {sd[1, 1, 1]:.3f}" == cells(html)[-1]
    assert len(cells(html)) == 2 + 2 * (3 + 2)  # masked cells are not there


def test_a_summary_is_a_table():
    summary = pnb.fit_naive(example_release()).summary()
    html = summary._repr_html_()
    assert cells(html)[:4] == [f"{x:.4f}" for x in summary.rows[0][3:7]]
    assert html.count("<tr>") == 1 + len(summary)


def test_counts_stand_beside_what_knows_them():
    summary = pnb.fit_exact(example_release()).summary(counts=True)
    html, row = summary._repr_html_(), summary.rows[0]
    assert heads(html)[:9] == ["", "", "mean", "sd", "lower", "upper", "count", "from", "to"]
    found = [f"{row.count_mean:.1f}", str(row.count_lower), str(row.count_upper)]
    assert cells(html)[4:7] == found


def test_names_are_escaped():
    made = example_release(HOSTILE)
    fit = pnb.fit_naive(made)
    for html in (made._repr_html_(), fit._repr_html_(), fit.summary()._repr_html_()):
        assert "script&gt;" in html
        assert "<script" not in html


def test_large_things_are_cut():
    tables = pnb.NoisyTables(np.ones((20, 15, 30)), 100, pnb.Laplace(1.0))
    html = tables._repr_html_()
    assert "... and 5 more features" in html
    assert html.count("<table>") == 10
    assert len(cells(html)) == 10 * 12 * 13
    long = pnb.NoisyTables(np.ones((2, 60, 2)), 100, pnb.Laplace(1.0))
    assert "... 42 more rows" in pnb.fit_naive(long).summary()._repr_html_()


def test_batches_and_traces_are_one_line():
    assert "<table>" not in random_posterior(0, batch=(3,))._repr_html_()
    batch = pnb.NoisyTables(np.ones((3, 2, 2, 2)), 4, pnb.Laplace(1.0))
    assert "<table>" not in batch._repr_html_()
    seen = []
    jax.jit(lambda t, p: seen.extend([t._repr_html_(), p._repr_html_()]))(
        example_release(), random_posterior(0)
    )
    assert len(seen) == 2
    assert not any("<table>" in html for html in seen)
    assert "<table>" not in jax.tree.map(lambda _: None, example_release())._repr_html_()
