"""What the benches of the open questions compute that the package does not."""

import itertools
import math
import sys
from pathlib import Path

import jax
import numpy as np
import oracles
import pytest
from scipy.special import betaln, comb, logsumexp

import jaxprivnb as pnb

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))


def test_the_evidence_of_naive_bayes_with_a_super_parent():
    from super_parent import naive_evidence

    N, b, K = 3, 1.7, 1
    m = np.random.default_rng(0).normal(1, 1.5, (4, K, 2))
    log_f = lambda x: -abs(x) / b - math.log(2 * b)  # noqa: E731
    found = []
    for n in oracles.compositions(N, 4):
        start = -math.log(math.comb(N + 3, 3))
        for split in itertools.product(*(range(x + 1) for x in n)):
            weight = start
            for i, (l, total) in enumerate(zip(split, n, strict=True)):
                weight += math.log(comb(total, l))
                weight += log_f(m[i, 0, 0] - l) + log_f(m[i, 0, 1] - (total - l))
            for y in (0, 2):
                ones = split[y] + split[y + 1]
                weight += betaln(1 + ones, 1 + n[y] + n[y + 1] - ones)
            found.append(weight)
    with jax.enable_x64(True):
        assert float(naive_evidence(m, b, N)) == pytest.approx(logsumexp(found), rel=1e-12)


@pytest.mark.slow
def test_the_free_bound_is_between_the_papers_and_the_evidence_and_right():
    from ladder import climb, in_logs

    N, b = 24, 6.0
    tables = pnb.simulate(
        jax.random.key(0), n_records=N, n_categories=(2, 2), noise=pnb.Laplace(b), shape=(3,)
    ).tables
    vb, exact = (pnb.fit_many(tables, name) for name in ("vb", "exact"))
    m = np.asarray(tables.counts)
    end = climb(vb, m, np.full(3, b), N)
    assert end.done.all()
    assert end.fall.max() < 1e-10
    np.testing.assert_allclose(in_logs(end.at, m, np.full(3, b), N), end.bound, atol=1e-8)
    assert (end.bound > np.asarray(vb.elbo)).all()
    assert (end.bound < np.asarray(exact.log_evidence)).all()
