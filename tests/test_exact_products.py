"""Products of all and of all but one."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxprivnb.exact.products import pairs_by_feature, product_and_others, products_by_feature


@pytest.mark.parametrize("J", [1, 2, 3, 5, 8, 13])
def test_product_and_others(J):
    x = np.random.default_rng(J).normal(size=(2, J, 4))
    total, others = product_and_others(jnp.asarray(x))
    np.testing.assert_allclose(total, x.prod(1), rtol=1e-13)
    expected = np.stack([np.delete(x, j, axis=1).prod(1) for j in range(J)], 1)
    np.testing.assert_allclose(others, expected, rtol=1e-13)


def test_a_zero_spoils_no_other_product():
    x = jnp.asarray([[2.0], [0.0], [3.0]])
    total, others = product_and_others(x)
    np.testing.assert_array_equal(total, [0.0])
    np.testing.assert_array_equal(others[:, 0], [0.0, 6.0, 0.0])


@pytest.mark.parametrize("sizes", [(3, 3), (1, 2, 5), (42, 2, 7, 6, 1), (9, 16, 7, 15, 6, 5)])
def test_features_keep_to_themselves(sizes):
    C = sum(sizes)
    x = np.random.default_rng(1).uniform(0.5, 2, (2, C, 3))
    total, others = products_by_feature(jnp.asarray(x), sizes)
    begin = np.concatenate([[0], np.cumsum(sizes)])
    for k, size in enumerate(sizes):
        rows = slice(begin[k], begin[k] + size)
        np.testing.assert_allclose(total[:, k], x[:, rows].prod(1), rtol=1e-12)
        expected = x[:, rows].prod(1, keepdims=True) / x[:, rows]
        np.testing.assert_allclose(others[:, rows], expected, rtol=1e-12)


def test_pairs_within_features():
    rng = np.random.default_rng(2)
    row = np.array([[0, 1, 8], [2, 8, 8], [3, 4, 5], [8, 6, 7]])
    x, y = rng.normal(size=(2, 2, 8, 5))
    expected = np.zeros((2, 4, 5))
    for k, cells in enumerate(row):
        own = [c for c in cells if c < 8]
        for a, b in itertools.combinations(own, 2):
            rest = [c for c in own if c not in (a, b)]
            expected[:, k] += y[:, a] * y[:, b] * x[:, rest].prod(1)
    np.testing.assert_allclose(pairs_by_feature(jnp.asarray(x), jnp.asarray(y), row), expected)
