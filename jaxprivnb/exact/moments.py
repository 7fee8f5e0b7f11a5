"""Posterior marginals and moments, as derivatives of log P(m)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxprivnb.exact import filters
from jaxprivnb.exact.convolve import align, slide, truncated
from jaxprivnb.exact.evidence import (
    Blocks,
    blocks,
    cell_counts,
    class_counts,
    log_class_messages,
    log_most,
    log_total,
    log_weights,
    normalise,
)
from jaxprivnb.exact.flat import FlatBlocks, flat_blocks
from jaxprivnb.exact.outside import log_share, outside, reversed_last
from jaxprivnb.exact.weights import log_rising, log_rising_window
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables, Prior


class Pass(NamedTuple):
    """One pass up the tree and its derivative at the root."""

    log_w: jax.Array
    """log w_ikj(l), `[I, K, J, cell window]`."""
    blocks: Blocks
    """log c_ik(n) and its underflow floor."""
    log_h: jax.Array
    """log h_i(n), `[I, class window]`."""
    log_total: jax.Array
    """log [h_1 * ... * h_I](N), scalar."""
    log_evidence: jax.Array
    """log P(m), scalar."""
    class_count_pmf: jax.Array
    """P(n_i = n | m), `[I, class window]`."""
    log_h_most: jax.Array | None = None
    """Log of a bound on h_i(n) with every c_ik(n) raised by its floor, if it is at hand without
    another look at all of log c; else None."""
    log_beyond: jax.Array | None = None
    """Log of a bound on sum of h_i(n) over the n outside the class's window, `[I]`, if all h_i(n)
    were computed; else None."""


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


def upward(tables: NoisyTables, prior: Prior, place: Placement, layout: Layout) -> Pass:
    """All messages, the evidence, and P(n_i = n | m) = d log P / d log h_i(n)."""
    log_w = log_weights(tables, prior, place, layout)
    if layout.filters:
        found = filters.chains(filters.kernels(tables, layout.filters), layout.filters)
        log_c = filters.blocks(found, place, layout)
    else:
        log_c = blocks(log_w, place, layout)
    return _to_the_root(log_w, log_c, tables, prior, place, layout)


Expect = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""(q, r) -> (sum_n q(n) E[l + a | n], sum_n r(n) E[(l + a)(l + a + 1) | n]), from `[I, K, class
window]` to `[I, K, J]`, or to `[I, K, 1]` for the first cell of two."""


def upward_and_moments(
    tables: NoisyTables, prior: Prior, place: Placement, layout: Layout, *, flat: bool = False
) -> tuple[Pass, Moments]:
    """`upward`, and from its messages, without computing them again, `moments`.

    Args:
        tables: one dataset.
        prior: its prior.
        place: where the windows are.
        layout: how long they are.
        flat: the weights of all cells are known to be geometric; see `fit.is_flat`.
    """
    log_w = log_weights(tables, prior, place, layout)
    if layout.filters:
        kernel = filters.kernels(tables, layout.filters)
        chains = filters.chains(kernel, layout.filters)
        log_c = filters.blocks(chains, place, layout)
        up = _to_the_root(log_w, log_c, tables, prior, place, layout)
        up = up._replace(log_beyond=_log_beyond(chains, tables, prior, place, layout))
        expect: Expect = partial(filters.expect, kernel, chains, place, layout)
        return up, moments(up, expect, tables, prior, place, layout)
    if flat and layout.whole and log_w.shape[-2] == 2:
        closed = flat_blocks(tables, layout)
        up = _to_the_root(log_w, closed.blocks, tables, prior, place, layout)
        up = up._replace(log_h_most=up.log_h + closed.log_growth)
        mean, square = _flat_expect(closed, up.class_count_pmf)
        return up, _summary(up, mean, square, tables, prior, place, layout)
    if log_w.shape[-2] == 2 and not layout.log_space:
        up = _to_the_root(log_w, blocks(log_w, place, layout), tables, prior, place, layout)
        pull: Callable[[jax.Array], jax.Array] = partial(_pull_to_first, up, place, layout)
    else:
        found, reverse = jax.vjp(lambda x: blocks(x, place, layout), log_w)
        up = _to_the_root(log_w, found, tables, prior, place, layout)
        pull = lambda q: reverse(Blocks(q, jnp.zeros_like(found.log_floor)))[0]  # noqa: E731
    expect = partial(_pulled_expect, pull, tables, prior, place, layout)
    return up, moments(up, expect, tables, prior, place, layout)


def _log_beyond(
    chains: filters.Chain, tables: NoisyTables, prior: Prior, place: Placement, layout: Layout
) -> jax.Array:
    """Log of a bound on sum of h_i(n) over the n outside the class's window, `[I]`."""
    L = layout.filters
    everywhere, all_of_it = Placement(*map(jnp.zeros_like, place)), Layout(L, L, True)
    log_c, floor = filters.blocks(chains, everywhere, all_of_it)
    # Far from the mode a floor says less than the noise does.
    counts = class_counts(everywhere, all_of_it, log_c.dtype)
    A = jnp.where(tables.real, prior.feature, 0).sum(-1)
    most = log_most(counts, counts, tables) + log_rising_window(None, A, L)
    log_c = jnp.minimum(jnp.logaddexp(log_c, floor[..., None]), most)
    N = tables.n_records
    log_h = log_class_messages(log_c, prior, tables.real, everywhere, all_of_it, N)
    n = jnp.arange(L, dtype=jnp.int32)
    first = place.class_[:, None]
    inside = (n >= first) & (n < first + layout.class_)
    return logsumexp(jnp.where(inside, -jnp.inf, log_h), axis=-1)


def _flat_expect(closed: FlatBlocks, pmf: jax.Array) -> tuple[jax.Array, jax.Array]:
    """E p and E p^2 of the first cell, `[I, K, 1]`, from P(n_i = n | m) `[I, window]`."""
    over_n = lambda x: jnp.einsum("in,ikn->ik", pmf, x)[..., None]  # noqa: E731
    return over_n(closed.mean), over_n(closed.square)


def _pulled_expect(
    pull: Callable[[jax.Array], jax.Array],
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
    q: jax.Array,
    r: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """`Expect` by reverse passes through the blocks, to `[I, K, J or 1, cell window]`."""
    weighted = pull(q), pull(r)
    needed = weighted[0].shape[-2]
    a = jnp.where(tables.real, prior.feature, 0)[..., :needed, None]
    l = cell_counts(place, layout, tables.counts.dtype)
    l_a = (l if layout.whole else l[..., :needed, :]) + a
    return (weighted[0] * l_a).sum(-1), (weighted[1] * l_a * (l_a + 1)).sum(-1)


def _pull_to_first(up: Pass, place: Placement, layout: Layout, q: jax.Array) -> jax.Array:
    """The reverse pass to the first of two cells: sum_n q(n) w_1(l) w_2(n - l) / c(n).

    Of two cells the second mirrors the first, so that one convolution does for both.
    """
    x, scale, _ = normalise(up.log_w, layout)
    log_c = up.blocks.log_value - scale.sum(-1, keepdims=True)
    reached = jnp.isfinite(log_c)
    share = jnp.where(reached, q * jnp.exp(-jnp.where(reached, log_c, 0)), 0)
    first, second = x[..., 0, :], x[..., 1, :]
    if layout.whole:
        found = truncated(reversed_last(share), second)
    else:
        S = first.shape[-1]
        shift = place.class_[:, None] - place.cell.sum(-1, dtype=jnp.int32)
        found = slide(reversed_last(share), align(second, shift - (S - 1), layout.class_ + S - 1))
    return (first * reversed_last(found))[..., None, :]


def _to_the_root(
    log_w: jax.Array,
    found: Blocks,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
) -> Pass:
    N = tables.n_records
    log_h = log_class_messages(found.log_value, prior, tables.real, place, layout, N)
    total, pmf = jax.value_and_grad(log_total)(log_h, place, layout, N)
    evidence = total - log_rising(N, prior.class_.sum())
    return Pass(log_w, found, log_h, total, evidence, pmf)


def moments(
    up: Pass,
    expect: Expect,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
) -> Moments:
    """Means and sds, from the blocks' conditional expectations.

    Args:
        up: the messages.
        expect: of the blocks' counts; see `Expect`.
        tables: one dataset.
        prior: its prior.
        place: where the windows are.
        layout: how long they are.
    """
    a = jnp.where(tables.real, prior.feature, 0)
    counts = class_counts(place, layout, tables.counts.dtype)
    n_A = counts[:, None] + a.sum(-1)[..., None]  # [I, K, window]
    pmf = up.class_count_pmf[:, None]
    mean, square = expect(pmf / n_A, pmf / (n_A * (n_A + 1)))
    return _summary(up, mean, square, tables, prior, place, layout)


def _summary(
    up: Pass,
    mean: jax.Array,
    square: jax.Array,
    tables: NoisyTables,
    prior: Prior,
    place: Placement,
    layout: Layout,
) -> Moments:
    """Means and sds from E p and E p^2, `[I, K, J]`, or `[I, K, 1]` for the first cell of two."""
    dtype, real = tables.counts.dtype, tables.real
    J, needed = real.shape[-1], mean.shape[-1]
    mean = jnp.where(real[..., :needed], mean, 0)
    square = jnp.where(real[..., :needed], square, 0)
    variance = jnp.maximum(square - jnp.square(mean), 0)
    if needed < J:
        mean = jnp.where(real, jnp.concatenate([mean, 1 - mean], axis=-1), 0)
    alone = real.sum(-1, keepdims=True) == 1  # certain, which a difference of squares is not
    feature_sd = jnp.sqrt(jnp.where(real & ~alone, variance, 0))

    total = tables.n_records + prior.class_.sum()
    p = (class_counts(place, layout, dtype) + prior.class_[:, None]) / total
    class_mean = (up.class_count_pmf * p).sum(-1)
    spread = jnp.square(p - class_mean[:, None]) + jnp.maximum(p * (1 - p), 0) / (total + 1)
    class_sd = jnp.sqrt((up.class_count_pmf * spread).sum(-1)) * float(p.shape[0] > 1)
    return Moments(class_mean, class_sd, mean, feature_sd)


def downward(up: Pass, place: Placement, layout: Layout, cotangents: jax.Array) -> jax.Array:
    """sum_n q(n) P(n_ikj = l | n_i = n, m) for cotangents q `[Q, I, K, class window]`.

    With q = P(n_i = n | m) this is P(n_ikj = l | m).

    Returns:
        `[Q, I, K, J, cell window]`.
    """
    _, pull = jax.vjp(lambda log_w: blocks(log_w, place, layout).log_value, up.log_w)
    full = jnp.broadcast_to(cotangents, (len(cotangents), *up.blocks.log_value.shape))
    return jax.vmap(lambda q: pull(q)[0])(full)


def count_pmf(up: Pass, tables: NoisyTables, place: Placement, layout: Layout) -> jax.Array:
    """P(n_ikj = l | m) = d log P / d log w_ikj(l), `[I, K, J, cell window]`."""
    if layout.filters:
        out = outside(up.log_w, tables, place, layout, up.log_w.shape[-2])
        log_ratio, reached = log_share(out, up.blocks.log_value, up.class_count_pmf)
        share = jnp.where(reached, up.class_count_pmf[:, None, None] * jnp.exp(log_ratio), 0)
        return out.cell * reversed_last(slide(reversed_last(share), out.others))
    return downward(up, place, layout, up.class_count_pmf[None, :, None])[0]
