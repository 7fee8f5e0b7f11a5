"""The page about a release."""

import re

import numpy as np
import pytest
from test_report_page import Checker

import jaxprivnb as pnb

pytest.importorskip("opendp")
pytest.importorskip("matplotlib")

RECORDS = {
    "sex": ["f", "m", "m"] * 20,
    "age": [3, 25, 70] * 20,
    "<b>": ["$x$", "\\frac", "$"] * 20,
    "income": ["<=50K", ">50K", "<=50K"] * 20,
}
DOMAIN = {
    "categories": {"sex": ["f", "m"], "<b>": ["$x$", "\\frac", "$"]},
    "bins": {"age": [0, 18, 65, 120]},
    "classes": ["<=50K", ">50K"],
}


def made(**options):
    options = options or {"epsilon_total": 1.0}
    return pnb.release(RECORDS, "income", **DOMAIN, **options)


def written(tmp_path, release, **options):
    posterior = pnb.write_report(release, tmp_path / "r.html", **options)
    html = (tmp_path / "r.html").read_text()
    return posterior, html, " ".join(Checker(html).text)


def test_a_page_has_the_promise_the_tables_and_the_posterior(tmp_path):
    release = made(epsilon_total=1.5, neighbours="add-remove", contributions=3, class_table=True)
    posterior, html, text = written(tmp_path, release, level=0.9)
    for words in (
        "income by 3 features: a private release",
        "epsilon_total=1.5 (pure DP, add or remove up to 3 records)",
        "not published",
        "people who have up to 3 records each",
        "discrete Laplace",
        "Numbers were put into bins of public edges: age.",
        "P(age | income = >50K)",
        "[18, 65)",
        "0.9",
        "Lost mass",
    ):
        assert words in text
    assert re.search(r"epsilon 1\.5 of all tables", text)
    for row in posterior.summary(0.9, counts=True).rows:
        for number in (f"{row.mean:.4f}", f"{row.upper:.4f}", str(row.count_upper)):
            assert number in text
    for count in np.append(release.integers, release.class_integers):
        assert f"{count:,}" in text
    assert html.count("<img") == 1 + 1 + 3  # the tables, P(income) and every feature
    assert all(x.startswith(("#", "data:")) for x in Checker(html).loaded)
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_other_fits_say_that_they_are_not_the_exact_one(tmp_path):
    _, html, text = written(tmp_path, made(rho_total=0.1), method="naive")
    assert "zCDP" in text
    assert "epsilon at delta = 1e-06" in text
    assert f"{made(rho_total=0.1).guarantee.epsilon(1e-6):.3f}" in text
    assert "may be far too narrow" in text
    assert "from" not in re.findall(r"<th>([^<]*)</th>", html)
    assert "60, public" in text


def test_labels_are_no_formulas():
    from matplotlib import pyplot

    ax = pnb.plots.plot_forest(pnb.fit_naive(made()), features=["<b>"])
    try:
        ax.figure.canvas.draw()
        labels = ax.get_yticklabels()
        assert labels[0].get_text().startswith("<b> = $x$")
        assert not any(label.get_parse_math() for label in labels)
    finally:
        pyplot.close(ax.figure)


def test_arguments(tmp_path):
    path = tmp_path / "r.html"
    with pytest.raises(TypeError, match=r"release must be a jaxprivnb\.Release, got str"):
        pnb.write_report("r.json", path)
    with pytest.raises(ValueError, match="method must be one of"):
        pnb.write_report(made(), path, method="none")
    with pytest.raises(ValueError, match="level must be"):
        pnb.write_report(made(), path, level=2.0)
    assert not path.exists()
