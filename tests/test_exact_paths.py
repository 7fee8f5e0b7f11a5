"""Every path gives the exact posterior, or says that it does not.

Programs are what costs time here: datasets of one shape are fitted side by side.
"""

import functools
import itertools

import jax
import numpy as np
import oracles
import pytest
from cases import PATHS, Case, path_of, problem, stack
from reference import Reference

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_exact, fit_path
from jaxprivnb.status import Status

pytestmark = pytest.mark.slow  # a program is compiled for every path

LEVELS = (0.5, 0.95, 0.999)
TINY = 2.3e-308
NOISES = ("Laplace", "Geometric", "Gaussian")
SCALES = {"shared": (1.3, 1.3), "by table": (0.6, 2.5)}
SHAPES = {"ragged": (2, (2, 3), 6), "pairs": (2, (2, 2), 6), "three classes": (3, (3, 1), 4)}


def place(law, offset, N):
    """A distribution on windows `[..., W]` that begin at `offset` `[...]`, on 0..N."""
    law, offset = np.asarray(law), np.asarray(offset)
    out = np.zeros((*law.shape[:-1], N + 1))
    for at in np.ndindex(offset.shape):
        n = offset[at] + np.arange(law.shape[-1])
        inside = (n >= 0) & (n <= N)
        out[(*at, n[inside])] = law[at][inside]
        assert np.all(np.abs(law[at][~inside]) < 1e-12)
    return out


def fit_by(name, tables, prior):
    """A batch by the path of that name."""
    path = path_of(name, tables, prior)
    if path is None:
        pytest.skip("not a dataset for this path")
    return jax.vmap(lambda t, p: fit_path(t, p, path, 1e-10))(tables, prior)


@functools.cache
def enumerated(shape, noise):
    """(tables, prior) in a batch, and their enumerations: shared scales and others, four priors."""
    found = []
    for (seed, scale), prior in itertools.product(enumerate(SCALES.values()), (None, 0.5, 1, 3)):
        given = getattr(pnb, noise)(np.array(scale)[: len(SHAPES[shape][1])])
        tables, p, args = problem(SHAPES[shape], given, seed, prior)
        if shape == "pairs":
            p = pnb.Prior(p.class_, np.ones(tables.counts.shape))
            args = (*args[:4], p.feature, args[5])
        found.append((tables, p, oracles.enumerate_posterior(*args)))
    tables, prior, brute = zip(*found, strict=True)
    return stack(tables), stack(prior), brute


def slow_unless(fast, *values):
    return pytest.param(*values, marks=() if fast else pytest.mark.slow)


def near(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("shape", "noise", "name"),
    [
        slow_unless((noise == "Laplace" and shape != "three classes") or name == "whole-3", *x)
        for x in itertools.product(SHAPES, NOISES, PATHS)
        for shape, noise, name in [x]
        if (shape == "pairs") == (name == "closed") and (noise != "Gaussian" or name != "closed")
    ],
)
def test_enumeration(shape, noise, name):
    tables, prior, brute = enumerated(shape, noise)
    fit = fit_by(name, tables, prior)
    N = SHAPES[shape][2]
    np.testing.assert_array_equal(fit.status, Status.SUCCESS)
    for r, each in enumerate(brute):
        near(fit.log_evidence[r], each.log_evidence)
        found = (fit.class_mean, fit.class_sd, fit.feature_mean, fit.feature_sd)
        expected = (*oracles.class_moments(each), *oracles.feature_moments(each))
        for x, y in zip(found, expected, strict=True):
            near(x[r], y)
        law = place(fit.class_count_pmf[r], fit.class_count_offset[r], N)
        near(law, oracles.class_count_pmf(each))


@pytest.mark.parametrize(
    ("shape", "noise", "name"),
    [
        slow_unless(x in (("pairs", "Laplace", "closed"), ("ragged", "Laplace", "windowed-3")), *x)
        for x in itertools.product(SHAPES, NOISES, PATHS)
        for shape, noise, name in [x]
        if (shape == "pairs") == (name == "closed") and (noise != "Gaussian" or name != "closed")
    ],
)
def test_what_is_asked_of_a_posterior_against_enumeration(shape, noise, name):
    tables, prior, brute = enumerated(shape, noise)
    fit = fit_by(name, tables, prior)
    sizes, N = SHAPES[shape][1:]
    mask = brute[0].mask
    real = np.broadcast_to(mask, tables.counts.shape[1:])
    proper = real & (mask.sum(-1, keepdims=True) > 1)
    records = np.array(list(itertools.product(*(range(-1, size) for size in sizes))))
    x = np.random.default_rng(1).uniform(0.001, 0.999, tables.counts.shape)
    laws, predicted = place(fit.count_pmf(), fit.count_offset, N), fit.predict_proba(records)
    class_cdf, feature_cdf = fit.class_cdf(x[:, :, 0, 0]), fit.feature_cdf(x)
    ends = {level: (fit.class_interval(level), fit.feature_interval(level)) for level in LEVELS}
    for r, each in enumerate(brute):
        near(laws[r][real], oracles.count_pmf(each)[real])
        near(predicted[r], [oracles.predict_proba(each, record) for record in records])
        near(class_cdf[r], oracles.class_cdf(each, x[r, :, 0, 0]))
        near(feature_cdf[r], oracles.feature_cdf(each, x[r]))
        for level, (of_class, of_feature) in ends.items():
            for side, tail in enumerate(((1 - level) / 2, (1 + level) / 2)):
                near(oracles.class_cdf(each, np.asarray(of_class[side][r])), tail)
                end = np.asarray(of_feature[side][r])
                near(oracles.feature_cdf(each, end)[proper], tail)
                assert np.all(end[~real] == 0)


PLAIN = {"b of 2": Case(), "prior of 3, b of 5": Case(prior=3.0, scale=5.0)}
APART = {f"off by {by} b": Case(scale=0.5, contradiction=by) for by in (20, 60, 120)}
APART |= {
    f"off by {by} b, prior .5": Case(scale=0.5, prior=0.5, contradiction=by) for by in (20, 60, 120)
}
GRID = {
    f"b of {b:g}, prior {prior:g}": Case(scale=b, prior=prior)
    for b in (0.01, 0.1, 3.0, 1e2, 1e4, 1e6)
    for prior in (0.01, 0.5, 1.0, 30.0, 1e4)
}


def like(cases, **changes):
    return {name: case._replace(**changes) for name, case in cases.items()}


GROUPS = {
    "Laplace": PLAIN | APART | GRID,
    "Geometric": like(PLAIN | APART, noise="Geometric"),
    "Gaussian": like(PLAIN | APART | GRID, noise="Gaussian"),
    "pairs": {
        name: case for name, case in like(PLAIN | APART | GRID, shape=(2, 3, 2)).items()
        if case.prior == 1
    },
    "N of 500": like(PLAIN | APART, shape=(2, 2, 3), N=500),
    "J of 50": like(PLAIN | {"prior .1": Case(scale=1.0, prior=0.1)}, shape=(2, 2, 50), N=150),
    "K of 64": like(PLAIN | {"b of 16": Case(scale=16.0, prior=0.5)}, shape=(2, 64, 3), N=100),
    "I of 10": like(PLAIN | {"prior .5": Case(scale=3.0, prior=0.5)}, shape=(10, 3, 3)),
    "one class": like(PLAIN | APART, shape=(1, 3, 4)),
}  # fmt: skip
EASY = tuple(PLAIN)
"""Cases that no path may call lost."""


@functools.cache
def refereed(group, case):
    """(tables, prior, what is right)."""
    tables, prior = GROUPS[group][case].build()
    return tables, prior, Reference.of(tables, prior)


def worst(got, expected, least):
    """The largest error, relative to what is expected or to `least`."""
    got, expected = np.asarray(got), np.asarray(expected)
    error = np.abs(got - expected) / np.maximum(np.abs(expected), least)
    return float(np.where(np.isnan(error), np.inf, error).max())


def errors_of(fit, right):
    """Relative errors of evidence and moments; means are to be right to 1e-10 where tiny."""
    law = place(fit.class_count_pmf, fit.class_count_offset, right.N)
    return {
        "evidence": worst(fit.log_evidence, right.log_evidence, 1),
        "class mean": worst(fit.class_mean, right.class_mean, 0.1),
        "class sd": worst(fit.class_sd, right.class_sd, 1e-6),
        "feature mean": worst(fit.feature_mean, right.feature_mean, 0.1),
        "feature sd": worst(fit.feature_sd, right.feature_sd, 1e-6),
        "class counts": worst(law, right.class_count_pmf, 0.1),
    }


def above(errors, bound=1e-9):
    return {name: f"{error:.1e}" for name, error in errors.items() if not error <= bound}


@pytest.mark.parametrize(
    ("group", "case"),
    [
        slow_unless(
            (case in APART and group == "Laplace") or (case in EASY[:1] and group != "K of 64"),
            group, case,
        )
        for group in GROUPS
        for case in GROUPS[group]
    ],
)  # fmt: skip
def test_the_fit_is_right(group, case):
    tables, prior, right = refereed(group, case)
    fit = fit_exact(tables, prior)
    assert int(fit.status) == Status.SUCCESS, float(fit.lost_mass)
    assert not above(errors_of(fit, right))


@pytest.mark.parametrize(
    ("group", "name"),
    [
        slow_unless(
            (group == "Laplace" and name in ("whole-1", "windowed-9"))
            or (group == "Gaussian" and name == "windowed-1")
            or name == "closed",
            group, name,
        )
        for group in GROUPS
        for name in PATHS
        if name != "closed" or group == "pairs"
    ],
)  # fmt: skip
def test_every_path_is_right_or_says_so(group, name):
    tables, prior, right = zip(*(refereed(group, case) for case in GROUPS[group]), strict=True)
    fits = fit_by(name, stack(tables), stack(prior))
    wrong = {}
    for r, case in enumerate(GROUPS[group]):
        fit = jax.tree.map(lambda x, r=r: x[r], fits)
        lost = float(fit.lost_mass)
        if int(fit.status) == Status.SUCCESS:
            wrong[case] = above(errors_of(fit, right[r]))
        elif case in EASY or name == "closed":
            wrong[case] = f"status {int(fit.status)}, lost_mass {lost:.1e}"
        # What is missing of the evidence, or too much of it, is at most what is said.
        off = abs(np.expm1(float(fit.log_evidence) - right[r].log_evidence))
        rounding = 1e-13 * max(1, abs(right[r].log_evidence))
        if lost < 1 and not off <= lost + rounding:
            wrong[f"{case}, certificate"] = f"off by {off:.1e}, lost_mass {lost:.1e}"
    assert not {case: what for case, what in wrong.items() if what}


@pytest.mark.parametrize(
    ("group", "case"),
    [
        slow_unless((group, case) in (("Laplace", "off by 60 b"), ("pairs", "b of 2")), group, case)
        for group in GROUPS
        for case in (*EASY, "off by 60 b", "b of 0.1, prior 0.5", "b of 1e+06, prior 1")
        if case in GROUPS[group]
    ],
)  # fmt: skip
def test_what_is_asked_of_a_posterior(group, case):
    tables, prior, right = refereed(group, case)
    fit = fit_exact(tables, prior)
    I, K, J = tables.counts.shape
    laws = place(fit.count_pmf(), fit.count_offset, right.N)
    records = np.random.default_rng(2).integers(-1, J, (3, K))
    predicted = [right.predict_proba(x) for x in records]
    errors = {
        "counts": worst(laws, right.count_pmf, 0.1),
        "predicted": worst(fit.predict_proba(records), predicted, 0.1),
    }
    assert not above(errors)
    lower, upper = fit.feature_interval(0.95)
    for at in {(0, 0, 0), (I - 1, K - 1, J - 1), (0, K - 1, J // 2)}:
        law = right.feature_mixture(*at)
        assert law.holds(float(lower[at]), 0.025, 1e-8, TINY)
        assert law.holds(float(upper[at]), 0.975, 1e-8, TINY)
    if I > 1:
        lower, upper = fit.class_interval(0.95)
        law = right.class_mixture(0)
        assert law.holds(float(lower[0]), 0.025, 1e-8, TINY)
        assert law.holds(float(upper[0]), 0.975, 1e-8, TINY)
