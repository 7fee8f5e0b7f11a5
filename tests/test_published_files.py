"""Noisy tables from frames and files, releases with names combined, and counts in summaries."""

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.cli import main

SEX = np.array([[30.5, 12.0], [-1.0, 8.0]])
AGE = np.array([[20.0, 10.0, 11.0], [2.0, np.nan, 6.5]])


def test_from_tables_takes_names_from_frames():
    pandas = pytest.importorskip("pandas")
    sex = pandas.DataFrame(SEX, index=["no", "yes"], columns=["F", "M"])
    age = pandas.DataFrame(AGE[::-1], index=["yes", "no"], columns=["young", "old", "?"])
    tables = pnb.from_tables({"sex": sex, "age": age}, noise=pnb.Laplace(4.0), n_records=50)
    assert [f.name for f in tables.domain.features] == ["sex", "age"]
    assert tables.domain.class_.categories == ("no", "yes")
    np.testing.assert_array_equal(tables.counts[0, 1], AGE[0])
    assert np.isinf(tables.upper[1, 1, 1])
    assert "P(age | class = yes)" in str(pnb.fit_exact(tables).summary())


def test_from_tables_refuses_what_has_no_likelihood():
    with pytest.raises(ValueError, match="post_processed"):
        pnb.from_tables({"sex": SEX}, noise=pnb.Laplace(4.0), post_processed="averaged")
    with pytest.raises(ValueError, match="table 2 of tables must have one row"):
        pnb.from_tables({"sex": SEX, "age": AGE[:1]}, noise=pnb.Laplace(4.0))
    with pytest.raises(TypeError, match="mapping from feature names"):
        pnb.from_tables([SEX], noise=pnb.Laplace(4.0))


def written(path):
    lines = ["feature,class,category,count"]
    for name, table in (("sex", SEX), ("age", AGE)):
        for i, label in enumerate(("no", "yes")):
            for j, x in enumerate(table[i]):
                lines.append(f"{name},{label},{j},{'' if np.isnan(x) else x}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_csv_file_of_noisy_counts_is_fitted(tmp_path, capsys):
    path = written(tmp_path / "tables.csv")
    tables = pnb.load_tables(str(path), noise=pnb.Laplace(4.0), n_records=50)
    direct = pnb.from_tables({"sex": SEX, "age": AGE}, noise=pnb.Laplace(4.0), n_records=50)
    np.testing.assert_array_equal(tables.counts, direct.counts)
    np.testing.assert_array_equal(tables.upper, direct.upper)
    how = ["--noise", "laplace", "--scale", "4"]
    assert main(["fit", str(path), *how, "--counts"]) == 0
    out = capsys.readouterr().out
    assert "N unknown" in out
    assert "P(sex | class = no)" in out
    header = next(line for line in out.splitlines() if "mean" in line)
    assert header.split() == ["mean", "sd", "lower", "upper", "count", "from", "to"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "must have the columns feature, class, category, count"),
        ("feature,class,category,count\nx,0,0,many\n", "line 2: count must be a number"),
        ("feature,class,category,count\nx,0,0,1\n\nx,0,0,1\n", "line 4: must be one cell"),
        ("feature,class,category,count\nx,0,0\n", "line 2: must be one cell"),
        ("feature,class,category,count\n", "has no cells"),
        ('feature,class,category,count\n"x,0,0,many', "is not a CSV file in UTF-8"),
        (f"feature,class,category,count\n{'many' * 50_000},0,0,1\n", "is not a CSV file in UTF-8"),
        (b"feature,class,category,count\nmany\xff,0,0,1\n", "is not a CSV file in UTF-8"),
    ],
)
def test_a_csv_file_that_is_no_table_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        pnb.load_tables(str(path), noise=pnb.Laplace(4.0))
    assert "many" not in str(caught.value)
    cause = caught.value.__context__
    assert cause is None or not hasattr(cause, "object")  # where a decoder keeps the text
    assert main(["fit", str(path), "--noise", "laplace", "--scale", "4"]) == 2


def test_a_csv_file_that_is_not_there_is_named(tmp_path, capsys):
    path = tmp_path / "none.csv"
    assert main(["fit", str(path), "--noise", "laplace", "--scale", "4"]) == 4
    assert f"cannot read {path}: No such file" in capsys.readouterr().err


def test_releases_with_names_may_hold_other_features():
    noise = pnb.Laplace(4.0)
    whole = pnb.from_tables({"sex": SEX, "age": AGE}, noise=noise, n_records=50)
    other = pnb.from_tables({"age": np.nan_to_num(AGE, nan=5.0)}, noise=pnb.Gaussian(3.0))
    both = pnb.combine(whole, other)
    assert [f.name for f in both.domain.features] == ["sex", "age"]
    assert float(both.n_records) == 50
    (second,) = both.also
    assert np.isinf(second.counts[:, 0]).all()
    np.testing.assert_array_equal(second.counts[:, 1], np.nan_to_num(AGE, nan=5.0))
    strange = pnb.from_tables({"age": SEX}, noise=noise)
    with pytest.raises(ValueError, match="categories of feature 'age'"):
        pnb.combine(whole, strange)
    with pytest.raises(ValueError, match="n_records must be the same"):
        pnb.combine(whole, pnb.from_tables({"sex": SEX}, noise=noise, n_records=51))


def test_budgets_of_combined_releases_are_kept():
    opendp = pytest.importorskip("opendp")
    assert opendp
    records = {"sex": ["F", "M"] * 30, "income": ["low"] * 30 + ["high"] * 30}
    how = {"categories": {"sex": ["F", "M"]}, "classes": ["low", "high"]}
    first, second = (
        pnb.release(records, "income", epsilon_total=e, class_table=table, **how)
        for e, table in ((1.0, False), (0.5, True))
    )
    both = pnb.combine(first, second)
    assert [g.stated for g in both.guarantees] == [1.0, 0.5]
    assert both.counts.shape == (2, 2, 2)
    assert int(pnb.fit_exact(both).status) == 0


def test_counts_stand_beside_parameters_in_a_summary():
    tables = pnb.NoisyTables(SEX[:, None], 50, pnb.Laplace(4.0))
    fit = pnb.fit_exact(tables)
    rows = fit.summary(0.8, counts=True).rows
    low, high = (np.asarray(x) for x in fit.count_interval(0.8))
    by_cell = [r for r in rows if r.class_ is not None]
    assert [(r.count_lower, r.count_upper) for r in by_cell] == list(
        zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)
    )
    assert sum(r.count_mean for r in by_cell) == pytest.approx(50)
    with pytest.raises(TypeError, match="exact posterior alone"):
        pnb.fit_naive(tables).summary(counts=True)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    ax = pnb.plots.plot_forest(fit, "count")
    assert "true number of records" in ax.get_xlabel()
