"""Which parameters, what they are called, and what is refused."""

import dataclasses
import types

import numpy as np
import pytest
from plotted import DOMAIN, MASK, posterior, truths

from jaxprivnb.plots.arguments import as_series, as_truth, names_for
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.report.names import Names

NAMED = Names.of(DOMAIN, 2, MASK)


def test_names_of_a_domain_and_without_one():
    assert NAMED.parameter(1) == "P(diagnosis = malignant)"
    assert NAMED.parameter(0, 1, 2) == "P(texture = coarse | diagnosis = benign)"
    plain = names_for(posterior(0), None)
    assert plain.parameter(1, 0, 1) == "P(x0 = 1 | class = 1)"
    assert [NAMED.class_index("malignant"), NAMED.class_index(0)] == [1, 0]
    assert [NAMED.feature_index("texture"), NAMED.feature_index(0)] == [1, 0]
    assert [NAMED.category_index(1, "medium"), NAMED.category_index(1, 2)] == [1, 2]


def test_a_fitted_estimator_stands_for_its_posterior():
    fit = posterior(0)
    estimator = types.SimpleNamespace(posterior_=fit)
    assert as_series(estimator)[0].posterior is fit
    assert [s.posterior for s in as_series({"a": estimator, "b": fit})] == [fit, fit]


def test_other_names_or_another_order_are_not_drawn_together():
    fit = posterior(0)
    other = Domain(Column("diagnosis", DOMAIN.class_.categories[::-1]), DOMAIN.features)
    named, turned = (dataclasses.replace(fit, domain=d) for d in (DOMAIN, other))
    assert len(as_series({"a": named, "b": fit, "c": named})) == 3
    with pytest.raises(ValueError, match=r"same order: those of 'c' and 'a' differ"):
        as_series({"a": named, "b": fit, "c": turned})


def test_labels_come_before_positions_and_cells_may_have_gaps():
    domain = Domain(Column("y", (2, 1)), (Column("x", ("a", "b")),))
    names = Names.of(domain, 2, [[True, False, True]])
    assert names.class_index(1) == 1
    assert names.category_index(0, "b") == 2
    assert names.event(0, 2) == "x = b"
    with pytest.raises(ValueError, match="class_ must be one of 2, 1; got 0"):
        names.class_index(0)


def test_a_release_with_a_class_table_leaves_it_out():
    names = Names.of(DOMAIN, 2, np.vstack([MASK, [True, False, False]]))
    assert len(names.cells) == 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Names.of(DOMAIN, 3, MASK), ValueError, "domain has 2 classes"),
        (lambda: Names.of("iris", 2, MASK), TypeError, "domain must be a Release, a Domain"),
        (lambda: NAMED.feature_index("area"), ValueError, "feature must be one of 'radius'"),
        (lambda: NAMED.category_index(0, 2), ValueError, "category of radius must be one of"),
        (lambda: as_series({}), TypeError, "posteriors must be a posterior or a mapping"),
        (
            lambda: as_series({"vb": 3}),
            TypeError,
            "mapping from label to posterior, got a mapping to int",
        ),
        (lambda: as_series(posterior(0, (3,))), ValueError, r"one dataset.*\(3,\)"),
        (lambda: as_series(posterior(0), batched=True), ValueError, "a leading axis"),
        (lambda: as_truth((0.2,), posterior(0)), TypeError, "truth must be a Simulation or a pair"),
        (lambda: as_truth(truths(0, (2,)), posterior(0)), ValueError, r"truth\[0\] must have"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_series_of_different_tables_are_refused():
    small = posterior(0, (2,))
    with pytest.raises(ValueError, match="posteriors must be of the same tables"):
        as_series({"a": small, "b": posterior(0, (3,))}, batched=True)
