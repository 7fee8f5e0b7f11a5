"""The variational fit against enumeration, autodiff and numerical maximisation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.optimize import minimize

import jaxprivnb as pnb
from jaxprivnb import Status, dirichlet
from jaxprivnb.simplex import KKT, SOLVERS, Armijo
from jaxprivnb.simplex.problem import LOG_ZERO, normalise
from jaxprivnb.variational import ascent, updates
from jaxprivnb.variational.bound import Data, Factors, collapsed
from jaxprivnb.variational.fit import resolve_limits
from jaxprivnb.variational.local import BOUNDS, local_bound
from jaxprivnb.variational.starts import INTERIOR, check_start, start_points

TINY = {
    # name: (I, categories, N)
    "2 classes": (2, (2, 2), 5),
    "ragged": (2, (2, 3), 4),
    "3 classes": (3, (3, 2), 3),
    "single category": (2, (1, 2), 3),
    "empty": (2, (2, 2), 0),
}
NOISES = {"laplace": pnb.Laplace, "geometric": pnb.Geometric, "gaussian": pnb.Gaussian}


def tiny(name, seed, noise=pnb.Laplace, scale=1.5):
    """A tiny release with a non-uniform prior."""
    I, sizes, N = TINY[name]
    rng = np.random.default_rng(seed)
    K, J = len(sizes), max(sizes)
    mask = None if len(set(sizes)) == 1 else jnp.arange(J) < jnp.asarray(sizes)[:, None]
    counts = rng.integers(-2, N + 3, (I, K, J)) + (0 if noise is pnb.Geometric else 0.25)
    prior = pnb.Prior(rng.uniform(0.3, 3, I), rng.uniform(0.3, 3, (I, K, J)))
    return pnb.NoisyTables(counts, N, noise(scale), mask), prior


def random_factors(seed, data):
    """Any state at all: the bound holds for each."""
    rng = np.random.default_rng(seed)
    I, K, J = data.m.shape
    real = jnp.broadcast_to(data.real, (I, K, J))
    log_t_class = normalise(jnp.asarray(2 * rng.normal(size=I)), jnp.ones(I, bool))
    log_t_feature = normalise(jnp.asarray(2 * rng.normal(size=(I, K, J))), real)
    return Factors(
        log_t_class,
        log_t_feature,
        jnp.asarray(rng.uniform(0.2, 6, I)),
        jnp.where(real, jnp.asarray(rng.uniform(0.2, 6, (I, K, J))), 0),
        jnp.asarray(rng.uniform(0.2, 6, (I, K, J))),
    )


def release(seed=0, n_categories=(2, 3, 4), I=3, N=60, scale=5.0, shape=()):
    return pnb.simulate(
        jax.random.key(seed),
        n_records=N,
        n_classes=I,
        n_categories=n_categories,
        noise=pnb.Laplace(scale),
        shape=shape,
    ).tables


def bound_at(data, factors, local):
    """The bound at any state, term by term as the package states it."""
    log_t_class, log_t_feature, alpha_class, alpha_feature, parameter = factors
    t = jnp.exp(log_t_class)
    e = t[:, None, None] * jnp.exp(log_t_feature)
    c = data.N * e * (1 - e) + (data.N * e - data.m) ** 2
    noise = local.value(data.noise, parameter, jnp.where(data.real, c, 1))
    total = jnp.where(data.real, noise, 0).sum()
    for n, log_t, alpha, prior, real in (
        (data.N * t, log_t_class, alpha_class, data.prior_class, jnp.ones(t.shape, bool)),
        (data.N * e, log_t_feature, alpha_feature, data.prior_feature, data.real),
    ):
        log_p = dirichlet.mean_log(alpha, real)
        total += jnp.where(real, n * (log_p - log_t), 0).sum()
        total -= jnp.where(real, (alpha - prior) * log_p, 0).sum()
        (gammas, of_sum), (prior_gammas, prior_of_sum) = (
            dirichlet.log_beta_terms(x, real) for x in (alpha, prior)
        )
        total += (gammas - prior_gammas).sum() - (of_sum - prior_of_sum).sum()
    return total


elbo_of = jax.jit(bound_at, static_argnums=2)


BELOW = [
    ("ragged", "laplace", "mixture"),
    ("empty", "laplace", "mixture"),
    ("single category", "laplace", "mixture"),
    ("3 classes", "laplace", "quadratic"),
    ("ragged", "geometric", "mixture"),
    ("ragged", "gaussian", "mixture"),
]


@pytest.mark.parametrize(("case", "noise", "bound"), BELOW)
def test_the_bound_is_below_the_evidence(case, noise, bound):
    for seed in range(4):
        tables, prior = tiny(case, seed, NOISES[noise])
        log_evidence = oracles.log_evidence(
            tables.counts,
            tables.n_records,
            tables.noise.log_prob,
            prior.class_,
            prior.feature,
            tables.mask,
        )
        data = Data.of(tables, prior)
        for other in range(10):
            value = elbo_of(data, random_factors(other, data), local_bound(bound, tables.noise))
            assert float(value) <= log_evidence + 1e-9
        fit = pnb.fit_vb(tables, prior, bound=bound)
        assert float(fit.elbo) <= log_evidence + 1e-9
        assert fit.status == Status.SUCCESS


@pytest.mark.parametrize(("case", "noise"), [("ragged", "laplace"), ("empty", "gaussian")])
def test_the_collapsed_bound_is_the_bound_at_optimal_factors(case, noise):
    tables, prior = tiny(case, 2, NOISES[noise])
    data, local = Data.of(tables, prior), local_bound("mixture", tables.noise)
    at = updates.refresh(data, random_factors(5, data), local)
    bound = jax.jit(collapsed, static_argnums=2)(data, at, local)
    expected = float(elbo_of(data, at, local))
    assert float(bound.elbo) == pytest.approx(expected, abs=4 * float(bound.rounding) + 1e-12)
    assert 0 < float(bound.rounding) < 1e-12


def from_unconstrained(data, z_class, z_feature, local):
    """The profile bound as a function of unconstrained logits."""
    real = jnp.broadcast_to(data.real, z_feature.shape)
    log_t_class = normalise(z_class, jnp.ones_like(z_class, bool))
    factors = updates.at_theta(data, log_t_class, normalise(z_feature, real), local)
    return bound_at(data, factors, local)


slope_of = jax.jit(jax.grad(from_unconstrained, argnums=(1, 2)), static_argnums=3)


@pytest.mark.parametrize(("case", "bound"), [("ragged", "mixture"), ("3 classes", "quadratic")])
def test_the_projected_gradient_vanishes_at_convergence(case, bound):
    for seed in range(3):
        tables, prior = tiny(case, seed)
        fit = pnb.fit_vb(tables, prior, bound=bound, tol=1e-15)
        data, local = Data.of(tables, prior), local_bound(bound, tables.noise)
        logs = [jnp.log(jnp.maximum(t, 1e-300)) for t in (fit.theta_class, fit.theta_feature)]
        gradient = slope_of(data, *logs, local)
        away = slope_of(data, logs[0].at[0].add(0.3), logs[1], local)
        size = lambda g: max(float(jnp.abs(v).max()) for v in g)  # noqa: E731
        assert size(gradient) < 2e-6
        assert size(away) > 100 * size(gradient)


@pytest.mark.parametrize(
    ("case", "bound", "noise"),
    [
        ("ragged", "mixture", "laplace"),
        ("3 classes", "quadratic", "laplace"),
        ("ragged", "mixture", "geometric"),
        ("ragged", "mixture", "gaussian"),
    ],
)
def test_each_update_is_the_numerical_maximum_over_its_factor(case, bound, noise):
    tables, prior = tiny(case, 1, NOISES[noise])
    data, local = Data.of(tables, prior), local_bound(bound, tables.noise)
    at = random_factors(3, data)
    real = np.broadcast_to(np.asarray(data.real), data.m.shape)
    elbo = jax.jit(lambda f: bound_at(data, f, local))

    def maximised(field, to_field, z0):
        loss = jax.jit(jax.value_and_grad(lambda z: -elbo(at._replace(**{field: to_field(z)}))))
        result = minimize(
            lambda z: tuple(map(np.asarray, loss(jnp.asarray(z)))),
            z0,
            jac=True,
            options={"gtol": 1e-9},
        )
        return float(-result.fun)

    I, cells = data.m.shape[0], jnp.asarray(real)
    positive = lambda z: jnp.where(cells, jnp.exp(z.reshape(real.shape)), 0)  # noqa: E731
    simplex = lambda z: normalise(z.reshape(real.shape), cells)  # noqa: E731
    everywhere = lambda z: jnp.exp(z.reshape(real.shape))  # noqa: E731
    on_classes = lambda z: normalise(z, jnp.ones(I, bool))  # noqa: E731
    update = {
        "local": lambda at: updates.update_local(data, at, local),
        "alpha_feature": lambda at: updates.update_alpha_feature(data, at),
        "alpha_class": lambda at: updates.update_alpha_class(data, at),
        "log_t_feature": lambda at: updates.update_t_feature(data, at, local, KKT())[0],
        "log_t_class": lambda at: updates.update_t_class(data, at, local, KKT())[0],
    }
    # Each factor in unconstrained coordinates: how to go there from the updated value, and back.
    log_cells = lambda x: np.log(np.where(real, x, 1)).ravel()  # noqa: E731
    spaces = {
        "local": (lambda x: np.log(x).ravel(), everywhere),
        "alpha_feature": (log_cells, positive),
        "alpha_class": (np.log, jnp.exp),
        "log_t_feature": (lambda x: np.where(real, x, 0).ravel(), simplex),
        "log_t_class": (np.asarray, on_classes),
    }
    rng = np.random.default_rng(0)
    for field, (to_z, to_field) in spaces.items():
        updated = jax.jit(update[field])(at)
        z = to_z(np.asarray(getattr(updated, field)))
        best = maximised(field, to_field, z + 0.3 * rng.normal(size=z.shape))
        np.testing.assert_allclose(float(elbo(updated)), best, rtol=1e-8, atol=1e-7, err_msg=field)
        assert float(elbo(updated)) >= float(elbo(at)) - 1e-10, field


@pytest.mark.parametrize("accelerate", [False, True])
def test_the_two_bounds_give_the_same_iterates(accelerate):
    tables = release()
    prior = pnb.Prior.uniform(tables)
    data = Data.of(tables, prior)
    theta = jax.tree.map(lambda x: x[0], start_points(tables, "naive"))
    states = {}
    for bound in BOUNDS:
        method = ascent.Method(KKT(), local_bound(bound, tables.noise), accelerate)
        limits = resolve_limits(jnp.float64, None, 100)
        step = jax.jit(partial(ascent.step, limits=limits, method=method))
        at, path = ascent.begin(theta), []
        for _ in range(12):
            at = step(data, at)
            path.append((at.elbo, at.theta))
        states[bound] = path
    for mixture, quadratic in zip(*states.values(), strict=True):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), mixture, quadratic)


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_ascends_to_the_same_bound(solver):
    tables = release(N=200, scale=20.0)
    reference = pnb.fit_vb(tables, solver="kkt", accelerate=False, tol=1e-12)
    fit = pnb.fit_vb(tables, solver=solver)
    assert fit.status in (Status.SUCCESS, Status.BOUNDARY)
    assert fit.max_decrease <= 1e-9
    np.testing.assert_allclose(fit.elbo, reference.elbo, atol=1e-4)


def test_plain_armijo_with_the_papers_steps_agrees():
    tables = release(N=200, scale=20.0)
    solver = Armijo(rule="longest", inner_steps=20)
    paper = pnb.fit_vb(tables, solver=solver, accelerate=False)
    assert paper.status == Status.SUCCESS
    np.testing.assert_allclose(paper.elbo, pnb.fit_vb(tables).elbo, atol=1e-4)


def test_vmapped_fits_equal_single_fits():
    tables = release(shape=(6,))
    batch = jax.vmap(pnb.fit_vb)(tables)
    for r in range(6):
        single = pnb.fit_vb(jax.tree.map(lambda x: x[r], tables))  # noqa: B023
        for name in ("class_mean", "feature_mean", "elbo", "theta_class", "theta_feature"):
            np.testing.assert_allclose(getattr(batch, name)[r], getattr(single, name), atol=1e-12)
        assert batch.iterations[r] == single.iterations


def permuted(tables, classes, features, categories):
    counts = tables.counts[classes][:, features][:, :, categories]
    mask = None if tables.mask is None else tables.mask[features][:, categories]
    return pnb.NoisyTables(counts, tables.n_records, tables.noise, mask)


def test_relabelling_permuting_and_padding_change_nothing_but_order():
    tables = release()
    fit = pnb.fit_vb(tables)
    classes, features, categories = np.array([2, 0, 1]), np.array([1, 2, 0]), np.array([3, 1, 0, 2])
    other = pnb.fit_vb(permuted(tables, classes, features, categories))
    np.testing.assert_allclose(other.elbo, fit.elbo, rtol=1e-10)
    np.testing.assert_allclose(other.class_mean, fit.class_mean[classes], atol=1e-7)
    np.testing.assert_allclose(
        other.feature_mean, fit.feature_mean[classes][:, features][:, :, categories], atol=1e-7
    )
    pad = ((0, 0), (0, 0), (0, 3))
    wide = pnb.NoisyTables(
        jnp.pad(tables.counts, pad, constant_values=1e3),
        tables.n_records,
        tables.noise,
        jnp.pad(tables.mask, pad[1:]),
    )
    padded = pnb.fit_vb(wide)
    np.testing.assert_allclose(padded.feature_mean[..., :4], fit.feature_mean, atol=1e-9)
    assert jnp.all(padded.feature_mean[..., 4:] == 0)
    np.testing.assert_allclose(padded.elbo, fit.elbo, rtol=1e-12)


def test_a_bad_replicate_carries_its_status_alone():
    tables = release(shape=(8,))
    fit = jax.jit(jax.vmap(pnb.fit_vb))
    good = fit(tables)
    counts = tables.counts.at[3, 0, 0, 0].set(jnp.nan)
    mixed = fit(pnb.NoisyTables(counts, tables.n_records, tables.noise, tables.mask))
    assert mixed.status[3] == Status.BAD_INPUT
    keep = jnp.arange(8) != 3
    assert jnp.all(mixed.status[keep] == Status.SUCCESS)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[keep], b[keep]), good, mixed)


def test_a_falling_bound_is_reported():
    """A solver that goes down must be caught by the check of monotonicity."""

    class Backwards:
        def solve(self, problem, log_x):
            solution = KKT().solve(problem, log_x)
            spread = jnp.where(problem.real, 2 * log_x - solution.log_x, LOG_ZERO)
            return solution._replace(log_x=normalise(spread, problem.real))

    fit = pnb.fit_vb(release(), solver=Backwards(), accelerate=False, max_iterations=20)
    assert fit.status == Status.NOT_MONOTONE
    assert fit.max_decrease > 0.01


def test_a_solver_that_stands_still_is_not_convergence():
    class Idle:
        def solve(self, problem, log_x):
            gap = problem.gap(log_x)
            return KKT().solve(problem, log_x)._replace(log_x=log_x, gap=gap)

    fit = pnb.fit_vb(release(), solver=Idle(), accelerate=False, max_iterations=20)
    assert fit.status == Status.MAX_ITERATIONS
    assert fit.max_decrease == 0


def test_the_cap_is_reported_and_tolerance_is_respected():
    tables = release(N=200, scale=20.0)
    capped = pnb.fit_vb(tables, accelerate=False, max_iterations=5)
    assert capped.status == Status.MAX_ITERATIONS
    assert capped.iterations == 5
    loose, tight = (pnb.fit_vb(tables, tol=tol) for tol in (1e-3, 1e-12))
    assert loose.iterations < tight.iterations
    assert loose.elbo <= tight.elbo


def test_zero_tolerance_still_ends(dtype):
    tables = jax.tree.map(
        lambda x: x if x.dtype == bool else x.astype(dtype), release(N=200, scale=20.0)
    )
    fit = pnb.fit_vb(tables, tol=0.0)
    assert fit.status == Status.SUCCESS


def test_float32_agrees_with_float64():
    tables = release(N=200, scale=20.0, shape=(20,))
    half = jax.tree.map(lambda x: x if x.dtype == bool else x.astype(jnp.float32), tables)
    single, double = jax.vmap(pnb.fit_vb)(half), jax.vmap(pnb.fit_vb)(tables)
    assert single.feature_mean.dtype == jnp.float32
    assert jnp.all(single.status == Status.SUCCESS)
    # The bound is a sum of terms of a thousand nats: float32 resolves it to about 0.1.
    np.testing.assert_allclose(single.elbo, double.elbo, atol=0.1)


def split_start(tables, start):
    name, given = check_start(tables, start, 1, None)
    return name, 1, None, given


def test_starts_are_strictly_inside_and_random_ones_are_reported():
    tables = release()
    prior = pnb.Prior.uniform(tables)
    zeros = (jnp.array([1.0, 0.0, 0.0]), jnp.zeros_like(tables.counts).at[..., 0].set(1.0))
    for start in ("naive", "uniform", zeros):
        theta = start_points(tables, *split_start(tables, start))
        assert float(jnp.exp(theta.log_t_class).min()) >= INTERIOR / 3 * (1 - 1e-12)
        np.testing.assert_allclose(jnp.exp(theta.log_t_feature).sum(-1), 1, rtol=1e-12)
    fit = pnb.fit_vb(tables, prior, start="random", n_starts=6, key=jax.random.key(1))
    assert fit.elbo_starts.shape == (6,)
    assert fit.elbo == fit.elbo_starts.max()
    both = pnb.fit_vb(tables, prior, n_starts=3, key=jax.random.key(1))
    np.testing.assert_allclose(both.elbo_starts[0], pnb.fit_vb(tables, prior).elbo, rtol=1e-10)
    given = pnb.fit_vb(tables, prior, start=(fit.theta_class, fit.theta_feature))
    np.testing.assert_allclose(given.elbo, fit.elbo, atol=1e-5)


def test_no_noise_left_gives_the_non_private_posterior():
    simulation = pnb.simulate(jax.random.key(2), noise=pnb.Laplace(1e-3))
    fit, bayes = pnb.fit_vb(simulation.tables), pnb.fit_bayes(simulation.counts)
    np.testing.assert_allclose(fit.feature_mean, bayes.feature_mean, atol=1e-2)


def test_enormous_noise_and_no_records_are_finite():
    for N, scale in ((50, 20_000.0), (0, 2.0)):
        fit = pnb.fit_vb(release(N=N, scale=scale))
        assert fit.status == Status.SUCCESS
        assert jnp.all(jnp.isfinite(fit.feature_mean))
    np.testing.assert_allclose(fit.class_mean, 1 / 3, atol=1e-9)  # N = 0: the prior


def test_squared_errors_are_those_of_the_prototype():
    """N=200, eps=0.1: naive .052, VB .035 on p(x|y); VB .006 on p(y), within Monte Carlo error."""
    simulation = pnb.simulate(jax.random.key(5), shape=(400,), noise=pnb.Laplace(20.0))
    vb, naive = (jax.vmap(f)(simulation.tables) for f in (pnb.fit_vb, pnb.fit_naive))

    def error(mean, truth):
        each = jnp.square(mean - truth).reshape(400, -1).mean(-1)
        return float(each.mean()), float(each.std() / 20)

    for mean, truth, expected in (
        (vb.feature_mean, simulation.feature_probs, 0.035),
        (naive.feature_mean, simulation.feature_probs, 0.052),
        (vb.class_mean, simulation.class_probs, 0.006),
    ):
        found, se = error(mean, truth)
        assert abs(found - expected) < 4 * 1.5 * se + 5e-4  # the prototype had 200 replicates


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"solver": "armio"}, ValueError, "did you mean 'armijo'"),
        ({"solver": 3}, TypeError, "solver must be one of"),
        ({"bound": "cubic"}, ValueError, "bound must be one of"),
        ({"accelerate": "yes"}, TypeError, "accelerate must be True or False"),
        ({"start": "random"}, TypeError, "key=jax.random.key"),
        ({"start": "naiv"}, ValueError, "did you mean 'naive'"),
        ({"start": 5}, TypeError, "start must be one of"),
        ({"start": (np.ones(2), np.ones((3, 3, 4)))}, ValueError, r"start\[0\] must have shape"),
        ({"n_starts": 0}, ValueError, "n_starts must be at least 1"),
        ({"tol": -1.0}, ValueError, "tol must be in"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        pnb.fit_vb(release(), **options)


def test_a_batch_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"use fit_many, or jax\.vmap"):
        pnb.fit_vb(release(shape=(4,)))


def test_noise_without_a_quadratic_bound_is_refused():
    class Cauchy(pnb.Laplace):
        kernel = "cauchy"

    with pytest.raises(TypeError, match="has no quadratic bound"):
        local_bound("mixture", Cauchy(1.0))


def test_a_noise_may_bring_its_own_bound():
    # docs/extend.md fits one, and the tests run it.
    class Tilted(pnb.Laplace):
        kernel = BOUNDS["quadratic"]

    assert local_bound("mixture", Tilted(1.0)) is BOUNDS["quadratic"]


def test_limits_follow_the_dtype():
    assert float(resolve_limits(jnp.float32, None, 10).tol) > float(
        resolve_limits(jnp.float64, None, 10).tol
    )
