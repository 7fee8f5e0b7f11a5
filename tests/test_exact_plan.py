"""Which path is chosen, and the wider ones after it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.exact import plan
from jaxprivnb.exact.closed import Closed
from jaxprivnb.exact.fourier import Fourier

PAIRS = np.ones((2, 5, 2))


def chosen(tables, prior=None, **options):
    return plan.choose(tables, pnb.Prior.uniform(tables) if prior is None else prior, **options)


def test_the_closed_form_only_where_it_holds():
    tables = pnb.NoisyTables(PAIRS, 31, pnb.Laplace(3.0))
    assert isinstance(chosen(tables), Closed)
    assert isinstance(chosen(pnb.NoisyTables(PAIRS, 31, pnb.Geometric(3.0))), Closed)
    assert isinstance(chosen(pnb.NoisyTables(PAIRS, 31, pnb.Gaussian(3.0))), Fourier)
    assert isinstance(chosen(tables, pnb.Prior.symmetric(tables, 0.5)), Fourier)
    assert isinstance(chosen(pnb.NoisyTables(np.ones((2, 2, 3)), 31, pnb.Laplace(3.0))), Fourier)
    mask = np.array([[True, True]] * 4 + [[True, False]])
    assert isinstance(chosen(pnb.NoisyTables(PAIRS, 31, pnb.Laplace(3.0), mask)), Fourier)


def test_a_traced_prior_is_not_known_to_be_flat():
    tables = pnb.NoisyTables(PAIRS, 31, pnb.Laplace(3.0))
    traced = []
    jax.jit(lambda a: traced.append(plan.is_flat(pnb.Prior(a[:, 0, 0], a))))(jnp.ones((2, 5, 2)))
    assert traced == [False]
    assert plan.is_flat(pnb.Prior.uniform(tables))


def test_programs_are_few():
    paths = {chosen(pnb.NoisyTables(PAIRS, N, pnb.Laplace(20.0))) for N in range(40, 500)}
    assert len(paths) <= 24


def test_counts_do_not_decide():
    rng = np.random.default_rng(0)
    tables = [pnb.NoisyTables(rng.normal(100, 1000, (2, 3, 3)), 3000, pnb.Laplace(4.0))
              for _ in range(3)]  # fmt: skip
    assert len({chosen(t) for t in tables}) == 1


def test_max_records_holds_that_many():
    tables = pnb.NoisyTables(np.ones((2, 2, 3)), 31, pnb.Laplace(3.0))
    path = chosen(tables, max_records=1000)
    assert path.whole
    assert path.window > 1000
    assert chosen(tables, max_records=5).window > 31


def test_widening_ends_in_the_whole_under_many_tilts():
    tables = pnb.NoisyTables(np.full((2, 2, 3), 300.0), 2000, pnb.Laplace(2.0))
    prior = pnb.Prior.uniform(tables)
    first = chosen(tables)
    assert not first.whole
    wider = list(plan.wider_than(first, tables, prior))
    assert wider[-1].whole
    assert wider[-1].window > 2000
    for path, last in zip(wider[1:], wider[:-1], strict=False):
        assert path.window >= last.window
        assert path.tilts >= last.tilts
    assert wider[-1].tilts > 9


def test_too_much_memory_is_refused_before_it_is_taken():
    tables = pnb.NoisyTables(np.ones((2, 20, 10)), 10**9, pnb.Laplace(1e6))
    with pytest.raises(MemoryError, match="GiB"):
        chosen(tables)
    with pytest.raises(ValueError, match="n_records"):
        chosen(pnb.NoisyTables(np.ones((2, 2, 2)), 2**40, pnb.Laplace(1.0)))
