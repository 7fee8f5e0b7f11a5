"""The four solvers of the simplex subproblem, on ordinary and on extreme problems."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize
from scipy.special import wrightomega

from jaxprivnb import Status
from jaxprivnb.simplex import KKT, MM, SOLVERS, Armijo, Optax, SimplexProblem
from jaxprivnb.simplex.armijo import Longest
from jaxprivnb.simplex.kkt import wright_omega
from jaxprivnb.simplex.mm import allocate
from jaxprivnb.simplex.problem import LOG_ZERO, normalise

objective = jax.jit(jax.vmap(lambda p, x: p.centred().objective(x)))
gradient = jax.jit(jax.vmap(SimplexProblem.gradient))


def problems(seed, n, J, *, extreme, dtype=np.float64):
    """n random problems and starts; the extreme ones cover all scales and start at the boundary."""
    rng = np.random.default_rng(seed)
    if extreme:
        A = -(10 ** rng.uniform(-8, 8, (n, J))) * (rng.random((n, J)) < 0.8)
        B = rng.choice([-1, 1], (n, J)) * 10 ** rng.uniform(-6, 6, (n, J))
        C = -(10 ** rng.uniform(-1, 1, (n, 1))) * np.ones((n, J))
        log_x = np.log(np.maximum(rng.dirichlet(np.full(J, 0.05), n), 1e-300))
    else:
        A = -(10 ** rng.uniform(-2, 2, (n, J)))
        B = 5 * rng.normal(size=(n, J))
        C = -np.ones((n, J))
        log_x = np.log(0.99 * rng.dirichlet(np.ones(J), n) + 0.01 / J)
    real = jnp.ones((n, J), bool)
    problem = SimplexProblem(*(jnp.asarray(x, dtype) for x in (A, B, C)), real)
    return problem, normalise(jnp.asarray(log_x, dtype), real)


def solve(solver, problem, log_x):
    return jax.jit(jax.vmap(solver.solve))(problem, log_x)


def stationarity(problem, log_x):
    """Largest deviation of the gradient from its mean, relative to the size of its terms, `[n]`."""
    x, g = jnp.exp(log_x), gradient(problem, log_x)
    L = jnp.sum(x * g, -1, keepdims=True)
    scale = jnp.abs(2 * problem.A * x) + jnp.abs(problem.B) + jnp.abs(problem.C * log_x)
    return jnp.max(jnp.abs(g - L), -1) / (1 + jnp.max(scale, -1))


def test_wright_omega_matches_scipy(dtype):
    z = np.concatenate([np.linspace(-80, 40, 20001), np.logspace(1, 8, 1000)])
    found = np.asarray(wright_omega(jnp.asarray(z, dtype)), np.float64)
    expected = wrightomega(z).real
    # omega(z) ~ exp(z) for negative z, so the rounding of z itself is magnified by |z|.
    limit = 50 * float(jnp.finfo(dtype).eps) * (1 + np.abs(np.minimum(z, 0)))
    assert np.all(np.abs(found / expected - 1) < limit)


@pytest.mark.parametrize("J", [2, 3, 5, 12, 50])
def test_kkt_is_stationary_on_extreme_problems(J):
    problem, log_x = problems(J, 20_000, J, extreme=True)
    solution = solve(KKT(), problem, log_x)
    assert jnp.all(solution.status == Status.SUCCESS)
    assert float(jnp.max(stationarity(problem, solution.log_x))) < 1e-10
    np.testing.assert_allclose(jnp.exp(solution.log_x).sum(-1), 1, rtol=1e-12)
    f0, f = objective(problem, log_x), objective(problem, solution.log_x)
    assert jnp.all(f >= f0 - 1e-12 * (1 + jnp.abs(f0)))


def check_armijo(problem, log_x, solver):
    solution = solve(solver, problem, log_x)
    exact = solve(KKT(), problem, log_x)
    f0, f, best = (objective(problem, x) for x in (log_x, solution.log_x, exact.log_x))
    assert jnp.all(f >= f0), "the objective fell"
    assert jnp.all(jnp.isfinite(solution.log_x)), "left the interior"
    rounding = 1e-9 * (1 + jnp.abs(best))
    assert jnp.all(best - f <= solution.gap * (1 + 1e-6) + rounding), "the gap is no bound"
    tolerance = solver.tol * (1 + jnp.abs(f))
    success = solution.status == Status.SUCCESS
    assert jnp.all(jnp.where(success, best - f <= tolerance + rounding, True))
    return success.mean()


@pytest.mark.parametrize("J", [2, 5, 50])
def test_the_papers_armijo_ascends_and_certifies_on_extreme_problems(J):
    problem, log_x = problems(J, 2000, J, extreme=True)
    check_armijo(problem, log_x, Armijo(inner_steps=30, tol=1e-8, rule="longest"))


def test_armijo_takes_a_rule_with_options_of_its_own():
    problem, log_x = problems(7, 50, 5, extreme=False)
    named = solve(Armijo(rule="longest"), problem, log_x)
    same = solve(Armijo(rule=Longest()), problem, log_x)
    np.testing.assert_array_equal(named.log_x, same.log_x)
    short = solve(Armijo(rule=Longest(share=0.1)), problem, log_x)
    move = lambda found: jnp.abs(jnp.exp(found.log_x) - jnp.exp(log_x)).max(-1)  # noqa: E731
    assert jnp.all(move(short) < move(named))


@pytest.mark.parametrize("J", [2, 5, 50])
def test_armijo_ends_within_its_tolerance_on_extreme_problems(J):
    problem, log_x = problems(J, 2000, J, extreme=True)
    assert check_armijo(problem, log_x, Armijo(inner_steps=1000, tol=1e-6)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("J", [2, 3, 5, 12, 50])
def test_armijo_ends_within_its_tolerance_on_100_000_extreme_problems(J):
    problem, log_x = problems(J, 20_000, J, extreme=True)
    assert check_armijo(problem, log_x, Armijo(inner_steps=2000, tol=1e-6)) == 1


@pytest.mark.parametrize(
    ("solver", "accuracy"),
    [
        (Armijo(inner_steps=2000, tol=1e-10), 1e-6),
        (MM(2000), 1e-6),
        (Optax(inner_steps=3000), 1e-4),  # a black box of first order: close, and no closer
    ],
)
@pytest.mark.parametrize("J", [2, 6])
def test_every_solver_reaches_the_exact_solution(solver, accuracy, J):
    problem, log_x = problems(7, 200, J, extreme=False)
    solution = solve(solver, problem, log_x)
    exact = solve(KKT(), problem, log_x)
    np.testing.assert_allclose(
        objective(problem, solution.log_x), objective(problem, exact.log_x), atol=accuracy
    )
    distance = jnp.abs(jnp.exp(solution.log_x) - jnp.exp(exact.log_x)).max()
    assert float(distance) < 2 * accuracy**0.5  # the objective is flat to second order


def problem_at(problem, i):
    return jax.tree.map(lambda v: v[i], problem)


def test_kkt_equals_a_general_optimiser():
    problem, log_x = problems(3, 20, 4, extreme=False)
    solution = solve(KKT(), problem, log_x)
    for i in range(20):
        A, B, C = (np.asarray(v[i]) for v in problem[:3])

        def loss(z, A=A, B=B, C=C):
            x = np.exp(z - np.logaddexp.reduce(z))
            return -np.sum(A * x**2 + B * x + C * x * np.log(x))

        best = minimize(loss, np.asarray(log_x[i]), method="BFGS", options={"gtol": 1e-9})
        assert -best.fun <= float(problem_at(problem, i).objective(solution.log_x[i])) + 1e-9
        x = np.exp(best.x - np.logaddexp.reduce(best.x))
        np.testing.assert_allclose(np.exp(solution.log_x[i]), x, atol=2e-3)


@pytest.mark.parametrize("name", SOLVERS)
def test_no_solver_falls_and_float32_works(name, dtype):
    problem, log_x = problems(11, 500, 5, extreme=True, dtype=dtype)
    solution = solve(SOLVERS[name], problem, log_x)
    assert solution.log_x.dtype == dtype
    f0, f = objective(problem, log_x), objective(problem, solution.log_x)
    slack = 0 if name != "kkt" else 64 * jnp.finfo(dtype).eps * (1 + jnp.abs(f0))
    assert jnp.all(f >= f0 - slack)
    assert jnp.all(jnp.isfinite(solution.log_x))


@pytest.mark.parametrize("name", SOLVERS)
def test_masked_coordinates_change_nothing(name):
    problem, log_x = problems(5, 50, 4, extreme=False)
    plain = solve(SOLVERS[name], problem, log_x)
    pad = lambda v, fill: jnp.concatenate([v, jnp.full((50, 2), fill, v.dtype)], -1)  # noqa: E731
    padded = SimplexProblem(
        pad(problem.A, -3.0), pad(problem.B, 1e5), pad(problem.C, -2.0), pad(problem.real, False)
    )
    solution = solve(SOLVERS[name], padded, pad(log_x, LOG_ZERO))
    np.testing.assert_allclose(solution.log_x[:, :4], plain.log_x, rtol=1e-9, atol=1e-9)
    assert jnp.all(solution.log_x[:, 4:] == LOG_ZERO)


@pytest.mark.parametrize("name", SOLVERS)
def test_one_coordinate_is_certain(name):
    problem = SimplexProblem(*(jnp.full(1, v) for v in (-2.0, 3.0, -1.0)), jnp.ones(1, bool))
    solution = SOLVERS[name].solve(problem, jnp.zeros(1))
    np.testing.assert_allclose(solution.log_x, 0, atol=1e-12)


def test_a_nan_problem_says_so_and_leaves_its_neighbours():
    problem, log_x = problems(2, 64, 3, extreme=False)
    bad = problem._replace(B=problem.B.at[17, 1].set(jnp.nan))
    for name, solver in SOLVERS.items():
        alone, mixed = solve(solver, problem, log_x), solve(solver, bad, log_x)
        assert mixed.status[17] == Status.NON_FINITE, name
        keep = jnp.arange(64) != 17
        assert jnp.array_equal(alone.log_x[keep], mixed.log_x[keep]), name


def test_mm_allocation_is_the_maximum_of_the_minoriser():
    problem, log_y = problems(1, 100, 5, extreme=False)
    y = jnp.exp(log_y)
    x = y * jax.vmap(allocate)(problem, log_y)
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-10)
    assert jnp.all(x >= 0)
    q = 2 * (-problem.A - problem.C / y)
    slope = problem.B - problem.C * (1 - log_y) - q * x
    top = jnp.max(slope, -1, keepdims=True)
    # First-order conditions: equal slopes where x > 0, no larger slope where x = 0.
    assert jnp.all(
        jnp.where(x > 0, jnp.abs(slope - top) < 1e-7 * (1 + jnp.abs(q * x)), slope <= top)
    )


def test_mm_reports_the_boundary_and_goes_on():
    # The start gives coordinate 0 almost nothing to gain and the others a steep quadratic.
    problem = SimplexProblem(
        jnp.array([0.0, -1.0, -1.0]),
        jnp.array([-40.0, 5.0, 4.0]),
        jnp.full(3, -1.0),
        jnp.ones(3, bool),
    )
    start = jnp.log(jnp.full(3, 1 / 3))
    assert jnp.any(allocate(problem, start) == 0)
    solution = MM(inner_steps=50).solve(problem, start)
    assert solution.status == Status.BOUNDARY
    assert problem.objective(solution.log_x) > problem.objective(start)
    assert jnp.all(jnp.isfinite(solution.log_x))


def test_gap_bounds_the_distance_to_the_top():
    problem, log_x = problems(9, 2000, 6, extreme=True)
    best = objective(problem, solve(KKT(), problem, log_x).log_x)
    gap = jax.vmap(SimplexProblem.gap)(jax.vmap(SimplexProblem.centred)(problem), log_x)
    assert jnp.all(
        best - objective(problem, log_x) <= gap * (1 + 1e-9) + 1e-9 * (1 + jnp.abs(best))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Armijo(nu=1.5), "nu must be in"),
        (lambda: Armijo(sigma=0.0), "sigma must be in"),
        (lambda: Armijo(inner_steps=0), "inner_steps must be at least 1"),
        (lambda: Armijo(rule="largest"), "did you mean 'longest'"),
        (lambda: Longest(share=1.0), "share must be in"),
        (lambda: KKT(max_steps=0), "max_steps must be at least 1"),
        (lambda: MM(boundary_step=1.0), "boundary_step must be in"),
        (lambda: Optax(shrink=2.0), "shrink must be in"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_optax_takes_another_optimiser_and_refuses_what_is_none():
    problem, log_x = problems(4, 50, 3, extreme=False)
    solution = solve(Optax(optax.sgd(0.05), inner_steps=200), problem, log_x)
    assert jnp.all(objective(problem, solution.log_x) >= objective(problem, log_x))
    with pytest.raises(TypeError, match="optimizer must be an optax optimiser"):
        Optax("adam")
