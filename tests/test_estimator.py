"""`PrivateNaiveBayes`: scikit-learn's habits, one budget a fit."""

import copy
import importlib
import pickle
import sys
import warnings

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("opendp")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OrdinalEncoder
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import jaxprivnb as pnb
from jaxprivnb.estimator.classifier import PrivateNaiveBayes

NO_NOISE = 1e4
RNG = np.random.default_rng(0)
y = np.repeat(["no", "yes"], [35, 25])
X = np.stack([RNG.random(60) < np.where(y == "yes", 0.8, 0.3), RNG.integers(0, 3, 60)], 1) * 1
DOMAIN = {"n_categories": (2, 3), "classes": ["yes", "no"]}


AGES = RNG.uniform(-5, 130, 60)
EDGES = [0, 18, 65, 120]
AGE_BIN = np.clip(np.searchsorted(EDGES, AGES, side="right") - 1, 0, 2)


def test_bins_of_numbers_in_training_and_in_prediction():
    pandas = pytest.importorskip("pandas")
    numeric = np.column_stack([AGES, X])
    by_hand = np.column_stack([AGE_BIN, X])
    model = naive(n_categories=[2, 3], bins={"x0": EDGES}).fit(numeric, y)
    plain = naive(n_categories=[3, 2, 3]).fit(by_hand, y)
    np.testing.assert_allclose(model.predict_proba(numeric), plain.predict_proba(by_hand), 1e-5)
    assert model.release_.categories["x0"] == ("[0, 18)", "[18, 65)", "[65, 120]")
    frame = pandas.DataFrame({"age": AGES, "sex": X[:, 0], "region": X[:, 1]})
    sizes = {"sex": 2, "region": 3}
    by_name = naive(n_categories=sizes, bins={"age": EDGES}).fit(frame, y)
    np.testing.assert_allclose(by_name.predict_proba(frame), plain.predict_proba(by_hand), 1e-5)
    missing = frame.assign(age=np.nan)
    np.testing.assert_allclose(
        by_name.predict_proba(missing),
        plain.predict_proba(np.column_stack([[np.nan] * 60, X])),
        1e-5,
    )
    again = PrivateNaiveBayes.from_release(by_name.release_, method="naive")
    np.testing.assert_allclose(again.predict_proba(frame), by_name.predict_proba(frame))
    assert again.bins == by_name.release_.bins
    assert clone(again).set_params(epsilon=NO_NOISE).fit(frame, y).n_categories_.tolist() == [
        3,
        2,
        3,
    ]


def test_bins_in_a_pipeline():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sex": X[:, 0], "age": AGES + 1})
    younger = FunctionTransformer(lambda frame: frame.assign(age=frame["age"] - 1))
    model = make_pipeline(younger, naive(n_categories=[2], bins={"age": EDGES})).fit(frame, y)
    plain = naive(n_categories=[2, 3]).fit(np.column_stack([X[:, 0], AGE_BIN]), y)
    by_hand = plain.predict_proba(np.column_stack([X[:, 0], AGE_BIN]))
    np.testing.assert_allclose(model.predict_proba(frame), by_hand, 1e-5)


def test_bins_that_make_no_sense_cost_nothing():
    ledger = pnb.PrivacyLedger(2 * NO_NOISE)
    numeric = np.column_stack([AGES, X])
    for bins, message in (
        ({"x0": 8}, "needs public bounds"),
        ({"x9": EDGES}, "none of its keys is a feature"),
        ({"x0": [3, 2]}, "edges must increase"),
        (EDGES, "bins must be a mapping"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            naive(n_categories=[2, 3], bins=bins, ledger=ledger).fit(numeric, y)
    assert ledger.entries == ()
    with pytest.warns(pnb.PrivacyWarning, match="n_categories"):
        model = naive(n_categories=None, bins={"x0": EDGES}).fit(numeric, y)
    assert model.release_.categories["x1"] == (0, 1)
    naive(n_categories=None, bins={"x0": EDGES}).fit(numeric[:, :1], y)  # nothing is inferred


def test_a_release_without_n_is_fitted():
    made = pnb.release(X, y, epsilon_total=NO_NOISE, neighbours="add-remove", **DOMAIN)
    model = PrivateNaiveBayes.from_release(made)
    known = PrivateNaiveBayes.from_release(pnb.release(X, y, epsilon_total=NO_NOISE, **DOMAIN))
    np.testing.assert_allclose(model.predict_proba(X), known.predict_proba(X), rtol=1e-4)


def naive(epsilon=NO_NOISE, **options):
    return PrivateNaiveBayes(epsilon, method="naive", **{**DOMAIN, **options})


EXPECTED = {
    "check_estimators_nan_inf": "predict takes NaN as a missing value, and fit refuses it with a "
    "message about the public domain",
}
OF_THE_NOISE = {
    "check_classifier_data_not_an_array": "compares two fits, whose noise differs",
    "check_supervised_y_2d": "compares two fits, whose noise differs",
    "check_fit_idempotent": "compares two fits, whose noise differs",
    "check_classifiers_train": "asks for an accuracy that the noise may not allow",
    "check_classifiers_classes": "asks that training labels be found again, noise or none",
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [PrivateNaiveBayes(NO_NOISE, method="naive")], expected_failed_checks=lambda e: EXPECTED
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (PrivateNaiveBayes(NO_NOISE), EXPECTED),
        (PrivateNaiveBayes(), EXPECTED | OF_THE_NOISE),
    ],
    ids=["without noise", "default"],
)
def test_scikit_learns_checks_of_the_exact_method(estimator, expected):
    check_estimator(estimator, expected_failed_checks=expected)


@pytest.fixture(scope="module")
def exact():
    return PrivateNaiveBayes(NO_NOISE, **DOMAIN, random_state=3).fit(X, y)


def test_without_noise_it_is_categorical_nb(exact):
    other = CategoricalNB().fit(X, y)
    np.testing.assert_array_equal(exact.classes_, other.classes_)
    np.testing.assert_array_equal(exact.n_categories_, other.n_categories_)
    np.testing.assert_array_equal(exact.class_count_, other.class_count_)
    for k in range(2):
        np.testing.assert_array_equal(exact.category_count_[k], other.category_count_[k])
        np.testing.assert_allclose(
            exact.feature_log_prob_[k], other.feature_log_prob_[k], rtol=1e-9
        )
    # P(Y) has a prior of its own here: Dirichlet(1, 1).
    np.testing.assert_allclose(np.exp(exact.class_log_prior_), np.array([36, 26]) / 62, rtol=1e-9)
    smoothed = CategoricalNB(class_prior=np.array([36, 26]) / 62).fit(X, y)
    np.testing.assert_allclose(exact.predict_proba(X), smoothed.predict_proba(X), rtol=1e-8)
    np.testing.assert_allclose(exact.predict_log_proba(X), smoothed.predict_log_proba(X), rtol=1e-7)
    np.testing.assert_array_equal(exact.predict(X), smoothed.predict(X))


def test_it_is_the_fit_of_its_release(exact):
    fit = pnb.fit_exact(exact.release_)
    np.testing.assert_array_equal(fit.feature_mean, exact.posterior_.feature_mean)
    assert exact.release_.classes == ("yes", "no")  # as given; `classes_` is sorted
    np.testing.assert_allclose(
        exact.predict_proba(X)[:, ::-1], fit.predict_proba(exact.release_.encode(X)), rtol=1e-12
    )
    assert exact.budget_spent_ == exact.guarantee_.total <= NO_NOISE
    assert str(exact.guarantee_) == "epsilon_total=10000 (pure DP, replace one record)"
    assert exact.n_features_in_ == 2
    assert not hasattr(exact, "feature_names_in_")


def test_in_float32_too():
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = PrivateNaiveBayes(NO_NOISE, **DOMAIN).fit(X, y)
        assert fitted.posterior_.class_mean.dtype == np.float32
        got = fitted.predict_proba(X)
    expected = CategoricalNB(class_prior=np.array([36, 26]) / 62).fit(X, y).predict_proba(X)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_draws_and_intervals(exact):
    draws = exact.sample_posterior(2000)
    assert draws.class_probs.shape == (2000, 2)
    assert [p.shape for p in draws.feature_probs] == [(2000, 2, 2), (2000, 2, 3)]
    se = draws.class_probs.std(0) / np.sqrt(2000)
    assert (np.abs(draws.class_probs.mean(0) - np.exp(exact.class_log_prior_)) < 4.5 * se).all()
    records = np.array([[1, 2], [0, -1], [1, 2], [-1, -1]])
    lower, upper = exact.predict_proba_interval(records, 0.9, n_draws=2000)
    for r, record in enumerate(records):
        joint = draws.class_probs.copy()  # by hand, from the same draws
        for k, category in enumerate(record):
            if category >= 0:
                joint *= draws.feature_probs[k][:, :, category]
        p = joint / joint.sum(1, keepdims=True)
        np.testing.assert_allclose(lower[r], np.quantile(p, 0.05, axis=0), rtol=1e-9)
        np.testing.assert_allclose(upper[r], np.quantile(p, 0.95, axis=0), rtol=1e-9)
    p = exact.predict_proba(records)
    assert ((lower < p) & (p < upper)).all()
    with pytest.raises(ValueError, match="level"):
        exact.predict_proba_interval(records, 2.0)


def test_the_seed_is_of_the_draws_and_not_of_the_noise():
    fits = [naive(0.1, random_state=1).fit(X, y) for _ in range(2)]
    counts = [np.concatenate(f.category_count_, axis=None) for f in fits]
    assert (counts[0] != counts[1]).any()  # equal with probability below 1e-15
    np.testing.assert_array_equal(
        fits[0].sample_posterior(3).class_probs, fits[0].sample_posterior(3).class_probs
    )
    loose = naive(random_state=None).fit(X, y)
    first, second = (loose.sample_posterior(3).class_probs for _ in range(2))
    assert (first != second).all()


def test_tables_by_name():
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"smoker": np.array(["n", "y"])[X[:, 0]], "region": X[:, 1]})
    income = pandas.Series(y, name="income")
    domain = {"categories": {"smoker": ["n", "y"], "region": [0, 1, 2]}, "n_categories": None}
    plain = naive().fit(X, y).predict_proba(X)
    for table in (frame, pyarrow.Table.from_pandas(frame)):
        fitted = naive(**domain).fit(table, income)
        assert fitted.feature_names_in_.tolist() == ["smoker", "region"]
        assert fitted.release_.domain.class_.name == "income"
        np.testing.assert_allclose(fitted.predict_proba(table), plain, rtol=1e-12)
        with pytest.raises(ValueError, match="order"):
            fitted.predict(frame[["region", "smoker"]])
    assert "P(smoker | income = yes)" in str(fitted.posterior_.summary())
    clash = naive(**domain).fit(frame, income.rename("region"))
    assert clash.release_.domain.class_.name == "region_"
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.predict(frame.to_numpy())


def test_missing_and_unseen_values():
    fitted = naive().fit(X, y)
    alone = fitted.predict_proba([[1, -1]])
    for unknown in (np.nan, 7, None, "?"):
        np.testing.assert_array_equal(fitted.predict_proba([[1, unknown]]), alone)
    np.testing.assert_allclose(
        fitted.predict_proba([[None, None]])[0], np.exp(fitted.class_log_prior_), rtol=1e-9
    )
    hidden = np.ma.masked_array([[1, 2]], [[False, True]])
    np.testing.assert_array_equal(fitted.predict_proba(hidden), alone)

    holes = X.astype(float)
    holes[3, 1] = np.nan
    with pytest.raises(ValueError, match="'x1' has a value that is missing"):
        naive().fit(holes, y)
    with_other = naive(unknown="other").fit(holes, y)
    assert with_other.n_categories_.tolist() == [3, 4]
    assert with_other.category_count_[1][:, 3].tolist() == [1, 0]
    assert (with_other.predict_proba([[1, np.nan]]) != alone).all()  # "other" says something


def test_a_miscoded_column_is_warned_of():
    fitted = naive().fit(X, y)
    with pytest.warns(UserWarning, match=r"no value of 'x1' is one of its categories 0, 1, 2,"):
        fitted.predict([[1, "0"], [0, "1"]])
    fitted.predict([[1, np.nan], [0, None]])  # missing, and no warning: it would be an error here
    fitted.predict([[1, "0"], [0, 1]])
    with pytest.warns(UserWarning, match="no value of 'x1'"):  # all "other" is no better
        naive(unknown="other").fit(X, y).predict([[1, "0"], [0, "1"]])
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b"])
    with pytest.raises(ValueError, match="X has no records to predict"):
        naive().fit(table, y).predict_proba(table[:0])
    missing = pandas.DataFrame({"a": [0, 1], "b": pandas.Categorical([None, None], [0, 1, 2])})
    naive().fit(table, y).predict(missing)  # levels are there, values are not: no warning


def test_what_was_read_from_the_data_is_not_counted_in_messages():
    many = np.arange(4200) // 2
    with pytest.raises(ValueError, match="give the public") as e:
        PrivateNaiveBayes(1.0, n_categories=1000).fit(np.zeros((4200, 1), int), many)
    assert "2100" not in str(e.value)


def test_the_domain_is_warned_of_where_it_is_read_from_the_data(monkeypatch):
    with pytest.warns(pnb.PrivacyWarning, match=r"n_categories \(or categories\) and classes") as w:
        fitted = PrivateNaiveBayes(NO_NOISE, method="naive").fit(X, y)
    assert len(w) == 1
    assert w[0].filename == __file__
    assert fitted.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="class 'class' has a value that is missing or not among"):
        naive(classes=["no", "maybe"]).fit(X, y)
    monkeypatch.setattr("jaxprivnb.estimator.classifier.MAX_CELLS", 7)
    with pytest.raises(ValueError, match="read from the data does not make a release"):
        PrivateNaiveBayes(method="naive").fit([[0, 0], [1, 1]], [0, 1])


def test_a_second_fit_is_warned_of_before_it_spends():
    model = naive().fit(X, y)
    with pytest.warns(pnb.PrivacyWarning, match="another epsilon=10000"):
        model.fit(X, y)
    before = model.release_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pnb.PrivacyWarning):
            model.fit(X, y)
        assert model.release_ is before
        clone(naive()).fit(X, y)  # another model's clone is a first fit
        clone(clone(naive())).fit(X, y)


@pytest.mark.parametrize("copied", [clone, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_clones_and_copies_of_a_fitted_model_are_warned_too(copied):
    with pytest.warns(pnb.PrivacyWarning, match="or a clone of it"):
        copied(naive().fit(X, y)).fit(X, y)


def test_cross_validation_and_search_are_warned_of():
    with pytest.warns(pnb.PrivacyWarning, match="Cross-validation") as caught:
        scores = cross_val_score(naive(), X, y, cv=3)
    assert len(caught) == 2
    assert (scores > 0.5).all()
    with pytest.warns(pnb.PrivacyWarning, match="Cross-validation") as caught:
        GridSearchCV(naive(), {"alpha": [0.5, 1.0]}, cv=2).fit(X, y)
    assert len(caught) == 4  # 2 x 2 fits and the last one, less the first
    # In other processes a clone knows only that it is not the only one.
    model = naive()
    first, second = (pickle.loads(pickle.dumps(clone(model))) for _ in range(2))
    first.fit(X, y)
    with pytest.warns(pnb.PrivacyWarning, match="Cross-validation"):
        second.fit(X, y)


def test_a_ledger_is_shared_by_clones_and_refuses():
    ledger = pnb.PrivacyLedger(epsilon_limit=2.5)
    with pytest.warns(Warning, match="3 fits failed out of a total of 5") as caught:
        scores = cross_val_score(naive(1.0, ledger=ledger), X, y, cv=5)
    assert not any(issubclass(w.category, pnb.PrivacyWarning) for w in caught)
    assert np.isnan(scores).sum() == 3
    assert ledger.epsilon_spent == pytest.approx(2.0)
    with pytest.raises(pnb.BudgetExceededError):
        naive(1.0, ledger=ledger).fit(X, y)


def test_mistakes_cost_nothing():
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0)
    for options, message in (
        ({"method": "exakt"}, "method .*did you mean 'exact'"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": "leaned"}, "alpha .*did you mean 'learned'"),
        ({"alpha": "learned", "method": "vb"}, "alpha='learned' needs method='exact'"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"unknown": "ignore"}, "unknown"),
        ({"random_state": "x"}, "seed"),
    ):
        with pytest.raises(ValueError, match=message):
            PrivateNaiveBayes(**{**DOMAIN, "ledger": ledger, **options}).fit(X, y)
    with pytest.raises(TypeError, match="classes of 'class' must be a list"):
        naive(classes="ny", ledger=ledger).fit(X, y)
    assert ledger.entries == ()
    with pytest.raises(NotFittedError):
        naive().predict(X)


def test_a_prior_from_the_release_itself():
    made = naive().fit(X, y).release_
    model = PrivateNaiveBayes.from_release(made, alpha="learned")
    posterior = pnb.fit_exact(made, "learned")
    assert posterior.prior_status == 0
    np.testing.assert_array_equal(model.posterior_.prior.feature, posterior.prior.feature)
    assert clone(model).alpha == "learned"
    assert "alpha='learned'" in repr(model)
    assert "prior learned, concentrations" in str(model.posterior_.summary())


def test_from_a_release_without_data():
    made = pnb.release(
        {"smoker": X[:, 0], "region": X[:, 1]}, y, rho_total=1e6,
        n_categories=(2, 3), classes=("yes", "no"), class_table=True,
    )  # fmt: skip
    model = PrivateNaiveBayes.from_release(made, method="naive", alpha=0.5)
    other = CategoricalNB(alpha=0.5).fit(X, y)
    assert model.classes_.tolist() == ["no", "yes"]  # sorted, though the release is not
    np.testing.assert_array_equal(model.class_count_, [35, 25])
    np.testing.assert_array_equal(model.category_count_[1], other.category_count_[1])
    np.testing.assert_allclose(model.feature_log_prob_[1], other.feature_log_prob_[1], rtol=1e-9)
    assert model.feature_names_in_.tolist() == ["smoker", "region"]
    assert model.budget_spent_ == made.guarantee.total
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"smoker": X[:, 0], "region": X[:, 1]})
    np.testing.assert_array_equal(model.predict(frame), other.predict(X))
    lower, upper = model.predict_proba_interval(frame[:3])
    p = model.predict_proba(frame[:3])
    assert ((lower < p) & (p < upper)).all()
    assert clone(model).get_params()["classes"] == ("yes", "no")
    with pytest.raises(TypeError, match="release must be"):
        PrivateNaiveBayes.from_release(X)


def test_a_prior_object():
    prior = pnb.Prior(np.array([3.0, 1.0]), np.full((2, 2, 3), 2.0))
    model = clone(naive(alpha=prior)).fit(X, y)  # as listed: 3 for "yes", the first of `classes`
    np.testing.assert_allclose(np.exp(model.class_log_prior_), [36 / 64, 28 / 64], rtol=1e-9)
    with pytest.warns(pnb.PrivacyWarning, match="classes not given"):
        model = naive(alpha=prior, classes=None).fit(X, y)  # sorted: 3 for "no"
    np.testing.assert_allclose(np.exp(model.class_log_prior_), [38 / 64, 26 / 64], rtol=1e-9)


def test_pipelines_pickles_and_clones():
    continuous = X + RNG.uniform(-0.3, 0.3, X.shape)
    bins = KBinsDiscretizer(2, encode="ordinal", strategy="uniform", subsample=None)
    pipe = make_pipeline(bins, naive(n_categories=2)).fit(continuous, y)
    assert pipe.score(continuous, y) > 0.6
    words = np.array(["a", "b", "c"])[X]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    pipe = make_pipeline(encoder, naive()).fit(words, y)
    again = pickle.loads(pickle.dumps(pipe))
    np.testing.assert_array_equal(again.predict_proba(words), pipe.predict_proba(words))
    np.testing.assert_array_equal(
        again.predict([["a", "zzz"]]), naive().fit(X, y).predict([[0, -1]])
    )
    assert again[-1].release_.guarantee == pipe[-1].release_.guarantee
    assert str(again[-1].posterior_.summary()) == str(pipe[-1].posterior_.summary())


def test_a_pipeline_that_loses_names_says_how_to_keep_them():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"smoker": np.array(["n", "y"])[X[:, 0]], "region": X[:, 1]})
    domain = {"categories": {"smoker": [0, 1], "region": [0, 1, 2]}, "n_categories": None}
    with pytest.raises(ValueError, match=r"X has no column names.*set_output"):
        make_pipeline(OrdinalEncoder(), naive(**domain)).fit(frame, y)
    encoder = OrdinalEncoder().set_output(transform="pandas")
    fitted = make_pipeline(encoder, naive(**domain)).fit(frame, y)[-1]
    assert fitted.release_.feature_names == ("smoker", "region")


def test_other_for_single_features():
    holes = X.astype(object)
    holes[0, 0] = None
    domain = {"categories": [[0, 1], [0, 1, 2]], "n_categories": None}
    fitted = naive(unknown={"x0": "other"}, **domain).fit(holes, y)
    assert fitted.n_categories_.tolist() == [3, 3]
    with pytest.raises(ValueError, match="feature 'x0' has a value"):
        naive(unknown={"x1": "other"}, **domain).fit(holes, y)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "jaxprivnb.estimator.classifier")
    with pytest.raises(ImportError, match=r"pip install 'jaxprivnb\[sklearn\]'"):
        importlib.import_module("jaxprivnb.estimator.classifier")


def test_it_is_found_by_name_but_not_by_a_star():
    assert pnb.PrivateNaiveBayes.__name__ == "PrivateNaiveBayes"
    assert "PrivateNaiveBayes" in dir(pnb)
    assert "PrivateNaiveBayes" not in pnb.__all__


def test_a_prior_of_the_wrong_shape_spends_nothing():
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0)
    prior = pnb.Prior(np.ones(2), np.ones((2, 2, 3)))
    for options in (
        {"alpha": pnb.Prior(np.ones(2), np.ones((2, 3, 3)))},
        {"alpha": pnb.Prior(np.ones(3), np.ones((3, 2, 3)))},
        {"alpha": prior, "unknown": "other"},
        {"alpha": prior, "class_table": True},
        {"alpha": pnb.Prior(np.ones(2), -np.ones((2, 2, 3)))},
    ):
        with pytest.raises(ValueError, match=r"prior\.(class_|feature) must"):
            naive(1.0, ledger=ledger, **options).fit(X, y)
    assert ledger.entries == ()
    naive(1.0, ledger=ledger, alpha=prior).fit(X, y)


@pytest.mark.parametrize("kind", ["dict", "1-d", "list", "ragged", "scalar", "complex"])
def test_errors_do_not_print_the_records(kind):
    records = {
        "dict": {"a": X[:, 0], "b": X[:, 1]},
        "1-d": X[:, 0],
        "list": X[:, 0].tolist(),
        "ragged": [*X.tolist(), [1]],
        "scalar": 7,
        "complex": X + 0j,
    }[kind]
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0)
    expected = r"^(X must be (records by features|an array or a table), .*got|Complex data)"
    with pytest.raises((TypeError, ValueError), match=expected) as caught:
        naive(1.0, ledger=ledger).fit(records, y)
    assert len(str(caught.value)) < 300
    assert caught.value.__context__ is None
    assert ledger.entries == ()


def test_a_score_is_the_share_of_hits_and_quotes_no_class():
    fitted = naive().fit(X, y)
    hits = fitted.predict(X) == y
    assert fitted.score(X, y) == np.mean(hits)
    weights = np.arange(len(y))
    assert fitted.score(X, y, weights) == pytest.approx(np.average(hits, weights=weights))
    assert fitted.score(X, y.astype(object)[:, None]) == np.mean(hits)
    assert fitted.score(X, ["Zoltan"] * len(y)) == 0
    for wrong in ("Zoltan", ["Zoltan"], [["Zoltan", "b"]] * len(y)):
        with pytest.raises(ValueError, match=r"y (must|should) be|inconsistent") as caught:
            fitted.score(X, wrong)
        assert "Zoltan" not in str(caught.value)


def test_a_class_of_two_columns_does_not_show_their_names():
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame(np.zeros((len(y), 2)), columns=["Zoltan", "Zoltan"])
    with pytest.raises(ValueError, match="y should be a 1d array") as caught:
        naive().fit(X, twice)
    assert "Zoltan" not in str(caught.value)


def test_names_unseen_at_fit_time_are_counted_and_not_listed():
    pandas = pytest.importorskip("pandas")
    fitted = naive().fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    with pytest.raises(ValueError, match=r"1 of 2 were unseen at fit time; now missing: b$"):
        fitted.predict(pandas.DataFrame(X, columns=["a", "secret"]))
    with pytest.raises(ValueError, match="yet now missing:\n- b"):
        fitted.predict(pandas.DataFrame(X[:, :1], columns=["a"]))


def test_a_repr_shows_no_collections():
    model = naive(0.5, categories=X, random_state=3)
    assert repr(model) == (
        "PrivateNaiveBayes(categories=ndarray of shape (60, 2) and dtype int64, "
        "classes=list of 2 items, epsilon=0.5, method='naive', n_categories=tuple of 2 items, "
        "random_state=3)"
    )


YEARS = np.array([[3.0], [25.0], [70.0], [40.0]] * 15)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_bins_in_a_pipeline_that_loses_names_or_keeps_them(output):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": YEARS[:, 0], "sex": ["f", "m"] * 30})
    labels = np.array([0, 1, 1, 0] * 15)
    step = FunctionTransformer(lambda t: t if output == "pandas" else t.to_numpy())
    step.set_output(transform=output)
    age, sex = ("age", "sex") if output == "pandas" else ("x0", "x1")
    model = PrivateNaiveBayes(
        NO_NOISE, method="naive", bins={age: EDGES}, categories={sex: ["f", "m"]}, classes=[0, 1]
    )
    pipe = make_pipeline(step, model).fit(frame, labels)
    np.testing.assert_array_equal(pipe[-1].category_count_[0], [[15, 15, 0], [0, 15, 15]])
    assert pipe.predict(frame).tolist() == pipe[-1].predict(step.transform(frame)).tolist()
    beyond = pandas.DataFrame({"age": [-1.0, 500.0, np.nan], "sex": ["f", "m", "f"]})
    inside = pandas.DataFrame({"age": [0.0, 120.0, np.nan], "sex": ["f", "m", "f"]})
    np.testing.assert_array_equal(pipe.predict_proba(beyond), pipe.predict_proba(inside))


def test_names_that_a_transformer_took_or_changed():
    pandas = pytest.importorskip("pandas")
    model = PrivateNaiveBayes(method="naive", bins={"age": EDGES}, classes=[0, 1])
    labels = [0, 1, 1, 0] * 15
    with pytest.raises(ValueError, match=r"X has no column names .*\"x0\", .*set_output"):
        model.fit(YEARS, labels)
    with pytest.raises(ValueError, match=r"none of its keys.*verbose_feature_names_out=False"):
        model.fit(pandas.DataFrame(YEARS, columns=["keep__age"]), labels)


def test_neighbours_and_contributions():
    options = {"neighbours": "add-remove", "contributions": 3, **DOMAIN}
    model = PrivateNaiveBayes(2.0, method="naive", **options).fit(X, y)
    assert model.release_.size is None
    assert model.guarantee_.relation == "add or remove up to 3 records"
    np.testing.assert_allclose(model.guarantee_.scales, 3 * X.shape[1] / 2)
    again = PrivateNaiveBayes.from_release(model.release_, method="naive")
    assert (again.neighbours, again.contributions) == ("add-remove", 3)
    assert clone(model).contributions == 3
    with pytest.raises(ValueError, match="one row a record") as caught:
        PrivateNaiveBayes(**options).fit(X, y[:-1])
    assert not any(str(n) in str(caught.value) for n in (len(y), len(y) - 1))
    with pytest.raises(ValueError, match="contributions must be"):
        PrivateNaiveBayes(contributions=0, **DOMAIN).fit(X, y)
    with pytest.raises(ValueError, match=r'method "vb" needs the number of records'):
        PrivateNaiveBayes(method="vb", **options).fit(X, y)
