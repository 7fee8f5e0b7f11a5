"""What is missing of a study: read from its folder, which is left as it is."""

import os
from typing import NamedTuple

from jaxprivnb.extras import require
from jaxprivnb.study.display import describe_cell
from jaxprivnb.study.folder import StudyFolder
from jaxprivnb.study.precision import Look, Progress
from jaxprivnb.study.spec import Spec


class Missing(NamedTuple):
    """What a method still needs in a cell."""

    cell: int
    """Index into `spec.cells`."""
    method: str
    rows: int
    """Rows that are stored."""
    missing: int
    """Rows that are not, as far as is known: under `[precision]` those of the round under way."""


class StudyStatus(NamedTuple):
    """How far a study is."""

    spec: Spec
    done: int
    """Chunks that are stored."""
    wanted: int
    """Chunks there are to be, as far as is known."""
    missing: list[Missing]
    """Cells and methods that lack something."""
    looks: dict[int, Look]
    """Under `[precision]`, the last look at each cell."""
    ended: set[int]
    """Cells that need nothing more."""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return self.done == self.wanted


def study_status(out: str | os.PathLike[str]) -> StudyStatus:
    """What the study in a folder or at a URL has, and what it lacks."""
    require("pyarrow", "study", "reading a study")
    folder = StudyFolder.found(os.fspath(out))
    schedule, spec = folder.schedule, folder.spec
    progress = Progress(schedule, folder.read_part)
    progress.begin(folder.done)
    missing = []
    for cell, chunks in progress.wanted.items():
        rows = {arm.label: [0, 0] for arm in spec.arms}
        for number in chunks:
            task = schedule.task(number)
            there = number in folder.done
            for arm in task.spec.arms:
                if not (there and task.levels_only):  # those are no rows of their own
                    rows[arm.label][not there] += len(task.replicates)
        missing += [Missing(cell, label, *pair) for label, pair in rows.items() if pair[1]]
    wanted = [number for chunks in progress.wanted.values() for number in chunks]
    ended = {cell for cell in progress.wanted if progress.ended(cell)}
    done = sum(number in folder.done for number in wanted)
    return StudyStatus(spec, done, len(wanted), missing, progress.looks, ended)


def format_status(status: StudyStatus) -> str:
    """Lines for a person: what is missing, cell by cell, and a last one with the sum."""
    spec = status.spec
    lines = [
        f"{describe_cell(spec.cells[cell])}: {method} lacks {missing} of {rows + missing} rows"
        for cell, method, rows, missing in status.missing
    ]
    short = [cell for cell, look in status.looks.items() if cell in status.ended and not look.met]
    lines += [
        f"{describe_cell(spec.cells[cell])}: at max_replicates with {status.looks[cell]}"
        for cell in short
    ]
    if status.looks:
        sure = sum(look.met for look in status.looks.values())
        lines.append(f"{sure} of {len(spec.cells)} cells are as sure as asked")
    how = "complete" if status.complete else "not complete"
    lines.append(f"{spec.name} is {how}: {status.done} of {status.wanted} chunks are stored")
    return "\n".join(lines)
