"""One line that tells a person something, wherever a posterior is looked at."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from cases import example_release, random_posterior

import jaxprivnb as pnb
from jaxprivnb.exact.prior import FittedPrior
from jaxprivnb.variational.fit import VariationalPosterior


def test_one_dataset():
    text = repr(pnb.fit_naive(example_release()))
    assert text == (
        "DirichletPosterior(2 classes x 2 features x 3 categories, "
        "P(y) = {a: 0.286 ± 0.117, b: 0.714 ± 0.117}, status SUCCESS)"
    )


def test_a_fits_own_figures():
    base = random_posterior(0)
    zero = jnp.zeros(())
    fit = VariationalPosterior(
        base.mask, base.status, base.class_alpha, base.feature_alpha,
        jnp.asarray(-12.5), jnp.int32(7), zero, zero, zero, zero,
    )  # fmt: skip
    assert "elbo=-12.5, iterations=7, status SUCCESS" in repr(fit)


def test_a_batch_counts_its_statuses():
    batch = random_posterior(1, batch=(2, 3))
    codes = np.zeros((2, 3), np.int32)
    codes[0, 1] = pnb.Status.BAD_INPUT
    text = repr(dataclasses.replace(batch, status=jnp.asarray(codes)))
    assert text == (
        "DirichletPosterior(2x3 datasets, 2 classes x 2 features x 3 categories, "
        "status 5 SUCCESS, 1 BAD_INPUT)"
    )
    assert "status none" in repr(random_posterior(1, batch=(0,)))


def test_many_classes_are_cut():
    fit = pnb.fit_naive(pnb.NoisyTables(np.ones((9, 1, 2)), 18, pnb.Laplace(1.0)))
    assert "5: 0.111 ± 0.059, ...}" in repr(fit)


def test_shapes_where_there_are_no_numbers():
    fit = random_posterior(0)
    seen = []
    jax.jit(lambda p: seen.append(repr(p)))(fit)
    jax.vmap(lambda p: seen.append(repr(p)) or 0)(random_posterior(0, batch=(2,)))
    seen += [
        repr(jax.eval_shape(lambda p: p, fit)),
        repr(jax.tree.map(lambda _: None, fit)),
    ]
    assert all("osterior(mask=" in text for text in seen)


def test_a_fitted_prior_does_not_print_its_trace():
    prior = pnb.Prior(jnp.ones(2), jnp.ones((2, 1, 2)))
    steps = jnp.linspace(-9.0, -3.5, 60)
    fields = {f.name: jnp.zeros((), jnp.int32) for f in dataclasses.fields(FittedPrior)}
    text = repr(FittedPrior(**(fields | {"prior": prior, "trace": steps})))
    assert "trace=float64[60]" in text
    assert "-9.0" not in text
