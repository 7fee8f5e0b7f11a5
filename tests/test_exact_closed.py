"""The closed form of two cells under a flat prior equals the sums it stands for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.exact import plan
from jaxprivnb.exact.closed import Closed
from jaxprivnb.exact.dataset import dataset
from jaxprivnb.exact.fit import fit_exact, fit_path
from jaxprivnb.status import Status

# Whole and broken numbers, corners that coincide, counts below 0 and beyond N.
COUNTS = np.array(
    [
        [[4.0, 7.0], [3.3, 8.1], [-2.5, 30.2], [0.0, 0.0], [40.0, -7.0]],
        [[12.5, 12.5], [-3.0, -4.0], [11.7, 0.2], [5.0, 5.5], [1e5, -3e4]],
    ]
)


def closed_for(shape, N):
    """The closed form for a known number of records, whatever else is traced."""
    tables = pnb.NoisyTables(np.ones(shape), N, pnb.Laplace(1.0))
    return plan.choose(tables, pnb.Prior.uniform(tables), max_records=N)


def messages(tables, N):
    """(Messages, the constant of every block `[I, K]` that its weights are without)."""
    path, data = closed_for(tables.counts.shape, N), dataset(tables, pnb.Prior.uniform(tables))
    assert isinstance(path, Closed)
    constant = data.log_constants().sum(-1)
    return path, path.messages(data, None), constant


def log_c(tables, N):
    """log c_ik(n), `[I, K, W]`."""
    _, found, constant = messages(tables, N)
    return found.log_c + constant[..., None]


def direct(counts, scale, length):
    """Log c(n), E[l + 1 | n], E[(l + 1)^2 | n] term by term, in extended precision."""
    shape = (*counts.shape[:-1], length)
    out = [np.zeros(shape) for _ in range(3)]
    for index in np.ndindex(counts.shape[:-1]):
        m_1, m_2 = counts[index].astype(np.longdouble)
        b = np.longdouble(scale[index[1]])
        for n in range(length):
            l = np.arange(n + 1, dtype=np.longdouble)
            f = (np.abs(m_1 - l) + np.abs(m_2 - (n - l))) / b
            w = np.exp(f.min() - f)
            w_sum = w.sum()
            found = np.log(w_sum) - f.min(), (w * (l + 1)).sum(), (w * (l + 1) ** 2).sum()
            out[0][(*index, n)] = found[0]
            out[1][(*index, n)], out[2][(*index, n)] = found[1] / w_sum, found[2] / w_sum
    return out[0] - 2 * np.log(2 * scale)[:, None], *out[1:]


def check_against_the_sums(counts, scale, N, dtype):
    """Messages and conditional moments for n = 0..N, to the rounding of input."""
    noise = pnb.Laplace(jnp.asarray(scale, dtype))
    tables = pnb.NoisyTables(jnp.asarray(counts, dtype), N, noise)
    path, found, constant = messages(tables, N)
    window, length = found.log_c.shape[-1], N + 1  # what is beyond N is not used
    each = np.broadcast_to(np.asarray(noise.scale, np.float64), counts.shape[1])
    value, first, second = direct(np.asarray(tables.counts, np.float64), each, length)
    eps = float(np.finfo(dtype).eps)
    # m_1 + m_2 - n is rounded, and then divided by b; terms that tie share what that decides.
    blur = 4 * eps * (1 + length / each[:, None])
    got = (
        np.asarray(found.log_c[..., :length], np.float64)
        + np.asarray(constant, np.float64)[..., None]
    )
    error = np.abs(got - value)
    assert np.all(error <= 8 * eps * np.abs(value) + blur), error.max()
    one = jnp.eye(length, window, dtype=dtype)[:, None, None]  # all weight on one class count
    sums = path.pulled(found, jnp.broadcast_to(one, (length, *found.log_c.shape)))
    assert np.all(np.asarray(sums.origin) == -1)
    for x, expected in ((sums.first, first), (sums.second, second)):
        own = np.moveaxis(np.asarray(x, np.float64)[..., 0], 0, -1)
        relative = np.abs(own / expected - 1)
        assert np.all(relative <= 16 * eps + blur), relative.max()
    # The second cell's count is n - l.
    pair = np.moveaxis(np.asarray(sums.first, np.float64), 0, -1).sum(2)
    np.testing.assert_allclose(pair, np.broadcast_to(np.arange(length) + 2, pair.shape), 32 * eps)


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
    got = log_c(tables, 31)[..., 7]
    expected = direct(np.asarray(tables.counts, np.float64), np.full(4, 1e-3), 8)[0][..., 7]
    assert (expected < -400).all()
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps, atol=4e-3)


def test_the_transforms_agree_where_tables_contradict_each_other(dtype):
    rng = np.random.default_rng(5)
    counts = rng.normal(100, 80, (2, 5, 2)).astype(dtype)
    counts[0, 1] += 600  # so far that the messages would underflow in float32
    tables = pnb.NoisyTables(counts, 200, pnb.Laplace(jnp.asarray(5.0, dtype)))
    prior = pnb.Prior.uniform(tables)
    path = closed_for(counts.shape, 200)
    closed = fit_path(tables, prior, path, 1e-4)
    slow = fit_path(tables, prior, dataclasses.replace(path.questions, tilts=9), 1e-4)
    assert int(closed.status) == int(slow.status) == Status.SUCCESS
    tight = 1e-11 if dtype == jnp.float64 else 3e-5
    np.testing.assert_allclose(closed.log_evidence, slow.log_evidence, rtol=tight)
    np.testing.assert_allclose(closed.feature_mean, slow.feature_mean, atol=10 * tight)
    np.testing.assert_allclose(closed.feature_sd, slow.feature_sd, atol=100 * tight)


def test_the_evidence_has_the_gradient_of_the_transforms():
    counts, path = COUNTS[:, :4], closed_for((2, 4, 2), 31)

    def evidence(scale, shift, path):
        tables = pnb.NoisyTables(counts + shift, 31, pnb.Laplace(scale))
        return fit_path(tables, pnb.Prior.uniform(tables), path, 1e-9).log_evidence

    at = jnp.asarray(2.7), jnp.asarray(0.05)
    closed, slow = (jax.grad(evidence, (0, 1))(*at, p) for p in (path, path.questions))
    np.testing.assert_allclose(closed, slow, rtol=1e-10)
    assert np.isfinite(slow).all()


@pytest.mark.parametrize("scale", [1e-3, 0.3, 20.0, 1e6])
def test_gradients_of_the_messages_are_those_of_the_sums(scale):
    # Broken counts, whose sums tie with n, and counts outside 0..N; whole ones have no derivative.
    counts = jnp.asarray([[[3.25, 3.75], [4.3, 8.1], [-2.5, 30.2], [40.5, -7.5], [0.5, 0.25]]])

    def closed(m, b):
        return log_c(pnb.NoisyTables(m, 31, pnb.Laplace(b)), 31)

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
    def at(m_1):
        counts = jnp.stack([m_1, jnp.asarray(5.5)])[None, None]
        return log_c(pnb.NoisyTables(counts, 31, pnb.Laplace(3.0)), 31)

    where, step = jnp.asarray(end), 1e-6
    left, right = (at(where) - at(where - step)) / step, (at(where + step) - at(where)) / step
    got = jax.jacobian(at)(where)
    assert (got >= jnp.minimum(left, right) - 1e-6).all()
    assert (got <= jnp.maximum(left, right) + 1e-6).all()


def test_a_prior_that_is_not_flat_is_not_taken_for_one():
    tables = pnb.NoisyTables(COUNTS[:, :4], 31, pnb.Laplace(3.0))
    path = closed_for((2, 4, 2), 31)
    fit = fit_path(tables, pnb.Prior.symmetric(tables, 0.5), path, 1e-4)
    assert int(fit.status) == Status.LOST_MASS
    flat = pnb.Prior(np.array([0.5, 3.0]), np.ones((2, 4, 2)))  # of classes it need not be
    assert int(fit_path(tables, flat, path, 1e-4).status) == Status.SUCCESS


def test_in_bulk_a_shared_flat_prior_gives_what_single_fits_give():
    simulation = pnb.simulate(jax.random.key(2), n_records=30, noise=pnb.Laplace(4.0), shape=(5,))
    many = pnb.fit_many(
        simulation.tables, "exact", prior=pnb.Prior(jnp.ones(2), jnp.ones((2, 5, 2)))
    )
    for r in range(5):
        one = fit_exact(jax.tree.map(lambda x, r=r: x[r], simulation.tables))
        np.testing.assert_allclose(many.feature_mean[r], one.feature_mean, rtol=1e-13)
        np.testing.assert_allclose(many.feature_sd[r], one.feature_sd, rtol=1e-11)
