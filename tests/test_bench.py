"""The measurements as a system: stamped, run by one command, and quoted as they were measured."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

import common  # noqa: E402
import readme  # noqa: E402
import run  # noqa: E402


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_a_page_says_what_was_measured(page):
    text = page.read_text()
    assert text.count("<!-- bench:") == len(readme.MARK.findall(text))
    assert readme.rendered(text) == text, "run `make readme`"


def test_a_figure_follows_its_result(monkeypatch):
    page = "killed <!-- bench:kills -->9<!-- /bench --> times"
    monkeypatch.setattr(readme, "result", {"kill_resume": {"kills": 21}}.get)
    assert readme.rendered(page) == page.replace("9<", "21<")


def test_every_figure_is_quoted_somewhere():
    marks = [m for page in readme.PAGES for m in readme.MARK.findall(page.read_text())]
    assert {call.split()[0] for _, call, _, _ in marks} == set(readme.FIGURES)


@pytest.mark.parametrize(
    ("x", "said"),
    [(8658.9, "8,700"), (12.4, "12"), (1.46, "1.5"), (0.0836, ".084"), (0.0996, ".10"), (0, "0")],
)
def test_two_significant_digits(x, said):
    assert readme.two(x) == said


def test_a_result_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(common, "BENCH", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path.parent / "bench" / "x.py"), "--sizes", "a b"])
    common.write("x", {"rows": [1]})
    found = json.loads((tmp_path / "results" / "x.json").read_text())
    assert found["rows"] == [1]
    assert found["stamp"]["command"] == "python bench/x.py --sizes 'a b'"
    for key in ("commit", "jaxprivnb", "jax", "numpy", "python", "machine", "processor", "date"):
        assert key in found["stamp"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_says_whether_the_code_was_changed(tmp_path, monkeypatch):
    def git(*words):
        name = ("-c", "user.name=x", "-c", "user.email=x@x")
        return subprocess.run(("git", *name, *words), cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(common, "BENCH", tmp_path / "bench")
    assert common.commit() is None
    for folder in ("bench/results", "jaxprivnb"):
        (tmp_path / folder).mkdir(parents=True)
    git("init")
    git("commit", "--allow-empty", "-m", "first")
    head = git("rev-parse", "HEAD").stdout.decode().strip()
    (tmp_path / "bench" / "results" / "x.json").touch()
    assert common.commit() == head
    (tmp_path / "jaxprivnb" / "x.py").touch()
    assert common.commit() == head + "+"


def test_one_command_runs_every_script():
    scripts = {p.stem for p in BENCH.glob("*.py") if "def main(" in p.read_text()}
    assert scripts - {"run", "readme"} == {n for n in run.MINUTES if "." not in n}
    for name in run.MINUTES:
        assert importlib.util.find_spec(name) is not None


def test_every_row_of_the_readme_has_a_script():
    table = (ROOT / "README.md").read_text().split("## Measured")[1]
    named = re.findall(r"\| `(\w+)\.py` \|$", table, re.MULTILINE)
    assert len(named) > 10
    assert set(named) <= set(run.MINUTES)
