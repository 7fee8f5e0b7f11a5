"""A prior from the release itself: type-II maximum likelihood with one number a distribution.

P(Y) ~ Dirichlet(a_0, ..., a_0) and P(X_k | Y=i) ~ Dirichlet(a_k, ..., a_k) for every class i. With
t = log a, the K + 1 numbers maximise

    log P(m | exp t) - sum_k t_k^2 / (2 s^2):

log P(m) is exact, and the second term is the log density of a log-normal hyperprior with its centre
at the uniform prior, a = 1. It is weak, and decides where a release says little: the evidence of a
concentration may grow for ever towards infinity.

The slope of log P(m) in the prior is the posterior mean of what it would be if the counts were
known (Fisher's identity),

    Q(t) = sum E log (a_k)_n_ikj / n_ikj! - sum E log (J_k a_k)_n_i / n_i!
           + sum E log (a_0)_n_i / n_i!   - E log (I a_0)_N / N!,

over cells, blocks, classes and once, under the counts' posterior at t. Given that, Q is a sum of
functions of one t_k each. Its curvature is never less than the evidence's, which lacks what noise
took away: so the first step, Newton's for Q, is a short one. The next take the curvature from how
the slopes changed, which knows what noise took, and keep it between the hyperprior's and twice
Q's. A handful of passes through the evidence is enough, because the numbers are tied to each other
by little but the class counts.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, polygamma

from jaxprivnb._pytree import with_fields
from jaxprivnb.exact.aim import Aims
from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.fourier import Fourier
from jaxprivnb.exact.tree import upward
from jaxprivnb.status import Status
from jaxprivnb.tables import NoisyTables, Prior

LEARNED = "learned"
"""What asks for such a prior in the place of one."""
SPREAD = 2.0
"""s, of the hyperprior: 95% of it has concentrations of exp(-4) to exp(4), .02 to 55."""
CAP = 60
"""Passes through the evidence at most; a fit that needs them all has not learned."""
_LONGEST = 1.5
"""Of a step in t."""
_FURTHEST = 12.0
"""t stays so near to 0 that sums of concentrations stay finite numbers, in float32 too."""


class Climb(NamedTuple):
    """Where the ascent is."""

    t: jax.Array
    """Logs of concentrations, of P(Y) and then feature by feature, `[1 + K]`."""
    value: jax.Array
    """log P(m) less the hyperprior's term, scalar."""
    slope: jax.Array
    """Its gradient, `[1 + K]`."""
    curvature: jax.Array
    """What a step divides the slope by, `[1 + K]`."""
    passes: jax.Array
    """Through the evidence, int32."""
    settled: jax.Array
    """Whether no step is worth taking any more, bool."""


def learn(
    tables: NoisyTables, prior: Prior, path: Fourier, known: Aims | None = None
) -> tuple[Prior, jax.Array]:
    """(The prior that one valid dataset asks for, the status of the search); pure.

    Any status but success comes with the prior that was given.

    Args:
        tables: one release.
        prior: the uniform one, with the weights of N if there are any.
        path: by which the evidence is computed; not one for concentrations of 1 alone.
        known: where the class counts are expected; looked for if None.
    """
    K, dtype = tables.n_features, tables.counts.dtype
    eps = float(jnp.finfo(dtype).eps)
    near = eps**0.375 if dtype == jnp.float64 else 1e-2
    look = functools.partial(_look, tables, prior, path, known)
    begin = jnp.zeros(1 + K, dtype)
    # The first pass is that of a step which moves nothing, so that one program has one look.
    at = Climb(
        begin,
        value=jnp.full((), -jnp.inf, dtype),
        slope=jnp.zeros_like(begin),
        curvature=jnp.ones_like(begin),
        passes=jnp.zeros((), jnp.int32),
        settled=jnp.zeros((), bool),
    )

    def unfinished(at: Climb) -> jax.Array:
        return ~at.settled & (at.passes < CAP)

    def step(at: Climb) -> Climb:
        move = jnp.clip(at.slope / at.curvature, -_LONGEST, _LONGEST)
        t = jnp.clip(at.t + move, -_FURTHEST, _FURTHEST)
        move = t - at.t
        value, slope, most = look(t)
        # A fall within rounding is none.
        risen = value >= at.value - 16 * eps * (1 + jnp.abs(at.value))
        better = _finite(value, slope, most) & risen
        moved = jnp.abs(move) > eps
        secant = (at.slope - slope) / jnp.where(moved, move, 1)
        secant = jnp.where(at.passes == 0, most, jnp.where(moved, secant, at.curvature))
        fresh = jnp.clip(secant, SPREAD**-2, 2 * most)
        # After a fall a shorter step; one too short to see ends the search.
        found = Climb(t, value, slope, fresh, at.passes + 1, at.settled)
        back = at._replace(curvature=4 * at.curvature, passes=at.passes + 1)
        now = jax.tree.map(lambda a, b: jnp.where(better, a, b), found, back)
        return now._replace(settled=jnp.abs(now.slope / now.curvature).max() < near)

    end = lax.while_loop(unfinished, step, at)
    finite = _finite(end.value, end.slope, end.curvature)
    failed = jnp.where(finite, Status.MAX_ITERATIONS.value, Status.NON_FINITE.value)
    good = finite & end.settled
    status = jnp.where(good, Status.SUCCESS.value, failed).astype(jnp.int32)
    return symmetric(jnp.where(good, end.t, 0), prior), status


def symmetric(t: jax.Array, like: Prior) -> Prior:
    """The prior of logs of concentrations `[1 + K]`."""
    a = jnp.exp(t)
    return with_fields(
        like,
        class_=jnp.broadcast_to(a[0], like.class_.shape),
        feature=jnp.broadcast_to(a[1:, None], like.feature.shape),
    )


def _look(
    tables: NoisyTables, prior: Prior, path: Fourier, known: Aims | None, t: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(The value at t, its gradient, what Q and the hyperprior say of its curvature)."""
    up = upward(tables, symmetric(t, prior), path, known)
    blocks = jnp.broadcast_to(up.root.pmf[:, None], up.messages.log_c.shape)
    laws, first = path.laws(up.messages, blocks[None])
    counts = _Counts(laws[0], first, up.root.pmf, up.messages.start, up.root.n_records_pmf)
    once, twice = _complete(up.data, path, counts, jnp.exp(t))
    value = up.log_evidence - 0.5 * jnp.square(t / SPREAD).sum()
    most = jnp.maximum(-twice, 0) + SPREAD**-2
    return value, once - t / SPREAD**2, most


class _Counts(NamedTuple):
    """What is known of the counts."""

    law: jax.Array
    """P(n_ikj = l | m) for l = first + (0, ..., L - 1), `[I, C, L]`."""
    first: jax.Array
    """`[I, C]`."""
    pmf: jax.Array
    """P(n_i = n | m) for n = start + (0, ..., W - 1), `[I, W]`."""
    start: jax.Array
    """`[I]`."""
    n_records: Any
    """P(N | m) for N = sum start + (0, 1, ...), `[S]`; None if N is known."""


def _complete(
    data: Dataset, path: Fourier, counts: _Counts, a: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Q' and Q'' in t = log a, `[1 + K]` each."""
    feature, dtype = path.cells.feature, a.dtype
    I, J = data.a_class.size, data.real.sum(-1).astype(dtype)  # J is [I, K]
    if counts.n_records is None:
        N, N_pmf = data.n_records, jnp.ones(1, dtype)
    else:
        N, N_pmf = counts.start.sum(), counts.n_records
    # [2, I, C], [2, I, K], [2, I] and [2]: slopes in t are the same for a and for multiples of a.
    cells = _rising_slopes(counts.law, counts.first, a[1:][feature])
    blocks = _rising_slopes(counts.pmf[:, None], counts.start[:, None], J * a[1:])
    classes = _rising_slopes(counts.pmf, counts.start, a[0])
    whole = _rising_slopes(N_pmf, N, I * a[0])
    of_features = path.cells.table(cells).sum((1, 3)) - blocks.sum(1)
    of_class = classes.sum(-1) - whole
    first, second = jnp.concatenate([of_class[:, None], of_features], axis=-1)
    return first, second


def _rising_slopes(p: jax.Array, first: jax.Array, a: jax.Array) -> jax.Array:
    """E log (a)_l in log a, differentiated once and twice, `[2, ...]`.

    log (a)_l is a sum of log (a + r) over r < l: each r counts with the probability of l > r.

    Args:
        p: probabilities of l = first, first + 1, ..., `[..., S]`.
        first: broadcastable to `[...]`.
        a: the same.
    """
    more = lax.cumsum(p, axis=p.ndim - 1, reverse=True)  # P(l >= first + s)
    mass, above = more[..., 0], jnp.concatenate([more[..., 1:], 0 * more[..., :1]], axis=-1)
    r = first[..., None] + jnp.arange(p.shape[-1], dtype=p.dtype)
    share = a[..., None] / (a[..., None] + r)  # d log (a + r) / d log a
    once = (above * share).sum(-1) + mass * a * (digamma(first + a) - digamma(a))
    bent = jnp.square(a) * (polygamma(1, first + a) - polygamma(1, a))
    squares = (above * jnp.square(share)).sum(-1) - mass * bent
    return jnp.stack([once, once - squares])


def _finite(*xs: jax.Array) -> jax.Array:
    """Whether all numbers are finite, bool scalar."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in xs]))
