"""The common face of a posterior, on Dirichlet posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from cases import random_posterior

import jaxprivnb as pnb
from jaxprivnb.posterior import DirichletPosterior


def marginal(alpha):
    alpha = np.asarray(alpha, np.float64)
    others = alpha.sum(-1, keepdims=True) - alpha
    return scipy.stats.beta(np.where(alpha > 0, alpha, 1), others), alpha > 0


def test_means_sds_and_intervals_against_scipy(dtype):
    posterior = random_posterior(0, dtype)
    tol = 1e-10 if dtype == np.float64 else 2e-5
    for which, alpha in (("class", posterior.class_alpha), ("feature", posterior.feature_alpha)):
        beta, real = marginal(alpha)
        lower, upper = getattr(posterior, f"{which}_interval")(0.9)
        median = getattr(posterior, f"{which}_quantile")(0.5)
        cdf = getattr(posterior, f"{which}_cdf")(jnp.full_like(alpha, 0.3))
        mean, sd = getattr(posterior, f"{which}_mean"), getattr(posterior, f"{which}_sd")
        assert {x.dtype for x in (lower, upper, median, cdf, mean, sd)} == {dtype}
        for got, expected in (
            (mean, beta.mean()),
            (sd, beta.std()),
            (lower, beta.ppf(0.05)),
            (upper, beta.ppf(0.95)),
            (median, beta.ppf(0.5)),
        ):
            np.testing.assert_allclose(got, np.where(real, expected, 0), rtol=tol)
        np.testing.assert_allclose(cdf, np.where(real, beta.cdf(0.3), 1), rtol=10 * tol)


def test_the_default_interval_is_95_percent():
    posterior = random_posterior(0)
    np.testing.assert_array_equal(posterior.class_interval()[0], posterior.class_interval(0.95)[0])


def test_draws(dtype):
    posterior = random_posterior(1, dtype)
    n = 20_000
    p_class, p_feature = posterior.sample(jax.random.key(3), n)
    assert p_class.shape == (n, 2)
    assert p_feature.shape == (n, 2, 2, 3)
    assert p_class.dtype == p_feature.dtype == dtype
    for draws, mean, sd in (
        (p_class, posterior.class_mean, posterior.class_sd),
        (p_feature, posterior.feature_mean, posterior.feature_sd),
    ):
        draws, mean, sd = (np.asarray(x, np.float64) for x in (draws, mean, sd))
        np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
        assert (np.abs(draws.mean(0) - mean) <= 4.5 * sd / np.sqrt(n)).all()
        squares = (draws - mean) ** 2
        assert (np.abs(squares.mean(0) - sd**2) <= 4.5 * squares.std(0) / np.sqrt(n)).all()
    # Blocks are drawn independently of each other.
    r = np.corrcoef(np.asarray(p_class[:, 0]), np.asarray(p_feature[:, 0, 0, 0]))[0, 1]
    assert abs(r) < 4.5 / np.sqrt(n)


def by_hand(posterior, x):
    """P(Y | x) from the means, one feature at a time."""
    p_class, p_feature = np.asarray(posterior.class_mean), np.asarray(posterior.feature_mean)
    joint = p_class.astype(np.float64).copy()
    for i in range(len(joint)):
        for k, category in enumerate(x):
            if category >= 0:
                joint[i] *= p_feature[i, k, category]
    return joint / joint.sum()


def test_predictions_by_hand(dtype):
    posterior = random_posterior(2, dtype)
    x = np.array([[0, 0], [2, 1], [-1, 1], [1, -1], [-1, -1]])
    got = posterior.predict_proba(x)
    assert got.dtype == dtype
    expected = [by_hand(posterior, record) for record in x]
    np.testing.assert_allclose(got, expected, rtol=20 * jnp.finfo(dtype).eps)
    np.testing.assert_allclose(got[-1], posterior.class_mean, rtol=1e-5)
    np.testing.assert_allclose(posterior.predict_proba(x[1]), got[1], rtol=1e-5)
    assert posterior.predict_proba(x.reshape(5, 1, 2)).shape == (5, 1, 2)
    for kind in (np.int8, np.uint8, np.int32):
        np.testing.assert_array_equal(posterior.predict_proba(x[:2].astype(kind)), got[:2])


def test_hundreds_of_features_do_not_underflow():
    K = 2000
    posterior = DirichletPosterior(
        jnp.ones((K, 2), bool),
        jnp.int32(0),
        jnp.ones(2),
        jnp.tile(jnp.asarray([1e-3, 1.0]), (2, K, 1)),
    )
    np.testing.assert_allclose(posterior.predict_proba(np.zeros(K, int)), [0.5, 0.5], rtol=1e-9)


def test_categories_that_tracing_hides_give_nan():
    posterior = random_posterior(2)
    predict = jax.jit(posterior.predict_proba)
    assert np.isnan(predict(jnp.asarray([5, 0]))).all()
    assert np.isnan(predict(jnp.asarray([0, 2]))).all()  # a masked category
    np.testing.assert_allclose(predict(jnp.asarray([2, 1])), by_hand(posterior, [2, 1]), rtol=1e-12)


def test_a_batch_is_a_loop_of_singles():
    batch = (2, 2)
    posterior = random_posterior(4, batch=batch)
    assert posterior.batch_shape == batch
    x = np.array([[0, 1], [2, -1]])
    key = jax.random.key(9)
    whole = [
        posterior.class_mean,
        posterior.feature_sd,
        *posterior.feature_interval(0.8),
        posterior.predict_proba(x),
        *posterior.sample(key, 5),
    ]
    for r, index in enumerate(np.ndindex(*batch)):
        one = jax.tree.map(lambda a, index=index: a[index], posterior)
        single = [
            one.class_mean,
            one.feature_sd,
            *one.feature_interval(0.8),
            one.predict_proba(x),
            *one.sample(jax.random.fold_in(key, r), 5),
        ]
        for b, s in zip(whole, single, strict=True):
            assert b[index].shape == s.shape
            np.testing.assert_allclose(b[index], s, rtol=1e-12)


def test_replicates_draw_independently():
    one = random_posterior(4)
    copies = jax.tree.map(lambda a: jnp.broadcast_to(a, (2, 2, *a.shape)), one)
    draws, _ = copies.sample(jax.random.key(0), 5)
    draws = np.asarray(draws[..., 0]).ravel()
    assert len(np.unique(draws)) == draws.size


def test_an_empty_batch_and_no_draws():
    empty = random_posterior(4, batch=(0,))
    assert empty.predict_proba([0, 1]).shape == (0, 2)
    assert random_posterior(4).sample(jax.random.key(0), 0)[1].shape == (0, 2, 2, 3)


def test_the_face_of_the_base_class_promises_nothing():
    from jaxprivnb.posterior import Posterior

    with pytest.raises(TypeError, match=r"abstract.*class_mean.*feature_marginal.*sample"):
        Posterior(jnp.ones((1, 2), bool), jnp.int32(0))
    assert isinstance(random_posterior(0), Posterior)
    assert pnb.Status(int(random_posterior(0).status)) is pnb.Status.SUCCESS
    assert [int(status) for status in pnb.Status] == list(range(8))
    assert all(status.sentence.endswith(".") for status in pnb.Status)
