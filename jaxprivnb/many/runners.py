"""How each method is run on a segment of datasets: compiled once for a shape, then called often.

A runner turns a segment (tables and prior with leading axis Q, the first `length` of them real)
into the method's posterior with leading axis Q. Variational fits take different numbers of
iterations and go through refilled lanes; the others cost the same for every dataset and are mapped
over lanes at a time. `Runner` is all that a method with a way of its own must supply; `Mapped` runs
any other.
"""

import abc
import dataclasses
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb import validate
from jaxprivnb.exact import fit as exact_fit
from jaxprivnb.exact import plan as exact_plan
from jaxprivnb.exact.path import Path
from jaxprivnb.many import lanes as lanes_
from jaxprivnb.many.lanes import Width, by_tiles, share
from jaxprivnb.methods import METHODS, imported
from jaxprivnb.tables import NoisyTables, Prior
from jaxprivnb.variational import ascent
from jaxprivnb.variational import fit as vb_fit
from jaxprivnb.variational.ascent import Limits, Method
from jaxprivnb.variational.bound import Data
from jaxprivnb.variational.starts import NAMES, Theta, check_start, start_points


class Work(NamedTuple):
    """What was done on a segment, for measuring."""

    useful: jax.Array
    """Steps that the datasets needed, float32."""
    executed: jax.Array
    """Lane-steps executed, float32."""


class Runner(abc.ABC):
    """A method with its options; hashable, so that the compiled segment is keyed by it."""

    @abc.abstractmethod
    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, width: Width
    ) -> tuple[Any, Work]:
        """Fit a segment; `index [Q]` is each dataset's place in the whole batch."""

    def grain(self, tables: NoisyTables, width: Width) -> int:
        """How many datasets are worked on at a time, all lanes unless a method knows better; a
        segment holds a multiple of that.
        """
        return width.lanes

    def finish(self, posterior: Any) -> Any:
        """A last look at all datasets together."""
        return posterior


@dataclasses.dataclass(frozen=True)
class Mapped(Runner):
    """A fit that costs the same for every dataset."""

    fit: Callable[..., Any]
    """`fit(tables, prior, **options)` of one dataset."""
    options: tuple[tuple[str, Any], ...] = ()

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, width: Width
    ) -> tuple[Any, Work]:
        """One pass over the segment."""
        fit = partial(self.fit, **dict(self.options))
        fitted = by_tiles(fit, tables, prior, tile=width.tile, length=length)
        return fitted, _all_useful(length)


@dataclasses.dataclass(frozen=True)
class Exact(Runner):
    """The exact posterior by a path planned for the whole batch."""

    path: Path
    tolerance: float
    shared_prior: bool = False
    """Whether all datasets have the same prior, whose weights are then computed once a tile."""
    learned: bool = False
    """Whether each has a prior of its own learned."""

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, width: Width
    ) -> tuple[Any, Work]:
        """One pass over the segment."""
        fit_one = exact_fit.fit_path_learned if self.learned else exact_fit.fit_path
        fit = lambda t, p: fit_one(t, p, self.path, self.tolerance)  # noqa: E731
        tile, work = self.grain(tables, width), _all_useful(length)
        if self.shared_prior:
            one = jax.tree.map(lambda x: x[0], prior)
            return by_tiles(lambda t: fit(t, one), tables, tile=tile, length=length), work
        return by_tiles(fit, tables, prior, tile=tile, length=length), work

    def finish(self, posterior: Any) -> Any:
        """Datasets that lost too much are fitted anew, by wider paths."""
        again = exact_fit.refit_learned if self.learned else exact_fit.refit
        return again(posterior, self.tolerance)

    def grain(self, tables: NoisyTables, width: Width) -> int:
        """As many as have `width.numbers` window entries in all cells together: the windows alone
        decide, never the batch.
        """
        path = self.path.questions
        numbers = tables.counts.shape[-3] * sum(path.cells.sizes) * path.length * path.tilts
        return max(1, min(width.tile, share(width.numbers, numbers)))


class _Item(NamedTuple):
    """One ascent: a dataset and a start."""

    data: Data
    theta: Theta


@dataclasses.dataclass(frozen=True)
class Variational(Runner):
    """Coordinate ascent through refilled lanes, one item a dataset and start."""

    method: Method
    start: str
    n_starts: int
    tol: float
    max_iterations: int
    seed: Any
    """Words of the random key as a tuple, or None."""

    def run(
        self, tables: NoisyTables, prior: Prior, index: jax.Array, length: jax.Array, width: Width
    ) -> tuple[Any, Work]:
        """The segment's ascents as a queue, then the best start of each dataset."""
        Q, S = index.shape[0], self.n_starts
        tiles = partial(by_tiles, tile=width.tile)
        limits = Limits(
            jnp.asarray(self.tol, tables.counts.dtype), jnp.asarray(self.max_iterations, jnp.int32)
        )
        theta = tiles(self._starts, tables, index, length=length)  # [Q, S, ...]
        again = lambda x: jnp.repeat(x, S, axis=0) if S > 1 else x  # noqa: E731
        tables, prior = jax.tree.map(again, (tables, prior))
        queue = _Item(
            tiles(Data.of, tables, prior, length=length * S),
            jax.tree.map(lambda x: x.reshape(Q * S, *x.shape[2:]), theta),
        )
        job = lanes_.Job(
            begin=lambda item: ascent.begin(item.theta),
            step=lambda item, at: ascent.step(item.data, at, limits, self.method),
            unfinished=lambda at: ascent.unfinished(at, limits),
        )
        harvest = lanes_.run(queue, length * S, job, width, self.max_iterations + 1)
        finish = lambda t, p, d, at: vb_fit.posterior(  # noqa: E731
            t, p, d, at, self.method, at.elbo[None]
        )
        ends = tiles(finish, tables, prior, queue.data, harvest.states, length=length * S)
        work = Work(
            jnp.sum(harvest.steps).astype(jnp.float32), harvest.executed.astype(jnp.float32)
        )
        if S == 1:
            return ends, work
        ends = jax.tree.map(lambda x: x.reshape(Q, S, *x.shape[1:]), ends)
        best = jnp.argmax(ends.elbo, axis=1)
        chosen = jax.vmap(lambda end, s: jax.tree.map(lambda x: x[s], end))(ends, best)
        return dataclasses.replace(chosen, elbo_starts=ends.elbo), work

    def _starts(self, tables: NoisyTables, index: jax.Array) -> Theta:
        key = None
        if self.seed is not None:
            words, impl = self.seed
            key = jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32), impl=impl)
            key = jax.random.fold_in(key, index)
        return start_points(tables, self.start, self.n_starts, key)


def vb_runner(
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
        raise TypeError(
            f"start must be one of {', '.join(NAMES)} for many datasets, "
            f"got {validate.describe(start)}"
        )
    check_start(tables, start, n_starts, key)
    seed = None
    if key is not None:
        impl = str(jax.random.key_impl(key))
        data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        seed = (tuple(int(w) for w in data.ravel()), impl)
    return Variational(method, start, n_starts, float(limits.tol), max_iterations, seed)


def exact_runner(
    tables: NoisyTables,
    prior: Prior | str | None,
    *,
    n_records_prior: Any = None,
    tolerance: float | None = None,
    max_records: int | None = None,
) -> Exact:
    """Options of `fit_exact`, and the windows that suit the whole batch."""
    if n_records_prior is not None:
        raise TypeError(
            "n_records_prior is given to fit_many as part of the prior: Prior(class_, feature, "
            "n_records=log_weights)"
        )
    tolerance = exact_fit.resolve_tolerance(tolerance, tables.counts.dtype)
    given = None if isinstance(prior, str) else prior
    shared = given is None or given.class_.ndim == given.feature.ndim - 2 == 1
    known = Prior.uniform(tables) if given is None else given
    path = exact_plan.choose(tables, known, max_records=max_records)
    if isinstance(prior, str):
        return Exact(exact_plan.for_any_prior(path), tolerance, learned=True)
    return Exact(path, tolerance, shared)


def make_runner(method: str, tables: NoisyTables, prior: Any, **options: Any) -> Runner:
    """The runner of a method, by name, for a batch, its prior and the method's options."""
    own = METHODS[method].runner
    if own is not None:
        return imported(own)(tables, prior, **options)
    for name, value in options.items():
        if not isinstance(value, Hashable):
            raise TypeError(f"{name} must be hashable, got {validate.describe(value)}")
    return Mapped(imported(METHODS[method].fit), tuple(sorted(options.items())))


def _all_useful(length: jax.Array) -> Work:
    n = length.astype(jnp.float32)
    return Work(n, n)
