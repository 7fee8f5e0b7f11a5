"""A study that grew: which chunks the specs it was asked for with come to, one after the other.

The first spec's chunks are those of `chunks.py`. A spec that only asks for more (`continues`) adds
chunks for what is new in it, numbered after those there are: new levels of old fits, new methods on
old replicates, new replicates of old cells, new cells. So parts that exist stay what they are, and
what a number stands for follows from the specs alone, whichever chunks were done when.

Rows carry indices (cell, method, replicate) of the spec that they were computed for; what a row
says, and its draws, depend on the values behind the indices. Readers number them anew.
"""

import bisect
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxprivnb.study.chunks import Chunk, cuts, rounds
from jaxprivnb.study.spec import Precision, Spec

AXES = (
    "n_records", "epsilon_per_table", "epsilon_total", "rho_total", "n_classes", "n_categories",
    "prior", "truth", "noise", "assumed_noise", "assumed_scale",
)  # fmt: skip
"""Of the grid."""


class Work(NamedTuple):
    """Chunks of one kind: the same replicates of several cells."""

    spec: Spec
    """With the methods and levels that are computed."""
    fingerprint: str
    """Of the study that asked for it."""
    first: int
    """Number of the first chunk."""
    cells: tuple[int, ...]
    """Indices into `spec.cells`."""
    replicates: np.ndarray
    """Of each cell, sorted; numbered as in `spec`."""
    edges: tuple[int, ...]
    """Where in `replicates` chunks begin, with the end of the last one."""
    levels_only: bool
    """Whether only coverage is kept: the other columns are stored already."""

    @property
    def size(self) -> int:
        """How many chunks."""
        return len(self.cells) * (len(self.edges) - 1)

    def task(self, number: int) -> "Task":
        """The chunk with that number."""
        cell, within = divmod(number - self.first, len(self.edges) - 1)
        start, stop = self.edges[within : within + 2]
        return Task(
            number, self.spec, self.cells[cell], self.replicates[start:stop], self.levels_only
        )


class Task(NamedTuple):
    """A chunk, with all that its rows depend on."""

    number: int
    spec: Spec
    cell: int
    """Index into `spec.cells`."""
    replicates: np.ndarray
    levels_only: bool

    @property
    def rows(self) -> int:
        """How many it has."""
        return len(self.replicates) * len(self.spec.arms)


class Schedule:
    """The chunks of a study, over every spec that it was asked for with."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = tuple(specs)
        self.spec = self.specs[-1]
        """What is asked for now."""
        self.works: list[Work] = []
        for i, spec in enumerate(self.specs):
            self._add(spec, self.specs[i - 1] if i else None)
        self.size = sum(work.size for work in self.works)
        """Chunks, if every cell goes as far as it may."""
        self._firsts = [work.first for work in self.works]
        self._places = [_places(work.spec, self.spec) for work in self.works]

    def work(self, number: int) -> Work:
        """What a chunk is part of."""
        if not 0 <= number < self.size:
            raise IndexError(f"chunk must be from 0 to {self.size - 1}, got {number}")
        return self.works[self._of(number)]

    def task(self, number: int) -> Task:
        """How a chunk is computed."""
        return self.work(number).task(number)

    def chunk(self, number: int) -> Chunk:
        """A chunk as a piece of the whole study: its cell is an index into `Schedule.spec.cells`.

        Start and stop count its replicates among those of its kind.
        """
        work = self.work(number)
        cell, within = divmod(number - work.first, len(work.edges) - 1)
        here = self._places[self._of(number)][work.cells[cell]]
        return Chunk(number, here, *work.edges[within : within + 2])

    def _of(self, number: int) -> int:
        return bisect.bisect_right(self._firsts, number) - 1

    def rounds_of(self, cell: int) -> list[list[int]]:
        """The chunks of a cell, an index into `Schedule.spec.cells`, by round."""
        ends = np.array(rounds(self.spec))
        found: list[list[int]] = [[] for _ in ends]
        for work, places in zip(self.works, self._places, strict=True):
            at = next((i for i, own in enumerate(work.cells) if places[own] == cell), None)
            if at is None:
                continue
            last = renumbered(work.spec, self.spec, work.replicates[np.array(work.edges[1:]) - 1])
            first = work.first + at * (len(work.edges) - 1)
            for i, of in enumerate(np.searchsorted(ends, last, side="right")):
                found[of].append(first + i)
        return found

    def _add(self, new: Spec, old: Spec | None) -> None:
        """The works that `new` adds to what `old` and those before it came to."""
        ends = rounds(new)
        fingerprint = new.fingerprint

        def add(
            cells: tuple[int, ...],
            replicates: np.ndarray,
            levels_only: bool = False,
            **changes: object,
        ) -> None:
            if cells and len(replicates):
                within = sorted({*np.searchsorted(replicates, ends).tolist()} - {0})
                spec = dataclasses.replace(new, **changes) if changes else new  # type: ignore[arg-type]
                edges = cuts(tuple(within), new.chunk_size)
                first = self.works[-1].first + self.works[-1].size if self.works else 0
                self.works.append(
                    Work(spec, fingerprint, first, cells, replicates, edges, levels_only)
                )

        every = np.arange(new.most.total)
        cells = new.cells
        if old is None:
            add(tuple(range(len(cells))), every)
            return
        there = set(old.cells)
        known = tuple(i for i, cell in enumerate(cells) if cell in there)
        before = renumbered(old, new, np.arange(old.most.total))
        arms = tuple(arm for arm in new.arms if arm in old.arms)
        levels = tuple(level for level in new.levels if level not in old.levels)
        more_arms = tuple(arm for arm in new.arms if arm not in old.arms)
        if levels:
            with_intervals = before[before % new.interval_every == 0]
            add(known, with_intervals, True, arms=arms, levels=levels)
        if more_arms:
            add(known, before, arms=more_arms)
        add(known, np.setdiff1d(every, before, assume_unique=True))
        add(tuple(i for i in range(len(cells)) if i not in set(known)), every)


def renumbered(old: Spec, new: Spec, replicates: np.ndarray) -> np.ndarray:
    """The numbers that replicates of `old` have in `new`: those of the same draws."""
    a, b = old.most, new.most
    if _same_numbers(old, new):
        return replicates
    outer, noise_draw = np.divmod(replicates, a.noise_draws)
    parameter, dataset = np.divmod(outer, a.datasets)
    return (parameter * b.datasets + dataset) * b.noise_draws + noise_draw


def continues(old: Spec, new: Spec) -> bool:
    """Whether `new` asks for all that `old` does, and for more of it alone: replicates, values of
    the grid, methods, levels, precision.
    """
    lists = (*AXES, "levels", "arms")
    if any(value not in getattr(new, name) for name in lists for value in getattr(old, name)):
        return False
    if not set(old.cells) <= set(new.cells):  # an axis that was not stated, and now is
        return False
    same = {name: getattr(new, name) for name in (*lists, "replicates", "precision")}
    if dataclasses.replace(old, **same) != new:
        return False
    if any(x > y for x, y in zip(old.most, new.most, strict=True)):
        return False
    if any(x > y for x, y in zip(old.replicates, new.replicates, strict=True)):
        return False
    if (
        old.precision is not None
        and new.precision is not None
        and not (
            # With other rounds a cell could end before where it is.
            old.replicates == new.replicates and _is_surer(old.precision, new.precision)
        )
    ):
        return False
    if new.published.releases > 1 and old.most.noise_draws != new.most.noise_draws:
        return False  # where the noise of the second release is drawn depends on it
    return new.interval_every == 1 or _same_numbers(old, new)


def _is_surer(old: Precision, new: Precision) -> bool:
    """Whether every target of `old` is met where those of `new` are."""
    pairs = ((old.relative, new.relative), (old.absolute, new.absolute))
    return all(dict(b).get(name, np.inf) <= x for a, b in pairs for name, x in a)


def _same_numbers(old: Spec, new: Spec) -> bool:
    """Whether a replicate has the number in `new` that it has in `old`."""
    a, b = old.most, new.most
    datasets = a.parameters == 1 or a.datasets == b.datasets
    noise_draws = a.parameters * a.datasets == 1 or a.noise_draws == b.noise_draws
    return datasets and noise_draws


def _places(old: Spec, new: Spec) -> list[int]:
    """The index in `new.cells` of each of `old.cells`."""
    index = {cell: i for i, cell in enumerate(new.cells)}
    return [index[cell] for cell in old.cells]
