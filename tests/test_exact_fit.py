"""The exact posterior equals brute force, and holds at the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import NOISES, SHAPES, problem
from reference import Reference

import jaxprivnb as pnb
from jaxprivnb._pytree import with_fields
from jaxprivnb.exact.fit import fit_exact
from jaxprivnb.status import Status


@pytest.mark.parametrize(
    ("shape", "noise"),
    [(SHAPES[i], NOISES[j]) for i, j in ((0, 0), (1, 0), (2, 0), (0, 1), (1, 2))],
)
def test_brute_force(shape, noise):
    tables, prior, args = problem(shape, noise)
    fit = fit_exact(tables, prior)
    brute = oracles.enumerate_posterior(*args)
    N, mask = shape[2], args[-1]
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) < 1e-12
    close = lambda got, expected: np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)  # noqa: E731
    close(fit.log_evidence, brute.log_evidence)
    class_mean, class_sd = oracles.class_moments(brute)
    feature_mean, feature_sd = oracles.feature_moments(brute)
    close(fit.class_mean, class_mean)
    close(fit.class_sd, class_sd)
    close(fit.feature_mean, feature_mean)
    close(fit.feature_sd, feature_sd)
    close(fit.class_count_pmf[:, : N + 1], oracles.class_count_pmf(brute))
    got = np.where(mask[..., None], fit.count_pmf()[..., : N + 1], 0)
    close(got, np.where(mask[..., None], oracles.count_pmf(brute), 0))


def against_reference(tables, prior, tolerance=1e-8):
    slow = Reference.of(tables, prior)
    fit = fit_exact(tables, prior)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.log_evidence) == pytest.approx(slow.log_evidence, rel=1e-12, abs=tolerance)
    np.testing.assert_allclose(fit.class_mean, slow.class_mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(fit.feature_mean, slow.feature_mean, rtol=0, atol=tolerance)
    return fit


@pytest.mark.parametrize("disagreement", [50, 300])
def test_tables_that_contradict_each_other(disagreement):
    rng = np.random.default_rng(1)
    b = 0.25
    counts = rng.laplace(15, b, (2, 4, 2))
    counts[0, 0] += disagreement * b / 2  # class 0 is larger in one table, smaller in another
    counts[0, 1] -= disagreement * b / 2
    tables = pnb.NoisyTables(counts, 60, pnb.Laplace(b))
    against_reference(tables, pnb.Prior.uniform(tables))


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 10.0])
def test_scales_of_noise(epsilon):
    noise = pnb.Laplace(2 / epsilon)
    sim = pnb.simulate(jax.random.key(2), n_records=60, n_categories=(2,) * 4, noise=noise)
    prior = pnb.Prior.symmetric(sim.tables, 0.5)
    against_reference(sim.tables, prior)


def test_without_information_the_posterior_is_the_prior():
    noise = pnb.Laplace(1e9)
    sim = pnb.simulate(jax.random.key(3), n_records=50, n_categories=(2,) * 4, noise=noise)
    prior = pnb.Prior(jnp.asarray([1.0, 3.0]), jnp.broadcast_to(jnp.asarray([2.0, 0.5]), (2, 4, 2)))
    fit = fit_exact(sim.tables, prior)
    np.testing.assert_allclose(fit.class_mean, [0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(fit.feature_mean[..., 0], 0.8, atol=1e-6)
    np.testing.assert_allclose(fit.class_sd, np.sqrt(0.25 * 0.75 / 5), atol=1e-6)


@pytest.mark.slow
def test_many_categories():
    sim = pnb.simulate(
        jax.random.key(4), n_records=60, n_categories=(50, 3), noise=pnb.Laplace(2.0)
    )
    against_reference(sim.tables, pnb.Prior.uniform(sim.tables))


def test_no_records_and_empty_classes():
    counts = np.array([[[1.0, -2.0], [0.5, 0.5]], [[0.0, 3.0], [1.0, -1.0]]])
    tables = pnb.NoisyTables(counts, 0, pnb.Laplace(2.0))
    fit = fit_exact(tables)
    np.testing.assert_allclose(fit.class_mean, 0.5, atol=1e-14)
    np.testing.assert_allclose(fit.feature_mean, 0.5, atol=1e-14)
    log_prob = float(pnb.Laplace(2.0).log_prob(jnp.asarray(counts)).sum())
    assert float(fit.log_evidence) == pytest.approx(log_prob, abs=1e-12)
    counts[0] = -40.0  # surely empty
    counts[1] = 10.0
    fit = fit_exact(pnb.NoisyTables(counts, 20, pnb.Laplace(1.0)))
    assert float(fit.class_count_pmf[0, 0]) > 0.9
    np.testing.assert_allclose(fit.feature_mean[0], 0.5, atol=1e-2)


@pytest.mark.slow
def test_many_tables_and_classes():
    sim = pnb.simulate(
        jax.random.key(5),
        n_records=1257,
        n_classes=10,
        n_categories=(2,) * 64,
        noise=pnb.Laplace.from_budget(epsilon_total=16.0, n_tables=64),
    )
    fit = fit_exact(sim.tables)
    assert int(fit.status) == Status.SUCCESS
    assert float(fit.lost_mass) <= 1e-9
    np.testing.assert_allclose(fit.feature_mean.sum(-1), 1, atol=1e-10)
    np.testing.assert_allclose(fit.class_mean.sum(), 1, atol=1e-10)


def test_windows_equal_the_whole():
    sim = pnb.simulate(
        jax.random.key(6), n_records=2000, n_categories=(2, 3), noise=pnb.Laplace(4.0)
    )
    prior = pnb.Prior.symmetric(sim.tables, 0.7)
    windowed = fit_exact(sim.tables, prior)
    assert not windowed.path.whole
    assert windowed.path.window < 600
    complete = fit_exact(sim.tables, prior, max_records=2000)
    assert complete.path.whole
    assert float(windowed.lost_mass) <= 1e-9
    np.testing.assert_allclose(windowed.log_evidence, complete.log_evidence, atol=1e-9)
    for name in ("class_mean", "class_sd", "feature_mean", "feature_sd"):
        np.testing.assert_allclose(
            getattr(windowed, name), getattr(complete, name), rtol=0, atol=1e-9
        )
    for got, expected in zip(
        windowed.class_interval(0.9), complete.class_interval(0.9), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)


def test_float32_follows_float64():
    noise = pnb.Laplace(4.0)
    sim = pnb.simulate(
        jax.random.key(7), n_records=60, n_categories=(2, 2), noise=noise, shape=(4,)
    )
    wide = jax.vmap(fit_exact)(sim.tables)
    narrow = jax.vmap(fit_exact)(jax.tree.map(lambda x: x.astype(jnp.float32), sim.tables))
    assert narrow.feature_mean.dtype == jnp.float32
    assert np.all(np.asarray(narrow.status) == Status.SUCCESS)
    np.testing.assert_allclose(narrow.feature_mean, wide.feature_mean, atol=1e-3)
    np.testing.assert_allclose(narrow.class_mean, wide.class_mean, atol=1e-3)
    lower, _ = wide.feature_interval(0.95)
    np.testing.assert_allclose(narrow.feature_interval(0.95)[0], lower, atol=1e-3)


def test_float32_holds_where_tables_contradict_each_other():
    counts = np.full((2, 2, 2), 20.0, np.float32)
    counts[0, 0] += 40
    counts[0, 1] -= 20
    tables = pnb.NoisyTables(counts, 80, pnb.Laplace(np.float32(0.25)))
    fit = fit_exact(tables)
    assert int(fit.status) == Status.SUCCESS
    wide = fit_exact(jax.tree.map(lambda x: x.astype(jnp.float64), tables))
    np.testing.assert_allclose(fit.feature_mean, wide.feature_mean, atol=1e-3)
    single = pnb.Prior.symmetric(tables, 0.5)
    fit = fit_exact(tables, single)
    assert int(fit.status) == Status.SUCCESS
    double = jax.tree.map(lambda x: x.astype(jnp.float64), (tables, single))
    np.testing.assert_allclose(fit.feature_mean, fit_exact(*double).feature_mean, atol=1e-3)


def test_classes_that_contradict_n():
    """Totals 4,000 nats from N: scaled numbers would underflow without a tilt."""
    sim = pnb.simulate(
        jax.random.key(7), n_records=200, n_classes=3, n_categories=(3,) * 8, noise=pnb.Laplace(1.0)
    )
    tables = pnb.NoisyTables(np.asarray(sim.tables.counts) + 60.0, 200, pnb.Laplace(1.0))
    against_reference(tables, pnb.Prior.uniform(tables))


def test_a_batch_changes_none_of_its_fits():
    tables = pnb.simulate(
        jax.random.key(9), n_records=3000, n_categories=(3, 3), noise=pnb.Laplace(60.0), shape=(3,)
    ).tables
    many = pnb.fit_many(tables, "exact")
    few = pnb.fit_many(jax.tree.map(lambda x: x[1:], tables), "exact")
    np.testing.assert_array_equal(few.feature_mean, many.feature_mean[1:])
    alone = fit_exact(jax.tree.map(lambda x: x[2], tables))
    np.testing.assert_allclose(alone.feature_mean, many.feature_mean[2], rtol=1e-11)


@pytest.mark.parametrize("sizes", [(3, 4), (2, 3)])
def test_evidence_is_differentiable_in_counts(sizes):
    """With a count of exactly 0, where it meets the edge of the range."""
    rng = np.random.default_rng(5)
    mask = np.arange(max(sizes)) < np.array(sizes)[:, None]
    counts = np.where(mask, rng.uniform(-10, 40, (2, *mask.shape)), 0)
    counts[0, 0, 0] = 0

    def evidence(counts):
        tables = pnb.NoisyTables(counts, 60, pnb.Gaussian(5.0), mask)
        return fit_exact(tables, pnb.Prior.symmetric(tables, 0.7), max_records=60).log_evidence

    slope = jax.grad(evidence)(jnp.asarray(counts))
    assert np.all(np.asarray(slope)[:, ~mask] == 0)
    step = 1e-5
    for at in ((0, 0, 0), (1, 0, 1), (1, 1, 2)):
        up, down = (float(evidence(jnp.asarray(counts).at[at].add(d))) for d in (step, -step))
        assert float(slope[at]) == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-7)


def test_batches_jit_and_bad_neighbours():
    sim = pnb.simulate(jax.random.key(8), n_records=40, n_categories=(2, 2), shape=(4,))
    good = jax.vmap(fit_exact)(sim.tables)
    single = fit_exact(jax.tree.map(lambda x: x[1], sim.tables))
    np.testing.assert_allclose(good.feature_mean[1], single.feature_mean, atol=1e-13)
    spoiled = with_fields(sim.tables, counts=sim.tables.counts.at[2, 0, 0, 0].set(jnp.nan))
    bad = jax.vmap(fit_exact)(spoiled)
    np.testing.assert_array_equal(bad.status, [0, 0, Status.BAD_INPUT, 0])
    others = np.array([0, 1, 3])
    np.testing.assert_array_equal(bad.feature_mean[others], good.feature_mean[others])
    np.testing.assert_array_equal(bad.log_evidence[others], good.log_evidence[others])
    assert np.all(np.isnan(bad.feature_mean[2]))
    lower, upper = (np.asarray(x) for x in bad.feature_interval(0.5))
    good_lower, good_upper = good.feature_interval(0.5)
    np.testing.assert_array_equal(lower[others], good_lower[others])
    np.testing.assert_array_equal(upper[others], good_upper[others])

    one = jax.tree.map(lambda x: x[1], sim.tables)
    inside = jax.jit(lambda t: fit_exact(t, max_records=40).feature_mean)(one)
    np.testing.assert_allclose(inside, single.feature_mean, atol=1e-13)
    short = jax.jit(lambda t: fit_exact(t, max_records=30).status)
    wide = pnb.NoisyTables(one.counts, 100, one.noise)
    assert int(short(wide)) == Status.LOST_MASS


def test_one_class_and_one_category():
    counts = np.array([[[4.2, 0.0], [1.0, 3.0]]])
    mask = np.array([[True, False], [True, True]])
    fit = fit_exact(pnb.NoisyTables(counts, 5, pnb.Laplace(1.0), mask))
    np.testing.assert_allclose(fit.class_mean, [1.0], atol=1e-14)
    np.testing.assert_array_equal(fit.class_sd, [0.0])
    np.testing.assert_allclose(fit.feature_mean[0, 0], [1.0, 0.0], atol=1e-14)
    lower, upper = fit.feature_interval(0.9)
    np.testing.assert_array_equal(lower[0, 0], [1.0, 0.0])
    np.testing.assert_array_equal(upper[0, 0], [1.0, 0.0])
    np.testing.assert_array_equal(fit.class_interval(0.9)[0], [1.0])


def test_bad_arguments_are_named():
    tables = pnb.NoisyTables(np.ones((2, 2, 2)), 4, pnb.Laplace(1.0))
    with pytest.raises(ValueError, match="tolerance"):
        fit_exact(tables, tolerance=0.0)
    with pytest.raises(TypeError, match="max_records"):
        fit_exact(tables, max_records=3.5)
    with pytest.raises(ValueError, match=r"prior\.class_"):
        fit_exact(tables, pnb.Prior(np.ones(3), np.ones((3, 2, 2))))
