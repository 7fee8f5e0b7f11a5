"""What several test modules look at: datasets, paths that can fit them, posteriors, a release."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxprivnb as pnb
from jaxprivnb.exact import plan
from jaxprivnb.exact.aim import offsets_for
from jaxprivnb.exact.closed import Closed
from jaxprivnb.exact.windows import bucket
from jaxprivnb.posterior import DirichletPosterior
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.privacy.record import Guarantee, Release

TILTS = (1, 3, 9)
PATHS = ("closed", *(f"{kind}-{m}" for kind in ("whole", "windowed") for m in TILTS))

NOISES = [pnb.Laplace(1.3), pnb.Geometric(0.9), pnb.Gaussian(1.7)]
SHAPES = [(2, (2, 3), 6), (3, (2, 2, 2), 3), (3, (3, 1), 4)]
SMALL = [(SHAPES[0], NOISES[0]), (SHAPES[1], NOISES[2]), (SHAPES[2], NOISES[0])]
"""Every shape, under some noise."""


def path_of(name, tables, prior):
    """The path of that name for one dataset or a batch; None if it does not take it.

    Windowed ones hold three quarters of 0..N, or all of it where that is little.
    """
    N = plan.largest(tables.n_records)
    whole = plan.choose(tables, prior, max_records=N)
    if name == "closed":
        return whole if isinstance(whole, Closed) else None
    kind, tilts = name.split("-")
    path = dataclasses.replace(whole.questions, tilts=int(tilts))
    if kind == "whole":
        return path
    window = bucket(0.75 * (N + 1))
    length = max(bucket(2 * window), path.length // 2)
    return dataclasses.replace(
        path, whole=False, length=length, window=window, offsets=offsets_for(N)
    )


def stack(problems):
    """A batch of pytrees of one structure."""
    return jax.tree.map(lambda *x: jnp.stack(x), *problems)


def problem(shape, noise, seed=0, prior=None):
    """Tables of a size to enumerate, their prior, and the arguments of an oracle.

    Args:
        shape: (number of classes, categories of every feature, N).
        noise: of the tables.
        seed: of counts and concentrations.
        prior: every concentration; drawn from .3 to 3 if None.
    """
    I, sizes, N = shape
    rng = np.random.default_rng(seed)
    full = (I, len(sizes), max(sizes))
    mask = np.arange(max(sizes)) < np.array(sizes)[:, None]
    counts = np.where(mask, rng.normal(N / 4, 2, full), 0.0)
    if isinstance(noise, pnb.Geometric):
        counts = np.round(counts)
    a, alpha = rng.uniform(0.3, 3, I), rng.uniform(0.3, 3, full)
    if prior is not None:
        a, alpha = np.full(I, float(prior)), np.full(full, float(prior))
    tables = pnb.NoisyTables(counts, N, noise, mask)
    by_cell = jax.tree.map(lambda s: s[:, None] if s.ndim else s, noise)
    log_prob = lambda x: np.asarray(by_cell.log_prob(jnp.asarray(x)))  # noqa: E731
    return tables, pnb.Prior(a, alpha), (counts, N, log_prob, a, alpha, mask)


class Case(NamedTuple):
    """A dataset too large to enumerate, from a simulation with noise of a known scale."""

    shape: tuple = (2, 3, 3)
    """I, K, J."""
    N: int = 120
    noise: str = "Laplace"
    scale: float = 2.0
    prior: float = 1.0
    """Every concentration of the fit."""
    contradiction: float = 0.0
    """Scales by which the first two tables disagree about the first class."""
    seed: int = 0

    def build(self, dtype=np.float64):
        """(tables, prior)."""
        rng = np.random.default_rng(self.seed)
        I, K, J = self.shape
        n_class = rng.multinomial(self.N, rng.dirichlet(np.full(I, 2.0)))
        p = rng.dirichlet(np.full(J, 1.5), (I, K))
        n = np.stack([rng.multinomial(n_class[i], p[i]) for i in range(I)]).astype(float)
        if self.noise == "Gaussian":
            x = rng.normal(0, self.scale, n.shape)
        elif self.noise == "Laplace":
            x = rng.laplace(0, self.scale, n.shape)
        else:
            q = -np.expm1(-1 / self.scale)
            x = rng.geometric(q, n.shape) - rng.geometric(q, n.shape)
        m = n + x
        apart = np.round(self.contradiction * self.scale / 2)
        m[0, 0, 0] += apart
        m[0, 1 % K, -1] -= apart
        noise = getattr(pnb, self.noise)(jnp.asarray(self.scale, dtype))
        tables = pnb.NoisyTables(jnp.asarray(m, dtype), self.N, noise)
        return tables, pnb.Prior.symmetric(tables, self.prior)


MASK = np.array([[True, True, True], [True, True, False]])


def random_posterior(seed, dtype=np.float64, batch=()):
    """A Dirichlet posterior of two classes and features of three and two categories."""
    rng = np.random.default_rng(seed)
    feature = rng.gamma(2.0, 3.0, (*batch, 2, 2, 3)) + 0.2
    return DirichletPosterior(
        mask=jnp.asarray(np.broadcast_to(MASK, (*batch, 2, 3))),
        status=jnp.zeros(batch, jnp.int32),
        class_alpha=jnp.asarray(rng.gamma(2.0, 3.0, (*batch, 2)).astype(dtype)),
        feature_alpha=jnp.asarray(np.where(MASK, feature, 0).astype(dtype)),
    )


def example_release(name="sex", epsilon=1.0):
    """A release of two features, without a look at any record."""
    domain = Domain(Column("y", ("a", "b")), (Column(name, ("f", "m")), Column("z", (0, 1, 2))))
    promise = Guarantee("epsilon", epsilon, epsilon, (epsilon / 2,) * 2, (4 / epsilon,) * 2)
    tables = [np.array([[3, -1], [5, 7]]), np.array([[1, 2, 3], [4, 5, 6]])]
    return Release.assemble(tables, None, 12, domain, promise, {"jaxprivnb": "0"})


SPEC = """\
name = "small"
seed = 7

[grid]
n_records = [50, 100]
epsilon_per_table = [0.1, 1]
n_features = [2, 3]

[replicates]
parameters = 3
datasets = 2

[methods.naive]
[methods.bayes]
"""
"""A small study."""
