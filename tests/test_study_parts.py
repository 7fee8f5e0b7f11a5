"""A study in parts: at once, killed, begun again, and asked what is missing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import pytest
from test_study_schedule import MORE, TEXT, changed, digests

from jaxprivnb import cli
from jaxprivnb.cli.exits import EXIT_INCOMPLETE, EXIT_STORAGE, EXIT_USAGE
from jaxprivnb.study.load import load_study
from jaxprivnb.study.missing import study_status
from jaxprivnb.study.run import run_study
from jaxprivnb.study.specfile import parse_spec

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[1]
SCRIPT = resources.files("jaxprivnb.study").joinpath("array_job.sh")
LARGER = changed([("parameters = 10", "parameters = 80")])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "study"
    assert run_study(parse_spec(LARGER), out).computed == 40
    return out


def test_four_tasks_at_once_with_two_killed_lose_nothing(whole, tmp_path, cache):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    out, spec_file, commands = tmp_path / "out", tmp_path / "spec.toml", tmp_path / "bin"
    spec_file.write_text(LARGER)
    commands.mkdir()
    (commands / "jaxprivnb").write_text(f'#!{bash}\nexec {sys.executable} -m jaxprivnb "$@"\n')
    (commands / "jaxprivnb").chmod(0o755)
    out.mkdir()
    (out / "programs").symlink_to(cache)  # where the script keeps what is compiled

    def task(number):
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        queue = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": "4"}
        queue |= {"SLURM_ARRAY_TASK_MIN": "0", "PATH": path, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([bash, SCRIPT, spec_file, out], env=os.environ | queue)

    tasks = [task(number) for number in range(4)]
    while len(digests(out)) < 4 and any(t.poll() is None for t in tasks):
        time.sleep(0.001)
    for killed in tasks[1:3]:
        killed.send_signal(signal.SIGKILL)
    codes = [t.wait() for t in tasks]
    assert codes == [0, -signal.SIGKILL, -signal.SIGKILL, 0]
    kept = digests(out)
    status = study_status(out)
    assert not status.complete
    assert (status.done, status.wanted) == (len(kept), 40)
    assert 20 <= len(kept) < 40
    assert [t.wait() for t in [task(1), task(2)]] == [0, 0]
    assert study_status(out).complete
    assert kept.items() <= digests(out).items()
    assert digests(out) == digests(whole)
    assert load_study(out).equals(load_study(whole))


def test_parts_do_their_share_and_a_run_without_parts_the_rest(whole, tmp_path):
    spec = parse_spec(LARGER)
    first = run_study(spec, tmp_path, part="2/3")
    assert first.computed == 14
    assert run_study(spec, tmp_path, part="2/3").computed == 0
    assert run_study(spec, tmp_path).computed == 26
    assert digests(tmp_path) == digests(whole)
    more = parse_spec(changed(MORE["methods"], LARGER))
    assert [run_study(more, tmp_path, part=f"{i}/2").computed for i in (1, 2)] == [20, 20]
    assert study_status(tmp_path).complete
    names = {path.name for path in tmp_path.glob("manifest*.json")}
    assert names == {
        "manifest.json", "manifest-2-of-3.json", "manifest-1-of-2.json", "manifest-2-of-2.json"
    }  # fmt: skip
    run_study(spec, tmp_path, overwrite=True)
    assert {path.name for path in tmp_path.glob("manifest*.json")} == {"manifest.json"}


def test_a_folder_that_another_part_begins_meanwhile_is_no_other_study(
    whole, tmp_path, monkeypatch
):
    from jaxprivnb.study import folder

    shutil.copytree(whole, tmp_path / "out")
    real, asked = folder.read_study, []

    def late(storage):
        asked.append(1)
        return real(storage) if asked[1:] else None

    monkeypatch.setattr(folder, "read_study", late)
    assert run_study(parse_spec(LARGER), tmp_path / "out", part="1/4").computed == 0


def test_status_says_what_is_missing_by_cell_and_method(whole, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    assert cli.main(["study", "--status", str(out)]) == 0
    assert capsys.readouterr().out == "growing is complete: 40 of 40 chunks are stored\n"
    (out / "parts" / "part-000003.parquet").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert cli.main(["study", "--status", str(out)]) == EXIT_INCOMPLETE
    first, last = capsys.readouterr().out.splitlines()
    assert first == "N=30, epsilon=0.1, I=2, K=2, J=2: bayes lacks 8 of 160 rows"
    assert last == "growing is not complete: 39 of 40 chunks are stored"
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert cli.main(["study", "--status", str(out), "--quiet"]) == EXIT_INCOMPLETE
    assert capsys.readouterr().out == ""

    assert cli.main(["study", "--status", str(tmp_path / "none")]) == EXIT_STORAGE
    assert "holds no study" in capsys.readouterr().err
    for words in (["smoke"], ["--out", "x"], []):
        status = ["--status", str(out)] if words == ["--out", "x"] else []
        assert cli.main(["study", *words, *status]) == EXIT_USAGE
    assert cli.main(["study", "smoke", "--out", str(tmp_path), "--part", "3"]) == EXIT_USAGE
    assert "part must be like 3/100" in capsys.readouterr().err


def test_a_word_of_a_new_spec_is_enough_to_see_what_is_missing(tmp_path):
    """An array job that has only been extended, not run."""
    run_study(parse_spec(TEXT), tmp_path)
    run_study(parse_spec(changed(MORE["levels"])), tmp_path, part="100/100")
    missing = study_status(tmp_path).missing
    assert [(m.cell, m.method, m.rows, m.missing) for m in missing] == [
        (0, "bayes", 20, 20), (1, "bayes", 20, 20)
    ]  # fmt: skip
