"""Data augmentation over the integer tables, in the manner of Ju, Awan, Gong and Rao (2022).

Their sampler alternates p given the records (Dirichlets) with an independent Metropolis step for
each record: propose the record afresh from the model given p, accept with the ratio of the noise's
densities before and after ("Data augmentation MCMC for Bayesian inference from privatized data",
NeurIPS 2022, arXiv:2206.00710). The noise sees the records through the tables only, and given the
tables all ways to put them together to records are equally likely. So the state here is the tables
n[i,k,j]: a step takes out a record drawn from them (its class with probability n[i] / N, its
category of feature k with n[i,k,j] / n[i]), proposes a new one, and accepts or not; N steps and the
Dirichlets make one sweep. It is the same chain with the assignment refreshed at every step, and its
stationary law is the exact posterior.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from peers.protocol import Answer, Method, Releases, from_draws, main

WARMUP, SAMPLES = 1000, 3000


def pick(weights, u):
    """Index along the last axis drawn with probability in proportion to weights; u in [0, 1)."""
    ladder = jnp.cumsum(weights, -1)
    return (ladder <= u[..., None] * ladder[..., -1:]).sum(-1).clip(max=weights.shape[-1] - 1)


def cell(n, i, x):
    """The tables `[I, K, J]` of one record: class i, categories x `[K]`."""
    I, _, J = n.shape
    here = (jnp.arange(I) == i)[:, None, None] & (jnp.arange(J) == x[:, None])[None]
    return here.astype(n.dtype)


def step(n, p, q, m, b, u):
    """One record out, one proposed: tables n `[I, K, J]`; u uniform `[2 K + 3]`."""
    K = n.shape[1]
    old_class = pick(n[:, 0].sum(-1), u[0])
    new_class = pick(p, u[1])
    old = pick(n[old_class], u[3 : 3 + K])
    new = pick(q[new_class], u[3 + K :])
    proposed = n + cell(n, new_class, new) - cell(n, old_class, old)
    gain = (jnp.abs(m - n) - jnp.abs(m - proposed)).sum() / b
    return jnp.where(jnp.log(u[2]) < gain, proposed, n)


def parameters(key, n):
    """Draws of p `[I]` and q `[I, K, J]` given the tables, uniform priors."""
    a, b = jax.random.split(key)
    normalise = lambda g: g / g.sum(-1, keepdims=True)  # noqa: E731
    p = normalise(jax.random.gamma(a, 1 + n[:, 0].sum(-1)))
    return p, normalise(jax.random.gamma(b, 1 + n))


def chain(key, m, N, b, most, warmup, samples):
    """Draws (p `[samples, I]`, q `[samples, I, K, J]`) and tables n, from the prior onwards.

    `most` is a bound of N that is known when compiling: uniforms are drawn for so many steps.
    """
    K = m.shape[1]
    start = jax.random.split(key, 3)
    p, q = parameters(start[0], jnp.zeros_like(m))

    def add(r, n):  # records drawn one by one given p and q, as in the authors' script
        i = pick(p, first[r, 0])
        return n + cell(n, i, pick(q[i], first[r, 1:]))

    first = jax.random.uniform(start[1], (most, K + 1), m.dtype)
    tables = jax.lax.fori_loop(0, N, add, jnp.zeros_like(m))

    def sweep(tables, key):
        one, two = jax.random.split(key)
        p, q = parameters(one, tables)
        u = jax.random.uniform(two, (most, 2 * K + 3), m.dtype)
        move = lambda r, n: step(n, p, q, m, b, u[r])  # noqa: E731
        return jax.lax.fori_loop(0, N, move, tables), (p, q)

    keys = jax.random.split(start[2], warmup + samples)
    tables, _ = jax.lax.scan(lambda t, k: (sweep(t, k)[0], None), tables, keys[:warmup])
    tables, (p, q) = jax.lax.scan(sweep, tables, keys[warmup:])
    return p, q, tables


@functools.partial(jax.jit, static_argnames=("most", "warmup", "samples"))
def batch(keys, m, N, b, most, warmup, samples):
    """Chains side by side."""
    one = functools.partial(chain, most=most, warmup=warmup, samples=samples)
    return jax.vmap(one)(keys, m, N, b)


def draw(releases: Releases) -> tuple[np.ndarray, np.ndarray]:
    """(p `[R, S, I]`, q `[R, S, I, K, J]`)."""
    keys = jax.random.split(jax.random.key(0), releases.size)
    single = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    N = jnp.asarray(releases.n_records, jnp.int32)
    m, b = single(releases.counts), single(releases.scale)
    p, q, _ = batch(keys, m, N, b, int(releases.n_records.max()), WARMUP, SAMPLES)
    return np.asarray(p), np.asarray(q)


def fit(releases: Releases) -> Answer:
    """One chain a release, side by side."""
    return from_draws(*draw(releases), {})


def fit_with_ess(releases: Releases) -> Answer:
    """As `fit`, with effective sample sizes, which are not part of the time of a fit."""
    from peers.adapters.relaxed import ess

    p, q = draw(releases)
    return from_draws(p, q, ess(p, q))


METHODS = {
    "data augmentation": Method(
        fit, diagnosed=fit_with_ess, check={"gentle": 0.012, "noisy": 0.03},
        packages=("numpyro", "jax", "jaxlib", "numpy"),
    )
}  # fmt: skip

if __name__ == "__main__":
    main(METHODS)
