"""Convolution of L counts with the weight of a cell in log2 L passes, for flat priors.

With a concentration of 1 and noise of the form exp(-|x| / b), the weight of a cell is two geometric
sequences that meet at its noisy count m. With r = exp(-1 / b), M = floor(m) and constants u, v:

    w(l) = u r^(M - l)   for l = 0, ..., M,        w(l) = v r^(l - M - 1)   for l > M

so (x * w)(n) is a window of the last M + 1 entries of x that rises into the past, and everything
older, which falls. Both are built by doubling, from sums of non-negative terms alone:

    W_s(n) = sum_{o < s} r^(s-1-o) x(n - o):   W_1 = x,   W_2s(n) = r^s W_s(n) + W_s(n - s)
    F_s(n) = sum_{o < s} r^o x(n - o):         F_1 = x,   F_2s(n) = F_s(n) + r^s F_s(n - s)

A window of M + 1 entries is put together from those W_s whose s is a binary digit of M + 1. That is
log2 L passes over L counts in place of L^2 products, and every entry is right to rounding however
small it is, which neither a Fourier transform nor a difference of running sums would be.

A block is a chain of such filters: P_j = w_1 * ... * w_j is the message of the partial sum
T_j = l_1 + ... + l_j. Backward, B_{j-1} = w_j' B_j from B_J = q / P_J, and P_j B_j is the law of
T_j under weights q of the class count. The counts are differences, l_j = T_j - T_{j-1}, so their
means are too, and their second moments need one more filter each, for E T_j T_{j-1}.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.exact.chunks import map_in_chunks
from jaxprivnb.exact.convolve import align
from jaxprivnb.exact.evidence import Blocks, safe_log
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.noise import Geometric, Laplace
from jaxprivnb.tables import NoisyTables

CHUNK = 2**15
"""Counts that are filtered side by side, about: what stays in a core's cache."""


class Kernel(NamedTuple):
    """The weight of a cell on the counts 0, 1, ..., scaled to a largest entry of 1; shapes `[...]`.

    A noisy count outside 0, ..., L - 1 is moved to the nearest of them, which divides the weight by
    the same constant at every count.
    """

    rate: jax.Array
    """1 / b."""
    last: jax.Array
    """M, the last count of the rising part, int32."""
    near: jax.Array
    """u = w(M)."""
    far: jax.Array
    """v = w(M + 1)."""
    log_scale: jax.Array
    """log of what the weight was divided by."""
    real: jax.Array
    """bool; a masked cell's count is certainly 0."""


class Chain(NamedTuple):
    """The messages of a block's partial sums on the counts 0, ..., L - 1."""

    heads: jax.Array
    """P_j = w_1 * ... * w_j scaled to a largest entry of 1, j = 1, ..., J: `[..., J, L]`."""
    growth: jax.Array
    """P_j = (w_j * P_{j-1}) / growth_j, `[..., J]`; the first is 1."""
    log_scale: jax.Array
    """log of what P_J was divided by in all, `[...]`."""
    floor: jax.Array
    """Bound on what underflow took from any entry of the scaled P_J, `[...]`."""


def applies(noise: Any) -> bool:
    """Whether a cell's weight is two geometric sequences; the prior must be flat as well."""
    return isinstance(noise, Laplace | Geometric)


def kernels(tables: NoisyTables, length: int) -> Kernel:
    """The kernel of every cell, `[I, K, J]`, on the counts 0, ..., length - 1."""
    real = jnp.broadcast_to(tables.real, tables.counts.shape)
    m = jnp.where(real, tables.counts, 0)
    scale, log_peak = tables.noise.value, tables.noise.log_peak
    if scale.ndim == 1:
        scale, log_peak = scale[:, None], log_peak[:, None]  # [K, 1]
    # Not `clip`, whose derivative at a count of exactly 0 is neither side's.
    inside = jnp.where(m < 0, 0, jnp.where(m > length - 1, length - 1, m))
    below = jnp.floor(inside)
    rate = jnp.broadcast_to(1 / scale, m.shape)
    log_near, log_far = (below - inside) * rate, (inside - below - 1) * rate
    top = jnp.maximum(log_near, log_far)
    return Kernel(
        rate,
        below.astype(jnp.int32),
        jnp.exp(log_near - top),
        jnp.exp(log_far - top),
        jnp.where(real, top + log_peak - jnp.abs(m - inside) * rate, 0),
        real,
    )


def smooth(x: jax.Array, kernel: Kernel) -> jax.Array:
    """The first L entries of x * w, for x `[..., L]` and a kernel `[...]`, along the last axis."""
    L = x.shape[-1]
    size, rate = kernel.last + 1, kernel.rate
    levels = L.bit_length()  # M + 1 <= L has no more digits
    over = lambda v: v[..., None]  # noqa: E731
    # Entries before the first are 0. A pass shortens the arrays by what it reached back.
    rising = falling = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(2**levels - 1, 0)])
    window, width = jnp.zeros_like(rising), jnp.zeros_like(size)
    for level in range(levels):
        s = 2**level
        digit = (size >> level) & 1 == 1
        fade, step = jnp.exp(-width.astype(rate.dtype) * rate), jnp.exp(-s * rate)
        longer = over(fade) * rising[..., s:] + window[..., :-s]
        window = jnp.where(over(digit), longer, window[..., s:])
        width = width + jnp.where(digit, s, 0)
        rising = over(step) * rising[..., s:] + rising[..., :-s]
        falling = falling[..., s:] + over(step) * falling[..., :-s]
    older = align(falling, -size, L)
    found = over(kernel.near) * window + over(kernel.far) * older
    return jnp.where(over(kernel.real), found, x)


def smooth_back(x: jax.Array, kernel: Kernel) -> jax.Array:
    """The transpose of `smooth`: sum_l w(l) x(t + l) over counts t + l < L."""
    return _flip(smooth(_flip(x), kernel))


def weight(kernel: Kernel, length: int) -> jax.Array:
    """w(l) for l = 0, ..., length - 1, `[..., length]`."""
    l = jnp.arange(length, dtype=jnp.int32)
    last = kernel.last[..., None]
    steps = jnp.where(l <= last, last - l, l - last - 1)
    end = jnp.where(l <= last, kernel.near[..., None], kernel.far[..., None])
    value = end * jnp.exp(-steps.astype(end.dtype) * kernel.rate[..., None])
    return jnp.where(kernel.real[..., None], value, (l == 0).astype(value.dtype))


def chain(kernel: Kernel, length: int) -> Chain:
    """Filter through the cells of one block, kernel `[J]`, one after the other."""
    first, rest = jax.tree.map(lambda x: x[0], kernel), jax.tree.map(lambda x: x[1:], kernel)
    tiny = jnp.finfo(kernel.rate.dtype).tiny

    def add(carry: Any, cell: Kernel) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        head, log_scale, floor = carry
        found, growth = _scaled(smooth(head, cell))
        # What was lost so far is spread by the weight; of this one's sums, what is tiny is lost.
        floor = (floor * weight(cell, length).sum() + 4 * length * tiny) / growth
        carry = found, log_scale + cell.log_scale + jnp.log(growth), floor
        return carry, (found, growth)

    begin = weight(first, length), first.log_scale, jnp.full_like(first.rate, tiny)
    (_, log_scale, floor), (heads, growth) = lax.scan(add, begin, rest)
    return Chain(
        jnp.concatenate([begin[0][None], heads]),
        jnp.concatenate([jnp.ones_like(kernel.rate[:1]), growth]),
        log_scale,
        floor,
    )


def chains(kernel: Kernel, length: int) -> Chain:
    """`chain` of all blocks, kernel `[I, K, J]`."""
    return _over_blocks(lambda k: chain(k, length), kernel, length)


def blocks(found: Chain, place: Placement, layout: Layout) -> Blocks:
    """Log c_ik on the class windows."""
    values = _to_windows(found.heads[..., -1, :], place, layout)
    return Blocks(
        safe_log(values) + found.log_scale[..., None], jnp.log(found.floor) + found.log_scale
    )


def expect(
    kernel: Kernel,
    found: Chain,
    place: Placement,
    layout: Layout,
    q: jax.Array,
    r: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """(sum_n q(n) E[l + 1 | n], sum_n r(n) E[(l + 1)(l + 2) | n]), both `[I, K, J]`.

    Args:
        kernel: of every cell, `[I, K, J]`.
        found: the chains of the blocks.
        place: where the windows are.
        layout: how long they are.
        q: weights of the class counts, `[I, K, class window]`.
        r: the same for second moments.
    """
    both = jnp.stack([q, r], axis=-2)  # [I, K, 2, window]
    begin = jnp.broadcast_to(-place.class_[:, None, None], both.shape[:-1])
    both = align(both, begin, layout.filters)
    each = lambda args: _expect_block(*args)  # noqa: E731
    return _over_blocks(each, (kernel, found, both), layout.filters)


class _Level(NamedTuple):
    """What is known of one partial sum T_j in the backward pass."""

    back: jax.Array
    """B_j under q and r, `[2, L]`."""
    mean: jax.Array
    """sum of P_j B_j t under q, and its mean under r, `[2]`."""
    square: jax.Array
    """sum of P_j B_j (t - mean)^2 under r."""


def _expect_block(kernel: Kernel, found: Chain, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`expect` for one block: kernel `[J]`, heads `[J, L]`, weights `[2, L]`; both `[J]`."""
    heads = found.heads
    t = jnp.arange(heads.shape[-1], dtype=heads.dtype)
    total = weights.sum(-1)
    R = jnp.where(total[1] > 0, total[1], 1)

    def level(head: jax.Array, back: jax.Array) -> _Level:
        law = head * back
        mean = (law * t).sum(-1) / jnp.stack([jnp.ones_like(R), R])
        return _Level(back, mean, (law[1] * jnp.square(t - mean[1])).sum())

    def moments(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = mean[0] + total[0]
        return first, R * (mean[1] + 1) * (mean[1] + 2) + jnp.maximum(variance, 0)

    def drop(above: _Level, cell: Any) -> tuple[_Level, tuple[jax.Array, jax.Array]]:
        each, growth, head = cell
        twice = jax.tree.map(lambda x: jnp.stack([x, x]), each)
        below = level(head, smooth_back(above.back, twice) / growth)
        crossed = smooth((t - below.mean[1]) * head, each) / growth
        cross = ((t - above.mean[1]) * above.back[1] * crossed).sum()
        variance = above.square + below.square - 2 * cross
        return below, moments(above.mean - below.mean, variance)

    last = heads[-1]
    reached = last > 0
    top = level(last, jnp.where(reached, weights / jnp.where(reached, last, 1), 0))
    rest = jax.tree.map(lambda x: x[1:], (kernel, found.growth))
    first, (mean, square) = lax.scan(drop, top, (*rest, heads[:-1]), reverse=True)
    begin = moments(first.mean, first.square)
    return jnp.append(begin[0], mean), jnp.append(begin[1], square)


def others(kernel: Kernel, length: int, n_cells: int) -> tuple[jax.Array, jax.Array]:
    """The convolutions of every block's cells but one, for the first `n_cells` of them.

    Returns:
        (values scaled to a largest entry of 1 `[I, K, n_cells, length]`, log scale
        `[I, K, n_cells]`).
    """

    def block(cells: Kernel) -> tuple[jax.Array, jax.Array]:
        unit = (jnp.arange(length) == 0).astype(cells.rate.dtype)
        begin = jnp.broadcast_to(unit, (n_cells, length)), jnp.zeros(n_cells, unit.dtype)

        def add(carry: tuple[jax.Array, jax.Array], numbered: Any) -> tuple[Any, None]:
            values, log_scale = carry
            j, cell = numbered
            same = jax.tree.map(lambda x: jnp.broadcast_to(x, (n_cells,)), cell)
            mine = jnp.arange(n_cells) == j
            found, growth = _scaled(smooth(values, same))
            grown = log_scale + cell.log_scale + jnp.log(growth)
            return (
                jnp.where(mine[:, None], values, found), jnp.where(mine, log_scale, grown)
            ), None  # fmt: skip

        J = cells.rate.shape[0]
        return lax.scan(add, begin, (jnp.arange(J), cells))[0]

    return _over_blocks(block, kernel, length)


def mean_counts(kernel: Kernel, found: Chain, place: Placement, layout: Layout) -> jax.Array:
    """E[n_ikj | n_i = n, m] on the class windows, `[I, K, J, class window]`.

    With s the count of a block's other cells and v their message, l = n - s gives
    n - [(s v) * w](n) / c(n).
    """
    J, L = found.heads.shape[-2:]
    values, log_scale = others(kernel, L, J)
    log_scale = log_scale + kernel.log_scale - found.log_scale[..., None]
    n = jnp.arange(L, dtype=values.dtype)

    def block(args: Any) -> jax.Array:
        cells, v, log_ratio, c = args
        rest = smooth(n * v, cells) * jnp.exp(log_ratio)[:, None]
        return jnp.maximum(n - jnp.where(c > 0, rest / jnp.where(c > 0, c, 1), n), 0)

    counts = _over_blocks(block, (kernel, values, log_scale, found.heads[..., -1, :]), L)
    begin = jnp.broadcast_to(place.class_[:, None, None], counts.shape[:-1])
    return align(counts, begin, layout.class_)


def _scaled(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(x over its largest entry along the last axis, that entry); no gradient in the scale."""
    top = lax.stop_gradient(x.max(-1))
    top = jnp.where(top > 0, top, 1)
    return x / top[..., None], top


def _to_windows(x: jax.Array, place: Placement, layout: Layout) -> jax.Array:
    """From the counts 0, ..., L - 1 `[I, K, L]` to the class windows."""
    return align(x, jnp.broadcast_to(place.class_[:, None], x.shape[:-1]), layout.class_)


def _over_blocks(f: Any, args: Any, length: int) -> Any:
    """F over the two leading axes of args, so many blocks at a time as the cache holds."""
    I, K = jax.tree.leaves(args)[0].shape[:2]
    rows = jax.tree.map(lambda x: x.reshape(I * K, *x.shape[2:]), args)
    found = map_in_chunks(f, rows, CHUNK // length)
    return jax.tree.map(lambda x: x.reshape(I, K, *x.shape[1:]), found)


def _flip(x: jax.Array) -> jax.Array:
    return lax.rev(x, (x.ndim - 1,))
