"""Rising weights keep their digits at large counts."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxprivnb.exact.rising import log_rising, log_rising_window


def exact_log_rising(count, a):
    """log prod_t (a + t - 1) / t, its terms of one sign and added without rounding."""
    steps = np.log1p((a - 1) / np.arange(2.0, count + 1))
    return math.fsum([math.log(a), *steps]) if count else 0.0


def following(start, a, length):
    """Increments of the log weight from `start` on, in extended precision."""
    count = np.arange(start + 1, start + length, dtype=np.longdouble)
    return np.concatenate([[0.0], np.cumsum(np.log((count - 1 + a) / count))]).astype(float)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, 12_345, 1_000_000])
@pytest.mark.parametrize("a", [1e-3, 0.5, 1.0, 2.5, 50.0, 1e4])
def test_log_rising_against_a_sum_without_rounding(count, a):
    got = float(log_rising(jnp.asarray(float(count)), jnp.asarray(a)))
    expected = exact_log_rising(count, a)
    assert got == pytest.approx(expected, rel=2e-14, abs=5e-13)


@pytest.mark.parametrize("start", [0, 1, 999_000])
@pytest.mark.parametrize("a", [1e-3, 0.5, 3.25])
def test_window_against_a_sum_without_rounding(start, a):
    got = log_rising_window(jnp.asarray([float(start)]), jnp.asarray([a]), 400)[0]
    expected = exact_log_rising(start, a) + following(start, a, 400)
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-12)


def test_uniform_prior_is_exactly_zero(dtype):
    got = log_rising_window(jnp.asarray([123_456.0], dtype), jnp.ones(1, dtype), 300)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, 0)


def test_float32_holds_at_a_million():
    a = jnp.asarray([2.5], jnp.float32)
    got = log_rising_window(jnp.asarray([1e6], jnp.float32), a, 64)[0]
    expected = exact_log_rising(1_000_000, 2.5) + following(1_000_000, 2.5, 64)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
