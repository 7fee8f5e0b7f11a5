"""Estimators in plain Python: what they give is read, and what they break is data."""

import re
import sys

import jax
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb import cli, methods
from jaxprivnb.status import Status
from jaxprivnb.study.chunks import all_chunks
from jaxprivnb.study.compute import compute_chunk
from jaxprivnb.study.fits import check_methods
from jaxprivnb.study.run import run_study
from jaxprivnb.study.spec import SpecError
from jaxprivnb.study.specfile import parse_spec

STUDY = """\
seed = 2
levels = [0.5, 0.95]
chunk_size = 4
[grid]
n_records = 30
epsilon_per_table = 0.5
n_features = 2
[replicates]
parameters = 3
datasets = 2
[methods.mine]
"""
HALF = np.full(2, 0.5), np.full((2, 2, 2), 0.5)


def around(tables, prior=None, *, reach=0.1, seed=0):
    """Shares of clipped counts, and intervals of one width around them."""
    assert isinstance(tables.counts, np.ndarray)
    n = np.maximum(tables.counts, 0) + prior.feature
    class_, feature = n.sum(-1).mean(-1), n / n.sum(-1, keepdims=True)
    return {
        "class_mean": class_ / class_.sum(),
        "feature_mean": feature,
        "feature_interval": lambda level: (feature - level * reach, feature + level * reach),
        "class_interval": {0.5: HALF[:1] * 2},
        "iterations": seed % 1000,
    }


@pytest.fixture
def use():
    """Rows of a study of one method `mine`, after registering it."""
    before = dict(methods.METHODS)

    def rows(fit, text=STUDY):
        methods.register_all({"mine": fit})
        spec = parse_spec(text)
        check_methods(spec)
        parts = [compute_chunk(spec, c) for c in all_chunks(spec)]
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

    yield rows
    methods.METHODS.clear()
    methods.METHODS.update(before)


def test_arrays_by_name_with_intervals(use):
    rows = use(around)
    assert (rows["status"] == 0).all()
    np.testing.assert_allclose(rows["width_feature"], 2 * 0.95 * 0.1)
    np.testing.assert_allclose(rows["high_feature"] - rows["low_feature"], 0.19, rtol=1e-5)
    assert (rows["coverage_feature_50"] <= rows["coverage_feature_95"]).all()
    assert 0 < rows["coverage_feature_95"].mean() < 1
    assert np.isfinite(rows["coverage_class_50"]).all()
    assert np.isnan(rows["coverage_class_95"]).all()  # of that level nothing was said
    assert np.isnan(rows["width_class"]).all()
    assert len(set(rows["iterations"])) > 3  # seeds differ, and not with the chunks
    again = use(around, STUDY.replace("chunk_size = 4", "chunk_size = 6"))
    for name in ("iterations", "se_feature", "low_feature"):
        np.testing.assert_array_equal(again[name], rows[name])
    wider = use(around, STUDY + "reach = 0.2\n")
    np.testing.assert_allclose(wider["width_feature"], 2 * rows["width_feature"])


def test_a_pair_is_enough_and_a_batch_too(use):
    one = use(lambda tables: HALF)
    batch = pnb.Method("b", lambda t: [np.stack([x] * len(t.counts)) for x in HALF], called="batch")
    rows = use(batch)
    assert (rows["status"] == Status.FAILED).all()  # a list is neither a pair nor names
    several = lambda t: tuple(np.stack([x] * len(t.counts)) for x in HALF)  # noqa: E731
    rows = use(pnb.Method("b", several, called="batch"))
    for name in ("se_feature", "se_class"):
        np.testing.assert_array_equal(rows[name], one[name])
    assert (rows["status"] == 0).all()


def test_a_posterior_is_asked_as_that_of_a_registered_method(use):
    def fit(tables, prior):
        if tables.counts[0, 0, 0] > 15:
            raise RuntimeError("too much\nof it")
        return pnb.fit_naive(tables, prior)

    rows = use(fit)
    traced = use(pnb.Method("m", pnb.fit_naive))
    failed = rows["status"] != 0
    assert 0 < failed.sum() < failed.size
    assert set(rows["message"][failed]) == {"RuntimeError: too much of it"}
    assert set(rows["message"][~failed]) == {""}
    for name, column in traced.items():
        if name.startswith(("se_", "cov", "wid", "low", "high")):
            np.testing.assert_allclose(rows[name][~failed], column[~failed], rtol=1e-6)
    assert np.isnan(rows["se_feature"][failed]).all()
    assert np.isnan(rows["width_class"][failed]).all()


@pytest.mark.parametrize(
    ("fit", "status", "message"),
    [
        (lambda t: 1 / 0, Status.FAILED, "ZeroDivisionError: division by zero"),
        (lambda t: None, Status.FAILED, "TypeError: no class_mean: give"),
        (lambda t: (np.ones(3), HALF[1]), Status.FAILED, r"class_mean must have shape \(2,\)"),
        (lambda t: (HALF[0] * np.nan, HALF[1]), Status.NON_FINITE, "not a finite number"),
        (
            lambda t: {"class_mean": HALF[0], "feature_mean": HALF[1], "status": 9, "message": "s"},
            9,
            "s",
        ),
        (
            lambda t: {"class_mean": HALF[0], "feature_mean": HALF[1], "class_interval": (1, 2, 3)},
            Status.FAILED,
            "ValueError: ",
        ),
        (pnb.Method("m", lambda t: 1 / 0, called="batch"), Status.FAILED, "ZeroDivision"),
    ],
)  # fmt: skip
def test_failures_have_a_status_and_a_message(use, fit, status, message):
    rows = use(fit)
    assert (rows["status"] == status).all()
    assert all(re.search(message, said) for said in rows["message"])


def test_a_study_compares_it_and_ends(tmp_path, use):
    pytest.importorskip("pyarrow")
    spec = parse_spec(STUDY.replace("[methods.mine]", "[methods.bayes]"))
    outcome = run_study(spec, tmp_path / "out", methods={"mine": around, "bad": lambda t: 1 / 0})
    assert (outcome.rows, outcome.failures) == (18, 6)
    rows = pnb.load_study(tmp_path / "out").to_pandas()
    bad = rows[rows.method == "bad"]
    assert set(bad.message) == {"ZeroDivisionError: division by zero"}
    assert rows[rows.method != "bad"].message.isna().all()
    again = run_study(spec, tmp_path / "out", methods={"mine": around, "bad": lambda t: 1 / 0})
    assert again.computed == 0
    with pytest.raises(ValueError, match="methods\\['exact'\\] is a method of the package"):
        run_study(spec, tmp_path / "out", methods={"exact": around})
    with pytest.raises(TypeError, match="methods\\['mine'\\] must be a function"):
        run_study(spec, tmp_path / "out", methods={"mine": 3})


def test_options_are_checked_before_work(use):
    with pytest.raises(SpecError, match=r"raech is not an option of mine \(there are: reach, seed"):
        use(around, STUDY + "raech = 0.2\n")
    tables = pnb.simulate(jax.random.key(0), n_records=30, shape=(3,)).tables
    with pytest.raises(ValueError, match="method must be one of"):
        pnb.fit_many(tables, "mine")


def test_the_command_line_takes_a_plugin(use, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    (tmp_path / "plugged.py").write_text(
        "import numpy as np\n\ndef flat(tables, *, at=0.5):\n"
        "    return np.full(2, 0.5), np.full((2, 2, 2), at)\n"
    )
    (tmp_path / "s.toml").write_text(STUDY.replace("[methods.mine]", "[methods.flat]\nat = 0.25"))
    words = ["study", "s.toml", "--out", "out", "--quiet", "--plugin"]
    assert cli.main([*words, "plugged:flat"]) == 0
    table = pnb.load_study("out")
    assert table["method"].unique().to_pylist() == ["flat"]
    assert cli.main([*words, "plugged:gone"]) == 2
    assert "the plugin plugged:gone cannot be imported: AttributeError" in capsys.readouterr().err
    assert cli.main([*words, "plugged"]) == 2
    assert "must be written module:function" in capsys.readouterr().err
