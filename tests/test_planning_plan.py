"""Plans, against releases of simulated data and what they were asked."""

import dataclasses
import json

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.planning import expect
from jaxprivnb.planning.plan import _concentrations, _domain
from jaxprivnb.planning.simulated import draw_data
from jaxprivnb.planning.table import QUANTITIES
from jaxprivnb.privacy.budget import request_budget
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.privacy.mechanism import calibrate

pytest.importorskip("opendp")

SMALL = {"n_records": 300, "n_classes": 2, "n_categories": (2, 3), "replicates": 8}


@pytest.fixture(scope="module")
def small():
    return pnb.plan(**SMALL, epsilon_total=[0.1, 1.0])


def test_the_same_releases_say_what_exact_fits_say():
    """Tables of one simulation through both: widths dataset by dataset, and means of errors."""
    R, N, scale, J = 24, 150, 6.0, (2, 3)
    prior = _concentrations(None, _domain(None, 2, J))
    data = draw_data(np.random.default_rng(3), prior, N, R)
    mechanism = expect.Mechanism("epsilon", (scale, scale), True)
    rng = np.random.default_rng(4)
    found = expect.expect(data, mechanism, prior, N, 0.95, rng)
    made = expect._release(data, mechanism, np.random.default_rng(4).spawn(2)[0])
    counts = np.zeros((R, 2, 2, 3))
    for k, m in enumerate(made.tables):
        counts[:, :, k, : J[k]] = m.reshape(R, 2, -1)
    mask = np.broadcast_to([[True, True, False], [True] * 3], (R, 2, 3))
    tables = pnb.NoisyTables(counts, np.full(R, float(N)), pnb.Geometric(scale), mask)
    fit = pnb.fit_many(tables, "exact")
    low, high = fit.class_interval(0.95)
    width = (high - low).mean(-1)
    np.testing.assert_allclose(found.class_width, width, rtol=0.05)
    np.testing.assert_allclose(found.class_width.mean(), width.mean(), rtol=0.01)
    real = np.broadcast_to(mask[:, None], counts.shape)
    for which in ("feature", "count"):
        low, high = getattr(fit, f"{which}_interval")(0.95)
        width = (np.where(real, high - low, 0).sum((1, 2, 3))) / 10
        own = getattr(found, f"{which}_width")
        np.testing.assert_allclose(own, width, rtol=0.1)  # of draws
        np.testing.assert_allclose(own.mean(), width.mean(), rtol=0.015)
    # The posterior's own error is that of its means, on average.
    truth = np.zeros_like(counts)
    for k, p in enumerate(data.feature_probs):
        truth[:, :, k, : J[k]] = p
    error = np.abs(np.asarray(fit.feature_mean) - truth).sum((1, 2, 3)) / 10
    away = found.feature_error - error
    assert abs(away.mean()) < 4 * away.std() / np.sqrt(R)


def test_noise_is_what_a_release_would_have(small):
    domain = small.domain
    for row in small.rows:
        budget = {"epsilon_total": row.epsilon_total}
        if row.noise == "gaussian":
            budget = {"rho_total": row.rho_total}
        request = request_budget(
            ["x0", "x1"], "class", **budget,
            weights=small.weights(row), class_table=row.class_table,
        )  # fmt: skip
        scales = calibrate(request).scales
        assert (row.scale_least, row.scale_most) == (min(scales), max(scales))
        assert set(small.weights(row)) == {"x0", "x1", *(["class"] if row.class_table else [])}
    assert domain.n_categories == (2, 3)
    assert len(small.rows) == 2 * 2 * 2 * 3


@pytest.mark.parametrize(
    ("options", "times"),
    [({"contributions": 3}, 3), ({"neighbours": "add-remove"}, 0.5)],
)
def test_neighbours_change_the_noise(small, options, times):
    other = pnb.plan(**SMALL, epsilon_total=1.0, **options).best(1.0)
    plain = next(
        r for r in small.rows
        if r[:5] == (1.0, other.noise, other.rho_total, other.class_table, other.allocation)
    )  # fmt: skip
    if other.noise == "laplace":
        np.testing.assert_allclose(other.scale_least, times * plain.scale_least, rtol=1e-12)
    assert (other.feature_error > plain.feature_error) == (times > 1)


def test_one_seed_gives_one_table(small):
    again = pnb.plan(**SMALL, epsilon_total=[0.1, 1.0])
    assert again.rows == small.rows
    assert str(again) == str(small)
    assert pnb.plan(**SMALL, epsilon_total=1.0, seed=1).rows[0] != small.rows[12]
    # A budget's rows do not depend on what it is compared with.
    assert pnb.plan(**SMALL, epsilon_total=1.0).rows == small.rows[12:]


def test_more_budget_buys_more(small):
    by = {row[1:5:2] + row[4:5]: row for row in small.rows if row.epsilon_total == 1.0}
    for row in small.rows:
        if row.epsilon_total == 0.1:
            more = by[row[1:5:2] + row[4:5]]
            assert more.feature_error < row.feature_error
            assert more.count_width < row.count_width
            assert more.accuracy >= row.accuracy - 0.01
            assert 0.5 <= row.accuracy <= small.ceiling


def test_a_plan_as_text_and_as_data(small):
    text = str(small)
    for part in ("N=300", "delta 1e-06", "P(X|Y)", "sqrt J", small.advice):
        assert part in text
    assert small.advice.startswith("Epsilon ")
    best = small.best(1.0)
    assert best.feature_error <= 1.01 * min(
        row.feature_error for row in small.rows if row.epsilon_total == 1.0
    )
    lines = small.to_csv().splitlines()
    assert len(lines) == 1 + len(small.rows)
    assert lines[0].split(",")[-1] == "accuracy_se"
    first = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert float(first["feature_error"]) == small.rows[0].feature_error
    content = json.loads(small.to_json())
    assert content["n_records"] == 300
    np.testing.assert_allclose(sum(content["rows"][1]["weights"].values()), 1)
    frame = pytest.importorskip("pandas") and small.to_pandas()
    assert len(frame) == len(small.rows)
    assert set(QUANTITIES) < set(frame.columns)
    with pytest.raises(ValueError, match=r"one that was planned, 0\.1, 1; got 2"):
        small.best(2.0)


def test_of_equally_good_rows_the_plainest_is_best(small):
    rows = tuple(row._replace(feature_error=0.1) for row in small.rows)
    rows = (rows[0]._replace(feature_error=0.1009), *rows[1:])
    assert dataclasses.replace(small, rows=rows).best(0.1) == rows[0]
    worse = (rows[0]._replace(feature_error=0.11), *rows[1:])
    assert dataclasses.replace(small, rows=worse).best(0.1) == worse[1]


def test_a_domain_names_the_tables():
    domain = Domain(Column("income", ("low", "high")), (Column("sex", ("f", "m")),))
    made = pnb.plan(n_records=100, domain=domain, epsilon_total=1, replicates=2)
    assert [made.weights(row) for row in made.rows[:2]] == [
        {"sex": 1.0},
        {"sex": 0.5, "income": 0.5},
    ]
    assert {row.allocation for row in made.rows} == {"equal"}


def test_a_prior_with_rows_of_its_own():
    class_, feature = np.array([30.0, 10.0]), np.full((2, 2, 3), 5.0)
    made = pnb.plan(**SMALL, epsilon_total=1.0, prior=pnb.Prior(class_, feature))
    flat = pnb.plan(**SMALL, epsilon_total=1.0)
    assert made.rows[0].feature_error < flat.rows[0].feature_error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_records": 0}, "n_records must be at least 1"),
        ({"epsilon_total": 0.0}, "epsilon_total must be in"),
        ({"epsilon_total": []}, "epsilon_total must be a number or several"),
        ({"n_classes": None}, "give n_classes and n_categories, or domain"),
        ({"domain": 3}, "not both"),
        ({"n_classes": None, "n_categories": None, "domain": 3}, "domain must be a Domain"),
        ({"delta": 1.0}, "delta must be in"),
        ({"prior": "flat"}, "prior must be a jaxprivnb.Prior, one concentration or None"),
        ({"prior": -1.0}, "prior must be in"),
        ({"replicates": 1}, "replicates must be at least 2"),
        ({"neighbours": "swap"}, "neighbours must be one of"),
        ({"level": 95}, "level must be in"),
    ],
)
def test_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pnb.plan(**{**SMALL, "epsilon_total": 1.0, **options})
