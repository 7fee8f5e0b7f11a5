"""Everything lowers for accelerators. That shows that programs exist, not that they are fast.

float64 is lowered for TPUs as well: whether a TPU's compiler takes it cannot be seen from here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Case, path_of
from jax import export

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_path
from jaxprivnb.many.fit import _fit_segment
from jaxprivnb.many.lanes import TILE, Width
from jaxprivnb.many.runners import make_runner
from jaxprivnb.methods import names
from jaxprivnb.parallel import WIDER
from jaxprivnb.simplex import SOLVERS

PLATFORMS = ("cuda", "rocm", "tpu")
PAIRS = Case((2, 2, 2), 10, scale=3.0)
TRIPLES = Case((2, 2, 3), 10, scale=3.0, prior=0.7)


def lowered(f, *args):
    """`f` of pytrees, lowered for every platform; its floats have the dtype of the arguments'."""
    # A release has no place in an exported program's signature: its arrays have.
    leaves, structure = jax.tree.flatten(args)

    def program(leaves):
        return jax.tree.leaves(f(*jax.tree.unflatten(structure, leaves)))

    found = export.export(jax.jit(program), platforms=PLATFORMS)(leaves)
    assert found.platforms == PLATFORMS
    floats = lambda xs: {x.dtype for x in xs if jnp.issubdtype(x.dtype, jnp.floating)}  # noqa: E731
    assert floats(found.out_avals) - {jnp.dtype("float32")} <= floats(found.in_avals)
    return found


def answers(posterior):
    """All that is asked of a posterior."""
    return (
        posterior.class_mean,
        posterior.feature_sd,
        posterior.class_interval(0.95),
        posterior.feature_interval(0.95),
        posterior.sample(jax.random.key(0), 4),
        posterior.predict_proba(jnp.zeros((3, 2), jnp.int32)),
    )


def test_naive_fits_and_the_answers_of_dirichlets(dtype):
    found = lowered(lambda t, p: answers(pnb.fit_naive(t, p)), *TRIPLES.build(dtype))
    assert {a.dtype for a in found.out_avals} == {dtype}


@pytest.mark.parametrize("solver", SOLVERS)
def test_variational_fits(solver, dtype):
    lowered(lambda t, p: pnb.fit_vb(t, p, solver=solver), *TRIPLES.build(dtype))


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (PAIRS, "closed"),
        (TRIPLES, "windowed-3"),
        pytest.param(TRIPLES, "whole-1", marks=pytest.mark.slow),
        pytest.param(TRIPLES, "whole-3", marks=pytest.mark.slow),
        pytest.param(TRIPLES, "windowed-1", marks=pytest.mark.slow),
        pytest.param(PAIRS, "whole-9", marks=pytest.mark.slow),
    ],
)
def test_exact_fits_and_their_answers(case, name, dtype):
    tables, prior = case.build(dtype)
    path = path_of(name, tables, prior)
    found = lowered(lambda t, p: answers(fit_path(t, p, path, 1e-4)), tables, prior)
    assert {a.dtype for a in found.out_avals} == {dtype}


@pytest.mark.parametrize("method", names("tables"))
def test_segments_of_fit_many_are_as_wide_as_the_device(method, dtype):
    tables, prior = PAIRS.build(dtype)
    runner = make_runner(method, jax.tree.map(lambda x: x[None], tables), None)
    width = Width.on("gpu", tables.counts.size)
    assert width.lanes == width.tile == WIDER * TILE
    Q = width.lanes
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (Q, *x.shape)), (tables, prior))
    order, length = np.arange(Q, dtype=np.int32), np.int32(Q)
    run = lambda t, p, i, n: _fit_segment(t, p, i, n, runner=runner, width=width)  # noqa: E731
    module = lowered(run, *many, order, length).mlir_module()
    assert f"tensor<{runner.grain(tables, width)}x2x2x2x" in module
    assert f"tensor<{TILE}x2x2x2x" not in module
