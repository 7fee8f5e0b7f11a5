"""Type-II maximum likelihood climbs the exact evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import NOISES, Case, problem

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_exact
from jaxprivnb.exact.prior import fit_prior


def test_gradient_in_the_prior_matches_brute_force():
    tables, prior, args = problem((2, (2, 3), 4), NOISES[0])
    slope = jax.grad(lambda p: fit_exact(tables, p, max_records=4).log_evidence)(prior)
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


def test_a_bad_release_is_left_out_alone():
    sim = pnb.simulate(
        jax.random.key(2), n_records=20, n_categories=(2,), noise=pnb.Laplace(0.5), shape=(60,)
    )
    good = np.delete(np.arange(60), 7)
    one = sim.tables
    counts = one.counts.at[7, 0, 0, 0].set(jnp.nan)
    bad = pnb.NoisyTables(counts, one.n_records, one.noise, one.mask)
    found = fit_prior(bad, steps=3)
    assert found.status == pnb.Status.SUCCESS
    assert found.release_status[7] == pnb.Status.BAD_INPUT
    assert not found.release_status[good].any()
    assert 0 <= float(found.lost_mass) < 1e-10
    rest = (fit_exact(jax.tree.map(lambda x, r=r: x[r], one), found.prior) for r in good)
    total = sum(float(fit.log_evidence) for fit in rest)
    assert float(found.log_evidence) == pytest.approx(total, rel=1e-12)
    assert np.isfinite(found.trace).all()


def test_tables_that_contradict_each_other_have_the_evidence_of_fit_exact():
    tables, _ = Case((2, 2, 3), 60, scale=1.0, contradiction=60.0).build()
    found = fit_prior(tables, steps=2)
    exact = fit_exact(tables, found.prior)
    assert found.status == found.release_status == exact.status
    assert float(found.log_evidence) == pytest.approx(float(exact.log_evidence), rel=1e-9)
    assert float(found.lost_mass) < 1e-10


def test_nothing_to_learn_from_is_a_status():
    tables, _ = Case((2, 2, 2), 20).build()
    bad = jax.tree.map(lambda x: x[None], tables)
    bad = pnb.NoisyTables(bad.counts * jnp.nan, bad.n_records, bad.noise)
    found = fit_prior(bad, steps=1)
    assert found.status == pnb.Status.BAD_INPUT
    assert found.lost_mass == 0
    assert found.log_evidence == -jnp.inf
