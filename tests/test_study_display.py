"""What is shown while a study runs."""

import dataclasses
import io

import pytest

from jaxprivnb.study.chunks import chunk
from jaxprivnb.study.display import (
    Display,
    LiveDisplay,
    LogDisplay,
    choose_display,
    clock,
    describe_cell,
    varying,
)
from jaxprivnb.study.spec import Replicates
from jaxprivnb.study.specfile import shipped_spec

SPEC = dataclasses.replace(
    shipped_spec("figure1"), chunk_size=512, replicates=Replicates(20, 10, 5)
)


def test_log_lines():
    stream = io.StringIO()
    display = LogDisplay(stream, every=0)
    display.start(SPEC, [(chunk(SPEC, 0), 3)])
    display.finished(chunk(SPEC, 1), 1)
    first, second = stream.getvalue().splitlines()
    assert "36 cells x 1000 replicates x 4 methods; 512 of 36000 replicates done before" in first
    assert "1000/36000 replicates (3%)" in second
    assert "4 failures; at N=50, epsilon=0.0001, I=2, K=5, J=2" in second


def test_both_displays_say_what_a_stop_waits_for():
    console = pytest.importorskip("rich.console")
    log, live = io.StringIO(), io.StringIO()
    for display in (
        LogDisplay(log),
        LiveDisplay(console.Console(file=live, width=200, force_terminal=True)),
    ):
        display.start(SPEC, [])
        display.stopping(2)
        display.stop()
    for stream in (log, live):
        assert "stopping: 2 chunks are under way" in stream.getvalue()
        assert "Ctrl-C again ends at once" in stream.getvalue()


def test_live_picture():
    console = pytest.importorskip("rich.console")
    stream = io.StringIO()
    display = LiveDisplay(console.Console(file=stream, width=120, force_terminal=True))
    display.start(SPEC, [(chunk(SPEC, 0), 0), (chunk(SPEC, 1), 0)])
    display.finished(chunk(SPEC, 20), 2)
    display.stop()
    plain = console.Console(file=io.StringIO(), width=120)
    plain.print(display.render())
    text = plain.file.getvalue()
    assert "1512/36000 replicates" in text
    assert "2 failures" in text
    assert all(f"N={n}" in text for n in SPEC.n_records)
    assert "✓" in text
    assert "51%" in text


def test_a_slow_start_is_soon_forgotten(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("jaxprivnb.study.display.time.monotonic", lambda: now[0])
    display = Display()
    display.start(SPEC, [])
    for number in range(32):
        now[0] += 1 if number else 600  # the first chunk compiles
        display.finished(chunk(SPEC, 2 * number), 0)
    assert display.rate == 512
    assert display.time_left == clock((36000 - 32 * 512) / 512)


def test_bursts_of_many_workers_are_no_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("jaxprivnb.study.display.time.monotonic", lambda: now[0])
    display = Display()
    display.start(SPEC, [])
    for number in range(36):
        now[0] += 0 if number % 12 else 20  # twelve at a time, every 20 seconds
        display.finished(chunk(SPEC, 2 * number), 0)
    assert display.rate == 36 * 512 / 60


def test_choice(monkeypatch):
    assert type(choose_display("quiet")) is Display
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(choose_display("auto"), LogDisplay)
    with pytest.raises(ValueError, match="display must be"):
        choose_display("loud")


def test_words():
    assert clock(59.6) == "1:00"
    assert clock(3723) == "1:02:03"
    assert varying(SPEC, SPEC.cells[0]) == "N=50"
    assert varying(shipped_spec("features"), shipped_spec("features").cells[0]) == "K=2"
    assert describe_cell(SPEC.cells[-1]) == "N=500, epsilon=1, I=2, K=5, J=2"
