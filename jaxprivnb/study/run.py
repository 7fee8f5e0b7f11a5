"""Run a study, here or through Dask: only the chunks that are not done yet."""

import contextlib
import os
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from jaxprivnb.study.chunks import Chunk, all_chunks, chunk
from jaxprivnb.study.display import Display, choose_display
from jaxprivnb.study.extras import require
from jaxprivnb.study.spec import Spec
from jaxprivnb.study.specfile import load_spec
from jaxprivnb.study.store import Receipt, Store

ENGINES = ("local", "dask")


class Finished(NamedTuple):
    """One chunk that an engine has stored."""

    receipt: Receipt
    seconds: float


class Outcome(NamedTuple):
    """What a run did."""

    out: str
    rows: int
    """In the whole study, resumed chunks included."""
    failures: int
    """Rows whose status is not success."""
    computed: int
    """Chunks of this run."""
    resumed: int
    """Chunks of earlier runs."""
    seconds: float


def run_study(
    spec: Spec | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    engine: str = "local",
    overwrite: bool = False,
    display: Display | str | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Outcome:
    """Compute what is missing of a study.

    Args:
        spec: a `Spec`, or the path of a TOML file.
        out: a folder, or a URL that fsspec knows.
        engine: "local", or "dask".
        overwrite: delete the study that is in `out` first.
        display: "auto" for a live display on a terminal and log lines elsewhere, "quiet" or
            None for nothing, or a `Display`.
        workers: threads, or Dask worker processes to start on this machine; one a core if None.
        address: of a Dask scheduler that runs already, instead of starting workers.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if not isinstance(spec, Spec):
        spec = load_spec(spec)
    from jaxprivnb.study.methods import check_methods

    check_methods(spec)
    require("pyarrow", "study", "storing a study")  # now, and not when the first chunk is done
    store = Store(os.fspath(out), spec)
    done = dict(store.begin(overwrite=overwrite))
    pending = [c for c in all_chunks(spec) if c.number not in done]
    shown = choose_display(display)
    started = time.monotonic()
    if engine == "local":
        stream = local_engine(spec, store, pending, workers=workers)
    else:
        from jaxprivnb.study.cluster import dask_engine

        stream = dask_engine(spec, store, pending, workers=workers, address=address)
    shown.start(spec, [(chunk(spec, n), r.failures) for n, r in done.items()])
    computed = 0
    try:
        with contextlib.closing(stream):
            for finished in stream:
                store.record(finished.receipt)
                computed += 1
                shown.finished(chunk(spec, finished.receipt.chunk), finished.receipt.failures)
    finally:
        shown.stop()
        with contextlib.suppress(OSError):  # the parts themselves say what is done
            store.save_manifest()
    return Outcome(
        out=store.storage.url,
        rows=sum(r.rows for r in store.done.values()),
        failures=sum(r.failures for r in store.done.values()),
        computed=computed,
        resumed=len(done),
        seconds=time.monotonic() - started,
    )


def local_engine(
    spec: Spec, store: Store, pending: list[Chunk], *, workers: int | None = None
) -> Generator[Finished]:
    """Threads of this process, one a core: fits of small tables leave most of a machine idle.

    Chunks that are under way when the run is stopped are finished and stored; waiting ones are not
    begun.
    """
    pool = ThreadPoolExecutor(workers or _cores(), thread_name_prefix="study")
    try:
        # Neighbours in the queue differ in shape or N, so their programs compile side by side.
        queue = sorted(pending, key=lambda c: (c.start, spec.cells[c.cell].epsilon_per_table))
        futures = [pool.submit(compute_and_store, spec, store, piece) for piece in queue]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def compute_and_store(spec: Spec, store: Store, piece: Chunk) -> Finished:
    """The whole life of a chunk; what a worker does."""
    from jaxprivnb.study.rows import compute_chunk

    started = time.monotonic()
    receipt = store.write_part(piece.number, compute_chunk(spec, piece))
    return Finished(receipt, time.monotonic() - started)
