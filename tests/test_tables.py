"""Noisy tables and priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.tables import full_mask, mask_from_categories, resolve_prior

COUNTS = np.arange(12.0).reshape(2, 3, 2)


def test_inputs_decide_the_dtype_of_every_array(dtype):
    prior = pnb.Prior(np.ones(2), np.ones((2, 3, 2)))
    tables = pnb.NoisyTables(COUNTS.astype(dtype), 9, pnb.Laplace(np.float64(3.0)))
    assert {x.dtype for x in jax.tree.leaves(tables)} == {dtype}
    resolved = resolve_prior(prior, tables.counts, None)
    assert {x.dtype for x in jax.tree.leaves(resolved)} == {dtype}
    assert {x.dtype for x in jax.tree.leaves(pnb.Prior.uniform(tables))} == {dtype}


def test_one_dataset():
    tables = pnb.NoisyTables(COUNTS, 9, pnb.Laplace(3.0))
    assert (tables.n_classes, tables.n_features, tables.batch_shape) == (2, 3, ())
    assert tables.mask is None
    assert tables.real.shape == (3, 2)
    assert bool(tables.real.all())
    assert repr(tables) == (
        "NoisyTables(2 classes x 3 features x 2 categories, N=9, Laplace(scale=3.0))"
    )
    tables.check("fit")
    assert bool(tables.is_valid())


def test_a_bad_scale_among_tables_or_datasets():
    bad = pnb.Laplace([3.0, -1.0, 3.0])
    with pytest.raises(ValueError, match=r"noise.scale must be finite and > 0"):
        pnb.NoisyTables(COUNTS, 22, bad)  # one value a table
    four = np.stack([COUNTS] * 4)
    with pytest.raises(ValueError, match=r"noise.scale must be finite and > 0"):
        pnb.NoisyTables(four, 22, bad)  # one value a table, shared by all datasets
    each = pnb.NoisyTables(four[:3], 22, bad)  # one a dataset
    assert jax.vmap(lambda t: t.is_valid())(each).tolist() == [True, False, True]


def test_what_is_no_release_is_told_where_one_is():
    simulation = pnb.simulate(jax.random.key(0), n_records=9, noise=pnb.Laplace(1.0))
    with pytest.raises(TypeError, match="a Simulation has one in its tables"):
        pnb.fit_naive(simulation)
    with pytest.raises(TypeError, match="fit_naive take those"):
        pnb.fit_bayes(simulation.tables)
    assert "NoisyTables(2 classes" in repr(simulation)
    assert "Array" not in repr(simulation)


def test_a_batch_carries_its_axes_on_every_array():
    counts = np.stack([COUNTS] * 4).reshape(2, 2, 2, 3, 2)
    mask = np.array([[True, True], [True, False], [True, True]])
    tables = pnb.NoisyTables(counts, 9, pnb.Laplace(3.0), mask)
    assert tables.batch_shape == (2, 2)
    assert {x.shape[:2] for x in jax.tree.leaves(tables)} == {(2, 2)}
    one = jax.tree.map(lambda x: x[1, 0], tables)
    assert one.batch_shape == ()
    np.testing.assert_array_equal(one.real, mask)
    assert "2x2 datasets of 2 classes" in repr(tables)
    prior = pnb.Prior.symmetric(tables, 0.5)
    assert prior.class_.shape == (2, 2, 2)
    assert bool(jnp.all(prior.feature == 0.5))


def test_noise_scale_a_table_and_a_dataset():
    per_table = pnb.NoisyTables(COUNTS, 9, pnb.Laplace([1.0, 2.0, 3.0]))
    by_cell = per_table.noise_by_cell()
    assert by_cell.scale.shape == (3, 1)
    np.testing.assert_allclose(
        by_cell.log_prob(per_table.counts)[1, 2],
        pnb.Laplace(3.0).log_prob(per_table.counts[1, 2]),
        rtol=1e-15,
    )
    batch = np.stack([COUNTS] * 4)
    assert pnb.NoisyTables(batch, 9, pnb.Laplace(np.ones(4))).noise.scale.shape == (4,)
    assert pnb.NoisyTables(batch, 9, pnb.Laplace(np.ones(3))).noise.scale.shape == (4, 3)
    assert pnb.NoisyTables(batch, 9, pnb.Laplace(np.ones((4, 3)))).noise.scale.shape == (4, 3)
    both = pnb.NoisyTables(batch[:3], 9, pnb.Laplace([1.0, 2.0, 3.0]))
    assert both.noise.scale.shape == (3,)  # one a dataset, as documented


def test_masked_cells_may_hold_anything():
    mask = np.array([[True, True], [True, False], [True, True]])
    counts = COUNTS.copy()
    counts[:, 1, 1] = np.nan
    tables = pnb.NoisyTables(counts, 9, pnb.Laplace(3.0), mask)
    tables.check("fit")
    assert bool(tables.is_valid())
    prior_feature = np.where(mask, 1.0, -1.0) * np.ones((2, 1, 1))
    resolve_prior(pnb.Prior(np.ones(2), prior_feature), tables.counts, tables.mask)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("counts", np.nan),
        ("counts", np.inf),
        ("n_records", -1.0),
        ("n_records", 2.5),
        ("n_records", np.nan),
        ("noise", 0.0),
        ("noise", np.inf),
    ],
)
def test_check_and_is_valid_agree(field, value):
    # Trees can be changed without the constructor: fits look again.
    tables = pnb.NoisyTables(COUNTS, 9, pnb.Laplace(3.0))
    leaves = {"counts": tables.counts, "n_records": tables.n_records, "noise": tables.noise.scale}
    leaves[field] = jnp.full_like(leaves[field], value)
    bad = jax.tree.unflatten(jax.tree.structure(tables), list(leaves.values()))
    assert not bool(jax.jit(lambda t: t.is_valid())(bad))
    with pytest.raises(ValueError, match=field):
        bad.check("fit")


def test_prior_is_valid_looks_at_real_cells_only():
    real = jnp.asarray([[True, False]])
    ones = jnp.ones((1, 1, 2))
    check = jax.jit(lambda p: p.is_valid(real))
    make = lambda c, f: jax.tree.unflatten(jax.tree.structure(pnb.Prior([1.0], ones)), [c, f])  # noqa: E731
    assert check(make(jnp.ones(1), ones))
    assert check(make(jnp.ones(1), ones.at[0, 0, 1].set(-1.0)))
    assert not check(make(jnp.ones(1), ones.at[0, 0, 0].set(0.0)))
    assert not check(make(jnp.full(1, jnp.nan), ones))


def test_resolve_prior_defaults_to_uniform():
    prior = resolve_prior(None, jnp.asarray(COUNTS), None)
    np.testing.assert_array_equal(prior.class_, np.ones(2))
    np.testing.assert_array_equal(prior.feature, np.ones((2, 3, 2)))


def test_masks_from_numbers_of_categories():
    assert mask_from_categories((3, 3)) is None
    np.testing.assert_array_equal(
        mask_from_categories((1, 3)), [[True, False, False], [True, True, True]]
    )
    assert full_mask(jnp.zeros((5, 2, 3, 4)), None).shape == (5, 3, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.shape,
        lambda x: x.sum(),
        lambda x: x.reshape(-1),
        lambda x: "secret",
        lambda x: jnp.ones((4, 5, 6)),
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),
    ],
)
def test_half_built_tables_have_a_repr(change):
    tables = pnb.NoisyTables(COUNTS, 9, pnb.Laplace(3.0), np.ones((3, 2), bool))
    text = repr(jax.tree.map(change, tables))
    assert text.startswith("NoisyTables(counts=")
    assert "secret" not in text


def test_tables_that_failed_their_checks_do_not_show_what_they_hold():
    half = object.__new__(pnb.NoisyTables)
    assert repr(half) == "NoisyTables(counts=None, n_records=None, noise=None)"
    assert repr(object.__new__(pnb.Release)).startswith("Release(counts=None")
    with pytest.raises(TypeError) as caught:
        pnb.NoisyTables([["secret"]], 9, pnb.Laplace(3.0))
    frames = [f.frame.f_locals for f in caught.traceback]
    (half,) = {id(f["self"]): f["self"] for f in frames if "self" in f}.values()
    assert repr(half).startswith("NoisyTables(counts=list of 1 items, n_records=9")
