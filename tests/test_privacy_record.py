"""`Release`: noisy tables with a promise, which no transformation keeps."""

import copy
import dataclasses
import math
import pickle
from fractions import Fraction

import jax
import numpy as np
import pytest
from cases import example_release

import jaxprivnb as pnb
from jaxprivnb.privacy.conversion import epsilon_from_rho
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.privacy.record import Guarantee, Release


def test_a_release_is_noisy_tables():
    made = example_release()
    assert isinstance(made, pnb.NoisyTables)
    assert made.feature_names == ("sex", "z")
    assert made.categories == {"sex": ("f", "m"), "z": (0, 1, 2)}
    assert made.classes == ("a", "b")
    np.testing.assert_array_equal(made.counts[1], [[5, 7, 0], [4, 5, 6]])
    assert repr(made) == (
        "Release(2 classes x 2 features x 3 categories, N=12, Geometric(scale=4.0), "
        "epsilon_total=1 (pure DP, replace one record))"
    )


def test_its_leaves_are_those_of_noisy_tables_and_a_transformed_one_is_plain():
    made = example_release()
    plain = pnb.NoisyTables(made.counts, 12, made.noise, made.mask)
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(made)]
    assert paths == [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(plain)]
    doubled = jax.tree.map(lambda x: x, made)
    assert type(doubled) is pnb.NoisyTables
    assert type(jax.jit(lambda t: t)(made)) is pnb.NoisyTables


def test_releases_of_one_shape_stack_into_a_batch():
    batch = jax.tree.map(
        lambda *x: jax.numpy.stack(x), example_release("sex"), example_release("age", 0.5)
    )
    assert type(batch) is pnb.NoisyTables
    assert batch.batch_shape == (2,)
    np.testing.assert_array_equal(batch.noise.scale, [4.0, 8.0])


def test_metadata_key_no_compiled_program():
    assert jax.tree.structure(example_release("sex", 1.0)) == jax.tree.structure(
        example_release("age", 0.5)
    )
    traces = []
    count = jax.jit(lambda t: traces.append(1) or t.counts.sum())
    count(example_release("sex", 1.0))
    count(example_release("age", 0.5))
    assert len(traces) == 1


def test_it_cannot_be_changed_and_copies_keep_the_promise():
    made = example_release()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.guarantee = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.counts = None
    for twin in (copy.copy(made), pickle.loads(pickle.dumps(made))):
        assert type(twin) is pnb.Release
        assert twin.guarantee == made.guarantee
        np.testing.assert_array_equal(twin.integers, made.integers)


def test_the_promise_in_other_words():
    pure = example_release().guarantee
    assert (pure.relation, pure.norm, pure.sensitivity) == ("replace one record", "L1", 2.0)
    assert pure.mechanism == "discrete Laplace"
    assert pure.epsilon() == pure.epsilon(1e-6) == 1.0
    assert pure.rho == 2 * 0.5**2 / 2
    concentrated = Guarantee("rho", 0.5, 0.5, (0.5,), (math.sqrt(2),))
    assert (concentrated.norm, concentrated.sensitivity) == ("L2", math.sqrt(2))
    assert concentrated.mechanism == "discrete Gaussian"
    assert concentrated.epsilon() == math.inf
    assert concentrated.epsilon(1e-6) == epsilon_from_rho(0.5, 1e-6) == pytest.approx(5.2215, 1e-4)
    assert str(concentrated) == "rho_total=0.5 (zCDP, replace one record)"
    with pytest.raises(ValueError, match="delta"):
        pure.epsilon(1.0)


def promise(measure="epsilon", neighbours="replace", contributions=1):
    scale = 4.0
    moved = Guarantee(measure, 1, 1, (1,), (scale,), neighbours, contributions).sensitivity / scale
    budget = moved if measure == "epsilon" else moved**2 / 2
    return Guarantee(measure, budget, budget, (budget,), (scale,), neighbours, contributions)


def test_the_relation_is_said_everywhere():
    made = Release.assemble(
        [np.zeros((2, 2), int)], None, None, Domain(Column("y", (0, 1)), (Column("x", (0, 1)),)),
        promise(neighbours="add-remove", contributions=3), {},
    )  # fmt: skip
    assert made.size is None
    assert made.n_records is None
    assert repr(made) == (
        "Release(2 classes x 1 features x 2 categories, N unknown, Geometric(scale=4.0), "
        "epsilon_total=0.75 (pure DP, add or remove up to 3 records))"
    )
    assert str(promise(contributions=2)).endswith("(pure DP, replace up to 2 records)")
    assert promise("rho", "add-remove").relation == "add or remove one record"


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("old", [("replace", 1), ("replace", 3), ("add-remove", 2)])
@pytest.mark.parametrize("new", [("replace", 1), ("replace", 7), ("add-remove", 5)])
def test_the_same_noise_under_other_neighbours(measure, old, new):
    made = promise(measure, *old)
    if (old[0], new[0]) == ("replace", "add-remove"):
        with pytest.raises(ValueError, match="neighbours must be 'replace' for a release that pub"):
            made.under(*new)
        return
    other = made.under(*new)
    expected = promise(measure, *new)
    assert other.scales == made.scales
    assert (other.neighbours, other.contributions) == new
    assert other.stated == other.total
    for found, right in (
        (other.total, expected.total),
        (other.per_table[0], expected.per_table[0]),
        (other.rho, expected.rho),
    ):
        assert found == pytest.approx(right, rel=1e-14)
    exact = Fraction(made.total) * Fraction(*(moved(measure, *r) for r in (new, old)))
    assert Fraction(other.total) >= exact  # rounded up, if at all


def moved(measure, neighbours, contributions):
    """The sensitivity, squared for rho."""
    cells = 2 if neighbours == "replace" else 1
    return cells * (contributions if measure == "epsilon" else contributions**2)


def test_a_group_of_g_records():
    # Pure budgets grow with the size of a group, zCDP ones with its square.
    assert promise("epsilon").under(contributions=3).total == 3 * promise("epsilon").total
    assert promise("rho").under(contributions=3).total == pytest.approx(9 * promise("rho").total)
    # One that is replaced is removed, and another added.
    pure = promise("epsilon", "add-remove")
    assert pure.under("replace").total == 2 * pure.total
    # Adding noise of one sigma to two cells is half of what a group of two may cost: 2, not 4.
    concentrated = promise("rho", "add-remove")
    assert concentrated.under("replace").total == 2 * concentrated.total


def test_records_are_encoded_by_label():
    made = example_release()
    np.testing.assert_array_equal(
        made.encode([["m", 2], ["f", 0], ["?", None]]), [[1, 2], [0, 0], [-1, -1]]
    )
    np.testing.assert_array_equal(made.encode({"z": [1], "sex": ["m"], "w": [0]}), [[1, 1]])


def test_the_gaussian_kernel_is_the_discrete_gaussians_up_to_its_constant():
    for sigma in (0.5, 1.0, 3.0):
        x = np.arange(-60, 61)
        kernel = np.exp(-(x**2) / (2 * sigma**2))
        pmf = kernel / kernel.sum()
        near = np.abs(x) < 8 * sigma
        density = np.exp(np.asarray(pnb.Gaussian(sigma).log_prob(x[near].astype(float))))
        ratio = density / pmf[near]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)  # proportional
        assert abs(ratio[0] - 1) <= 2.1 * math.exp(-2 * math.pi**2 * sigma**2) + 1e-13
