"""The predictive is exact, and is not the plug-in of means."""

import itertools
import pickle

import numpy as np
import oracles
import pytest
from cases import SMALL, problem

from jaxprivnb.exact.fit import fit_exact


@pytest.mark.parametrize(("shape", "noise"), SMALL)
def test_every_record_equals_brute_force(shape, noise):
    tables, prior, args = problem(shape, noise)
    fit, brute = fit_exact(tables, prior), oracles.enumerate_posterior(*args)
    records = np.array(list(itertools.product(*(range(-1, size) for size in shape[1]))))
    expected = np.array([oracles.predict_proba(brute, x) for x in records])
    got = np.asarray(fit.predict_proba(records))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)

    plug_in = np.asarray(fit.class_mean)[None].repeat(len(records), 0)
    for k in range(len(shape[1])):
        seen = records[:, k] >= 0
        plug_in[seen] *= np.asarray(fit.feature_mean)[:, k, records[seen, k]].T
    plug_in /= plug_in.sum(-1, keepdims=True)
    assert np.abs(plug_in - expected).max() > 1e-4


def test_what_is_kept_to_be_asked_again_is_not_pickled():
    tables, prior, _ = problem(*SMALL[0])
    fit = fit_exact(tables, prior)
    record = np.zeros((1, tables.counts.shape[1]), int)
    before, asked = len(pickle.dumps(fit)), fit.predict_proba(record)
    stored = pickle.dumps(fit)
    assert len(stored) == before
    np.testing.assert_array_equal(pickle.loads(stored).predict_proba(record), asked)
