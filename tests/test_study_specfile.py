"""Study files: what they mean, and what is refused, where."""

import pytest
from cases import SPEC as GOOD

from jaxprivnb.methods import METHODS
from jaxprivnb.study.spec import Arm, SpecError
from jaxprivnb.study.specfile import load_spec, parse_spec, shipped_spec
from jaxprivnb.study.toml_lines import find_line


def test_ragged_features_and_labels():
    text = GOOD.replace("n_features = [2, 3]", "n_categories = [[2, 3, 4], [2, 2]]")
    text += '[methods.vb-armijo]\nmethod = "vb"\nsolver = "armijo"\n'
    spec = parse_spec(text)
    assert spec.n_categories == ((2, 3, 4), (2, 2))
    assert spec.cells[0].categories == "2,3,4"
    assert spec.arms[-1] == Arm("vb-armijo", "vb", (("solver", "armijo"),))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("seed = 7", "sed = 7", 2, "sed means nothing at the top.*did you mean 'seed'"),
        ("seed = 7", "seed = -7", 2, "seed must be a whole number.*got -7"),
        ("seed = 7", 'dtype = "float16"', 2, "dtype must be one of float64, float32"),
        ("seed = 7", "levels = [0.5, 95]", 2, "levels must be a number between 0 and 1, got 95"),
        ("n_records = [50, 100]", "n_records = []", 5, "grid.n_records is empty"),
        ("n_records = [50, 100]", "n_record = [50]", 5, "did you mean 'n_records'"),
        ("n_records = [50, 100]", "n_records = [50, 50]", 5, "lists 50 more than once"),
        ("n_records = [50, 100]", "n_records = [50.5]", 5, "n_records must be a whole number"),
        ("n_records = [50, 100]", "", 4, "grid.n_records is missing"),
        ("[0.1, 1]", "[0.1, 0]", 6, "epsilon_per_table must be a finite number above 0, got 0"),
        ("[0.1, 1]", "[nan]", 6, "epsilon_per_table must be a finite number above 0, got nan"),
        (
            "epsilon_per_table",
            "epsilon",
            6,
            "epsilon means nothing.*did you mean 'epsilon_per_table'",
        ),
        ("n_features = [2, 3]", "n_features = true", 7, "n_features must be a whole number"),
        (
            "n_features = [2, 3]",
            "n_features = 4\nn_categories = [[2, 3]]",
            7,
            "n_features is 4, but n_categories lists",
        ),
        ("n_features = [2, 3]", "n_features = 2\nn_categories = [2, [2, 3]]", 8, "mixes"),
        ("n_features = [2, 3]", "n_categories = [2, 3, 4]", 7, r"\[\[2, 3, 4\]\] is one set of 3"),
        ("n_features = [2, 3]", 'n_features = 2\nnoise = "laplas"', 8, "did you mean 'laplace'"),
        ("datasets = 2", "datasets = 0", 11, "replicates.datasets must be a whole number from 1"),
        (
            "n_features = [2, 3]",
            f"n_features = 2\nprior = 1{'0' * 400}",
            8,
            "prior must be a finite number",
        ),
        ("datasets = 2", "dataset = 2", 11, "did you mean 'datasets'"),
        ("[methods.naive]", "[methods.naiv]", 13, "naiv is not a method.*did you mean 'naive'"),
        ("[methods.naive]", '[methods.mine]\nmethod = "vbb"', 14, "did you mean 'vb'"),
        ("[methods.naive]\n[methods.bayes]", "[methods]", 13, "methods is empty"),
    ],
)
def test_mistakes_are_named_with_their_line(old, new, line, message):
    assert GOOD.count(old) == 1
    with pytest.raises(SpecError, match=rf"^s\.toml:{line}: .*{message}"):
        parse_spec(GOOD.replace(old, new), "s.toml")


def test_broken_toml_and_missing_files(tmp_path):
    with pytest.raises(SpecError, match="at line 2"):
        parse_spec("a = 1\nb = = 2")
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "none.toml")
    with pytest.raises(SpecError, match="there are calibration, features, figure1"):
        shipped_spec("figure2")
    with pytest.raises(SpecError, match=r"needs a \[grid\] table"):
        parse_spec("seed = 1")


def test_smoke_touches_every_method():
    assert sorted(m.method for m in shipped_spec("smoke").arms) == sorted(METHODS)


def test_lines_of_keys_in_every_spelling():
    text = 'a.b = 1\n[t]\n"quoted key" = 2\n[t.u]\nx = [\n 1,\n]\n[[list]]\ny = {z = 1}\n'
    assert find_line(text, ("a", "b")) == 1
    assert find_line(text, ("t", "quoted key")) == 3
    assert find_line(text, ("t", "u", "x")) == 5
    assert find_line(text, ("list", "y", "z")) == 9
    assert find_line(text, ("t", "u", "missing")) == 4
    assert find_line(text, ("nowhere",)) is None
