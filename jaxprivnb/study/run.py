"""Run a study, here or through Dask: only the chunks that are not done yet."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from jaxprivnb.extras import require
from jaxprivnb.study.chunks import Chunk, all_chunks, chunk, go_on
from jaxprivnb.study.display import Display, choose_display
from jaxprivnb.study.folder import Receipt, StudyFolder
from jaxprivnb.study.spec import Spec
from jaxprivnb.study.specfile import load_spec

ENGINES = ("local", "dask")
THREADS = "study"
"""How the names of the local engine's threads begin."""


class Finished(NamedTuple):
    """One chunk that an engine has stored."""

    receipt: Receipt
    seconds: float


class StoppedError(Exception):
    """Raised in a thread of the local engine between two pieces of a chunk, to leave the chunk."""


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

    Ctrl-C leaves the chunks that are under way at their next piece; again, it waits for nothing.
    What is stored stays, and the same call goes on from there.

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
    from jaxprivnb.study.fits import check_methods

    check_methods(spec)
    require("pyarrow", "study", "storing a study")  # now, and not when the first chunk is done
    folder = StudyFolder(os.fspath(out), spec)
    done = dict(folder.begin(overwrite=overwrite))
    pending = [c for c in all_chunks(spec) if c.number not in done]
    shown = choose_display(display)
    started = time.monotonic()
    if engine == "local":
        stream = local_engine(spec, folder, pending, workers=workers, stopping=shown.stopping)
    else:
        from jaxprivnb.study.cluster import dask_engine

        stream = dask_engine(spec, folder, pending, workers=workers, address=address)
    shown.start(spec, [(chunk(spec, n), r.failures) for n, r in done.items()])
    computed = 0
    try:
        with contextlib.closing(stream):
            for finished in stream:
                folder.record(finished.receipt)
                computed += 1
                shown.finished(chunk(spec, finished.receipt.chunk), finished.receipt.failures)
    finally:
        shown.stop()
        with contextlib.suppress(OSError):  # the parts themselves say what is done
            folder.save_manifest()
    return Outcome(
        out=folder.storage.url,
        rows=sum(r.rows for r in folder.done.values()),
        failures=sum(r.failures for r in folder.done.values()),
        computed=computed,
        resumed=len(done),
        seconds=time.monotonic() - started,
    )


def local_engine(
    spec: Spec,
    folder: StudyFolder,
    pending: list[Chunk],
    *,
    workers: int | None = None,
    stopping: Callable[[int], None] = lambda chunks: None,
) -> Generator[Finished]:
    """Threads of this process, one a core: fits of small tables leave most of a machine idle.

    When the run is stopped, `stopping` is told how many chunks are under way; they are left at
    their next piece, since nothing can interrupt a compiled program, and no other one is begun.
    """
    from jaxprivnb.parallel import cores

    stop = threading.Event()

    def between() -> None:
        if stop.is_set():
            raise StoppedError

    under_way: set[int] = set()  # kept by the threads: a signal may come before `submit` returns

    def compute(piece: Chunk) -> Finished:
        under_way.add(piece.number)
        try:
            return compute_and_store(spec, folder, piece, between)
        finally:
            under_way.discard(piece.number)

    pool = ThreadPoolExecutor(workers or cores(), thread_name_prefix=THREADS)
    try:
        # Neighbours in the queue differ in shape or N, so their programs compile side by side.
        queue = sorted(pending, key=lambda c: (c.start, spec.cells[c.cell].epsilon_per_table))
        for future in as_completed([pool.submit(compute, piece) for piece in queue]):
            yield future.result()
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        if under_way:
            stopping(len(under_way))
        pool.shutdown(wait=True)


def compute_and_store(
    spec: Spec, folder: StudyFolder, piece: Chunk, between: Callable[[], None] = go_on
) -> Finished:
    """The whole life of a chunk; what a worker does."""
    from jaxprivnb.study.compute import compute_chunk

    started = time.monotonic()
    receipt = folder.write_part(piece.number, compute_chunk(spec, piece, between))
    return Finished(receipt, time.monotonic() - started)
