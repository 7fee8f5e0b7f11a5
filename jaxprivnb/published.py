"""Tables as others publish them: processed after the noise, released more than once, from files.

The exact posterior takes all of these through the factor of a cell (`measurement.py`); here stands
how each kind of publication becomes one.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb import validate
from jaxprivnb._pytree import register
from jaxprivnb.measurement import Measurement
from jaxprivnb.noise import Geometric, Known
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.privacy.record import Guarantee, Release
from jaxprivnb.storage import check_path, csv_rows
from jaxprivnb.tables import NoisyTables, check_type, mask_from_categories

TIES = ("even", "up")


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NamedTables(NoisyTables):
    """Noisy tables with the names of their classes, features and categories.

    What `from_tables` and `combine` make. Mapping or transforming it as a JAX tree gives a plain
    `NoisyTables`.
    """

    domain: Domain
    guarantees: tuple[Guarantee, ...] = ()
    """The promises of the releases that it was combined from, as far as they came with one."""


register(NamedTables, NoisyTables)


def processed(
    counts: Any,
    n_records: Any,
    noise: Any,
    *,
    clamp: tuple[float | None, float | None] | None = None,
    grid: float | None = None,
    threshold: float | None = None,
    ties: str = "even",
    whole_numbers: bool | None = None,
    mask: Any = None,
) -> NoisyTables:
    """Tables whose noisy counts were suppressed, rounded or clamped before they were published.

    In that order: noisy counts below `threshold` are not shown, then the others are rounded to
    multiples of `grid`, then clamped. What is published of a cell says in which interval its noisy
    count was, and no more. A NaN among `counts` is a count that is not shown: it was below
    `threshold` if there is one, and else nothing is known of it.

    Under Laplace and geometric noise clamping at 0 or at N costs nothing: for every count l >= 0
    the tail P(l + noise <= 0) is proportional to exp(-l / b), as the density at 0 is. So clamped
    tables have the same posterior as unclamped ones whose counts lie beyond, and `clamp` changes
    the evidence alone. Under Gaussian noise it does not: leave `clamp` out there and the posterior
    is wrong.

    Args:
        counts: what was published, `[I, K, J]`, NaN where nothing was.
        n_records: N; None if it is not known.
        noise: that was added first.
        clamp: (lowest, highest), None for an end that is free; published counts at an end stand for
            all beyond it.
        grid: the distance of published values; they must be multiples of it.
        threshold: noisy counts below it were suppressed.
        ties: where a noisy count halfway between two multiples went, "even" (NumPy's and R's way)
            or "up"; of importance for noise on the whole numbers only.
        whole_numbers: whether noisy counts were whole numbers. None: as the noise says, which is no
            for `Gaussian`; say True for a discrete Gaussian.
        mask: as in `NoisyTables`.
    """
    shown = np.asarray(validate.as_float_array("counts", counts), np.float64)
    validate.choice("ties", ties, TIES)
    discrete = isinstance(noise, Geometric)
    whole = discrete if whole_numbers is None else bool(whole_numbers)
    if discrete and not whole:
        raise ValueError("whole_numbers must not be False: geometric noise is on the whole numbers")
    if np.isinf(shown).any():
        raise ValueError("counts must be finite, or NaN where nothing was published")
    bottom, top = (None, None) if clamp is None else clamp
    for name, end in (("clamp[0]", bottom), ("clamp[1]", top)):
        if end is not None:
            validate.real_number(name, end)
    at_bottom = np.zeros(shown.shape, bool) if bottom is None else shown <= bottom
    at_top = np.zeros(shown.shape, bool) if top is None else shown >= top
    low, high = shown.copy(), shown.copy()
    if grid is not None:
        grid = validate.real_number("grid", grid, above=0)
        # The ends of the range need not be multiples; the last one within is.
        inner = shown.copy()
        if bottom is not None:
            inner[at_bottom] = grid * math.floor(bottom / grid)
        if top is not None:
            inner[at_top] = grid * math.ceil(top / grid)
        low, high = _rounded(inner, grid, ties, whole)
    low, high = np.where(at_bottom, -np.inf, low), np.where(at_top, np.inf, high)
    if threshold is not None:
        threshold = validate.real_number("threshold", threshold)
        low = np.maximum(low, math.ceil(threshold) if whole else threshold)
    missing = np.isnan(shown)
    below = np.inf
    if threshold is not None:
        below = math.ceil(threshold) - 1 if whole else threshold
    low, high = np.where(missing, -np.inf, low), np.where(missing, below, high)
    if (low > high).any():
        raise ValueError(
            "counts must be what the stated processing can publish: "
            f"{int((low > high).sum())} of them cannot be above threshold"
        )
    if (low == high).all():
        return NoisyTables(low, n_records, noise, mask)
    if whole and not discrete:  # a sum of a density at whole numbers, about
        apart = low < high
        low, high = np.where(apart, low - 0.5, low), np.where(apart, high + 0.5, high)
    return NoisyTables(low, n_records, noise, mask, upper=high)


def _rounded(
    shown: np.ndarray, grid: float, ties: str, whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The noisy counts that are rounded to what is shown, between (lowest, highest)."""
    steps = shown / grid
    if not np.all(np.isnan(steps) | (np.abs(steps - np.round(steps)) < 1e-6)):
        raise ValueError("counts must be multiples of grid, up to the ends of clamp")
    low, high = shown - grid / 2, shown + grid / 2
    if not whole:
        return low, high
    takes_low = np.ones(shown.shape, bool)
    takes_high = np.zeros(shown.shape, bool)
    if ties == "even":
        takes_low = takes_high = np.round(steps) % 2 == 0
    least, most = np.ceil(low), np.floor(high)
    least = np.where((least == low) & ~takes_low, least + 1, least)
    most = np.where((most == high) & ~takes_high, most - 1, most)
    return least, most


def known(counts: Any) -> Measurement:
    """Counts that are public as they are, `[I, K, J]`, NaN for the others.

    For `NoisyTables(..., also=(known(counts),))`, or as one of the tables of `combine`.
    """
    values = np.asarray(validate.as_float_array("counts", counts), np.float64)
    hidden = np.isnan(values)
    good = hidden | ((values >= 0) & (np.floor(values) == values) & np.isfinite(values))
    if not good.all():
        raise ValueError("counts must be whole numbers >= 0, or NaN where they are not public")
    low, high = np.where(hidden, -np.inf, values), np.where(hidden, np.inf, values)
    return Measurement(low, Known(), high)


def combine(first: NoisyTables, *others: NoisyTables | Measurement) -> NoisyTables:
    """Several releases of the same records as one: the product of their factors.

    Noises, scales and, where releases have names, sets of features may differ; the classes, and
    the categories of a feature that several have, must agree. N must be the same where it is
    stated, and one statement is enough. What it promises is all of the releases together: with
    names, `guarantees` holds each one's promise, and budgets add up.

    Args:
        first: tables, plain or with names.
        *others: of the same records; a `Measurement` (as from `known`) is of the same cells as
            `first`.
    """
    releases = [check_type(first)]
    for one in others:
        if isinstance(one, Measurement):
            releases[-1] = dataclasses.replace(_plain(releases[-1]), also=(*releases[-1].also, one))
        else:
            releases.append(check_type(one))
    names = [getattr(one, "domain", None) for one in (first, *others)]
    if all(isinstance(name, Domain) for name in names):
        return _combined_by_name(releases)
    plain = [_plain(one) for one in releases]
    start = plain[0]
    for r, one in enumerate(plain[1:], 2):
        if one.counts.shape != start.counts.shape or not _same_mask(one, start):
            raise ValueError(
                f"the tables to combine must have the same classes, features and categories; those "
                f"of release {r} are {list(one.counts.shape)} with their mask, of release 1 "
                f"{list(start.counts.shape)}"
            )
    return dataclasses.replace(
        start,
        n_records=_one_n(plain),
        also=tuple(m for one in plain for m in one.measurements)[1:],
        class_totals=_one_class_totals(plain),
        groups=tuple(g for one in plain for g in one.groups),
    )


def _combined_by_name(releases: list[Any]) -> NamedTables:
    """Releases with names: their features' union, in the order in which they first come."""
    class_ = releases[0].domain.class_
    features: dict[str, Column] = {}
    for r, one in enumerate(releases, 1):
        if one.domain.class_ != class_:
            raise ValueError(f"the classes of release {r} differ from those of release 1")
        for feature in one.domain.features:
            if features.setdefault(feature.name, feature) != feature:
                raise ValueError(
                    f"the categories of feature {feature.name!r} in release {r} differ from those "
                    "in an earlier one"
                )
    domain = Domain(class_, tuple(features.values()))
    sizes = list(domain.n_categories)
    own_table = any(_has_class_table(one) for one in releases)
    sizes += [1] * own_table
    place = {name: k for k, name in enumerate(features)}
    shape = (len(class_), len(sizes), max(sizes))
    measurements = [m for one in releases for m in _spread(one, place, shape)]
    masks = [_spread_mask(one, place, shape, sizes) for one in releases]
    mask = np.all(masks, axis=0)
    start = measurements[0]
    return NamedTables(
        counts=start.counts,
        n_records=_one_n(releases),
        noise=start.noise,
        upper=start.upper,
        also=tuple(measurements[1:]),
        mask=_shortest(mask),
        class_totals=_one_class_totals(releases),
        groups=tuple(g for one in releases for g in one.groups),
        domain=domain,
        guarantees=tuple(g for one in releases for g in _guarantees(one)),
    )


def _has_class_table(one: NoisyTables) -> bool:
    """Whether the class's own table stands behind those of the features."""
    return one.n_features > len(one.domain.features)  # type: ignore[attr-defined]


def _rows_of(one: Any, place: Mapping[str, int]) -> list[int]:
    """The row of each of a release's tables among those of all."""
    rows = [place[feature.name] for feature in one.domain.features]
    return [*rows, len(place)] if _has_class_table(one) else rows


def _spread(one: Any, place: Mapping[str, int], shape: tuple[int, int, int]) -> list[Measurement]:
    """Its measurements on the features of all, with nothing published of the others."""
    rows, J = _rows_of(one, place), one.counts.shape[-1]
    complete = len(rows) == shape[1]
    found = []
    for m in one.measurements:
        low = np.full(shape, -np.inf)
        high = np.full(shape, np.inf)
        low[:, rows, :J] = m.counts
        high[:, rows, :J] = m.counts if m.upper is None else m.upper
        noise = m.noise
        scales = [np.asarray(s) for s in jax.tree.leaves(noise)]
        if any(s.ndim for s in scales):
            wide = np.full(shape[1], float(scales[0].max()))
            wide[rows] = scales[0]
            noise = noise.with_value(jnp.asarray(wide))
        plain = complete and m.upper is None
        low = np.where(np.isfinite(low), low, 0) if plain else low
        found.append(Measurement(low, noise, None if plain else high))
    return found


def _spread_mask(
    one: Any, place: Mapping[str, int], shape: tuple[int, int, int], sizes: Sequence[int]
) -> np.ndarray:
    """Its real cells on the features of all; of those it lacks, all that exist. `[I, K, J]`."""
    real = np.broadcast_to(np.arange(shape[2]) < np.asarray(sizes)[:, None], shape).copy()
    rows, J = _rows_of(one, place), one.counts.shape[-1]
    real[:, rows, :J] &= _real(one)
    return real


def _shortest(mask: np.ndarray) -> np.ndarray | None:
    """The mask `[I, K, J]` as `[K, J]` where classes do not differ; None if all cells are real."""
    if mask.all():
        return None
    return mask[0] if (mask == mask[:1]).all() else mask


def _plain(tables: NoisyTables) -> NoisyTables:
    """The tables without names."""
    return jax.tree.map(lambda x: x, tables)


def _same_mask(one: NoisyTables, other: NoisyTables) -> bool:
    return bool((_real(one) == _real(other)).all())


def _real(one: NoisyTables) -> np.ndarray:
    """Real cells, `[..., I, K, J]`."""
    real = np.asarray(one.real)
    by_feature = real.ndim == len(one.batch_shape) + 2
    return np.broadcast_to(real[..., None, :, :] if by_feature else real, one.counts.shape)


def _one_n(releases: Sequence[NoisyTables]) -> Any:
    """N, as far as any release states it."""
    stated = [one.n_records for one in releases if one.n_records is not None]
    if any(not np.array_equal(np.asarray(N), np.asarray(stated[0])) for N in stated[1:]):
        raise ValueError("n_records must be the same in all releases of the same records")
    return stated[0] if stated else None


def _one_class_totals(releases: Sequence[NoisyTables]) -> Any:
    """Public class totals, as far as any release has them."""
    stated = [np.asarray(x.class_totals) for x in releases if x.class_totals is not None]
    if not stated:
        return None
    found = stated[0]
    for one in stated[1:]:
        both = np.isfinite(found) & np.isfinite(one)
        if (found[both] != one[both]).any():
            raise ValueError("class_totals must be the same in all releases of the same records")
        found = np.where(np.isfinite(found), found, one)
    return found


def _guarantees(one: Any) -> tuple[Guarantee, ...]:
    if isinstance(one, Release):
        return (one.guarantee,)
    return getattr(one, "guarantees", ())


def from_tables(
    tables: Mapping[str, Any],
    *,
    noise: Any,
    n_records: Any = None,
    classes: Sequence[Any] | None = None,
    class_name: str = "class",
    post_processed: str | None = None,
) -> NamedTables:
    """Noisy tables from anywhere: one a feature, classes in rows and categories in columns.

    Args:
        tables: feature name -> a DataFrame (its index are the classes, its columns the categories)
            or an array `[I, J_k]` (classes and categories are numbered from 0). NaN: not published.
        noise: that was added to every cell; one scale, or one a table in the order of `tables`.
        n_records: N; None if it is not public.
        classes: labels of the classes, where the tables are arrays.
        class_name: what the class is called.
        post_processed: must be None. Tables that were averaged, reweighted or made consistent after
            the noise no longer have the noise that was added, and are refused: ask for the raw
            ones.
    """
    if post_processed is not None:
        raise ValueError(
            "post_processed tables (averaged, reweighted or made consistent) do not have the noise "
            "that was added, and no likelihood here is theirs; use the raw noisy tables"
        )
    if not isinstance(tables, Mapping) or not tables:
        raise TypeError(
            "tables must be a non-empty mapping from feature names to noisy tables, got "
            f"{validate.describe(tables)}"
        )
    found: dict[str, tuple[np.ndarray, tuple[Any, ...]]] = {}
    labels = None if classes is None else tuple(classes)
    for k, (name, table) in enumerate(tables.items(), 1):
        # By its place: keys and cells are the reader's only if these are what they should be.
        which = f"table {k} of tables"
        array = np.asarray(validate.as_float_array(which, table), np.float64)
        if array.ndim != 2:
            raise ValueError(
                f"{which} must have classes in rows and categories in columns, got "
                f"{validate.describe(table)}"
            )
        index, categories = _labels(table, array.shape)
        if labels is None:
            labels = tuple(range(len(array))) if index is None else index
        if index is not None:
            if sorted(map(str, index)) != sorted(map(str, labels)):
                raise ValueError(f"{which} must have the same classes as the other tables")
            array = array[[index.index(label) for label in labels]]
        if len(array) != len(labels):
            raise ValueError(
                f"{which} must have one row for each of the {len(labels)} classes, got {len(array)}"
            )
        found[str(name)] = (array, categories)
    assert labels is not None
    return _named(found, noise, n_records, labels, class_name)


def _labels(table: Any, shape: tuple[int, ...]) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
    """(Labels of the rows, if any; of the columns)."""
    if hasattr(table, "columns") and hasattr(table, "index"):
        return tuple(table.index.tolist()), tuple(table.columns.tolist())
    return None, tuple(range(shape[1]))


CSV_COLUMNS = ("feature", "class", "category", "count")


def load_tables(path: str, *, noise: Any, n_records: Any = None) -> NamedTables:
    """`from_tables` of a CSV file with the columns feature, class, category, count.

    A line a cell, in any order; an empty count, or a cell without a line, was not published.
    """
    rows = csv_rows(check_path("path", path))
    header = next(rows, (1, []))[1]
    if set(header) != set(CSV_COLUMNS) or len(header) != len(CSV_COLUMNS):
        raise ValueError(
            f"{path} must have the columns {', '.join(CSV_COLUMNS)}, and has {len(header)} columns"
        )
    feature, class_, category, count = (header.index(name) for name in CSV_COLUMNS)
    cells: dict[str, dict[tuple[str, str], float]] = {}
    for line, row in rows:
        table = cells.setdefault(row[feature], {}) if len(row) == len(header) else None
        if table is None or (row[class_], row[category]) in table:
            raise ValueError(f"{path}, line {line}: must be one cell, and not a second time")
        number = _number(row[count])
        if number is None:
            raise ValueError(f"{path}, line {line}: count must be a number or empty")
        table[row[class_], row[category]] = number
    if not cells:
        raise ValueError(f"{path} has no cells")
    classes = tuple(dict.fromkeys(c for table in cells.values() for c, _ in table))
    tables = {}
    for name, table in cells.items():
        categories = tuple(dict.fromkeys(category for _, category in table))
        counts = [[table.get((c, x), math.nan) for x in categories] for c in classes]
        tables[name] = (np.asarray(counts), categories)
    return _named(tables, noise, n_records, classes, "class")


def _number(text: str) -> float | None:
    """A published count; NaN for a blank cell, None for what is no number."""
    try:
        return float(text) if text.strip() else math.nan
    except ValueError:
        return None


def _named(
    tables: Mapping[str, tuple[np.ndarray, tuple[Any, ...]]],
    noise: Any,
    n_records: Any,
    classes: tuple[Any, ...],
    class_name: str,
) -> NamedTables:
    """From each feature's counts `[I, J_k]`, NaN where not published, and its labels."""
    columns = tuple(Column(name, labels) for name, (_, labels) in tables.items())
    domain = Domain(Column(class_name, classes), columns)
    counts = np.zeros(domain.shape)
    for k, (array, _) in enumerate(tables.values()):
        counts[:, k, : array.shape[1]] = array
    upper, hidden = None, np.isnan(counts)
    if hidden.any():
        upper = np.where(hidden, np.inf, counts)
        counts = np.where(hidden, -np.inf, counts)
    mask = mask_from_categories(domain.n_categories)
    return NamedTables(
        counts=counts, n_records=n_records, noise=noise, mask=mask, upper=upper, domain=domain
    )
