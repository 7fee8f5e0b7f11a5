"""The generative model: moments of every stage, and the same replicate in every batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.simulation import LANES, Replicate, simulate_replicates

RAGGED = {"n_classes": 3, "n_categories": (2, 4, 1)}
KEY = jax.random.key(11)


def flat(simulation):
    """Every array with one leading axis."""
    lead = len(simulation.tables.batch_shape)
    return [np.asarray(x).reshape(-1, *x.shape[lead:]) for x in jax.tree.leaves(simulation)]


def assert_same_bits(left, right, rows=slice(None)):
    for a, b in zip(flat(left), flat(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a[rows], b[rows])


def assert_near(draws, expected, z=4.75):
    """The mean of `draws` over its first axis is `expected` within z standard errors."""
    error = np.abs(draws.mean(0) - expected)
    se = draws.std(0) / np.sqrt(len(draws))
    assert (error <= z * se + 1e-12).all(), (error / np.maximum(se, 1e-300)).max()


@pytest.fixture(scope="module")
def big():
    return pnb.simulate(KEY, n_records=50, shape=(10_000,), **RAGGED)


def test_shapes_dtypes_and_consistent_margins(big):
    assert big.class_probs.shape == (10_000, 3)
    assert big.feature_probs.shape == big.counts.shape == big.tables.counts.shape
    assert big.counts.shape == (10_000, 3, 3, 4)
    assert big.tables.n_records.shape == (10_000,)
    assert {x.dtype for x in jax.tree.leaves(big)} == {jnp.dtype("float64"), jnp.dtype("bool")}
    counts = np.asarray(big.counts)
    assert (counts == np.floor(counts)).all()
    assert (counts >= 0).all()
    by_feature = counts.sum(-1)
    np.testing.assert_array_equal(by_feature, by_feature[..., :1] + np.zeros(3))
    np.testing.assert_array_equal(by_feature.sum(1), 50)
    np.testing.assert_allclose(np.asarray(big.class_probs).sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(big.feature_probs).sum(-1), 1, rtol=1e-12)


def test_masked_cells_are_empty(big):
    real = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
    np.testing.assert_array_equal(big.tables.mask, np.broadcast_to(real, (10_000, 3, 4)))
    for x in (big.feature_probs, big.counts, big.tables.counts):
        assert (np.asarray(x)[:, :, ~real] == 0).all()
    assert (np.asarray(big.feature_probs)[:, :, 2, 0] == 1).all()


def test_moments_of_every_stage(big):
    p, theta = np.asarray(big.class_probs), np.asarray(big.feature_probs)
    n, m = np.asarray(big.counts), np.asarray(big.tables.counts)
    # Uniform priors: E p = 1/I, E p^2 = 2 / (I (I + 1)).
    assert_near(p, 1 / 3)
    assert_near(p**2, 2 / 12)
    assert_near(theta[:, :, 1], 1 / 4)
    assert_near(theta[:, :, 1] ** 2, 2 / 20)
    # Given p, counts are multinomial: mean N p, variance N p (1 - p), and so on down.
    n_class = n[:, :, 0].sum(-1)
    assert_near(n_class - 50 * p, 0)
    assert_near((n_class - 50 * p) ** 2 - 50 * p * (1 - p), 0)
    assert_near((n_class - 50 * p)[:, 0] * (n_class - 50 * p)[:, 1] + 50 * p[:, 0] * p[:, 1], 0)
    residual = n - n_class[:, :, None, None] * theta
    assert_near(residual, 0)
    assert_near(residual**2 - n_class[:, :, None, None] * theta * (1 - theta), 0)
    # Features are independent given the class.
    assert_near(residual[:, :, 0, 0] * residual[:, :, 1, 0], 0)
    # Laplace(20) noise, independent of the counts and between cells.
    noise = (m - n)[:, :, 1]
    assert_near(noise, 0)
    assert_near(noise**2, 2 * 20.0**2)
    assert_near(np.abs(noise), 20.0)
    assert_near(noise[:, 0, 0] * residual[:, 0, 1, 0], 0)
    assert_near(noise[:, 0, 0] * noise[:, 0, 1], 0)
    assert_near(noise[1:, 0, 0] * noise[:-1, 0, 0], 0)


@pytest.mark.parametrize("shape", [(10,), (), (LANES + 1,), (5, 7), (3, 1, 2)])
def test_a_replicate_is_the_same_in_every_batch(big, shape):
    small = pnb.simulate(KEY, n_records=50, shape=shape, **RAGGED)
    assert small.tables.batch_shape == shape
    size = int(np.prod(shape, dtype=int))
    for a, b in zip(flat(small), flat(big), strict=True):
        np.testing.assert_array_equal(a, b[:size])


def test_a_new_shape_compiles_no_new_program(big):
    programs = [pnb.simulate.__globals__[n] for n in ("_parameters", "_counts", "_noisy")]
    before = [f._cache_size() for f in programs]
    pnb.simulate(
        jax.random.key(1), n_records=123, shape=(2, 11, 13), noise=pnb.Laplace(3.0), **RAGGED
    )
    assert [f._cache_size() for f in programs] == before


def test_the_lane_of_a_replicate_does_not_matter(big):
    rng = np.random.default_rng(0)
    for _ in range(5):
        ids = rng.choice(10_000, 300, replace=False).astype(np.int32)
        zero = np.zeros_like(ids)
        some = simulate_replicates(KEY, Replicate(ids, zero, zero), n_records=50, **RAGGED)
        for a, b in zip(flat(some), flat(big), strict=True):
            np.testing.assert_array_equal(a, b[ids])


def test_no_replicates():
    none = pnb.simulate(KEY, n_records=50, shape=(0,), **RAGGED)
    assert none.counts.shape == (0, 3, 3, 4)
    assert none.tables.batch_shape == (0,)
    assert none.tables.noise.scale.shape == (0,)
    assert pnb.simulate(KEY, n_records=50, shape=4, **RAGGED).counts.shape == (4, 3, 3, 4)


def test_keys_and_no_records():
    other = pnb.simulate(jax.random.key(12), n_records=0, shape=(10,), **RAGGED)
    assert (np.asarray(other.counts) == 0).all()
    assert len(np.unique(np.asarray(other.tables.counts))) > 100
    raw = pnb.simulate(jax.random.PRNGKey(12), n_records=0, shape=(10,), **RAGGED)
    assert_same_bits(other, raw)


def test_the_nested_design_shares_what_it_names():
    sim = simulate_replicates(KEY, Replicate(*np.indices((3, 4, 5))), n_records=50, **RAGGED)
    p, n, m = (np.asarray(x) for x in (sim.class_probs, sim.counts, sim.tables.counts))
    np.testing.assert_array_equal(p, p[:, :1, :1] + np.zeros_like(p))
    np.testing.assert_array_equal(n, n[:, :, :1] + np.zeros_like(n))
    assert len(np.unique(p[:, 0, 0, 0])) == 3
    assert len({row.tobytes() for row in n[:, :, 0].reshape(12, -1)}) == 12
    assert len(np.unique((m - n)[..., 0, 0, 0])) == 60
    # `simulate` draws the first data set and noise of each parameter.
    plain = pnb.simulate(KEY, n_records=50, shape=(3,), **RAGGED)
    np.testing.assert_array_equal(plain.tables.counts, m[:, 0, 0])


@pytest.mark.parametrize(
    "noise", [pnb.Geometric(4.0), pnb.Gaussian(4.0), pnb.Laplace([1.0, 5.0, 9.0])]
)
def test_any_noise(noise):
    sim = pnb.simulate(KEY, n_records=50, shape=(3000,), noise=noise, **RAGGED)
    assert type(sim.tables.noise) is type(noise)
    added = np.asarray(sim.tables.counts - sim.counts)[:, :, :, 0]  # [R, I, K]
    scale = np.broadcast_to(np.asarray(noise.value), (3,))
    if isinstance(noise, pnb.Geometric):
        assert (added == np.floor(added)).all()
        q = np.exp(-1 / scale)
        variance = 2 * q / (1 - q) ** 2
    else:
        variance = scale**2 * (1 if isinstance(noise, pnb.Gaussian) else 2)
    assert_near(added, 0)
    assert_near(added**2, np.broadcast_to(variance, (3, 3)))
    assert sim.tables.noise.value.shape == ((3000, 3) if np.ndim(noise.value) else (3000,))


def test_one_scale_a_table_is_not_taken_for_one_a_dataset():
    noise = pnb.Laplace([1e-9, 1.0, 1.0])
    sim = pnb.simulate(KEY, n_records=50, shape=(3,), noise=noise, **RAGGED)  # 3 features too
    assert sim.tables.noise.scale.shape == (3, 3)
    np.testing.assert_allclose(sim.tables.counts[:, :, 0], sim.counts[:, :, 0], atol=1e-6)


def test_a_prior_moves_the_parameters():
    class_ = np.array([8.0, 1.0, 0.02])
    feature = np.broadcast_to(np.array([0.02, 3.0, 1.0, 4.0]), (3, 3, 4))
    prior = pnb.Prior(class_, feature)
    sim = pnb.simulate(KEY, n_records=50, shape=(3000,), prior=prior, **RAGGED)
    assert_near(np.asarray(sim.class_probs), class_ / class_.sum())
    assert_near(np.asarray(sim.feature_probs)[:, :, 1], feature[:, 1] / 8.02)
    counts = np.asarray(sim.counts)
    np.testing.assert_array_equal(counts.sum((1, 3)), 50)  # also where probabilities underflow


def test_float32():
    sim = pnb.simulate(KEY, n_records=50, shape=(2000,), dtype=jnp.float32, **RAGGED)
    assert {x.dtype for x in jax.tree.leaves(sim)} == {jnp.dtype("float32"), jnp.dtype("bool")}
    counts = np.asarray(sim.counts, np.float64)
    np.testing.assert_array_equal(counts.sum((1, 3)), 50)
    assert_near(counts[:, :, 1], 50 / 12)
    few = pnb.simulate(KEY, n_records=50, shape=(10,), dtype=jnp.float32, **RAGGED)
    for a, b in zip(flat(few), flat(sim), strict=True):
        np.testing.assert_array_equal(a, b[:10])


def test_under_jit_and_vmap():
    draw = lambda k: pnb.simulate(k, n_records=50, shape=(2,), **RAGGED)  # noqa: E731
    keys = jax.random.split(KEY, 5)
    sim = jax.eval_shape(jax.jit(jax.vmap(draw)), keys)  # compiling it again is slow
    assert sim.tables.batch_shape == (5, 2)
    assert sim.counts.shape == sim.tables.counts.shape == (5, 2, 3, 3, 4)
    assert sim.tables.mask.shape == (5, 2, 3, 4)


def test_replicates_are_checked():
    good = np.zeros(3, np.int32)
    cases = [
        (Replicate(good, good, good[:2]), ValueError, r"replicates\.noise .*\(3,\), got \(2,\)"),
        (Replicate(good, good - 1, good), ValueError, r"replicates\.dataset must be >= 0, got -1"),
        (Replicate(good * 1.0, good, good), TypeError, r"replicates\.parameter .*float64"),
        ((good, good, good), TypeError, "replicates must be a Replicate"),
    ]
    for bad, error, message in cases:
        with pytest.raises(error, match=message):
            simulate_replicates(KEY, bad)
