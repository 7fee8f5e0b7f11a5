"""Run a study, here or through Dask: only the chunks that are not done yet."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NamedTuple

from jaxprivnb.extras import require
from jaxprivnb.methods import register_all
from jaxprivnb.storage import check_path
from jaxprivnb.study.chunks import go_on
from jaxprivnb.study.display import Display, choose_display
from jaxprivnb.study.folder import MANIFEST, Receipt, StudyFolder
from jaxprivnb.study.precision import WHOLE, Progress, Share
from jaxprivnb.study.schedule import Schedule
from jaxprivnb.study.spec import Arm, Spec
from jaxprivnb.study.specfile import load_spec

ENGINES = ("local", "dask")
THREADS = "study"
"""How the names of the local engine's threads begin."""
_LISTEN = 0.5
"""Seconds after which the local engine looks whether it was stopped."""


class Finished(NamedTuple):
    """One chunk that an engine has stored."""

    receipt: Receipt
    seconds: float


Follow = Callable[[Finished], list[int]]
"""Told of every chunk that is stored; says which are wanted now that were not before."""


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
    part: str | None = None,
    methods: Mapping[str, Any] | None = None,
) -> Outcome:
    """Compute what is missing of a study.

    If `out` holds a study that asks for less of the same (replicates, values of the grid, methods,
    levels, precision), it grows: rows that are stored stay as they are.

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
        part: "3/100" for the third of a hundred parts of the work, for array jobs: the others may
            run at the same time, in the same `out`, on other machines.
        methods: estimators of your own by label, functions of one release in plain Python (what
            they may give: `jaxprivnb.study.outside`) or a `Method` each. They are registered, and
            compared too where the spec does not name them.
    """
    from jaxprivnb import validate
    from jaxprivnb.study.fits import check_methods

    validate.choice("engine", engine, ENGINES)
    own = register_all(methods or {})  # before the spec is read, which may name them
    if not isinstance(spec, Spec):
        spec = load_spec(spec)
    used = {arm.method for arm in spec.arms}
    more = tuple(Arm(method.name, method.name) for method in own if method.name not in used)
    spec = dataclasses.replace(spec, arms=(*spec.arms, *more))
    check_methods(spec)
    require("pyarrow", "study", "storing a study")  # now, and not when the first chunk is done
    share = WHOLE if part is None else Share.parse(part)
    if overwrite and part is not None:
        raise ValueError("overwrite would delete what the other parts do: leave part out")
    manifest = MANIFEST if part is None else f"manifest-{share.part}-of-{share.parts}.json"
    folder = StudyFolder(check_path("out", out), spec, manifest=manifest)
    done = dict(folder.begin(overwrite=overwrite))
    schedule = folder.schedule
    progress = Progress(schedule, folder.read_part, share)
    pending = progress.begin(done)
    shown = choose_display(display)
    shown.progress = progress
    started = time.monotonic()

    def follow(finished: Finished) -> list[int]:
        folder.record(finished.receipt)
        return progress.finished(finished.receipt.chunk)

    if engine == "local":
        stopping = shown.stopping
        stream = local_engine(
            schedule, folder, pending, follow=follow, workers=workers, stopping=stopping
        )
    else:
        from jaxprivnb.study.cluster import dask_engine

        stream = dask_engine(
            schedule, folder, pending, follow=follow, workers=workers, address=address
        )
    shown.start(
        schedule.spec,
        [
            (schedule.chunk(n), done[n].failures)
            for chunks in progress.wanted.values()
            for n in chunks
            if n in done
        ],
    )
    computed = 0
    try:
        with contextlib.closing(stream):
            for finished in stream:
                computed += 1
                shown.finished(schedule.chunk(finished.receipt.chunk), finished.receipt.failures)
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
    schedule: Schedule,
    folder: StudyFolder,
    pending: list[int],
    *,
    follow: Follow,
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

    def compute(number: int) -> Finished:
        under_way.add(number)
        try:
            return compute_and_store(folder, number, between)
        finally:
            under_way.discard(number)

    def place(number: int) -> tuple[int, float]:
        # Neighbours in the queue differ in shape or N: their programs compile side by side.
        piece = schedule.chunk(number)
        return piece.start, schedule.spec.cells[piece.cell].epsilon_per_table

    pool = ThreadPoolExecutor(workers or cores(), thread_name_prefix=THREADS)
    done: SimpleQueue[Future[Finished]] = SimpleQueue()
    try:
        with _heard(stop):
            left, more = 0, pending
            while True:
                for number in sorted(more, key=place):
                    pool.submit(compute, number).add_done_callback(done.put)
                left += len(more)
                if not left:
                    break
                finished = _next(done, stop).result()
                left, more = left - 1, follow(finished)
                yield finished
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        if under_way:
            stopping(len(under_way))
        pool.shutdown(wait=True)


@contextlib.contextmanager
def _heard(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C sets `stop` before it is raised.

    What a signal raises while Python collects garbage, which takes seconds where much is held, is
    raised in JAX's callback of the collector, and lost there. A handler that is not Python's own
    is somebody's wish, and stays.
    """
    usual = signal.default_int_handler
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def both(number: int, frame: FrameType | None) -> None:
        stop.set()
        usual(number, frame)

    signal.signal(signal.SIGINT, both)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _next(done: SimpleQueue[Future[Finished]], stop: threading.Event) -> Future[Finished]:
    """The next chunk that is done, unless the run is to stop."""
    while True:
        found = None
        with contextlib.suppress(Empty):
            found = done.get(timeout=_LISTEN)
        if stop.is_set():
            raise KeyboardInterrupt
        if found is not None:
            return found


def compute_and_store(
    folder: StudyFolder, number: int, between: Callable[[], None] = go_on
) -> Finished:
    """The whole life of a chunk; what a worker does."""
    from jaxprivnb.study.compute import compute_replicates

    started = time.monotonic()
    task = folder.schedule.task(number)
    columns = compute_replicates(task.spec, task.cell, task.replicates, between)
    return Finished(folder.write_part(number, columns), time.monotonic() - started)
