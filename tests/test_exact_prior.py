"""Type-II maximum likelihood climbs the exact evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from test_exact_fit import NOISES, problem

import jaxprivnb as pnb
from jaxprivnb.exact.evidence import log_evidence
from jaxprivnb.exact.fit import fit_exact
from jaxprivnb.exact.prior import fit_prior
from jaxprivnb.exact.window import place, whole


def test_gradient_in_the_prior_matches_brute_force():
    tables, prior, args = problem((2, (2, 3), 4), NOISES[0])
    layout = whole(4)
    where = place(tables, layout)
    slope = jax.jit(jax.grad(lambda p: log_evidence(tables, p, where, layout)))(prior)
    step = 1e-5

    def moved(which, index, by):
        a = [np.array(x, float) for x in (args[3], args[4])]
        a[which][index] += by
        return oracles.log_evidence(*args[:3], a[0], a[1], args[5])

    for which, index, got in (
        (0, (1,), slope.class_[1]),
        (1, (0, 1, 2), slope.feature[0, 1, 2]),
        (1, (1, 0, 0), slope.feature[1, 0, 0]),
    ):
        numeric = (moved(which, index, step) - moved(which, index, -step)) / (2 * step)
        assert float(got) == pytest.approx(numeric, rel=1e-6, abs=1e-8)


def test_recovers_concentrations_from_many_releases():
    truth = pnb.Prior(jnp.full(2, 4.0), jnp.full((2, 4, 2), 8.0))
    sim = pnb.simulate(
        jax.random.key(0),
        n_records=60,
        n_categories=(2,) * 4,
        noise=pnb.Laplace(0.5),
        shape=(60,),
        prior=truth,
    )
    found = fit_prior(sim.tables, steps=80, learning_rate=0.2)
    assert 5 < float(found.prior.feature[0, 0, 0]) < 13
    assert 2 < float(found.prior.class_[0]) < 8
    assert float(found.log_evidence) >= float(found.trace[0])
    assert float(found.log_evidence) == pytest.approx(float(found.trace.max()))
    total = jax.vmap(lambda t: fit_exact(t, found.prior).log_evidence)(sim.tables).sum()
    assert float(found.log_evidence) == pytest.approx(float(total), abs=1e-8)


def test_freer_priors_are_at_least_as_likely():
    sim = pnb.simulate(
        jax.random.key(1), n_records=60, n_categories=(2,) * 4, noise=pnb.Laplace(0.5)
    )
    options = {"steps": 60, "learning_rate": 0.2}
    tied = fit_prior(sim.tables, **options)
    free = fit_prior(sim.tables, tying="full", start=tied.prior, **options)
    assert float(free.log_evidence) >= float(tied.log_evidence)
    with pytest.raises(ValueError, match="tying"):
        fit_prior(sim.tables, tying="none")
