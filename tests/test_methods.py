"""A method from outside the package: one registration, and everything knows it."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb import cli, methods
from jaxprivnb.many import fit_many
from jaxprivnb.plots.arguments import as_series
from jaxprivnb.posterior import DirichletPosterior
from jaxprivnb.study.fits import check_methods
from jaxprivnb.study.load import load_study, read_study_rows
from jaxprivnb.study.run import run_study
from jaxprivnb.study.spec import SpecError
from jaxprivnb.study.specfile import parse_spec

STUDY = """\
seed = 2
[grid]
n_records = 30
epsilon_per_table = [0.5, 1.0]
n_features = 2
[replicates]
parameters = 4
[methods.naive]
[methods.mine]
[methods.mine-more]
method = "mine"
add = 3.0
"""


def fit_mine(tables, prior=None, *, add=0.5):
    """Noisy counts, those below zero taken for zero, and something added to each."""
    n = jnp.where(tables.real, jnp.maximum(tables.counts, 0) + add, 0)
    by_class = n.sum(-1).mean(-1)
    return DirichletPosterior(tables.real, jnp.zeros((), jnp.int32), by_class, n)


LOOK = methods.Look("#123456", "h", "-", "add a half")


@pytest.fixture
def mine():
    yield pnb.register(pnb.Method("mine", fit_mine, look=LOOK))
    del methods.METHODS["mine"]


@pytest.fixture
def tables():
    return pnb.simulate(jax.random.key(0), n_records=30, n_categories=(2, 3), shape=(5,)).tables


def by_hand(counts, add):
    """E P(X_k=j | Y=i) of the first feature, which has two categories."""
    n = np.maximum(np.asarray(counts)[..., 0, :2], 0) + add
    return n / n.sum(-1, keepdims=True)


def test_it_fits_batches(mine, tables):
    for options in ({}, {"add": 3.0}):
        found = fit_many(tables, "mine", **options)
        expected = by_hand(tables.counts, options.get("add", 0.5))
        np.testing.assert_allclose(found.feature_mean[:, :, 0, :2], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="did you mean 'add'"):
        fit_many(tables, "mine", ad=1.0)
    with pytest.raises(TypeError, match="add must be hashable, got list of 1"):
        fit_many(tables, "mine", add=[1.0])


def test_it_is_in_studies_and_their_figures(mine, tmp_path):
    pytest.importorskip("pyarrow")
    spec = parse_spec(STUDY)
    assert run_study(spec, tmp_path / "out").failures == 0
    rows = load_study(tmp_path / "out").to_pandas().set_index(["cell", "replicate", "method"])
    error = rows["se_feature"].unstack()
    assert (error["mine"] != error["mine-more"]).all()
    assert rows["log_evidence"].isna().all()

    pytest.importorskip("matplotlib")
    from jaxprivnb.study.figures import draw

    (page,) = draw(read_study_rows(tmp_path / "out"), "width")
    names = [line.get_label() for line in page.legends[0].legend_handles]
    assert names == ["naive", "add a half", "mine-more"]
    assert page.legends[0].legend_handles[1].get_color() == LOOK.color


def test_its_rows_are_read_where_it_is_unknown(mine, tmp_path):
    pytest.importorskip("pyarrow")
    run_study(parse_spec(STUDY), tmp_path / "out")
    known = methods.METHODS.pop("mine")
    try:
        study = read_study_rows(tmp_path / "out")
        assert study.complete
        assert cli.main(["summary", str(tmp_path / "out")]) == 0
        with pytest.raises(SpecError, match=r"methods.mine needs the method 'mine'"):
            check_methods(study.spec)
        with pytest.raises(SpecError, match=r"methods.mine is not a method"):
            parse_spec(STUDY)
    finally:
        methods.METHODS["mine"] = known


@pytest.mark.slow
def test_dask_workers_learn_it(mine, tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("distributed")
    run_study(parse_spec(STUDY), tmp_path / "local")
    run_study(parse_spec(STUDY), tmp_path / "dask", engine="dask", workers=1)
    assert load_study(tmp_path / "dask").equals(load_study(tmp_path / "local"))


def test_figures_draw_it_its_own_way(mine, tables):
    fit = fit_mine(jax.tree.map(lambda x: x[0], tables))
    assert as_series({"mine": fit})[0].look == LOOK
    assert as_series(fit)[0].look.name == "posterior"  # a type that several methods have

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Mine(DirichletPosterior):
        pass

    own = Mine(fit.mask, fit.status, fit.class_alpha, fit.feature_alpha)
    pnb.register(dataclasses.replace(mine, posterior=Mine), replace=True)
    assert as_series(own)[0].look == LOOK
    assert as_series({"another": own})[0].look == LOOK._replace(name="another")


def test_the_command_line_and_the_estimator_take_it(mine, tmp_path, capsys):
    pytest.importorskip("opendp")
    made = pnb.release({"sex": ["f", "m"] * 40, "y": [0, 1, 1, 0] * 20}, "y", epsilon_total=5.0,
                       categories={"sex": ["f", "m"]}, classes=[0, 1])  # fmt: skip
    made.save(tmp_path / "r.json")
    words = ["fit", str(tmp_path / "r.json"), "--method", "mine", "--format", "csv"]
    assert cli.main(words) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    expected = by_hand(made.counts, 0.5)[0, 0]
    shown = [float(r["mean"]) for r in rows if (r["feature"], r["class"]) == ("sex", "0")]
    np.testing.assert_allclose(shown, expected)
    assert "mine" in cli.build_parser()._subparsers._group_actions[0].choices["fit"].format_help()

    pytest.importorskip("sklearn")
    fitted = pnb.PrivateNaiveBayes.from_release(made, method="mine")
    np.testing.assert_allclose(np.exp(fitted.feature_log_prob_[0][0, 0]), expected)


def test_figure1_compares_it(mine, tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    size = ["--parameters", "2", "--datasets", "1", "--noise-draws", "1", "--features", "2"]
    out = tmp_path / "figure1"
    assert cli.main(["figure1", "--out", str(out), "--methods", "mine", "--quiet", *size]) == 0
    assert (out / "summary.csv").read_text().count(",mine,") == 36


@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        (lambda: pnb.register(fit_mine), TypeError, "method must be a jaxprivnb.Method, got func"),
        (lambda: pnb.register(pnb.Method("my own", fit_mine)), ValueError, "an identifier"),
        (lambda: pnb.register(pnb.Method("vb", fit_mine)), ValueError, "must be new, got 'vb'"),
        (lambda: pnb.register(pnb.Method("m", fit_mine, reads="x")), ValueError, "method.reads"),
        (
            lambda: pnb.register(pnb.Method("m", fit_mine, numbers={"elbo": "elbo"})),
            ValueError,
            "method.numbers must be of log_evidence",
        ),
    ],
)
def test_mistakes_are_named(register, error, message):
    before = dict(methods.METHODS)
    with pytest.raises(error, match=message):
        register()
    assert before == methods.METHODS


def test_a_second_registration_of_the_same_is_none(mine):
    assert pnb.register(dataclasses.replace(mine)) == mine
    other = dataclasses.replace(mine, fit=pnb.fit_naive)
    with pytest.raises(ValueError, match="replace=True"):
        pnb.register(other)
    assert pnb.register(other, replace=True).fit is pnb.fit_naive


def test_every_method_is_a_function_of_the_package():
    for name in methods.names():
        assert getattr(pnb, f"fit_{name}") is methods.fit_function(name)
