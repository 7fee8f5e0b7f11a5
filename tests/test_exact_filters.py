"""Filters convolve with a cell's weight, and a fit by filters is the fit by convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxprivnb as pnb
from jaxprivnb.exact import filters
from jaxprivnb.exact.evidence import class_counts, log_total, tilt, tilted
from jaxprivnb.exact.fit import fit_exact, fit_window
from jaxprivnb.exact.window import Layout, Placement, plan, whole
from jaxprivnb.status import Status

LENGTH = 96


def one_cell(m, scale):
    """A table of one cell and its kernel, all axes dropped."""
    tables = pnb.NoisyTables(np.array([[[float(m)]]]), LENGTH - 1, pnb.Laplace(float(scale)))
    return tables, jax.tree.map(lambda x: x[0, 0, 0], filters.kernels(tables, LENGTH))


def density(tables, kernel):
    """w(l) for l = 0, ..., LENGTH - 1 over the kernel's scale, by the noise itself."""
    l = np.arange(LENGTH, dtype=float)
    log_w = tables.noise.log_prob(tables.counts[0, 0, 0] - l)
    return np.exp(np.asarray(log_w - kernel.log_scale))


@settings(max_examples=60, deadline=None)
@given(st.floats(-300, 300) | st.integers(-3, LENGTH + 3), st.sampled_from([0.2, 1, 7, 90, 1e6]))
def test_weight_is_the_noises_density(m, scale):
    tables, kernel = one_cell(m, scale)
    found = filters.weight(kernel, LENGTH)
    np.testing.assert_allclose(found, density(tables, kernel), rtol=1e-11)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-300, 300) | st.integers(-3, LENGTH + 3),
    st.sampled_from([0.2, 1, 7, 90, 1e6]),
    st.integers(0, 2**32 - 1),
)
def test_smoothing_is_convolution_in_every_digit(m, scale, seed):
    """Relative errors: a Fourier transform would keep no digit of the smallest entries."""
    tables, kernel = one_cell(m, scale)
    x = np.exp(np.random.default_rng(seed).uniform(-200, 0, LENGTH))
    w = density(tables, kernel)
    expected = [np.sum(x[: n + 1] * w[n::-1]) for n in range(LENGTH)]
    np.testing.assert_allclose(filters.smooth(jnp.asarray(x), kernel), expected, rtol=1e-11)


def test_smoothing_back_is_the_transpose():
    rng = np.random.default_rng(1)
    for m, scale in ((-4.0, 3.0), (17.3, 5.0), (40.0, 0.7), (400.0, 50.0)):
        _, kernel = one_cell(m, scale)
        x, y = jnp.asarray(rng.uniform(size=(2, LENGTH)))
        forth = jnp.vdot(filters.smooth(x, kernel), y)
        back = jnp.vdot(x, filters.smooth_back(y, kernel))
        assert float(forth) == pytest.approx(float(back), rel=1e-13)


def test_a_masked_cell_changes_nothing():
    _, kernel = one_cell(12.0, 3.0)
    masked = kernel._replace(real=jnp.asarray(False))
    x = jnp.asarray(np.random.default_rng(2).uniform(size=LENGTH))
    np.testing.assert_array_equal(filters.smooth(x, masked), x)
    np.testing.assert_array_equal(filters.weight(masked, LENGTH), np.eye(LENGTH)[0])


@pytest.mark.parametrize("noise", [pnb.Laplace(1.3), pnb.Geometric(0.9)])
def test_brute_force(noise):
    mask = np.array([[True, True, False], [True, True, True]])
    rng = np.random.default_rng(3)
    counts = np.where(mask, rng.normal(2, 3, (2, 2, 3)), 0.0)
    tables = pnb.NoisyTables(counts, 6, noise, mask)
    a = np.array([0.4, 2.0])  # of classes it need not be flat
    prior = pnb.Prior(a, np.ones((2, 2, 3)))
    fit = fit_window(tables, prior, Layout(8, 8, False, filters=8), 1e-10, True)
    log_prob = lambda x: np.asarray(noise.log_prob(jnp.asarray(x)))  # noqa: E731
    brute = oracles.enumerate_posterior(counts, 6, log_prob, a, np.ones((2, 2, 3)), mask)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) == 0
    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)  # noqa: E731
    close(fit.log_evidence, brute.log_evidence)
    for got, expected in zip(
        (fit.class_mean, fit.class_sd, fit.feature_mean, fit.feature_sd),
        (*oracles.class_moments(brute), *oracles.feature_moments(brute)),
        strict=True,
    ):
        close(got, expected)
    got = np.where(mask[..., None], fit.count_pmf()[..., :7], 0)
    close(got, np.where(mask[..., None], oracles.count_pmf(brute), 0))


def uneven(scale, seed=0):
    """Tables with a masked cell, whole, negative and outlying counts; N = 60."""
    m = np.random.default_rng(seed).uniform(-10, 40, (3, 2, 4))
    m[0, 0, 0], m[1, 1, 2], m[2, 0, 1] = 7, -30.5, 100
    mask = np.ones((2, 4), bool)
    mask[1, 3] = False
    return pnb.NoisyTables(m, 60, pnb.Laplace(scale), mask=mask)


@pytest.mark.parametrize("scale", [np.array([3.0, 8.0]), np.array([0.3, 1e4])])
def test_everything_is_as_by_convolutions(scale):
    tables = uneven(scale)
    prior = pnb.Prior.uniform(tables)
    slow = fit_window(tables, prior, whole(60), 1e-9)
    fast = fit_window(tables, prior, Layout(64, 64, False, filters=64), 1e-9, True)
    close = lambda a, b, atol=1e-11: np.testing.assert_allclose(a, b, rtol=0, atol=atol)  # noqa: E731
    close(fast.log_evidence, slow.log_evidence)
    jax.tree.map(close, fast.moments, slow.moments)
    close(fast.class_count_pmf, slow.class_count_pmf)
    close(fast.count_pmf()[..., :61], slow.count_pmf()[..., :61])
    for a, b in zip(fast.feature_interval(0.9), slow.feature_interval(0.9), strict=True):
        close(a, b)
    x = np.random.default_rng(4).integers(-1, 3, (20, 2))
    close(fast.predict_proba(x), slow.predict_proba(x))
    key = jax.random.key(5)
    np.testing.assert_array_equal(fast.sample_tables(key, 50), slow.sample_tables(key, 50))


def test_float32():
    tables = uneven(5.0)
    expected = fit_window(tables, pnb.Prior.uniform(tables), whole(60), 1e-9)
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == float else x, tables)
    layout = Layout(64, 64, False, filters=64)
    fit = fit_window(single, pnb.Prior.uniform(single), layout, 1e-4, True)
    assert fit.feature_mean.dtype == jnp.float32
    np.testing.assert_allclose(fit.feature_mean, expected.feature_mean, atol=2e-6)
    np.testing.assert_allclose(fit.feature_sd, expected.feature_sd, atol=1e-5)


def test_short_class_windows_say_what_they_lose():
    sim = pnb.simulate(
        jax.random.key(6), n_records=200, n_categories=(3,) * 4, noise=pnb.Laplace(4.0)
    )
    prior = pnb.Prior.uniform(sim.tables)
    everything = fit_window(sim.tables, prior, whole(200), 1e-9).log_evidence
    lost = []
    for length in (24, 40, 64, 208):
        fit = fit_window(sim.tables, prior, Layout(224, length, False, filters=224), 1e-9, True)
        truly = -np.expm1(float(fit.log_evidence - everything))
        assert truly <= float(fit.lost_mass) + 1e-12
        lost.append(float(fit.lost_mass))
    assert lost[0] > 1e-3
    assert lost[-1] < 1e-12
    assert lost == sorted(lost, reverse=True)


def test_classes_that_contradict_n():
    """Totals 4,000 nats from N: scaled numbers would underflow without a tilt."""
    sim = pnb.simulate(
        jax.random.key(7), n_records=200, n_classes=3, n_categories=(3,) * 8, noise=pnb.Laplace(1.0)
    )
    off = np.asarray(sim.tables.counts) + 60.0
    tables = pnb.NoisyTables(off, 200, pnb.Laplace(1.0))
    prior = pnb.Prior.uniform(tables)
    slow = fit_window(tables, prior, whole(200, log_space=True), 1e-9)
    fast = fit_window(tables, prior, Layout(224, 224, False, filters=224), 1e-9, True)
    assert int(fast.status) == Status.SUCCESS
    np.testing.assert_allclose(fast.log_evidence, slow.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(fast.class_mean, slow.class_mean, atol=1e-10)
    np.testing.assert_allclose(fast.feature_mean, slow.feature_mean, atol=1e-10)


def test_tilt_changes_no_total_and_moves_the_modes():
    rng = np.random.default_rng(8)
    layout, N = Layout(40, 40, False, filters=40), jnp.asarray(30.0)
    place = Placement(jnp.zeros((3, 1, 1), jnp.int32), jnp.asarray([0, 3, 5], jnp.int32))
    n = np.asarray(class_counts(place, layout, jnp.dtype(float)))
    log_h = jnp.asarray(-0.5 * np.square(n - np.array([[25.0], [14], [22]])) + rng.normal(size=()))
    theta = tilt(log_h, place, layout, N)
    assert float(theta) < -5
    modes = np.argmax(np.asarray(tilted(log_h, theta, place, layout)), -1) + np.array([0, 3, 5])
    assert abs(modes.sum() - 30) <= 3
    plainly = log_total(log_h, place, Layout(40, 40, False), N)
    np.testing.assert_allclose(log_total(log_h, place, layout, N), plainly, rtol=1e-13)


def large(noise, n_categories=(5,) * 4, shape=()):
    return pnb.simulate(
        jax.random.key(9), n_records=3000, n_categories=n_categories, noise=noise, shape=shape
    ).tables


def test_plan_filters_where_it_can_and_pays():
    tables = large(pnb.Laplace(60.0))
    assert plan(tables, flat=True).filters == 3072
    assert plan(tables).filters == 0
    assert plan(large(pnb.Laplace(0.5)), flat=True).filters == 0
    assert fit_exact(tables, pnb.Prior.uniform(tables)).layout.filters == 3072
    with pytest.raises(ValueError, match="filters are for windows"):
        Layout(64, 64, True, filters=64)


def test_a_large_fit_is_that_of_windows():
    tables = large(pnb.Laplace(12.0), (3, 4))
    prior = pnb.Prior.uniform(tables)
    layout = plan(tables)
    assert not layout.whole
    slow = fit_window(tables, prior, layout, 1e-9)
    fast = fit_window(tables, prior, Layout(layout.cell, 512, False, filters=3072), 1e-9, True)
    for fit in (slow, fast):
        assert int(fit.status) == Status.SUCCESS
    np.testing.assert_allclose(fast.log_evidence, slow.log_evidence, rtol=1e-11)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8), fast.moments, slow.moments
    )


def test_evidence_is_differentiable_in_noise_and_counts():
    """With a count of exactly 0, where it meets the edge of the range."""
    counts = np.asarray(uneven(5.0).counts).copy()
    counts[0, 0, 0] = 0

    def evidence(counts, scale, layout):
        tables = pnb.NoisyTables(counts, 60, pnb.Laplace(scale))
        return fit_window(tables, pnb.Prior.uniform(tables), layout, 1e-9, True).log_evidence

    slow, fast = (
        jax.grad(evidence, argnums=(0, 1))(jnp.asarray(counts), jnp.asarray(5.0), layout)
        for layout in (whole(60), Layout(64, 64, False, filters=64))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), fast, slow)


@pytest.mark.parametrize(("J", "dtype"), [(64, "float64"), (14, "float32")])
def test_many_categories_lose_nothing(J, dtype):
    """The floor of underflow must not grow with every cell, nor count far from the mode."""
    sim = pnb.simulate(
        jax.random.key(10), n_records=600, n_categories=(J,) * 2, noise=pnb.Laplace(2.0),
        dtype=jnp.dtype(dtype),
    )  # fmt: skip
    layout = Layout(640, 512, False, filters=640)
    fit = fit_window(sim.tables, pnb.Prior.uniform(sim.tables), layout, 1e-4, True)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) < 1e-6


def test_a_range_that_does_not_hold_n_loses_everything():
    tables = pnb.NoisyTables(np.full((2, 2, 5), 300.0), 3000, pnb.Laplace(20.0))
    prior = pnb.Prior.uniform(tables)
    fit = fit_window(tables, prior, Layout(1536, 1536, False, filters=1536), 1e-9, True)
    assert int(fit.status) == Status.LOST_MASS
    assert float(fit.lost_mass) == 1


def test_a_batch_changes_none_of_its_fits():
    tables = large(pnb.Laplace(60.0), (3, 3), shape=(3,))
    many = pnb.fit_many(tables, "exact")
    assert many.layout.filters == 3072
    few = pnb.fit_many(jax.tree.map(lambda x: x[1:], tables), "exact")
    np.testing.assert_array_equal(few.feature_mean, many.feature_mean[1:])
    alone = fit_exact(jax.tree.map(lambda x: x[2], tables))
    np.testing.assert_allclose(alone.feature_mean, many.feature_mean[2], rtol=1e-11)
