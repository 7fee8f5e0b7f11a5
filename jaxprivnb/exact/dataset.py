"""One dataset as every part of an exact fit reads it, and the weight of a cell's count.

    w_ikj(l) = (a_ikj)_l / l!  prod_r P(what release r published | l)

Data enter the posterior through this factor alone. Its value at an anchor, a count of 0..N that
suits what was published, is taken out of it: what is left is of the size of what it tells apart, so
that a noisy count many scales outside 0..N costs no digits. The constant goes to the evidence only.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb import validate
from jaxprivnb.exact.rising import log_rising, log_rising_window
from jaxprivnb.measurement import Group, Seen
from jaxprivnb.noise import Known
from jaxprivnb.tables import NoisyTables, Prior

LARGEST = 2**31 - 1
"""The largest count: counts are held in int32 where they are drawn."""


class Dataset(NamedTuple):
    """The arrays of one dataset; masked cells hold 0, or 1 where that is harmless."""

    seen: tuple[Seen, ...]
    """What was published of every cell, release by release."""
    anchor: jax.Array
    """A count of 0..N for each cell, at which what was published is likely, `[I, K, J]`."""
    centre: jax.Array
    """About where what was published puts the counts, beyond 0..N as well, `[I, K, J]`."""
    scale: jax.Array
    """About how far from there they may be, `[I, K, J]`."""
    n_records: jax.Array
    """N, scalar; the largest count there is, where N is not known."""
    log_n: jax.Array | None
    """None: N is known. Else the log weights of N = 0, 1, ..., `[S]`, all the same if S = 0."""
    real: jax.Array
    """Cells that exist, bool `[I, K, J]`."""
    a: jax.Array
    """Concentrations of P(X_k | Y=i), `[I, K, J]`; 0 in masked cells."""
    a_class: jax.Array
    """Concentrations of P(Y), `[I]`."""
    class_totals: jax.Array | None
    """n_i where it is public, `[I]`, NaN where it is not; None if none is."""
    groups: tuple[Group, ...]
    """Groups of classes with totals of their own."""

    @property
    def A(self) -> jax.Array:  # noqa: N802
        """Sums of the concentrations, A_ik = sum_j a_ikj, `[I, K]`."""
        return self.a.sum(-1)

    @property
    def top(self) -> jax.Array:
        """N, or a count that is about as large as any that was published, scalar."""
        return self.n_records if self.log_n is None else _top(self.seen)

    def log_constants(self) -> jax.Array:
        """What was taken out of the weights, log of the factor at the anchor, `[I, K, J]`."""
        each = sum(one.log_factor(self.anchor) for one in self.seen)
        return jnp.where(self.real, each, 0)

    def log_group(self, r: int, n: jax.Array) -> jax.Array:
        """log P(what was published of group r's total | n), less its largest, at n `[S]`."""
        return self.groups[r].log_relative(self.n_records, n)

    def log_group_constants(self) -> jax.Array:
        """The sum of what was taken out of these, scalar."""
        found = (group.log_factor(self.n_records) for group in self.groups)
        return sum(found, jnp.zeros_like(self.n_records))

    @property
    def single(self) -> tuple[tuple[int, int], ...]:
        """(Number, its class) of every group of one class."""
        return tuple((r, g.classes[0]) for r, g in enumerate(self.groups) if len(g.classes) == 1)

    @property
    def all_together(self) -> tuple[int, ...]:
        """Numbers of the groups of all of several classes, whose total is N."""
        I = len(self.a_class)
        return tuple(r for r, g in enumerate(self.groups) if len(g.classes) == I > 1)

    @property
    def nested(self) -> bool:
        """Whether any group is of some of several classes."""
        return len(self.groups) > len(self.single) + len(self.all_together)

    def log_factor(self, l: jax.Array) -> jax.Array:
        """log P(what was published | l), less its value at the anchor, at l `[I, K, J, ...]`."""
        first, *more = (one.log_relative(self.anchor, l) for one in self.seen)
        return sum(more, first)

    def log_most(self, least: jax.Array, most: jax.Array) -> jax.Array:
        """A bound on the log of prod_j of the factors for block totals between two numbers.

        `[..., I, K, S]` from `[..., I, 1, S]`, less the constants.
        """
        first, *more = (one.log_most(least, most, self.real) for one in self.seen)
        return sum(more, first) - self.log_constants().sum(-1)[..., None]

    def log_rising(self, l: jax.Array, *, flat: bool) -> jax.Array:
        """log (a)_l / l! at counts l `[I, K, J, Q]`; 0 if all concentrations are 1 (`flat`)."""
        a = jnp.where(self.real, self.a, 1)[..., None]
        return jnp.zeros_like(l) if flat else log_rising(l, a)

    def log_weight(self, l: jax.Array, *, flat: bool) -> jax.Array:
        """log w_ikj at counts l `[I, K, J, Q]` of 0..N, in any order."""
        log_w = self.log_rising(l, flat=flat) + self.log_factor(l)
        return jnp.where(self.real[..., None], log_w, jnp.where(l == 0, 0, -jnp.inf))

    def log_weight_window(self, first: jax.Array, length: int, *, flat: bool) -> jax.Array:
        """log w_ikj(l) for l = first, ..., first + length - 1: `[I, K, J, length]`.

        Args:
            first: whole numbers in float, `[I, K, J]`.
            length: of the window.
            flat: all concentrations are 1, so that the rising weights are, too.
        """
        real = self.real[..., None]
        l = first[..., None] + jnp.arange(length, dtype=first.dtype)
        log_w = self.log_factor(l)
        if not flat:
            log_w = log_w + log_rising_window(first, jnp.where(self.real, self.a, 1), length)
        certain = jnp.where(l == 0, 0.0, -jnp.inf).astype(l.dtype)
        return jnp.where(real, jnp.where(l <= self.n_records, log_w, -jnp.inf), certain)


def dataset(tables: NoisyTables, prior: Prior) -> Dataset:
    """The arrays of one valid dataset."""
    shape, dtype = tables.counts.shape, tables.counts.dtype
    real, N = jnp.broadcast_to(tables.real, shape), tables.n_records
    seen = tuple(one.seen(real) for one in tables.measurements)
    log_n = None
    if N is None:
        log_n = jnp.zeros(0, dtype) if prior.n_records is None else prior.n_records
        N = jnp.asarray(LARGEST, dtype)
    centre, scale = _places(seen, N if log_n is None else _top(seen))
    anchor = jnp.clip(jnp.round(centre), 0, N)
    for one in seen:
        if isinstance(one.noise, Known):
            anchor = jnp.where(one.known, jnp.clip(one.low, 0, N), anchor)
    return Dataset(
        seen=seen,
        anchor=anchor,
        centre=centre,
        scale=scale,
        n_records=N,
        log_n=log_n,
        real=real,
        a=jnp.where(real, prior.feature, 0),
        a_class=prior.class_,
        class_totals=tables.class_totals,
        groups=tables.groups,
    )


def _top(seen: tuple[Seen, ...]) -> jax.Array:
    """A count that is about as large as any that was published, scalar."""
    found = jnp.ones((), seen[0].low.dtype)
    for one in seen:
        ends = jnp.stack([one.low, one.low if one.high is None else one.high])
        sizes = jnp.where(jnp.isfinite(ends), jnp.abs(ends), 0).max(0)
        reach = 40 * max((jnp.max(s) for s in jax.tree.leaves(one.noise)), default=0)
        found = jnp.maximum(found, sizes.sum((0, 2)).max() + reach)
    return found


def _places(seen: tuple[Seen, ...], top: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where all releases together put the counts, and how far from there they may be."""
    places = [one.place(top) for one in seen]
    if len(places) == 1:
        return places[0]
    precision = sum(1 / jnp.square(s) for _, s in places)
    # From the first, so that nothing is lost where one release is far more precise than another.
    origin = places[0][0]
    moved = sum((m - origin) / jnp.square(s) for m, s in places[1:])
    return origin + moved / precision, 1 / jnp.sqrt(precision)


@dataclasses.dataclass(frozen=True)
class Cells:
    """The real cells of a release as rows, feature by feature: no work is done for the others."""

    real: tuple[tuple[bool, ...], ...]
    """`[K][J]`."""

    @classmethod
    def of(cls, mask: Any, shape: tuple[int, ...]) -> "Cells":
        """The real cells of tables of the given shape; all where the mask is not known.

        Of a batch, those that any dataset has.
        """
        K, J = shape[-2:]
        real = np.ones((K, J), bool)
        if mask is not None and validate.is_concrete(mask):
            real = np.any(np.asarray(mask).reshape(-1, K, J), axis=0).reshape(K, J)
        return cls(tuple(tuple(bool(x) for x in row) for row in real))

    @property
    def sizes(self) -> tuple[int, ...]:
        """J_k, `[K]`."""
        return tuple(sum(row) for row in self.real)

    @property
    def feature(self) -> np.ndarray:
        """The feature of each row, `[C]`."""
        return np.repeat(np.arange(len(self.real)), self.sizes)

    @property
    def complete(self) -> bool:
        """Whether no cell is masked."""
        return all(map(all, self.real))

    def rows(self, x: jax.Array) -> jax.Array:
        """The real entries of an array `[..., K, J]`: `[..., C]`."""
        flat = x.reshape(*x.shape[:-2], -1)
        return flat if self.complete else flat[..., np.flatnonzero(np.asarray(self.real))]

    @property
    def row(self) -> np.ndarray:
        """The row of each cell, `[K, J]`; C for a masked one."""
        real = np.asarray(self.real)
        return np.where(real, np.cumsum(real).reshape(real.shape) - 1, real.sum())

    def table(self, x: jax.Array, fill: float = 0.0) -> jax.Array:
        """Rows `[..., C]` as `[..., K, J]`, `fill` in masked cells."""
        if self.complete:
            return x.reshape(*x.shape[:-1], *self.row.shape)
        padded = jnp.concatenate([x, jnp.full((*x.shape[:-1], 1), fill, x.dtype)], axis=-1)
        return padded[..., self.row]

    def part(self, data: Dataset) -> Dataset:
        """The dataset with rows of cells in the place of `[K, J]`."""
        shape = data.anchor.shape
        rows = lambda x: x if x.ndim == 0 else self.rows(jnp.broadcast_to(x, shape))  # noqa: E731
        names = ("seen", "anchor", "centre", "scale", "real", "a")
        return data._replace(**{x: jax.tree.map(rows, getattr(data, x)) for x in names})
