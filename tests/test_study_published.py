"""Studies of tables that are not published as the noise left them."""

import numpy as np
import pytest

from jaxprivnb.study.chunks import chunk
from jaxprivnb.study.compute import compute_chunk
from jaxprivnb.study.fits import check_methods
from jaxprivnb.study.spec import Publishing, SpecError, from_dict
from jaxprivnb.study.specfile import parse_spec

TEXT = """\
name = "published"
levels = [0.9]
width_level = 0.9
[grid]
n_records = 60
epsilon_per_table = 0.2
n_features = 2
n_categories = 2
[replicates]
parameters = 60
[published]
n_records = false
releases = 2
clamp = true
[methods.exact]
[methods.naive]
"""


def test_a_study_knows_what_is_published():
    spec = parse_spec(TEXT, "published.toml")
    assert spec.published == Publishing(n_records=False, releases=2, clamp=True)
    assert from_dict(spec.to_dict()) == spec
    plain = parse_spec(
        TEXT.replace("n_records = false\nreleases = 2\nclamp = true\n", ""), "x.toml"
    )
    assert "published" not in plain.to_dict()
    assert plain.fingerprint != spec.fingerprint


def test_rows_of_what_is_published_cover_the_truth():
    spec = parse_spec(TEXT, "published.toml")
    rows = compute_chunk(spec, chunk(spec, 0))
    exact = rows["method"] == 0
    assert (rows["status"] == 0).all()
    covered = rows["coverage_feature_90"][exact]
    # Four cells a replicate in pairs: at most two independent ones.
    assert covered.mean() == pytest.approx(0.9, abs=5 * np.sqrt(0.09 / (60 * 2)))
    assert rows["se_feature"][exact].mean() < rows["se_feature"][~exact].mean()
    again = compute_chunk(spec, chunk(spec, 0))
    for name, column in rows.items():
        np.testing.assert_array_equal(column, again[name])


def test_what_a_method_does_not_take_is_refused_before_work_begins():
    spec = parse_spec(TEXT + "[methods.vb]\n", "published.toml")
    with pytest.raises(SpecError, match=r"methods\.vb .*needs n_records"):
        check_methods(spec)
    with pytest.raises(SpecError, match=r"published\.grid must be a finite number above 0"):
        parse_spec(TEXT.replace("clamp = true", "grid = -1"), "published.toml")
