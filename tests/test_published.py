"""What is really published, against the enumeration of every integer table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy import stats
from scipy.special import logsumexp

import jaxprivnb as pnb
from jaxprivnb.noise import log_interval

I, SIZES = 2, (2, 3)
MASK = np.arange(3) < np.array(SIZES)[:, None]
SHAPE = (I, 2, 3)
NOISES = [pnb.Laplace(1.3), pnb.Geometric(0.9), pnb.Gaussian(1.7)]
OUTSIDE = 60
"""Whole numbers so far from 0 have no noise to speak of."""


def kind(noise):
    return type(noise).__name__


def tail(noise, low, high):
    """log P(low <= noise <= high), by SciPy, or the density where both are equal."""
    s = float(noise.value)
    if isinstance(noise, pnb.Geometric):
        x = np.arange(-OUTSIDE, OUTSIDE + 1)
        pmf = np.exp(-np.abs(x) / s) * np.tanh(1 / (2 * s))
        inside = (x >= np.asarray(low)[..., None]) & (x <= np.asarray(high)[..., None])
        with np.errstate(divide="ignore"):
            return np.log((inside * pmf).sum(-1))
    law = stats.laplace(scale=s) if isinstance(noise, pnb.Laplace) else stats.norm(scale=s)
    low, high = np.broadcast_arrays(low, high)
    with np.errstate(divide="ignore"):
        mass = np.log(law.cdf(high) - law.cdf(low))
    return np.where(low == high, law.logpdf(low), mass)


def prior_of(seed=0):
    rng = np.random.default_rng(seed)
    feature = np.where(MASK, rng.uniform(0.3, 3, SHAPE), 1)
    return pnb.Prior(rng.uniform(0.3, 3, I), feature)


def noisy(noise, seed=0, mask=MASK):
    """Noisy counts of about five records."""
    rng = np.random.default_rng(seed)
    counts = np.array([[[2, 0, 0], [1, 1, 0]], [[2, 1, 0], [0, 2, 1]]], float)
    drawn = rng.laplace(scale=1.2, size=SHAPE)
    drawn = np.round(drawn) if isinstance(noise, pnb.Geometric) else drawn
    return np.where(mask, counts + drawn, 0)


def agree(tables, prior, factor, weights, mask=MASK, class_totals=None, *, ask=False, **options):
    """Evidence and moments against enumeration, and all else that a posterior is asked (`ask`)."""
    right = oracles.enumerate_factors(
        factor, weights, prior.class_, prior.feature, mask, class_totals
    )
    fit = pnb.fit_exact(tables, prior, **options)
    assert int(fit.status) == 0
    close = lambda x, y, tol=1e-10: np.testing.assert_allclose(x, y, rtol=tol, atol=tol)  # noqa: E731
    close(fit.log_evidence, right.log_evidence)
    for found, wanted in (
        ((fit.class_mean, fit.class_sd), oracles.class_moments(right)),
        ((fit.feature_mean, fit.feature_sd), oracles.feature_moments(right)),
    ):
        for x, y in zip(found, wanted, strict=True):
            close(x, y, 1e-9)
    if len(weights) > 1:
        law = oracles.n_records_pmf(right)
        own = int(fit.n_records_offset) + np.arange(fit.n_records_pmf.shape[-1])
        inside = own < len(law)
        held = np.zeros(len(law))
        held[own[inside]] = np.asarray(fit.n_records_pmf)[inside]
        close(held, law)
        close(fit.n_records_mean, law @ np.arange(len(law)), 1e-9)
    if not ask:
        return fit
    for x in (np.zeros(2, int), np.array([1, -1]), np.array([1, 2])):
        close(fit.predict_proba(x), oracles.predict_proba(right, x))
    q = np.asarray(fit.class_quantile(0.3))
    close(oracles.class_cdf(right, q), 0.3, 1e-8)
    q = np.asarray(fit.feature_quantile(0.8))
    cdf = oracles.feature_cdf(right, q)
    real = np.broadcast_to(mask, SHAPE) & (right.mask.sum(-1, keepdims=True) > 1)
    close(cdf[real], 0.8, 1e-8)
    law = oracles.count_pmf(right)
    pmf, offset = np.asarray(fit.count_pmf()), np.asarray(fit.count_offset)
    for at in np.ndindex(SHAPE):
        held = np.zeros(law.shape[-1])
        own = offset[at] + np.arange(pmf.shape[-1])
        np.add.at(held, own[own < len(held)], pmf[at][own < len(held)])
        close(held, law[at])
    low, high = map(np.asarray, fit.count_interval(0.8))
    upto = np.cumsum(law, -1)
    for at in np.ndindex(SHAPE):
        assert upto[at][low[at]] > 0.1 - 1e-12
        assert low[at] == 0 or upto[at][low[at] - 1] <= 0.1 + 1e-12
        assert upto[at][high[at]] >= 0.9 - 1e-12
        assert high[at] == 0 or 1 - upto[at][high[at] - 1] > 0.1 - 1e-12
    return fit


def plain(noise, m):
    return lambda l: np.where(MASK, tail(noise, m - l, m - l), 0)


UNKNOWN = np.array([-1.0, -np.inf, 0.0, 0.3, -0.4, 0.8, 0.1])
"""Log weights of N = 0, ..., 6."""
WEIGHTS = {N: w for N, w in enumerate(UNKNOWN) if np.isfinite(w)}


@pytest.mark.parametrize("noise", NOISES, ids=kind)
def test_an_unknown_number_of_records_is_summed_over(noise):
    m = noisy(noise)
    tables = pnb.NoisyTables(m, None, noise, MASK)
    ask = isinstance(noise, pnb.Laplace)
    agree(tables, prior_of(), plain(noise, m), WEIGHTS, n_records_prior=UNKNOWN, ask=ask)


def test_every_number_of_records_has_the_same_weight_by_default():
    noise = pnb.Laplace(0.25)
    m = np.where(MASK, np.array([[[2, 0, 0], [1, 1, 0]], [[2, 1, 0], [0, 2, 1]]]) + 0.1, 0)
    tables = pnb.NoisyTables(m, None, noise, MASK)
    agree(tables, prior_of(), plain(noise, m), dict.fromkeys(range(9), 0.0))


def test_one_class_and_an_unknown_number_of_records():
    m = noisy(NOISES[0])[:1]
    tables = pnb.NoisyTables(m, None, NOISES[0], MASK)
    prior = pnb.Prior(np.array([1.5]), np.asarray(prior_of().feature)[:1])
    fit = pnb.fit_exact(tables, prior, n_records_prior=UNKNOWN)
    factor = lambda l: np.where(MASK, tail(NOISES[0], m - l, m - l), 0)  # noqa: E731
    right = oracles.enumerate_factors(factor, WEIGHTS, prior.class_, prior.feature, MASK)
    np.testing.assert_allclose(fit.log_evidence, right.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(fit.class_mean, [1], rtol=1e-12)
    assert float(fit.class_sd[0]) == 0
    np.testing.assert_allclose(
        fit.feature_mean, oracles.feature_moments(right)[0], rtol=1e-10, atol=1e-12
    )


def test_draws_follow_the_posterior_of_an_unknown_number_of_records():
    noise = NOISES[1]
    m = noisy(noise)
    tables = pnb.NoisyTables(m, None, noise, MASK)
    fit = pnb.fit_exact(tables, prior_of(), n_records_prior=UNKNOWN)
    n = 40_000
    drawn = np.asarray(fit.sample_tables(jax.random.key(1), n))
    totals = drawn.sum((1, 3))
    assert (totals == totals[:, :1]).all()
    seen = np.bincount(totals[:, 0], minlength=7)[:7] / n
    own = int(fit.n_records_offset)
    law = np.zeros(7)
    law[own:] = np.asarray(fit.n_records_pmf)[: 7 - own]
    np.testing.assert_allclose(seen, law, atol=5 * np.sqrt(0.25 / n))
    class_, feature = fit.sample(jax.random.key(2), n)
    for draws, mean, sd in (
        (class_, fit.class_mean, fit.class_sd),
        (feature, fit.feature_mean, fit.feature_sd),
    ):
        assert np.all(np.abs(draws.mean(0) - mean) <= 5 * sd / np.sqrt(n) + 1e-12)


@pytest.mark.parametrize("noise", NOISES, ids=kind)
@pytest.mark.parametrize("unknown", [False, True], ids=["N", "no-N"])
def test_counts_after_the_noise(noise, unknown):
    """Suppressed, rounded and clamped counts, and a hole, in one table each."""
    m = noisy(noise, seed=3)
    weights = WEIGHTS if unknown else {5: 0.0}
    options = {"n_records_prior": UNKNOWN} if unknown else {}
    whole = isinstance(noise, pnb.Geometric)

    def check(shown, low, high, **how):
        tables = pnb.processed(shown, None if unknown else 5, noise, mask=MASK, **how)
        factor = lambda l: np.where(MASK, tail(noise, low - l, high - l), 0)  # noqa: E731
        agree(tables, prior_of(), factor, weights, **options)

    below = m < 1
    top = 0.0 if whole else 1.0
    check(
        np.where(below, np.nan, m),
        np.where(below, -np.inf, m),
        np.where(below, top, m),
        threshold=1,
    )
    check(
        np.clip(m, 0, 4), np.where(m <= 0, -np.inf, np.clip(m, 0, 4)),
        np.where(m >= 4, np.inf, np.clip(m, 0, 4)), clamp=(0, 4),
    )  # fmt: skip
    rounded = 3 * np.round(m / 3)
    half = 1.0 if whole else 1.5
    check(rounded, rounded - half, rounded + half, grid=3)
    hole = np.zeros(SHAPE, bool)
    hole[1, 0, 1] = hole[0, 1, 2] = True
    check(np.where(hole, np.nan, m), np.where(hole, -np.inf, m), np.where(hole, np.inf, m))


def test_ties_of_whole_numbers_go_to_even_multiples_or_up():
    noise = pnb.Geometric(1.0)
    even = pnb.processed(np.full(SHAPE, 4.0), 5, noise, grid=2)
    assert (float(even.counts[0, 0, 0]), float(even.upper[0, 0, 0])) == (3, 5)
    odd = pnb.processed(np.full(SHAPE, 2.0), 5, noise, grid=2)
    assert float(odd.counts[0, 0, 0]) == 2
    assert odd.upper is None
    up = pnb.processed(np.full(SHAPE, 2.0), 5, noise, grid=2, ties="up")
    assert (float(up.counts[0, 0, 0]), float(up.upper[0, 0, 0])) == (1, 2)


@pytest.mark.parametrize("noise", NOISES[:2], ids=kind)
def test_clamping_costs_nothing_under_noise_with_exponential_tails(noise):
    m = noisy(noise, seed=5)
    assert (m < 0).any()
    free = pnb.fit_exact(pnb.NoisyTables(m, 5, noise, MASK))
    ends = pnb.fit_exact(pnb.NoisyTables(np.clip(m, 0, 5), 5, noise, MASK))
    said = pnb.fit_exact(pnb.processed(np.clip(m, 0, 5), 5, noise, clamp=(0, 5), mask=MASK))
    for other in (ends, said):
        np.testing.assert_allclose(other.feature_mean, free.feature_mean, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(other.class_sd, free.class_sd, rtol=1e-10)
    assert float(ends.log_evidence) != pytest.approx(float(said.log_evidence), abs=1e-3)


@pytest.mark.parametrize("unknown", [False, True], ids=["N", "no-N"])
def test_releases_of_the_same_records_are_multiplied(unknown):
    tables = [noisy(noise, seed) for seed, noise in enumerate(NOISES)]
    N = None if unknown else 5
    weights = WEIGHTS if unknown else {5: 0.0}
    options = {"n_records_prior": UNKNOWN} if unknown else {}
    made = [pnb.NoisyTables(m, N, noise, MASK) for m, noise in zip(tables, NOISES, strict=True)]
    for some in (2, 3):
        both = pnb.combine(*made[:some])
        each = [plain(noise, m) for noise, m in zip(NOISES[:some], tables[:some], strict=True)]
        factor = lambda l, each=each: sum(f(l) for f in each)  # noqa: E731
        agree(both, prior_of(), factor, weights, **options)


@pytest.mark.parametrize("unknown", [False, True], ids=["N", "no-N"])
def test_what_is_public_is_certain(unknown):
    noise = NOISES[0]
    m = noisy(noise, seed=7)
    N = None if unknown else 5
    weights = WEIGHTS if unknown else {5: 0.0}
    options = {"n_records_prior": UNKNOWN} if unknown else {}
    tables = pnb.NoisyTables(m, N, noise, MASK, class_totals=[2, np.nan])
    agree(
        tables, prior_of(), plain(noise, m), weights, class_totals=np.array([2, np.nan]), **options
    )
    public = np.full(SHAPE, np.nan)
    public[:, 0, :2] = [[2, 0], [2, 1]]
    both = pnb.combine(pnb.NoisyTables(m, N, noise, MASK), pnb.known(public))

    def factor(l):
        sure = np.where(np.isnan(public) | (public == l), 0, -np.inf)
        return plain(noise, m)(l) + np.where(MASK, sure, 0)

    agree(both, prior_of(), factor, weights, **options)


@pytest.mark.parametrize("unknown", [False, True], ids=["N", "no-N"])
@pytest.mark.parametrize("noise", NOISES, ids=kind)
def test_categories_that_a_class_cannot_have(noise, unknown):
    by_class = np.broadcast_to(MASK, SHAPE).copy()
    by_class[0, 1, 2] = by_class[1, 0, 0] = False
    m = np.where(by_class, noisy(noise, seed=2), 0)
    tables = pnb.NoisyTables(m, None if unknown else 5, noise, by_class)
    factor = lambda l: np.where(by_class, tail(noise, m - l, m - l), 0)  # noqa: E731
    options = {"n_records_prior": UNKNOWN} if unknown else {}
    fit = agree(tables, prior_of(), factor, WEIGHTS if unknown else {5: 0.0}, by_class, **options)
    assert float(fit.feature_mean[0, 1, 2]) == 0
    _, feature = fit.sample(jax.random.key(0), 50)
    assert np.all(np.asarray(feature)[:, ~by_class] == 0)
    assert "nan" not in str(fit.summary())


@pytest.mark.parametrize("noise", NOISES, ids=kind)
def test_probabilities_of_intervals(noise):
    ends = [-np.inf, -40.0, -3.0, -1.0, 0.0, 1.0, 2.0, 35.0, np.inf]
    pairs = np.array([(a, b) for a in ends for b in ends if a < b and np.isfinite(a + b) | (a < b)])
    pairs = pairs[np.isfinite(pairs).any(-1)]
    found = log_interval(noise, jnp.asarray(pairs[:, 0]), jnp.asarray(pairs[:, 1]))
    s = float(noise.value)
    if isinstance(noise, pnb.Geometric):
        x = np.arange(-2000, 2001)
        log_pmf = -np.abs(x) / s + np.log(np.tanh(1 / (2 * s)))
        right = [logsumexp(log_pmf[(x >= a) & (x <= b)]) for a, b in pairs]
    else:
        law = stats.laplace(scale=s) if isinstance(noise, pnb.Laplace) else stats.norm(scale=s)
        flip = pairs.sum(-1) > 0
        low = np.where(flip, -pairs[:, 1], pairs[:, 0])
        high = np.where(flip, -pairs[:, 0], pairs[:, 1])
        top, bottom = law.logcdf(high), law.logcdf(low)
        right = top + np.log1p(-np.exp(bottom - top))
    # Far out SciPy and JAX differ in the eleventh digit of log Phi.
    np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-15)


def test_a_batch_gives_what_each_dataset_gives():
    made = pnb.simulate(
        jax.random.key(3), n_records=60, n_categories=SIZES, noise=pnb.Laplace(4.0), shape=(5,)
    )
    hidden = dataclasses.replace(made.tables, n_records=None)
    many = pnb.fit_many(hidden, "exact")
    for r in range(5):
        one = pnb.fit_exact(jax.tree.map(lambda x, r=r: x[r], hidden))
        assert int(many.status[r]) == int(one.status) == 0
        np.testing.assert_allclose(many.class_mean[r], one.class_mean, rtol=1e-9)
        np.testing.assert_allclose(many.n_records_mean[r], one.n_records_mean, rtol=1e-9)
        low, _ = many.class_interval(0.9)
        np.testing.assert_allclose(low[r], one.class_interval(0.9)[0], rtol=1e-7)


def test_described_and_pictured_without_n_and_with_intervals():
    tables = pnb.NoisyTables(noisy(NOISES[0]), None, NOISES[0], MASK)
    assert "N=unknown" in repr(tables)
    assert tables.n_records_p_value() is None
    assert "nan" not in tables._repr_html_()
    holes = np.where(MASK, noisy(NOISES[0]), 0.0)
    holes[0, 0, 0] = np.nan
    shown = pnb.processed(holes, 5, NOISES[0], mask=MASK)
    assert "intervals" in repr(shown)
    assert shown.n_records_p_value() is None


def test_windows_without_n_are_where_the_counts_are():
    """Small tables under wide noise: tails of N go far up, and questions must not follow them."""
    rng = np.random.default_rng(0)
    drawn = np.round(np.where(MASK, 5 + rng.laplace(scale=6, size=(3, *SHAPE)), 0))
    tables = pnb.NoisyTables(drawn, None, pnb.Geometric(6.0), np.broadcast_to(MASK, (3, 2, 3)))
    many = pnb.fit_many(tables, "exact", progress=False)
    for r in range(3):
        one = pnb.fit_exact(jax.tree.map(lambda x, r=r: x[r], tables))
        assert int(one.status) == int(many.status[r]) == 0
        np.testing.assert_allclose(one.count_pmf().sum(-1), 1, rtol=1e-9)
        low, high = one.feature_interval(0.9)
        inside = (low <= one.feature_mean) & (one.feature_mean <= high)
        assert bool(np.all(np.asarray(inside) | ~MASK))
        np.testing.assert_allclose(many.feature_interval(0.9)[0][r], low, rtol=1e-6, atol=1e-9)


def test_fits_that_need_n_say_what_to_do():
    tables = pnb.NoisyTables(noisy(NOISES[0]), None, NOISES[0], MASK)
    with pytest.raises(ValueError, match=r"fit_vb needs n_records.*fit_exact"):
        pnb.fit_vb(tables)
    naive = pnb.fit_naive(tables)
    total = max(round(float(np.asarray(tables.counts).sum((0, 2)).mean())), 0)
    assert float(naive.class_alpha.sum()) == pytest.approx(total + I)
