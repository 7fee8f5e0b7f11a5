"""The prior that a release asks for: the maximum of the evidence, or else the uniform one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import NOISES, SHAPES, problem
from scipy.optimize import minimize

import jaxprivnb as pnb
from jaxprivnb.exact import fit, learn
from jaxprivnb.exact.fit import fit_exact

TABLES, _, (COUNTS, N, LOG_PROB, *_, MASK) = problem(SHAPES[0], NOISES[0], seed=3)


def symmetric(t, tables=TABLES):
    """The prior of logs of concentrations, class first."""
    a = np.exp(np.asarray(t))
    shape = tables.counts.shape
    return pnb.Prior(np.full(shape[0], a[0]), np.broadcast_to(a[1:, None], shape))


def less_hyperprior(value, t):
    return value - 0.5 * np.square(np.asarray(t) / learn.SPREAD).sum()


def logs_of(posterior):
    of_class, of_feature = posterior.concentrations
    return np.log([of_class, *of_feature])


@pytest.fixture(scope="module")
def learned():
    return fit_exact(TABLES, "learned")


def test_it_is_the_maximum_by_brute_force(learned):
    def loss(t):
        prior = symmetric(t)
        value = oracles.log_evidence(COUNTS, N, LOG_PROB, prior.class_, prior.feature, MASK)
        return -less_hyperprior(value, t)

    best = minimize(loss, np.zeros(3), options={"gtol": 1e-7})
    assert np.abs(best.x).max() > 0.1  # else the uniform prior would do
    np.testing.assert_allclose(logs_of(learned), best.x, atol=2e-5)
    assert learned.status == learned.prior_status == pnb.Status.SUCCESS
    again = fit_exact(TABLES, learned.prior)
    assert float(again.log_evidence) == pytest.approx(float(learned.log_evidence), rel=1e-12)
    np.testing.assert_allclose(again.feature_mean, learned.feature_mean, atol=1e-12)
    assert again.prior_status is None
    assert again.concentrations is None


def test_value_slope_and_curvature_by_differences():
    """Q's curvature is one of known counts: with hardly any noise it is the evidence's own."""
    quiet = pnb.NoisyTables(np.round(COUNTS), N, pnb.Laplace(0.02), MASK)
    whole = np.array([[[2.0, 1, 0], [0, 2, 1]], [[0, 3, 0], [1, 1, 1]]])
    quiet = dataclasses.replace(quiet, counts=jnp.asarray(whole))
    t = np.array([0.3, -0.6, 0.9])
    for tables, curved in ((TABLES, False), (quiet, True)):
        path = dataclasses.replace(fit_exact(tables, symmetric(t)).path.questions, flat=False)
        look = lambda t, x=tables, p=path: learn._look(x, symmetric(t), p, None, jnp.asarray(t))  # noqa: E731
        value, slope, most = look(t)
        exact = fit_exact(tables, symmetric(t)).log_evidence
        assert float(value) == pytest.approx(less_hyperprior(float(exact), t), abs=1e-9)
        for k in range(3):
            step = 1e-4 * np.eye(3)[k]
            (up, more, _), (down, less, _) = look(t + step), look(t - step)
            assert float(slope[k]) == pytest.approx(float(up - down) / 2e-4, abs=1e-6)
            own = float(less[k] - more[k]) / 2e-4
            assert own <= float(most[k]) + 1e-6
            if curved:
                assert own == pytest.approx(float(most[k]), abs=1e-4)


def test_what_others_publish_has_a_maximum_too():
    """No N, two releases, one of them rounded: no slope is left in the evidence of `fit_exact`."""
    hidden = dataclasses.replace(TABLES, n_records=None)
    rounded = pnb.processed(np.round(COUNTS / 2) * 2, None, NOISES[0], grid=2.0, mask=MASK)
    both = pnb.combine(hidden, rounded)
    found = fit_exact(both, "learned")
    assert found.prior_status == pnb.Status.SUCCESS
    t = logs_of(found)
    value = lambda t: less_hyperprior(float(fit_exact(both, symmetric(t)).log_evidence), t)  # noqa: E731
    for step in 1e-4 * np.eye(3):
        assert abs(value(t + step) - value(t - step)) / 2e-4 < 1e-4
        assert value(t) > max(value(t + 3e3 * step), value(t - 3e3 * step))


def sparse(size=3, seed=5):
    """Tables of categories that hardly occur, and P(X | Y) behind them."""
    shape = (2, 3, 8)
    prior = pnb.Prior(jnp.full(2, 3.0), jnp.full(shape, 0.1))
    return pnb.simulate(
        jax.random.key(seed),
        n_records=300,
        n_categories=(8,) * 3,
        noise=pnb.Laplace(6.0),
        shape=(size,),
        prior=prior,
    )


def test_sparse_tables_are_found_sparse_and_predicted_better_alone_and_in_a_batch():
    made = sparse()
    tables = made.tables
    spoiled = pnb.NoisyTables(
        tables.counts.at[1, 0, 0, 0].set(jnp.nan), tables.n_records, tables.noise
    )
    many = pnb.fit_many(spoiled, "exact", prior="learned", progress=False)
    assert many.status.tolist() == many.prior_status.tolist() == [0, pnb.Status.BAD_INPUT, 0]
    assert "prior learned: 2 SUCCESS, 1 BAD_INPUT" in repr(many)
    own = (np.asarray(many.concentrations[1])[[0, 2]],)
    assert np.all(own[0] < 0.5)
    flat = pnb.fit_many(tables, "exact", progress=False)
    truth = np.asarray(made.feature_probs)

    def loss(posterior, r):
        return -(truth[r] * np.log(np.asarray(posterior.feature_mean[r]))).sum()

    for r in (0, 2):
        assert loss(many, r) < loss(flat, r) - 0.1
    one = jax.tree.map(lambda x: x[2], tables)
    alone = fit_exact(one, "learned")
    np.testing.assert_allclose(alone.feature_mean, many.feature_mean[2], atol=1e-7)
    assert alone.prior_status == 0


def test_under_jit_in_float32_and_without_a_derivative(learned):
    narrow = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, TABLES)
    found = jax.jit(lambda x: fit_exact(x, "learned", max_records=N))(narrow)
    assert found.prior_status == found.status == pnb.Status.SUCCESS
    assert found.prior.feature.dtype == jnp.float32
    np.testing.assert_allclose(logs_of(found), logs_of(learned), atol=0.02)

    def evidence(counts):
        tables = pnb.NoisyTables(counts, N, NOISES[0], MASK)
        return fit_exact(tables, "learned", max_records=N).log_evidence

    with pytest.raises(TypeError, match="learned prior has no derivative"):
        jax.grad(evidence)(TABLES.counts)


def test_what_fails_is_uniform_and_says_so(monkeypatch):
    failed = jnp.asarray(pnb.Status.MAX_ITERATIONS.value)
    monkeypatch.setattr(fit, "_learned", lambda tables, prior, *_: (prior, failed))
    with pytest.warns(UserWarning, match="no prior could be learned") as caught:
        found = fit_exact(TABLES, "learned")
    assert caught[0].filename == __file__
    assert found.status == pnb.Status.SUCCESS
    assert found.prior_status == pnb.Status.MAX_ITERATIONS
    assert np.all(np.asarray(found.prior.feature) == 1)
    uniform = fit_exact(TABLES)
    np.testing.assert_allclose(found.feature_mean, uniform.feature_mean, atol=1e-9)
    said = "prior uniform, not learned: "
    assert said + "MAX_ITERATIONS" in repr(found)
    assert said + "status MAX_ITERATIONS" in str(found.summary())


def test_a_search_without_end_and_one_without_numbers(monkeypatch):
    path = dataclasses.replace(fit_exact(TABLES, symmetric(np.zeros(3))).path.questions, flat=False)
    uniform = pnb.Prior.uniform(TABLES)
    nothing = lambda *_: (jnp.asarray(jnp.nan), jnp.zeros(3), jnp.ones(3))  # noqa: E731
    uphill = lambda *x: (x[-1].sum(), jnp.ones(3), jnp.ones(3))  # noqa: E731
    for look, status in (
        (nothing, pnb.Status.NON_FINITE),
        (uphill, pnb.Status.MAX_ITERATIONS),
    ):
        monkeypatch.setattr(learn, "_look", look)
        monkeypatch.setattr(learn, "CAP", 5)
        prior, code = learn.learn(TABLES, uniform, path)
        assert code == status
        assert np.all(np.asarray(prior.feature) == 1)


def test_its_values_are_in_words(learned):
    of_class, (first, second) = learned.concentrations
    low, high = sorted((float(first), float(second)))
    assert f"prior learned: {float(of_class):.2g} and {low:.2g} to {high:.2g}" in repr(learned)
    text = learned.summary().heading()
    assert f"prior learned, concentrations class: {float(of_class):.2g}, x0: {first:.2g}" in text


def test_other_methods_and_other_words_are_refused():
    batch = jax.tree.map(lambda x: x[None], TABLES)
    for call in (
        lambda: fit_exact(TABLES, "leaned"),
        lambda: pnb.fit_vb(TABLES, "learned"),
        lambda: pnb.fit_naive(TABLES, "learned"),
        lambda: pnb.fit_many(batch, "vb", prior="learned"),
        lambda: pnb.fit_many(batch, "exact", prior="leaned"),
    ):
        with pytest.raises(TypeError, match=r"prior must be a jaxprivnb\.Prior"):
            call()
