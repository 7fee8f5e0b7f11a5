"""The general path: convolutions by Fourier transforms of tilted weights.

For a block (i, k) and any theta

    w_j(l) exp(theta l)  ->  c(n) exp(theta n),

since the counts of a block add up to n. An error of a Fourier transform is absolute, about rounding
times the largest entry; with the theta of `aim.py` the entries that the posterior needs are the
largest ones. Each cell has a window of L counts, of its own beginning; the sum of counts at places
r_j of their windows is at place sum_j r_j mod L of the transform. With F_j = rfft(tilted w_j):

    c        = irfft(prod_j F_j)
    others_j = prod of the F_j' with j' != j
    v_j(l)   = irfft(rfft(u) conj(others_j)),  u(n) = z(n) / c(n)

so that sum_l w_j(l) x(l) v_j(l) = sum_n z(n) E[x(n_ikj) | n_i = n, m] for any x: one transform down
and one back for each cell.

Where the posterior reaches further than one tilt is good for, there are several, aimed at counts
across the class's window; each n is taken from the tilt under which it stands highest above the
error, and z is split among them in the same way.

What may be wrong with c(n) is bounded for every tilt: what lies outside the cells' windows
(geometric tails), what wraps around (Chernoff's bound) and what rounding does.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxprivnb.exact.aim import Aim, Aims, Scout, depth
from jaxprivnb.exact.classes import class_counts
from jaxprivnb.exact.dataset import Cells, Dataset
from jaxprivnb.exact.moments import Sums
from jaxprivnb.exact.path import Chernoff, Messages
from jaxprivnb.exact.products import pairs_by_feature, products_by_feature
from jaxprivnb.exact.windows import cut, roll

_KNOWN = 8.0
"""Entries below so many times their error are not known, and not used."""
_ROUNDING = 6.0
"""Standard deviations of rounding errors that a bound allows for."""
_MANY = 9
"""So many tilts reach across whole windows."""
_FRACTIONS = (0.12, 0.3, 0.55, 0.8, 0.93)
"""Chernoff exponents, as fractions of the rate at which the slowest cell falls."""


class Laws(NamedTuple):
    """A number for every count of every cell, on windows of its own."""

    value: jax.Array
    """`[Q, I, C, L]`."""
    first: jax.Array
    """The first count of each window, `[I, C]`."""


class Joint(NamedTuple):
    """P(n_ikj = l, n_i = n | m) = sum_t cell_t(l) others_t(n - l) factor_t(n), over M tilts t."""

    cell: jax.Array
    """`[M, I, C, R]`, at l = first_l + (0, ..., R - 1)."""
    others: jax.Array
    """`[M, I, C, R + T - 1]`, at n - l = first_n - first_l - (R - 1) + (0, ...)."""
    factor: jax.Array
    """`[M, I, C, T]`, at n = first_n + (0, ..., T - 1)."""


class Splits(NamedTuple):
    """P(n_ikj = l | what cells j, j + 1, ... of the block share) ~ cell(l) later(shared - l)."""

    cell: jax.Array
    """Tilted weights at l = first_l + (0, ..., R - 1), `[M, I, C, R]`."""
    later: jax.Array
    """Those of all later cells of the block together, backwards, `[M, I, C, L]`."""
    base: jax.Array
    """The count of the others' place 0, mod L, `[M, I, C]`."""
    pick: jax.Array
    """The tilt for each class count, int `[I, K, W]`."""


class _Transform(NamedTuple):
    """All blocks under one tilt. C rows of cells, as in `Cells`."""

    weight: jax.Array
    """Tilted w_j(l), which add up to 1, `[I, C, L]`."""
    spectrum: jax.Array
    """Their transforms, `[I, C, L / 2 + 1]`."""
    others: jax.Array
    """Spectra of the block's other cells together, `[I, C, L / 2 + 1]`."""
    first: jax.Array
    """First counts of the cells' windows, `[I, C]`."""
    begin: jax.Array
    """Their sums, `[I, K]`."""
    c: jax.Array
    """Tilted c(n) on the class's window, `[I, K, W]`."""
    error: jax.Array
    """Bound on its errors, `[I, K, W]`."""
    log_scale: jax.Array
    """log of true over tilted c(n) is log_scale - tilt (n - middle), `[I, K]`."""
    tilt: jax.Array
    """theta, `[I, K]`."""
    tails: Chernoff
    """For all n."""


class _Inner(NamedTuple):
    transform: _Transform
    """With a leading axis of tilts."""
    pick: jax.Array
    """The tilt that each n is taken from, int `[I, K, W]`."""
    c: jax.Array
    """Tilted c(n) under that tilt; inf where it is not known, `[I, K, W]`."""
    origin: jax.Array
    """Whole numbers near the mean counts, `[I, C]`."""
    largest: jax.Array
    """The cell of each block with the largest origin + a, int `[I, K]`."""


@dataclasses.dataclass(frozen=True)
class Fourier:
    """Static shape of a fit by tilted transforms; hashable."""

    length: int
    """L, of the cells' windows and of the transforms."""
    window: int
    """W <= L, of the classes' windows."""
    whole: bool
    """All windows begin at 0 and hold 0..N."""
    flat: bool
    """All concentrations of P(X_k | Y) are 1."""
    cells: Cells
    """Which cells are real."""
    offsets: int
    """Of `aim_at`."""
    tilts: int = 1
    """How many tilts each block is transformed under."""

    @property
    def questions(self) -> "Fourier":
        """The same path."""
        return self

    @property
    def scout(self) -> Scout:
        """Many tilts of whole windows are aimed at all of 0..N: where tables contradict each other,
        what is known of the posterior's place is itself in doubt.
        """
        return Scout(self.offsets, self.flat, self.tilts, self.whole and self.tilts >= _MANY)

    def suits(self, data: Dataset) -> jax.Array:
        """Whether the concentrations are 1 where they are taken to be."""
        return jnp.all((data.a == 1) | ~data.real) | (not self.flat)

    def messages(self, data: Dataset, aims: Aims | None) -> Messages:
        """log c_ik(n) on the windows."""
        if aims is None or aims.aim is None:
            aims = self.scout.aims(data, aims)
        centre, aimed = aims.centre, aims.aim
        assert aimed is not None
        if self.whole:
            start = jnp.zeros_like(centre)
        else:
            room = jnp.maximum(data.n_records + 1 - self.window, 0)
            start = jnp.clip(jnp.round(centre) - self.window // 2, 0, room)
        middle = jnp.round(centre)
        found = jax.vmap(lambda aim: self._transform(data, aim, start, middle))(aimed)
        c, error = found.c, found.error
        away = (class_counts(start, self.window) - middle[:, None])[:, None]  # [I, 1, W]
        shift = lax.stop_gradient(found.log_scale[self.tilts // 2])
        # [M, I, K, W]
        to_log = (found.log_scale - shift)[..., None] - found.tilt[..., None] * away
        if self.tilts == 1:
            pick = jnp.zeros(c.shape[1:], jnp.int32)
            c, error, to_log = c[0], error[0], to_log[0]
        else:
            pick = jnp.argmax(lax.stop_gradient(c / error), axis=0).astype(jnp.int32)  # [I, K, W]
            at = lambda x: jnp.take_along_axis(x, pick[None], axis=0)[0]  # noqa: E731
            c, error, to_log = map(at, (c, error, to_log))
        known = c > _KNOWN * error
        log_c = jnp.where(known, jnp.log(jnp.where(known, c, 1)) + to_log, -jnp.inf)
        slope, bound = (x.reshape(-1, *x.shape[2:]) for x in found.tails)
        tails = Chernoff(slope, bound - shift)
        # Far from the aim an error says less than Chernoff's bound, which needs no transform.
        line = (tails.log_bound[..., None] - slope[..., None] * away).min(0)  # [I, K, W]
        log_most = jnp.minimum(jnp.log(jnp.maximum(c, 0) + error) + to_log, line)
        origin = self.cells.rows(aimed.centre[self.tilts // 2])
        expected = jnp.where(data.real, self.cells.table(origin) + data.a, -1)
        largest = jnp.argmax(expected, axis=-1)
        inner = _Inner(found, pick, jnp.where(known, c, jnp.inf), origin, largest)
        outer = None if self.whole else tails
        return Messages(log_c, jnp.maximum(log_most, log_c), start, middle, shift, outer, inner)

    def _transform(
        self, data: Dataset, aim: Aim, start: jax.Array, middle: jax.Array
    ) -> _Transform:
        cells, L, N = self.cells, self.length, data.n_records
        part, feature = cells.part(data), cells.feature
        centre, low, high = map(cells.rows, (aim.centre, aim.low, aim.high))  # [I, C]
        tilt = aim.tilt[:, feature]
        dtype = centre.dtype
        if self.whole:
            first = jnp.zeros_like(centre)
        else:
            room = jnp.maximum(N + 1 - L, 0)
            first = jnp.clip(jnp.round((low + high - L) / 2), 0, room)
        log_w = part.log_weight_window(first, L, flat=self.flat)
        r = jnp.arange(L, dtype=dtype)
        x = log_w + tilt[..., None] * (r + (first - centre)[..., None])
        top = lax.stop_gradient(x.max(-1))
        weight = jnp.exp(x - top[..., None])
        mass = lax.stop_gradient(weight.sum(-1))
        height, top = top, top + jnp.log(mass)
        weight = weight / mass[..., None]
        spectrum = jnp.fft.rfft(weight)
        product, others = products_by_feature(spectrum, cells.sizes)
        c = jnp.fft.irfft(product, n=L)  # [I, K, L]
        by_block = lambda x: cells.table(x).sum(-1)  # noqa: E731
        away = aim.centre.sum(-1) - middle[:, None]  # [I, K]
        log_scale = by_block(top) + aim.tilt * away
        begin = by_block(first)
        out, tails, wrapped = self._bounds(part, aim, weight, top, first, begin, start)
        finfo = jnp.finfo(dtype)
        terms = np.asarray(cells.sizes) * math.log2(L) / L
        size = jnp.sqrt(jnp.square(c).sum(-1))
        rounding = _ROUNDING * float(finfo.eps) * jnp.asarray(np.sqrt(terms), dtype) * size
        error = (rounding + out + float(finfo.tiny) * L)[..., None] + wrapped
        tails = Chernoff(tails.slope, tails.log_bound + by_block(top) + tails.slope * away)
        near = roll(c, start[:, None] - begin, self.window)
        # The logs that were added up to tilted weights round, too, one cell apart from the other.
        logs = jnp.sqrt(by_block(jnp.square(height))) + jnp.abs(aim.tilt) * (aim.sd + jnp.abs(away))
        error = error + 2 * float(finfo.eps) * logs[..., None] * jnp.abs(near)
        return _Transform(
            weight,
            spectrum,
            others,
            first,
            begin,
            near,
            lax.stop_gradient(error),
            log_scale,
            aim.tilt,
            tails,
        )

    def _bounds(
        self,
        part: Dataset,
        aim: Aim,
        weight: jax.Array,
        top: jax.Array,
        first: jax.Array,
        begin: jax.Array,
        start: jax.Array,
    ) -> tuple[jax.Array, Chernoff, jax.Array]:
        """What windows leave out, Chernoff's bounds for all n, and what wraps around.

        Returns:
            (Of tilted c, `[I, K]`; bounds on tilted c(n), n counted from the aim's, with the slopes
            of true ones; of tilted c(n), `[I, K, W]`.)
        """
        cells, L, tilt = self.cells, self.length, aim.tilt
        none = jnp.zeros_like(tilt)
        if self.whole and max(cells.sizes) * (self.window - 1) < L:
            return none, Chernoff(tilt[None], none[None]), none[..., None]  # nothing is outside
        centre, dtype = cells.rows(aim.centre), tilt.dtype
        D = depth(dtype)
        most = 1.6 * math.log(float(jnp.finfo(dtype).max)) / L  # exponentials do not overflow
        rates = jnp.stack(
            [D / (aim.high - aim.centre + 1).max(-1), -D / (aim.centre - aim.low + 1).max(-1)]
        )  # [2, I, K]
        tau = jnp.asarray(_FRACTIONS, dtype)[:, None, None] * jnp.clip(rates, -most, most)[:, None]
        tau = tau.reshape(-1, *tilt.shape)  # [2 Q, I, K]
        by_row = tau[..., cells.feature]  # [2 Q, I, C]
        sums = _log_tilted_sums(weight, by_row) + by_row * (first - centre)
        tilts = tilt[:, cells.feature] + jnp.concatenate([jnp.zeros_like(by_row[:1]), by_row])
        out = self._outside(part, first, centre, top, tilts)  # [1 + 2 Q, I, C]
        log_sum = jnp.where(part.real, jnp.logaddexp(sums, jnp.log(out[1:])), 0)
        log_sum = cells.table(log_sum).sum(-1)  # [2 Q, I, K]
        # A sum L or more above n, or below it, folds onto n.
        n = class_counts(start, self.window)[:, None]  # [I, 1, W]
        away = n - aim.centre.sum(-1)[..., None]
        at = lambda q, s: (log_sum[q, ..., None] - tau[q, ..., None] * s).min(0)  # noqa: E731
        half = slice(0, len(_FRACTIONS)), slice(len(_FRACTIONS), None)
        furthest = jnp.where(part.real, jnp.minimum(part.n_records, first + L - 1), 0)
        reached = cells.table(furthest).sum(-1)[..., None] >= n + L
        above = jnp.where(reached, jnp.exp(at(half[0], away + L)), 0)
        below = jnp.where(begin[..., None] <= n - L, jnp.exp(at(half[1], away - L)), 0)
        return cells.table(out[0]).sum(-1), Chernoff(tilt + tau, log_sum), above + below

    def _outside(
        self, part: Dataset, first: jax.Array, centre: jax.Array, top: jax.Array, tilt: jax.Array
    ) -> jax.Array:
        """Bound on the sum of a cell's tilted weights outside its window, over the sum inside.

        Geometric series from the first counts outside, which take a noise whose log density is
        concave. Arrays `[I, C]`, and tilts `[..., I, C]`.
        """
        if self.whole:
            return jnp.zeros_like(tilt)
        N, real = part.n_records, part.real
        a = jnp.where(real, part.a, 1)
        above, below = first + self.length, first - 1
        f = part.log_factor(jnp.stack([above, above + 1, below, below - 1], -1))
        known = jnp.isfinite(f[..., 0::2])  # else there is nothing to bound
        f = jnp.where(known.repeat(2, -1), f, jnp.asarray([0, -jnp.inf] * 2, f.dtype))
        ends = jnp.stack([above, jnp.maximum(below, 0)], -1)
        rising = part.log_rising(ends, flat=self.flat)
        ratio = f[..., 1] - f[..., 0] + jnp.log(jnp.maximum((above + a) / (above + 1), 1)) + tilt
        right = f[..., 0] + rising[..., 0] + tilt * (above - centre) + _log_geometric(ratio)
        right = jnp.where(real & known[..., 0] & (above <= N), right, -jnp.inf)
        # Going down, the rising weight is at most its value here (a >= 1) or at 0, where it is 1.
        left = f[..., 2] + jnp.where(a >= 1, rising[..., 1], 0) + tilt * (below - centre)
        left = left + _log_geometric(f[..., 3] - f[..., 2] - tilt)
        left = jnp.where(real & known[..., 1] & (below >= 0), left, -jnp.inf)
        return jnp.exp(jnp.logaddexp(left, right) - top)

    def pulled(self, messages: Messages, z: jax.Array) -> Sums:
        """Sums over counts of every cell, from weights z `[Q, I, K, W]` on its class's counts."""
        inner = messages.inner
        x = (inner.transform.first - inner.origin)[..., None]
        x = x + jnp.arange(self.length, dtype=x.dtype)  # [M, I, C, L]
        found = inner.transform.weight * self._back(messages, z)  # [Q, M, I, C, L]
        sums = [found.sum((1, -1)), (found * x).sum((1, -1)), (found * x * x).sum((1, -1))]
        pulled = Sums(*map(self.cells.table, (*sums, inner.origin)))
        # Concentrations of 1 leave no cell so nearly certain that float32 would not tell.
        if self.flat or float(jnp.finfo(x.dtype).eps) < 1e-10:
            return pulled
        return pulled._replace(largest=inner.largest, cross=self._cross(messages, z, x))

    def _cross(self, messages: Messages, z: jax.Array, x: jax.Array) -> jax.Array:
        """`Sums.cross`, from the cells' counts less their origins, x `[M, I, C, L]`."""
        inner, cells = messages.inner, self.cells
        if max(cells.sizes) < 3:
            return jnp.zeros(inner.largest.shape, x.dtype)
        transform = inner.transform
        row = jnp.asarray(cells.row)[jnp.arange(len(cells.sizes)), inner.largest]  # [I, K]
        smaller = row[:, cells.feature] != jnp.arange(len(cells.feature))  # [I, C]
        moved = jnp.fft.rfft(jnp.where(smaller[..., None], transform.weight * x, 0))
        pairs = jnp.fft.irfft(pairs_by_feature(transform.spectrum, moved, cells.row), n=self.length)
        shift = messages.start[:, None] - transform.begin
        found = roll(pairs, shift, self.window) * self._by_tilt(messages, z[:1])[0]
        return 2 * found.sum((0, -1))

    def place(self, messages: Messages, z: jax.Array) -> jax.Array:
        """First counts of the cells' windows under the tilt that most of the weights z `[I, K, W]`
        on their class's counts are taken from: `[I, C]`.

        Tilts that are aimed far from there may have windows that begin beyond all of it.
        """
        first = messages.inner.transform.first
        if self.tilts == 1:
            return first[0]
        tilts = jnp.arange(self.tilts, dtype=jnp.int32)[:, None, None, None]
        share = jnp.where(messages.inner.pick == tilts, z, 0).sum(-1)  # [M, I, K]
        best = jnp.argmax(share, axis=0)[:, self.cells.feature]
        return jnp.take_along_axis(first, best[None], axis=0)[0]

    def laws(self, messages: Messages, z: jax.Array) -> Laws:
        """sum_n z(n) P(n_ikj = l | n_i = n, m), from weights z `[1, I, K, W]`."""
        transform = messages.inner.transform
        found = transform.weight * jnp.maximum(self._back(messages, z), 0)
        first = self.place(messages, z[0])
        if self.tilts == 1:
            return Laws(found[:, 0], first)
        return Laws(cut(found, first - transform.first, self.length).sum(1), first)

    def _back(self, messages: Messages, z: jax.Array) -> jax.Array:
        """v_j(l) = sum_n z(n) / c(n) others_j(n - l), tilted, `[Q, M, I, C, L]`."""
        inner, L = messages.inner, self.length
        share = self._by_tilt(messages, z)  # [Q, M, I, K, W]
        placed = jnp.pad(share, [(0, 0)] * 4 + [(0, L - self.window)])
        shift = inner.transform.begin - messages.start[:, None]
        u = jnp.fft.rfft(roll(placed, shift))  # [Q, M, I, K, L / 2 + 1]
        return jnp.fft.irfft(u[..., self.cells.feature, :] * jnp.conj(inner.transform.others), n=L)

    def _by_tilt(self, messages: Messages, z: jax.Array) -> jax.Array:
        """z(n) / c(n), tilted, under the tilt that n is taken from: `[Q, M, I, K, W]`."""
        share = z / messages.inner.c  # 0 where c is not known
        t = jnp.arange(self.tilts, dtype=jnp.int32)[:, None, None, None]
        return jnp.where(messages.inner.pick == t, share[:, None], 0)

    def mean_counts(self, messages: Messages) -> jax.Array:
        """E[n_ikj | n_i = n, m] = [l w_j * others_j](n) / c(n), `[I, C, W]`; 0 if not known."""
        inner, L = messages.inner, self.length
        x = (inner.transform.first - inner.origin)[..., None]
        moved = jnp.fft.rfft(inner.transform.weight * (x + jnp.arange(L, dtype=x.dtype)))
        found = jnp.fft.irfft(moved * inner.transform.others, n=L)  # [M, I, C, L]
        shift = (messages.start[:, None] - inner.transform.begin)[..., self.cells.feature]
        found = roll(found, shift, self.window)
        one = jnp.ones((1, *inner.c.shape), x.dtype)
        found = (found * self._by_tilt(messages, one)[0][..., self.cells.feature, :]).sum(0)
        known = jnp.isfinite(inner.c)[:, self.cells.feature]
        return jnp.where(known, jnp.maximum(inner.origin[..., None] + found, 0), 0)

    def joint(
        self,
        messages: Messages,
        pmf: jax.Array,
        first_l: jax.Array,
        first_n: jax.Array,
        lengths: tuple[int, int],
    ) -> Joint:
        """P(n_ikj = l, n_i = n | m) as products, on shorter windows.

        Args:
            messages: of the dataset.
            pmf: P(n_i = n | m), `[I, W]`.
            first_l: first counts of the cells' windows, `[I, C]`.
            first_n: first counts of the classes' windows, `[I]`.
            lengths: of the two.
        """
        (R, T), L = lengths, self.length
        transform = messages.inner.transform
        feature = self.cells.feature
        cell = cut(transform.weight, first_l - transform.first, R)
        others = jnp.maximum(jnp.fft.irfft(transform.others, n=L), 0)  # [M, I, C, L]
        # Place r of it is the count r + begin - first, mod L: the one nearest to the mean.
        apart = transform.begin[..., feature] - transform.first
        lowest = first_n[:, None] - first_l - (R - 1)
        near = roll(others, lowest - apart, R + T - 1)
        s = lowest[..., None] + jnp.arange(R + T - 1, dtype=apart.dtype)  # [I, C, R + T - 1]
        origin = messages.inner.origin
        middle = self.cells.table(origin).sum(-1)[:, feature] - origin
        low = jnp.zeros_like(middle) if self.whole else jnp.maximum(middle - L // 2, 0)
        near = jnp.where((s >= low[..., None]) & (s < low[..., None] + L), near, 0)
        share = self._by_tilt(messages, jnp.broadcast_to(pmf[:, None], messages.log_c.shape)[None])
        factor = cut(share[0], (first_n - messages.start)[:, None], T)
        return Joint(cell, near, factor[:, :, feature])

    def splits(self, messages: Messages, first_l: jax.Array, length: int) -> Splits:
        """What draws go by, on windows of `length` counts from first_l `[I, C]` on."""
        transform, L = messages.inner.transform, self.length
        cell = cut(transform.weight, first_l - transform.first, length)
        last = np.zeros(len(self.cells.feature), bool)
        last[np.cumsum(self.cells.sizes) - 1] = True

        def before(so_far: Any, x: Any) -> Any:
            (product, begin), (spectrum, first, last) = so_far, x
            product, begin = jnp.where(last, 1, product), jnp.where(last, 0, begin)
            return (product * spectrum, begin + first), (product, begin)

        spectra, firsts = (
            jnp.moveaxis(transform.spectrum, -2, 0),
            jnp.moveaxis(transform.first, -1, 0),
        )
        none = (jnp.ones_like(spectra[0]), jnp.zeros_like(firsts[0]))
        later, base = lax.scan(before, none, (spectra, firsts, jnp.asarray(last)), reverse=True)[1]
        found = jnp.maximum(jnp.fft.irfft(jnp.moveaxis(later, 0, -2), n=L), 0)
        return Splits(cell, lax.rev(found, (3,)), jnp.moveaxis(base, 0, -1), messages.inner.pick)


def _log_tilted_sums(weight: jax.Array, tau: jax.Array) -> jax.Array:
    """log sum_r weight(r) exp(tau r) for weights `[I, C, L]` and tau `[Q, I, C]`: `[Q, I, C]`.

    In two stages, r = S s + u, so that few exponentials are taken.
    """
    L, S = weight.shape[-1], 32
    rows = -(-L // S)
    blocks = jnp.pad(weight, [(0, 0)] * 2 + [(0, rows * S - L)]).reshape(*weight.shape[:2], rows, S)
    # Shifted to the middle, where exponentials are moderate.
    fine = jnp.exp(tau[..., None] * jnp.arange(S, dtype=tau.dtype))
    coarse = jnp.exp(tau[..., None] * (S * (jnp.arange(rows, dtype=tau.dtype) - rows // 2)))
    inner = jnp.einsum("icsu,qicu->qics", blocks, fine, precision=lax.Precision.HIGHEST)
    return jnp.log((inner * coarse).sum(-1)) + tau * (S * (rows // 2))


def _log_geometric(log_ratio: jax.Array) -> jax.Array:
    """log 1 / (1 - ratio), and +inf for a ratio of 1 or more."""
    falling = log_ratio < 0
    return jnp.where(falling, -jnp.log(-jnp.expm1(jnp.where(falling, log_ratio, -1))), jnp.inf)
