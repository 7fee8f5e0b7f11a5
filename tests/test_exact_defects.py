"""Answers that were once wrong with a status of 0."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import Reference

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_exact
from jaxprivnb.status import Status


def check(tables, prior=None, *, mean, sd):
    """Means to an absolute error and sds to a relative one; means of a block add up to 1."""
    right = Reference.of(tables, prior)
    fit = fit_exact(tables, prior)
    assert int(fit.status) == Status.SUCCESS
    one = 1e-12 if tables.counts.dtype == jnp.float64 else 1e-5
    np.testing.assert_allclose(fit.feature_mean.sum(-1), 1, rtol=0, atol=one)
    np.testing.assert_allclose(fit.class_mean.sum(), 1, rtol=0, atol=one)
    np.testing.assert_allclose(fit.feature_mean, right.feature_mean, rtol=0, atol=mean)
    np.testing.assert_allclose(fit.class_mean, right.class_mean, rtol=0, atol=mean)
    np.testing.assert_allclose(fit.feature_sd, right.feature_sd, rtol=sd)


@pytest.mark.parametrize(
    ("noise", "far", "dtype"),
    [
        ("Gaussian", 1e4, "float32"),
        ("Gaussian", 1e7, "float64"),
        ("Gaussian", 1e8, "float64"),
        ("Laplace", 1e6, "float32"),
    ],
)
def test_counts_many_scales_outside_0_to_n_records(noise, far, dtype):
    counts = jnp.asarray([[[-far, 59.25, -far, 59.25]]], dtype)
    scale = 1.0 if noise == "Gaussian" else 0.7  # whole numbers of scales round to nothing
    tables = pnb.NoisyTables(counts, 59, getattr(pnb, noise)(jnp.asarray(scale, dtype)))
    bounds = {"float64": (1e-9, 1e-8), "float32": (1e-4, 1e-3)}
    check(tables, mean=bounds[dtype][0], sd=bounds[dtype][1])


@pytest.mark.parametrize("far", [1e7, 1e8])
def test_counts_many_scales_outside_keep_the_sds(far):
    # Both classes empty in one category, one of them beyond N in another; one probability near 1.
    counts = np.array([[[-far, 8.5, 3.25], [12.0, -far, 1.0]], [[far, -2.0, 5.0], [-far, 20.5, 9]]])
    tables = pnb.NoisyTables(counts, 40, pnb.Laplace(0.7))
    feature = np.broadcast_to([1e-4, 1e4, 1e-4], (2, 2, 3))
    check(tables, pnb.Prior(np.ones(2), feature), mean=1e-9, sd=1e-8)


@pytest.mark.parametrize("n_records", [100_000, 1_000_000])
def test_feature_sd_in_float32_at_many_records(n_records):
    tables = pnb.simulate(
        jax.random.key(3), n_records=n_records, n_categories=(3, 3), noise=pnb.Laplace(4.0)
    ).tables
    wide = fit_exact(tables)
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == float else x, tables)
    narrow = fit_exact(single)
    assert int(wide.status) == int(narrow.status) == Status.SUCCESS
    np.testing.assert_allclose(narrow.feature_sd, wide.feature_sd, rtol=2e-3)
    np.testing.assert_allclose(narrow.class_sd, wide.class_sd, rtol=2e-3)
    off = np.abs(
        np.asarray(narrow.feature_interval(0.95)) - np.asarray(wide.feature_interval(0.95))
    )
    assert (off / np.asarray(wide.feature_sd)).max() < 0.02


def test_rare_and_nearly_certain_categories_keep_their_digits_in_float32():
    counts = np.full((2, 1, 3), 24, np.float32)
    tables = pnb.NoisyTables(counts, 41, pnb.Laplace(np.float32(5e4)))
    a = np.array([[[2e-4, 1e-4, 3e-4]], [[1e-3, 4e3, 1e-2]]], np.float32)
    prior = pnb.Prior(np.ones(2, np.float32), a)
    narrow = fit_exact(tables, prior)
    wide = fit_exact(*jax.tree.map(lambda x: x.astype(jnp.float64), (tables, prior)))
    assert int(narrow.status) == int(wide.status) == pnb.Status.SUCCESS
    np.testing.assert_allclose(narrow.feature_mean, wide.feature_mean, atol=1e-4)
    np.testing.assert_allclose(narrow.feature_sd, wide.feature_sd, rtol=1e-3)


def test_a_batch_of_other_scales_and_priors_costs_no_dataset_its_answer():
    counts = np.zeros((2, 2, 2, 6), np.float32)
    counts[:, 0] = [[8, 35, 1, 8, 8, 0], [35, 4, 4, 4, 5, 8]]
    b, a = np.array([0.03, 1e6], np.float32), np.array([1.5, 1e4], np.float32)
    tables = pnb.NoisyTables(counts, np.full(2, 60), pnb.Laplace(b))
    prior = pnb.Prior(np.full((2, 2), 0.5, np.float32), a[:, None, None, None] + 0 * counts)
    many = pnb.fit_many(tables, "exact", prior=prior)
    alone = fit_exact(*jax.tree.map(lambda x: x[0], (tables, prior)))
    assert int(many.status[0]) == int(alone.status) == Status.SUCCESS
    np.testing.assert_allclose(many.feature_mean[0], alone.feature_mean, atol=1e-6)


@pytest.mark.parametrize("tilts", [9, 81])
def test_what_a_batch_needs_is_good_for_datasets_that_need_less(tilts):
    """Under narrow noise few class counts are possible, and tilts aimed at others see none."""
    counts = np.array([[[9, 2, 4], [8, 7, 0]], [[30, 1, 14], [34, 11, 0]]], np.float32)
    tables = pnb.NoisyTables(counts, 60, pnb.Gaussian(np.float32(1e-3)))
    fit = fit_exact(tables, pnb.Prior.symmetric(tables, 7.2))
    wide = dataclasses.replace(fit, path=dataclasses.replace(fit.path, tilts=tilts))
    np.testing.assert_allclose(wide.count_pmf().sum(-1), 1, atol=1e-5)
    for x, y in zip(wide.feature_interval(0.95), fit.feature_interval(0.95), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4)
