"""Beta quantiles against scipy, far into the corners."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxprivnb.quantiles import beta_cdf_pdf, beta_quantile, invert_cdf

Q = [1e-6, 1e-3, 0.025, 0.3, 0.5, 0.7, 0.975, 0.999, 1 - 1e-6]
quantile = jax.jit(beta_quantile)


def grid(parameters, dtype):
    a, b, q = (x.ravel().astype(dtype) for x in np.meshgrid(parameters, parameters, Q))
    return a, b, q


def test_extreme_parameters_in_float64():
    a, b, q = grid([1e-2, 0.1, 0.5, 1, 2, 7.3, 30, 1e3, 1e5, 1e6], np.float64)
    x = np.asarray(quantile(a, b, q))
    expected = scipy.stats.beta.ppf(q, a, b)
    resolved = expected > 1e-300  # the smallest normal number is as low as the search goes
    assert (x[~resolved] < 1e-300).all()
    np.testing.assert_allclose(x[resolved], expected[resolved], rtol=1e-8)


def test_float32():
    a, b, q = grid([1e-2, 0.1, 0.5, 1, 2, 7.3, 30, 1e3, 1e5, 1e6], np.float32)
    x = quantile(a, b, q)
    assert x.dtype == jnp.float32
    x, a, b, q = (np.asarray(v, np.float64) for v in (x, a, b, q))
    # As near as the spacing of numbers around x and around 1 - x allows: beyond the mean the CDF
    # comes from 1 - x, whose rounding moves it by eps times the density.
    eps = float(np.finfo(np.float32).eps)
    slack = eps * (60 + 0.5 * (a + b))
    below = scipy.stats.beta.cdf(x * (1 - 8 * eps) - eps * (x > 0.5), a, b)
    above = scipy.stats.beta.cdf(np.minimum(x * (1 + 8 * eps), 1), a, b)
    resolved = scipy.stats.beta.ppf(q, a, b) > 1e-37
    assert (x[~resolved] < 2e-37).all()
    assert (below <= q + slack)[resolved].all()
    assert (above >= q - slack)[resolved].all()


def test_the_ends_and_beyond(dtype):
    q = jnp.asarray([0.0, 1.0, -0.1, 1.1, jnp.nan], dtype)
    a = jnp.full_like(q, 2.0)
    x = quantile(a, a, q)
    np.testing.assert_array_equal(x, [0, 1, np.nan, np.nan, np.nan])


def test_point_masses(dtype):
    a, b = jnp.asarray([0.0, 3.0], dtype), jnp.asarray([3.0, 0.0], dtype)
    np.testing.assert_array_equal(quantile(a, b, jnp.full_like(a, 0.2)), [0, 1])


def test_bad_parameters_give_nan_and_leave_others_alone():
    a = jnp.asarray([2.0, 0.02, 300.0, 5.0])
    b = jnp.asarray([3.0, 40.0, 7.0, 5.0])
    q = jnp.full_like(a, 0.975)
    clean = np.asarray(quantile(a, b, q))
    dirty = np.asarray(quantile(a.at[3].set(jnp.nan), b, q))
    assert np.isnan(dirty[3])
    np.testing.assert_array_equal(dirty[:3], clean[:3])


def test_a_slow_neighbour_changes_no_bit():
    a = jnp.asarray([2.0, 17.0, 300.0, 1.0])
    q = jnp.full_like(a, 0.4)
    easy = np.asarray(quantile(a, a, q))
    hard = np.asarray(quantile(a.at[3].set(1e-2), a.at[3].set(1e6), q))
    np.testing.assert_array_equal(hard[:3], easy[:3])


def test_invert_cdf_of_something_else():
    # F(x) = x^3, whose density vanishes at the left end.
    q = jnp.asarray([1e-9, 1e-3, 0.5, 0.999])
    x = invert_cdf(lambda x: (x**3, 3 * x**2), q, jnp.full_like(q, 0.5))
    np.testing.assert_allclose(x, np.cbrt(q), rtol=1e-13)


def test_cdf_and_density():
    a, b, x = np.array([0.5, 3.0]), np.array([2.0, 40.0]), np.array([0.1, 0.05])
    cdf, pdf = beta_cdf_pdf(jnp.asarray(a), jnp.asarray(b), jnp.asarray(x))
    np.testing.assert_allclose(cdf, scipy.stats.beta.cdf(x, a, b), rtol=1e-12)
    np.testing.assert_allclose(pdf, scipy.stats.beta.pdf(x, a, b), rtol=1e-12)


positive = st.floats(-2, 5).map(lambda e: 10.0**e)


@settings(max_examples=40, deadline=None)
@given(positive, positive, st.floats(1e-5, 1 - 1e-5), st.floats(1e-5, 1 - 1e-5))
def test_monotone_in_q_and_symmetric(a, b, q1, q2):
    aa, bb, low, high = jnp.full(2, a), jnp.full(2, b), min(q1, q2), max(q1, q2)
    x = quantile(aa, bb, jnp.asarray([low, high]))
    assert x[0] <= x[1] * (1 + 1e-7)
    mirrored = 1 - quantile(bb, aa, 1 - jnp.asarray([low, high]))
    np.testing.assert_allclose(x, mirrored, rtol=1e-6, atol=1e-10)
