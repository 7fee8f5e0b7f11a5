"""A feature as super-parent: naive Bayes against features that depend on it, as a Bayes factor.

What is released is a table of every feature for each pair (y, a) of the class Y and a feature A,
which serves both models. In one, features are independent given Y and A: `fit_exact` with the pairs
as classes. In the other, naive Bayes', they are independent given Y alone, so that the rows of a
class share P(X_k | Y=y). Its evidence is a sum over tables as well: for two categories a row given
p = P(X_k=1 | Y=y) is a polynomial in p, and with Gauss-Legendre nodes p_q and weights w_q, enough
of them to be exact,

    C_yk(n_1, n_2) = sum_q w_q c_1(n_1 | p_q) c_2(n_2 | p_q),
    c_a(n | p) = sum_l binom(n, l) p^l (1 - p)^(n - l) f(m_1 - l) f(m_0 - (n - l)).

Records are simulated: readmissions to two wards, with features that depend on the ward, or do not.

    python bench/super_parent.py [--replicates 20] [--seed 0]
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from scipy.special import roots_legendre

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

N = 200
EPSILONS = (0.1, 0.3, 1.0)
PAIRS = np.array([0.36, 0.30, 0.12, 0.22])
"""P(Y, A): not readmitted in wards 0 and 1, readmitted in wards 0 and 1."""
GIVEN_BOTH = np.array(
    [[0.55, 0.30, 0.15], [0.25, 0.45, 0.40], [0.80, 0.35, 0.30], [0.40, 0.70, 0.65]]
)
"""P(emergency, insulin, smoker | Y, A), `[pairs, K]`."""


@partial(jax.jit, static_argnames="N")
def naive_evidence(m, b, N):
    """log P(m | naive Bayes) of tables m `[4, K, 2]` of the pairs (0, 0), (0, 1), (1, 0), (1, 1).

    The prior is uniform, of P(Y, A) and of every P(X_k | Y).
    """
    nodes, weights = roots_legendre(N // 2 + 1)
    log_p, log_q = np.log((1 + nodes) / 2), np.log((1 - nodes) / 2)
    n = jnp.arange(N + 1.0)
    log_f = -jnp.abs(m[..., None] - n) / b - jnp.log(2 * b) - gammaln(n + 1)
    l, rest = n, n[:, None] - n  # [n, l]
    inside = rest >= 0
    at = jnp.where(inside, rest, 0).astype(int)

    def row(f):
        """log c(n | p_q), `[Q, N + 1]`, from log f(m - l) - log l! of both cells `[2, N + 1]`."""
        both = jnp.where(inside, f[1] + f[0][at], -jnp.inf)
        given = lambda p, q: logsumexp(both + l * p + jnp.where(inside, rest, 0) * q, axis=-1)  # noqa: E731
        return jax.lax.map(lambda x: given(*x), (log_p, log_q)) + gammaln(n + 1)

    def pair(first, second):
        """log C(n_1, n_2), `[N + 1, N + 1]`."""
        x, y = row(first), row(second)
        tops = x.max(0), y.max(0)
        found = jnp.einsum("q,qn,qm->nm", weights / 2, jnp.exp(x - tops[0]), jnp.exp(y - tops[1]))
        return jnp.where(found > 0, jnp.log(found), -jnp.inf) + tops[0][:, None] + tops[1]

    def of_class(rows):
        """log H(n_1 + n_2), `[N + 1]`."""
        C = sum(pair(rows[0, k], rows[1, k]) for k in range(m.shape[1]))
        n_2 = jnp.where(inside, rest, 0).astype(int)
        return logsumexp(jnp.where(inside, C[jnp.arange(N + 1)[None], n_2], -jnp.inf), axis=-1)

    one, two = of_class(log_f[:2]), of_class(log_f[2:])
    tables = gammaln(N + 4.0) - gammaln(4.0) - gammaln(N + 1.0)  # how many class counts there are
    return logsumexp(one + two[::-1]) - tables


def records(key, depends, size):
    """True counts `[size, 4, K, 2]`."""
    rng = np.random.default_rng(key)
    given = GIVEN_BOTH
    if not depends:
        share = (PAIRS / PAIRS.reshape(2, 2).sum(1).repeat(2))[:, None]
        given = (share * given).reshape(2, 2, -1).sum(1).repeat(2, 0)
    n = rng.multinomial(N, PAIRS, size)
    ones = rng.binomial(n[..., None], given)
    return np.stack([n[..., None] - ones, ones], -1).astype(float)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cells = []
    for depends in (True, False):
        for epsilon in EPSILONS:
            b, size = 2 / epsilon, arguments.replicates
            seed = [arguments.seed, int(depends), round(100 * epsilon)]
            n = records(seed, depends, size)
            m = n + np.random.default_rng([*seed, 1]).laplace(scale=b, size=n.shape)
            tables = pnb.NoisyTables(m, np.full(size, float(N)), pnb.Laplace(b))
            fit = pnb.fit_many(tables, "exact")
            naive = np.asarray(jax.lax.map(lambda x, b=b: naive_evidence(x, b, N), jnp.asarray(m)))
            factor = (np.asarray(fit.log_evidence) - naive) / np.log(10)
            cells.append(
                {
                    "depends": depends,
                    "epsilon": epsilon,
                    "failed": int((np.asarray(fit.status) != 0).sum()),
                    "log10_factors": sorted(float(x) for x in factor),
                    "median": float(np.median(factor)),
                    "right": float(((factor > 0) == depends).mean()),
                }
            )
            print(cells[-1], flush=True)
    write("super_parent", {"seed": arguments.seed, "n_records": N, "cells": cells})


if __name__ == "__main__":
    main()
