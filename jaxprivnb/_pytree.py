"""Frozen dataclasses that are JAX pytrees."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


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
    fields = [f for f in dataclasses.fields(data_cls) if not f.metadata.get("aside")]  # type: ignore[arg-type]
    children = tuple(f.name for f in fields if not f.metadata.get("static"))
    structure = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten(obj: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(obj, n) for n in children), tuple(getattr(obj, n) for n in structure)

    def flatten_with_keys(obj: T) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        values, aux = flatten(obj)
        keys = map(jax.tree_util.GetAttrKey, children)
        return tuple(zip(keys, values, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], values: Any) -> T:
        obj = object.__new__(data_cls)
        for name, value in zip(children + structure, (*values, *aux), strict=True):
            object.__setattr__(obj, name, value)
        return obj

    jax.tree_util.register_pytree_with_keys(data_cls, flatten_with_keys, unflatten, flatten)
    if cls.__repr__ is object.__repr__:
        data_cls.__repr__ = shapes_repr  # type: ignore[method-assign]
    return data_cls


def shapes_repr(self: Any) -> str:
    """Shapes and dtypes, not values: batches are large."""
    parts = []
    for field in dataclasses.fields(self):
        value = getattr(self, field.name)
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is None:
            parts.append(f"{field.name}={value!r}")
        elif shape == () and not isinstance(value, jax.core.Tracer):
            parts.append(f"{field.name}={value}")
        else:
            parts.append(f"{field.name}={dtype}{list(shape)}")
    return f"{type(self).__name__}({', '.join(parts)})"
