"""Shared set-up: float64 available, dtypes never mixed by accident."""

import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    """The dtype that a test's input arrays should have."""
    return jnp.dtype(request.param)
