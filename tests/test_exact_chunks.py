"""Mapping in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxprivnb.exact.chunks import map_in_chunks


@pytest.mark.parametrize("size", [0, 1, 4, 7, 8])
def test_it_is_vmap_for_any_length(size):
    xs = {"a": jnp.arange(2.0 * size).reshape(size, 2), "b": jnp.arange(float(size))}
    f = lambda x: (x["a"] * x["b"], x["a"].sum())  # noqa: E731
    for got, expected in zip(map_in_chunks(f, xs, 4), jax.vmap(f)(xs), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_keys_too_and_the_function_is_traced_once():
    traced = []

    def f(key):
        traced.append(key)
        return jax.random.normal(key)

    keys = jax.random.split(jax.random.key(0), 7)
    np.testing.assert_array_equal(map_in_chunks(f, keys, 3), jax.vmap(jax.random.normal)(keys))
    assert len(traced) == 1
