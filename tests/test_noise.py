"""Noise: densities, draws and budgets."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import jaxprivnb as pnb
from jaxprivnb.noise import Noise, l1_sensitivity, l2_sensitivity_squared

SCALES = [0.3, 2.0, 20.0, 20_000.0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("cls", [pnb.Laplace, pnb.Gaussian])
def test_densities_integrate_to_one(cls, scale):
    noise = cls(scale)
    half, _ = scipy.integrate.quad(
        lambda u: math.exp(float(noise.log_prob(scale * u))) * scale, 0, 60, points=[1, 5, 20]
    )
    assert 2 * half == pytest.approx(1, rel=1e-8)


@pytest.mark.parametrize("scale", [0.05, 0.3, 2.0, 200.0])
def test_geometric_pmf_sums_to_one(scale):
    x = np.arange(-40 * math.ceil(scale), 40 * math.ceil(scale) + 1).astype(float)
    assert np.exp(pnb.Geometric(scale).log_prob(x)).sum() == pytest.approx(1, rel=1e-12)


def test_log_prob_equals_scipy(dtype):
    x = np.array([-700.0, -3.0, 0.0, 1.0, 40.0])
    cases = [
        (pnb.Laplace, scipy.stats.laplace(scale=7.0).logpdf),
        (pnb.Gaussian, scipy.stats.norm(scale=7.0).logpdf),
        (pnb.Geometric, scipy.stats.dlaplace(1 / 7.0).logpmf),
    ]
    for cls, expected in cases:
        got = cls(np.asarray(7.0, dtype)).log_prob(x.astype(dtype))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected(x), rtol=30 * jnp.finfo(dtype).eps)
        peak = cls(np.asarray(7.0, dtype)).log_peak
        np.testing.assert_allclose(peak, expected(0), rtol=30 * jnp.finfo(dtype).eps)


@pytest.mark.parametrize("cls", [pnb.Laplace, pnb.Geometric, pnb.Gaussian])
def test_draws_have_the_moments_of_the_density(cls, dtype):
    scale = np.asarray([0.8, 6.0, 50.0], dtype)
    n = 40_000
    draws = cls(scale).sample(jax.random.key(5), (n, 3))
    assert draws.dtype == dtype
    draws = np.asarray(draws, np.float64)
    b = scale.astype(np.float64)
    if cls is pnb.Laplace:
        moments = [scipy.stats.laplace(scale=s).moment for s in b]
    elif cls is pnb.Gaussian:
        moments = [scipy.stats.norm(scale=s).moment for s in b]
    else:
        assert (draws == np.floor(draws)).all()
        x = np.arange(-5000.0, 5001.0)
        pmf = [scipy.stats.dlaplace(1 / s).pmf(x) for s in b]
        moments = [lambda r, p=p: (p * x**r).sum() for p in pmf]
    for j, moment in enumerate(moments):
        assert abs(draws[:, j].mean()) < 4.5 * math.sqrt(moment(2) / n)
        spread = math.sqrt((moment(4) - moment(2) ** 2) / n)
        assert abs(np.square(draws[:, j]).mean() - moment(2)) < 4.5 * spread


def test_geometric_frequencies_match_the_pmf():
    draws = np.asarray(pnb.Geometric(1.5).sample(jax.random.key(2), (100_000,)))
    for x in range(-3, 4):
        p = math.exp(float(pnb.Geometric(1.5).log_prob(float(x))))
        assert abs((draws == x).mean() - p) < 4.5 * math.sqrt(p * (1 - p) / draws.size)


@pytest.mark.parametrize("cls", [pnb.Laplace, pnb.Geometric])
def test_scale_from_epsilon_uses_sensitivity_two(cls):
    assert float(cls.from_budget(epsilon_per_table=0.1).scale) == pytest.approx(20.0)
    total = cls.from_budget(epsilon_total=0.5, n_tables=5)
    assert float(total.scale) == pytest.approx(20.0)


RELATIONS = [(n, c) for n in ("replace", "add-remove") for c in (1, 2, 3)]


def neighbours_of(records, neighbours, contributions, categories):
    """Every dataset that the relation calls a neighbour, by its definition."""
    places = range(len(records))
    for changed in itertools.combinations_with_replacement(places, contributions):
        rest = [r for p, r in enumerate(records) if p not in changed]
        n_removed = len(records) - len(rest)
        n_new = {"replace": [n_removed], "add-remove": range(contributions - n_removed + 1)}
        for n in n_new[neighbours]:
            for new in itertools.product(range(categories), repeat=n):
                yield [*rest, *new]
    if neighbours == "add-remove":
        for n in range(contributions + 1):
            for new in itertools.product(range(categories), repeat=n):
                yield [*records, *new]


@pytest.mark.parametrize(("neighbours", "contributions"), RELATIONS)
def test_sensitivities_are_those_of_all_neighbours(neighbours, contributions):
    def count(records):
        return np.bincount(records, minlength=3)

    apart = [
        count(records) - count(other)
        for records in ([0, 0, 0, 1], [0, 1, 1, 2])
        for other in neighbours_of(records, neighbours, contributions, 3)
    ]
    l1 = max(np.abs(d).sum() for d in apart)
    l2_squared = max((d**2).sum() for d in apart)
    assert l1 == l1_sensitivity(neighbours, contributions)
    assert l2_squared == l2_sensitivity_squared(neighbours, contributions)


@pytest.mark.parametrize(("neighbours", "contributions"), RELATIONS)
@pytest.mark.parametrize("cls", [pnb.Laplace, pnb.Geometric])
def test_neighbouring_tables_are_epsilon_close(cls, neighbours, contributions):
    epsilon = 0.7
    relation = {"neighbours": neighbours, "contributions": contributions}
    noise = cls.from_budget(epsilon_per_table=epsilon, **relation)
    x = np.arange(-30.0, 31.0)
    one_cell = np.abs(noise.log_prob(x) - noise.log_prob(x + contributions)).max()
    n_cells = 2 if neighbours == "replace" else 1
    assert n_cells * one_cell == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(("neighbours", "contributions"), RELATIONS)
def test_neighbouring_tables_are_rho_close(neighbours, contributions):
    # Renyi's divergence of two Gaussians, alpha d^2 / (2 sigma^2) with d^2 summed over the cells.
    relation = {"neighbours": neighbours, "contributions": contributions}
    sigma = float(pnb.Gaussian.from_budget(rho_per_table=0.3, **relation).sigma)
    n_cells = 2 if neighbours == "replace" else 1
    assert n_cells * contributions**2 / (2 * sigma**2) == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize(
    ("relation", "error", "message"),
    [
        ({"neighbours": "add"}, ValueError, "neighbours must be one of 'replace', 'add-remove'"),
        ({"neighbours": None}, TypeError, "neighbours must be one of"),
        ({"contributions": 0}, ValueError, "contributions must be at least 1, got 0"),
        ({"contributions": 1.5}, TypeError, "contributions must be an integer"),
        ({"contributions": 10**400}, ValueError, "contributions must be at most"),
    ],
)
def test_relations_that_make_no_sense(relation, error, message):
    with pytest.raises(error, match=message):
        pnb.Laplace.from_budget(epsilon_per_table=1.0, **relation)
    with pytest.raises(error, match=message):
        pnb.Gaussian.from_budget(rho_per_table=1.0, **relation)


def test_sigma_from_rho():
    # zCDP: rho = (L2 sensitivity)^2 / (2 sigma^2) with squared sensitivity 2.
    noise = pnb.Gaussian.from_budget(rho_per_table=0.02)
    assert 2 / (2 * float(noise.sigma) ** 2) == pytest.approx(0.02)
    assert float(pnb.Gaussian.from_budget(rho_total=0.1, n_tables=5).sigma) == pytest.approx(
        float(noise.sigma)
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "exactly one of epsilon_per_table and epsilon_total"),
        ({"epsilon_per_table": 1, "epsilon_total": 1}, TypeError, "exactly one"),
        ({"epsilon_total": 1.0}, TypeError, "n_tables"),
        ({"epsilon_per_table": 0}, ValueError, r"epsilon_per_table must be in \(0, inf\), got 0"),
        ({"epsilon_per_table": math.nan}, ValueError, "epsilon_per_table.*got nan"),
        (
            {"epsilon_per_table": "1"},
            TypeError,
            "epsilon_per_table must be a number, got str of 1 characters",
        ),
        ({"epsilon_total": 1.0, "n_tables": 0}, ValueError, "n_tables must be at least 1, got 0"),
        ({"epsilon_total": 1.0, "n_tables": 2.5}, TypeError, "n_tables must be an integer"),
    ],
)
def test_bad_budgets(arguments, error, message):
    with pytest.raises(error, match=message):
        pnb.Laplace.from_budget(**arguments)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("cls", [pnb.Laplace, pnb.Geometric, pnb.Gaussian])
def test_bad_scales_name_the_parameter(cls, bad):
    with pytest.raises(ValueError, match=rf"{cls.parameter} must be finite and > 0, got"):
        cls(bad)


@pytest.mark.parametrize("bad", ["20", None, 1j, [[1.0], [1.0, 2.0]]])
def test_scales_that_are_not_numbers(bad):
    with pytest.raises(TypeError, match="scale must be an array of"):
        pnb.Laplace(bad)


def test_with_value_skips_checks_so_that_it_works_under_tracing():
    noise = pnb.Laplace(1.0)
    assert float(noise.with_value(jnp.asarray(-1.0)).scale) == -1.0
    out = jax.jit(lambda n, s: n.with_value(s).value)(noise, jnp.asarray(3.0))
    assert float(out) == 3.0


@pytest.mark.parametrize("cls", [pnb.Laplace, pnb.Geometric, pnb.Gaussian])
def test_one_scale_a_table_broadcasts(cls):
    scale = jnp.asarray([1.0, 10.0, 100.0])
    noise = cls(scale[:, None])
    x = jnp.arange(12.0).reshape(2, 3, 2)
    got = noise.log_prob(x)
    for k in range(3):
        np.testing.assert_allclose(got[:, k], cls(scale[k]).log_prob(x[:, k]), rtol=1e-14)
    assert noise.sample(jax.random.key(0), (2, 3, 2)).shape == (2, 3, 2)
    assert isinstance(noise, Noise)
