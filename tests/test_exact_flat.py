"""The closed form of two cells under a flat prior equals the sums it stands for."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import jaxprivnb as pnb
from jaxprivnb.exact import window
from jaxprivnb.exact.evidence import blocks, log_evidence, log_weights
from jaxprivnb.exact.fit import fit_exact, fit_window, is_flat
from jaxprivnb.exact.flat import flat_blocks
from jaxprivnb.exact.window import whole

# Whole and broken numbers, corners that coincide, counts below 0 and beyond N.
COUNTS = np.array(
    [
        [[4.0, 7.0], [3.3, 8.1], [-2.5, 30.2], [0.0, 0.0], [40.0, -7.0]],
        [[12.5, 12.5], [-3.0, -4.0], [11.7, 0.2], [5.0, 5.5], [1e5, -3e4]],
    ]
)


def direct(counts, scale, length):
    """Log c(n), E[l | n], E[l^2 | n] term by term, in extended precision; `[I, K, length]`."""
    shape = (*counts.shape[:-1], length)
    out = [np.zeros(shape) for _ in range(3)]
    for index in np.ndindex(counts.shape[:-1]):
        m_1, m_2 = counts[index].astype(np.longdouble)
        for n in range(length):
            l = np.arange(n + 1, dtype=np.longdouble)
            f = (np.abs(m_1 - l) + np.abs(m_2 - (n - l))) / scale[index[1]]
            w = np.exp(f.min() - f)
            found = np.log(w.sum()) - f.min(), (w * l).sum() / w.sum(), (w * l * l).sum() / w.sum()
            for x, value in zip(out, found, strict=True):
                x[(*index, n)] = value
    return out


@pytest.mark.parametrize("scale", [0.05, 1.0, 7.3, 20_000.0, [0.5, 2.0, 3.0, 40.0, 1000.0]])
def test_against_the_sums(scale, dtype):
    noise = pnb.Laplace(jnp.asarray(scale, dtype))
    tables = pnb.NoisyTables(jnp.asarray(COUNTS, dtype), 31, noise)
    got = flat_blocks(tables, whole(31))
    each = np.broadcast_to(np.asarray(noise.scale, np.float64), 5)
    log_c, mean, square = direct(np.asarray(tables.counts, np.float64), each, 32)
    log_c = log_c - 2 * np.log(2 * each)[:, None]
    tight = {"rtol": 1e-13, "atol": 1e-12} if dtype == jnp.float64 else {"rtol": 2e-5, "atol": 1e-4}
    np.testing.assert_allclose(got.blocks.log_value, log_c, **tight)
    # Where terms of different l tie to rounding, moments feel the rounding of m / b.
    blur = np.finfo(dtype).eps * np.abs(COUNTS).max(-1)[..., None] / each[:, None]
    np.testing.assert_allclose(got.mean, mean, rtol=tight["rtol"], atol=40 * blur.max() + 1e-4)
    close = np.broadcast_to(blur < 1e-3 * tight["rtol"] ** 0.5, mean.shape)
    assert close.any()
    loose = {"rtol": 10 * tight["rtol"], "atol": 10 * tight["atol"]}
    np.testing.assert_allclose(np.asarray(got.mean)[close], mean[close], **loose)
    np.testing.assert_allclose(np.asarray(got.square)[close], square[close], **loose)


@pytest.mark.parametrize("noise", [pnb.Laplace(1.3), pnb.Geometric(0.9), pnb.Laplace([0.7, 2.5])])
@pytest.mark.parametrize("sizes", [(2, 2), (1, 2), (2, 1)])
def test_brute_force(noise, sizes):
    rng = np.random.default_rng(3)
    mask = np.arange(2) < np.array(sizes)[:, None]
    counts = np.where(mask, np.round(rng.normal(1, 3, (3, 2, 2)), 1), 0)
    if isinstance(noise, pnb.Geometric):
        counts = np.round(counts)
    N, a, alpha = 4, np.array([0.5, 1.0, 2.0]), np.ones((3, 2, 2))
    tables, prior = pnb.NoisyTables(counts, N, noise, mask), pnb.Prior(a, alpha)
    assert is_flat(prior, tables)
    each = jax.tree.map(lambda s: s[:, None] if s.ndim else s, noise)
    log_prob = lambda x: np.asarray(each.log_prob(jnp.asarray(x)))  # noqa: E731
    brute = oracles.enumerate_posterior(counts, N, log_prob, a, alpha, mask)
    fit = fit_exact(tables, prior)
    feature_mean, feature_sd = oracles.feature_moments(brute)
    for got, expected in (
        (fit.log_evidence, brute.log_evidence),
        (fit.class_count_pmf[:, : N + 1], oracles.class_count_pmf(brute)),
        (fit.feature_mean, feature_mean),
        (fit.feature_sd, feature_sd),
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    assert float(fit.lost_mass) == 0


def test_the_convolutions_agree_where_tables_contradict_each_other(dtype):
    rng = np.random.default_rng(5)
    counts = rng.normal(100, 80, (2, 5, 2)).astype(dtype)
    counts[0, 1] += 600  # so far that the messages would underflow in float32
    tables = pnb.NoisyTables(counts, 200, pnb.Laplace(jnp.asarray(5.0, dtype)))
    prior = pnb.Prior.uniform(tables)
    closed = fit_window(tables, prior, whole(200), 1e-4, flat=True)
    slow = fit_window(tables, prior, whole(200, log_space=True), 1e-4)
    tight = 1e-11 if dtype == jnp.float64 else 3e-5
    np.testing.assert_allclose(closed.log_evidence, slow.log_evidence, rtol=tight)
    np.testing.assert_allclose(closed.feature_mean, slow.feature_mean, atol=10 * tight)
    np.testing.assert_allclose(closed.feature_sd, slow.feature_sd, atol=100 * tight)


def test_the_floor_is_that_of_the_convolutions(dtype):
    mask = np.array([[True, True]] * 4 + [[True, False]])
    tables = pnb.NoisyTables(
        jnp.asarray(COUNTS, dtype), 31, pnb.Laplace(jnp.asarray(2.0, dtype)), mask
    )
    place = window.place(tables, whole(31))
    log_w = log_weights(tables, pnb.Prior.uniform(tables), place, whole(31))
    expected = blocks(log_w, place, whole(31)).log_floor
    got = flat_blocks(tables, whole(31)).blocks.log_floor
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    in_logs = flat_blocks(tables, whole(31, log_space=True)).blocks.log_floor
    assert np.isneginf(in_logs).all()


def test_the_evidence_has_the_gradient_of_the_convolutions():
    counts = COUNTS[:, :4]

    def release(scale, shift):
        return pnb.NoisyTables(counts + shift, 31, pnb.Laplace(scale))

    closed = lambda s, d: fit_exact(release(s, d), max_records=31).log_evidence  # noqa: E731

    def slow(s, d):
        tables = release(s, d)
        place = window.place(tables, whole(31))
        return log_evidence(tables, pnb.Prior.uniform(tables), place, whole(31))

    at = jnp.asarray(2.7), jnp.asarray(0.05)
    expected = jax.grad(slow, (0, 1))(*at)
    np.testing.assert_allclose(jax.grad(closed, (0, 1))(*at), expected, rtol=1e-10)
    assert np.isfinite(expected).all()


def test_only_where_it_holds():
    tables = pnb.NoisyTables(COUNTS, 31, pnb.Laplace(3.0))
    assert is_flat(None, tables)
    assert is_flat(pnb.Prior.uniform(tables), tables)
    assert not is_flat(pnb.Prior.symmetric(tables, 0.5), tables)
    assert not is_flat(None, pnb.NoisyTables(COUNTS, 31, pnb.Gaussian(3.0)))
    assert not is_flat(None, pnb.NoisyTables(np.ones((2, 2, 3)), 31, pnb.Laplace(3.0)))
    traced = []
    jax.jit(lambda a: traced.append(is_flat(pnb.Prior(a[:, 0, 0], a), tables)))(jnp.ones((2, 5, 2)))
    assert traced == [False]


def test_in_bulk_a_shared_flat_prior_gives_what_single_fits_give():
    simulation = pnb.simulate(jax.random.key(2), n_records=30, noise=pnb.Laplace(4.0), shape=(5,))
    many = pnb.fit_many(
        simulation.tables, "exact", prior=pnb.Prior(jnp.ones(2), jnp.ones((2, 5, 2)))
    )
    for r in range(5):
        one = fit_exact(jax.tree.map(lambda x, r=r: x[r], simulation.tables))
        np.testing.assert_allclose(many.feature_mean[r], one.feature_mean, rtol=1e-13)
        np.testing.assert_allclose(many.feature_sd[r], one.feature_sd, rtol=1e-11)
