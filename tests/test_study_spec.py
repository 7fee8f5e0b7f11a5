"""Studies as values: their cells, their names, and back from JSON."""

import dataclasses
import json

import pytest
from cases import SPEC as SMALL

from jaxprivnb.study.spec import Arm, Cell, from_dict
from jaxprivnb.study.specfile import parse_spec, shipped_names, shipped_spec


def test_grid_is_the_product_with_epsilon_fastest():
    spec = parse_spec(SMALL)
    assert len(spec.cells) == 8
    assert spec.cells[0] == Cell(50, 0.1, 2, (2, 2), 1.0, "laplace")
    assert spec.cells[1].epsilon_per_table == 1.0
    assert spec.cells[2].n_records == 100
    assert spec.cells[4].n_features == 3
    assert spec.replicates.total == 6
    assert spec.arms == (Arm("naive", "naive"), Arm("bayes", "bayes"))


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_studies_survive_a_round_trip(name):
    spec = shipped_spec(name)
    assert from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert from_dict(spec.to_dict()).fingerprint == spec.fingerprint


def test_figure1_is_the_papers_grid():
    spec = shipped_spec("figure1")
    assert spec.n_records == (50, 100, 200, 500)
    assert (min(spec.epsilon_per_table), max(spec.epsilon_per_table)) == (1e-4, 1.0)
    assert spec.replicates[1:] == (10, 5)
    assert spec.replicates.total >= 1000


def test_fingerprint_follows_what_is_computed_and_nothing_else():
    spec = parse_spec(SMALL)
    assert parse_spec("# a comment\n" + SMALL, "elsewhere.toml").fingerprint == spec.fingerprint
    assert dataclasses.replace(spec, seed=8).fingerprint != spec.fingerprint
