"""The generative model of the paper's section 5: parameters, records' counts, and noise.

Every replicate draws from keys that are folded from its own indices, so replicate r is the same
whatever batch it is drawn in. A replicate is named by three indices (parameter draw, data set,
noise draw), because the paper redraws data for the same parameters and noise for the same data:

    parameters      fold_in(key, p)
    counts          fold_in(parameters' key, d)
    noise           fold_in(counts' key, e)

Noise drawn here is floating point, for simulation only.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb import dirichlet, validate
from jaxprivnb.noise import Laplace, Noise
from jaxprivnb.tables import NoisyTables, Prior, mask_from_categories


class Simulation(NamedTuple):
    """Parameters, true counts and their noisy release; every array has the leading axes asked for."""

    class_probs: jax.Array
    """P(Y), `[..., I]`, drawn from Dirichlet(prior.class_)."""
    feature_probs: jax.Array
    """P(X_k | Y=i), `[..., I, K, J]`, drawn from Dirichlet(prior.feature[i,k]); masked cells are 0."""
    counts: jax.Array
    """n, `[..., I, K, J]`, the true counts, held as floats."""
    tables: NoisyTables
    """m = n + noise."""


class Replicate(NamedTuple):
    """The indices that name replicates; int32 arrays of one common shape."""

    parameter: jax.Array
    """Which draw of P(Y), P(X|Y)."""
    dataset: jax.Array
    """Which data set drawn from those parameters."""
    noise: jax.Array
    """Which noise added to that data set."""


def simulate(
    key: jax.Array,
    *,
    n_records: Any = 200,
    n_classes: int = 2,
    n_categories: tuple[int, ...] = (2,) * 5,
    noise: Noise | None = None,
    shape: tuple[int, ...] = (),
    prior: Prior | None = None,
    dtype: Any = None,
) -> Simulation:
    """Draw independent replicates of the whole model.

    Args:
        key: a JAX random key.
        n_records: N, public.
        n_classes: I.
        n_categories: J_k for each feature k; unequal numbers give a mask.
        noise: the noise added to each count; `Laplace(20.0)` if None.
        shape: leading axes of every array; replicate r is the r-th in row-major order.
        prior: where parameters are drawn from, shapes `[I]` and `[I, K, J]`; uniform if None.
        dtype: of every array; JAX's default float if None.
    """
    shape = _shape(shape)
    r = jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
    first = jnp.zeros_like(r)
    return simulate_replicates(
        key,
        Replicate(r, first, first),
        n_records=n_records,
        n_classes=n_classes,
        n_categories=n_categories,
        noise=noise,
        prior=prior,
        dtype=dtype,
    )


def nested_replicates(parameters: int, datasets: int, noises: int) -> Replicate:
    """The paper's design: shape `[parameters, datasets, noises]`, every combination once."""
    counts = [
        validate.whole_number(name, value, at_least=1)
        for name, value in (("parameters", parameters), ("datasets", datasets), ("noises", noises))
    ]
    return Replicate(*jnp.meshgrid(*(jnp.arange(c, dtype=jnp.int32) for c in counts), indexing="ij"))


def simulate_replicates(
    key: jax.Array,
    replicates: Replicate,
    *,
    n_records: Any = 200,
    n_classes: int = 2,
    n_categories: tuple[int, ...] = (2,) * 5,
    noise: Noise | None = None,
    prior: Prior | None = None,
    dtype: Any = None,
) -> Simulation:
    """Draw the named replicates; see `simulate` for the arguments."""
    dtype = jnp.result_type(float) if dtype is None else jax.dtypes.canonicalize_dtype(dtype)
    I = validate.whole_number("n_classes", n_classes, at_least=1)
    sizes = validate.n_categories(n_categories)
    N = validate.n_records(n_records, dtype, ())
    noise = Laplace(20.0) if noise is None else noise
    if not isinstance(noise, Noise):
        raise TypeError(f"noise must be Laplace, Geometric, Gaussian or another noise object, got {noise!r}")
    full = (I, len(sizes), max(sizes))
    mask = mask_from_categories(sizes)
    if prior is None:
        prior = Prior(jnp.ones(full[:1], dtype), jnp.ones(full, dtype))
    validate.concentration("prior.class_", prior.class_, full[:1])
    validate.concentration("prior.feature", prior.feature, full, mask)
    to_dtype = partial(jax.tree.map, lambda x: x.astype(dtype))
    return _simulate(key, replicates, N, to_dtype(noise), to_dtype(prior), mask)


@jax.jit
def _simulate(
    key: jax.Array,
    replicates: Replicate,
    N: jax.Array,
    noise: Any,
    prior: Prior,
    mask: jax.Array | None,
) -> Simulation:
    """`Simulation` with the replicates' leading axes on every leaf."""
    one = partial(_simulate_one, key, N=N, noise=noise, prior=prior, mask=mask)
    for _ in replicates.parameter.shape:
        one = jax.vmap(one)
    return one(replicates)


def _simulate_one(
    key: jax.Array,
    replicate: Replicate,
    *,
    N: jax.Array,
    noise: Any,
    prior: Prior,
    mask: jax.Array | None,
) -> Simulation:
    """Steps 1 to 4 of section 5, and the noise of its inner loop, for one replicate."""
    parameter_key = jax.random.fold_in(key, replicate.parameter)
    data_key = jax.random.fold_in(parameter_key, replicate.dataset)
    noise_key = jax.random.fold_in(data_key, replicate.noise)

    key_class, key_feature = jax.random.split(parameter_key)
    real = jnp.ones(prior.feature.shape[1:], bool) if mask is None else mask
    p_class = dirichlet.sample(key_class, prior.class_)
    p_feature = dirichlet.sample(key_feature, jnp.where(real, prior.feature, 0))

    key_n, key_cells = jax.random.split(data_key)
    n_class = jax.random.multinomial(key_n, N, p_class, dtype=N.dtype)
    n = jax.random.multinomial(
        key_cells, jnp.broadcast_to(n_class[:, None], p_feature.shape[:-1]), p_feature, dtype=N.dtype
    )
    n = jnp.where(real, n, 0)

    by_cell = jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, noise)
    m = jnp.where(real, n + by_cell.sample(noise_key, n.shape), 0)
    tables = NoisyTables(m, N, noise, mask)
    return Simulation(p_class, p_feature, n, tables)


def _shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, int):
        shape = (shape,)
    return tuple(validate.whole_number("shape", s) for s in shape)
