"""Synthetic records, and estimates from several sets of them."""

import dataclasses
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import jaxprivnb as pnb
from jaxprivnb.posterior import DirichletPosterior
from jaxprivnb.privacy.bins import Bins
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.report.synthetic import draw_records

KEY = jax.random.key(5)
BINS = Bins((0, 18, 65))
DOMAIN = Domain(
    Column("income", ("low", "high")),
    (Column("region", (3, 5, 8)), Column("age", BINS.labels, BINS)),
)
MASK = jnp.asarray([[True, True, True], [True, False, True]])  # the second category is in cell 2
COUNTS = [[[50.2, 30.9, 4.0], [55.0, 0.0, 22.1]], [[40.3, 44.8, 29.0], [61.7, 0.0, 40.2]]]


def posterior(seed=0, scale=3.0, **fields):
    rng = np.random.default_rng(seed)
    return DirichletPosterior(
        mask=MASK,
        status=jnp.int32(0),
        class_alpha=jnp.asarray(rng.gamma(2.0, scale, 2) + 0.5),
        feature_alpha=jnp.where(MASK, jnp.asarray(rng.gamma(2.0, scale, (2, 2, 3)) + 0.5), 0),
        domain=DOMAIN,
        **fields,
    )


def test_sets_have_the_names_labels_and_sizes_that_were_asked_for():
    pandas = pytest.importorskip("pandas")
    sets = posterior().synthesize(KEY, 400, 3)
    assert [len(s) for s in sets] == [400] * 3
    for frame in sets:
        assert list(frame.columns) == ["region", "age", "income"]
        assert frame["region"].dtype.kind == "i"
        assert set(frame["region"]) <= {3, 5, 8}
        assert frame["income"].dtype == pandas.CategoricalDtype(["low", "high"])
        assert frame["age"].dtype == pandas.CategoricalDtype(["[0, 18)", "[18, 65]"], ordered=True)
        assert not frame.isna().any().any()
    assert not sets[0].equals(sets[1])
    pandas.testing.assert_frame_equal(sets[2], posterior().synthesize(KEY, 400, 3)[2])


def test_columns_without_pandas(monkeypatch):
    frames = pytest.importorskip("pandas") and posterior().synthesize(KEY, 50, 2)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame, columns in zip(frames, posterior().synthesize(KEY, 50, 2, as_frame=False)):  # noqa: B905
        assert list(columns) == list(frame.columns)
        for name, column in columns.items():
            assert isinstance(column, np.ndarray)
            assert column.tolist() == frame[name].tolist()
    with pytest.raises(ImportError, match=r"as_frame=True needs pandas.*jaxprivnb\[pandas\]"):
        posterior().synthesize(KEY, 50)


def test_records_are_drawn_from_the_model():
    rng = np.random.default_rng(0)
    p = np.array([0.2, 0.5, 0.3])
    q = rng.dirichlet(np.ones(4), (3, 2))
    q[0, 0], q[2, 1] = [0, 0.5, 0, 0.5], [1, 0, 0, 0]
    n = 60_000
    y, x = draw_records(rng, p, q, n)
    assert y.shape == (n,)
    assert x.shape == (n, 2)
    expected = p[:, None, None] * q[:, 0, :, None] * q[:, 1, None, :]  # [I, J, J]
    found = np.zeros_like(expected)
    np.add.at(found, (y, x[:, 0], x[:, 1]), 1)
    assert (found[expected == 0] == 0).all()
    real = expected > 0
    assert stats.chisquare(found[real], n * expected[real]).pvalue > 1e-4


def test_every_set_has_parameters_of_its_own():
    """Over sets a share is as far from its mean as V + u, with V the posterior's variance."""
    one, n, m = posterior(scale=2.0), 100, 1500
    sets = one.synthesize(KEY, n, m, as_frame=False)
    share = np.array([(s["income"] == "high").mean() for s in sets])
    mean, sd = float(one.class_mean[1]), float(one.class_sd[1])
    within = (mean * (1 - mean) - sd**2) / n
    np.testing.assert_allclose(share.mean(), mean, atol=4 * np.sqrt((sd**2 + within) / m))
    np.testing.assert_allclose(share.var(), sd**2 + within, rtol=4 * np.sqrt(2 / m))


@pytest.mark.parametrize("fit", ["fit_exact", "fit_naive"])
def test_n_of_the_release(fit):
    tables = pnb.NoisyTables(COUNTS, 160, pnb.Laplace(5.0), MASK)
    (columns,) = getattr(pnb, fit)(tables).synthesize(KEY, as_frame=False)
    assert {len(x) for x in columns.values()} == {160}
    # The third category of the second feature is its second one, and stands in the third cell.
    assert set(columns["x1"].tolist()) == {0, 2}


def test_n_of_true_counts():
    counts = np.array([[[3, 1], [2, 2]], [[0, 5], [4, 1]]], float)
    (columns,) = pnb.fit_bayes(counts).synthesize(KEY, as_frame=False)
    assert len(columns["class"]) == 9


def test_an_unknown_n_is_drawn_with_the_parameters():
    tables = pnb.NoisyTables(COUNTS, None, pnb.Laplace(5.0), MASK)
    exact = pnb.fit_exact(tables)
    p, _, sizes = exact._sample_with_sizes(KEY, 400)
    counts = np.asarray(exact.sample_tables(KEY, 400))
    assert sizes == counts[:, :, 1].sum((1, 2)).tolist()
    np.testing.assert_array_equal(p, exact.sample(KEY, 400)[0])
    error = 4 * np.std(sizes) / np.sqrt(400)
    np.testing.assert_allclose(np.mean(sizes), exact.n_records_mean, atol=error)
    assert len(set(sizes)) > 10
    drawn = [len(s["class"]) for s in exact.synthesize(KEY, None, 400, as_frame=False)]
    assert drawn == sizes
    naive = pnb.fit_naive(tables)
    (columns,) = naive.synthesize(KEY, as_frame=False)
    expected = np.asarray(naive.class_alpha).sum() - 2  # the prior's
    assert len(columns["class"]) == int(naive.n_records) == round(float(expected))


def test_the_table_of_the_class_is_no_column():
    pytest.importorskip("opendp")
    records = {"sex": ["f", "m"] * 20, "income": ["low", "high"] * 20}
    domain = {"categories": {"sex": ["f", "m"]}, "classes": ["low", "high"]}
    made = pnb.release(records, "income", epsilon_total=1.0, class_table=True, **domain)
    (columns,) = pnb.fit_naive(made).synthesize(KEY, as_frame=False)
    assert list(columns) == ["sex", "income"]
    assert len(columns["sex"]) == 40


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": 0}, TypeError, "key must be a random key"),
        ({"n_datasets": 0}, ValueError, "n_datasets must be at least 1"),
        ({"n_records": 0}, ValueError, "n_records must be at least 1"),
        ({"n_records": 2.5}, TypeError, "n_records must be an integer"),
        ({"n_records": 2**40}, ValueError, "must be at most"),
        ({"n_records": None}, ValueError, "n_records must be given: this posterior does not know"),
        ({"as_frame": 1}, TypeError, "as_frame must be True or False"),
    ],
)
def test_arguments_of_synthesize(options, error, message):
    with pytest.raises(error, match=message):
        posterior().synthesize(**{"key": KEY, "n_records": 5, "as_frame": False, **options})


def test_what_cannot_be_drawn_from():
    failed = dataclasses.replace(posterior(), class_alpha=jnp.full(2, jnp.nan))
    with pytest.raises(ValueError, match="no numbers to draw from: look at its status"):
        failed.synthesize(KEY, 5, as_frame=False)
    batch = jax.tree.map(lambda x: x[None], posterior())
    with pytest.raises(ValueError, match="synthesize is of one dataset"):
        batch.synthesize(KEY, 5, as_frame=False)


def by_integration(m, b, u, level):
    """Half the width: the posterior over B > u, b (m - 1) / B chi-square."""
    chi2 = stats.chi2(m - 1)
    most = (m - 1) * b / u if u else np.inf

    def inside(h):
        def at(x):
            return chi2.pdf(x) * (2 * stats.norm.cdf(h / np.sqrt(scale2(x))) - 1)

        def scale2(x):
            return (1 + 1 / m) * (m - 1) * b / x - u

        edges = [0, *(e for e in (0.01, 0.1, 1.0, m - 1.0) if e < most), min(most, 40.0 * m)]
        parts = (integrate.quad(at, a, c)[0] for a, c in itertools.pairwise(edges))
        return sum(parts) / chi2.cdf(most)

    low, high = 0.0, 1e4 * np.sqrt(b + u)
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < level else (low, middle)
    return high


@pytest.mark.parametrize(
    ("m", "b", "u", "level"),
    [(5, 2.0, 1.0, 0.95), (5, 0.4, 1.0, 0.9), (2, 3.0, 1.0, 0.95), (20, 1.2, 1.0, 0.99)],
)
def test_combined_intervals_against_integration(m, b, u, level):
    q = np.random.default_rng(m).normal(size=m)
    q = 3 + (q - q.mean()) / q.std(ddof=1) * np.sqrt(b)
    made = pnb.combine_synthetic(q, np.full(m, u), level)
    expected = by_integration(m, b, u, level)
    np.testing.assert_allclose(made.upper - made.estimate, expected, rtol=1e-6)
    np.testing.assert_allclose(made.estimate - made.lower, expected, rtol=1e-6)
    np.testing.assert_allclose(made.estimate, 3)
    T = (1 + 1 / m) * b - u
    np.testing.assert_allclose(made.variance, T if T > 0 else u)
    df = (m - 1) * (1 - u / ((1 + 1 / m) * b)) ** 2
    np.testing.assert_allclose(made.df, df if T > 0 else m - 1)


def test_combined_intervals_in_their_limits():
    q = np.array([1.0, 2.0, 4.0])
    made = pnb.combine_synthetic(q, np.zeros(3))
    t = stats.t.ppf(0.975, 2) * np.sqrt(4 / 3 * q.var(ddof=1))  # all the variance is between sets
    np.testing.assert_allclose(made.upper - made.estimate, t, rtol=1e-9)
    near = pnb.combine_synthetic(q, np.full(3, 1e-12))
    np.testing.assert_allclose(near.upper, made.upper, rtol=1e-9)
    same = [pnb.combine_synthetic([1 - d, 1, 1 + d], [0.1] * 3).upper for d in (0, 1e-7, 1e-5)]
    np.testing.assert_allclose(same, same[0], rtol=1e-6)  # no jump where sets agree
    assert same[0] > 1 + 1.9 * np.sqrt(0.1 / 3)
    for m in (2, 5, 100, 1000):  # nor where the chi-square is no number any more
        unit = np.linspace(-1, 1, m)
        some = [pnb.combine_synthetic(d * unit, np.ones(m)) for d in (0, 1e-9, 1e-3, 1e-2)]
        np.testing.assert_allclose([c.upper for c in some], some[0].upper, rtol=1e-3)
    nothing = pnb.combine_synthetic([1.0, 1.0], [0.0, 0.0])
    assert (nothing.lower, nothing.upper) == (1.0, 1.0)


def test_arrays_are_combined_entry_by_entry():
    rng = np.random.default_rng(0)
    q, u = rng.normal(size=(5, 2, 3)), rng.gamma(1, 1, (5, 2, 3))
    made = pnb.combine_synthetic(q, u, 0.9)
    assert {x.shape for x in made} == {(2, 3)}
    for at in np.ndindex(2, 3):
        one = pnb.combine_synthetic(q[:, *at], u[:, *at], 0.9)
        np.testing.assert_allclose([x[at] for x in made], one, rtol=1e-12)


def test_combined_intervals_cover():
    """Truths, and sets around them, as the rule supposes: V four times u."""
    rng, m, runs = np.random.default_rng(1), 5, 4000
    truth = 2 * rng.normal(size=runs)
    q = 2 * rng.normal(size=(m, runs)) + rng.normal(size=(m, runs))
    made = pnb.combine_synthetic(q, np.ones((m, runs)))
    covered = ((made.lower <= truth) & (truth <= made.upper)).mean()
    assert 0.94 < covered < 0.98
    alone = (np.abs(q[0] - truth) <= 1.96).mean()
    assert alone < 0.6


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1.0], [1.0]), ValueError, "at least 2 sets"),
        ((1.0, 1.0), ValueError, r"one shape \[m, ...\]"),
        (([1.0, 2.0], [1.0]), ValueError, "one shape"),
        (([1.0, np.nan], [1.0, 1.0]), ValueError, "estimates must be finite"),
        (([1.0, 2.0], [1.0, -1.0]), ValueError, "variances finite and at least 0"),
        (([1.0, 2.0], [1.0, 1.0], 1.0), ValueError, "level must be"),
    ],
)
def test_arguments_of_combine_synthetic(arguments, error, message):
    with pytest.raises(error, match=message):
        pnb.combine_synthetic(*arguments)
