"""Public domains: stated, or their absence warned of; values outside never dropped."""

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.privacy.columns import factorise
from jaxprivnb.privacy.domain import MAX_CELLS, Column, Domain

pytest.importorskip("opendp")

X = np.array([[0, 5], [1, 7], [0, 5], [1, 5]])
Y = np.array(["b", "a", "a", "b"])
ALMOST_EXACT = {"epsilon_per_table": 1e5}
PUBLIC = {"categories": [[0, 1], [5, 6, 7]], "classes": ["a", "b"]}


def test_a_domain_read_from_the_data_is_warned_of():
    with pytest.warns(pnb.PrivacyWarning, match=r"n_categories .* and n_classes .* not given"):
        made = pnb.release(X, Y, **ALMOST_EXACT)
    assert made.categories == {"x0": (0, 1), "x1": (5, 7)}
    assert made.classes == ("a", "b")
    with pytest.warns(pnb.PrivacyWarning) as caught:
        pnb.release(X, Y, **ALMOST_EXACT, classes=["a", "b"])
    assert "n_classes" not in str(caught[0].message)
    assert caught[0].filename == __file__
    pnb.release(X, Y, **ALMOST_EXACT, **PUBLIC)  # no warning, which would be an error here


def test_labels_of_every_kind_match_by_value():
    x = [["u", 1.5, True, 3], ["v", 2.5, False, 4]]
    made = pnb.release(
        x, [0.0, 1.0], **ALMOST_EXACT, n_classes=np.int64(2),
        categories=[np.array(["v", "u"]), [1.5, 2.5], [False, True], [4, 3]],
    )  # fmt: skip
    np.testing.assert_array_equal(made.encode(x), [[1, 0, 1, 1], [0, 1, 0, 0]])
    np.testing.assert_array_equal(made.integers[0], [[0, 1], [1, 0], [0, 1], [0, 1]])
    whole = [[u, -4 * v, w, z] for u, v, w, z in x]
    with pytest.warns(pnb.PrivacyWarning):
        inferred = pnb.release(whole, [0.0, 1.0], **ALMOST_EXACT)
    assert inferred.categories == {
        "x0": ("u", "v"), "x1": (-10, -6), "x2": (False, True), "x3": (3, 4),
    }  # fmt: skip


def test_whole_numbers_have_the_values_that_occur_and_no_others():
    column = np.array([1.0, 3.0, 2.0, 1.0])  # as pandas reads codes with a gap among them
    with pytest.warns(pnb.PrivacyWarning):
        made = pnb.release(column[:, None], [7, 9, 7, 9], **ALMOST_EXACT)
    assert made.categories == {"x0": (1, 2, 3)}
    assert [type(label) for label in made.categories["x0"]] == [int] * 3
    assert made.classes == (7, 9)
    np.testing.assert_array_equal(made.integers[:, 0], [[1, 1, 0], [1, 0, 1]])


def test_scalars_of_numpy_are_plain_labels():
    words = list(np.array(["a", "b"]))
    with pytest.warns(pnb.PrivacyWarning):
        made = pnb.release([[w, np.int64(k)] for k, w in enumerate(words)], words, **ALMOST_EXACT)
    assert made.categories == {"x0": ("a", "b"), "x1": (0, 1)}
    assert made.classes == ("a", "b")


def test_a_continuous_column_is_no_domain():
    with pytest.raises(ValueError, match=r"'x1' has numbers that are not whole.*bins="):
        pnb.release([["u", 1.5], ["v", 2.0]], [0, 1], **ALMOST_EXACT, n_classes=2)
    pandas = pytest.importorskip("pandas")
    dates = {"when": np.array(["1960-01-01", "2020-01-01"], "datetime64[ns]")}
    with pytest.raises(TypeError, match=r"column 0 must be strings.*got datetime"):
        pnb.release(dates, [0, 1], **ALMOST_EXACT, n_classes=2)
    table = pandas.DataFrame({"size": pandas.cut([0.3, 1.2, 2.5], [0, 1, 2, 3])})
    with pytest.raises(TypeError, match=r"column 0 must be strings.*got Interval.*labels="):
        pnb.release(table, [0, 1, 1], **ALMOST_EXACT, n_classes=2)


def test_a_categorical_keeps_its_levels_and_their_order():
    pandas = pytest.importorskip("pandas")
    size = pandas.Categorical(["mid", "small", None, "mid"], ["small", "mid", "large"])
    table = pandas.DataFrame({"size": size})
    with pytest.warns(pnb.PrivacyWarning, match="read from the data"):
        made = pnb.release(table, [0, 0, 1, 1], **ALMOST_EXACT, n_classes=2, unknown="other")
    assert made.categories == {"size": ("small", "mid", "large", "other")}
    np.testing.assert_array_equal(made.integers[:, 0], [[1, 1, 0, 0], [0, 1, 0, 1]])
    halves = pandas.Categorical([0.5, 1.5], [1.5, 0.5, 2.5])  # declared, so no sign of a continuum
    with pytest.warns(pnb.PrivacyWarning):
        made = pnb.release({"dose": halves}, halves, **ALMOST_EXACT)
    assert made.categories == {"dose": (1.5, 0.5, 2.5)}
    assert made.classes == (1.5, 0.5, 2.5)
    given = {"size": pandas.Index(["mid", "large", "small"])}
    made = pnb.release(
        table[:2], [0, 0], **ALMOST_EXACT, n_classes=2, categories=given
    )  # fmt: skip
    assert made.categories == {"size": ("mid", "large", "small")}
    np.testing.assert_array_equal(made.integers[0, 0], [1, 0, 1])


@pytest.mark.parametrize("value", [None, np.nan, 9, "0", -1, [1], np.ma.masked])
def test_values_outside_are_refused_or_other(value):
    if value is np.ma.masked:
        x = np.ma.masked_array(X, [[True, False]] + [[False, False]] * 3)
    else:
        x = X.astype(object)
        x[0, 0] = value
    with pytest.raises(ValueError, match=r"feature 'x0' .* not among its categories") as caught:
        pnb.release(x, Y, **ALMOST_EXACT, **PUBLIC)
    message = str(caught.value)
    assert "9" not in message.replace("'x0'", "")
    assert "row" not in message
    made = pnb.release(x, Y, **ALMOST_EXACT, **PUBLIC, unknown="other")
    assert made.categories == {"x0": (0, 1, "other"), "x1": (5, 6, 7, "other")}
    np.testing.assert_array_equal(made.integers[:, 0, :3], [[1, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(made.integers.sum((0, 2)), [4, 4])  # no record is dropped


def test_refusals_say_the_same_whatever_the_records_are():
    messages = set()
    for rows, value in (([0], 9), ([1, 2, 3], 12345), ([3], None)):
        x = X.astype(object)
        x[rows, 0] = value
        with pytest.raises(ValueError, match="x0") as caught:
            pnb.release(x, Y, **ALMOST_EXACT, **PUBLIC)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_other_is_there_even_if_no_record_needs_it():
    made = pnb.release(X, Y, **ALMOST_EXACT, **PUBLIC, unknown="other")
    assert made.categories["x0"] == (0, 1, "other")
    listed = pnb.release(
        X, Y, **ALMOST_EXACT, categories=[["other", 0], [5, 7]], classes=["a", "b"],
        unknown="other",
    )  # fmt: skip
    np.testing.assert_array_equal(listed.integers[:, 0], [[1, 1, 0], [1, 1, 0]])
    with pytest.raises(ValueError, match="'x0'"):  # listed, but not asked for
        pnb.release(X, Y, **ALMOST_EXACT, categories=[["other", 0], [5, 7]], classes=["a", "b"])


def test_other_for_single_features():
    x = X.astype(object)
    x[0, 0] = None
    made = pnb.release(x, Y, **ALMOST_EXACT, **PUBLIC, unknown={"x0": "other"})
    assert made.categories == {"x0": (0, 1, "other"), "x1": (5, 6, 7)}
    x[0, 1] = None
    with pytest.raises(ValueError, match="feature 'x1' has a value"):
        pnb.release(x, Y, **ALMOST_EXACT, **PUBLIC, unknown={"x0": "other", "x1": "error"})


def test_the_class_has_an_other_only_if_it_is_listed():
    outside = {"categories": PUBLIC["categories"], "unknown": "other", **ALMOST_EXACT}
    with pytest.raises(ValueError, match="class 'class' has a value"):
        pnb.release(X, Y, classes=["a"], **outside)
    made = pnb.release(X, Y, classes=["a", "other"], **outside)
    assert made.classes == ("a", "other")
    np.testing.assert_array_equal(made.integers.sum((1, 2)), [4, 4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_categories": 2, "categories": [[0], [1]]}, "not both"),
        ({"n_classes": 2, "classes": [0]}, "not both"),
        ({"n_categories": [2]}, "X has 2, got 1"),
        ({"n_categories": {"x0": 2}}, "lacks feature 'x1'"),
        ({"n_categories": {"x0": 2, "x1": 8, "z": 1}}, "names 'z'"),
        ({"n_categories": 0}, "at least 1"),
        ({"n_categories": 2.5}, "must be an integer"),
        ({"n_categories": 10**12}, "at most"),
        ({"n_categories": MAX_CELLS}, "more than the"),
        ({"categories": "ab"}, "must be a mapping"),
        ({"categories": ["ab", [5]]}, "must be a list of labels"),
        ({"categories": [[0, 0], [5]]}, "hold a label twice"),
        ({"categories": [[0, 1], []]}, "must not be empty"),
        ({"categories": [[0, None], [5]]}, "must be strings, numbers or booleans"),
        ({"categories": [[0, np.inf], [5]]}, "must be finite"),
        ({"unknown": "drop"}, "unknown must be one of"),
        ({"unknown": {"x0": "drop"}}, "unknown of 'x0' must be one of"),
        ({"unknown": {"x2": "other"}}, "a column of unknown must be one of .*'x1'"),
        ({"categories": {"sex": [0, 1], "region": [5]}}, "X has no column names .*set_output"),
    ],
)
def test_domains_that_make_no_sense(options, message):
    given = {"classes": ["a", "b"], **options}
    if "n_classes" not in options and "n_categories" not in options:
        given.setdefault("categories", PUBLIC["categories"])
    with pytest.raises((ValueError, TypeError), match=message):
        pnb.release(X, Y, **ALMOST_EXACT, **given)


def test_no_records_and_no_domain():
    empty = np.zeros((0, 2), int)
    made = pnb.release(empty, empty[:, 0], **ALMOST_EXACT, n_categories=3, n_classes=2)
    assert made.size == 0
    np.testing.assert_array_equal(made.integers, 0)
    with pytest.raises(ValueError, match="give the public domain"):
        pnb.release(empty, empty[:, 0], **ALMOST_EXACT, n_classes=2)


def test_a_domain_that_cannot_be_read_from_the_data_does_not_tell_of_them(monkeypatch):
    for value in (2**70, 1e300):
        x = np.array([[1], [value]], object)
        with pytest.raises(ValueError, match="give the public one") as caught:
            pnb.release(x, [0, 1], **ALMOST_EXACT, n_classes=2)
        assert not any(c.isdigit() for c in str(caught.value).replace("'x0'", ""))
    monkeypatch.setattr("jaxprivnb.privacy.domain.MAX_CELLS", 7)
    with (
        pytest.warns(pnb.PrivacyWarning),
        pytest.raises(ValueError, match="does not make a release") as caught,
    ):
        pnb.release([[0, 1], [1, 1999999]], [0, 1], **ALMOST_EXACT, n_classes=2)
    assert not any(c.isdigit() for c in str(caught.value))


def test_private_columns_do_not_show_themselves():
    assert repr(factorise(np.array([12345, 7]), "x")) == "Factor(private)"


def test_names_and_sizes_are_bounded():
    with pytest.raises(ValueError, match="1 to 1000 characters"):
        Column("x" * 1001, (0,))
    with pytest.raises(ValueError, match="at most 1000"):
        Column("x", ("y" * 1001,))
    with pytest.raises(ValueError, match="names of their own"):
        Domain(Column("x", (0,)), (Column("x", (0,)),))


@pytest.mark.parametrize("kind", ["null", "dictionary", "string", "chunks", "empty"])
def test_arrow_columns(kind):
    arrow = pytest.importorskip("pyarrow")
    values = ["u", None, "v", "u"]
    column = {
        "null": lambda: arrow.nulls(4),
        "dictionary": lambda: arrow.array(values).dictionary_encode(),
        "string": lambda: arrow.array(values),
        "chunks": lambda: arrow.chunked_array([values[:1], values[1:]]),
        "empty": lambda: arrow.chunked_array([], arrow.string()),
    }[kind]()
    codes = Column("x", ("v", "u")).codes(factorise(column, "x"), other=False)
    expected = {"null": [-1] * 4, "empty": []}.get(kind, [1, -1, 0, 1])
    np.testing.assert_array_equal(codes, expected)
