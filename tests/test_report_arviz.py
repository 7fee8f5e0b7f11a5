"""Draws for ArviZ: dimensions, coordinates, values."""

import sys
import types
import warnings

import jax
import numpy as np
import pytest
from cases import example_release, random_posterior

import jaxprivnb as pnb

xarray = pytest.importorskip("xarray")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ 0.x announces its successor
    arviz = pytest.importorskip("arviz")

KEY = jax.random.key(0)


def posterior_group(data):
    return data["posterior"]


def test_named_dimensions_and_the_draws_of_sample():
    fit = pnb.fit_naive(example_release())
    group = posterior_group(fit.to_arviz(KEY, 25, chains=2))
    assert dict(group.sizes) == {"chain": 2, "draw": 25, "class": 2, "feature": 2, "category": 3}
    assert group["p_feature"].dims == ("chain", "draw", "class", "feature", "category")
    p_class, p_feature = fit.sample(KEY, 50)
    np.testing.assert_array_equal(group["p_class"].values.reshape(50, 2), p_class)
    one = group["p_feature"].sel({"class": "b", "feature": "z"}).isel(category=2)
    np.testing.assert_array_equal(one.values.ravel(), p_feature[:, 1, 1, 2])
    assert group["class"].values.tolist() == ["a", "b"]
    assert group["category_label"].values.tolist() == [["f", "m", ""], ["0", "1", "2"]]
    assert np.isnan(group["p_feature"].sel(feature="sex").isel(category=2)).all()
    assert int(np.isnan(group["p_feature"]).sum()) == 50 * 2


def test_a_variable_for_each_feature_has_no_gaps_and_arviz_reads_it():
    fit = pnb.fit_naive(example_release())
    data = fit.to_arviz(KEY, 500, by_feature=True)
    group = posterior_group(data)
    assert group["p_feature_sex"].dims == ("chain", "draw", "class", "sex_category")
    assert not any(np.isnan(group[name]).any() for name in group.data_vars)
    table = arviz.summary(data)
    row = table.loc["p_feature_sex[b, m]"]
    assert abs(row["mean"] - float(fit.feature_mean[1, 0, 1])) < 4.5 * row["mcse_mean"] + 5e-4
    assert (table["r_hat"] < 1.05).all()


def test_labels_that_features_share_are_the_coordinate():
    tables = pnb.NoisyTables(
        np.ones((2, 2, 3)), 6, pnb.Laplace(1.0), [[True] * 3, [True, True, False]]
    )
    group = posterior_group(pnb.fit_naive(tables).to_arviz(KEY, 5, chains=1))
    assert group["category"].values.tolist() == [0, 1, 2]
    assert group["feature"].values.tolist() == ["x0", "x1"]


def test_arviz_1_gets_a_data_tree(monkeypatch):
    # ArviZ 1 needs a newer Python than the oldest we support: a stand-in for its name and version.
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(__version__="1.1.0"))
    tree = random_posterior(0).to_arviz(KEY, 5)
    assert isinstance(tree, xarray.DataTree)
    assert tree["posterior"]["p_class"].shape == (4, 5, 2)


def test_what_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="to_arviz is of one dataset"):
        random_posterior(0, batch=(2,)).to_arviz(KEY)
    with pytest.raises(ValueError, match="chains must be at least 1"):
        random_posterior(0).to_arviz(KEY, chains=0)
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxprivnb\[arviz\]'"):
        random_posterior(0).to_arviz(KEY)
