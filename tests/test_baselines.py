"""The naive estimator and the non-private posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxprivnb as pnb
from jaxprivnb.baselines import naive_probabilities

RAGGED = np.array([[True, True, True], [True, True, False]])


def slow_naive(counts, N, mask):
    """Clip, renormalise, one cell at a time."""
    n_classes, K, J = counts.shape
    clipped = np.zeros((n_classes, K, J))
    for i in range(n_classes):
        for k in range(K):
            for j in range(J):
                if mask[k, j]:
                    clipped[i, k, j] = min(max(counts[i, k, j], 0), N)
    t_class = np.full(n_classes, 1 / n_classes)
    if clipped.sum() > 0:
        t_class = np.array([clipped[i].sum() / clipped.sum() for i in range(n_classes)])
    t_feature = np.zeros((n_classes, K, J))
    for i in range(n_classes):
        for k in range(K):
            row = clipped[i, k]
            for j in range(J):
                if mask[k, j]:
                    t_feature[i, k, j] = row[j] / row.sum() if row.sum() else 1 / mask[k].sum()
    return t_class, t_feature


def random_tables(seed, dtype=np.float64, N=40):
    rng = np.random.default_rng(seed)
    counts = rng.normal(10, 25, (3, 2, 3)).astype(dtype)
    counts[0, 1] = -5.0  # a row that clipping empties
    return pnb.NoisyTables(counts, N, pnb.Laplace(10.0), RAGGED)


@pytest.mark.parametrize("seed", range(4))
def test_naive_equals_a_slow_loop(seed, dtype):
    tables = random_tables(seed, dtype)
    t_class, t_feature = slow_naive(np.asarray(tables.counts, np.float64), 40, RAGGED)
    tol = 10 * jnp.finfo(dtype).eps
    for got, expected in zip(naive_probabilities(tables), (t_class, t_feature), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=tol)
    rng = np.random.default_rng(seed)
    prior = pnb.Prior(rng.gamma(1.0, size=3), rng.gamma(1.0, size=(3, 2, 3)))
    fit = pnb.fit_naive(tables, prior)
    assert fit.class_alpha.dtype == fit.feature_alpha.dtype == dtype
    np.testing.assert_allclose(fit.class_alpha, prior.class_ + 40 * t_class, rtol=tol)
    pseudo = 40 * t_class[:, None, None] * t_feature
    np.testing.assert_allclose(
        fit.feature_alpha, np.where(RAGGED, prior.feature + pseudo, 0), rtol=tol
    )
    assert fit.status.dtype == jnp.int32
    assert int(fit.status) == pnb.Status.SUCCESS


def test_naive_without_records_is_the_prior():
    counts = np.random.default_rng(0).normal(0, 20_000, (3, 2, 3))
    fit = pnb.fit_naive(pnb.NoisyTables(counts, 0, pnb.Laplace(20_000.0), RAGGED))
    np.testing.assert_array_equal(fit.class_alpha, 1)
    np.testing.assert_array_equal(fit.feature_alpha, np.broadcast_to(RAGGED, (3, 2, 3)))


def test_all_counts_negative_is_uniform():
    tables = pnb.NoisyTables(-np.ones((3, 2, 3)), 40, pnb.Laplace(10.0), RAGGED)
    t_class, t_feature = naive_probabilities(tables)
    np.testing.assert_allclose(t_class, 1 / 3, rtol=1e-15)
    np.testing.assert_allclose(t_feature[0], [[1 / 3] * 3, [0.5, 0.5, 0.0]], rtol=1e-15)


def test_bayes_adds_counts_to_the_prior(dtype):
    counts = np.array([[[1, 2, 3], [4, 2, 9]], [[0, 0, 5], [5, 0, 9]]], dtype)  # 9s are masked
    prior = pnb.Prior(np.array([0.5, 2.0]), np.full((2, 2, 3), 0.25))
    fit = pnb.fit_bayes(counts, prior, RAGGED)
    assert fit.class_alpha.dtype == dtype
    np.testing.assert_array_equal(fit.class_alpha, [6.5, 7.0])
    np.testing.assert_array_equal(fit.feature_alpha, np.where(RAGGED, counts + 0.25, 0))
    assert int(fit.status) == pnb.Status.SUCCESS
    uniform = pnb.fit_bayes(np.rint(counts[:, :1]).astype(int))
    np.testing.assert_array_equal(uniform.class_alpha, [7.0, 6.0])


BAD = {
    "counts": lambda t, p: (t.counts.at[1, 0, 0, 0].set(jnp.nan), t.n_records, t.noise.scale, p),
    "infinite": lambda t, p: (t.counts.at[1, 0, 0, 0].set(jnp.inf), t.n_records, t.noise.scale, p),
    "n_records": lambda t, p: (t.counts, t.n_records.at[1].set(-3.0), t.noise.scale, p),
    "fractional": lambda t, p: (t.counts, t.n_records.at[1].set(2.5), t.noise.scale, p),
    "scale": lambda t, p: (t.counts, t.n_records, t.noise.scale.at[1].set(0.0), p),
    "prior": lambda t, p: (t.counts, t.n_records, t.noise.scale, p.at[1, 0].set(-1.0)),
}
batched_naive = jax.jit(
    jax.vmap(
        lambda m, N, b, a: pnb.fit_naive(
            pnb.NoisyTables(m, N, pnb.Laplace(b), RAGGED), pnb.Prior(a, jnp.ones_like(m))
        )
    )
)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_replicate_has_a_status_and_its_neighbours_do_not_notice(what, dtype):
    singles = [random_tables(seed, dtype) for seed in range(4)]
    tables = jax.tree.map(lambda *x: jnp.stack(x), *singles)
    prior = jnp.ones((4, 3), dtype)
    clean = batched_naive(tables.counts, tables.n_records, tables.noise.scale, prior)
    dirty = batched_naive(*BAD[what](tables, prior))
    np.testing.assert_array_equal(clean.status, 0)
    bad = pnb.Status.BAD_INPUT
    np.testing.assert_array_equal(dirty.status, [0, bad, 0, 0])
    others = np.array([0, 2, 3])
    for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_array_equal(np.asarray(a)[others], np.asarray(b)[others])


def test_bad_true_counts_in_a_batch():
    good = np.full((2, 2, 3), 4.0)
    negative, uneven, missing = (good.copy() for _ in range(3))
    negative[0, 0, 0] = -1.0
    uneven[0, 0, 0] = 6.0
    missing[0, 0, 0] = np.nan
    fit = jax.vmap(pnb.fit_bayes)(jnp.stack([good, negative, uneven, missing, good]))
    bad = pnb.Status.BAD_INPUT
    np.testing.assert_array_equal(fit.status, [0, bad, bad, bad, 0])
    np.testing.assert_array_equal(fit.class_alpha[4], pnb.fit_bayes(good).class_alpha)


cells = st.floats(-100, 200, allow_subnormal=False)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(cells, min_size=18, max_size=18),
    st.permutations(range(3)),
    st.permutations(range(2)),
    st.permutations(range(3)),
)
def test_naive_follows_relabelling(values, classes, features, categories):
    counts = np.asarray(values).reshape(3, 2, 3)
    mask = np.ones((2, 3), bool)
    fit = lambda c: pnb.fit_naive(pnb.NoisyTables(c, 40, pnb.Laplace(1.0), mask))  # noqa: E731
    plain = fit(counts)
    order = np.ix_(classes, features, categories)
    moved = fit(counts[order])
    np.testing.assert_allclose(moved.class_alpha, plain.class_alpha[np.array(classes)], rtol=1e-12)
    np.testing.assert_allclose(
        moved.feature_alpha, np.asarray(plain.feature_alpha)[order], rtol=1e-12
    )
    np.testing.assert_allclose(plain.class_alpha.sum(), 43, rtol=1e-12)
    # The same table with a masked category added says the same.
    padded = pnb.fit_naive(
        pnb.NoisyTables(
            np.pad(counts, ((0, 0), (0, 0), (0, 1)), constant_values=77.0),
            40,
            pnb.Laplace(1.0),
            np.pad(mask, ((0, 0), (0, 1))),
        )
    )
    np.testing.assert_allclose(padded.class_alpha, plain.class_alpha, rtol=1e-12)
    np.testing.assert_allclose(padded.feature_alpha[..., :3], plain.feature_alpha, rtol=1e-12)
