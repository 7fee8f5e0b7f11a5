"""`fit_many`: one call for a leading axis of any length."""

import contextlib
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxprivnb import validate
from jaxprivnb.many.engines import ENGINES, Engine, Work
from jaxprivnb.many.lanes import BLOCK
from jaxprivnb.posterior import Posterior
from jaxprivnb.tables import NoisyTables, Prior

LANES = BLOCK
"""Datasets in work at a time in each worker: fewer lanes leave fewer idle at the end."""
SEGMENTS = (1, 4, 16, 64)
"""Lengths of a compiled segment, in lanes: few, so that few programs are compiled."""


def fit_many(
    tables: NoisyTables,
    method: str = "vb",
    *,
    prior: Prior | None = None,
    lanes: int = LANES,
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
        method: "vb", "exact" or "naive".
        prior: one prior for all (`[I]`, `[I, K, J]`) or one a dataset; uniform if None.
        lanes: datasets in work at a time in each worker; a multiple of 128.
        devices: where to work; all of JAX's default backend if None.
        workers: threads that run segments side by side; None means one a core on a CPU, else one.
        progress: show a bar; None means where a person is watching (needs rich).
        on_work: called after each segment with (steps that were needed, lane-steps executed).
        **options: of the method, as in `fit_vb` or `fit_exact`.
    """
    if not isinstance(tables, NoisyTables):
        raise TypeError(
            f"tables must be NoisyTables with a leading axis, got {type(tables).__name__}"
        )
    batch = tables.batch_shape
    if not batch:
        raise ValueError(
            "fit_many needs datasets on a leading axis, got one dataset; use fit_vb or fit_exact"
        )
    validate.choice("method", method, ENGINES)
    lanes = validate.whole_number("lanes", lanes, at_least=BLOCK)
    if lanes % BLOCK:
        raise ValueError(f"lanes must be a multiple of {BLOCK}, got {lanes}")
    known = _known_options(method)
    for name in options:
        validate.choice(f"option of method {method!r}", name, known)
    engine = ENGINES[method](tables, **options)  # type: ignore[operator]
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(batch) :]), tables)
    total = int(np.prod(batch))
    priors = _batch_prior(prior, tables, batch, total)
    chosen = tuple(jax.devices() if devices is None else devices)
    out = _Output(total)
    pool = _workers(chosen, workers)
    with _bar(progress, total, method) as advance:
        size = _segment_size(total, lanes, len(chosen), pool.workers)
        run = partial(_run_segment, flat, priors, engine, lanes, chosen, size, total)
        starts = range(0, max(total, 1), size * len(chosen))
        for start, stop, posterior, work in pool.map(run, starts):
            out.store(start, stop, posterior)
            advance(stop - start)
            if on_work is not None:
                on_work(float(work.useful.sum()), float(work.executed.sum()))
    return out.result(batch)


def _segment_size(total: int, lanes: int, devices: int, workers: int) -> int:
    """Datasets a device and segment: the shortest of `SEGMENTS` that gives each worker one."""
    want = -(-total // (lanes * devices * workers))
    return lanes * next((s for s in SEGMENTS if s >= want), SEGMENTS[-1])


def _run_segment(
    tables: NoisyTables,
    priors: Prior,
    engine: Engine,
    lanes: int,
    devices: tuple[Any, ...],
    size: int,
    total: int,
    start: int,
) -> tuple[int, int, Any, Work]:
    """Fit datasets [start, stop), each device an equal share, padded to `size`."""
    D = len(devices)
    stop = min(start + size * D, total)
    share = -(-(stop - start) // D)
    first = start + np.arange(D) * share
    lengths = np.clip(np.minimum(first + share, stop) - first, 0, None).astype(np.int32)
    index = np.minimum(first[:, None] + np.arange(size), max(total - 1, 0)).astype(np.int32).ravel()
    segment = _rows((tables, priors), index)
    posterior, work = _compiled(engine, lanes, devices)(*segment, index, lengths)
    keep = (np.arange(size) < lengths[:, None]).ravel()
    return start, stop, jax.tree.map(lambda x: np.asarray(x)[keep], posterior), jax.device_get(work)


class _Pool:
    """Segments one after the other, or side by side in threads; results in order."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, f: Callable[[int], Any], starts: Sequence[int]) -> Iterator[Any]:
        """F of every start, at most `workers` of them under way or waiting to be taken."""
        if self.workers == 1:
            yield from map(f, starts)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            waiting: deque[Future[Any]] = deque()
            for start in starts:
                if len(waiting) >= self.workers:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(f, start))
            while waiting:
                yield waiting.popleft().result()


def _workers(devices: tuple[Any, ...], workers: int | None) -> _Pool:
    """One worker a core where the CPU is the only device: its small operations use one core."""
    if workers is not None:
        return _Pool(validate.whole_number("workers", workers, at_least=1))
    alone = len(devices) == 1 and devices[0].platform == "cpu"
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return _Pool(cores if alone else 1)


def _rows(tree: Any, index: np.ndarray) -> Any:
    """The named rows of every array; zeros where there are none to take."""

    def take(x: Any) -> Any:
        if x.shape[0]:
            return np.asarray(x)[index]
        return np.zeros((index.size, *x.shape[1:]), x.dtype)

    return jax.tree.map(take, tree)


_CACHE: dict[Any, Any] = {}
_COMPILING = threading.Lock()


def _compiled(engine: Engine, lanes: int, devices: tuple[Any, ...]) -> Any:
    """The jitted segment of an engine, one shard a device."""
    key = (engine, lanes, devices)
    with _COMPILING:
        if key not in _CACHE:
            mesh = Mesh(np.asarray(devices), ("devices",))
            spec = PartitionSpec("devices")
            _CACHE[key] = jax.jit(
                jax.shard_map(
                    partial(_shard, engine, lanes),
                    mesh=mesh,
                    in_specs=(spec,) * 4,
                    out_specs=(spec, spec),
                    check_vma=False,
                )
            )
    return _CACHE[key]


def _shard(
    engine: Engine, lanes: int, tables: NoisyTables, prior: Prior, index: Any, length: Any
) -> Any:
    posterior, work = engine.run(tables, prior, index, length[0], lanes)
    return posterior, jax.tree.map(lambda x: x[None], work)


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
        if not isinstance(prior, Prior):
            raise TypeError(f"prior must be a jaxprivnb.Prior or None, got {prior!r}")
        leaves = [np.asarray(prior.class_), np.asarray(prior.feature)]
    out = []
    for name, leaf, shape in zip(("class_", "feature"), leaves, shapes, strict=True):
        if leaf.shape == shape:
            if prior is not None:
                mask = (
                    None
                    if name == "class_" or tables.mask is None
                    else tables.mask.reshape(-1, *tables.mask.shape[-2:])[0]
                )
                validate.concentration(f"prior.{name}", jnp.asarray(leaf), shape, mask)
            leaf = np.broadcast_to(leaf, (total, *shape))
        elif leaf.shape == (*batch, *shape):
            leaf = leaf.reshape(total, *shape)
        else:
            raise ValueError(
                f"prior.{name} must have shape {shape} or {(*batch, *shape)}, got {leaf.shape}"
            )
        out.append(leaf.astype(counts.dtype))
    return jax.tree.unflatten(jax.tree.structure(Prior(jnp.ones(1), jnp.ones((1, 1, 1)))), out)


def _known_options(method: str) -> list[str]:
    return [n for n in inspect.signature(ENGINES[method]).parameters if n != "tables"]  # type: ignore[arg-type]


@contextlib.contextmanager
def _bar(progress: bool | None, total: int, method: str) -> Iterator[Callable[[int], None]]:
    """A progress bar where someone is watching, otherwise nothing."""
    watching = sys.stderr.isatty() if progress is None else progress
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        if progress:
            raise ImportError(
                "a progress bar needs rich: pip install 'jaxprivnb[terminal]'"
            ) from None
        watching = False
    if not watching:
        yield lambda n: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"fit_many {method}", total=total)
        yield lambda n: bar.advance(task, n)
