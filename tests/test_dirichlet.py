"""Dirichlet helpers against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxprivnb import dirichlet

ALPHA = np.array([[0.3, 2.0, 7.5, 0.0], [50.0, 1.0, 0.01, 4.0]])  # one masked cell


def test_mean_and_sd(dtype):
    alpha = ALPHA.astype(dtype)
    tol = 20 * jnp.finfo(dtype).eps
    for row in range(2):
        real = alpha[row] > 0
        reference = scipy.stats.dirichlet(alpha[row][real].astype(float))
        mean, sd = dirichlet.mean(jnp.asarray(alpha))[row], dirichlet.sd(jnp.asarray(alpha))[row]
        assert mean.dtype == sd.dtype == dtype
        np.testing.assert_allclose(mean[real], reference.mean(), rtol=tol)
        np.testing.assert_allclose(sd[real], np.sqrt(reference.var()), rtol=tol)
        np.testing.assert_array_equal(mean[~real], 0)
        np.testing.assert_array_equal(sd[~real], 0)


def test_sd_keeps_its_digits_when_one_category_has_it_all(dtype):
    alpha = np.asarray([1e7, 0.25], dtype)
    expected = scipy.stats.beta(1e7, 0.25).std()
    np.testing.assert_allclose(dirichlet.sd(jnp.asarray(alpha)), expected, rtol=1e-5)


def test_mean_log_and_log_beta():
    real = jnp.asarray(ALPHA > 0)
    mean_log = dirichlet.mean_log(jnp.asarray(ALPHA), real)
    total = ALPHA.sum(-1, keepdims=True)
    expected = scipy.special.digamma(np.where(ALPHA > 0, ALPHA, 1)) - scipy.special.digamma(total)
    np.testing.assert_allclose(mean_log, np.where(ALPHA > 0, expected, 0), rtol=1e-12)
    cells, of_total = dirichlet.log_beta_terms(jnp.asarray(ALPHA), real)
    np.testing.assert_allclose(of_total, scipy.special.gammaln(total[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(
        cells,
        np.where(ALPHA > 0, scipy.special.gammaln(np.where(ALPHA > 0, ALPHA, 1)), 0),
        rtol=1e-12,
    )


def test_masked_cells_stop_no_gradient():
    real = jnp.asarray(ALPHA > 0)
    for f in (dirichlet.mean_log, lambda a, r: dirichlet.log_beta_terms(a, r)[0]):
        gradient = jax.grad(lambda a, f=f: f(a, real).sum())(jnp.asarray(ALPHA))
        assert bool(jnp.isfinite(gradient).all())
        assert bool((gradient[~real] == 0).all())


def test_draws_have_the_right_moments(dtype):
    n = 20_000
    draws = dirichlet.sample(jax.random.key(1), jnp.asarray(ALPHA.astype(dtype)), (n,))
    assert draws.shape == (n, 2, 4)
    assert draws.dtype == dtype
    draws = np.asarray(draws, np.float64)
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
    assert (draws[:, 0, 3] == 0).all()
    mean, sd = np.asarray(dirichlet.mean(ALPHA)), np.asarray(dirichlet.sd(jnp.asarray(ALPHA)))
    assert (np.abs(draws.mean(0) - mean) <= 4.5 * sd / np.sqrt(n)).all()
    squares = (draws - mean) ** 2
    assert (np.abs(squares.mean(0) - sd**2) <= 4.5 * squares.std(0) / np.sqrt(n)).all()


def test_tiny_concentrations_do_not_underflow(dtype):
    draws = dirichlet.sample(jax.random.key(1), jnp.full(3, 1e-3, dtype), (2000,))
    assert bool(jnp.isfinite(draws).all())
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
    assert abs(float((draws[:, 0] > 0.5).mean()) - 1 / 3) < 4.5 * np.sqrt(2 / 9 / 2000)


def test_marginals_are_betas():
    alpha = jnp.asarray(ALPHA)
    total = ALPHA.sum(-1, keepdims=True)
    real = ALPHA > 0
    reference = scipy.stats.beta(np.where(real, ALPHA, 1), np.where(real, total - ALPHA, 1))
    for q in (0.025, 0.5, 0.9):
        quantile = dirichlet.marginals(alpha).quantile(q)
        np.testing.assert_allclose(
            quantile, np.where(real, reference.ppf(q), 0), rtol=1e-9, atol=1e-300
        )
        cdf = dirichlet.marginals(alpha).cdf(jnp.full_like(alpha, q))
        np.testing.assert_allclose(cdf, np.where(real, reference.cdf(q), 1), rtol=1e-9)


def test_a_category_without_others_is_certain(dtype):
    alone = jnp.asarray([3.0, 0.0], dtype)
    np.testing.assert_array_equal(dirichlet.marginals(alone).quantile(0.3), [1, 0])
    np.testing.assert_array_equal(dirichlet.sd(alone), [0, 0])
    below, at = jnp.asarray([0.99, -0.01], dtype), jnp.asarray([1.0, 0.0], dtype)
    np.testing.assert_array_equal(dirichlet.marginals(alone).cdf(below), [0, 0])
    np.testing.assert_array_equal(dirichlet.marginals(alone).cdf(at), [1, 1])


def test_small_others_are_not_lost():
    # sum alpha - alpha_j is 0 in float32: the marginal would be a point mass at 1.
    alpha = jnp.asarray([1e9, 2.0], jnp.float32)
    np.testing.assert_allclose(1e9 * dirichlet.sd(alpha), np.sqrt(2.0), rtol=1e-5)
    assert float(dirichlet.others(alpha)[0]) == 2.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-3, 1e6), min_size=4, max_size=4), st.permutations(range(4)))
def test_permuting_categories_permutes_everything(alpha, order):
    alpha, order = np.asarray(alpha), np.asarray(order)
    for f in (dirichlet.mean, dirichlet.sd, dirichlet.others):
        np.testing.assert_allclose(
            f(jnp.asarray(alpha[order])), np.asarray(f(jnp.asarray(alpha)))[order], rtol=1e-12
        )


def test_marginal_density(dtype):
    alpha = ALPHA.astype(dtype)
    x = np.array([0.0, 1e-3, 0.2, 0.5, 0.97, 1.0], dtype)
    found = dirichlet.marginals(jnp.asarray(alpha)).density(jnp.asarray(x))
    assert (found.shape, found.dtype) == ((2, 4, 6), dtype)
    a = alpha[..., None].astype(float)
    b = a.sum(1, keepdims=True) - a
    expected = scipy.stats.beta(np.where(a > 0, a, 1), b).pdf(x[1:5].astype(float))
    rtol = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(found[..., 1:5], np.where(a > 0, expected, 0), rtol, 1e-30)
    np.testing.assert_array_equal(found[..., [0, 5]], 0)
    alone = dirichlet.marginals(jnp.asarray([[3.0]], dtype)).density(jnp.asarray(x))
    np.testing.assert_array_equal(alone, 0)
