"""Convolutions keep every entry's digits, and so do their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxprivnb.exact.convolve import align, convolve, log_convolve, slide, truncated


def steep(seed, length):
    """Logs of sequences that fall by hundreds of nats."""
    rng = np.random.default_rng(seed)
    centre, scale = rng.uniform(0, length, (3, 1)), rng.uniform(0.3, 0.6, (3, 1))
    return -np.abs(np.arange(length) - centre) / scale


def test_every_entry_is_right_to_rounding():
    u, v = steep(0, 70), steep(1, 70)
    got = np.log(convolve(jnp.exp(u), jnp.exp(v), 70))
    expected = np.stack([oracles.log_convolve(a, b) for a, b in zip(u, v, strict=True)])
    assert expected.min() < -100  # far below what an FFT resolves
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(("s", "r", "length"), [(5, 3, None), (3, 40, 20), (33, 17, 60)])
def test_lengths(s, r, length):
    rng = np.random.default_rng(2)
    u, v = rng.uniform(size=(2, s)), rng.uniform(size=(2, r))
    full = np.stack([np.convolve(a, b) for a, b in zip(u, v, strict=True)])
    expected = np.pad(full, ((0, 0), (0, 100)))[:, : length or s + r - 1]
    np.testing.assert_allclose(convolve(u, v, length), expected, rtol=1e-13)
    logs = jax.vmap(lambda a, b: log_convolve(a, b, length))(jnp.log(u), jnp.log(v))
    np.testing.assert_allclose(np.exp(logs), expected, rtol=1e-12)


@pytest.mark.parametrize("length", [7, 64, 96, 130, 256])
def test_truncated_and_its_gradient_are_those_of_the_full_convolution(length):
    rng = np.random.default_rng(4)
    u, v, ct = (rng.uniform(size=(2, length)) for _ in range(3))
    for a, b, row in zip(u, v, truncated(u, v), strict=True):
        np.testing.assert_allclose(row, np.convolve(a, b)[:length], rtol=1e-13)
    to_u, to_v = jax.grad(lambda u, v: (truncated(u, v) * ct).sum(), argnums=(0, 1))(u, v)
    for a, b, c, du, dv in zip(u, v, ct, to_u, to_v, strict=True):
        np.testing.assert_allclose(du, np.convolve(c[::-1], b)[:length][::-1], rtol=1e-13)
        np.testing.assert_allclose(dv, np.convolve(c[::-1], a)[:length][::-1], rtol=1e-13)


def test_slide_gradient_is_that_of_the_plain_sum():
    rng = np.random.default_rng(3)
    u, x, ct = rng.normal(size=20), rng.normal(size=50), rng.normal(size=31)

    def plain(u, x):
        return jnp.stack([jnp.dot(u[::-1], x[t : t + 20]) for t in range(31)]) @ ct

    got = jax.grad(lambda u, x: slide(u, x) @ ct, argnums=(0, 1))(u, x)
    for a, b in zip(got, jax.grad(plain, argnums=(0, 1))(u, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_log_convolve_gradient_with_zeros():
    rng = np.random.default_rng(4)
    u, v, ct = rng.normal(size=9), rng.normal(size=9), rng.uniform(size=9)
    u[2], v[:3] = -np.inf, -np.inf  # the first entries of the result are zeros

    def through_logs(u, v):
        out = log_convolve(u, v, 9)
        return jnp.sum(jnp.where(jnp.isfinite(out), out, 0) * ct)

    def through_numbers(p, r):
        out = jnp.convolve(p, r)[3:9]
        return jnp.log(out) @ ct[3:]

    slopes = jax.grad(through_numbers, argnums=(0, 1))(jnp.exp(u), jnp.exp(v))
    for got, slope, x in zip(
        jax.grad(through_logs, argnums=(0, 1))(jnp.asarray(u), jnp.asarray(v)),
        slopes,
        (u, v),
        strict=True,
    ):
        np.testing.assert_allclose(got, slope * np.exp(x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("start", [-9, -2, 0, 3, 5, 20])
def test_align_fills_outside(start):
    x = jnp.arange(1.0, 6.0)
    expected = [x[start + t] if 0 <= start + t < 5 else -1.0 for t in range(4)]
    np.testing.assert_array_equal(align(x, jnp.asarray(start, jnp.int32), 4, -1.0), expected)
