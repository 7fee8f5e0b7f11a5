"""Whether the totals fit N: exact tails, calibrated, and seen where N is wrong."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxprivnb as pnb
from jaxprivnb import totals

NOISES = [pnb.Laplace(1.0), pnb.Geometric(1.0), pnb.Gaussian(1.0)]
CELLS = np.array([6, 4, 16, 12])
COUNTS = np.array([[[5.0, 2], [3, 8], [9, 6]], [[4, 3], [6, 5], [8, 7]]])  # totals 14, 22 and 30


def table_noise(rng, noise, scale, cells):
    if isinstance(noise, pnb.Laplace):
        return rng.laplace(0, scale, cells).sum()
    if isinstance(noise, pnb.Gaussian):
        return rng.normal(0, scale, cells).sum()
    ups, downs = rng.geometric(-np.expm1(-1 / scale), (2, cells))
    return float((ups - downs).sum())


@pytest.mark.parametrize("b", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("M", [1, 2, 7])
def test_geometric_tails_are_those_of_the_convolution(b, M):
    x = np.arange(-400, 401)
    one = np.tanh(1 / (2 * b)) * np.exp(-np.abs(x) / b)
    law = one
    for _ in range(M - 1):
        law = np.convolve(law, one)
    for d in (1, 2, 5, 20, 60):
        expected = 2 * law[len(law) // 2 + d :].sum()
        found = totals._both_tails(NOISES[1], float(d), b, M)
        assert found == pytest.approx(min(1, expected), rel=1e-10)
    assert totals._both_tails(NOISES[1], 0.0, b, M) == 1


def test_laplace_tails_by_hand_and_as_the_limit_of_geometric_ones():
    tail = lambda x, M: totals._both_tails(NOISES[0], x, 1.0, M)  # noqa: E731
    for x in (0.1, 5.0, 200.0):
        assert tail(x, 1) == pytest.approx(np.exp(-x), rel=1e-12)
        # Two: the density is (1 + |x|) exp(-|x|) / 4.
        assert tail(x, 2) == pytest.approx((1 + x / 2) * np.exp(-x), rel=1e-12)
    b = 1e5
    for M in (3, 40):
        geometric = totals._both_tails(NOISES[1], 20 * b, b, M)
        assert geometric == pytest.approx(tail(20.0, M), rel=1e-3)
    assert tail(4 * np.sqrt(2 * 20_000), 20_000) == pytest.approx(2 * stats.norm.sf(4), rel=0.01)


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("scale", [np.full(4, 14.0), np.array([7.0, 14, 28, 9])], ids=["one", "by"])
def test_tail_probabilities_are_uniform_where_n_is_right(noise, scale):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(4000):
        off = np.array([table_noise(rng, noise, *pair) for pair in zip(scale, CELLS, strict=True)])
        together, alone = totals.questions(noise, off, scale, CELLS, np.zeros(4))
        both = totals.totals_p_value(noise, off, scale, CELLS, np.zeros(4))
        found.append((together, alone, both))
    together, alone, both = np.array(found).T
    if not isinstance(noise, pnb.Geometric):  # whole numbers have steps: larger, if anything
        assert stats.kstest(together, "uniform").pvalue > 0.01
        assert stats.kstest(alone, "uniform").pvalue > 0.01
    for level in (0.5, 0.1, 0.01):
        error = np.sqrt(level / 4000)
        assert 0.5 * level - 4 * error < np.mean(both <= level) < level + 4 * error


@pytest.mark.parametrize(
    "noise", [pnb.Laplace(0.07), pnb.Geometric([9.0, 9.0, 0.07]), pnb.Gaussian(0.1)]
)
def test_a_wrong_n_is_seen(noise):
    right = pnb.NoisyTables(COUNTS, 22, pnb.Laplace(3.0))
    assert right.n_records_p_value() > 0.01
    assert "is N right?" not in repr(right)
    wrong = pnb.NoisyTables(COUNTS, 22, noise)
    assert wrong.n_records_p_value() < totals.INCREDIBLE
    assert "is N right?" in repr(wrong)
    with pytest.warns(UserWarning, match="n_records does not fit the tables") as caught:
        fit = pnb.fit_exact(wrong)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "is N right?" in repr(fit)
    assert "is N right?" in fit.summary().heading()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heading = pnb.fit_exact(right).summary().heading()
    assert f"totals given N: p = {right.n_records_p_value():.2g}" in heading


@pytest.mark.parametrize("method", ["naive", "vb"])
def test_a_wrong_n_is_told_by_fits_that_keep_no_tables(method):
    fit = getattr(pnb, f"fit_{method}")
    right, wrong = (pnb.NoisyTables(COUNTS, 22, pnb.Laplace(b)) for b in (3.0, 0.07))
    with pytest.warns(UserWarning, match="n_records does not fit the tables") as caught:
        doubted = fit(wrong)
    assert caught[0].filename == __file__
    assert "is N right?" in repr(doubted)
    assert "is N right?" in doubted.summary().heading()
    heading = fit(right).summary().heading()
    assert f"totals given N: p = {right.n_records_p_value():.2g}" in heading


def test_a_shift_of_all_tables_that_none_shows_alone_is_seen():
    rng = np.random.default_rng(1)
    scale = np.full(30, 14.0)
    off = np.array([table_noise(rng, NOISES[0], 14.0, 6) for _ in range(30)]) + 50
    together, alone = totals.questions(NOISES[0], off, scale, np.full(30, 6), np.zeros(30))
    assert together < 1e-6 < 1e-3 < alone
    off -= off.mean()
    off[3] += 800  # and one table of other records, that the sum hides
    off[4:] -= 800 / 26
    together, alone = totals.questions(NOISES[0], off, scale, np.full(30, 6), np.zeros(30))
    assert alone < 1e-6 < 1e-3 < together


def test_rounding_of_float32_counts_is_no_evidence():
    counts = np.full((2, 1, 2), 25_000_000.4, np.float32)  # rounded to even numbers
    assert pnb.NoisyTables(counts, 100_000_000, pnb.Laplace(1e-3)).n_records_p_value() == 1


def test_nothing_is_said_where_nothing_is_known():
    batch = pnb.NoisyTables(np.stack([COUNTS] * 2), 22, pnb.Laplace(0.07))
    assert batch.n_records_p_value() is None
    seen = []

    @jax.jit
    def traced(counts):
        seen.append(pnb.NoisyTables(counts, 22, pnb.Laplace(0.07)).n_records_p_value())
        return counts

    traced(jnp.asarray(COUNTS))
    assert seen == [None]
