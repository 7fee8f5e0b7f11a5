"""What one release says of every count: a noisy value, an interval that holds it, or nothing.

Data enter a posterior through the factor of a cell alone, P(what was published | n_ikj = l). A
noisy count that was published as it is has the density f(m - l); one that was clamped, rounded or
suppressed is known to lie in an interval, with P(low <= l + noise <= high); one that was not
published has the factor 1, that of the interval from -inf to inf.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxprivnb import validate
from jaxprivnb._pytree import pytree_dataclass, set_fields, static
from jaxprivnb.noise import Known, Noise, log_interval, log_ratio


@pytree_dataclass
class Measurement:
    """One more release of the same counts."""

    counts: Any
    """m, or the lower ends of intervals, float `[..., I, K, J]`; -inf if there is none."""
    noise: Any
    """The noise that was added; its scale is `[...]`, or `[..., K]` with one value a table."""
    upper: Any = None
    """Upper ends of intervals, `[..., I, K, J]`, equal to `counts` for one that is known; inf if
    there is none. None: all counts are known.

    The interval holds both ends.
    """

    def is_valid(self, real: jax.Array) -> jax.Array:
        """Bool scalar, for one dataset: counts are finite, or intervals hold something."""
        low, high = self.counts, self.counts if self.upper is None else self.upper
        ok = (low < high) | ((low == high) & jnp.isfinite(low))
        ok = jnp.all(ok | ~real)
        for leaf in jax.tree.leaves(self.noise):
            ok &= jnp.all(jnp.isfinite(leaf) & (leaf > 0))
        return ok

    def check(self, name: str, mask: jax.Array | None) -> None:
        """Raise unless this is a measurement of one dataset, as far as values are known."""
        if self.upper is None:
            validate.finite_counts(self.counts, mask, argument=f"{name}counts")
        else:
            validate.intervals(name, self.counts, self.upper, mask)
        for leaf in jax.tree.leaves(self.noise):
            validate.positive(f"{name}noise.{self.noise.parameter}", leaf)

    def seen(self, real: jax.Array) -> "Seen":
        """One dataset's, as the exact posterior reads it."""
        per_cell = lambda s: s[:, None] if s.ndim == 1 else s  # noqa: E731
        blank = lambda x: None if x is None else jnp.where(real, x, 0)  # noqa: E731
        noise = jax.tree.map(per_cell, self.noise)
        return Seen(jnp.where(real, self.counts, 0), blank(self.upper), noise)


@pytree_dataclass
class Group:
    """The total of some classes, noisy or public: #(Y in classes) + noise.

    The groups of `NoisyTables(..., groups=...)` must be laminar: of any two, one holds the other or
    they have no class in common.
    """

    classes: tuple[int, ...] = static()
    """The classes, from 0 on; kept in order."""
    total: Any
    """What was published, float `[...]`."""
    noise: Any = None
    """The noise that was added; its scale is `[...]`. None: the total is public as it is."""

    def __post_init__(self) -> None:
        set_fields(self, classes=validate.class_group("classes", self.classes))
        if self.noise is None:
            set_fields(self, noise=Known())

    def is_valid(self) -> jax.Array:
        """Bool scalar, for one dataset."""
        ok = jnp.isfinite(self.total)
        for leaf in jax.tree.leaves(self.noise):
            ok &= jnp.isfinite(leaf) & (leaf > 0)
        return ok

    def check(self, name: str) -> None:
        """Raise unless this is the total of one dataset's group, as far as values are known."""
        validate.group_total(f"{name}total", self.total, public=isinstance(self.noise, Known))
        for leaf in jax.tree.leaves(self.noise):
            validate.positive(f"{name}noise.{self.noise.parameter}", leaf)

    def log_factor(self, n_records: jax.Array) -> jax.Array:
        """log P(what was published | n) at its largest for n = 0..N, scalar."""
        return self._seen.log_factor(self.likeliest(n_records)[None])[0]

    def log_relative(self, n_records: jax.Array, n: jax.Array) -> jax.Array:
        """log P(what was published | n) less that, at counts n `[S]`; at most 0 in 0..N."""
        return self._seen.log_relative(self.likeliest(n_records)[None], n[None])[0]

    def likeliest(self, n_records: jax.Array) -> jax.Array:
        """The n of 0..N at which what was published is likeliest, scalar.

        Densities of noise rise up to 0 and fall from there.
        """
        ends = jnp.stack([jnp.floor(self.total), jnp.ceil(self.total)])
        ends = jnp.clip(ends, 0, n_records)
        low, high = self.noise.log_prob(self.total - ends)
        return jnp.where(high > low, ends[1], ends[0])

    @property
    def _seen(self) -> "Seen":
        return Seen(self.total[None], None, self.noise)


class Seen(NamedTuple):
    """A measurement of one dataset; masked cells hold 0."""

    low: jax.Array
    """`[I, K, J]`."""
    high: jax.Array | None
    """`[I, K, J]`; None if all counts are known."""
    noise: Noise
    """Its scale is shaped to broadcast against `[I, K, J]`."""

    @property
    def known(self) -> jax.Array:
        """Cells whose noisy count was published as it is, bool `[I, K, J]`."""
        return jnp.ones(self.low.shape, bool) if self.high is None else self.low == self.high

    def log_factor(self, anchor: jax.Array) -> jax.Array:
        """log P(what was published | l = anchor), `[I, K, J]`."""
        if self.high is None:
            return self.noise.log_prob(self.low - anchor)
        low = jnp.where(self.known, self.low, anchor)
        beside = _log_mass(self.noise, self.low - anchor, self.high - anchor, self.known)
        return jnp.where(self.known, self.noise.log_prob(low - anchor), beside)

    def log_relative(self, anchor: jax.Array, l: jax.Array) -> jax.Array:
        """log_factor(l) - log_factor(anchor) at counts l `[I, K, J, ...]`, no digits lost."""
        more = tuple(range(self.low.ndim, l.ndim))
        wide = lambda x: jnp.expand_dims(jnp.broadcast_to(x, self.low.shape), more)  # noqa: E731
        noise, near = jax.tree.map(wide, self.noise), wide(anchor)
        known = wide(self.known)
        exact = log_ratio(noise, jnp.where(known, wide(self.low), near) - near, l - near)
        if self.high is None:
            return exact
        low, high = wide(self.low), wide(self.high)
        at = _log_mass(noise, low - l, high - l, known)
        return jnp.where(known, exact, at - _log_mass(noise, low - near, high - near, known))

    def log_most(self, least: jax.Array, most: jax.Array, real: jax.Array) -> jax.Array:
        """A bound on sum_j log_factor(l_j) over all tables with least <= sum_j l_j <= most.

        log f is concave, so equal gaps are the best: J log f((sum_j m_j - n) / J). In a block in
        which not all counts are known each of them may be at its best.

        Args:
            least: whole numbers, `[..., I, 1, S]`.
            most: not below them, of the same shape.
            real: cells that exist, `[I, K, J]`.

        Returns:
            `[..., I, K, S]`.
        """
        block = lambda s: jnp.broadcast_to(s, self.low.shape)[..., :1]  # noqa: E731
        noise = jax.tree.map(block, self.noise)
        J = jnp.maximum(real.sum(-1, keepdims=True), 1).astype(self.low.dtype)
        total = self.low.sum(-1, keepdims=True)  # [I, K, 1]
        gap = total - jnp.clip(total, least, most)
        if self.high is None:
            return J * noise.log_prob(gap / J)
        known = self.known | ~real
        all_known = known.all(-1, keepdims=True)
        each = jnp.where(known & real, self.noise.log_prob(jnp.zeros_like(self.low)), 0)
        gap = jnp.where(all_known, gap, 0)
        return jnp.where(all_known, J * noise.log_prob(gap / J), each.sum(-1, keepdims=True))

    def place(self, top: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where a count of 0..top is thought to be: (centre, scale), `[I, K, J]` each.

        For aiming only. An interval counts as far as it holds counts at all.
        """
        scale = 1e-9 if isinstance(self.noise, Known) else jax.tree.leaves(self.noise)[0]
        scale = jnp.broadcast_to(jnp.asarray(scale, self.low.dtype), self.low.shape)
        if self.high is None:
            return self.low, scale
        low, high = (
            jnp.where(self.known, self.low, jnp.clip(x, 0, top)) for x in (self.low, self.high)
        )
        return 0.5 * (low + high), jnp.sqrt(jnp.square(scale) + jnp.square(high - low) / 24)


def _log_mass(noise: Any, low: jax.Array, high: jax.Array, known: jax.Array) -> jax.Array:
    """log P(low <= noise <= high), 0 for cells that are `known`."""
    # Infinite ends on both sides would leave derivatives without a value.
    nothing = known | (jnp.isneginf(low) & jnp.isposinf(high))
    low, high = jnp.where(nothing, -1, low), jnp.where(nothing, 1, high)
    return jnp.where(nothing, 0, log_interval(noise, low, high))
