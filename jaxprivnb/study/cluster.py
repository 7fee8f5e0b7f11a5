"""The same study on a Dask cluster.

Each chunk is one task: a worker computes it and writes its own part, and only a receipt travels
back. Dask reruns the tasks of a worker that is lost; a part that was already written is written
again, with the same rows. Workers must reach the same storage, under the same path or URL. They
are told of the study's methods when they join, so those need be registered here alone.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

from jaxprivnb.extras import require
from jaxprivnb.methods import METHODS, register
from jaxprivnb.study.folder import Receipt, StudyFolder
from jaxprivnb.study.run import Finished, Follow, compute_and_store
from jaxprivnb.study.schedule import Schedule
from jaxprivnb.study.spec import Spec, from_dict

_RETRIES = 2
"""How often a chunk is tried again after an exception of its own; a lost worker is not one."""


def dask_engine(
    schedule: Schedule,
    folder: StudyFolder,
    pending: list[int],
    *,
    follow: Follow,
    workers: int | None = None,
    address: str | None = None,
) -> Generator[Finished]:
    """Submit every pending chunk; yield them as they are stored."""
    distributed = require("distributed", "cluster", "the dask engine")
    with _client(distributed, workers, address) as client:
        client.register_plugin(_methods_plugin(distributed, schedule.spec))
        descriptions, url = [spec.to_dict() for spec in schedule.specs], folder.storage.url
        name = f"{schedule.spec.name}-{schedule.spec.fingerprint}"

        def submit(number: int) -> Any:
            return client.submit(
                worker_task, descriptions, url, number,
                key=f"{name}-{number}", pure=False, retries=_RETRIES,
            )  # fmt: skip

        futures = [submit(number) for number in pending]
        try:
            # The loop must be named: without it that of another client of the process is taken.
            stored = distributed.as_completed(futures, loop=client.loop)
            for future in stored:
                receipt, seconds = future.result()
                finished = Finished(Receipt(*receipt), seconds)
                for number in follow(finished):
                    futures.append(submit(number))
                    stored.add(futures[-1])
                yield finished
                future.release()
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be the thing that is gone
                client.cancel([f for f in futures if not f.done()])


def worker_task(
    descriptions: list[dict[str, Any]], url: str, number: int
) -> tuple[tuple[int, ...], float]:
    """What a worker runs: everything it needs is in the arguments."""
    schedule = Schedule([from_dict(description) for description in descriptions])
    finished = compute_and_store(StudyFolder(url, schedule), number)
    return tuple(finished.receipt), finished.seconds


def _methods_plugin(distributed: Any, spec: Spec) -> Any:
    """What makes the spec's methods known to every worker, whenever it joins."""
    known = [METHODS[arm.method] for arm in spec.arms]

    class Methods(distributed.WorkerPlugin):
        name = "jaxprivnb-methods"

        def setup(self, worker: Any) -> None:
            for method in known:
                register(method, replace=True)

    return Methods()


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
