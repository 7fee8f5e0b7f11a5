"""Rows cut from longer ones, and lengths that programs come in."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxprivnb.exact.windows import bucket, cut, fast_length, roll


@pytest.mark.parametrize("start", [-9, -2, 0, 3, 5, 20])
def test_cut_fills_outside(start):
    x = jnp.arange(1.0, 6.0)
    expected = [x[start + t] if 0 <= start + t < 5 else -1.0 for t in range(4)]
    np.testing.assert_array_equal(cut(x, jnp.asarray(float(start)), 4, -1.0), expected)


@pytest.mark.parametrize("length", [None, 3, 12])
def test_roll_goes_on_with_the_beginning(length):
    x = jnp.arange(10.0).reshape(2, 5)
    shift = jnp.asarray([[-7.0], [13.0]])[:, 0]
    at = (np.asarray(shift)[:, None] + np.arange(length or 5)).astype(int) % 5
    expected = np.take_along_axis(np.asarray(x), at, axis=1)
    np.testing.assert_array_equal(roll(x, shift, length), expected)


def test_lengths_are_few_and_enough():
    lengths = {bucket(n) for n in range(1, 5000)}
    assert len(lengths) <= 26
    assert all(bucket(n) >= n for n in range(1, 5000))
    assert all(bucket(bucket(n)) == bucket(n) for n in range(1, 5000))


def test_fast_lengths_are_even_and_have_small_factors():
    for n in range(1, 5000):
        length = fast_length(n)
        assert length >= n
        assert length % 2 == 0
        assert length <= max(8, 1.25 * n)
        for p in (2, 3, 5):
            while length % p == 0:
                length //= p
        assert length == 1
