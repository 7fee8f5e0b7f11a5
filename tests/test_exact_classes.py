"""The classes' counts add up to N: sums over them, and their distributions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxprivnb.exact.classes import Rows, class_counts, reflected, root, suffixes, tilted

W, N = 24, 30


def messages(I, steep, seed=0):
    """Random log h `[I, W]` on windows with different starts, and these."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 5, I).astype(float)
    log_h = -steep * np.abs(np.arange(W) - rng.uniform(0, W, (I, 1))) + rng.normal(size=(I, W))
    return jnp.asarray(log_h), jnp.asarray(start)


def on_all_counts(log_h, start):
    out = np.full((len(log_h), N + 1), -np.inf)
    for i, first in enumerate(np.asarray(start, int)):
        n = first + np.arange(W)
        out[i, n[n <= N]] = np.asarray(log_h[i])[n <= N]
    return out


@pytest.mark.parametrize("steep", [0.1, 3.0, 40.0])
@pytest.mark.parametrize("I", [2, 3, 5])
def test_root_is_the_sum_over_all_class_counts(I, steep):
    log_h, start = messages(I, steep)
    found = root(Rows(log_h, start, jnp.asarray(float(N))))
    full = on_all_counts(log_h, start)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = functools.reduce(oracles.log_convolve, full)[N]
        assert float(found.log_total) == pytest.approx(total, rel=1e-12)
        for i in range(I):
            others = functools.reduce(oracles.log_convolve, np.delete(full, i, 0))
            pmf = np.exp(full[i] + others[::-1] - total)
            n = np.asarray(class_counts(start, W)[i], int)
            np.testing.assert_allclose(found.pmf[i][n <= N], pmf[n[n <= N]], atol=1e-12)


def test_one_class_has_all_records():
    log_h, start = messages(1, 1.0)
    found = root(Rows(log_h, start, jnp.asarray(12.0)))
    at = 12 - int(start[0])
    assert float(found.log_total) == float(log_h[0, at])
    np.testing.assert_array_equal(found.pmf[0], np.arange(W) == at)


def test_a_tilt_changes_no_total_and_moves_the_modes():
    n = np.arange(40.0)
    centres = np.array([[25.0], [14], [22]])
    log_h, start = jnp.asarray(-0.5 * np.square(n - centres)), jnp.zeros(3)
    h, _ = tilted(log_h, start, jnp.asarray(30.0))
    assert abs(np.argmax(np.asarray(h), -1).sum() - 30) <= 3
    found = root(Rows(log_h, start, jnp.asarray(30.0)))
    full = functools.reduce(oracles.log_convolve, np.asarray(log_h))[30]
    assert full < -100  # a product of the largest entries is far from it
    assert float(found.log_total) == pytest.approx(full, rel=1e-13)


def test_suffixes_are_convolutions_of_the_later_classes():
    log_h, start = messages(3, 0.5)
    found, begins = suffixes(log_h, start, jnp.asarray(float(N)))
    h = np.asarray(tilted(log_h, start, jnp.asarray(float(N)))[0])
    np.testing.assert_array_equal(begins, np.cumsum(np.asarray(start)[::-1])[::-1])
    last = h[2]
    np.testing.assert_allclose(found[2], last, rtol=1e-13)
    for i, expected in (
        (1, np.convolve(h[1], last)),
        (0, np.convolve(h[0], np.convolve(h[1], last))),
    ):
        got = np.asarray(found[i])
        np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-14 * expected.max())
        np.testing.assert_allclose(got[len(expected) :], 0, atol=1e-14 * expected.max())


def test_reflected():
    x = jnp.arange(1.0, 6.0)  # of counts 3, ..., 7
    got = reflected(x, jnp.asarray(3.0), jnp.asarray(10.0), jnp.asarray(1.0), fill=0.0, length=9)
    np.testing.assert_array_equal(got, [0, 0, 5, 4, 3, 2, 1, 0, 0])


def test_the_distributions_are_derivatives_of_the_total():
    log_h, start = messages(3, 1.0)
    slope = jax.grad(lambda h: root(Rows(h, start, jnp.asarray(float(N)))).log_total)(log_h)
    found = root(Rows(log_h, start, jnp.asarray(float(N))))
    np.testing.assert_allclose(slope, found.pmf, atol=1e-11)
