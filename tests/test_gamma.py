"""Gamma functions in forms whose size is that of the answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln

from jaxprivnb.gamma import log_gamma_excess, log_gamma_ratio


def test_ratio_gradient_is_digamma():
    slope = jax.grad(log_gamma_ratio, argnums=1)(jnp.asarray(3.0), jnp.asarray(1.7))
    assert float(slope) == pytest.approx(digamma(4.7), rel=1e-13)


@pytest.mark.parametrize("a", [1e-3, 0.5, 1.0, 2.5, 300.0])
def test_excess_against_scipy_where_it_does_not_cancel(a, dtype):
    n = np.array([0.0, 1e-30, 1e-6, 0.3, 1.0, 9.7, 60.0])
    expected = gammaln(n + a) - np.where(n > 0, n * np.log(np.where(n > 0, n, 1)), 0) + n
    got = log_gamma_excess(jnp.asarray(n, dtype), jnp.asarray(a, dtype))
    assert got.dtype == dtype
    size = 1 + (n + a) * np.log(n + a + 10)  # of scipy's terms, not of ours
    assert np.all(np.abs(np.asarray(got, float) - expected) < 20 * jnp.finfo(dtype).eps * size)


@pytest.mark.parametrize("n", [1e6, 1e12])
def test_excess_keeps_its_digits_at_large_counts(n, dtype):
    a = 2.5
    # n log(1 + a/n) + (a - 1/2) log(n + a) - a + log(2 pi) / 2, beyond Stirling's first term.
    expected = n * np.log1p(a / n) + 2 * np.log(n + a) - a + 0.5 * np.log(2 * np.pi)
    got = float(log_gamma_excess(jnp.asarray(n, dtype), jnp.asarray(a, dtype)))
    assert got == pytest.approx(expected + 1 / (12 * n), rel=8 * float(jnp.finfo(dtype).eps))
