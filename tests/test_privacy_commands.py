"""The commands `release` and `fit`, end to end."""

import csv
import io
import subprocess
import sys

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb import cli

pytest.importorskip("opendp")

DOMAIN = """\
[class]
income = ["<=50K", ">50K"]

[features]
sex = ["Female", "Male"]
region = 3
"""
ROWS = [("Female", "0", "<=50K"), ("Male", "2", ">50K"), ("Male", "1", "<=50K")] * 20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "domain.toml").write_text(DOMAIN)
    lines = ["sex, region, ssn, income", *(f"{s}, {r}, 123-45, {i}" for s, r, i in ROWS)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n\n")
    return tmp_path


def release(*options, data="data.csv"):
    budget = (
        () if any("-total" in o or "per-table" in o for o in options) else ("--epsilon-total", "1")
    )
    return cli.main(["release", data, "--domain", "domain.toml", "-o", "r.json", *budget, *options])


def test_from_records_to_a_posterior(folder, capsys):
    assert release("--class", "income", "--class-table") == 0
    out, err = capsys.readouterr()
    assert "r.json: epsilon_total=1 (pure DP, replace one record)" in out
    assert err == "note: not in the domain, so not released: ssn\n"
    assert "123-45" not in (folder / "r.json").read_text()
    made = pnb.load_release(folder / "r.json")
    assert made.size == 60
    assert release() == 0
    assert "note: r.json was there and is replaced" in capsys.readouterr().err
    made.save("r.json")
    assert made.categories == {"sex": ("Female", "Male"), "region": ("0", "1", "2")}
    assert made.class_integers is not None

    assert cli.main(["fit", "r.json", "--method", "naive", "--level", "0.9"]) == 0
    out = capsys.readouterr().out
    for text in ("P(income)", "P(region | income = >50K)", "Female", "0.9 intervals", "upper"):
        assert text in out

    options = ["--method", "naive", "--format", "csv", "--draws", "5", "--draws-out", "d.npz"]
    assert cli.main(["fit", "r.json", *options]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 + 2 * 2 + 2 * 3
    posterior = pnb.fit_naive(made)
    lower, _ = posterior.feature_interval(0.95)
    last = rows[-1]
    assert (last["feature"], last["category"], last["class"]) == ("region", "2", ">50K")
    np.testing.assert_allclose(float(last["mean"]), posterior.feature_mean[1, 1, 2], rtol=1e-12)
    np.testing.assert_allclose(float(last["lower"]), lower[1, 1, 2], rtol=1e-12)
    with np.load(folder / "d.npz") as draws:
        assert draws["class_probs"].shape == (5, 2)
        assert draws["feature_probs"].shape == (5, 2, 2, 3)
        assert draws["feature_names"].tolist() == ["sex", "region"]


@pytest.mark.parametrize("method", ["exact", "vb"])
def test_every_method(folder, capsys, method):
    assert release("--rho-total", "0.5") == 0
    assert cli.main(["fit", "r.json", "--method", method]) == 0
    assert f"{method} posterior" in capsys.readouterr().out


def test_almost_without_noise_the_tables_are_the_counts(folder):
    assert release("--epsilon-per-table", "100000") == 0
    made = pnb.load_release(folder / "r.json")
    np.testing.assert_array_equal(made.integers[:, 0, :2], [[20, 20], [0, 20]])
    np.testing.assert_array_equal(made.integers[:, 1], [[20, 20, 0], [0, 0, 20]])


def test_values_outside_the_domain(folder, capsys):
    text = (folder / "data.csv").read_text()
    (folder / "data.csv").write_text(text.replace("Female, 0", "Female, 77", 1))
    assert release() == cli.EXIT_USAGE
    err = capsys.readouterr().err
    assert "feature 'region'" in err
    assert "77" not in err
    assert not (folder / "r.json").exists()
    assert release("--unknown", "other") == 0
    assert pnb.load_release(folder / "r.json").categories["region"] == ("0", "1", "2", "other")


def test_a_ledger_on_the_command_line(folder, capsys):
    assert release("--ledger", "l.json") == cli.EXIT_USAGE
    assert "give --epsilon-limit" in capsys.readouterr().err
    assert release("--ledger", "l.json", "--epsilon-limit", "1.5") == 0
    before = (folder / "r.json").read_bytes()
    assert release("--ledger", "l.json") == cli.EXIT_USAGE
    assert "1 of 1.5 are spent, 0.5 are left" in capsys.readouterr().err
    assert (folder / "r.json").read_bytes() == before
    assert release("--epsilon-limit", "1") == cli.EXIT_USAGE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[class]", "[klass]", "domain.toml:1: klass means nothing; the tables are [class]"),
        (DOMAIN.split("[features]")[0], "", "domain.toml: class must be a table"),
        ("region = 3", "region = 0", "domain.toml:6: features.region must be a list"),
        ("region = 3", "region = [0.5]", "domain.toml:6: features.region must be a list"),
        ("region = 3", "region = []", "domain.toml:6: features.region must be a list"),
        ("region = 3", 'region = ["a", " a"]', "domain.toml:6: features.region has a label twice"),
        ("region = 3", "regio = 3", "data.csv has no column 'regio'"),
        ("region = 3", "region = ", "domain.toml: Invalid value"),
        ("income =", "age = 3\nincome =", "domain.toml:1: class must have one column"),
        ("[features]", "[more]\nx = 1\n[features]", "domain.toml:4: more means nothing"),
    ],
)
def test_mistakes_in_the_domain(folder, capsys, old, new, message):
    (folder / "domain.toml").write_text(DOMAIN.replace(old, new))
    assert release() == cli.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_mistakes_in_the_rest(folder, capsys):
    assert release("--class", "sex") == cli.EXIT_USAGE
    assert "is 'income', but --class is 'sex'" in capsys.readouterr().err
    assert release(data="none.csv") == cli.EXIT_STORAGE
    assert "cannot read none.csv" in capsys.readouterr().err
    secret = 'sex,region,income\nMale,2,"SECRET\n'
    for text in (secret, "sex,region,income\nSECRET,1\n", "sex,region,income\n\xff"):
        (folder / "bad.csv").write_bytes(text.encode("latin-1"))
        assert release(data="bad.csv") == cli.EXIT_USAGE
        err = capsys.readouterr().err
        assert "bad.csv" in err
        assert "SECRET" not in err
    assert cli.main(["fit", "none.json"]) == cli.EXIT_STORAGE
    (folder / "r.json").write_text("{}")
    assert cli.main(["fit", "r.json"]) == cli.EXIT_USAGE
    assert 'r.json: not a file of format "jaxprivnb release"' in capsys.readouterr().err
    assert cli.main(["fit", "r.json", "--draws", "3"]) == cli.EXIT_USAGE
    for options in (["--epsilon-total", "0"], ["--epsilon-total", "nan"], []):
        with pytest.raises(SystemExit) as caught:
            cli.main(["release", "data.csv", "--domain", "d", "-o", "r", *options])
        assert caught.value.code == cli.EXIT_USAGE
    with pytest.raises(SystemExit):
        cli.main(["fit", "r.json", "--level", "1"])


def test_labels_cannot_write_to_the_terminal(folder, capsys):
    hostile = "\\u001b[31mred"
    (folder / "domain.toml").write_text(DOMAIN.replace('"Male"', f'"Male", "{hostile}"'))
    assert release() == 0
    assert cli.main(["fit", "r.json", "--method", "naive"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "x1b[31mred" in out


def test_help_imports_no_jax():
    code = (
        "import sys; from jaxprivnb.cli import main\n"
        "try: main(['release', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('jax', 'numpy', 'opendp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--epsilon-total" in done.stdout
