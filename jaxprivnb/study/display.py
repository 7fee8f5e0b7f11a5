"""What a person sees while a study runs: a live picture on a terminal, log lines elsewhere."""

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from jaxprivnb.extras import MissingExtraError, require
from jaxprivnb.study.chunks import Chunk
from jaxprivnb.study.spec import Cell, Spec

if TYPE_CHECKING:
    from jaxprivnb.study.precision import Progress

_LINE_SECONDS = 5.0
_ROWS_SHOWN = 12
_RECENT_CHUNKS, _RECENT_SECONDS = 10, 30.0


class Display:
    """Counts what is done; shows nothing. The other displays draw what this one counts."""

    progress: "Progress | None" = None
    """What the run knows of errors and of what is wanted; set before it starts."""

    def start(self, spec: Spec, done: Iterable[tuple[Chunk, int]]) -> None:
        """A run begins; `done` has the chunks of earlier runs with their failures."""
        self.spec = spec
        self.cell_done: Counter[int] = Counter()
        self.failures = 0
        for piece, failures in done:
            self.cell_done[piece.cell] += piece.size
            self.failures += failures
        self.resumed = self.cell_done.total()
        self.total = sum(map(self.expected, range(len(spec.cells))))
        self.started = time.monotonic()
        self.recent = deque([(self.started, self.done)])

    def finished(self, piece: Chunk, failures: int) -> None:
        """A chunk is stored."""
        self.cell_done[piece.cell] += piece.size
        self.failures += failures
        if self.spec.precision is not None:
            self.total = sum(map(self.expected, range(len(self.spec.cells))))
        now = time.monotonic()
        self.recent.append((now, self.done))
        # At least so many chunks, and so long: many workers finish theirs in bursts.
        while len(self.recent) > _RECENT_CHUNKS + 1 and now - self.recent[1][0] >= _RECENT_SECONDS:
            self.recent.popleft()

    def expected(self, cell: int) -> int:
        """Replicates that a cell comes to, as far as is known."""
        if self.progress is None:
            return self.spec.replicates.total
        return self.progress.expected(cell)

    @property
    def sure(self) -> int:
        """Cells that are as sure as they have to be."""
        assert self.progress is not None
        return sum(look.met for look in self.progress.looks.values())

    def stopping(self, chunks: int) -> None:
        """The run was told to stop while so many chunks were under way."""

    def stop(self) -> None:
        """The run ended, one way or another."""

    @property
    def done(self) -> int:
        """Replicates stored, earlier runs included."""
        return self.cell_done.total()

    @property
    def rate(self) -> float:
        """Replicates a second over the last chunks: the first ones mostly compile."""
        begin, done = self.recent[0]
        elapsed = time.monotonic() - begin
        return (self.done - done) / elapsed if elapsed > 0 else 0.0

    @property
    def time_left(self) -> str:
        """At the rate of the last chunks."""
        return clock((self.total - self.done) / self.rate) if self.rate > 0 else "?"


class LogDisplay(Display):
    """A line now and then, for files and pipes."""

    def __init__(self, stream: TextIO | None = None, every: float = _LINE_SECONDS) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.every = every
        self.last = 0.0

    def start(self, spec: Spec, done: Iterable[tuple[Chunk, int]]) -> None:
        """Say what is to be done."""
        super().start(spec, done)
        self.last = self.started
        most = "" if spec.precision is None else f" to {spec.most.total}"
        self._say(
            f"{spec.name}: {len(spec.cells)} cells x {spec.replicates.total}{most} replicates x "
            f"{len(spec.arms)} methods; {self.resumed} of {self.total} replicates done before"
        )

    def finished(self, piece: Chunk, failures: int) -> None:
        """A line for a finished cell, and for every few seconds."""
        super().finished(piece, failures)
        now = time.monotonic()
        if self.done == self.total or now - self.last >= self.every:
            self.last = now
            self._say(
                f"{self.done}/{self.total} replicates ({100 * self.done / self.total:.0f}%), "
                f"{self.rate:.0f}/s, {self.time_left} left, {self.failures} failures; "
                f"{self._where(piece)}"
            )

    def stopping(self, chunks: int) -> None:
        """Say what is waited for."""
        self._say(stopping_line(chunks))

    def _where(self, piece: Chunk) -> str:
        """The cell of the chunk; under `[precision]` the one with the largest error."""
        cells = self.spec.cells
        if self.progress is None or self.spec.precision is None:
            return f"at {describe_cell(cells[piece.cell])}"
        cell = self.progress.least_sure()
        if cell is None:
            return "first round"
        return (
            f"{self.sure} of {len(cells)} cells as sure as asked; least sure: "
            f"{self.progress.looks[cell]} at {describe_cell(cells[cell])}"
        )

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=self.stream, flush=True)


class LiveDisplay(Display):
    """Overall progress, and a grid of the cells with epsilon across."""

    def __init__(self, console: Any = None) -> None:
        self._live = require("rich.live", "terminal", "the live display")
        self._table = require("rich.table", "terminal", "the live display")
        self._bar = require("rich.progress_bar", "terminal", "the live display")
        self._group = require("rich.console", "terminal", "the live display")
        self.console = console or self._group.Console(stderr=True)

    def start(self, spec: Spec, done: Iterable[tuple[Chunk, int]]) -> None:
        """Draw, and go on drawing."""
        super().start(spec, done)
        self.active: int | None = None
        self.live = self._live.Live(
            get_renderable=self.render, console=self.console, refresh_per_second=4, transient=False
        )
        self.live.start()

    def finished(self, piece: Chunk, failures: int) -> None:
        """The next refresh shows it."""
        super().finished(piece, failures)
        self.active = piece.cell

    def stopping(self, chunks: int) -> None:
        """Say above the picture what is waited for."""
        self.live.console.print(stopping_line(chunks), highlight=False)

    def stop(self) -> None:
        """Leave the last picture on the screen."""
        self.live.stop()

    def render(self) -> Any:
        """The picture of this moment."""
        line = self._table.Table.grid(padding=(0, 2))
        bar = self._bar.ProgressBar(total=self.total, completed=self.done, width=30)
        failed = f"[red]{self.failures} failures[/red]" if self.failures else "no failures"
        line.add_row(
            f"[bold]{self.spec.name}[/bold]",
            bar,
            f"{self.done}/{self.total} replicates",
            f"{self.rate:.0f}/s",
            f"{self.time_left} left" if self.done < self.total else "done",
            failed,
        )
        if self.spec.precision is None:
            return self._group.Group(line, self._cells())
        legend = (
            f"error / error asked for; ✓: as sure as asked, {self.sure} of {len(self.spec.cells)} "
            "cells; !: at max_replicates"
        )
        return self._group.Group(line, self._cells(), legend)

    def _cells(self) -> Any:
        """Rows are cells without their epsilon, columns are epsilons."""
        spec, width = self.spec, len(self.spec.budgets)
        rows = [range(i, i + width) for i in range(0, len(spec.cells), width)]
        at = next((i for i, row in enumerate(rows) if self.active in row), 0)
        first = max(0, min(at - _ROWS_SHOWN // 2, len(rows) - _ROWS_SHOWN))
        table = self._table.Table(box=None, padding=(0, 1), header_style="dim")
        table.add_column("epsilon" if spec.budget == "epsilon_per_table" else spec.budget)
        for budget in spec.budgets:
            table.add_column(f"{budget:g}", justify="right")
        for row in rows[first : first + _ROWS_SHOWN]:
            table.add_row(varying(spec, spec.cells[row[0]]), *map(self._share, row))
        if spec.precision is None and len(rows) > _ROWS_SHOWN:
            complete = sum(
                self.cell_done[c] == self.expected(c) > 0 for c in range(len(spec.cells))
            )
            table.caption = f"{complete} of {len(spec.cells)} cells complete"
        return table

    def _share(self, cell: int) -> str:
        if self.progress is not None and (look := self.progress.looks.get(cell)):
            if look.met:
                return "[green]✓[/green]"
            return f"{look.ratio:.2g}" + "[red]![/red]" * self.progress.ended(cell)
        if not self.cell_done[cell]:
            return "[dim]·[/dim]"
        if self.spec.precision is not None:
            return "…"
        share = self.cell_done[cell] / self.expected(cell)
        return "[green]✓[/green]" if share == 1 else f"{100 * share:.0f}%"


def choose_display(display: Display | str | None) -> Display:
    """The display that `run_study` was asked for."""
    if isinstance(display, Display):
        return display
    if display in (None, "quiet"):
        return Display()
    if display == "log":
        return LogDisplay()
    if display != "auto":
        from jaxprivnb import validate

        raise ValueError(
            "display must be 'auto', 'log', 'quiet', None or a Display, "
            f"got {validate.word(display)}"
        )
    if sys.stderr.isatty():
        try:
            return LiveDisplay()
        except MissingExtraError:
            pass
    return LogDisplay()


def stopping_line(chunks: int) -> str:
    """What happens between a Ctrl-C and the end."""
    what = "1 chunk is" if chunks == 1 else f"{chunks} chunks are"
    return (
        f"stopping: {what} under way and will be left at the next piece (a program that is being "
        "compiled is waited for); what is stored is kept. Ctrl-C again ends at once"
    )


def describe_cell(cell: Cell) -> str:
    """`N=50, epsilon=0.01, I=2, K=5, J=2`."""
    return (
        f"N={cell.n_records}, epsilon={cell.epsilon_per_table:g}, I={cell.n_classes}, "
        f"K={cell.n_features}, J={cell.categories}"
    )


def varying(spec: Spec, cell: Cell) -> str:
    """What distinguishes a cell from the others, its epsilon apart."""
    parts = {
        "N": (len(spec.n_records), cell.n_records),
        "I": (len(spec.n_classes), cell.n_classes),
        "K": (len({len(s) for s in spec.n_categories}), cell.n_features),
        "J": (len({tuple(sorted(set(s))) for s in spec.n_categories}), cell.categories),
        "prior": (len(spec.prior), cell.prior),
        "noise": (len(spec.noise), cell.noise),
        "truth": (len(spec.truth), cell.column("truth")),
        "noise taken for": (len(spec.assumed_noise), cell.assumed_noise),
        "its sd for": (len(spec.assumed_scale), f"{cell.assumed_scale:g} times"),
    }
    named = [f"{name}={value}" for name, (values, value) in parts.items() if values > 1]
    return ", ".join(named) or f"N={cell.n_records}"


def clock(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
