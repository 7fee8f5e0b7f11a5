"""Numbers as categories: public edges, and nothing of the data in an error."""

import bisect
import decimal
import json
import math

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.privacy.bins import MAX_BINS, Bins, read_bins
from jaxprivnb.privacy.columns import factorise
from jaxprivnb.privacy.domain import Column

pytest.importorskip("opendp")

EDGES = [0, 18, 30, 45, 65, 120]
LABELS = ("[0, 18)", "[18, 30)", "[30, 45)", "[45, 65)", "[65, 120]")
AGES = [0, 17.999, 18, 29, 30, 44, 45.5, 64, 65, 119, 120, -3, 121, 1e300, math.inf, -math.inf]
BIN = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 0, 4, 4, 4, 0]
ALMOST_EXACT = {"epsilon_per_table": 1e5, "n_classes": 2}


def released(values, bins=EDGES, **options):
    records = {"age": values, "class": [0] * len(values)}
    return pnb.release(records, "class", bins={"age": bins}, **{**ALMOST_EXACT, **options})


def test_numbers_fall_into_their_bins():
    made = released(AGES)
    assert made.categories == {"age": LABELS}
    assert made.bins == {"age": Bins(tuple(EDGES))}
    np.testing.assert_array_equal(made.encode({"age": AGES})[:, 0], BIN)
    np.testing.assert_array_equal(made.integers[0, 0], np.bincount(BIN))


def test_against_bisection():
    rng = np.random.default_rng(0)
    edges = np.sort(rng.normal(size=9)).tolist()
    values = [*rng.normal(0, 2, 500), *edges]
    expected = [min(max(bisect.bisect_right(edges, v) - 1, 0), 7) for v in values]
    np.testing.assert_array_equal(Bins(tuple(edges)).which(values), expected)
    expected = [
        j if edges[0] <= v <= edges[-1] else -1 for j, v in zip(expected, values, strict=True)
    ]
    np.testing.assert_array_equal(Bins(tuple(edges), "refuse").which(values), expected)


def test_labels_say_the_edges_exactly():
    assert Bins((0.1, 0.30000000000000004, 2.0, 1e20)).labels == (
        "[0.1, 0.30000000000000004)", "[0.30000000000000004, 2)", "[2, 1e+20]",
    )  # fmt: skip
    assert Bins((-1.0, -0.0)).labels == ("[-1, 0]",)


@pytest.mark.parametrize(
    ("n", "bounds", "edges"),
    [
        (8, (0, 600), [0, 75, 150, 225, 300, 375, 450, 525, 600]),
        (3, [0, 100], [0, 33.33, 66.67, 100]),
        (1, (-0.5, 0.5), [-0.5, 0.5]),
        (3, (0, 1e-3), [0, 0.0003333, 0.0006667, 0.001]),
        (3, (0, 1e9), [0, 333333333, 666666667, 1e9]),
    ],
)
def test_bins_of_one_width(n, bounds, edges):
    found = read_bins("x", {"bins": n, "bounds": bounds})
    np.testing.assert_allclose(found.edges, edges, rtol=1e-15)
    np.testing.assert_allclose(np.diff(found.edges), (bounds[1] - bounds[0]) / n, rtol=2e-3)
    assert all(len(label) < 26 for label in found.labels)


@pytest.mark.parametrize("outside", ["clip", "refuse"])
def test_beyond_the_edges(outside):
    bins = {"edges": EDGES, "outside": outside}
    if outside == "clip":
        assert released([-1, 200], bins).integers[0, 0].tolist() == [1, 0, 0, 0, 1]
        return
    with pytest.raises(ValueError, match=r"'age' has a value that is missing, or outside its edge"):
        released([-1, 50], bins)
    made = released([-1, 50], bins, unknown="other")
    assert made.categories["age"] == (*LABELS, "other")
    assert made.integers[0, 0].tolist() == [0, 0, 0, 1, 0, 1]
    np.testing.assert_array_equal(made.encode({"age": [200, 0, None]})[:, 0], [5, 0, 5])


@pytest.mark.parametrize("missing", [None, math.nan, np.float32("nan"), decimal.Decimal("NaN")])
def test_missing_values_are_as_in_other_columns(missing):
    values = np.array([20, missing], object)
    with pytest.raises(ValueError, match=r"'age' has a value that is missing\. Recode"):
        released(values)
    made = released(values, unknown={"age": "other"})
    assert made.integers[0, 0].tolist() == [0, 1, 0, 0, 0, 1]
    np.testing.assert_array_equal(released([20]).encode({"age": values})[:, 0], [1, -1])


def test_frames_arrow_arrays_and_dicts_bin_alike():
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    records = {"age": AGES[:11], "sex": ["f", "m"] * 5 + ["f"], "class": [0, 1] * 5 + [0]}
    frame = pandas.DataFrame(records)
    nullable = frame.astype({"age": "Float64"})
    table = arrow.table(records)
    options = {**ALMOST_EXACT, "bins": {"age": EDGES}, "categories": {"sex": ["f", "m"]}}
    expected = np.zeros((2, 5), int)
    np.add.at(expected, (records["class"], BIN[:11]), 1)
    chunked = arrow.concat_tables([table.slice(0, 3), table.slice(3)])
    small = frame.astype({"age": np.float32})
    level = frame.astype({"age": "category"})
    for X in (records, frame, nullable, small, level, table, chunked):
        made = pnb.release(X, "class", **options)
        np.testing.assert_array_equal(made.integers[:, 0], expected)
        assert made.categories == {"age": LABELS, "sex": ("f", "m")}
    array = np.column_stack([AGES[:11], [0, 1] * 5 + [0]])
    for X in (array, array.tolist(), array.astype(np.float32)):
        made = pnb.release(
            X, records["class"], n_categories=[2], bins={"x0": EDGES}, **ALMOST_EXACT
        )
        np.testing.assert_array_equal(made.integers[:, 0], expected)
        assert made.feature_names == ("x0", "x1")
    whole = [decimal.Decimal(3), 20, np.int8(31), 10**400, True]
    np.testing.assert_array_equal(made.encode([[v, 0] for v in whole])[:, 0], [0, 1, 2, 4, -1])


def test_a_file_bins_too(tmp_path):
    made = released(AGES, {"edges": [0, 18.5, 120], "outside": "refuse"}, unknown="other")
    made.save(tmp_path / "r.json")
    back = pnb.load_release(tmp_path / "r.json")
    assert back.domain == made.domain
    assert [type(e) for e in back.bins["age"].edges] == [int, float, int]
    np.testing.assert_array_equal(back.encode({"age": AGES}), made.encode({"age": AGES}))
    content = json.loads((tmp_path / "r.json").read_text())["content"]
    assert content["features"][0]["bins"] == {"edges": [0, 18.5, 120], "outside": "refuse"}


def test_labels_are_values_too():
    made = released([1, 2, 3])
    np.testing.assert_array_equal(
        made.encode({"age": [*LABELS, "[18, 31)"]})[:, 0], [*range(5), -1]
    )
    assert released(list(LABELS)).integers[0, 0].tolist() == [1] * 5


def test_what_bins_leave_is_read_from_the_data_and_warned_of():
    records = {"age": [1, 20], "sex": ["f", "m"], "class": [0, 1]}
    with pytest.warns(pnb.PrivacyWarning, match="n_categories"):
        made = pnb.release(records, "class", bins={"age": EDGES}, **ALMOST_EXACT)
    assert made.categories["sex"] == ("f", "m")
    released([1, 2])  # nothing is left: no warning, which would be an error here


FAR = [0.5, 918273645.25]
"""Values that no message may show."""


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["0.5", "918273645.25"], "str"),
        (np.array(["2020-01-01", "1999-09-18"], "datetime64[ns]"), "datetime"),
        (np.array(["2020-01-01", "1999-09-18"], "datetime64[D]"), "datetime"),
        (np.array([3, 918273645], "timedelta64[s]"), "timedelta"),
        ([True, False], "bool"),
        ([0.5 + 1j, 918273645.25j], "complex"),
        ([(1, 2), (918273645, 3)], "tuple"),
        ([0.5, "918273645.25"], "str"),
    ],
)
def test_what_is_no_number_is_refused_by_its_type(values, kind):
    column = np.empty(2, object)
    column[:] = list(values)
    column = values if isinstance(values, np.ndarray) else column
    with pytest.raises(
        ValueError, match=rf"'age' has bins, .* numbers, got {kind}: conv"
    ) as caught:
        released(column)
    assert not any(c in str(caught.value) for c in ("9182", "1999", "0.5"))
    if 0.5 in list(values):  # some are numbers: the others are values outside the domain
        made = released(column, unknown="other")
        assert made.integers[0, 0].tolist() == [1, 0, 0, 0, 0, 1]
    else:
        with pytest.raises(ValueError, match="has bins, so its values must be numbers"):
            released(column, unknown="other")


@pytest.mark.parametrize(
    ("bins", "error", "message"),
    [
        ([0, 18, 18], ValueError, "'age': edges must increase, and edge 2 is not above"),
        ([18, 0], ValueError, "edge 1 is not above"),
        ([0, math.nan, 918273645], ValueError, "edge 1 must be finite"),
        ([0, math.inf], ValueError, "edge 1 must be finite"),
        ([0, 10**400], ValueError, "edge 1 must be finite"),
        ([-math.inf, 0], ValueError, "edge 0 must be finite"),
        ([0, "918273645"], TypeError, "edge 1 must be a number, got str"),
        ([0, None], TypeError, "edge 1 must be a number, got NoneType"),
        ([False, True], TypeError, "edge 0 must be a number, got bool"),
        (np.array(["1999-09-18"] * 2, "datetime64[ns]"), TypeError, "edge 0 .* datetime64"),
        ([np.datetime64("1999-09-18"), 3], TypeError, "edge 0 must be a number, got datetime64"),
        ([[0, 1], [2, 3]], TypeError, "edge 0 must be a number, got list"),
        (np.zeros((2, 2)), TypeError, "must be a list of edges, got ndarray"),
        ({0, 1}, TypeError, "must be a list of edges, got set"),
        ("918273645", TypeError, "must be a list of edges, got str"),
        (None, TypeError, "must be a list of edges, got NoneType"),
        ([0], ValueError, "between 2 and"),
        (range(MAX_BINS + 2), ValueError, "between 2 and"),
        (8, TypeError, "a number of bins needs public bounds"),
        ({"bins": 8}, TypeError, "must have edges, or bins"),
        ({"bounds": (0, 1)}, TypeError, "must have edges, or bins"),
        ({"edges": [0, 1], "bins": 8, "bounds": (0, 1)}, TypeError, "must have edges, or bins"),
        ({"edge": [0, 1]}, ValueError, "a key of bins of 'age' must be one of 'edges'"),
        ({918273645: [0, 1]}, TypeError, "a key of bins of 'age' must be one of 'edges'"),
        ({"bins": 0, "bounds": (0, 1)}, ValueError, "bins must be at least 1"),
        ({"bins": 2.5, "bounds": (0, 1)}, TypeError, "bins must be an integer"),
        ({"bins": 10**9, "bounds": (0, 1)}, ValueError, "bins must be at most"),
        ({"bins": 2, "bounds": (1, 0)}, ValueError, "bounds: edges must increase"),
        ({"bins": 2, "bounds": (0, 1, 2)}, ValueError, "bounds must be two numbers"),
        ({"bins": 2, "bounds": (-1e308, 1e308)}, ValueError, "too near .* or too far"),
        ({"bins": 2, "bounds": (0, 5e-324)}, ValueError, "too near .* or too far"),
        ({"bins": 2, "bounds": 9}, TypeError, "bounds must be a list of edges, got int"),
        ({"edges": [0, 1], "outside": "x"}, ValueError, "outside, of bins of 'age' must be one"),
    ],
)  # fmt: skip
def test_edges_that_make_no_sense(bins, error, message):
    with pytest.raises(error, match=message) as caught:
        released([1, 2], bins)
    assert "918273645" not in str(caught.value)
    assert "1999" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bins": [EDGES]}, TypeError, "bins must be a mapping by feature, got list"),
        ({"bins": {"agee": EDGES}}, ValueError, "none of its keys is a feature"),
        ({"bins": {"age": EDGES, "agee": EDGES}}, ValueError, "names 'agee', which is no feature"),
        ({"bins": {"age": EDGES, "class": EDGES}}, ValueError, "names 'class', which is no feat"),
        ({"bins": {"age": EDGES, 918273645: EDGES}}, ValueError, "names a key, which is no feat"),
        ({"categories": {"age": [1], "sex": [0]}}, TypeError, "bins or categories of 'age', not b"),
        ({"n_categories": {"age": 1, "sex": 2}}, TypeError, "bins or n_categories of 'age', not b"),
        ({"n_categories": [2, 2]}, ValueError, "one entry a feature"),
    ],
)
def test_bins_beside_other_domains(options, error, message):
    records = {"age": [1, 2], "sex": [0, 1], "class": [0, 1]}
    with pytest.raises(error, match=message):
        pnb.release(records, "class", **{"bins": {"age": EDGES}, **ALMOST_EXACT, **options})


def test_a_column_with_bins_has_their_categories():
    bins = Bins((0, 1, 2))
    assert len(Column("x", bins.labels, bins).with_other()) == 3
    for labels in (("a", "b"), bins.labels[:1], (*bins.labels, "more")):
        with pytest.raises(ValueError, match="must be those of its bins"):
            Column("x", labels, bins)
    empty = factorise(np.zeros(0), "x")
    assert Column("x", bins.labels, bins).codes(empty, other=False).shape == (0,)
