"""The generative model of the paper's section 5: parameters, records' counts, and noise.

Every replicate draws from keys that are folded from its own indices, so replicate r is the same
whatever batch it is drawn in. A replicate is named by three indices (parameter draw, data set,
noise draw), because the paper redraws data for the same parameters and noise for the same data:

    parameters      fold_in(key, p)
    counts          fold_in(parameters' key, d)
    noise           fold_in(counts' key, e)

In the paper's loop the class counts n[.] are drawn once for each parameter draw, and its data sets
draw the tables n[i,k,.] alone: `class_counts="parameters"`. All data sets then have the class
counts of the first one, so a design of one data set a parameter draw is the same either way.

Equal keys are not enough for equal bits: XLA makes other vector code for other batch sizes. So
replicates go through programs of one fixed width, `LANES` at a time, and a new batch size compiles
nothing. Under an outer `jit` or `vmap` the draws are part of a larger program, and their last bits
can differ.

Noise drawn here is floating point, for simulation only.
"""

import math
import numbers
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from jaxprivnb import dirichlet, validate
from jaxprivnb.noise import Laplace, Noise
from jaxprivnb.tables import (
    NoisyTables,
    Prior,
    full_mask,
    mask_from_categories,
    noise_for,
    resolve_prior,
)

Indices = jax.Array | np.ndarray

STAGES = ("datasets", "parameters")
"""With which stage of the simulation the class counts n[.] can be drawn anew."""

LANES = 256
"""Replicates drawn at once: a multiple of every vector width, so all lanes run the same code."""


class Simulation(NamedTuple):
    """Parameters, true counts and their noisy release, all with the leading axes asked for."""

    class_probs: jax.Array
    """P(Y), `[..., I]`, drawn from Dirichlet(prior.class_)."""
    feature_probs: jax.Array
    """P(X_k | Y=i), `[..., I, K, J]`, from Dirichlet(prior.feature[i,k]); masked cells are 0."""
    counts: jax.Array
    """n, `[..., I, K, J]`, the true counts, held as floats."""
    tables: NoisyTables
    """m = n + noise."""

    def __repr__(self) -> str:
        return f"Simulation(class_probs, feature_probs, counts, tables={self.tables!r})"


class Replicate(NamedTuple):
    """The indices that name replicates: whole numbers >= 0, arrays of one common shape."""

    parameter: Indices
    """Which draw of P(Y) and P(X|Y)."""
    dataset: Indices
    """Which data set drawn from those parameters."""
    noise: Indices
    """Which noise added to that data set."""


def simulate(
    key: jax.Array,
    *,
    n_records: ArrayLike = 200,
    n_classes: int = 2,
    n_categories: tuple[int, ...] = (2,) * 5,
    noise: Noise | None = None,
    shape: tuple[int, ...] = (),
    prior: Prior | None = None,
    parameters: tuple[ArrayLike, ArrayLike] | None = None,
    dtype: DTypeLike | None = None,
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
        parameters: (P(Y) `[I]`, P(X|Y) `[I, K, J]`) of every replicate, in place of draws.
        dtype: of every array; JAX's default float if None.
    """
    shape = _shape(shape)
    r = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    first = np.zeros_like(r)
    return simulate_replicates(
        key,
        Replicate(r, first, first),
        n_records=n_records,
        n_classes=n_classes,
        n_categories=n_categories,
        noise=noise,
        prior=prior,
        parameters=parameters,
        dtype=dtype,
    )


def simulate_replicates(
    key: jax.Array,
    replicates: Replicate,
    *,
    n_records: ArrayLike = 200,
    n_classes: int = 2,
    n_categories: tuple[int, ...] = (2,) * 5,
    noise: Noise | None = None,
    prior: Prior | None = None,
    parameters: tuple[ArrayLike, ArrayLike] | None = None,
    class_counts: str = "datasets",
    dtype: DTypeLike | None = None,
) -> Simulation:
    """Draw the named replicates.

    Args:
        key: a JAX random key.
        replicates: which draws to make; their shape leads every array.
        n_records: see `simulate`, and so for the rest.
        n_classes: I.
        n_categories: J_k for each feature k.
        noise: the noise added to each count.
        prior: where parameters are drawn from.
        parameters: what they are, in place of draws.
        class_counts: the stage with which n[.] is drawn anew, "datasets" or, as in section 5 of
            the paper, "parameters".
        dtype: of every array.
    """
    validate.choice("class_counts", class_counts, STAGES)
    key = validate.random_key("key", key)
    ids = _common_shape(replicates)
    dtype = validate.float_dtype("dtype", dtype)
    n_classes = validate.whole_number("n_classes", n_classes, at_least=1)
    sizes = validate.n_categories(n_categories)
    cells = jnp.zeros((n_classes, len(sizes), max(sizes)), dtype)
    N = validate.n_records(n_records, dtype, ())
    noise = noise_for(Laplace(20.0) if noise is None else noise, dtype, (), len(sizes))
    mask = mask_from_categories(sizes)
    real = full_mask(cells, mask)
    fixed = None if parameters is None else _fixed(parameters, cells, real)
    prior = resolve_prior(prior, cells, mask)

    draw = partial(
        _draw, key, N=N, noise=noise, prior=prior, real=real, fixed=fixed,
        class_counts=class_counts,
    )  # fmt: skip
    concrete = all(map(validate.is_concrete, jax.tree.leaves((key, ids, N, noise, prior, fixed))))
    if concrete:
        p_class, p_feature, n, m = _in_chunks(draw, ids)
    else:
        p_class, p_feature, n, m = draw(Replicate(*map(jnp.ravel, ids)))

    shape = np.shape(ids.parameter)
    xp = np if concrete else jnp  # NumPy has nothing to compile for a new shape
    lead = lambda x: jnp.asarray(xp.reshape(x, (*shape, *x.shape[1:])))  # noqa: E731
    every = lambda x: jnp.asarray(xp.broadcast_to(x, (*shape, *x.shape)))  # noqa: E731
    tables = NoisyTables(
        lead(m), every(N), jax.tree.map(every, noise), None if mask is None else every(mask)
    )
    return Simulation(lead(p_class), lead(p_feature), lead(n), tables)


class _Stages(NamedTuple):
    """What the stages of the simulation drew, for replicates on one axis."""

    class_probs: jax.Array | np.ndarray
    """P(Y), `[R, I]`."""
    feature_probs: jax.Array | np.ndarray
    """P(X_k | Y=i), `[R, I, K, J]`."""
    counts: jax.Array | np.ndarray
    """n, `[R, I, K, J]`."""
    noisy: jax.Array | np.ndarray
    """m = n + noise, `[R, I, K, J]`."""


def _in_chunks(draw: Callable[[Replicate], _Stages], ids: Replicate) -> _Stages:
    """`draw` of all replicates on one axis, `LANES` at a time; spare lanes draw replicate 0."""
    size = np.size(ids.parameter)
    n_chunks = max(1, -(-size // LANES))
    lanes = np.zeros((3, n_chunks * LANES), np.int32)
    lanes[:, :size] = [np.ravel(index) for index in ids]
    parts = [
        draw(Replicate(*lanes[:, c * LANES : (c + 1) * LANES].copy())) for c in range(n_chunks)
    ]
    return _Stages(*(np.concatenate(arrays)[:size] for arrays in zip(*parts, strict=True)))


def _draw(
    key: jax.Array,
    ids: Replicate,
    *,
    N: jax.Array,
    noise: Noise,
    prior: Prior,
    real: jax.Array,
    fixed: tuple[jax.Array, jax.Array] | None,
    class_counts: str,
) -> _Stages:
    """Section 5 of the paper for replicates `[R]`."""
    if fixed is None:
        p_class, p_feature = _parameters(key, ids, prior, real)
    else:
        size = ids.parameter.shape
        p_class, p_feature = (jnp.broadcast_to(p, (*size, *p.shape)) for p in fixed)
    classes = ids if class_counts == "datasets" else ids._replace(dataset=0 * ids.dataset)
    n = _counts(key, ids, classes, N, p_class, p_feature)
    return _Stages(p_class, p_feature, n, _noisy(key, ids, n, noise, real))


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, None, None))
def _parameters(
    key: jax.Array, replicate: Replicate, prior: Prior, real: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(P(Y) `[I]`, P(X|Y) `[I, K, J]`) from the prior."""
    key_class, key_feature = jax.random.split(_keys(key, replicate).parameter)
    p_class = dirichlet.sample(key_class, prior.class_)
    return p_class, dirichlet.sample(key_feature, jnp.where(real, prior.feature, 0))


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, 0, None, 0, 0))
def _counts(
    key: jax.Array,
    replicate: Replicate,
    classes: Replicate,
    N: jax.Array,
    p_class: jax.Array,
    p_feature: jax.Array,
) -> jax.Array:
    """True counts `[I, K, J]`: n[.] ~ Multinomial(N, p), n[i,k,.] ~ Multinomial(n[i], p[i,k,.]).

    The class counts n[.] are those of the replicate `classes`.
    """
    key_class, _ = jax.random.split(_keys(key, classes).dataset)
    _, key_cells = jax.random.split(_keys(key, replicate).dataset)
    n_class = jax.random.multinomial(key_class, N, p_class, dtype=N.dtype)
    rows = jnp.broadcast_to(n_class[:, None], p_feature.shape[:-1])
    return jax.random.multinomial(key_cells, rows, p_feature, dtype=N.dtype)


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, 0, None, None))
def _noisy(
    key: jax.Array, replicate: Replicate, n: jax.Array, noise: Noise, real: jax.Array
) -> jax.Array:
    """Noisy counts m = n + noise `[I, K, J]`; 0 in masked cells."""
    by_cell = jax.tree.map(lambda s: s[:, None] if s.ndim == 1 else s, noise)
    added = by_cell.sample(_keys(key, replicate).noise, n.shape)
    return jnp.where(real, n + added, 0)


def _keys(key: jax.Array, replicate: Replicate) -> Replicate:
    """The random keys of one replicate's parameters, counts and noise."""
    parameter = jax.random.fold_in(key, replicate.parameter)
    dataset = jax.random.fold_in(parameter, replicate.dataset)
    return Replicate(parameter, dataset, jax.random.fold_in(dataset, replicate.noise))


def _fixed(parameters: Any, cells: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`parameters`, checked: (P(Y) `[I]`, P(X|Y) `[I, K, J]`), 0 in masked cells."""
    if not isinstance(parameters, tuple) or len(parameters) != 2:
        raise TypeError(
            "parameters must be a pair (P(Y) [I], P(X|Y) [I, K, J]), got "
            f"{validate.describe(parameters)}"
        )
    found = []
    for name, given, shape in zip(
        ("P(Y)", "P(X|Y)"), parameters, (cells.shape[:1], cells.shape), strict=True
    ):
        p = validate.as_float_array(f"parameters, {name}", given, cells.dtype)
        if p.shape != shape:
            raise ValueError(f"parameters: {name} must have shape {shape}, got {p.shape}")
        p = jnp.where(real, p, 0) if p.ndim == 3 else p
        if validate.is_concrete(p):
            values = np.asarray(p, np.float64)
            if not (values >= 0).all() or (np.abs(values.sum(-1) - 1) > 1e-5).any():
                raise ValueError(f"parameters: {name} must be probabilities that add up to 1")
        found.append(p)
    return found[0], found[1]


def _common_shape(replicates: Replicate) -> Replicate:
    """`replicates`, checked: whole numbers >= 0, of one shape."""
    if not isinstance(replicates, Replicate):
        raise TypeError(
            f"replicates must be a Replicate of indices, got {validate.describe(replicates)}"
        )
    for name, index in zip(Replicate._fields, replicates, strict=True):
        values = index if isinstance(index, jax.Array) else np.asarray(index)
        if not jnp.issubdtype(values.dtype, jnp.integer):
            raise TypeError(f"replicates.{name} must hold whole numbers, got dtype {values.dtype}")
        if values.shape != np.shape(replicates.parameter):
            raise ValueError(
                f"replicates.{name} must have the shape of replicates.parameter, "
                f"{np.shape(replicates.parameter)}, got {values.shape}"
            )
        if validate.is_concrete(values) and (np.asarray(values) < 0).any():
            raise ValueError(f"replicates.{name} must be >= 0, got {np.asarray(values).min()}")
    return replicates


def _shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, numbers.Integral):
        shape = (shape,)
    if not isinstance(shape, tuple | list):
        raise TypeError(
            f"shape must be a whole number or a tuple of them, got {validate.describe(shape)}"
        )
    return tuple(validate.whole_number("shape", s) for s in shape)
