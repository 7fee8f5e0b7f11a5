"""`fit_exact` under jit, vmap and grad, in any order, with arguments passed and closed over.

What is passed to `jit` is traced; what is closed over is known, and decides the path.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import PATHS, Case, path_of, stack

import jaxprivnb as pnb
from jaxprivnb.exact.fit import fit_exact, fit_path

N = 12
CASES = {
    "pairs": Case((2, 2, 2), N, scale=3.0),
    "triples": Case((2, 1, 3), N, scale=3.0, prior=0.7),
    "three classes": Case((3, 2, 2), N, "Gaussian", scale=3.0, prior=2.0),
}


def evidence(tables, prior):
    return fit_exact(tables, prior, max_records=N).log_evidence


def unbounded(tables, prior):
    return fit_exact(tables, prior).log_evidence


# Functions of (f, tables, prior) that give a program and its arguments.
ONE = {
    "jit": lambda f, t, p: (jax.jit(f), (t, p)),
    "jit, prior closed over": lambda f, t, p: (jax.jit(lambda t: f(t, p)), (t,)),
    "jit, tables closed over": lambda f, t, p: (jax.jit(lambda p: f(t, p)), (p,)),
    "jit, both closed over": lambda f, t, p: (jax.jit(lambda: f(t, p)), ()),
    "jit of jit": lambda f, t, p: (jax.jit(lambda t: jax.jit(f)(t, p)), (t,)),
}
# The same of batches, the prior of the first dataset being good for all.
MANY = {
    "vmap": lambda f, t, p: (jax.vmap(f), (t, p)),
    "vmap, prior closed over": lambda f, t, p: (jax.vmap(lambda t: f(t, row(p))), (t,)),
    "jit of vmap": lambda f, t, p: (jax.jit(jax.vmap(f)), (t, p)),
    "jit of vmap, prior closed over": lambda f, t, p: (
        jax.jit(jax.vmap(lambda t: f(t, row(p)))),
        (t,),
    ),
    "vmap of jit": lambda f, t, p: (jax.vmap(jax.jit(f)), (t, p)),
    "vmap of jit, prior closed over": lambda f, t, p: (
        jax.vmap(jax.jit(lambda t: f(t, row(p)))),
        (t,),
    ),
}
# Slopes in the prior.
SLOPES = {
    "grad": lambda f, t, p: (jax.grad(lambda p: f(t, p)), (p,)),
    "jit of grad": lambda f, t, p: (jax.jit(jax.grad(lambda p: f(t, p))), (p,)),
    "jit of grad, tables passed": lambda f, t, p: (jax.jit(jax.grad(f, argnums=1)), (t, p)),
    "grad of jit": lambda f, t, p: (jax.grad(jax.jit(lambda p: f(t, p))), (p,)),
    "grad of vmap": lambda f, t, p: (
        jax.grad(lambda p: jax.vmap(lambda t: f(t, p))(stack([t, t])).sum() / 2),
        (p,),
    ),
    "vmap of grad": lambda f, t, p: (lambda p: row(jax.vmap(jax.grad(lambda p: f(t, p)))(p)), (
        stack([p, p]),)),
}  # fmt: skip
FAST = [
    ("pairs", "jit, prior closed over"),
    ("pairs", "jit, both closed over"),
    ("pairs", "vmap of jit, prior closed over"),
    ("pairs", "jit of vmap, prior closed over"),
    ("triples", "jit, prior closed over"),
    ("triples", "jit of vmap"),
]


def row(tree):
    return jax.tree.map(lambda x: x[0], tree)


def each(ways):
    """Every case and way; those that are not `FAST` are slow, for each compiles a program."""
    return pytest.mark.parametrize(
        ("case", "how"),
        [
            pytest.param(case, how, marks=() if (case, how) in FAST else pytest.mark.slow)
            for case in CASES
            for how in ways
        ],
    )


def batch(case):
    problems = [CASES[case]._replace(seed=seed).build() for seed in range(3)]
    return stack([t for t, _ in problems]), stack([p for _, p in problems])


def check_traces(f, case, how):
    """Nothing asks for the value of what is traced; the slow tests compare values."""
    problem = batch(case) if how in MANY else CASES[case].build()
    program, args = (ONE | MANY | SLOPES)[how](f, *problem)
    shape = jax.eval_shape(program, *args)
    if how in SLOPES:
        assert jax.tree.structure(shape) == jax.tree.structure(CASES[case].build()[1])
    else:
        assert shape.shape == ((3,) if how in MANY else ())


@pytest.mark.parametrize("case", ["pairs", "triples"])
@pytest.mark.parametrize("how", [*ONE, *MANY, *SLOPES])
def test_traces(case, how):
    check_traces(evidence, case, how)


@pytest.mark.parametrize("how", ["jit, prior closed over", "jit of vmap", "vmap of jit"])
def test_traces_without_a_limit_of_the_records(how):
    check_traces(unbounded, "triples", how)


@pytest.mark.parametrize("how", ["grad", "jit of grad", "grad of vmap", "vmap of grad"])
def test_traces_slopes_without_a_limit_of_the_records(how):
    check_traces(unbounded, "triples", how)


@each(ONE)
def test_one(case, how):
    tables, prior = CASES[case].build()
    program, args = ONE[how](evidence, tables, prior)
    assert float(program(*args)) == pytest.approx(float(evidence(tables, prior)), rel=1e-12)


@each(MANY)
def test_many(case, how):
    tables, priors = batch(case)
    program, args = MANY[how](evidence, tables, priors)
    expected = [float(evidence(*CASES[case]._replace(seed=seed).build())) for seed in range(3)]
    np.testing.assert_allclose(program(*args), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_windows_of_fixed_length(case):
    tables, prior = CASES[case].build()
    found = jax.jit(lambda t: unbounded(t, prior))(tables)
    assert float(found) == pytest.approx(float(unbounded(tables, prior)), rel=1e-10)


@pytest.mark.parametrize(
    "case", [c if c == "triples" else pytest.param(c, marks=pytest.mark.slow) for c in CASES]
)
def test_slope(case):
    tables, prior = CASES[case].build()
    program, args = SLOPES["jit of grad"](evidence, tables, prior)
    slope, value = program(*args), jax.jit(lambda p: evidence(tables, p))
    step = 1e-5
    up, down = (pnb.Prior(prior.class_, prior.feature.at[0, 0, 1].add(s)) for s in (step, -step))
    numeric = float(value(up) - value(down)) / (2 * step)
    assert float(slope.feature[0, 0, 1]) == pytest.approx(numeric, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("how", SLOPES)
def test_slopes_are_the_same_in_any_order(how):
    problem = CASES["triples"].build()
    program, args = SLOPES["jit of grad"](evidence, *problem)
    expected = program(*args)
    program, args = SLOPES[how](evidence, *problem)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9), program(*args), expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PATHS)
def test_slopes_of_every_path_in_the_prior_and_in_the_scale(case, name):
    tables, prior = CASES[case].build()
    path = path_of(name, tables, prior)
    if path is None:
        pytest.skip("not a dataset for this path")

    @jax.jit
    def f(x):
        """log P(m) as a function of log factors on concentrations and scale."""
        own = type(tables.noise)(tables.noise.value * jnp.exp(x[2]))
        # Concentrations that are taken to be 1 have to stay so.
        feature = prior.feature if path.questions.flat else prior.feature * jnp.exp(x[1])
        given = pnb.Prior(prior.class_ * jnp.exp(x[0]), feature)
        return fit_path(pnb.NoisyTables(tables.counts, N, own), given, path, 1e-10).log_evidence

    x, step = jnp.zeros(3), 1e-4
    stencil = lambda d: (8 * (f(x + d) - f(x - d)) - (f(x + 2 * d) - f(x - 2 * d))) / (12 * step)  # noqa: E731
    numeric = [float(stencil(d)) for d in step * jnp.eye(3)]
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x), numeric, rtol=1e-6, atol=1e-7)
