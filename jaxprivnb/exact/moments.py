"""Means and standard deviations of the parameters.

Given the counts, p_ikj is Beta with mean (l + a) / D, D = n_i + A. Write mu = E p and
e = l + a - mu D, so that E[e / D] = 0. Then

    Var p = mu (1 - mu) E[1 / (D + 1)] + (1 - 2 mu) E[e / (D (D + 1))] + E[e^2 / (D (D + 1))],

a sum without the difference E p^2 - mu^2, which leaves float32 nothing at N = 1e6. All of it comes
from two weights on the class's counts, r(n) = P(n_i = n | m) / (D (D + 1)) and (n - n_0) r(n).
Where mu is nearly 1 it is known by what the other cells leave, 1 - mu, which is their means' sum.
So are l and its variance, in which e^2 is a difference of the variances of l and n: where float32
would lose it, the largest cell's moments are those of its block's other cells together.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.exact.classes import Shared, class_counts, weighted
from jaxprivnb.exact.dataset import Dataset


class Moments(NamedTuple):
    """Means and standard deviations of the parameters."""

    class_mean: jax.Array
    """E[P(Y=i) | m], `[I]`."""
    class_sd: jax.Array
    """`[I]`."""
    feature_mean: jax.Array
    """E[P(X_k=j | Y=i) | m], `[I, K, J]`; masked cells are 0."""
    feature_sd: jax.Array
    """`[I, K, J]`."""


class Sums(NamedTuple):
    """sum_n z_q(n) E[x^p | n_i = n, m] with x = n_ikj - origin, p = 0, 1, 2: `[Q, I, K, J]`."""

    zeroth: jax.Array
    first: jax.Array
    second: jax.Array
    origin: jax.Array
    """Whole numbers near the mean counts, `[I, K, J]`."""
    largest: jax.Array | None = None
    """The cell of each block with the largest origin + a, int `[I, K]`."""
    cross: jax.Array | None = None
    """sum_n z_0(n) E[x_j x_j' | n_i = n, m] over all two different cells of a block but the largest
    one, `[I, K]`; both None where the digits of e^2 suffice without them."""


def feature_weights(data: Dataset, pmf: jax.Array, start: jax.Array) -> jax.Array:
    """r(n) and (n - n_0) r(n), `[2, I, K, W]`, from P(n_i = n | m) `[I, W]`; 0 at n = 0.

    A class without records has the prior's moments, which need no sums over counts; and under
    small concentrations r(0) would drown all others.
    """
    n = class_counts(start, pmf.shape[-1])
    D = jnp.where(n > 0, n, 1)[:, None] + data.A[..., None]
    r = jnp.where(n > 0, pmf, 0)[:, None] / (D * (D + 1))
    return jnp.stack([r, r * (n - _middle(pmf, n))[:, None]])


def feature_moments(
    data: Dataset, pmf: jax.Array, start: jax.Array, sums: Sums
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(Means, sds, largest relative error of a mass that should be its own), from both weights."""
    n = class_counts(start, pmf.shape[-1])
    n_0 = _middle(pmf, n)  # [I, 1]
    r, ry = feature_weights(data, pmf, start)
    y = (n - n_0)[:, None]
    R = r.sum(-1)[..., None]  # [I, K, 1]
    R1, R2 = ry.sum(-1)[..., None], (ry * y).sum(-1)[..., None]
    # What rounding did to the mass of a cell, it did to its moments alike.
    mended = jnp.where(sums.zeroth[0] > 0, R / jnp.where(sums.zeroth[0] > 0, sums.zeroth[0], 1), 1)
    x, xx, xy = sums.first[0] * mended, sums.second[0] * mended, sums.first[1] * mended
    a, A = data.a, data.A[..., None]
    D_0 = n_0[..., None] + A  # [I, K, 1]
    l_0 = sums.origin + a
    none = jnp.where(n == 0, pmf, 0).sum(-1)[:, None, None]  # P(n_i = 0 | m)
    mean = (D_0 + 1) * (l_0 * R + x) + l_0 * R1 + xy + none * a / A
    # e = away + x - mu y, with away = l_0 - mu D_0, from the side on which nothing cancels.
    only_real = lambda z: jnp.where(data.real, z, 0)  # noqa: E731
    other = 1 - jnp.eye(a.shape[-1], dtype=a.dtype)
    of_others = lambda z: jnp.matmul(  # noqa: E731
        only_real(z), other, precision=lax.Precision.HIGHEST
    )
    rest, rest_a, rest_0 = map(of_others, (mean, a, sums.origin))
    missing = n_0[..., None] - only_real(sums.origin).sum(-1, keepdims=True)
    far = mean > 0.5
    away = jnp.where(far, rest * D_0 - (rest_0 + rest_a) - missing, l_0 - mean * D_0)
    away_0 = jnp.where(far, rest * A - rest_a, a - mean * A)  # of e at n = 0
    none = none / (A * (A + 1))
    p, q = mean, rest
    if sums.largest is not None and sums.cross is not None:
        seen = far & (jnp.arange(a.shape[-1]) == sums.largest[..., None])  # from the others' side
        turn = lambda own, others: jnp.where(seen, others, own)  # noqa: E731
        p, q = turn(mean, rest), turn(rest, mean)
        away = turn(away, rest_0 + rest_a - rest * D_0)
        xx = turn(xx, of_others(xx) + sums.cross[..., None])
        x, xy = turn(x, of_others(x)), turn(xy, of_others(xy))
        away_0 = turn(away_0, -away_0)
    e = away * R + x - p * R1 + none * away_0
    ee = away * away * R + 2 * away * (x - p * R1) + xx - 2 * p * xy + p * p * R2
    ee = ee + none * jnp.square(away_0)
    inverse = (pmf[:, None] / (n[:, None] + A + 1)).sum(-1)[..., None]
    variance = p * q * inverse + (q - p) * e + ee
    alone = data.real.sum(-1, keepdims=True) == 1  # certain, which a sum is not
    mean = jnp.where(data.real, jnp.where(alone, 1, mean), 0)
    sd = jnp.sqrt(jnp.where(data.real & ~alone, jnp.maximum(variance, 0), 0))
    wrong = jnp.where(data.real, jnp.abs(mended - 1), 0).max()
    return mean, sd, jnp.maximum(wrong, jnp.abs(mean.sum(-1) - 1).max())


def class_moments(
    data: Dataset, pmf: jax.Array, start: jax.Array, together: Shared | None
) -> tuple[jax.Array, jax.Array]:
    """Means and sds of P(Y=i), `[I]` each.

    Args:
        data: one dataset.
        pmf: P(n_i = n | m), `[I, W]`.
        start: first counts of the windows, `[I]`.
        together: the class counts with N, where that is not known; else None.
    """
    if together is not None:
        return _class_moments_over_n(data, pmf, start, together)
    total = data.n_records + data.a_class.sum()
    n = class_counts(start, pmf.shape[-1])
    p = (n + data.a_class[:, None]) / total
    rest_a = jnp.where(jnp.eye(n.shape[0], dtype=bool), 0, data.a_class).sum(-1)
    rest = jnp.maximum(data.n_records - n + rest_a[:, None], 0) / total
    mean = (pmf * p).sum(-1)
    away = (n - _middle(pmf, n)) / total  # without the mean's own rounding
    away = away - (pmf * away).sum(-1, keepdims=True)
    spread = jnp.square(away) + p * rest / (total + 1)
    sd = jnp.sqrt((pmf * spread).sum(-1)) * float(pmf.shape[0] > 1)
    return mean, sd


def _class_moments_over_n(
    data: Dataset, pmf: jax.Array, start: jax.Array, together: Shared
) -> tuple[jax.Array, jax.Array]:
    """The same where N is summed over: a class is to N what a cell is to its class."""
    s, n = data.a_class.sum(), class_counts(start, pmf.shape[-1])
    N = start.sum() + jnp.arange(together.factor.shape[-1], dtype=start.dtype)
    n_0 = _middle(pmf, n)[:, 0]  # [I]
    N_0 = n_0.sum()
    D_0, y = N_0 + s, N - N_0
    r = 1 / ((N + s) * (N + s + 1))
    by_n = weighted(together, jnp.stack([r, y * r, y * y * r, 1 / (N + s + 1)]))  # [4, I, W]
    R, R1, R2, inverse = by_n.sum(-1)  # [I]
    x = n - n_0[:, None]
    X, XX, XY = (by_n[0] * x).sum(-1), (by_n[0] * x * x).sum(-1), (by_n[1] * x).sum(-1)
    l_0 = n_0 + data.a_class
    mean = (D_0 + 1) * (l_0 * R + X) + l_0 * R1 + XY
    away = l_0 - mean * D_0
    e = away * R + X - mean * R1
    ee = away * away * R + 2 * away * (X - mean * R1) + XX - 2 * mean * XY + mean * mean * R2
    variance = mean * (1 - mean) * inverse + (1 - 2 * mean) * e + ee
    alone = float(pmf.shape[0] > 1)
    return mean, jnp.sqrt(jnp.maximum(variance, 0)) * alone


def _middle(pmf: jax.Array, n: jax.Array) -> jax.Array:
    """A whole number near the mean class count, `[I, 1]`."""
    return jnp.round((pmf * n).sum(-1, keepdims=True))
