"""NumPyro: the noise-aware model with counts relaxed to their normal approximation, NUTS and SVI.

    p ~ Dirichlet(1), q[i,k] ~ Dirichlet(1)
    n[i]   = N p[i] + sqrt(N) s(p, z)[i]                z, w standard normal
    n[i,k] = n[i] q[i,k] + sqrt(n[i]) s(q[i,k], w[i,k])
    m ~ Laplace(n, b)

s(p, z) = sqrt(p) z - p (sqrt(p) . z) has the covariance diag(p) - p p' of one multinomial draw. The
parametrisation is not centred, which mixes well when noise hides the counts. n[i] is kept at or
above `FLOOR`. Float32, NumPyro's default. NUTS: one chain of 500 + 1,000 steps a release. SVI: a
mean-field normal on the unconstrained space, 3,000 steps of Adam, 2,000 draws of the guide.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from peers.protocol import Answer, Method, Releases, from_draws, main

WARMUP, SAMPLES = 500, 1000
STEPS, GUIDE_DRAWS = 3000, 2000
FLOOR = 1e-2


def spread(p, z):
    """sqrt(p) z - p (sqrt(p) . z), along the last axis."""
    root = jnp.sqrt(p)
    return root * z - p * (root * z).sum(-1, keepdims=True)


def model(m, N, b):
    """The relaxed model of one release m `[I, K, J]`."""
    I, K, J = m.shape
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(I)))
    q = numpyro.sample("q", dist.Dirichlet(jnp.ones((I, K, J))).to_event(2))
    z = numpyro.sample("z", dist.Normal().expand([I]).to_event(1))
    w = numpyro.sample("w", dist.Normal().expand([I, K, J]).to_event(3))
    by_class = jnp.maximum(N * p + jnp.sqrt(N) * spread(p, z), FLOOR)[:, None, None]
    n = by_class * q + jnp.sqrt(by_class) * spread(q, w)
    numpyro.sample("m", dist.Laplace(n, b).to_event(3), obs=m)


def nuts_one(key, m, N, b):
    """Draws (p `[S, I]`, q `[S, I, K, J]`) and the share of divergent steps."""
    mcmc = MCMC(NUTS(model), num_warmup=WARMUP, num_samples=SAMPLES, progress_bar=False)
    mcmc.run(key, m, N, b, extra_fields=("diverging",))
    draws = mcmc.get_samples()
    return draws["p"], draws["q"], mcmc.get_extra_fields()["diverging"].mean()


def svi_one(key, m, N, b):
    """Draws of the fitted guide, and the loss at the end."""
    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=4))
    state = svi.init(key, m, N, b)
    state, losses = jax.lax.scan(lambda s, _: svi.update(s, m, N, b), state, None, length=STEPS)
    draws = guide.sample_posterior(
        jax.random.fold_in(key, 1), svi.get_params(state), sample_shape=(GUIDE_DRAWS,)
    )
    return draws["p"], draws["q"], losses[-100:].mean()


@functools.partial(jax.jit, static_argnames="one")
def batch(keys, m, N, b, one):
    """`one` for many releases."""
    return jax.vmap(one)(keys, m, N, b)


def effective(draws: np.ndarray) -> np.ndarray:
    """Effective samples of each number of one chain, draws `[S, ...]`."""
    return effective_sample_size(draws[None].astype(float))


def ess(p: np.ndarray, q: np.ndarray) -> dict[str, np.ndarray]:
    """Least and median effective samples over all P(Y) and P(X|Y), one of each a release."""
    found = [np.r_[effective(a).ravel(), effective(b).ravel()] for a, b in zip(p, q, strict=True)]
    return {
        "ess_min": np.array([x.min() for x in found]),
        "ess_median": np.array([np.median(x) for x in found]),
    }


def draw(releases: Releases, one) -> tuple[np.ndarray, ...]:
    """(p `[R, S, I]`, q `[R, S, I, K, J]`, a diagnostic `[R]`)."""
    single = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    keys = jax.random.split(jax.random.key(0), releases.size)
    found = batch(keys, *map(single, releases[:3]), one)
    return tuple(map(np.asarray, found))


def nuts(releases: Releases) -> Answer:
    """One chain a release, side by side."""
    p, q, diverging = draw(releases, nuts_one)
    return from_draws(p, q, {"diverging": diverging})


def nuts_with_ess(releases: Releases) -> Answer:
    """As `nuts`, with effective sample sizes: diagnostics are not part of the time of a fit."""
    p, q, diverging = draw(releases, nuts_one)
    return from_draws(p, q, {"diverging": diverging, **ess(p, q)})


def svi(releases: Releases) -> Answer:
    """One guide a release, side by side."""
    p, q, loss = draw(releases, svi_one)
    return from_draws(p, q, {"loss": loss})


PACKAGES = ("numpyro", "jax", "jaxlib", "numpy")
METHODS = {
    "NumPyro NUTS": Method(
        nuts, diagnosed=nuts_with_ess, check={"gentle": 0.012, "noisy": 0.03},
        packages=PACKAGES,
    ),
    "NumPyro SVI": Method(svi, check={"gentle": 0.02, "noisy": 0.05}, packages=PACKAGES),
}  # fmt: skip

if __name__ == "__main__":
    main(METHODS)
