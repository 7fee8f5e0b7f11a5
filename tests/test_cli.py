"""The command line: quick to answer, and its exit codes mean something."""

import os
import signal
import subprocess
import sys

import pytest

from jaxprivnb import cli
from jaxprivnb.cli import exits

SPEC = """\
seed = 5
[grid]
n_records = 30
epsilon_per_table = [0.1, 1.0]
n_features = 2
[replicates]
parameters = 40
[methods.naive]
[methods.bayes]
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def test_help_is_fast_and_imports_no_jax():
    code = "import sys; from jaxprivnb.cli import main\n"
    code += "try: main(['--help'])\nexcept SystemExit: pass\n"
    code += (
        "print(sorted(m for m in ('jax', 'numpy', 'pyarrow', 'matplotlib') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("figure1", "study", "plot", "summary", "exit codes"):
        assert command in done.stdout


def test_a_study_from_spec_to_figures(spec, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    out = str(tmp_path / "out")
    assert cli.main(["study", str(spec), "--out", out]) == 0
    assert "160 rows" in capsys.readouterr().out
    assert cli.main(["study", str(spec), "--out", out, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main(["summary", out]) == 0
    assert "se p(x|y)" in capsys.readouterr().out
    assert cli.main(["summary", out, "--format", "csv"]) == 0
    assert capsys.readouterr().out.count("\n") == 5
    assert cli.main(["plot", out, "--figures", "figure1", "--format", "pdf"]) == 0
    assert (tmp_path / "out" / "figure1.pdf").read_bytes().startswith(b"%PDF")

    assert cli.main(["study", str(spec), "--out", out, "--seed", "6"]) == exits.EXIT_OTHER_STUDY
    assert "seed: 5 -> 6" in capsys.readouterr().err


def test_figure1_leaves_the_figure_and_its_numbers(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    options = ["--parameters", "2", "--datasets", "2", "--noise-draws", "1", "--features", "2"]
    out = tmp_path / "figure1"
    assert (
        cli.main(["figure1", "--out", str(out), "--methods", "naive,bayes", "--quiet", *options])
        == 0
    )
    assert (out / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "summary.csv").read_text().count("\n") == 1 + 36 * 2


def test_mistakes_have_their_own_exit_codes(spec, tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "out")
    spec.write_text(SPEC.replace("n_records", "n_record"))
    assert cli.main(["study", str(spec), "--out", out]) == exits.EXIT_USAGE
    assert "spec.toml:3: grid.n_record means nothing" in capsys.readouterr().err
    assert cli.main(["summary", out]) == exits.EXIT_STORAGE
    assert "holds no study" in capsys.readouterr().err
    assert cli.main(["figure1", "--replicates", "9", "--parameters", "2"]) == exits.EXIT_USAGE
    with pytest.raises(SystemExit) as caught:
        cli.main(["figure1", "--parameters", "0"])
    assert caught.value.code == exits.EXIT_USAGE

    assert cli.main(["study", "smok", "--out", out]) == exits.EXIT_USAGE
    assert "no study called 'smok'" in capsys.readouterr().err
    assert cli.main(["study", "smok.toml", "--out", out]) == exits.EXIT_USAGE
    assert "smok.toml: cannot be read" in capsys.readouterr().err
    assert cli.main([]) == exits.EXIT_USAGE
    assert "figure1" in capsys.readouterr().err

    spec.write_text(SPEC)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["study", str(spec), "--out", out]) == exits.EXIT_EXTRA
    assert "pip install 'jaxprivnb[study]'" in capsys.readouterr().err
    assert not os.path.exists(out)  # before anything is begun
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["figure1", "--out", out]) == exits.EXIT_EXTRA
    assert "pip install 'jaxprivnb[figures]'" in capsys.readouterr().err


_STUCK = """\
import os, signal, sys, threading
from jaxprivnb import cli
from jaxprivnb.study import compute
from jaxprivnb.study.display import LogDisplay

told = threading.Event()

def say(self, text):
    if text.startswith("stopping"):
        told.set()

def stuck(*arguments):  # as in a compiled program that runs for ever
    os.kill(os.getpid(), signal.SIGINT)
    told.wait()
    while True:  # again and again: Python may miss one that comes as it begins to wait
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever began this may ignore it
LogDisplay._say, compute.fit_chunk = say, stuck
sys.exit(cli.main(["study", *sys.argv[1:], "--workers", "1"]))
"""


def test_a_second_interrupt_ends_a_study_that_does_not_come_to_its_next_piece(spec, tmp_path):
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [sys.executable, "-c", _STUCK, spec, "--out", tmp_path / "out"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == exits.EXIT_INTERRUPTED
    assert "Run the same command again" in done.stderr


def handlers_during(monkeypatch, target, argv):
    """The handlers of (SIGTERM, SIGINT) when a command calls `target`, and its exit code."""
    seen = []

    def look(*args, **kwargs):
        seen[:] = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
        raise ValueError("seen enough")

    monkeypatch.setattr(target, look)
    before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    assert cli.main(argv) == exits.EXIT_USAGE
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == before
    return seen, before


def test_sigterm_and_ctrl_c_end_a_fit_at_once(monkeypatch):
    seen, before = handlers_during(
        monkeypatch, "jaxprivnb.privacy.file.load_release", ["fit", "release.json"]
    )
    assert seen == [before[0], signal.SIG_DFL]


def test_sigterm_stops_a_study_at_its_next_piece(spec, tmp_path, monkeypatch):
    seen, before = handlers_during(
        monkeypatch, "jaxprivnb.study.run.run_study", ["study", str(spec), "--out", str(tmp_path)]
    )
    assert seen == [exits.on_sigterm, before[1]]


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), exits.EXIT_INTERRUPTED), (exits.Terminated(), exits.EXIT_TERMINATED)],
)
def test_interrupts_say_how_to_go_on(spec, tmp_path, capsys, monkeypatch, error, code):
    def interrupted(*args, **kwargs):
        raise error

    monkeypatch.setattr("jaxprivnb.study.run.run_study", interrupted)
    assert cli.main(["study", str(spec), "--out", str(tmp_path)]) == code
    assert "Run the same command again" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["study.json", "manifest.json", "parts/spec.toml"])
def test_a_study_does_not_replace_its_description(spec, tmp_path, capsys, name):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text(spec.read_text())
    (tmp_path / "link").symlink_to(out)
    words = ["study", str(out / name), "--out", str(tmp_path / "link"), "--overwrite", "--quiet"]
    assert cli.main(words) == exits.EXIT_USAGE
    assert "is among the files that a study writes" in capsys.readouterr().err
    assert (out / name).read_text() == spec.read_text()
