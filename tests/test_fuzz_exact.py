"""A short campaign of random problems: status 0 means a right posterior; see bench/fuzz.py."""

import campaign
import numpy as np
import pytest
from campaign import BOUNDS, Answer, Spec, Verdict, case_of, judge, run_seed
from reference import Reference


@pytest.mark.slow
@pytest.mark.parametrize("noise", campaign.NOISES)
def test_status_0_means_a_right_posterior(noise, dtype):
    verdict = Verdict()
    run_seed(verdict, 7, 64, 1, Spec((2, 2, 3), 40, noise, dtype.name, by_table=True))
    assert not verdict.failures
    solved = sum(n for key, n in verdict.statuses.items() if key.endswith("SUCCESS"))
    assert solved > 0.8 * sum(verdict.cases.values())


def test_the_judge_sees_what_is_off():
    spec = Spec((2, 2, 3), 40, "Laplace", "float64", by_table=False)
    case = case_of(3, 0, spec)
    right = Reference(
        case.counts,
        case.n_records,
        "laplace",
        case.scale,
        case.prior_class,
        case.prior_feature,
        case.mask,
    )
    tails = (0.025, 0.975)
    ends = np.zeros((2, *spec.shape))
    for at in np.ndindex(spec.shape):
        if case.mask[at[1:]]:
            law = right.feature_mixture(*at)
            ends[(slice(None), *at)] = [law.quantile(t) for t in tails]
    answer = Answer(
        np.array(0),
        np.array(0.0),
        right.class_mean,
        right.class_sd,
        np.array([[right.class_mixture(i).quantile(t) for i in range(2)] for t in tails]),
        right.feature_mean,
        right.feature_sd,
        ends,
        right.class_count_pmf,
        np.zeros(2, int),
    )
    bounds = BOUNDS["float64"]
    spread = lambda a: judge(case, spec, a, np.random.default_rng(0))  # noqa: E731
    found = spread(answer)
    assert found["mean"][0] == found["sd"][0] == found["end"][0] == found["certificate"][0] == 0
    off = spread(answer._replace(class_mean=answer.class_mean + 2 * bounds.mean))
    assert off["mean"][0] > bounds.mean
    assert off["certificate"][0] > bounds.certificate
    assert spread(answer._replace(feature_sd=answer.feature_sd * (1 + 1e-5)))["sd"][0] > bounds.sd
    assert spread(answer._replace(class_ends=answer.class_ends * (1 + 1e-5)))["end"][0] == 1
    moved = np.roll(answer.class_count_pmf, 1, axis=-1)
    assert spread(answer._replace(class_count_pmf=moved))["certificate"][0] > bounds.certificate
    nothing = answer._replace(feature_mean=np.full(spec.shape, np.nan))
    assert spread(nothing)["mean"][0] == np.inf
