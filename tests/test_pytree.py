"""Frozen dataclasses as pytrees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb._pytree import pytree_dataclass, static, with_fields


@pytree_dataclass
class Checked:
    value: object
    name: str = static(default="x")

    def __post_init__(self):
        if isinstance(self.value, int) and self.value < 0:
            raise ValueError("negative")


def example(dtype=jnp.float64):
    counts = jnp.arange(24, dtype=dtype).reshape(2, 2, 3, 2)
    return pnb.NoisyTables(counts, 30, pnb.Laplace(jnp.asarray([1.0, 2.0], dtype)), None)


def test_construction_validates_and_unflattening_does_not():
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    leaves, tree = jax.tree.flatten(Checked(1))
    assert jax.tree.unflatten(tree, [-1]).value == -1
    assert leaves == [1]


def test_fields_are_changed_in_a_copy_without_checks():
    first = Checked(1, "a")
    second = with_fields(first, value=-1)
    assert (first.value, second.value, second.name) == (1, -1, "a")


def test_static_fields_are_structure():
    assert jax.tree.structure(Checked(1, "a")) != jax.tree.structure(Checked(1, "b"))
    assert jax.tree.structure(Checked(1, "a")) == jax.tree.structure(Checked(2, "a"))


def test_fields_cannot_be_assigned():
    with pytest.raises(dataclasses.FrozenInstanceError):
        example().counts = 3


def test_paths_name_the_fields():
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(example())]
    assert paths == [".counts", ".n_records", ".noise.scale"]


def test_repr_gives_shapes_of_arrays_and_values_of_scalars():
    prior = pnb.Prior(np.ones(2), np.ones((2, 3, 2)))
    assert repr(prior) == "Prior(class_=float64[2], feature=float64[2, 3, 2])"
    assert repr(pnb.Laplace(2.5)) == "Laplace(scale=2.5)"
    assert "Tracer" not in repr(jax.eval_shape(lambda p: p, prior))
    seen = []
    jax.jit(lambda noise: seen.append(repr(noise)))(pnb.Laplace(2.5))
    assert seen == ["Laplace(scale=float64[])"]


def test_jit_vmap_and_tree_map_keep_the_class(dtype):
    tables = example(dtype)
    double = lambda t: jax.tree.map(lambda x: 2 * x, t)  # noqa: E731
    for out in (double(tables), jax.jit(double)(tables), jax.vmap(double)(tables)):
        assert isinstance(out, pnb.NoisyTables)
        assert isinstance(out.noise, pnb.Laplace)
        assert out.mask is None
        np.testing.assert_array_equal(out.counts, 2 * np.asarray(tables.counts))
        assert {x.dtype for x in jax.tree.leaves(out)} == {dtype}


def test_none_and_bare_objects_survive_tree_functions():
    nothing = jax.tree.map(lambda _: None, example())
    assert nothing.counts is None
    assert "NoisyTables(counts=None" in repr(nothing)
    axes = jax.tree.map(lambda _: 0, example())
    first = jax.vmap(lambda t: t.counts.sum(), in_axes=(axes,))(example())
    np.testing.assert_array_equal(first, [66.0, 210.0])


def test_device_put_with_a_sharding():
    mesh = jax.make_mesh((1,), ("replicate",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("replicate"))
    tables = jax.device_put(example(), sharding)
    assert all(x.sharding == sharding for x in jax.tree.leaves(tables))
    fit = jax.jit(jax.vmap(pnb.fit_naive))(tables)
    assert fit.class_alpha.sharding.is_equivalent_to(sharding, 2)
    np.testing.assert_allclose(fit.class_alpha.sum(-1), 32.0, rtol=1e-14)
