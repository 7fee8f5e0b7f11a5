"""Which counts are computed: a window of lengths known to the compiler, placed by the data.

Lengths are part of a compiled program's shape; N, the noise's scale and the prior are data. So
lengths come in a few sizes (`bucket`), and a study over many N and scales compiles few kernels.
Where the windows begin differs by cell and by class, and is traced.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb.tables import NoisyTables

SMALL = 512
"""Up to this many counts the whole range 0..N is cheap, and leaves nothing out."""
DEPTH = 45.0
"""Nats by which the noise's density has fallen at the edge of a cell's window, before widening."""
CLASS_DEPTH = 40.0
"""The same for the message of a class at the edge of its window, where blocks are filtered."""
FILTER_PRICE = 600
"""Products of convolutions for which one count is filtered through one cell instead. About 250 cost
as much (`bench/convolutions.py`); but the price of windows does not grow with N."""
UNKNOWN_LENGTH = 1024
"""Length of both windows when N is traced and nothing is said about it."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Static shape of a fit; hashable."""

    cell: int
    """Length of the window of each count n[i,k,j]."""
    class_: int
    """Length of the window of each class count n[i]."""
    whole: bool
    """Both windows are 0, ..., length - 1 and contain 0..N, so no count is left out."""
    log_space: bool = False
    """Convolve in log space: slower, and nothing underflows."""
    filters: int = 0
    """Blocks are filtered on the counts 0, ..., filters - 1, which contain 0..N (`filters.py`; flat
    priors only), and cut to the class windows; 0: the cells' windows are convolved."""

    def __post_init__(self) -> None:
        if self.whole and self.cell != self.class_:
            raise ValueError("a whole layout has windows of one length")
        if self.filters and (self.whole or self.log_space):
            raise ValueError("filters are for windows, and not in log space")


class Placement(NamedTuple):
    """Where the windows begin."""

    cell: jax.Array
    """First count of each cell's window, int32 `[I, K, J]`; 0 in masked cells."""
    class_: jax.Array
    """First count of each class's window, int32 `[I]`."""


def bucket(length: float) -> int:
    """The smallest supported length >= `length`: multiples of 32, then 2^k and 1.5 * 2^k."""
    length = max(1, math.ceil(length))
    if length <= SMALL:
        return 32 * math.ceil(length / 32)
    power = 2 ** math.ceil(math.log2(length))
    return power if length > 0.75 * power else 3 * power // 4


def whole(max_records: int, *, log_space: bool = False) -> Layout:
    """The layout that holds every count of up to `max_records` records."""
    length = bucket(max_records + 1)
    return Layout(length, length, True, log_space)


def plan(tables: NoisyTables, *, max_records: int | None = None, flat: bool = False) -> Layout:
    """The layout for one dataset or a whole batch whose N and noise can be read.

    The whole range if it is small or no dearer than windows, else windows wide enough for what is
    usual; a fit that needs more says so in `lost_mass`, and `widen` gives the next layout. With
    `flat`, which says that the blocks can be filtered, they are where that is cheapest.
    """
    N = _largest(tables.n_records) if max_records is None else max_records
    if N + 1 <= SMALL:
        return whole(N)
    K, J = tables.counts.shape[-2:]
    reach = noise_reach(tables.noise, DEPTH)
    unit = reach / DEPTH if reach > 0 else 1.0
    cell = bucket(2 * reach + 1)
    # Chernoff: the K tables' agreement narrows the class count by the factor in `tail`.
    tail = min(
        (J * -math.log1p(-c * c) + math.log(6 * unit * math.sqrt(J) + 3) + 40 / K) / c
        for c in (0.3, 0.5, 0.7, 0.9)
    )
    wander = 4 * math.sqrt(2 * J / K)
    class_ = min(bucket(2 * (tail + wander) * unit + 1), J * cell)
    complete = whole(N)
    most = complete.cell
    by_windows, by_all = _products(cell, class_, J), (max(J, 2) - 1) * most**2
    if flat and FILTER_PRICE * max(J - 1, 1) * most < min(by_windows, by_all):
        # Filters know all of h_i, so its window need not be wide enough for a bound.
        class_ = bucket(2 * (_class_reach(J, K) + wander) * unit + 1)
        return Layout(min(cell, most), min(class_, most), False, filters=most)
    # The complete range if it is close: it leaves nothing out.
    return Layout(cell, class_, False) if 1.5 * by_windows < by_all else complete


def widen(
    layout: Layout, n_records: int, lost_cell: float, lost: float, tolerance: float
) -> Layout:
    """The next layout to try when `lost` was too much; the same layout if nothing is left to try.

    Args:
        layout: the one that lost mass.
        n_records: largest N.
        lost_cell: the part due to the cells' windows (and to underflow).
        lost: the bound on all of it.
        tolerance: what would have been acceptable.
    """
    if layout.whole:
        return dataclasses.replace(layout, log_space=True)
    cell = bucket(1.4 * layout.cell) if lost_cell > 0.5 * tolerance else layout.cell
    class_ = bucket(1.4 * layout.class_) if lost - lost_cell > 0.5 * tolerance else layout.class_
    if cell == layout.cell and class_ == layout.class_:
        cell, class_ = bucket(1.4 * cell), bucket(1.4 * class_)
    if layout.filters:
        cell, class_ = min(cell, layout.filters), min(class_, layout.filters)
        if (cell, class_) == (layout.cell, layout.class_):  # only underflow is left
            return whole(n_records, log_space=True)
        return dataclasses.replace(layout, cell=cell, class_=class_)
    if cell > n_records or class_ > n_records:
        return whole(n_records)
    return Layout(cell, class_, False, layout.log_space)


def place(tables: NoisyTables, layout: Layout) -> Placement:
    """Centre each window: a cell's on its noisy count, a class's on its tables' mean total."""
    m, real, N = tables.counts, tables.real, tables.n_records
    if layout.whole:
        return Placement(jnp.zeros(m.shape, jnp.int32), jnp.zeros(m.shape[:1], jnp.int32))
    cell = jnp.where(real, _begin(m, N, layout.cell), 0)
    total = jnp.where(real, m, 0).sum(-1)  # [I, K]
    precision = 1 / jnp.square(jax.tree.leaves(tables.noise)[0])
    centre = (total * precision).sum(-1) / jnp.broadcast_to(precision, total.shape).sum(-1)
    # The totals must add up to N, and their errors are alike.
    centre = centre + (N - centre.sum()) / centre.shape[0]
    return Placement(cell, _begin(centre, N, layout.class_))


def noise_reach(noise: Any, depth: float) -> float:
    """The distance at which the widest noise's log density has fallen by `depth`; concrete noise.

    A noise that falls by less over a million units is treated as reaching that far.
    """
    widest = jax.tree.map(lambda s: jnp.max(jnp.where(jnp.isfinite(s), s, 0)), noise)
    zero = jnp.zeros((), widest.log_prob(_like(widest, 0.0)).dtype)
    peak = float(widest.log_prob(zero))

    def fall(x: float) -> float:
        value = peak - float(widest.log_prob(zero + x))
        return value if math.isfinite(value) else math.inf

    low, high = 0.0, 1.0
    while fall(high) < depth and high < 1e6:
        low, high = high, 2 * high
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fall(middle) < depth else (low, middle)
    return high


def _class_reach(J: int, K: int) -> float:
    """About where K tables' messages have fallen by `CLASS_DEPTH`, in units of the noise's scale.

    At a distance of x units from its cells' total, a table's message is about (1 + x / J)^(J-1)
    exp(-x) of what it is there.
    """
    x = 1.0
    while K * (x - (J - 1) * math.log1p(x / J)) < CLASS_DEPTH:
        x *= 1.02
    return x


def _products(cell: int, class_: int, J: int) -> float:
    """Products in the tree of convolutions of one block's windows."""
    levels, length, work = max(J, 2), cell, 0.0
    while levels > 2:
        work += levels / 2 * 2 * length**2
        levels, length = (levels + 1) // 2, 2 * length
    return work + length * class_


def _begin(centre: jax.Array, N: jax.Array, length: int) -> jax.Array:
    """First count of a window of `length` around `centre` that stays inside 0..N."""
    first = jnp.clip(jnp.round(centre) - length // 2, 0, jnp.maximum(N + 1 - length, 0))
    return first.astype(jnp.int32)


def _largest(n_records: Any) -> int:
    values = np.asarray(n_records, np.float64)
    values = values[np.isfinite(values) & (values >= 0)]
    return int(values.max()) if values.size else 0


def _like(noise: Any, x: float) -> jax.Array:
    leaves = jax.tree.leaves(noise)
    return jnp.asarray(x, leaves[0].dtype if leaves else jnp.result_type(float))
