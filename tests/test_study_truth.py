"""The truth apart from the prior, noise that is taken for another, and what is drawn how often."""

import json

import jax
import numpy as np
import pytest

from jaxprivnb.noise import Gaussian, Geometric, Laplace
from jaxprivnb.simulation import Replicate, simulate, simulate_replicates
from jaxprivnb.study.chunks import chunk
from jaxprivnb.study.compute import assumed_noise, cell_noise, compute_chunk
from jaxprivnb.study.spec import Cell, SpecError, from_dict
from jaxprivnb.study.specfile import check_fields, load_spec, parse_spec, shipped_spec

TEXT = """\
seed = 3
levels = [0.95]
[grid]
n_records = 40
epsilon_per_table = 0.5
n_features = 2
[replicates]
parameters = 4
datasets = 3
[methods.bayes]
"""
KEY = jax.random.key(1)
CSV = """\
feature,class,category,count
sex,no,f,10
sex,no,m,30
sex,yes,f,60
sex,yes,m,0
age,no,young,20
age,no,old,15
age,no,older,5
age,yes,young,60
"""


def with_grid(more):
    return parse_spec(TEXT.replace("n_features = 2", f"n_features = 2\n{more}"), "s.toml")


def rows(spec, number=0):
    return compute_chunk(spec, chunk(spec, number))


def same(a, b, names=None):
    for name in names or a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_class_counts_are_drawn_with_the_parameters_as_in_the_papers_loop():
    ids = Replicate(*np.indices((5, 4, 2)))
    size = {"n_records": 60, "n_categories": (2, 3)}
    paper, ours = (
        simulate_replicates(KEY, ids, class_counts=how, **size)
        for how in ("parameters", "datasets")
    )
    n = np.asarray(paper.counts)[..., 0, :].sum(-1)  # [5, 4, 2, I]
    assert (n == n[:, :1, :1]).all()
    assert len({tuple(x) for x in n[:, 0, 0]}) > 1
    assert (np.asarray(paper.counts).sum(-1) == n[..., None]).all()
    assert (np.asarray(paper.counts)[:, 0, 0] != np.asarray(paper.counts)[:, 1, 0]).any()
    np.testing.assert_array_equal(paper.counts[:, 0], ours.counts[:, 0])
    np.testing.assert_array_equal(paper.class_probs, ours.class_probs)
    by_data = np.asarray(ours.counts)[..., 0, :].sum(-1)
    assert (by_data[:, 0] != by_data[:, 1]).any()
    # Given n_i the tables are Multinomial(n_i, p): shares are P(X|Y) on average.
    many = simulate_replicates(
        KEY, Replicate(*np.indices((1, 400, 1))), class_counts="parameters", **size
    )
    total = np.asarray(many.counts).sum((0, 1, 2))
    share = total / total.sum(-1, keepdims=True)
    np.testing.assert_allclose(share, many.feature_probs[0, 0, 0], atol=0.03)
    with pytest.raises(ValueError, match="class_counts must be one of 'datasets', 'parameters'"):
        simulate_replicates(KEY, ids, class_counts="once", **size)


def test_a_study_says_with_what_class_counts_are_drawn():
    spec = parse_spec(TEXT.replace("[replicates]", '[replicates]\nclass_counts = "parameters"'))
    assert spec.class_counts == "parameters"
    assert from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert check_fields(spec.to_dict(), "study.json") == spec
    usual = parse_spec(TEXT)
    assert "class_counts" not in usual.to_dict()
    assert usual.fingerprint != spec.fingerprint
    paper, ours = rows(spec), rows(usual)
    first = paper["dataset"] == 0
    same({k: v[first] for k, v in paper.items()}, {k: v[first] for k, v in ours.items()})
    assert (paper["se_class"] != ours["se_class"])[~first].any()
    # Bayes knows n_i: its estimate of P(Y) is the same for all data sets of a parameter draw.
    by_parameter = paper["se_class"].reshape(4, 3)
    assert (by_parameter == by_parameter[:, :1]).all()
    figure1 = shipped_spec("figure1")
    assert figure1.class_counts == "parameters"
    assert figure1.replicates == (200, 10, 5)


def test_parameters_can_be_fixed():
    p_class = np.array([0.25, 0.75])
    p_feature = np.array([[[0.5, 0.5, 0], [0.2, 0.3, 0.5]], [[1.0, 0.0, 0], [0.1, 0.1, 0.8]]])
    found = simulate(
        KEY, n_records=1000, n_categories=(2, 3), shape=(300,), parameters=(p_class, p_feature)
    )
    np.testing.assert_allclose(found.class_probs, np.broadcast_to(p_class, (300, 2)))
    counts = np.asarray(found.counts).mean(0) / 1000
    np.testing.assert_allclose(counts, p_class[:, None, None] * p_feature, atol=0.005)
    assert (np.asarray(found.counts)[:, 1, 0, 1] == 0).all()
    for wrong, error, message in (
        (p_class, TypeError, "must be a pair"),
        ((p_class, p_feature[:, :1]), ValueError, r"P\(X\|Y\) must have shape \(2, 2, 3\)"),
        ((p_class * 2, p_feature), ValueError, "probabilities that add up to 1"),
    ):
        with pytest.raises(error, match=message):
            simulate(KEY, n_categories=(2, 3), parameters=wrong)


def test_truth_and_prior_are_two_axes():
    spec = with_grid("truth = [0.2, 1.0]\nprior = [1.0, 3.0]")
    assert [(c.truth, c.prior) for c in spec.cells] == [(0.2, 1), (0.2, 3), (1, 1), (1, 3)]
    assert spec.columns[-1] == "truth"
    assert from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert check_fields(spec.to_dict(), "study.json") == spec
    right = rows(with_grid("prior = 1.0"))
    same(rows(spec, 2), right, right.keys() - {"cell"})  # said or not, the same draws and fits
    believed = rows(spec, 3)
    assert (believed["se_feature"] != right["se_feature"]).all()
    # Cells of one truth share their data: more prior moves every estimate, on the same counts.
    sparse = [rows(spec, c)["se_feature"].mean() for c in (0, 1)]
    assert sparse[0] < sparse[1]


def test_a_real_tables_parameters_are_the_truth(tmp_path):
    (tmp_path / "titanic.csv").write_text(CSV)
    text = TEXT.replace("n_features = 2", 'truth = "titanic.csv"')
    (tmp_path / "s.toml").write_text(text)
    spec = load_spec(tmp_path / "s.toml")
    (cell,) = spec.cells
    assert (cell.n_classes, cell.n_categories) == (2, (2, 3))
    assert cell.truth.class_ == (0.4, 0.6)
    assert cell.truth.features == (
        ((0.25, 0.75), (1.0, 0.0)),
        ((0.5, 0.375, 0.125), (1.0, 0.0, 0.0)),
    )
    (tmp_path / "titanic.csv").unlink()  # the spec has its own copy
    again = check_fields(json.loads(json.dumps(spec.to_dict())), "study.json")
    assert again == spec == from_dict(spec.to_dict())
    found = rows(again)
    assert (found["status"] == 0).all()
    assert len(set(found["se_class"])) > 3  # data sets differ, though parameters do not
    as_json = {"class": [4, 6], "features": {"sex": [[1, 3], [1, 0]],
                                             "age": [[4, 3, 1], [1, 0, 0]]}}  # fmt: skip
    (tmp_path / "titanic.json").write_text(json.dumps(as_json))
    other = load_spec_of(tmp_path, text.replace("csv", "json"))
    assert other.cells[0].truth[1:] == cell.truth[1:]
    same(rows(other), found)  # the file's name does not matter


def load_spec_of(folder, text):
    (folder / "s.toml").write_text(text)
    return load_spec(folder / "s.toml")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("truth = 0", r"s\.toml:7: grid.truth must be a finite number above 0, or the name"),
        ("truth = []", "grid.truth must list one or more different values"),
        ("truth = [1, 1.0]", "grid.truth must list one or more different values"),
        ('truth = "gone.csv"', "grid.truth cannot be read: gone.csv"),
        ("truth = {class = [1, 2]}", '"class" and "features"'),
        ("truth = {class = [1, -2], features = [[[1], [1]]]}", "class must be a list of weights"),
        ("truth = {class = [1, 2], features = [[[1]]]}", "feature 1 must have a row for each"),
        ("truth = {class = [1, 2, 3], features = [[[1], [1], [1]]]}", "has 3 classes"),
        ('assumed_noise = "cauchy"', "assumed_noise must be one of laplace, geometric, gaussian"),
        ("assumed_scale = 0", "assumed_scale must be a finite number above 0"),
        ("rho_total = 0.1", "grid.rho_total and epsilon_per_table say the same"),
    ],
)
def test_mistakes_are_named(more, message):
    with pytest.raises(SpecError, match=message):
        with_grid(more)


def test_noise_is_stated_in_three_ways():
    state = lambda said: parse_spec(TEXT.replace("epsilon_per_table = 0.5", said))  # noqa: E731
    total = state("epsilon_total = [1.0, 2.0]")
    assert [c.epsilon_per_table for c in total.cells] == [0.5, 1.0]
    assert [c.column("epsilon_total") for c in total.cells] == [1.0, 2.0]
    assert from_dict(json.loads(json.dumps(total.to_dict()))) == total
    assert check_fields(total.to_dict(), "study.json") == total
    usual = rows(parse_spec(TEXT))
    same(rows(total), usual, usual.keys() - {"cell"})
    rho = state('rho_total = 0.25\nnoise = ["gaussian", "laplace"]')
    assert [c.epsilon_per_table for c in rho.cells] == pytest.approx([0.5, 0.5])
    # rho_total = K / (2 sigma^2) * 2, an L2 sensitivity of sqrt(2) in each of K tables
    assert float(cell_noise(rho.cells[0]).sigma) ** 2 == pytest.approx(2 / 0.25)
    with pytest.raises(SpecError, match="epsilon_total is not what Gaussian noise has"):
        state('epsilon_total = 1\nnoise = "gaussian"')


def sd(noise):
    if isinstance(noise, Gaussian):
        return float(noise.sigma)
    if isinstance(noise, Laplace):
        return float(noise.scale) * 2**0.5
    n = np.arange(-4000, 4001)
    p = np.exp(-np.abs(n) / float(noise.scale))
    return float((p * n**2).sum() / p.sum()) ** 0.5


@pytest.mark.parametrize("drawn", [Laplace(7.0), Geometric(0.8), Geometric(30.0), Gaussian(3.0)])
@pytest.mark.parametrize("taken", ["laplace", "geometric", "gaussian"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_assumed_noise_has_the_stated_deviation(drawn, taken, scale):
    kind = type(drawn).__name__.lower()
    cell = Cell(1, 1.0, 2, (2,), 1.0, kind, assumed_noise=taken, assumed_scale=scale)
    found = assumed_noise(cell, drawn)
    assert type(found).__name__.lower() == taken
    assert sd(found) == pytest.approx(scale * sd(drawn), rel=1e-6)


def test_fits_see_the_assumed_noise_and_nothing_else_changes():
    text = TEXT.replace("[methods.bayes]", "[methods.naive]\n[methods.exact]")
    text = text.replace("n_features = 2", "n_features = 2\nassumed_scale = [1.0, 3.0]")
    spec = parse_spec(text)
    right, wrong = rows(spec, 0), rows(spec, 1)
    naive = right["method"] == 0
    same({k: v[naive] for k, v in right.items()}, {k: v[naive] for k, v in wrong.items()},
         right.keys() - {"cell"})  # fmt: skip
    assert (wrong["width_feature"][~naive] > right["width_feature"][~naive]).mean() > 0.8
    assert (right["log_evidence"][~naive] != wrong["log_evidence"][~naive]).all()
