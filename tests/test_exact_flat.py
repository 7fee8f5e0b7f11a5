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
    """Log c(n), E[p | n], E[p^2 | n] term by term, in extended precision; `[I, K, length]`."""
    shape = (*counts.shape[:-1], length)
    out = [np.zeros(shape) for _ in range(3)]
    for index in np.ndindex(counts.shape[:-1]):
        m_1, m_2 = counts[index].astype(np.longdouble)
        b = np.longdouble(scale[index[1]])
        for n in range(length):
            l = np.arange(n + 1, dtype=np.longdouble)
            f = (np.abs(m_1 - l) + np.abs(m_2 - (n - l))) / b
            w = np.exp(f.min() - f)
            p, p_p = (l + 1) / (n + 2), (l + 1) * (l + 2) / ((n + 2) * (n + 3))
            found = np.log(w.sum()) - f.min(), (w * p).sum() / w.sum(), (w * p_p).sum() / w.sum()
            for x, value in zip(out, found, strict=True):
                x[(*index, n)] = value
    log_c, mean, square = out
    return log_c - 2 * np.log(2 * scale)[:, None], mean, square


def check_against_the_sums(counts, scale, N, dtype):
    """`flat_blocks` on the window that holds N, to within rounding of its input."""
    noise = pnb.Laplace(jnp.asarray(scale, dtype))
    tables = pnb.NoisyTables(jnp.asarray(counts, dtype), N, noise)
    length = whole(N).class_
    got = flat_blocks(tables, whole(N))
    each = np.broadcast_to(np.asarray(noise.scale, np.float64), counts.shape[1])
    log_c, mean, square = direct(np.asarray(tables.counts, np.float64), each, length)
    eps = float(np.finfo(dtype).eps)
    # m_1 + m_2 - n is rounded, and then divided by b; terms that tie share what that decides.
    blur = 4 * eps * (1 + length / each[:, None])
    error = np.abs(np.asarray(got.blocks.log_value, np.float64) - log_c)
    assert np.all(error <= 8 * eps * np.abs(log_c) + blur), error.max()
    for found, expected in ((got.mean, mean), (got.square, square)):
        relative = np.abs(np.asarray(found, np.float64) / expected - 1)
        assert np.all(relative <= 16 * eps + blur), relative.max()


@pytest.mark.parametrize(
    "scale",
    [1e-3, 0.05, 1.0, 7.3, 20_000.0, 1e9, [0.5, 2.0, 3.0, 40.0, 1000.0], [1e-3, 1, 9, 99, 1e9]],
)
def test_against_the_sums(scale, dtype):
    check_against_the_sums(COUNTS, scale, 31, dtype)


@pytest.mark.parametrize("scale", [1e-3, 0.3, 20.0, 1e9])
def test_against_the_sums_at_random(scale, dtype):
    rng = np.random.default_rng(11)
    counts = rng.uniform(-20, 80, (2, 9, 2))
    counts[:, 3:6] = np.round(counts[:, 3:6])  # whole, as geometric noise leaves them
    counts[:, 6:, 1] = np.arange(20, 26).reshape(2, 3) - counts[:, 6:, 0]  # m_1 + m_2 = n
    check_against_the_sums(counts, scale, 40, dtype)  # on a window that is longer than N


def test_nothing_underflows_where_no_term_lies_between_the_corners(dtype):
    # At n = 7 both corners are at 3.5 or so, and every term is exp(-1000) of the level or less.
    counts = np.array([[[3.5, 3.5], [3.25, 3.75], [3.4, 3.5], [3.5, 3.6]]])
    noise = pnb.Laplace(jnp.asarray(1e-3, dtype))
    tables = pnb.NoisyTables(jnp.asarray(counts, dtype), 31, noise)
    got = flat_blocks(tables, whole(31)).blocks.log_value[..., 7]
    expected = direct(np.asarray(tables.counts, np.float64), np.full(4, 1e-3), 8)[0][..., 7]
    assert (expected < -400).all()
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps, atol=4e-3)


@pytest.mark.parametrize("noise", [pnb.Laplace(1.7), pnb.Laplace([0.4, 1.0, 2.0, 30.0, 1e-3])])
def test_a_masked_cell_is_certainly_empty(noise):
    mask = np.array([[True, True], [True, False], [False, True], [True, True], [True, False]])
    counts = np.where(mask, COUNTS, np.nan)
    tables = pnb.NoisyTables(np.where(mask, COUNTS, 0), 31, noise, mask)
    got = flat_blocks(tables, whole(31))
    full = flat_blocks(pnb.NoisyTables(COUNTS, 31, noise), whole(31))
    both = mask.all(-1)
    np.testing.assert_array_equal(
        got.blocks.log_value[:, both], full.blocks.log_value[:, both], strict=True
    )
    each = np.broadcast_to(np.asarray(noise.scale), 5)[:, None]
    off = np.abs(np.nansum(counts, -1)[..., None] - np.arange(32))
    alone = -off / each - np.log(2 * each)
    np.testing.assert_allclose(got.blocks.log_value[:, ~both], alone[:, ~both], rtol=1e-13)
    assert (np.asarray(got.mean)[:, ~both] == 1).all()


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


@pytest.mark.parametrize("scale", [1e-3, 0.3, 20.0, 1e6])
def test_gradients_of_the_messages_are_those_of_the_sums(scale):
    # Broken counts, whose sums tie with n, and counts outside 0..N; whole ones have no derivative.
    counts = jnp.asarray([[[3.25, 3.75], [4.3, 8.1], [-2.5, 30.2], [40.5, -7.5], [0.5, 0.25]]])

    def closed(m, b):
        return flat_blocks(pnb.NoisyTables(m, 31, pnb.Laplace(b)), whole(31)).blocks.log_value

    def sums(m, b):
        n, l = jnp.arange(32.0)[:, None], jnp.arange(32.0)
        f = jnp.abs(m[..., 0, None, None] - l) + jnp.abs(m[..., 1, None, None] - (n - l))
        terms = jnp.where(l <= n, -f / b[:, None, None], -jnp.inf)
        return jax.scipy.special.logsumexp(terms, axis=-1) - 2 * jnp.log(2 * b)[:, None]

    b = jnp.full(5, scale)
    got, expected = (jax.jacobian(f, (0, 1))(counts, b) for f in (closed, sums))
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 / scale)


@pytest.mark.parametrize("end", [0.0, 31.0])
def test_counts_at_the_ends_of_the_window_have_gradients_between_those_of_their_sides(end):
    def log_c(m_1):
        counts = jnp.stack([m_1, jnp.asarray(5.5)])[None, None]
        return flat_blocks(pnb.NoisyTables(counts, 31, pnb.Laplace(3.0)), whole(31)).blocks[0]

    at, step = jnp.asarray(end), 1e-6
    left, right = (log_c(at) - log_c(at - step)) / step, (log_c(at + step) - log_c(at)) / step
    got = jax.jacobian(log_c)(at)
    assert (got >= jnp.minimum(left, right) - 1e-6).all()
    assert (got <= jnp.maximum(left, right) + 1e-6).all()


def test_the_growth_bounds_what_the_floors_add(dtype):
    counts = np.array([[[4.0, 7.0], [500.0, -300.0]], [[12.5, 3.0], [9.3, 8.8]]])
    noise = pnb.Laplace(jnp.asarray(0.7 if dtype == jnp.float64 else 4.0, dtype))
    tables = pnb.NoisyTables(jnp.asarray(counts, dtype), 1000, noise)
    got = flat_blocks(tables, whole(1000))
    log_c, floor = (np.asarray(x, np.float64) for x in got.blocks)
    added = np.logaddexp(0, floor[..., None] - log_c).sum(1)
    growth = np.asarray(got.log_growth)
    assert (growth >= added * (1 - 1e-5) - 4 * np.finfo(dtype).eps).all()
    assert (growth == 0).any()
    assert (growth > 0).any()
    assert (growth <= added + 2 * np.log(2 * 1024)).all()


def test_only_where_it_holds():
    tables = pnb.NoisyTables(COUNTS, 31, pnb.Laplace(3.0))
    assert is_flat(None, tables)
    assert is_flat(pnb.Prior.uniform(tables), tables)
    assert not is_flat(pnb.Prior.symmetric(tables, 0.5), tables)
    assert not is_flat(None, pnb.NoisyTables(COUNTS, 31, pnb.Gaussian(3.0)))
    assert is_flat(None, pnb.NoisyTables(np.ones((2, 2, 3)), 31, pnb.Laplace(3.0)))
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
