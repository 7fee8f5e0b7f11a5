"""Monte Carlo errors, and which cells of a study know enough.

Replicates that share a parameter draw are not independent, so the standard error of a cell's mean
is that of the means of its parameter draws, sd / sqrt(parameters). A study with one parameter draw
uses its data sets in that role (the error then says nothing about other parameters), and one with
a single data set its noise draws.

Under `[precision]` a cell is looked at when a round of it is whole, and never in between. Whether
it ends there follows from its rows alone, so a study has the same rows in the end whoever computed
which of them, in what order, and however often it was begun again.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb.study.chunks import rounds
from jaxprivnb.study.schedule import Schedule
from jaxprivnb.study.schema import DRAWS, method_codes
from jaxprivnb.study.spec import Spec


class Share(NamedTuple):
    """One of several parts of the work, from 1: what a run does by itself."""

    part: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """From "3/100"."""
        part, slash, parts = text.partition("/")
        if slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts):
            return cls(int(part), int(parts))
        raise ValueError(f"part must be like 3/100, from 1/100 to 100/100, got {text!r}")

    def has(self, number: int) -> bool:
        """Whether something numbered is in this part: one of as many neighbours as there are parts,
        in another place each time, since neighbours in a grid take unequally long.
        """
        return (number + number // self.parts) % self.parts == self.part - 1


WHOLE = Share(1, 1)


class Look(NamedTuple):
    """What a cell's rows say at the end of a round, of the method and measure that are worst."""

    replicates: int
    method: str
    measure: str
    error: float
    """Monte Carlo standard error: over the mean if `relative`; inf where there is none yet."""
    asked: float
    relative: bool

    @property
    def ratio(self) -> float:
        """Error reached over error asked for."""
        return self.error / self.asked

    @property
    def met(self) -> bool:
        """Whether every method is as sure as it has to be."""
        return self.error <= self.asked

    def __str__(self) -> str:
        show = lambda x: f"{100 * x:.3g}%" if self.relative else f"{x:.2g}"  # noqa: E731
        return f"{self.measure} {show(self.error)} (asked: {show(self.asked)}) of {self.method}"


class Progress:
    """The chunks that a study wants next, given those that it has.

    Args:
        schedule: of the study.
        rows: a finished chunk's rows as a `pyarrow.Table`, of the columns named or more.
        share: which part of the work is meant: chunks; under `[precision]` whole cells, since
            the chunks of a cell wait for each other.
    """

    def __init__(
        self, schedule: Schedule, rows: Callable[[int, list[str]], Any], share: Share = WHOLE
    ) -> None:
        self.schedule = schedule
        self.share = share
        self.looks: dict[int, Look] = {}
        """The last look at each cell, under `[precision]`."""
        self.wanted: dict[int, list[int]] = {}
        """The chunks of each cell that are wanted so far, done or not."""
        self._rows = rows
        self._ends = rounds(schedule.spec)
        self._round: dict[int, int] = {}
        self._size: dict[int, int] = {}
        self._left: dict[int, set[int]] = {}
        self._values: dict[int, list[_Values]] = {}
        self._done: set[int] = set()

    def begin(self, done: Iterable[int]) -> list[int]:
        """The chunks to begin with, where those are done already."""
        self._done = set(done)
        by_cell = self.schedule.spec.precision is not None
        found = []
        for cell in range(len(self.schedule.spec.cells)):
            if not by_cell or self.share.has(cell):
                self._round[cell] = self._size[cell] = 0
                self.wanted[cell] = []
                found += self._advance(cell)
        return found

    def finished(self, number: int) -> list[int]:
        """The chunks that are wanted now that this one is done."""
        self._done.add(number)
        cell = self.schedule.chunk(number).cell
        self._left[cell].discard(number)
        return [] if self._left[cell] else self._advance(cell)

    def ended(self, cell: int) -> bool:
        """Whether a cell has all that is wanted of it."""
        last = self._round[cell] == len(self._ends)
        return not self._left[cell] and (last or self.looks[cell].met)

    def expected(self, cell: int) -> int:
        """Replicates that a cell is expected to come to: errors fall with their square root.

        One that is fitted anew, for a method or a level that is new, counts anew.
        """
        if cell not in self._size:
            return 0
        look, end = self.looks.get(cell), self._ends[self._round[cell] - 1]
        if look is None or look.met or not math.isfinite(look.ratio):
            return self._size[cell]
        needed = min(math.ceil(look.replicates * look.ratio**2), self._ends[-1])
        return self._size[cell] + max(0, needed - end)

    def least_sure(self) -> int | None:
        """The cell that is furthest from what is asked, of those that go on if there are any."""
        going_on = [cell for cell in self.looks if not self.ended(cell)]
        cells = going_on or list(self.looks)
        return max(cells, key=lambda cell: self.looks[cell].ratio, default=None)

    def _advance(self, cell: int) -> list[int]:
        """Look at a cell whose last round is whole; the chunks of the next, if it needs one."""
        chunks = self.schedule.rounds_of(cell)
        while True:
            at = self._round[cell]
            if at and self.schedule.spec.precision is not None:
                self.looks[cell] = self._look(cell)
            if at == len(chunks) or (at and self.looks[cell].met):
                self._left[cell] = set()
                self._values.pop(cell, None)
                return []
            mine = chunks[at]
            if self.schedule.spec.precision is None:
                mine = [number for number in mine if self.share.has(number)]
            self._round[cell] += 1
            self.wanted[cell] += mine
            self._size[cell] += sum(self.schedule.chunk(number).size for number in mine)
            self._left[cell] = set(mine) - self._done
            if self._left[cell]:
                return sorted(self._left[cell])

    def _look(self, cell: int) -> Look:
        """What the whole rounds of a cell say."""
        spec, chunks = self.schedule.spec, self.wanted[cell]
        replicates = self._ends[self._round[cell] - 1]
        known = self._values.setdefault(cell, [])
        targets = _targets(spec)
        for number in chunks[len(known) :]:
            names = ["method", *DRAWS, *{measure for measure, *_ in targets}]
            known.append(_Values.of(self.schedule, number, self._rows(number, names)))
        looks = []
        for measure, asked, relative in targets:
            mean, se = _error(spec, measure, known)
            with np.errstate(divide="ignore", invalid="ignore"):
                error = np.where(se == 0, 0.0, se / np.abs(mean)) if relative else se
            for arm, x in enumerate(error):
                if not np.isnan(mean[arm]):  # a method may have no such number
                    x = math.inf if np.isnan(x) else float(x)
                    looks.append(
                        Look(replicates, spec.arms[arm].label, measure, x, asked, relative)
                    )
        none = Look(replicates, spec.arms[0].label, targets[0][0], 0.0, targets[0][1], False)
        return max(looks, key=lambda look: look.ratio, default=none)


class _Values(NamedTuple):
    """What a look reads of a chunk."""

    arm: np.ndarray
    """Index into `spec.arms`, one a row."""
    replicate: np.ndarray
    draw: np.ndarray
    """Of the stage whose draws are independent."""
    measures: dict[str, np.ndarray]

    @classmethod
    def of(cls, schedule: Schedule, number: int, table: Any) -> "_Values":
        """From a chunk's rows."""
        spec = schedule.spec
        draws = [table[name].to_numpy().astype(np.int64) for name in DRAWS]
        sizes = spec.most
        replicate = (draws[0] * sizes.datasets + draws[1]) * sizes.noise_draws + draws[2]
        return cls(
            method_codes(table, [arm.label for arm in spec.arms]),
            replicate,
            draws[sizes.stage],
            {
                name: table[name].to_numpy()
                for name in table.column_names
                if name not in ("method", *DRAWS)
            },
        )


def _targets(spec: Spec) -> list[tuple[str, float, bool]]:
    """(measure, error asked for, whether it is relative)."""
    assert spec.precision is not None
    found = [(name, x, True) for name, x in spec.precision.relative]
    return found + [(name, x, False) for name, x in spec.precision.absolute]


def _error(spec: Spec, measure: str, known: list[_Values]) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard error) of a measure, one a method; in the order of replicates, so that the
    last bits do not depend on the order of chunks.
    """
    parts = [values for values in known if measure in values.measures]
    if not parts:
        return (np.full(len(spec.arms), np.nan),) * 2
    join = lambda pick: np.concatenate([pick(values) for values in parts])  # noqa: E731
    arm, replicate, draw = (join(lambda v, i=i: v[i]) for i in range(3))
    values = join(lambda v: np.asarray(v.measures[measure], np.float64))
    order = np.lexsort((replicate, arm))
    return clustered_mean(values[order], arm[order], draw[order], len(spec.arms))


def clustered_mean(
    values: np.ndarray, group: np.ndarray, cluster: np.ndarray, n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each group's mean, and its standard error from the means of the group's clusters.

    With clusters of unequal sizes n_c and means x_c (an unfinished study), the error is that of
    the ratio estimator: sqrt(C / (C - 1) sum_c (n_c (x_c - mean))^2) / sum_c n_c.
    """
    values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    n_clusters = int(cluster.max()) + 1 if cluster.size else 1
    slot = (group * n_clusters + cluster)[finite]
    shape = (n_groups, n_clusters)
    n = np.bincount(slot, minlength=n_groups * n_clusters).reshape(shape).astype(np.float64)
    total = np.bincount(slot, values[finite], minlength=n_groups * n_clusters).reshape(shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total.sum(1) / n.sum(1)
        residual = total - n * mean[:, None]
        C = (n > 0).sum(1)
        se = np.sqrt(np.where(C > 1, C / (C - 1.0), np.nan) * (residual**2).sum(1)) / n.sum(1)
    return mean, se
