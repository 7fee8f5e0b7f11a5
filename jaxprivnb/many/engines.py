"""How each method is run on a segment of datasets: compiled once for a shape, then called often.

An engine turns a segment (tables and prior with leading axis Q, the first `length` of them real)
into the method's posterior with leading axis Q. Variational fits take different numbers of
iterations and go through refilled lanes; the others cost the same for every dataset and are mapped
over lanes at a time.
"""

import dataclasses
import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxprivnb import validate
from jaxprivnb.baselines import _fit_naive
from jaxprivnb.exact import fit as exact_fit
from jaxprivnb.exact import window
from jaxprivnb.many import lanes as lanes_
from jaxprivnb.many.lanes import BLOCK, by_blocks
from jaxprivnb.tables import NoisyTables, Prior
from jaxprivnb.variational import ascent
from jaxprivnb.variational import fit as vb_fit
from jaxprivnb.variational.ascent import Limits, Method
from jaxprivnb.variational.bound import Data
from jaxprivnb.variational.starts import NAMES, Theta, check_start, start_points

EXACT_NUMBERS = 2**16
"""Window entries of all cells that exact fits hold at a time; a power of two. Large windows are
fitted fewer at a time, and how many depends on the windows alone, never on the batch. Few, so
that they stay in a core's cache (bench/exact_throughput.py)."""


class Work(NamedTuple):
    """What was done on a segment, for measuring."""

    useful: jax.Array
    """Steps that the datasets needed, float32."""
    executed: jax.Array
    """Lane-steps executed, float32."""


class Engine(Protocol):
    """A method with its options; hashable, so that the compiled segment is keyed by it."""

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, lanes: int
    ) -> tuple[Any, Work]:
        """Fit a segment; `index [Q]` is each dataset's place in the whole batch."""
        ...

    def grain(self, tables: NoisyTables, lanes: int) -> int:
        """How many datasets are worked on at a time; a segment holds a multiple of that."""
        ...


@dataclasses.dataclass(frozen=True)
class Naive:
    """Noisy counts at face value."""

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, lanes: int
    ) -> tuple[Any, Work]:
        """One pass over the segment."""
        return by_blocks(_fit_naive, tables, prior, length=length), _all_useful(length)

    def grain(self, tables: NoisyTables, lanes: int) -> int:
        """All lanes."""
        return lanes


@dataclasses.dataclass(frozen=True)
class Exact:
    """The exact posterior on windows planned for the whole batch."""

    layout: window.Layout
    tolerance: float
    shared_prior: bool = False
    """Whether all datasets have the same prior, whose weights are then computed once a block."""
    flat: bool = False
    """Whether the weights of all cells are geometric; see `exact.fit.is_flat`."""

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, lanes: int
    ) -> tuple[Any, Work]:
        """One pass over the segment."""
        fit = lambda t, p: exact_fit.fit_window(  # noqa: E731
            t, p, self.layout, self.tolerance, self.flat
        )
        block, work = self.grain(tables, lanes), _all_useful(length)
        if self.shared_prior:
            one = jax.tree.map(lambda x: x[0], prior)
            return by_blocks(lambda t: fit(t, one), tables, block=block, length=length), work
        return by_blocks(fit, tables, prior, block=block, length=length), work

    def grain(self, tables: NoisyTables, lanes: int) -> int:
        """As many as `EXACT_NUMBERS` allows, a power of two; the same whatever the batch."""
        longest = max(self.layout.cell, self.layout.filters)
        numbers = math.prod(tables.counts.shape[-3:]) * longest
        return max(1, min(BLOCK, EXACT_NUMBERS >> (numbers - 1).bit_length()))


class _Item(NamedTuple):
    """One ascent: a dataset and a start."""

    data: Data
    theta: Theta


@dataclasses.dataclass(frozen=True)
class Variational:
    """Coordinate ascent through refilled lanes, one item a dataset and start."""

    method: Method
    start: str
    n_starts: int
    tol: float
    max_iterations: int
    seed: Any
    """Words of the random key as a tuple, or None."""

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, lanes: int
    ) -> tuple[Any, Work]:
        """The segment's ascents as a queue, then the best start of each dataset."""
        Q, S = index.shape[0], self.n_starts
        limits = Limits(
            jnp.asarray(self.tol, tables.counts.dtype), jnp.asarray(self.max_iterations, jnp.int32)
        )
        theta = by_blocks(self._starts, tables, index, length=length)  # [Q, S, ...]
        again = lambda x: jnp.repeat(x, S, axis=0) if S > 1 else x  # noqa: E731
        tables, prior = jax.tree.map(again, (tables, prior))
        queue = _Item(
            jax.vmap(Data.of)(tables, prior),
            jax.tree.map(lambda x: x.reshape(Q * S, *x.shape[2:]), theta),
        )
        job = lanes_.Job(
            begin=lambda item: ascent.begin(item.theta),
            step=lambda item, at: ascent.step(item.data, at, limits, self.method),
            unfinished=lambda at: ascent.unfinished(at, limits),
        )
        harvest = lanes_.run(queue, length * S, job, lanes, self.max_iterations + 1)
        finish = lambda t, p, d, at: vb_fit.posterior(  # noqa: E731
            t, p, d, at, self.method, at.elbo[None]
        )
        ends = by_blocks(finish, tables, prior, queue.data, harvest.states, length=length * S)
        work = Work(
            jnp.sum(harvest.steps).astype(jnp.float32), harvest.executed.astype(jnp.float32)
        )
        if S == 1:
            return ends, work
        ends = jax.tree.map(lambda x: x.reshape(Q, S, *x.shape[1:]), ends)
        best = jnp.argmax(ends.elbo, axis=1)
        chosen = jax.vmap(lambda end, s: jax.tree.map(lambda x: x[s], end))(ends, best)
        return dataclasses.replace(chosen, elbo_starts=ends.elbo), work

    def grain(self, tables: NoisyTables, lanes: int) -> int:
        """All lanes."""
        return lanes

    def _starts(self, tables: NoisyTables, index: jax.Array) -> Theta:
        key = None
        if self.seed is not None:
            words, impl = self.seed
            key = jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32), impl=impl)
            key = jax.random.fold_in(key, index)
        return start_points(tables, self.start, self.n_starts, key)


def vb_engine(
    tables: NoisyTables,
    prior: Prior | None,
    *,
    solver: Any = "kkt",
    bound: str = "mixture",
    accelerate: bool = True,
    start: str = "naive",
    n_starts: int = 1,
    key: jax.Array | None = None,
    tol: float | None = None,
    max_iterations: int = 3000,
) -> Variational:
    """Options of `fit_vb`, checked and made hashable."""
    method = vb_fit.resolve_method(tables.noise, solver=solver, bound=bound, accelerate=accelerate)
    limits = vb_fit.resolve_limits(tables.counts.dtype, tol, max_iterations)
    n_starts = validate.whole_number("n_starts", n_starts, at_least=1)
    if not isinstance(start, str):
        raise TypeError(f"start must be one of {', '.join(NAMES)} for many datasets, got {start!r}")
    check_start(tables, start, n_starts, key)
    seed = None
    if key is not None:
        impl = str(jax.random.key_impl(key))
        data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        seed = (tuple(int(w) for w in data.ravel()), impl)
    return Variational(method, start, n_starts, float(limits.tol), max_iterations, seed)


def exact_engine(
    tables: NoisyTables,
    prior: Prior | None,
    *,
    tolerance: float | None = None,
    max_records: int | None = None,
) -> Exact:
    """Options of `fit_exact`, and the windows that suit the whole batch."""
    shared = prior is None or prior.class_.ndim == prior.feature.ndim - 2 == 1
    # Priors of their own would let one dataset's decide about its neighbours' last bits.
    flat = shared and exact_fit.is_flat(prior, tables)
    layout = window.plan(tables, max_records=max_records, flat=flat)
    tolerance = exact_fit.resolve_tolerance(tolerance, tables.counts.dtype)
    return Exact(layout, tolerance, shared, flat)


def naive_engine(tables: NoisyTables, prior: Prior | None) -> Naive:
    """No options."""
    return Naive()


ENGINES = {"vb": vb_engine, "exact": exact_engine, "naive": naive_engine}
"""Makers of engines by method name; each takes the batch, its prior and the method's options."""


def _all_useful(length: jax.Array) -> Work:
    n = length.astype(jnp.float32)
    return Work(n, n)
