"""private-pgm: mirror descent over the tree Y - X_k, with l2 and with l1 loss, known total.

Alone is the call a user makes, `MirrorDescent().estimate(...)` at its default of 1,000 iterations;
a batch is the same call under `jax.vmap` and `jax.jit`. All cells have the same noise, so all
measurements have unit weight. In float64, as the package asks for. A point estimate: no intervals.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from mbi import Domain, LinearMeasurement, estimation, marginal_loss  # noqa: E402
from peers.protocol import Answer, Method, Releases, main  # noqa: E402


def estimate(counts, n_records, norm):
    """(P(Y) `[I]`, P(X|Y) `[I, K, J]`) of one release."""
    I, K, J = counts.shape
    domain = Domain(["y", *(f"x{k}" for k in range(K))], [I, *[J] * K])
    measured = [LinearMeasurement(counts[:, k].ravel(), ("y", f"x{k}")) for k in range(K)]
    loss = marginal_loss.from_linear_measurements(measured, domain, norm=norm)
    model = estimation.MirrorDescent().estimate(domain, loss, known_total=n_records)
    joint = [model.project(("y", f"x{k}")).datavector().reshape(I, J) for k in range(K)]
    table = jnp.stack(joint, 1)
    rows = table.sum(-1, keepdims=True)
    by_class = table.sum((1, 2))
    q = jnp.where(rows > 0, table / jnp.where(rows > 0, rows, 1), 1 / J)
    return by_class / by_class.sum(), q


@functools.partial(jax.jit, static_argnames="norm")
def batch(counts, n_records, norm):
    """`estimate` of many releases."""
    return jax.vmap(functools.partial(estimate, norm=norm))(counts, n_records)


def fit(releases: Releases, norm: str) -> Answer:
    """Under `jax.vmap`."""
    found = batch(jnp.asarray(releases.counts), jnp.asarray(releases.n_records), norm)
    return Answer(*map(np.asarray, found))


def alone(releases: Releases, norm: str) -> Answer:
    """The package's own call."""
    found = estimate(jnp.asarray(releases.counts[0]), float(releases.n_records[0]), norm)
    return Answer(*(np.asarray(x)[None] for x in found))


METHODS = {
    f"private-pgm {norm}": Method(
        functools.partial(fit, norm=norm),
        alone=functools.partial(alone, norm=norm),
        check={"frequencies": tolerance},
        packages=("mbi", "jax", "jaxlib", "numpy"),
    )
    for norm, tolerance in (("l1", 5e-3), ("l2", 1e-3))
}

if __name__ == "__main__":
    main(METHODS)
