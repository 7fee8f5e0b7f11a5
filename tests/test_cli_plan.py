"""The command `plan`."""

import csv
import io
import json

import pytest

from jaxprivnb import cli
from jaxprivnb.cli import exits
from jaxprivnb.cli import plan as command
from jaxprivnb.planning.table import QUANTITIES

pytest.importorskip("opendp")

DOMAIN = """\
[class]
income = ["<=50K", ">50K"]
[features]
sex = ["Female", "Male"]
age = { edges = [0, 18, 65, 120] }
"""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "domain.toml").write_text(DOMAIN)
    base = ["plan", "--domain", "domain.toml", "--n", "300", "--replicates", "3"]
    return lambda *options: cli.main([*base, "--epsilon-total", "0.5", "2", *options])


def test_a_table_a_sentence_and_a_picture(plan, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert plan("--plot", "plan.png") == 0
    out = capsys.readouterr().out
    assert "N=300, 2 classes, 2 features" in out
    assert out.splitlines()[-1].startswith("Epsilon ")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_as_data(plan, capsys):
    assert plan("--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 * 2 * 2 * 3
    assert {row["epsilon_total"] for row in rows} == {"0.5", "2.0"}
    assert plan("--format", "json") == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert set(found[-1]["weights"]) == {"sex", "age", "income"}
    assert [r["feature_error"] for r in found] == [float(r["feature_error"]) for r in rows]


def test_mistakes(plan, tmp_path, capsys):
    assert plan("--plot", "plan.gif") == exits.EXIT_USAGE
    assert "--plot must end in .png, .pdf or .svg" in capsys.readouterr().err
    assert plan("--delta", "2") == exits.EXIT_USAGE
    assert "delta must be in (0, 1)" in capsys.readouterr().err
    (tmp_path / "domain.toml").write_text(DOMAIN.replace("sex = [", "sex = 0 #"))
    assert plan() == exits.EXIT_USAGE
    assert "domain.toml:4: features.sex" in capsys.readouterr().err


def test_the_quantities_are_those_of_a_plan():
    assert command.QUANTITIES == QUANTITIES
