"""Totals of groups of classes, at any number of levels, against sums over every table."""

import dataclasses
import itertools
from types import SimpleNamespace

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.special import logsumexp

import jaxprivnb as pnb
from jaxprivnb.exact import groups, plan
from jaxprivnb.exact.fit import fit_path
from jaxprivnb.status import Status

LAPLACE, GEOMETRIC, GAUSSIAN = NOISES = cases.NOISES
TWO_LEVELS = ((0, 1), (2, 3))
THREE_LEVELS = ((0, 1, 2), (0, 2), (1,), (0, 1, 2, 3))
TWICE = ((0, 1, 3), (0, 1), (0, 1))
FAMILIES = (TWO_LEVELS, THREE_LEVELS, TWICE)


def published(family, noises, seed=0):
    """Totals of groups, of about a record a class; without noise where that is None."""
    rng = np.random.default_rng(seed)
    found = []
    for classes, noise in zip(family, itertools.cycle(noises), strict=False):
        total = len(classes) + rng.normal(0, 1.5)
        if noise is None or isinstance(noise, pnb.Geometric):
            total = max(np.round(total), 0.0)
        found.append(pnb.Group(classes, total, noise))
    return tuple(found)


def log_of(of):
    """log P(what was published of the groups | class counts)."""
    return lambda n_class: sum(
        float(g.noise.log_prob(jnp.asarray(g.total - n_class[list(g.classes)].sum()))) for g in of
    )


def problem(noise, family, noises, seed=0, shape=(4, (2,), 5), log_n=None):
    """Tables with groups, their prior, and the enumeration."""
    tables, prior, (counts, N, log_prob, a, alpha, mask) = cases.problem(shape, noise, seed)
    of = published(family, noises, seed)
    known = log_n is None
    tables = dataclasses.replace(tables, groups=of, n_records=N if known else None)
    weights = {N: 0.0} if known else dict(enumerate(log_n))
    factor = lambda l: log_prob(counts - l)  # noqa: E731
    return (
        tables,
        prior,
        oracles.enumerate_factors(factor, weights, a, alpha, mask, None, log_of(of)),
    )


def agree(fit, right, tol=1e-10):
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=tol, atol=tol)  # noqa: E731
    assert int(fit.status) == 0
    assert float(fit.lost_mass) < 1e-10
    close(fit.log_evidence, right.log_evidence)
    for found, wanted in (
        ((fit.class_mean, fit.class_sd), oracles.class_moments(right)),
        ((fit.feature_mean, fit.feature_sd), oracles.feature_moments(right)),
    ):
        for x, y in zip(found, wanted, strict=True):
            close(x, y)
    law = oracles.class_count_pmf(right)
    held = np.zeros_like(law)
    for i, first in enumerate(np.asarray(fit.class_count_offset)):
        own = np.asarray(fit.class_count_pmf[i])[: law.shape[1] - first]
        held[i, first : first + len(own)] = own
    close(held, law)


def test_three_levels_and_every_noise_are_as_enumerated():
    family, noises = (*THREE_LEVELS, (0, 2)), (GAUSSIAN, LAPLACE, GEOMETRIC, GAUSSIAN, None)
    tables, prior, right = problem(LAPLACE, family, noises, seed=3)
    fit = pnb.fit_exact(tables, prior)
    agree(fit, right)
    x = np.array([1])
    np.testing.assert_allclose(
        fit.predict_proba(jnp.asarray(x)), oracles.predict_proba(right, x), atol=1e-10
    )
    drawn = np.asarray(fit.sample_tables(jax.random.key(0), 4000)).sum(-1)[..., 0]
    assert (drawn.sum(-1) == 5).all()
    assert (drawn[:, [0, 2]].sum(-1) == float(tables.groups[4].total)).all()
    law = oracles.class_count_pmf(right)
    seen = (drawn[..., None] == np.arange(6)).mean(0)
    assert (np.abs(seen - law) <= 4.5 * np.sqrt(law * (1 - law) / 4000) + 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_noise_is_as_enumerated(noise, family):
    seed = FAMILIES.index(family)
    tables, prior, right = problem(noise, family, NOISES[seed:], seed)
    agree(pnb.fit_exact(tables, prior), right)


@pytest.mark.slow
def test_two_features_and_a_public_total():
    family = ((0, 1), (2,))
    tables, prior, right = problem(LAPLACE, family, (None, LAPLACE), 4, (3, (2, 2), 4))
    fit = pnb.fit_exact(tables, prior)
    agree(fit, right)
    assert float(fit.class_count_mean[:2].sum()) == pytest.approx(float(tables.groups[0].total))
    x = np.full(fit.feature_mean.shape, 0.3)
    np.testing.assert_allclose(
        fit.feature_marginal().cdf(jnp.asarray(x)), oracles.feature_cdf(right, x), atol=1e-10
    )


def test_a_noisy_number_of_records_where_it_is_not_known():
    log_n = np.log(np.array([1, 1, 2, 3, 2, 1.0]))
    family = ((0, 1), (1,))
    tables, prior, right = problem(GEOMETRIC, family, (LAPLACE,), 1, (2, (2,), 4), log_n)
    fit = pnb.fit_exact(tables, prior, n_records_prior=log_n)
    agree(fit, right)
    law = oracles.n_records_pmf(right)
    own = np.asarray(fit.n_records_pmf)[: len(law) - int(fit.n_records_offset)]
    np.testing.assert_allclose(own, law[int(fit.n_records_offset) :], atol=1e-10)


@pytest.mark.slow
def test_one_class_and_totals_of_all_of_them():
    """They say nothing of the tables where N is known, and enter the evidence."""
    tables, prior, _ = cases.problem((2, (2,), 6), LAPLACE, 0)
    plain = pnb.fit_exact(tables, prior)
    own = pnb.Group((0, 1), 7.5, LAPLACE)
    fit = pnb.fit_exact(dataclasses.replace(tables, groups=(own,)), prior)
    np.testing.assert_allclose(fit.feature_mean, plain.feature_mean, rtol=1e-12)
    more = float(fit.log_evidence - plain.log_evidence)
    assert more == pytest.approx(float(LAPLACE.log_prob(jnp.asarray(1.5))), rel=1e-12)


# The tree by itself.


def messages(starts, W, N, seed, family, steep=3.0):
    """Random messages, and a dataset as far as the tree looks at it."""
    rng = np.random.default_rng(seed)
    log_h = -steep * np.abs(np.arange(W) - rng.uniform(0, W, (len(starts), 1)))
    log_h = jnp.asarray(log_h + rng.normal(size=log_h.shape))
    of = tuple(pnb.Group(c, jnp.asarray(rng.uniform(0, N)), LAPLACE) for c in family)
    N = jnp.asarray(float(N))
    data = SimpleNamespace(groups=of, n_records=N, log_group=lambda r, n: of[r].log_relative(N, n))
    return log_h, data, jnp.asarray(starts, float)


def listed(log_h, data, start):
    """Every tuple of class counts with its log weight."""
    n = start[:, None] + np.arange(log_h.shape[1])
    found = []
    for at in itertools.product(range(log_h.shape[1]), repeat=len(start)):
        counts = n[np.arange(len(start)), list(at)]
        if counts.sum() == float(data.n_records):
            weight = log_h[np.arange(len(start)), list(at)].sum()
            for r, group in enumerate(data.groups):
                if 1 < len(group.classes) < len(start):
                    total = counts[list(group.classes)].sum()
                    weight += float(data.log_group(r, jnp.asarray([total]))[0])
            found.append((*at, weight))
    return np.array(found)


@pytest.mark.parametrize(
    ("family", "starts", "whole"),
    [(((0, 2), (0, 1, 2)), (0, 3, 1, 2), False), (TWO_LEVELS, (0,) * 4, True)],
)
def test_the_tree_is_the_sum_over_all_class_counts(family, starts, whole):
    W, N = 9, 17 if not whole else 8
    log_h, data, start = messages(starts, W, N, 0, family)
    log_total, pmf, rounding = groups.root(log_h, data, start, whole=whole)
    right = listed(*(np.asarray(x) if x is not data else x for x in (log_h, data, start)))
    assert float(log_total) == pytest.approx(logsumexp(right[:, -1]), rel=1e-13)
    p = np.exp(right[:, -1] - logsumexp(right[:, -1]))
    for i in range(4):
        law = np.bincount(right[:, i].astype(int), p, W)
        np.testing.assert_allclose(pmf[i], law, atol=1e-13)
    assert 1e-16 < float(rounding) < 1e-12
    u = jax.random.uniform(jax.random.key(1), (4000, 4), jnp.float64)
    drawn = np.asarray(groups.draw_class_counts(u, log_h, data, start, whole=whole) - start)
    mean, square = p @ right[:, :-1], p @ np.square(right[:, :-1])
    sd = np.sqrt(square - mean**2)
    assert (np.abs(drawn.mean(0) - mean) < 4 * sd / np.sqrt(4000) + 1e-12).all()
    assert (drawn.sum(-1) + np.sum(starts) == N).all()
    slope = jax.grad(lambda h: groups.root(h, data, start, whole=whole)[0])(log_h)
    np.testing.assert_allclose(slope, pmf, atol=1e-12)


def test_merges_hold_every_group_once():
    steps = groups.merges([(1, 3), (0, 1, 3, 5), (4,), (1, 3), tuple(range(6))], 6)
    assert len(steps) == 5
    parts = [frozenset({i}) for i in range(6)]
    for a, b, own in steps:
        assert not parts[a] & parts[b]
        parts.append(parts[a] | parts[b])
        expected = {frozenset({1, 3}): (0, 3), frozenset({0, 1, 3, 5}): (1,)}
        assert own == expected.get(parts[-1], ())
    assert parts[-1] == frozenset(range(6))


# What is lost, and what is gained.


@pytest.mark.slow
def test_what_windows_lose_is_bounded():
    N, size = 250, 16
    sim = pnb.simulate(
        jax.random.key(0), n_records=N, n_classes=3, n_categories=(2, 2),
        noise=pnb.Laplace(3.0), shape=(size,),
    )  # fmt: skip
    n = sim.counts.sum(-1)[:, :2, 0].sum(-1)
    # Half of the totals contradict the tables, by up to 40 scales.
    off = np.where(np.arange(size) % 2, np.linspace(-80, 80, size), 1.0)
    of = (pnb.Group((0, 1), n + off, pnb.Laplace(2.0)), pnb.Group((2,), N - n, pnb.Gaussian(9.0)))
    tables = dataclasses.replace(sim.tables, groups=of)
    prior = pnb.Prior.symmetric(jax.tree.map(lambda x: x[0], sim.tables), 0.8)
    whole = dataclasses.replace(plan.choose(tables, prior, max_records=N), tilts=9)

    def fit(path):
        return jax.vmap(lambda t: fit_path(t, prior, path, 1e-9))(tables)

    complete = fit(whole)
    assert np.all(np.asarray(complete.status) == Status.SUCCESS)
    windowed = fit(dataclasses.replace(whole, length=256, window=96, whole=False, tilts=1))
    bound = np.asarray(windowed.lost_mass)
    off = np.abs(np.expm1(windowed.log_evidence - complete.log_evidence))
    assert np.all(bound >= off - 1e-11)
    assert off.max() > 1e-11  # there is something to bound
    assert np.max(bound[::2]) < 1e-6  # and the bound says something


@pytest.mark.slow
def test_a_precise_total_narrows_what_it_is_of():
    tables = NARROWED
    alone = pnb.fit_exact(dataclasses.replace(tables, groups=()))
    fit = pnb.fit_exact(tables)
    sd = lambda f: np.asarray(f.class_sd)  # noqa: E731
    assert sd(fit)[2] < 0.6 * sd(alone)[2]  # N less the group is known as well
    both = lambda f: np.asarray(f.sample(jax.random.key(0), 2000)[0][:, :2].sum(-1))  # noqa: E731
    assert both(fit).std() < 0.6 * both(alone).std()


NARROWED = pnb.NoisyTables(
    np.array([[[30.0, 22]], [[41, 25]], [[60, 15]]]),
    200,
    pnb.Laplace(20.0),
    groups=(pnb.Group((0, 1), 121.0, pnb.Laplace(1.0)),),
)


# What is not taken.


def with_groups(*of, n_records=200):
    return pnb.NoisyTables(np.zeros((3, 1, 2)), n_records, LAPLACE, groups=of)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ([pnb.Group((0, 1), 3.0, LAPLACE), pnb.Group((1, 2), 3.0, LAPLACE)], "overlap"),
        ([pnb.Group((0, 3), 3.0, LAPLACE)], r"groups\[0\].classes must be of 0, ..., 2"),
        ([pnb.Group((0, 1), np.nan, LAPLACE)], r"groups\[0\].total must be finite"),
        ([pnb.Group((0, 1), 3.5)], r"groups\[0\].total must be a whole number"),
        ([pnb.Group((0, 1), [3.0, 1.0], LAPLACE)], r"groups\[0\].total must be a scalar"),
    ],
)
def test_groups_are_checked(of, words):
    with pytest.raises(ValueError, match=words):
        with_groups(*of)


def test_groups_of_a_wrong_kind():
    with pytest.raises(TypeError, match=r"groups\[0\] must be a Group, got tuple of 2 items"):
        with_groups((0, 1))
    with pytest.raises(TypeError, match="groups must be a sequence"):
        pnb.NoisyTables(np.zeros((3, 1, 2)), 9, LAPLACE, groups=pnb.Group((0,), 3.0, LAPLACE))
    with pytest.raises(ValueError, match="at least one class"):
        pnb.Group((), 3.0, LAPLACE)
    with pytest.raises(ValueError, match="each named once"):
        pnb.Group((1, 1), 3.0, LAPLACE)
    with pytest.raises(TypeError, match=r"groups\[0\].noise must be Laplace"):
        with_groups(pnb.Group((0,), 3.0, 2.0))
    with pytest.raises(ValueError, match=r"n_records must be known beside groups\[0\]"):
        with_groups(pnb.Group((0, 1), 3.0, LAPLACE), n_records=None)


def test_who_cannot_take_groups_says_so():
    tables = with_groups(pnb.Group((0, 1), 3.0, LAPLACE))
    with pytest.raises(ValueError, match=r"totals of groups of classes.*fit_exact takes them"):
        pnb.fit_vb(tables)
    plain = pnb.fit_naive(dataclasses.replace(tables, groups=()))
    np.testing.assert_array_equal(pnb.fit_naive(tables).class_mean, plain.class_mean)
    assert "totals of 1 groups" in repr(tables)


def test_combining_keeps_every_group():
    one, two = pnb.Group((0, 1), 3.0, LAPLACE), pnb.Group((2, 1), 4.0)
    first = with_groups(one)
    found = pnb.combine(first, with_groups(dataclasses.replace(one, total=5.0)))
    assert [float(g.total) for g in found.groups] == [3.0, 5.0]
    assert two.classes == (1, 2)
    with pytest.raises(ValueError, match="overlap"):
        pnb.combine(first, with_groups(two))
