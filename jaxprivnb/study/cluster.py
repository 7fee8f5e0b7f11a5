"""The same study on a Dask cluster.

Each chunk is one task: a worker computes it and writes its own part, and only a receipt travels
back. Dask reruns the tasks of a worker that is lost; a part that was already written is written
again, with the same rows. Workers must reach the same storage, under the same path or URL.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

from jaxprivnb.study.chunks import Chunk, chunk
from jaxprivnb.study.extras import require
from jaxprivnb.study.run import Finished, compute_and_store
from jaxprivnb.study.spec import Spec, from_dict
from jaxprivnb.study.store import Receipt, Store

_RETRIES = 2
"""How often a chunk is tried again after an exception of its own; a lost worker is not one."""


def dask_engine(
    spec: Spec,
    store: Store,
    pending: list[Chunk],
    *,
    workers: int | None = None,
    address: str | None = None,
) -> Generator[Finished]:
    """Submit every pending chunk; yield them as they are stored."""
    distributed = require("distributed", "cluster", "the dask engine")
    with _client(distributed, workers, address) as client:
        description, url = spec.to_dict(), store.storage.url
        futures = [
            client.submit(
                worker_task, description, url, piece.number,
                key=f"{spec.name}-{spec.fingerprint}-{piece.number}", pure=False, retries=_RETRIES,
            )
            for piece in pending
        ]  # fmt: skip
        try:
            # The loop must be named: without it that of another client of the process is taken.
            for future in distributed.as_completed(futures, loop=client.loop):
                receipt, seconds = future.result()
                yield Finished(Receipt(*receipt), seconds)
                future.release()
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be the thing that is gone
                client.cancel([f for f in futures if not f.done()])


def worker_task(
    description: dict[str, Any], url: str, number: int
) -> tuple[tuple[int, ...], float]:
    """What a worker runs: everything it needs is in the arguments."""
    spec = from_dict(description)
    finished = compute_and_store(spec, Store(url, spec), chunk(spec, number))
    return tuple(finished.receipt), finished.seconds


@contextlib.contextmanager
def _client(distributed: Any, workers: int | None, address: str | None) -> Iterator[Any]:
    """A client of the cluster at `address`, or of one that lives as long as this run."""
    if address is not None:
        with distributed.Client(address, set_as_default=False) as client:
            yield client
        return
    # Processes with one thread each: JAX runs its own threads, and a lost process loses one chunk.
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client
