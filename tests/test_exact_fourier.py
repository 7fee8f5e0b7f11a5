"""Messages by tilted transforms are those of plain convolutions, and so is the way back."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import Case, path_of

from jaxprivnb.exact.dataset import dataset

N = 60
CASES = {
    "plain": Case((2, 2, 3), N, scale=2.0, prior=0.6),
    "steep": Case((2, 2, 3), N, scale=0.2, prior=1.0),
    "wide": Case((2, 1, 4), N, scale=500.0, prior=20.0),
    "Gaussian": Case((2, 2, 3), N, "Gaussian", 3.0, 0.5),
}
NAMES = ("whole-1", "whole-9", "windowed-3")


def sums(case):
    """(data, log w `[I, K, J, N + 1]`, log c `[I, K, N + 1]`) term by term."""
    data = dataset(*CASES[case].build())
    l = jnp.broadcast_to(jnp.arange(N + 1.0), (*data.anchor.shape, N + 1))
    log_w = np.asarray(data.log_weight(l, flat=False))
    log_c = np.zeros((*log_w.shape[:2], N + 1))
    for at in np.ndindex(log_c.shape[:2]):
        log_c[at] = functools.reduce(oracles.log_convolve, log_w[at])
    return data, log_w, log_c


@functools.cache
def messages(case, name):
    data, log_w, log_c = sums(case)
    tables, prior = CASES[case].build()
    path = path_of(name, tables, prior)
    found = jax.jit(lambda d: path.messages(d, None))(data)
    shift = found.log_shift[..., None]
    found = found._replace(log_c=found.log_c + shift, log_most=found.log_most + shift)
    return data, log_w, log_c, path, found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_messages_are_convolutions_or_not_known(case, name):
    _, _, log_c, _, found = messages(case, name)
    some = 0
    for i, first in enumerate(np.asarray(found.start, int)):
        n = first + np.arange(found.log_c.shape[-1])
        inside = n <= N
        expected = log_c[i][:, n[inside]]
        got, most = np.asarray(found.log_c)[i][:, inside], np.asarray(found.log_most)[i][:, inside]
        known = np.isfinite(got)
        some += known.sum()
        # Known entries are right to what their bound allows; the bound holds for all.
        assert np.all(most >= expected - 1e-11)
        off = np.abs(np.expm1(got[known] - expected[known]))
        assert np.all(off <= np.expm1(most[known] - got[known]) + 1e-11)
    assert some > 20


@pytest.mark.parametrize("case", CASES)
def test_many_tilts_know_every_count(case):
    _, _, log_c, _, found = messages(case, "whole-9")
    got = np.asarray(found.log_c)[..., : N + 1]
    if case != "steep":  # there every count needs a tilt of its own
        assert np.isfinite(got).all()
    known = np.isfinite(got)
    np.testing.assert_allclose(got[known], log_c[known], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_going_back_sums_over_the_cells_counts(name):
    _, log_w, log_c, path, found = messages("plain", name)
    start = np.asarray(found.start, int)
    z = np.random.default_rng(1).uniform(size=(1, *found.log_c.shape))
    n = start[:, None, None] + np.arange(found.log_c.shape[-1])
    some = (n <= N) & np.isfinite(found.log_c)
    # Only counts whose own bound says that they are known so well.
    sure = np.asarray(found.log_most - jnp.where(some, found.log_c, 0)) < 1e-10
    z = np.where(some & sure, z, 0)
    assert (z > 0).sum() > 20
    sums_ = path.pulled(found, jnp.asarray(z))
    means = np.asarray(path.mean_counts(found))
    I, K, J = log_w.shape[:3]
    laws, first = path.laws(found, jnp.asarray(z))
    for i, k, j in np.ndindex(I, K, J):
        others = functools.reduce(oracles.log_convolve, np.delete(log_w[i, k], j, 0))
        x = np.arange(N + 1) - float(sums_.origin[i, k, j])
        law, zeroth, one, two = np.zeros(N + 1), 0.0, 0.0, 0.0
        for r in np.flatnonzero(z[0, i, k]):
            n = start[i] + r
            l = np.arange(n + 1)
            p = np.exp(log_w[i, k, j, : n + 1] + others[n::-1] - log_c[i, k, n])
            law[: n + 1] += z[0, i, k, r] * p
            assert means[i, k * J + j, r] == pytest.approx((p * l).sum(), rel=1e-8, abs=1e-9)
        zeroth, one, two = law.sum(), (law * x).sum(), (law * x * x).sum()
        for got, expected in zip(sums_[:3], (zeroth, one, two), strict=True):
            assert float(got[0, i, k, j]) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        at = int(first[i, k * J + j]) + np.arange(laws.shape[-1])
        own = np.zeros(N + 1)
        own[at[at <= N]] = np.asarray(laws)[0, i, k * J + j][at <= N]
        np.testing.assert_allclose(own, law, atol=1e-10)


def test_a_flat_path_does_not_take_another_prior():
    tables, prior = CASES["plain"].build()
    path = dataclasses.replace(path_of("whole-1", tables, prior), flat=True)
    assert not bool(path.suits(dataset(tables, prior)))
    assert bool(path.suits(dataset(tables, jax.tree.map(jnp.ones_like, prior))))
