"""The commands `synthesize` and `report`."""

import csv
import itertools

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb import cli
from jaxprivnb.cli import exits

pytest.importorskip("opendp")

RECORDS = {
    "sex": ["f", "m", "m"] * 20,
    "age": [3, 25, 70] * 20,
    "=1+1": ["@x", "-1", "1"] * 20,
    "income": ["<=50K", ">50K", "<=50K"] * 20,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pnb.release(
        RECORDS,
        "income",
        epsilon_total=5.0,
        categories={"sex": ["f", "m"], "=1+1": ["@x", "-1", "1"]},
        bins={"age": [0, 18, 65, 120]},
        classes=["<=50K", ">50K"],
    ).save("r.json")
    return tmp_path


def synthesize(*words):
    return cli.main(["synthesize", "r.json", "--method", "naive", *words])


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_sets_in_a_folder(folder, capsys):
    assert synthesize("-o", "out", "--datasets", "3", "--records", "25", "--seed", "4") == 0
    assert "out/3.csv: 25 synthetic records" in capsys.readouterr().out
    sets = [rows(folder / "out" / f"{d}.csv") for d in (1, 2, 3)]
    assert [len(s) for s in sets] == [25] * 3
    for row in itertools.chain(*sets):
        assert sorted(row) == ["'=1+1", "age", "income", "sex"]
        assert row["age"] in ("[0, 18)", "[18, 65)", "[65, 120]")
        assert row["'=1+1"] in ("'@x", "-1", "1")  # a number is none of a spreadsheet's formulas
    before = (folder / "out" / "1.csv").read_bytes()
    assert synthesize("-o", "out", "--datasets", "3", "--records", "25", "--seed", "5") == 0
    assert "out/1.csv and 2 more was there and is replaced" in capsys.readouterr().err
    assert (folder / "out" / "1.csv").read_bytes() != before


def test_one_set_in_a_file_is_that_of_the_library(folder):
    import jax

    assert synthesize("-o", "s.csv", "--seed", "4") == 0
    with jax.enable_x64(True):
        posterior = pnb.fit_naive(pnb.load_release("r.json"))
        (columns,) = posterior.synthesize(jax.random.key(4), as_frame=False)
    found = rows(folder / "s.csv")
    assert len(found) == 60
    np.testing.assert_array_equal([r["income"] for r in found], columns["income"])
    np.testing.assert_array_equal([r["age"] for r in found], columns["age"])


def test_mistakes_of_synthesize(folder, capsys):
    assert synthesize("-o", "s.csv", "--datasets", "2") == exits.EXIT_USAGE
    assert "-o must be a folder for more than one" in capsys.readouterr().err
    before = (folder / "r.json").read_bytes()
    (folder / "link.csv").symlink_to("r.json")
    assert synthesize("-o", "link.csv") == exits.EXIT_USAGE
    assert "link.csv is the release" in capsys.readouterr().err
    assert (folder / "r.json").read_bytes() == before
    assert synthesize("-o", "r.json/x") == exits.EXIT_STORAGE
    with pytest.raises(SystemExit):
        synthesize("-o", "s.csv", "--records", "0")


def test_a_report(folder, capsys):
    pytest.importorskip("matplotlib")
    words = ["report", "r.json", "--method", "naive"]
    assert cli.main([*words, "-o", "page.html"]) == 0
    assert "page.html: epsilon_total=5" in capsys.readouterr().out
    assert "income by 3 features" in (folder / "page.html").read_text()
    assert cli.main([*words, "-o", "r.json"]) == exits.EXIT_USAGE
    assert "r.json is the release" in capsys.readouterr().err
    assert cli.main(["report", ".", "-o", "page.html"]) == exits.EXIT_STORAGE
    assert "holds no study" in capsys.readouterr().err
    assert cli.main(["report", "none.json", "-o", "page.html"]) == exits.EXIT_STORAGE
