"""The work of a study, cut into chunks.

A chunk is a range of replicates of one cell. It depends only on the spec and its own number, so any
worker can compute any chunk at any time, in any order, and gives the same rows.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from jaxprivnb.study.spec import Spec


class Chunk(NamedTuple):
    """Replicates start <= r < stop of one cell."""

    number: int
    cell: int
    """Index into `spec.cells`."""
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many replicates."""
        return self.stop - self.start


class ReplicateId(NamedTuple):
    """Replicate r of a cell, named by its place in the nested design."""

    parameter: int
    dataset: int
    noise_draw: int


def chunks_per_cell(spec: Spec) -> int:
    """The last chunk of a cell may be shorter than the others."""
    return math.ceil(spec.replicates.total / spec.chunk_size)


def n_chunks(spec: Spec) -> int:
    """Chunks in the whole study."""
    return len(spec.cells) * chunks_per_cell(spec)


def chunk(spec: Spec, number: int) -> Chunk:
    """The chunk with that number."""
    if not 0 <= number < n_chunks(spec):
        raise IndexError(f"chunk must be from 0 to {n_chunks(spec) - 1}, got {number}")
    cell, within = divmod(number, chunks_per_cell(spec))
    start = within * spec.chunk_size
    return Chunk(number, cell, start, min(start + spec.chunk_size, spec.replicates.total))


def all_chunks(spec: Spec) -> Iterator[Chunk]:
    """Every chunk, in order."""
    return (chunk(spec, number) for number in range(n_chunks(spec)))


def go_on() -> None:
    """What is done between two pieces of a chunk where nobody may want it to stop: nothing."""


def replicate_id(spec: Spec, r: int) -> ReplicateId:
    """Noise draws vary fastest, then data sets, then parameters."""
    outer, noise_draw = divmod(r, spec.replicates.noise_draws)
    return ReplicateId(*divmod(outer, spec.replicates.datasets), noise_draw)
