"""Checks of what a user passed, made once, at the edge, before anything is traced.

Values can be checked only when they are known: under an outer `jit` or `vmap` the arrays are
tracers, and a bad value then becomes the replicate's `status` instead of an exception. The
same holds for batches, where one bad replicate must not fail its neighbours.

Every message names the argument, says what it was, and says what was expected. What it was is said
by `describe`: any argument may have been handed the records by mistake. Where their number is
private too, `sizes_hidden` keeps it out of every message.
"""

import contextlib
import contextvars
import difflib
import math
import numbers
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

_WORD = 40
"""Longest text that is taken for an option or a name that someone typed."""


_sizes_shown = contextvars.ContextVar("sizes_shown", default=True)


@contextlib.contextmanager
def sizes_hidden(hidden: bool) -> Iterator[None]:
    """Whether messages made in this context leave out the sizes of what was passed."""
    token = _sizes_shown.set(not hidden)
    try:
        yield
    finally:
        _sizes_shown.reset(token)


def size(number: int) -> str:
    """How many entries something passed has, for a message."""
    return str(number) if _sizes_shown.get() else "another number"


def describe(value: Any) -> str:
    """What a value is, for a message: a number or None as it is, all else by type and size."""
    if value is None or isinstance(value, numbers.Number | np.bool_):
        return repr(value)
    if isinstance(value, type):
        return f"the type {value.__name__}"
    kind = type(value).__name__
    if not _sizes_shown.get():
        return kind
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        # The name of a dtype, not its repr: that of a pandas categorical holds the labels.
        dtype = getattr(getattr(value, "dtype", None), "name", None)
        return f"{kind} of shape {shape}" + (f" and dtype {dtype}" if dtype else "")
    if isinstance(value, str | bytes):
        return f"{kind} of {len(value)} characters"
    return f"{kind} of {len(value)} items" if isinstance(value, Sized) else kind


def word(value: Any) -> str:
    """The same where a word is expected, which is shown: a short text was typed."""
    return repr(value) if isinstance(value, str) and len(value) <= _WORD else describe(value)


def is_concrete(x: Any) -> bool:
    """Whether the values of `x` can be looked at now."""
    return not isinstance(x, jax.core.Tracer)


def as_float_array(name: str, x: Any, dtype: DTypeLike | None = None) -> jax.Array:
    """`x` as a floating array: its own dtype if float32 or float64, JAX's default otherwise."""
    try:
        array = x if isinstance(x, jax.Array) else np.asarray(x)
    except ValueError:
        raise TypeError(
            f"{name} must be an array of numbers, got {describe(x)} of unequal lengths"
        ) from None
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in kinds):
        raise TypeError(f"{name} must be an array of real numbers, got {_numbers(x, array)}")
    if dtype is None:
        wide = array.dtype in (np.dtype(np.float32), np.dtype(np.float64))
        dtype = jax.dtypes.canonicalize_dtype(array.dtype) if wide else jnp.result_type(float)
    return jnp.asarray(array.astype(dtype))


def float_dtype(name: str, dtype: DTypeLike | None) -> Any:
    """float32 or float64, as far as JAX is set to allow it; JAX's default if `dtype` is None."""
    if dtype is None:
        return jnp.result_type(float)
    found = None
    with contextlib.suppress(TypeError, ValueError):  # whose messages may show it
        found = jnp.dtype(dtype)
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"{name} must be float32, float64 or None, got {word(dtype)}")
    return jax.dtypes.canonicalize_dtype(found)


def random_key(name: str, key: Any) -> jax.Array:
    """One JAX random key, typed; raw ones (`jax.random.PRNGKey`) are wrapped."""
    is_array = isinstance(key, jax.Array | np.ndarray)
    typed = is_array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed and not (is_array and key.dtype == np.uint32):
        raise TypeError(
            f"{name} must be a random key, as from jax.random.key(0), got {describe(key)}"
        )
    if key.ndim != (0 if typed else 1):
        raise ValueError(f"{name} must be one random key, got an array of shape {key.shape}")
    return key if typed else jax.random.wrap_key_data(key)


def positive(name: str, x: jax.Array, hint: str = "") -> None:
    """Raise unless every value is finite and > 0."""
    if not is_concrete(x):
        return
    values = np.asarray(x)
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        raise ValueError(
            f"{name} must be finite and > 0, got {_first(values, bad)}"
            + (f"; {hint}" if hint else "")
        )


def counts_and_mask(
    counts: jax.Array, mask: Any, *, argument: str = "counts", finite: bool = True
) -> jax.Array | None:
    """Check `counts [..., I, K, J]`; return `mask` as bool, `[..., (I,) K, J]`, or None.

    Counts that are not `finite` are let through: they may be ends of intervals.
    """
    if counts.ndim < 3:
        raise ValueError(
            f"{argument} must have shape [I, K, J] (classes, features, categories), "
            f"after any leading batch axes; got shape {counts.shape}"
        )
    if 0 in counts.shape[-3:]:
        raise ValueError(
            f"{argument} needs at least one class, feature and category, got shape {counts.shape}"
        )
    if mask is not None:
        mask = _bool_mask(mask, counts.shape[:-3], counts.shape[-3:])
    if finite and is_concrete(counts) and counts.ndim == 3:
        finite_counts(counts, mask, argument=argument)
    return mask


def finite_counts(counts: jax.Array, mask: jax.Array | None, *, argument: str = "counts") -> None:
    """Raise if a real (unmasked) cell of one dataset is NaN or infinite."""
    if not is_concrete(mask):
        return
    values = np.asarray(counts)
    bad = ~np.isfinite(values)
    if mask is not None:
        bad &= np.asarray(mask)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{argument} must be finite, got {values[where]} at index {where} "
            "(class, feature, category)"
        )


def intervals(name: str, low: jax.Array, high: jax.Array, mask: jax.Array | None) -> None:
    """Raise if a real cell of one dataset has no count between its ends."""
    if not (is_concrete(low) and is_concrete(high) and is_concrete(mask)):
        return
    below, above = np.asarray(low), np.asarray(high)
    good = (below < above) | ((below == above) & np.isfinite(below))
    if mask is not None:
        good |= ~np.asarray(mask)
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ValueError(
            f"{name}counts must be at most {name}upper, and finite where they are equal; this is "
            f"not so at index {where} (class, feature, category)"
        )


def true_counts(counts: jax.Array, mask: jax.Array | None) -> None:
    """Raise unless non-private counts are non-negative and their class margins agree.

    The message gives no count: these are the true ones.
    """
    if not is_concrete(counts) or not is_concrete(mask) or counts.ndim != 3:
        return
    values = np.asarray(counts, dtype=np.float64)
    if mask is not None:
        values = np.where(np.asarray(mask), values, 0.0)
    if (values < 0).any():
        raise ValueError(
            "counts must be >= 0, got a negative one: fit_bayes takes true counts; "
            "for noisy ones use fit_naive, fit_vb or fit_exact"
        )
    margins = values.sum(-1)
    if not np.allclose(margins, margins[:, :1], rtol=1e-5, atol=1e-6):
        raise ValueError(
            "counts must have the same class totals (sums over categories) in every feature's "
            "table, got totals that disagree; fit_bayes takes true counts; "
            "for noisy ones use fit_naive, fit_vb or fit_exact"
        )


def n_records(n: Any, dtype: DTypeLike, batch: tuple[int, ...]) -> jax.Array:
    """N as a float array broadcast to the batch shape."""
    if isinstance(n, bool):
        raise TypeError(f"n_records must be a number, got {describe(n)}")
    out = as_float_array("n_records", n, dtype)
    if is_concrete(out) and out.ndim == 0:
        N = float(out)
        if not (math.isfinite(N) and N >= 0 and N.is_integer()):
            raise ValueError(f"n_records must be a whole number >= 0, got {N:g}")
    return broadcast_to_batch("n_records", out, batch)


def class_totals(x: jax.Array, shape: tuple[int, ...]) -> None:
    """Raise unless public class totals have `shape` and are whole numbers >= 0, or NaN."""
    if x.shape != shape:
        raise ValueError(f"class_totals must have shape {shape}, one a class, got {x.shape}")
    if not is_concrete(x) or x.ndim != 1:
        return
    values = np.asarray(x)
    good = np.isnan(values) | (np.isfinite(values) & (values >= 0) & (np.floor(values) == values))
    if not good.all():
        raise ValueError(
            "class_totals must hold whole numbers >= 0, and NaN for classes whose total is not "
            f"public; that of class {int(np.argmin(good))} is neither"
        )


def class_group(name: str, classes: Any) -> tuple[int, ...]:
    """The numbers of a group's classes, in order."""
    if isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        raise TypeError(f"{name} must be whole numbers, one a class, got {describe(classes)}")
    found = sorted(whole_number(name, i) for i in classes)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{name} must be at least one class, each named once")
    return tuple(found)


def laminar(name: str, groups: Sequence[tuple[int, ...]], n_classes: int) -> None:
    """Raise unless all groups are of classes that exist, and nested or disjoint."""
    for r, group in enumerate(groups):
        if group[-1] >= n_classes:
            raise ValueError(
                f"{name}[{r}].classes must be of 0, ..., {n_classes - 1}, as counts has "
                f"{n_classes} classes; got {group[-1]}"
            )
        for s, other in enumerate(groups[:r]):
            both = set(group) & set(other)
            if both and len(both) < min(len(group), len(other)):
                raise ValueError(
                    f"{name} must be nested or have no class in common: {name}[{s}] and "
                    f"{name}[{r}] overlap. Leave one of them out; no sum over one total at a time "
                    "goes over both"
                )


def group_total(name: str, total: jax.Array, *, public: bool) -> None:
    """Raise unless one group's total is finite, and a whole number >= 0 where it is `public`."""
    if not is_concrete(total) or total.ndim:
        return
    value = float(total)
    if not math.isfinite(value) or (public and not (value >= 0 and value.is_integer())):
        kind = "a whole number >= 0, as it is public (no noise)" if public else "finite"
        raise ValueError(f"{name} must be {kind}, got {value:g}")


def log_weights(name: str, x: jax.Array, batch: tuple[int, ...]) -> None:
    """Raise unless `x` has one entry a number of records, below inf and not all -inf."""
    if x.ndim != len(batch) + 1 or x.shape[:-1] != batch or x.shape[-1] == 0:
        raise ValueError(
            f"{name} must have one entry for each of N = 0, 1, ... on its last axis, got shape "
            f"{x.shape}"
        )
    if not is_concrete(x) or batch:
        return
    values = np.asarray(x)
    if not (values < np.inf).all() or not (values > -np.inf).any():
        raise ValueError(
            f"{name} must hold log weights: finite or -inf (for N that cannot be), not all -inf"
        )


def broadcast_to_batch(name: str, x: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """Give `x` the batch's leading axes."""
    if x.shape == batch:
        return x
    if x.ndim == 0:
        return jnp.broadcast_to(x, batch)
    raise ValueError(
        f"{name} must be a scalar or have the batch shape {batch}, got shape {x.shape}"
    )


def noise_parameter(name: str, x: jax.Array, batch: tuple[int, ...], n_features: int) -> jax.Array:
    """A noise scale: one a dataset (`batch`), or one a table (`batch + [K]`).

    What all datasets share is checked; of those that datasets have of their own, one may be bad.
    """
    per_table = (*batch, n_features)
    if batch and x.shape in (batch, per_table):
        return x
    shared = {(): batch, (n_features,): per_table}
    if x.shape in shared:
        positive(name, x)
        return jnp.broadcast_to(x, shared[x.shape])
    raise ValueError(
        f"{name} must be a scalar, one value a table (shape {per_table}) "
        f"or one a dataset (shape {batch}), got shape {x.shape}"
    )


def concentration(
    name: str, x: jax.Array, shape: tuple[int, ...], mask: jax.Array | None = None
) -> None:
    """Raise unless a Dirichlet concentration has `shape` and is positive where it is real."""
    values = _by_cell(name, x, shape, mask, 1.0)
    if values is None:
        return
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        raise ValueError(
            f"{name} must be finite and > 0 (a Dirichlet concentration), got {_first(values, bad)}"
        )


def probabilities(
    name: str, x: jax.Array, shape: tuple[int, ...], mask: jax.Array | None = None
) -> None:
    """Raise unless `x` has `shape`, is >= 0, and has something on every row of real cells."""
    values = _by_cell(name, x, shape, mask, 0.0)
    if values is None:
        return
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise ValueError(f"{name} must hold probabilities >= 0, got {_first(values, bad)}")
    if not (values.sum(-1) > 0).all():
        raise ValueError(f"{name} must hold probabilities, but a row sums to 0")


def _by_cell(
    name: str, x: jax.Array, shape: tuple[int, ...], mask: jax.Array | None, fill: float
) -> np.ndarray | None:
    """Values of the given shape, `fill` in masked cells; None where they cannot be read."""
    if x.shape != shape:
        raise ValueError(f"{name} must have shape {shape} to fit the tables, got {x.shape}")
    if not is_concrete(x) or (mask is not None and not is_concrete(mask)):
        return None
    values = np.asarray(x)
    return values if mask is None else np.where(np.asarray(mask), values, fill)


def single_dataset(function: str, counts: jax.Array) -> None:
    """Raise unless `counts` is one dataset."""
    if counts.ndim != 3:
        raise ValueError(
            f"{function} fits one dataset with counts [I, K, J], got shape {counts.shape}; "
            f"for a leading axis of datasets use fit_many, or jax.vmap({function})"
        )


def choice(name: str, value: Any, allowed: Iterable[str], *, quote: bool = True) -> str:
    """Raise unless `value` is one of the allowed words; suggest the nearest.

    `quote` says whether a message may show a short text: no for entries of what may be a record.
    """
    allowed = list(allowed)
    if not isinstance(value, str):
        raise TypeError(
            f"{name} must be one of {', '.join(map(repr, allowed))}, got {_quoted(value, quote)}"
        )
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        shown = word(value) if quote else describe(value)
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, allowed))}, got {shown}{hint}"
        )
    return value


def whole_number(name: str, value: Any, *, at_least: int = 0, quote: bool = True) -> int:
    """Raise unless `value` is an integer of at least `at_least`.

    `quote` says whether a message may show it.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {_quoted(value, quote)}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {_quoted(value, quote)}")
    return int(value)


def real_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    allow_zero: bool = False,
    quote: bool = True,
) -> float:
    """Raise unless `value` is a real number strictly inside (above, below), or 0 if allowed.

    `quote` says whether a message may show it.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real | np.floating):
        raise TypeError(f"{name} must be a number, got {_quoted(value, quote)}")
    number = float(value)
    if allow_zero and number == 0:
        return number
    if not above < number < below:
        raise ValueError(f"{name} must be in ({above:g}, {below:g}), got {_quoted(value, quote)}")
    return number


def n_categories(value: Any, name: str = "n_categories") -> tuple[int, ...]:
    """The number of categories of each feature, as a tuple of ints >= 1."""
    text = isinstance(value, str | bytes)
    if not isinstance(value, Sequence | np.ndarray) or text or len(value) == 0:
        raise TypeError(
            f"{name} must be a non-empty sequence, one whole number a feature, "
            f"got {describe(value)}"
        )
    return tuple(whole_number(f"{name}[{k}]", _plain(v), at_least=1) for k, v in enumerate(value))


def categories(x: Any, n_features: int, mask: Any) -> jax.Array:
    """Records to predict: integer `[..., K]`, -1 for missing, below J_k otherwise.

    Args:
        x: the records.
        n_features: K.
        mask: real cells, `[..., K, J]`.
    """
    try:
        array = x if isinstance(x, jax.Array) else np.asarray(x)
    except ValueError:
        raise TypeError(
            f"x must be an array of integer categories, got {describe(x)} of unequal lengths"
        ) from None
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(
            f"x must hold integer categories (-1 for missing), got {_numbers(x, array)}; a "
            "release turns records with labels into them: release.encode(records)"
        )
    if array.ndim < 1 or array.shape[-1] != n_features:
        raise ValueError(
            f"x must have {n_features} features on its last axis, got shape {array.shape}"
        )
    if is_concrete(array) and is_concrete(mask):
        real = np.all(np.asarray(mask), axis=tuple(range(np.ndim(mask) - 2)), keepdims=True)
        real = real.reshape(real.shape[-2:])  # of every dataset of a batch
        values = np.asarray(array)
        bad = (values < -1) | (values >= real.shape[-1])
        inside = np.where(bad | (values < 0), 0, values)
        bad |= (values >= 0) & ~real[np.arange(n_features), inside]
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            allowed = np.flatnonzero(real[where[-1]]).tolist()
            raise ValueError(
                f"x must hold known categories, got another one at index {where}; "
                f"feature {where[-1]} has categories {allowed}, and -1 means missing"
            )
    return jnp.asarray(array)


def _bool_mask(mask: Any, batch: tuple[int, ...], shape: tuple[int, ...]) -> jax.Array:
    """The mask as bool `[*batch, K, J]`, or `[*batch, I, K, J]` where classes differ.

    Where both readings fit (I classes, a batch of I datasets) it is one a dataset.
    """
    array = mask if isinstance(mask, jax.Array) else np.asarray(mask)
    if array.dtype != jnp.bool_:
        raise TypeError(
            f"mask must be boolean (True marks a real cell), got {_numbers(mask, array)}"
        )
    K, J = shape[1:]
    by_feature = array.shape in ((K, J), (*batch, K, J))
    if not by_feature and array.shape not in (shape, (*batch, *shape)):
        raise ValueError(
            f"mask must have shape [K, J] = ({K}, {J}), or [I, K, J] = {shape} where classes "
            f"differ, got {array.shape}"
        )
    if is_concrete(array) and not np.asarray(array).any(-1).all():
        empty = np.argwhere(~np.asarray(array).any(-1))[0, -1]
        raise ValueError(
            f"mask must leave every feature at least one real category; feature {empty} has none"
        )
    return jnp.broadcast_to(array, (*batch, *(shape[1:] if by_feature else shape)))


def _numbers(x: Any, array: Any) -> str:
    """What was passed as an array: it, and the dtype it has as one."""
    found = describe(x)
    return found if array.dtype.name in found else f"{found} (as an array, {array.dtype.name})"


def _quoted(value: Any, quote: bool) -> str:
    """The value for a message; `quote` is False for entries of what may be a record."""
    return describe(value) if quote or not isinstance(value, numbers.Number) else "another number"


def _first(values: np.ndarray, bad: np.ndarray) -> str:
    """The first offending value and where it stands."""
    if values.ndim == 0:
        return f"{values}"
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{values[where]} at index {where}"


def _plain(v: Any) -> Any:
    return v.item() if isinstance(v, np.generic) else v
