"""`release`: integers, the noise that was proved, and nothing else of the data."""

import importlib
import logging
import random
import secrets
import sys

import jax
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.privacy import mechanism

pytest.importorskip("opendp")

RNG = np.random.default_rng(3)
X = RNG.integers(0, [2, 3, 4], (300, 3))
Y = RNG.integers(0, 2, 300)
PUBLIC = {"n_categories": (2, 3, 4), "n_classes": 2}


def true_tables(x=X, y=Y):
    return [
        np.histogram2d(y, x[:, k], (2, j), ((0, 2), (0, j)))[0] for k, j in enumerate((2, 3, 4))
    ]


@pytest.mark.parametrize("budget", [{"epsilon_total": 1.0}, {"rho_total": 0.5}])
def test_released_values_are_integers_and_masked_cells_zero(budget):
    made = pnb.release(X, Y, **budget, **PUBLIC)
    assert made.integers.dtype == np.int64
    np.testing.assert_array_equal(made.counts, made.integers)
    np.testing.assert_array_equal(made.real, np.arange(4) < np.array([[2], [3], [4]]))
    assert (made.integers[:, ~np.asarray(made.real)] == 0).all()
    assert made.size == made.n_records == 300
    with pytest.raises(ValueError, match="read-only"):
        made.integers[0, 0, 0] = 1


def test_with_almost_no_noise_the_tables_are_the_counts():
    made = pnb.release(X, Y, epsilon_per_table=1e5, class_table=True, **PUBLIC)
    for k, table in enumerate(true_tables()):
        np.testing.assert_array_equal(made.integers[:, k, : table.shape[1]], table)
    np.testing.assert_array_equal(made.class_integers, np.bincount(Y))
    np.testing.assert_array_equal(made.counts[:, -1, 0], np.bincount(Y))
    assert not made.real[-1, 1:].any()


def test_the_class_table_informs_the_fits():
    # Almost all of the budget on the class: its counts are then known, whatever the features say.
    made = pnb.release(
        X, Y, epsilon_total=1e5, weights=[1e-6, 1e-6, 1e-6, 1], class_table=True, **PUBLIC
    )
    expected = (np.bincount(Y) + 1) / (len(Y) + 2)
    np.testing.assert_allclose(pnb.fit_exact(made).class_mean, expected, rtol=1e-5)
    np.testing.assert_allclose(pnb.fit_vb(made).class_mean, expected, rtol=1e-2)
    without = pnb.release(X, Y, epsilon_per_table=0.03, **PUBLIC)
    assert float(pnb.fit_exact(without).class_sd[0]) > 3 * float(pnb.fit_exact(made).class_sd[0])
    x = made.encode(X[:4])
    assert x.shape == (4, 4)
    np.testing.assert_allclose(pnb.fit_exact(made).predict_proba(x).sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("name", ["epsilon", "eps_total", "budget"])
def test_a_budget_that_does_not_say_of_what_is_pointed_to_those_that_do(name):
    with pytest.raises(TypeError, match=rf"no argument '{name}'; a budget is epsilon_total= .*of"):
        pnb.release([[0], [1]], [0, 1], **{name: 1.0})
    with pytest.raises(TypeError, match=r"no argument 'classe' \(there are: X, y, epsilon_total"):
        pnb.release([[0], [1]], [0, 1], epsilon_total=1.0, classe=[0, 1])


@pytest.mark.parametrize("budget", [{"epsilon_total": 1.0}, {"rho_total": 0.1}])
def test_noise_has_the_distribution_that_inference_assumes(budget):
    # One feature with many categories: 20,000 draws of the noise at once.
    zeros = np.zeros((0, 1), int)
    made = pnb.release(zeros, zeros[:, 0], **budget, n_categories=10_000, n_classes=2)
    noise = made.integers.ravel()
    values = np.arange(-6, 7)
    expected = np.exp(made.noise.log_prob(jax.numpy.asarray(values, float)))
    seen = np.array([(noise == v).mean() for v in values])
    standard_error = np.sqrt(expected / noise.size)
    assert (expected * noise.size > 100).all()  # so that the errors are nearly normal
    assert (np.abs(seen - expected) < 6 * standard_error).all()


def test_no_floating_point_sampler_is_called(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a floating-point sampler was called on the release path")

    for module in (np.random, random, jax.random, secrets):
        for name in dir(module):
            if callable(getattr(module, name)) and not name.startswith("_") and name[0].islower():
                monkeypatch.setattr(module, name, forbidden)
    for noise in (pnb.Laplace, pnb.Geometric, pnb.Gaussian):
        monkeypatch.setattr(noise, "sample", forbidden)
    with pytest.raises(AssertionError):  # the trap works
        np.random.default_rng()
    with pytest.raises(AssertionError):
        pnb.Laplace(1.0).sample(None, ())
    for budget in ({"epsilon_total": 1.0}, {"rho_total": 1.0}):
        made = pnb.release(X, Y, **budget, **PUBLIC, class_table=True)
        assert made.integers.dtype == np.int64


def test_noise_comes_from_opendp_with_the_stored_scale(monkeypatch):
    calls = []
    real = mechanism.measurement
    monkeypatch.setattr(mechanism, "measurement", lambda *args: calls.append(args) or real(*args))
    made = pnb.release(X, Y, epsilon_total=1.0, weights=[1, 2, 5], class_table=False, **PUBLIC)
    drawn = calls[-3:]
    assert drawn == [("epsilon", scale) for scale in made.guarantee.scales]
    np.testing.assert_allclose(made.noise.scale, made.guarantee.scales, rtol=1e-15)


def test_without_a_public_n_the_counts_are_as_they_would_be_with_it():
    made = pnb.release(X, Y, epsilon_per_table=1e5, neighbours="add-remove", **PUBLIC)
    for k, table in enumerate(true_tables()):
        np.testing.assert_array_equal(made.integers[:, k, : table.shape[1]], table)
    assert made.size is None
    assert made.n_records is None


def test_two_releases_of_the_same_data_differ():
    first, second = (pnb.release(X, Y, epsilon_total=0.1, **PUBLIC) for _ in range(2))
    assert (first.integers != second.integers).any()


def test_every_fit_takes_a_release():
    made = pnb.release(X[:, :2], Y, epsilon_total=2.0, n_categories=(2, 3), n_classes=2)
    plain = pnb.NoisyTables(made.counts, 300, made.noise, made.mask)
    for fit in (pnb.fit_naive, pnb.fit_exact, pnb.fit_vb):
        np.testing.assert_array_equal(fit(made).feature_mean, fit(plain).feature_mean)


def test_pandas_arrow_dicts_and_arrays_give_the_same_tables():
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    names = ["a", "b", "c"]
    frame = pandas.DataFrame(X, columns=names)
    frame["b"] = frame["b"].astype("category")
    frame["a"] = frame["a"].map({0: "no", 1: "yes"})
    frame["kind"] = Y.astype(bool)
    table = arrow.Table.from_pandas(frame)
    chunked = arrow.concat_tables([table.slice(0, 7), table.slice(7)])
    sources = [frame, table, chunked, {n: frame[n].tolist() for n in frame}]
    options = {
        "epsilon_per_table": 1e5,
        "categories": {"a": ["no", "yes"], "b": [0, 1, 2], "c": [0, 1, 2, 3]},
        "classes": [False, True],
    }
    for source in sources:
        made = pnb.release(source, "kind", **options)
        assert made.feature_names == ("a", "b", "c")
        assert made.domain.class_.name == "kind"
        for k, counts in enumerate(true_tables()):
            np.testing.assert_array_equal(made.integers[:, k, : counts.shape[1]], counts)
    made = pnb.release(frame[names], frame["kind"], **options)
    assert made.domain.class_.name == "kind"
    made = pnb.release(table.select(names), table["kind"], **options)
    assert made.domain.class_.name == "class"
    some = pnb.release(
        frame, "kind", epsilon_total=1, categories=[[0, 1, 2]], classes=[False, True],
        feature_names=["b"],
    )  # fmt: skip
    assert some.integers.shape == (2, 1, 3)
    np.testing.assert_array_equal(made.encode(table)[:, 1:], X[:, 1:])
    np.testing.assert_array_equal(made.encode(frame.assign(b=None))[:, 1], -1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": X[0]}, r"X must be records by features"),
        ({"X": [[1, 2], [3]]}, r"X must be records by features"),
        ({"y": Y[:-1]}, r"one row a record"),
        ({"y": X}, r"y must be one column"),
        ({"y": "kind"}, r"without column names"),
        ({"feature_names": ["a", "b"]}, r"X has 3, got 2 names"),
        ({"feature_names": ["a", "b", "a"]}, r"number 2 was there before"),
        ({"feature_names": ["a", "b", "class"]}, r"names the class and a feature"),
        ({"X": {"a": [1]}, "y": "b"}, r"no column 'b'"),
        ({"X": {"a": [1]}, "y": [1], "feature_names": ["b"]}, r"no column 'b'"),
        ({"X": X[:, :0]}, r"at least one feature"),
        ({"ledger": 1.0}, r"must be a PrivacyLedger"),
        ({"class_table": 1}, r"class_table must be True or False"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pnb.release(**{"X": X, "y": Y, "epsilon_total": 1.0, **PUBLIC, **arguments})


def test_without_opendp_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxprivnb\[release\]'"):
        pnb.release(X, Y, epsilon_total=1.0, **PUBLIC)


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_nothing_shown_or_saved_depends_on_the_records(tmp_path, monkeypatch, caplog, neighbours):
    # The noisy counts are the only way for the records into a release. With that way closed (the
    # "noise" forgets the counts), datasets that share nothing but N must give the same texts; those
    # that do not share N either must too, where neighbours differ in it.
    caplog.set_level(logging.DEBUG)
    options = {"epsilon_total": 1.0, "class_table": True, "neighbours": neighbours, **PUBLIC}
    n = {"replace": len(X), "add-remove": 17}[neighbours]

    class Blind:
        def __init__(self, real):
            self.map, self.output_measure = real.map, real.output_measure
            self.real = real

        def __call__(self, counts):
            return list(range(1000, 1000 + len(counts)))

    real = mechanism.measurement
    calibrated = []

    def measurement(measure, scale):
        # Calibration composes real measurements; only the draws are blinded.
        made = real(measure, scale)
        return made if not calibrated else Blind(made)

    real_calibrate = mechanism.calibrate

    def calibrate(request):
        calibrated.clear()
        out = real_calibrate(request)
        calibrated.append(True)
        return out

    monkeypatch.setattr(mechanism, "measurement", measurement)
    monkeypatch.setattr(mechanism, "calibrate", calibrate)
    texts = []
    for x, y in ((X, Y), (np.zeros_like(X[:n]), np.ones_like(Y[:n]))):
        made = pnb.release(x, y, **options)
        made.save(tmp_path / "release.json")
        texts.append(repr(made) + str(made) + (tmp_path / "release.json").read_text())
    assert texts[0] == texts[1]
    assert [r for r in caplog.records if not r.name.startswith("jax.")] == []
    # The comparison can fail: with the way open and no noise, the texts differ.
    monkeypatch.setattr(Blind, "__call__", lambda self, counts: counts)
    pnb.release(X, Y, **options).save(tmp_path / "leak.json")
    assert (tmp_path / "leak.json").read_text() not in texts[0]


def test_the_name_release_stays_a_function():
    for name in ("publish", "record", "file", "mechanism"):
        importlib.import_module(f"jaxprivnb.privacy.{name}")
    assert callable(pnb.release)
