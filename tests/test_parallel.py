"""Mapping in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxprivnb.parallel import in_threads, map_in_chunks, one_by_one


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


def test_one_by_one_is_vmap():
    row = jnp.arange(20.0)
    f = lambda at: jax.lax.dynamic_slice_in_dim(row, at, 3)  # noqa: E731
    at = jnp.asarray([4, 0, 17])
    for got in (one_by_one(f, at), jax.jit(lambda at: one_by_one(f, at))(at)):
        np.testing.assert_array_equal(got, jax.vmap(f)(at))
    both = jnp.stack([at, at[::-1]])
    np.testing.assert_array_equal(
        jax.vmap(lambda at: one_by_one(f, at))(both), jax.vmap(jax.vmap(f))(both)
    )


@pytest.mark.parametrize("size", [5, 1024, 1031])
def test_threads_change_nothing(size):
    x, y = np.random.default_rng(0).normal(size=(2, size, 3))
    f = jax.jit(lambda x, y: {"sum": x + y, "row": x.sum(-1)})
    for got in (in_threads(f, x, y), jax.jit(lambda x, y: in_threads(f, x, y))(x, y)):
        jax.tree.map(np.testing.assert_array_equal, got, f(x, y))


def test_threads_have_the_precision_of_their_caller():
    seen = []

    def f(x):
        seen.append(jax.config.jax_enable_x64)
        return x

    with jax.enable_x64(False):
        in_threads(f, np.ones((1024, 2), np.float32))
    assert not any(seen)
