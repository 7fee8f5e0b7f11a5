"""The work of a study, cut into chunks.

A chunk is a range of replicates of one cell. It depends only on the spec and its own number, so any
worker can compute any chunk at any time, in any order, and gives the same rows. That also holds
where `[precision]` decides how far a cell goes: it goes from one of its `rounds` to the next, which
the spec fixes, and no chunk is part of two. What a study that grew is cut into: `plan.py`.
"""

import functools
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


_GROWTH, _LEAST = 1.25, 128
"""A round ends at so many times the replicates of the one before, and has at least so many of its
own: fits come in tiles of that size, so fewer would take as long."""


def rounds(spec: Spec) -> tuple[int, ...]:
    """Where a cell's rounds end, in replicates: whole draws of the stage that is repeated.

    Each end but the last is the same whatever the largest number is, so that a study which is
    allowed more goes through all of them again.
    """
    first, most = spec.replicates, spec.most
    draws = first[first.stage]
    within, last = first.total // draws, most[first.stage]
    ends = [draws]
    while ends[-1] < last:
        grown = max(math.ceil(_GROWTH * ends[-1]), ends[-1] + math.ceil(_LEAST / within))
        ends.append(min(grown, last))
    return tuple(within * end for end in ends)


@functools.lru_cache(maxsize=64)
def cuts(ends: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Where chunks of at most `size` replicates begin, with the end of the last one."""
    starts = (range(a, b, size) for a, b in zip((0, *ends), ends, strict=False))
    return (*(start for part in starts for start in part), ends[-1])


def _edges(spec: Spec) -> tuple[int, ...]:
    return cuts(rounds(spec), spec.chunk_size)


def chunks_per_cell(spec: Spec) -> int:
    """The last chunk of a round may be shorter than the others."""
    return len(_edges(spec)) - 1


def n_chunks(spec: Spec) -> int:
    """Chunks in the whole study, if every cell goes as far as it may."""
    return len(spec.cells) * chunks_per_cell(spec)


def chunk(spec: Spec, number: int) -> Chunk:
    """The chunk with that number."""
    if not 0 <= number < n_chunks(spec):
        raise IndexError(f"chunk must be from 0 to {n_chunks(spec) - 1}, got {number}")
    edges = _edges(spec)
    cell, within = divmod(number, len(edges) - 1)
    return Chunk(number, cell, *edges[within : within + 2])


def all_chunks(spec: Spec) -> Iterator[Chunk]:
    """Every chunk, in order."""
    return (chunk(spec, number) for number in range(n_chunks(spec)))


def go_on() -> None:
    """What is done between two pieces of a chunk where nobody may want it to stop: nothing."""


def replicate_id(spec: Spec, r: int) -> ReplicateId:
    """Noise draws vary fastest, then data sets, then parameters."""
    outer, noise_draw = divmod(r, spec.most.noise_draws)
    return ReplicateId(*divmod(outer, spec.most.datasets), noise_draw)
