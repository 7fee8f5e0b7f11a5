"""Which path a fit takes, and how long its windows are: the one place that decides.

Lengths are part of a compiled program's shape; N, the noise's scale and the prior are data. So
lengths come in a few sizes, and a study over many N and scales compiles few programs. What a batch
is planned by is its N, noise and prior, never its counts: results then do not depend on who else is
in a batch. A dataset that needs more says so in `lost_mass`, and is planned by its own counts.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxprivnb import validate
from jaxprivnb.exact.aim import Scout, depth, look, offsets_for
from jaxprivnb.exact.closed import Closed
from jaxprivnb.exact.dataset import LARGEST, Cells
from jaxprivnb.exact.fourier import Fourier
from jaxprivnb.exact.path import Path
from jaxprivnb.exact.windows import SMALL, bucket, coarse_bucket, fast_length
from jaxprivnb.noise import Geometric, Laplace
from jaxprivnb.tables import NoisyTables, Prior

UNKNOWN_LENGTH = 1024
"""Length of windows when N is traced and nothing is said about it."""
MEMORY = 8 * 2**30
"""Bytes that a fit may take."""
_TILTS = (3, 9, 27, 81)
"""How many tilts a path may have, beside one."""
_SLACK = 1.4
"""Longer than tables of the expected counts need, so that few datasets need a second fit."""
_OWN_SLACK = 1.1
"""The same where a dataset's own counts are known."""


_PLANNED: dict[Any, Path] = {}
"""Paths that were chosen before, by all that they depend on."""


class Needs(NamedTuple):
    """What a dataset asks of a path."""

    cell: float
    """Length of the longest window of a cell."""
    reach: float
    """Distance from its aim at which the widest block's tilted total has fallen by `depth`."""
    top: float
    """Largest count that a block's tilted total has to be kept apart from: aim + reach."""
    class_: float
    """Length of the longest window of a class."""
    narrow: float
    """Distance from its middle within which most of a class is."""
    tilts: float
    """How many tilts reach across it."""


def needs(tables: NoisyTables, prior: Prior, scout: Scout) -> Needs:
    """Lengths that suit one dataset, or every dataset of a batch, whose numbers are known."""
    D = depth(tables.counts.dtype)
    found = partial(look, scout=scout)
    for _ in tables.batch_shape:
        found = jax.vmap(found)
    aims = jax.tree.map(np.asarray, found(tables, prior))
    centre, class_reach, sd = aims.centre, aims.reach, aims.sd
    first = (*(slice(None),) * len(tables.batch_shape), 0)  # of the tilts
    aim = jax.tree.map(lambda x: x[first], aims.aim)
    slowest = np.maximum(aim.high - aim.centre, aim.centre - aim.low)  # 0 in masked cells
    # Like Bernstein's bound: normal near the middle, then as its slowest cell.
    reach = np.sqrt(2 * D * np.square(aim.sd) + np.square(slowest.max(-1)))  # [I, K]
    usable = np.maximum(math.sqrt(1.2 * D) * aim.sd.min(-1), 1)
    return Needs(
        float((aim.high - aim.low + 1).max()),
        float(reach.max()),
        float((centre[..., None] + reach).max()),
        float((2 * class_reach + 1).max()),
        float((10 * sd).max()),
        float(np.ceil(6 * sd / usable).max()),
    )


def choose(tables: NoisyTables, prior: Prior, *, max_records: int | None = None) -> Path:
    """The path for one dataset or for a whole batch whose N, noise and prior can be read."""
    N = largest(tables.n_records)
    if N > LARGEST:
        raise ValueError(f"n_records must be at most 2^31 - 1 for an exact fit, got {N:g}")
    if tables.n_records is None:
        return _by_counts(tables, prior, N)
    if max_records is not None:
        return _quickest(_complete(max(N, max_records), tables, prior), tables)
    if N < SMALL:
        return _quickest(_small(N, tables, prior), tables)
    if not tables.is_plain:
        return _by_counts(tables, prior, N)
    key = _key(tables, prior, N)
    if key not in _PLANNED:
        scout = Scout(offsets_for(N), is_flat(prior))
        wanted = needs(*_typical(tables, prior, N), scout)
        if len(_PLANNED) > 256:
            _PLANNED.clear()
        _PLANNED[key] = _quickest(_holding(wanted, N, tables, prior, slack=_SLACK), tables)
    return _PLANNED[key]


def for_any_prior(path: Path) -> Fourier:
    """The same for concentrations that are yet to be found."""
    return dataclasses.replace(path.questions, flat=False)


def choose_within(batch: Path, tables: NoisyTables, prior: Prior) -> Path:
    """The path for one dataset of a batch: its own lengths, the batch's cells.

    Masks are many where they differ, and each would be a program.
    """
    path = choose(tables, prior)
    if isinstance(path, Fourier):
        return dataclasses.replace(path, cells=batch.questions.cells)
    return path


def _by_counts(tables: NoisyTables, prior: Prior, N: int) -> Fourier:
    """Windows for tables of which N and the noise do not say enough."""
    good = jax.vmap(NoisyTables.is_valid) if tables.batch_shape else NoisyTables.is_valid
    some = np.asarray(good(tables))
    if tables.batch_shape:
        if not some.any():
            some = np.arange(some.size) == 0
        priors = jax.tree.map(np.asarray, prior)
        if prior.class_.ndim == 1:
            priors = jax.tree.map(lambda x: np.broadcast_to(x, (some.size, *x.shape)), priors)
        tables, prior = jax.tree.map(lambda x: x[some], (tables, priors))
    wanted = needs(tables, prior, Scout(offsets_for(N), is_flat(prior)))
    return _holding(wanted, N, tables, prior, slack=_OWN_SLACK, size=coarse_bucket)


def choose_when_traced(tables: NoisyTables, prior: Prior, max_records: int | None) -> Path:
    """The path of a fit that cannot look at its own data."""
    if max_records is not None and tables.n_records is not None:
        return _quickest(_complete(max_records, tables, prior), tables)
    seen = seen_through_vmap((tables, prior))
    if seen is not None:
        return choose(*seen)
    cells = Cells.of(tables.mask, tables.counts.shape)
    length = UNKNOWN_LENGTH if max_records is None else bucket(max_records + 1)
    return Fourier(2 * length, length, False, is_flat(prior), cells, offsets_for(2**24), 1)


def wider_than(path: Path, tables: NoisyTables, prior: Prior) -> Iterator[Fourier]:
    """The paths to try, one after the other, when one has lost too much.

    Where all of 0..N is computed they depend on the path alone, never on counts: what a dataset
    goes through does not depend on who else is in its batch.
    """
    last, N = path.questions, largest(tables.n_records)
    if not last.whole:
        wanted = needs(tables, prior, Scout(offsets_for(N), is_flat(prior)))
        own = _holding(wanted, N, tables, prior, size=coarse_bucket)
        own = dataclasses.replace(own, cells=last.cells)
        last = max(last, own, key=lambda p: (p.length, p.window, p.tilts))
        yield last  # aimed at what the first has found
    J = max(last.cells.sizes)
    for tilts in _TILTS[1::2] if last.whole else _TILTS:  # every program has to be compiled
        length, window, whole = bucket(1.5 * last.length), bucket(1.5 * last.window), last.whole
        if not whole and (window > N or length >= 2 * (N + 1)):
            whole, window = True, bucket(N + 1)
        if whole:
            window = last.window if last.whole else window
            length = fast_length(min(max(length, 4 * window), J * (window - 1) + 1))
        last = dataclasses.replace(
            last,
            length=max(length, window),
            window=min(window, max(length, window)),
            whole=whole,
            tilts=max(tilts, last.tilts),
        )
        if _bytes(last, tables) > MEMORY:
            return
        yield last


def _holding(
    wanted: Needs,
    N: int,
    tables: NoisyTables,
    prior: Prior,
    *,
    slack: float = 1.0,
    size: Callable[[float], int] = bucket,
) -> Fourier:
    """The path of a few supported sizes that holds what is wanted."""
    cell, reach, top, class_, near, tilts = (slack * x for x in wanted)
    cells, flat = Cells.of(tables.mask, tables.counts.shape), is_flat(prior)
    tilts = next((t for t in (1, *_TILTS) if t >= tilts / slack), _TILTS[-1])
    J, window = max(cells.sizes), bucket(N + 1)
    # From one to J times the window, in a few steps.
    enough = (window * f for f in (1.5, 2, 3, 4, 6, 8) if window * f > top)
    complete = fast_length(min(next(enough, J * window), J * (window - 1) + 1))
    complete = max(complete, window)
    short = size(max(cell, reach + near + 32))
    if complete <= max(1.5 * short, SMALL):  # nothing is cut then
        return _checked(Fourier(complete, window, True, flat, cells, offsets_for(N), tilts), tables)
    narrow = min(size(1.3 * class_), short)
    return _checked(Fourier(short, narrow, False, flat, cells, offsets_for(N), tilts), tables)


def _small(N: int, tables: NoisyTables, prior: Prior) -> Fourier:
    """All of a small range, by rules that hold for usual tables."""
    cells, window = Cells.of(tables.mask, tables.counts.shape), bucket(N + 1)
    scales = [np.asarray(x) for x in jax.tree.leaves(tables.noise)]
    widest = max((float(np.max(x[np.isfinite(x)], initial=0)) for x in scales), default=0.0)
    # Sums of many cells reach far beyond N where neither noise nor tilt keeps them near it.
    times = 4 if 4 * widest < N else 8
    length = fast_length(min(times * window, max(cells.sizes) * (window - 1) + 1))
    # Strong priors bend the messages more than one tilt can follow.
    strength = float(np.max(np.nansum(np.asarray(prior.feature), -1), initial=0))
    tilts = 1 if strength < 100 else 3 if strength < 3000 else 9
    path = Fourier(
        max(length, window), window, True, is_flat(prior), cells, offsets_for(window), tilts
    )
    return _checked(path, tables)


def _complete(N: int, tables: NoisyTables, prior: Prior) -> Fourier:
    """All counts of up to N records; under three tilts, for there is no second try."""
    cells, window = Cells.of(tables.mask, tables.counts.shape), bucket(N + 1)
    length = fast_length(min(4 * window, max(cells.sizes) * (window - 1) + 1))
    length = max(length, window)
    path = Fourier(length, window, True, is_flat(prior), cells, offsets_for(window), 3)
    return _checked(path, tables)


def _quickest(path: Fourier, tables: NoisyTables) -> Path:
    """The closed form, where there is one."""
    pairs = path.cells.complete and tables.counts.shape[-1] == 2
    plain = tables.is_plain and isinstance(tables.noise, Laplace | Geometric)
    return Closed(path) if pairs and plain and path.flat and path.whole else path


def _bytes(path: Fourier, tables: NoisyTables) -> int:
    """About what a fit takes."""
    cells = tables.counts.shape[-3] * sum(path.cells.sizes)
    return 9 * cells * path.length * path.tilts * tables.counts.dtype.itemsize


def _checked(path: Fourier, tables: NoisyTables) -> Fourier:
    """The path, unless it would take more memory than there may be."""
    needed = _bytes(path, tables)
    if needed > MEMORY:
        raise MemoryError(
            f"an exact fit of these tables would take {needed / 2**30:.0f} GiB (windows of "
            f"{path.length} counts for each cell), more than {MEMORY / 2**30:.0f} GiB: the noise's "
            "scale and n_records are too large; fit_vb takes tables of any size"
        )
    return path


def _key(tables: NoisyTables, prior: Prior, N: int) -> Any:
    """What a path is chosen by; no counts."""
    noises = [one.noise for one in tables.measurements]
    leaves = jax.tree.leaves((tables.mask, noises, prior))
    bits = tuple((x.shape, np.asarray(x).tobytes()) for x in leaves)
    kinds = (*map(type, noises), tables.is_plain)
    return kinds, tables.counts.dtype, tables.counts.shape[-3:], N, bits


def is_flat(prior: Prior) -> bool:
    """Whether all concentrations of P(X_k | Y) are known to be 1."""
    a = prior.feature
    return validate.is_concrete(a) and bool(np.all((np.asarray(a) == 1) | (np.asarray(a) == 0)))


def largest(n_records: Any) -> int:
    """The largest valid N, or count where N is not known."""
    if n_records is None:
        return LARGEST
    values = np.asarray(n_records, np.float64)
    values = values[np.isfinite(values) & (values >= 0)]
    return int(values.max()) if values.size else 0


def _typical(tables: NoisyTables, prior: Prior, N: int) -> tuple[NoisyTables, Prior]:
    """Tables of the counts that the prior expects, for the largest N and the widest noise.

    Shaped as one dataset of the batch is, so that its fit shares the programs compiled here.
    """
    shape, dtype = tables.counts.shape[-3:], tables.counts.dtype
    ok = lambda x: np.where(np.isfinite(x) & (x > 0), x, 1e-30)  # noqa: E731
    most = lambda x: np.max(ok(np.asarray(x, np.float64)), initial=1e-30)  # noqa: E731
    own = tables.batch_shape == ()
    noise = jax.tree.map(lambda s: np.full(s.shape if own else (), most(s), dtype), tables.noise)
    mask: np.ndarray | None = None
    if tables.mask is not None:
        mask = np.asarray(np.asarray(tables.mask).reshape(-1, *shape[1:]).any(0))
    real = np.ones(shape[1:], bool) if mask is None else mask
    a_class, a = (np.asarray(x).reshape(-1, *s) for x, s in zip(
        (prior.class_, prior.feature), (shape[:1], shape), strict=True))  # fmt: skip
    largest_of = lambda x: np.where(np.isfinite(x) & (x > 0), x, 1).max(0)  # noqa: E731
    a_class, a = largest_of(a_class), np.where(real, largest_of(a), 1)
    within = np.where(real, a, 0)
    share = (a_class / a_class.sum())[:, None, None] * within / within.sum(-1, keepdims=True)
    one = NoisyTables(np.asarray(N * share, dtype), N, noise, mask)
    return one, Prior(a_class.astype(dtype), a.astype(dtype))


def seen_through_vmap(tree: Any) -> Any:
    """The whole batch, if the only transformations around are eager `jax.vmap`s; else None.

    A custom batching rule is handed the batched arrays themselves. Outside of `jit` these are
    known, and planning needs no more than to look at them.
    """
    leaves, structure = jax.tree.flatten(tree)
    found: list[list[Any]] = []
    # A path must not be chosen by what is differentiated: one for concentrations of 1 has no slope.
    if any(map(has_slope, leaves)):
        return None

    @jax.custom_batching.custom_vmap
    def look(*xs: jax.Array) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    @look.def_vmap
    def _(axis_size: int, in_batched: list[bool], *xs: jax.Array) -> tuple[jax.Array, bool]:
        if all(validate.is_concrete(x) for x in xs):
            found.append(list(xs))
        elif not any(map(has_slope, xs)):
            look(*xs)
        return jnp.zeros((), jnp.int32), False

    look(*leaves)
    if not found:
        return None
    return jax.tree.unflatten(structure, found[-1])


def has_slope(x: Any) -> bool:
    """Whether the outermost transformation of x is `jax.jvp` or `jax.grad`."""
    return isinstance(x, jax.core.Tracer) and type(lax.stop_gradient(x)) is not type(x)
