"""The commands `release` and `fit`, end to end."""

import csv
import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb import cli
from jaxprivnb.cli import exits

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


def test_a_prior_by_name_or_number(folder, capsys):
    assert release() == 0
    capsys.readouterr()
    assert cli.main(["fit", "r.json", "--prior", "learned"]) == 0
    assert "\nprior learned, concentrations income: " in capsys.readouterr().out
    means = []
    for prior in ("uniform", "1", "50"):
        fit = ["fit", "r.json", "--method", "naive", "--format", "csv", "--prior", prior]
        assert cli.main(fit) == 0
        means.append(capsys.readouterr().out)
    assert means[0] == means[1] != means[2]
    for wrong, message in (
        (["--prior", "0"], "--prior must be"),
        (["--prior", "learned", "--method", "vb"], "--prior learned does not go with --method vb"),
    ):
        assert cli.main(["fit", "r.json", *wrong]) != 0
        assert message in capsys.readouterr().err


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
    assert release() == exits.EXIT_USAGE
    err = capsys.readouterr().err
    assert "feature 'region'" in err
    assert "77" not in err
    assert not (folder / "r.json").exists()
    assert release("--unknown", "other") == 0
    assert pnb.load_release(folder / "r.json").categories["region"] == ("0", "1", "2", "other")
    assert release("--unknown", "other", "--unknown-in", "region") == 0
    assert pnb.load_release(folder / "r.json").categories == {
        "sex": ("Female", "Male"), "region": ("0", "1", "2", "other"),
    }  # fmt: skip
    assert release("--unknown-in", "region") == exits.EXIT_USAGE
    assert "--unknown other" in capsys.readouterr().err


BINNED = (
    DOMAIN
    + """\
age = { edges = [0, 18.5, 120], outside = "refuse" }
fare = { bins = 4, bounds = [0, 600] }
"""
)


@pytest.fixture
def numbers(folder):
    (folder / "domain.toml").write_text(BINNED)
    rows = [f"{s},{r},{i},{a},{f}" for (s, r, i), (a, f) in zip(ROWS, AGE_AND_FARE, strict=True)]
    (folder / "data.csv").write_text("\n".join(["sex,region,income,age,fare", *rows]))
    return folder


AGE_AND_FARE = [("18.4", "0"), ("1.85e1", " 150"), ("120", "9e9")] * 20


def test_numbers_in_bins(numbers, capsys):
    assert release("--epsilon-per-table", "100000") == 0
    made = pnb.load_release(numbers / "r.json")
    assert made.categories["age"] == ("[0, 18.5)", "[18.5, 120]")
    assert made.categories["fare"] == ("[0, 150)", "[150, 300)", "[300, 450)", "[450, 600]")
    np.testing.assert_array_equal(made.integers[:, 2, :2], [[20, 20], [0, 20]])
    np.testing.assert_array_equal(made.integers[:, 3, :4], [[20, 0, 0, 20], [0, 20, 0, 0]])
    assert cli.main(["fit", "r.json", "--method", "naive"]) == 0
    assert "[18.5, 120]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("120.5", "feature 'age' has a value that is missing, or outside its edges"),
        ("", "feature 'age' has a value that is missing"),
        ("nan", "feature 'age' has a value that is missing"),
        ("1O1.5", "feature 'age' has bins, so its values must be numbers, got str"),
    ],
)
def test_cells_that_are_in_no_bin(numbers, capsys, cell, message):
    text = (numbers / "data.csv").read_text()
    (numbers / "data.csv").write_text(text.replace("18.4", cell, 1))
    assert release("--epsilon-per-table", "100000") == exits.EXIT_USAGE
    err = capsys.readouterr().err
    assert message in err
    assert not cell or cell == "nan" or cell not in err
    options = ("--unknown", "other", "--unknown-in", "age")
    assert release("--epsilon-per-table", "100000", *options) == 0
    made = pnb.load_release(numbers / "r.json")
    np.testing.assert_array_equal(made.integers[0, 2, :3], [19, 20, 1])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{ edges = [0, 18, 18] }", "domain.toml:7: features.age is wrong: .* edge 2 is not above"),
        ("{ edges = [0, nan] }", "edge 1 must be finite"),
        ('{ edges = [0, "18"] }', "edge 1 must be a number, got str"),
        ("{ edges = [1999-09-18, 2020-01-01] }", "edge 0 must be a number, got date"),
        ("{ bins = 8 }", "must have edges, or bins"),
        ("{ edge = [0, 1] }", "a key of bins of 'age' must be one of"),
        ("[0.5, 1.5]", "a feature of numbers has { edges"),
    ],
)
def test_bins_that_make_no_sense(numbers, capsys, value, message):
    text = BINNED.replace('{ edges = [0, 18.5, 120], outside = "refuse" }', value)
    (numbers / "domain.toml").write_text(text)
    assert release() == exits.EXIT_USAGE
    assert re.search(message, capsys.readouterr().err)


def test_neighbours_on_the_command_line(folder, capsys):
    options = ("--neighbours", "add-remove", "--contributions", "3")
    assert release(*options, "--ledger", "l.json", "--epsilon-limit", "1.5") == 0
    out = capsys.readouterr().out
    assert "r.json: epsilon_total=1 (pure DP, add or remove up to 3 records)" in out
    assert "N unknown" in out
    assert "l.json: PrivacyLedger(epsilon 1 of 1.5 spent, 1 releases, add or remove up to 3" in out
    made = pnb.load_release(folder / "r.json")
    np.testing.assert_allclose(made.guarantee.scales, 6)
    assert '"n_records":null' in (folder / "r.json").read_text()
    assert cli.main(["fit", "r.json"]) == 0
    assert "discrete Laplace noise, N unknown" in capsys.readouterr().out
    # The ledger goes on for its own neighbours.
    assert release("--neighbours", "add-remove", "--ledger", "l.json") == exits.EXIT_USAGE
    assert "cost epsilon 3 to add or remove up to 3 records" in capsys.readouterr().err
    assert release("--ledger", "l.json") == exits.EXIT_USAGE
    assert "publishes N promises nothing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        release("--contributions", "0")


def test_a_ledger_on_the_command_line(folder, capsys):
    assert release("--ledger", "l.json") == exits.EXIT_USAGE
    assert "give --epsilon-limit" in capsys.readouterr().err
    assert release("--ledger", "l.json", "--epsilon-limit", "1.5") == 0
    before = (folder / "r.json").read_bytes()
    assert release("--ledger", "l.json") == exits.EXIT_USAGE
    assert "1 of 1.5 are spent, 0.5 are left" in capsys.readouterr().err
    assert (folder / "r.json").read_bytes() == before
    assert release("--epsilon-limit", "1") == exits.EXIT_USAGE


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
    assert release() == exits.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_mistakes_in_the_rest(folder, capsys):
    assert release("--class", "sex") == exits.EXIT_USAGE
    assert "is 'income', but --class is 'sex'" in capsys.readouterr().err
    assert release(data="none.csv") == exits.EXIT_STORAGE
    assert "cannot read none.csv" in capsys.readouterr().err
    secret = 'sex,region,income\nMale,2,"SECRET\n'
    for text in (secret, "sex,region,income\nSECRET,1\n", "sex,region,income\n\xff"):
        (folder / "bad.csv").write_bytes(text.encode("latin-1"))
        assert release(data="bad.csv") == exits.EXIT_USAGE
        err = capsys.readouterr().err
        assert "bad.csv" in err
        assert "SECRET" not in err
    assert cli.main(["fit", "none.json"]) == exits.EXIT_STORAGE
    (folder / "r.json").write_text("{}")
    assert cli.main(["fit", "r.json"]) == exits.EXIT_USAGE
    assert 'r.json: not a file of format "jaxprivnb release"' in capsys.readouterr().err
    assert cli.main(["fit", "r.json", "--draws", "3"]) == exits.EXIT_USAGE
    for options in (["--epsilon-total", "0"], ["--epsilon-total", "nan"], []):
        with pytest.raises(SystemExit) as caught:
            cli.main(["release", "data.csv", "--domain", "d", "-o", "r", *options])
        assert caught.value.code == exits.EXIT_USAGE
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


def test_an_output_that_cannot_be_written_spends_nothing(folder, capsys):
    (folder / "taken").mkdir()
    (folder / "file").write_text("")
    os.mkfifo(folder / "pipe")
    ledger = pnb.PrivacyLedger(2.0, path="l.json")
    for out in ("taken", "file/r.json", "/proc/r.json", "pipe"):
        assert release("--ledger", "l.json", "-o", out) == exits.EXIT_STORAGE
        assert f"cannot write {out}" in capsys.readouterr().err
    assert pnb.PrivacyLedger(path="l.json").entries == ledger.entries == ()
    assert release("--ledger", "l.json", "-o", "new/r.json") == 0
    assert [p.name for p in (folder / "new").iterdir()] == ["r.json"]


@pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
@pytest.mark.parametrize("name", ["data.csv", "domain.toml", "l.json", "l.json.lock"])
def test_an_output_does_not_replace_an_input(folder, capsys, name, link):
    ledger = pnb.PrivacyLedger(2.0, path="l.json")
    before = (folder / name).read_bytes()
    out = name
    if link is not None:
        out = "link"
        getattr(folder / out, link)(folder / name)
    assert release("--ledger", "l.json", "-o", out) == exits.EXIT_USAGE
    assert f"{out} is the " in capsys.readouterr().err
    assert (folder / name).read_bytes() == before
    assert ledger.entries == ()


def test_an_output_does_not_replace_a_ledger_that_is_yet_to_come(folder, capsys):
    options = ("--ledger", "new.json", "--epsilon-limit", "2", "-o", "./new.json")
    assert release(*options) == exits.EXIT_USAGE
    assert "is the ledger" in capsys.readouterr().err
    assert not (folder / "new.json").exists()


def test_draws_do_not_replace_the_release(folder, capsys):
    assert release() == 0
    before = (folder / "r.json").read_bytes()
    (folder / "link.npz").symlink_to("r.json")
    for out in ("r.json", "link.npz"):
        words = ["fit", "r.json", "--method", "naive", "--draws", "2", "--draws-out", out]
        assert cli.main(words) == exits.EXIT_USAGE
        assert f"{out} is the release" in capsys.readouterr().err
    assert (folder / "r.json").read_bytes() == before
