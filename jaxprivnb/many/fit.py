"""`fit_many`: one call for a leading axis of any length."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from jaxprivnb import validate
from jaxprivnb._pytree import with_fields
from jaxprivnb.exact.fit import is_learned, warn_of_uniform
from jaxprivnb.extras import progress_bar
from jaxprivnb.many.lanes import TILE, Width
from jaxprivnb.many.runners import Runner, Work, make_runner
from jaxprivnb.methods import METHODS, keywords, names
from jaxprivnb.parallel import cores, for_threads
from jaxprivnb.posterior import Posterior
from jaxprivnb.tables import NoisyTables, Prior, check_type, not_a_prior

SEGMENTS = (1, 4, 16, 64)
"""Lengths of a compiled segment, in units: few, so that few programs are compiled."""


def fit_many(
    tables: NoisyTables,
    method: str = "vb",
    *,
    prior: Prior | str | None = None,
    lanes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    on_work: Callable[[float, float], None] | None = None,
    **options: Any,
) -> Posterior:
    """Fit every dataset of a batch; the result has the batch's leading axes on every array.

    A dataset's result does not depend on the batch around it: not on its length, its order, the
    number of lanes or of devices. A dataset that goes bad carries its own `status`.

    Args:
        tables: datasets on leading axes, as `simulate` gives them.
        method: "vb", "exact", "naive", or another that is registered (`jaxprivnb.register`).
        prior: one prior for all (`[I]`, `[I, K, J]`) or one a dataset; uniform if None.
            "learned" (method "exact") finds each dataset's own, as in `fit_exact`.
        lanes: datasets in work at a time in each worker, a multiple of 128, and on accelerators
            rounded up to whole tiles, of up to 4096; None means one tile.
        devices: where to work; all of JAX's default backend if None.
        workers: threads that run segments side by side; None means one a core on a CPU, else one.
        progress: show a bar; None means where a person is watching (needs rich).
        on_work: called after each segment with (steps that were needed, lane-steps executed).
        **options: of the method, as in `fit_vb` or `fit_exact`.
    """
    batch = check_type(tables).batch_shape
    if not batch:
        raise ValueError(
            "fit_many needs datasets on a leading axis, got one dataset; use fit_vb or fit_exact"
        )
    validate.choice("method", method, names("tables"))
    if lanes is not None:
        lanes = validate.whole_number("lanes", lanes, at_least=TILE)
        if lanes % TILE:
            raise ValueError(f"lanes must be a multiple of {TILE}, got {lanes}")
    if METHODS[method].plain:
        tables.check_plain(f"fit_many with method {method!r}")
    known = _known_options(method)
    for name in options:
        validate.choice(f"an option of fit_many with method {method!r}", name, known)
    learned = METHODS[method].learns_prior and is_learned(prior)
    if not (prior is None or isinstance(prior, Prior) or learned):
        raise not_a_prior(prior)
    chosen = make_runner(method, tables, prior, **options)
    queue = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(batch) :]), tables)
    total = int(np.prod(batch))
    given = prior if isinstance(prior, Prior) else None
    priors = _batch_prior(given, tables, batch, total)
    places = tuple(jax.devices() if devices is None else devices)
    width = Width.on(places[0].platform, int(np.prod(tables.counts.shape[-3:])), lanes)
    out = _Output(total)
    threads = _workers(places, workers)
    with progress_bar(progress, total, f"fit_many {method}") as advance:
        # Large tables are cut finer than by lanes: every thread then has some of a short batch, and
        # what an interrupt must let run out is short.
        segments = _Segments.of(total, chosen.grain(queue, width), threads)
        run = partial(_run_segment, queue, priors, chosen, width, places, segments)
        for start, stop, posterior, work in _in_order(run, segments.n_segments, threads):
            out.store(start, stop, posterior)
            advance(stop - start)
            if on_work is not None:
                on_work(float(work.useful), float(work.executed))
    found = chosen.finish(out.result((total,)))
    if learned:
        warn_of_uniform(found)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


class _Segments(NamedTuple):
    """How the datasets are cut."""

    total: int
    n_segments: int
    length: int
    """Datasets in each but the last."""
    size: int
    """The compiled length, with padding: one of `SEGMENTS` times the unit."""

    @classmethod
    def of(cls, total: int, unit: int, threads: int) -> "_Segments":
        """As few segments as fit, as many for each thread, and of equal length."""
        count = threads * max(1, -(-total // (threads * unit * SEGMENTS[-1])))
        rows = max(1, -(-total // (unit * count)))
        size = next(s for s in SEGMENTS if s >= rows)
        return cls(total, max(1, -(-total // (rows * unit))), rows * unit, size * unit)

    def bounds(self, number: int) -> tuple[int, int]:
        """The datasets [start, stop) of a segment."""
        return number * self.length, min((number + 1) * self.length, self.total)


def _run_segment(
    tables: NoisyTables,
    priors: Prior,
    runner: Runner,
    width: Width,
    devices: tuple[Any, ...],
    segments: _Segments,
    number: int,
) -> tuple[int, int, Any, Work]:
    """Fit segment `number` on the device whose turn it is.

    Segments are whole programs on one device each rather than shards of one program: a device then
    never waits for another, and runs the same instructions however many there are.
    """
    start, stop = segments.bounds(number)
    index = np.minimum(np.arange(start, start + segments.size), max(segments.total - 1, 0))
    index = index.astype(np.int32)
    place = SingleDeviceSharding(devices[number % len(devices)])
    segment = jax.device_put(
        (*_rows((tables, priors), index), index, np.int32(stop - start)), place
    )
    posterior, work = _fit_segment(*segment, runner=runner, width=width)
    host = jax.device_get((posterior, work))
    return start, stop, jax.tree.map(lambda x: x[: stop - start], host[0]), host[1]


@partial(jax.jit, static_argnames=("runner", "width"))
def _fit_segment(
    tables: NoisyTables,
    prior: Prior,
    index: jax.Array,
    length: jax.Array,
    *,
    runner: Runner,
    width: Width,
) -> tuple[Any, Work]:
    return runner.run(tables, prior, index, length, width)


def _in_order(f: Callable[[int], Any], count: int, threads: int) -> Iterator[Any]:
    """f(0), ..., f(count - 1), `threads` at a time; no more results wait than there are threads."""
    if threads == 1:
        yield from map(f, range(count))
        return
    pool, f = ThreadPoolExecutor(threads), for_threads(f)
    waiting: deque[Future[Any]] = deque()
    try:
        for number in range(count):
            if len(waiting) >= threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(f, number))
        while waiting:
            yield waiting.popleft().result()
    finally:
        # After an error or a Ctrl-C there is nothing to wait for: what runs, runs out unheard.
        pool.shutdown(wait=False, cancel_futures=True)


def _workers(devices: tuple[Any, ...], workers: int | None) -> int:
    """Threads: one a device; one a core where the CPU is the only device, since a program of small
    operations uses one core.
    """
    if workers is not None:
        return validate.whole_number("workers", workers, at_least=1)
    if len(devices) > 1 or devices[0].platform != "cpu":
        return len(devices)
    return cores()


def _rows(tree: Any, index: np.ndarray) -> Any:
    """The named rows of every array; zeros where there are none to take."""

    def take(x: Any) -> Any:
        if x.shape[0]:
            return np.asarray(x)[index]
        return np.zeros((index.size, *x.shape[1:]), x.dtype)

    return jax.tree.map(take, tree)


class _Output:
    """The results of all datasets, on the host, filled segment by segment."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._arrays: Any = None
        self._treedef: Any = None

    def store(self, start: int, stop: int, posterior: Any) -> None:
        """Put the results of datasets [start, stop)."""
        leaves, self._treedef = jax.tree.flatten(posterior)
        if self._arrays is None:
            self._arrays = [np.empty((self._total, *x.shape[1:]), x.dtype) for x in leaves]
        for array, leaf in zip(self._arrays, leaves, strict=True):
            array[start:stop] = leaf

    def result(self, batch: tuple[int, ...]) -> Any:
        """The posterior with the batch's axes."""
        shaped = []
        while self._arrays:
            array = self._arrays.pop(0)  # given up one by one, so that no two copies coexist
            shaped.append(jnp.asarray(array.reshape(*batch, *array.shape[1:])))
        return jax.tree.unflatten(self._treedef, shaped)


def _batch_prior(
    prior: Prior | None, tables: NoisyTables, batch: tuple[int, ...], total: int
) -> Prior:
    counts = tables.counts
    shapes = (counts.shape[-3:-2], counts.shape[-3:])
    if prior is None:
        leaves = [np.ones(s, counts.dtype) for s in shapes]
    else:
        leaves = [np.asarray(prior.class_), np.asarray(prior.feature)]
    out = {}
    for name, leaf, shape in zip(("class_", "feature"), leaves, shapes, strict=True):
        if leaf.shape == shape:
            if prior is not None:
                mask = (
                    None
                    if name == "class_" or tables.mask is None
                    else tables.mask.reshape(-1, *tables.mask.shape[len(batch) :])[0]
                )
                validate.concentration(f"prior.{name}", jnp.asarray(leaf), shape, mask)
            leaf = np.broadcast_to(leaf, (total, *shape))
        elif leaf.shape == (*batch, *shape):
            leaf = leaf.reshape(total, *shape)
        else:
            raise ValueError(
                f"prior.{name} must have shape {shape} or {(*batch, *shape)}, got {leaf.shape}"
            )
        out[name] = leaf.astype(counts.dtype)
    log_n = None if prior is None else prior.n_records
    if log_n is not None:
        each = np.asarray(log_n, counts.dtype)
        one = each.reshape(-1, each.shape[-1]) if each.ndim > 1 else each
        log_n = np.broadcast_to(one, (total, each.shape[-1]))
    return with_fields(Prior(jnp.ones(1), jnp.ones((1, 1, 1))), **out, n_records=log_n)


def _known_options(method: str) -> list[str]:
    """Keyword arguments that are of use: fit_many's own, then the method's."""
    return [*keywords(fit_many), *METHODS[method].options()]
