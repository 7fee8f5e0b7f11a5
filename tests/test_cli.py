"""The command line: quick to answer, and its exit codes mean something."""

import os
import subprocess
import sys
import time

import pytest

from jaxprivnb import cli

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
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - started < 1
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

    assert cli.main(["study", str(spec), "--out", out, "--seed", "6"]) == cli.EXIT_OTHER_STUDY
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
    assert cli.main(["study", str(spec), "--out", out]) == cli.EXIT_USAGE
    assert "spec.toml:3: grid.n_record means nothing" in capsys.readouterr().err
    assert cli.main(["summary", out]) == cli.EXIT_STORAGE
    assert "holds no study" in capsys.readouterr().err
    assert cli.main(["figure1", "--replicates", "9", "--parameters", "2"]) == cli.EXIT_USAGE
    with pytest.raises(SystemExit) as caught:
        cli.main(["figure1", "--parameters", "0"])
    assert caught.value.code == cli.EXIT_USAGE

    assert cli.main(["study", "smok", "--out", out]) == cli.EXIT_USAGE
    assert "no study called 'smok'" in capsys.readouterr().err
    assert cli.main(["study", "smok.toml", "--out", out]) == cli.EXIT_USAGE
    assert "smok.toml: cannot be read" in capsys.readouterr().err
    assert cli.main([]) == cli.EXIT_USAGE
    assert "figure1" in capsys.readouterr().err

    spec.write_text(SPEC)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["study", str(spec), "--out", out]) == cli.EXIT_EXTRA
    assert "pip install 'jaxprivnb[study]'" in capsys.readouterr().err
    assert not os.path.exists(out)  # before anything is begun
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["figure1", "--out", out]) == cli.EXIT_EXTRA
    assert "pip install 'jaxprivnb[figures]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), cli.EXIT_INTERRUPTED), (cli._Terminated(), cli.EXIT_TERMINATED)],
)
def test_interrupts_say_how_to_go_on(spec, tmp_path, capsys, monkeypatch, error, code):
    def interrupted(*args, **kwargs):
        raise error

    monkeypatch.setattr("jaxprivnb.study.run.run_study", interrupted)
    assert cli.main(["study", str(spec), "--out", str(tmp_path)]) == code
    assert "Run the same command again" in capsys.readouterr().err
