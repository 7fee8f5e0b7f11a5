"""Frozen dataclasses that are JAX pytrees."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from jaxprivnb import validate

T = TypeVar("T")
_KNOWN = (jax.Array, np.ndarray, np.generic)
_SHAPED = (*_KNOWN, jax.ShapeDtypeStruct)


def static(**kwargs: Any) -> Any:
    """Declare a field that is part of the tree's structure rather than an array in it."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def aside(**kwargs: Any) -> Any:
    """Declare a field that stays out of the tree; what JAX rebuilds has its default again.

    For what describes the numbers but must not key compiled programs.
    """
    return dataclasses.field(metadata={"aside": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, aside, dataclasses.field))
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose fields are the children of a pytree.

    `__post_init__` validates what a person typed. JAX rebuilds trees from tracers, from
    shapes and from bare objects, so unflattening goes around it.
    """
    data_cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    register(data_cls, data_cls)
    if cls.__repr__ is object.__repr__:
        data_cls.__repr__ = shapes_repr  # type: ignore[method-assign]
    return data_cls


def register(cls: type, tree: type) -> None:
    """Flatten `cls` into the fields of the dataclass `tree`, which is what JAX rebuilds."""
    fields = [f for f in dataclasses.fields(tree) if not f.metadata.get("aside")]
    children = tuple(f.name for f in fields if not f.metadata.get("static"))
    structure = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(obj, n) for n in children), tuple(getattr(obj, n) for n in structure)

    def flatten_with_keys(obj: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        values, aux = flatten(obj)
        keys = map(jax.tree_util.GetAttrKey, children)
        return tuple(zip(keys, values, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], values: Any) -> Any:
        obj: Any = object.__new__(tree)
        set_fields(obj, **dict(zip(children + structure, (*values, *aux), strict=True)))
        return obj

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def set_fields(obj: Any, **values: Any) -> None:
    """Set fields of a frozen value that is still being made."""
    for name, value in values.items():
        object.__setattr__(obj, name, value)


def with_fields(obj: T, **changes: Any) -> T:
    """What JAX would rebuild of a value, with other fields.

    `dataclasses.replace` without the checks, which tracers and spoiled datasets would not pass.
    """
    copy = jax.tree.map(lambda x: x, obj)
    set_fields(copy, **changes)
    return copy


def shapes_repr(self: Any) -> str:
    """Shapes and dtypes, not values: batches are large, and what failed a check may be records."""
    parts = []
    for field in dataclasses.fields(self):
        value: Any = getattr(self, field.name, None)  # None in what was never initialised
        if value is field.default:
            continue
        if isinstance(value, _SHAPED):
            number = value.shape == () and value.dtype.kind in "biuf"
            shown = f"{value.dtype}{list(value.shape)}"
            if number and isinstance(value, _KNOWN) and validate.is_concrete(value):
                shown = str(value)
        elif field.metadata or dataclasses.is_dataclass(value):
            shown = repr(value)
        else:
            shown = validate.describe(value)
        parts.append(f"{field.name}={shown}")
    return f"{type(self).__name__}({', '.join(parts)})"
