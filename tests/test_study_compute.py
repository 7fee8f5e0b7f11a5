"""Chunks and their rows: the same whoever computes them, and right."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import scipy.stats

from jaxprivnb.baselines import fit_bayes
from jaxprivnb.many.lanes import TILE
from jaxprivnb.simulation import Replicate, simulate_replicates
from jaxprivnb.study.chunks import all_chunks, chunk, n_chunks, replicate_id
from jaxprivnb.study.compute import cell_key, cell_noise, compute_chunk
from jaxprivnb.study.fits import check_methods
from jaxprivnb.study.spec import SpecError, from_dict
from jaxprivnb.study.specfile import parse_spec

TEXT = """\
seed = 3
chunk_size = 50
levels = [0.5, 0.95]

[grid]
n_records = 40
epsilon_per_table = [0.1, 1.0]
n_features = 3

[replicates]
parameters = 7
datasets = 5
noise_draws = 4

[methods.naive]
[methods.bayes]
"""
SPEC = parse_spec(TEXT)


def rows(spec):
    parts = [compute_chunk(spec, c) for c in all_chunks(spec)]
    table = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    order = np.lexsort((table["replicate"], table["method"], table["cell"]))
    return {name: column[order] for name, column in table.items()}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_chunks_cover_every_replicate_once():
    seen = [(c.cell, r) for c in all_chunks(SPEC) for r in range(c.start, c.stop)]
    assert seen == [(cell, r) for cell in range(2) for r in range(140)]
    assert n_chunks(SPEC) == 6
    assert chunk(SPEC, 5) == (5, 1, 100, 140)
    with pytest.raises(IndexError, match="from 0 to 5"):
        chunk(SPEC, 6)


def test_replicates_are_nested():
    names = [replicate_id(SPEC, r) for r in range(140)]
    assert len(set(names)) == 140
    assert names[0] == (0, 0, 0)
    assert names[3] == (0, 0, 3)
    assert names[4] == (0, 1, 0)
    assert names[20] == (1, 0, 0)


@pytest.fixture(scope="module")
def table():
    return rows(SPEC)


@pytest.mark.parametrize("size", [1, 33, TILE, 140, 1000])
def test_rows_do_not_depend_on_how_work_is_cut(table, size):
    spec = dataclasses.replace(SPEC, chunk_size=size)
    if size == 1:  # two chunks are enough to see a lane on its own
        parts = [compute_chunk(spec, chunk(spec, n)) for n in (0, 77)]
        for part, r in zip(parts, (0, 77), strict=True):
            pick = (table["cell"] == 0) & (table["replicate"] == r)
            same(part, {name: column[pick] for name, column in table.items()})
    else:
        same(rows(spec), table)


def test_rows_of_a_cell_do_not_depend_on_the_rest_of_the_grid(table):
    spec = parse_spec(TEXT.replace("[0.1, 1.0]", "[0.5, 1.0, 2.0]"))
    part = compute_chunk(dataclasses.replace(spec, chunk_size=140), chunk(spec, 3))
    pick = (table["cell"] == 1) & (table["replicate"] < 50)
    part = compute_chunk(spec, chunk(spec, 3))
    for name in table.keys() - {"cell"}:
        np.testing.assert_array_equal(part[name], table[name][pick], err_msg=name)


def test_rows_survive_the_trip_to_a_worker(table):
    same(rows(from_dict(json.loads(json.dumps(SPEC.to_dict())))), table)


def test_configuration_of_jax_is_left_alone(table):
    before = jax.config.jax_enable_x64
    with jax.enable_x64(not before):
        same(rows(SPEC), table)
    assert jax.config.jax_enable_x64 == before


def test_scores_by_hand(table):
    """The rows of one replicate, recomputed one dataset at a time."""
    r, cell = 61, SPEC.cells[1]
    with jax.enable_x64(True):
        s = simulate_replicates(
            cell_key(SPEC, cell),
            Replicate(*(np.int32(x) for x in replicate_id(SPEC, r))),
            n_records=40,
            n_categories=(2, 2, 2),
            noise=cell_noise(cell),
            dtype="float64",
        )
        alpha = np.asarray(fit_bayes(s.counts).feature_alpha)
    truth = np.asarray(s.feature_probs)
    beta = scipy.stats.beta(alpha, alpha.sum(-1, keepdims=True) - alpha)
    row = {
        name: column[(table["cell"] == 1) & (table["method"] == 1) & (table["replicate"] == r)]
        for name, column in table.items()
    }
    assert row["se_feature"] == pytest.approx(((beta.mean() - truth) ** 2).mean(), rel=1e-12)
    low, high = beta.interval(0.95)
    assert row["coverage_feature_95"] == ((low <= truth) & (truth <= high)).mean()
    assert row["width_feature"] == pytest.approx((high - low).mean(), rel=1e-9)
    assert row["parameter"] == 3
    assert row["status"] == 0
    assert np.isnan(row["log_evidence"])
    assert float(cell_noise(cell).scale) == 2.0


def test_non_private_rows_are_calibrated_and_share_data_across_epsilon(table):
    bayes = table["method"] == 1
    at = [table["se_class"][bayes & (table["cell"] == c)] for c in (0, 1)]
    np.testing.assert_array_equal(*at)
    cover = table["coverage_feature_95"][bayes & (table["cell"] == 0)]
    by_parameter = cover.reshape(7, 20).mean(1)
    assert abs(cover.mean() - 0.95) < 5 * by_parameter.std(ddof=1) / 7**0.5


def test_skipped_intervals_are_blank_and_nothing_else_changes(table):
    found = rows(dataclasses.replace(SPEC, interval_every=3))
    kept = table["replicate"] % 3 == 0
    for name, column in table.items():
        if name.startswith(("coverage", "width", "low", "high")):
            np.testing.assert_array_equal(found[name], np.where(kept, column, np.nan))
        else:
            np.testing.assert_array_equal(found[name], column)


def test_a_chunk_without_intervals():
    found = compute_chunk(dataclasses.replace(SPEC, interval_every=60), chunk(SPEC, 2))
    assert (found["replicate"].min(), found["replicate"].max()) == (100, 139)
    assert np.isfinite(found["width_feature"]).sum() == 2  # of replicate 120
    found = compute_chunk(dataclasses.replace(SPEC, interval_every=200), chunk(SPEC, 2))
    assert np.isnan(found["width_feature"]).all()
    assert np.isfinite(found["se_feature"]).all()


@pytest.mark.slow
def test_every_method_side_by_side():
    """The bound is below the evidence; exact covers at its level and has the least error."""
    text = TEXT.replace("[methods.naive]", "[methods.naive]\n[methods.vb]\n[methods.exact]")
    text = text.replace("parameters = 7\ndatasets = 5\nnoise_draws = 4", "parameters = 1024")
    spec = dataclasses.replace(parse_spec(text), chunk_size=512)
    found = rows(spec)
    naive, vb, exact, bayes = (found["method"] == m for m in range(4))
    assert (found["status"] == 0).all()
    assert (found["log_evidence"][vb] <= found["log_evidence"][exact] + 1e-9).all()
    assert (found["iterations"][vb] >= 1).all()
    for what in ("feature", "class"):
        se = found[f"se_{what}"]
        assert se[bayes].mean() < se[exact].mean() < min(se[naive].mean(), se[vb].mean())
        for level in (0.5, 0.95):
            cover = found[f"coverage_{what}_{100 * level:g}"][exact]
            assert abs(cover.mean() - level) < 5 * cover.std() / cover.size**0.5


def test_ragged_features_and_other_noises():
    text = TEXT.replace(
        "n_features = 3", 'n_categories = [[1, 2, 4]]\nnoise = ["geometric", "gaussian"]'
    )
    part = compute_chunk(parse_spec(text), chunk(parse_spec(text), 0))
    assert all(
        np.isfinite(part[name]).all() for name in part if name.startswith(("se", "cov", "wid"))
    )
    assert (part["status"] == 0).all()


def test_options_are_checked_before_work():
    check_methods(SPEC)
    with pytest.raises(SpecError, match=r":16: methods.naive.solver is not an option of naive"):
        check_methods(
            parse_spec(TEXT.replace("[methods.naive]", '[methods.naive]\nsolver = "kkt"'))
        )


def test_option_values_are_checked_before_work():
    text = TEXT.replace("[methods.naive]", '[methods.vb]\nsolver = "ktt"')
    with pytest.raises(SpecError, match=r":15: methods.vb is refused by vb: solver .*'kkt'"):
        check_methods(parse_spec(text))
