"""Bad input: the argument, the value and what was expected, before anything is compiled."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiles import count_compiles

import jaxprivnb as pnb
from jaxprivnb import validate

COUNTS = np.full((2, 3, 2), 5.0)
RAGGED = np.array([[True, True], [True, True], [True, False]])


def tables(counts=COUNTS, n_records=30, noise=None, mask=None):
    return pnb.NoisyTables(counts, n_records, pnb.Laplace(2.0) if noise is None else noise, mask)


def with_cell(value):
    counts = COUNTS.copy()
    counts[1, 2, 0] = value
    return counts


def prior(class_=(1.0, 1.0), feature=None):
    return pnb.Prior(np.asarray(class_), np.ones((2, 3, 2)) if feature is None else feature)


def fitted():
    return pnb.fit_naive(tables(mask=RAGGED))


# Each case: what to call, the exception, and the words its message must hold.
CASES = {
    "counts NaN": (lambda: tables(with_cell(math.nan)), ValueError, ["counts", "nan", "(1, 2, 0)"]),
    "counts inf": (lambda: tables(with_cell(-math.inf)), ValueError, ["counts", "-inf", "finite"]),
    "counts 2-d": (lambda: tables(np.ones((2, 3))), ValueError, ["counts", "[I, K, J]", "(2, 3)"]),
    "counts empty": (lambda: tables(np.ones((2, 0, 3))), ValueError, ["counts", "(2, 0, 3)"]),
    "counts text": (lambda: tables("abc"), TypeError, ["counts", "str of 3", "numbers"]),
    "counts None": (lambda: pnb.NoisyTables(None, 3, pnb.Laplace(1.0)), TypeError, ["counts"]),
    "counts complex": (lambda: tables(COUNTS + 0j), TypeError, ["counts", "complex128", "real"]),
    "counts complex jax": (lambda: tables(jnp.asarray(COUNTS + 0j)), TypeError, ["counts", "real"]),
    "counts uneven": (lambda: tables([[[1.0], [1.0, 2.0]]]), TypeError, ["counts", "list"]),
    "N negative": (lambda: tables(n_records=-1), ValueError, ["n_records", "-1", ">= 0"]),
    "N fractional": (lambda: tables(n_records=2.5), ValueError, ["n_records", "2.5", "whole"]),
    "N NaN": (lambda: tables(n_records=math.nan), ValueError, ["n_records", "nan"]),
    "N text": (lambda: tables(n_records="30"), TypeError, ["n_records", "str of 2"]),
    "N bool": (lambda: tables(n_records=True), TypeError, ["n_records", "True"]),
    "N vector": (lambda: tables(n_records=[3, 4]), ValueError, ["n_records", "(2,)", "scalar"]),
    "N negative for a batch": (
        lambda: tables(COUNTS[None], n_records=-1),
        ValueError,
        ["n_records", "-1"],
    ),
    "noise number": (lambda: tables(noise=2.0), TypeError, ["noise", "2.0", "Laplace"]),
    "noise class": (lambda: tables(noise=pnb.Laplace), TypeError, ["noise", "Laplace"]),
    "scale zero": (lambda: pnb.Laplace(0.0), ValueError, ["scale", "0.0", "> 0"]),
    "scale shape": (
        lambda: tables(noise=pnb.Laplace([1.0, 2.0])),
        ValueError,
        ["noise.scale", "(2,)", "(3,)"],
    ),
    "mask dtype": (lambda: tables(mask=np.ones((3, 2))), TypeError, ["mask", "float64", "bool"]),
    "mask shape": (
        lambda: tables(mask=np.ones((2, 3), bool)),
        ValueError,
        ["mask", "(3, 2)", "(2, 3)"],
    ),
    "mask empty row": (
        lambda: tables(mask=RAGGED & [[True], [False], [True]]),
        ValueError,
        ["mask", "feature 1", "at least one"],
    ),
    "prior shapes": (
        lambda: prior(np.ones(3)),
        ValueError,
        ["prior.class_", "prior.feature", "(3,)", "(2, 3, 2)"],
    ),
    "prior axes": (lambda: prior(np.ones((4, 2))), ValueError, ["prior.class_", "(4, 2)"]),
    "prior class zero": (lambda: prior((1.0, 0.0)), ValueError, ["prior.class_", "0.0", "> 0"]),
    "prior feature": (
        lambda: pnb.fit_naive(tables(), prior(feature=-with_cell(1.0))),
        ValueError,
        ["prior.feature", "-5.0", "> 0"],
    ),
    "prior of other tables": (
        lambda: pnb.fit_naive(tables(), pnb.Prior(np.ones(2), np.ones((2, 4, 2)))),
        ValueError,
        ["prior.feature", "(2, 3, 2)", "(2, 4, 2)"],
    ),
    "prior number": (lambda: pnb.fit_naive(tables(), 1.0), TypeError, ["prior", "1.0", "Prior"]),
    "concentration": (
        lambda: pnb.Prior.symmetric(tables(), -1.0),
        ValueError,
        ["concentration", "-1.0"],
    ),
    "uniform of counts": (lambda: pnb.Prior.uniform(COUNTS), TypeError, ["tables", "NoisyTables"]),
    "fit of counts": (lambda: pnb.fit_naive(COUNTS), TypeError, ["tables", "NoisyTables"]),
    "fit of a batch": (
        lambda: pnb.fit_naive(tables(COUNTS[None])),
        ValueError,
        ["fit_naive", "[I, K, J]", "(1, 2, 3, 2)", "fit_many"],
    ),
    "bayes negative": (
        lambda: pnb.fit_bayes(with_cell(-1.0)),
        ValueError,
        ["counts", ">= 0", "true counts"],
    ),
    "bayes margins": (lambda: pnb.fit_bayes(with_cell(6.0)), ValueError, ["counts", "disagree"]),
    "bayes NaN": (lambda: pnb.fit_bayes(with_cell(math.nan)), ValueError, ["counts", "nan"]),
    "bayes batch": (lambda: pnb.fit_bayes(COUNTS[None]), ValueError, ["fit_bayes", "(1, 2, 3, 2)"]),
    "category high": (
        lambda: fitted().predict_proba([0, 2, 0]),
        ValueError,
        ["x", "(1,)", "feature 1", "[0, 1]"],
    ),
    "category masked": (
        lambda: fitted().predict_proba([[0, 0, 0], [0, 0, 1]]),
        ValueError,
        ["x", "(1, 2)", "[0]"],
    ),
    "category low": (lambda: fitted().predict_proba([-2, 0, 0]), ValueError, ["x", "(0,)", "-1"]),
    "category float": (
        lambda: fitted().predict_proba([0.0, 1.0, 0.0]),
        TypeError,
        ["x", "float64", "integer"],
    ),
    "category features": (lambda: fitted().predict_proba([0, 1]), ValueError, ["x", "3", "(2,)"]),
    "category uneven": (lambda: fitted().predict_proba([[0], [0, 1]]), TypeError, ["x", "integer"]),
    "level one": (lambda: fitted().class_interval(1.0), ValueError, ["level", "(0, 1)", "1.0"]),
    "level text": (lambda: fitted().feature_interval("95%"), TypeError, ["level", "str of 3"]),
    "draws": (lambda: fitted().sample(jax.random.key(0), -1), ValueError, ["n ", "-1"]),
    "draws float": (lambda: fitted().sample(jax.random.key(0), 2.0), TypeError, ["n ", "2.0"]),
    "tables records": (
        lambda: pnb.fit_exact([["secret"]]),
        TypeError,
        ["tables", "got list", "jaxprivnb.release"],
    ),
    "tables counts": (lambda: pnb.fit_vb(COUNTS), TypeError, ["tables", "NoisyTables", "ndarray"]),
    "sample key": (lambda: fitted().sample(0, 2), TypeError, ["key", "0", "jax.random.key"]),
    "simulate key": (lambda: pnb.simulate(0), TypeError, ["key", "0", "jax.random.key"]),
    "simulate keys": (
        lambda: pnb.simulate(jax.random.split(jax.random.key(0), 3)),
        ValueError,
        ["key", "(3,)", "one"],
    ),
    "simulate N": (
        lambda: pnb.simulate(jax.random.key(0), n_records=-5),
        ValueError,
        ["n_records", "-5"],
    ),
    "simulate classes": (
        lambda: pnb.simulate(jax.random.key(0), n_classes=0),
        ValueError,
        ["n_classes", "0", "at least 1"],
    ),
    "simulate categories": (
        lambda: pnb.simulate(jax.random.key(0), n_categories=(2, 0)),
        ValueError,
        ["n_categories[1]", "0"],
    ),
    "simulate categories number": (
        lambda: pnb.simulate(jax.random.key(0), n_categories=3),
        TypeError,
        ["n_categories", "3", "sequence"],
    ),
    "simulate noise": (
        lambda: pnb.simulate(jax.random.key(0), noise=3.0),
        TypeError,
        ["noise", "3.0"],
    ),
    "simulate noise shape": (
        lambda: pnb.simulate(jax.random.key(0), noise=pnb.Laplace([1.0, 2.0])),
        ValueError,
        ["noise.scale", "(2,)", "(5,)"],
    ),
    "simulate prior": (
        lambda: pnb.simulate(jax.random.key(0), prior=prior()),
        ValueError,
        ["prior.feature", "(2, 5, 2)", "(2, 3, 2)"],
    ),
    "simulate prior type": (
        lambda: pnb.simulate(jax.random.key(0), prior=1.0),
        TypeError,
        ["prior", "1.0"],
    ),
    "simulate shape": (
        lambda: pnb.simulate(jax.random.key(0), shape=(2, -1)),
        ValueError,
        ["shape", "-1"],
    ),
    "simulate shape text": (
        lambda: pnb.simulate(jax.random.key(0), shape="10"),
        TypeError,
        ["shape", "str of 2"],
    ),
    "simulate dtype": (
        lambda: pnb.simulate(jax.random.key(0), dtype=jnp.int32),
        TypeError,
        ["dtype", "int32", "float32"],
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """The fits and arrays that cases use to get as far as their mistake."""
    fitted()
    for call, error, _ in CASES.values():
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named_before_anything_is_compiled(case):
    call, error, words = CASES[case]
    jits = [pnb.simulate.__globals__[n] for n in ("_parameters", "_counts", "_noisy")]
    sizes = [f._cache_size() for f in jits]
    with count_compiles() as compiled, pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert "secret" not in message
    assert compiled == []
    assert [f._cache_size() for f in jits] == sizes


def test_nothing_is_compiled_the_first_time_either():
    counts = np.full((3, 7, 4), 2.0)  # a shape that nothing else uses
    good = pnb.NoisyTables(counts, 10, pnb.Laplace(1.0))
    bad_prior = pnb.Prior(np.ones(3), -counts)
    with count_compiles() as compiled:
        with pytest.raises(ValueError, match=r"prior\.feature"):
            pnb.fit_naive(good, bad_prior)
        with pytest.raises(ValueError, match="counts"):
            pnb.NoisyTables(counts * np.nan, 10, pnb.Laplace(1.0))
        with pytest.raises(ValueError, match="counts"):
            pnb.fit_bayes(-counts)
    assert compiled == []
    with count_compiles() as compiled:
        pnb.fit_naive(good)
    assert len(compiled) >= 1  # the counter does count


def test_true_counts_are_not_quoted():
    with pytest.raises(ValueError, match="disagree") as caught:
        pnb.fit_bayes(with_cell(123.0))
    assert "123" not in str(caught.value)


def test_values_under_tracing_are_left_to_the_status():
    batch = np.stack([COUNTS, with_cell(math.nan)])
    status = jax.vmap(lambda m: pnb.fit_naive(tables(m)).status)(batch)
    np.testing.assert_array_equal(status, [pnb.Status.SUCCESS, pnb.Status.BAD_INPUT])
    concrete = []
    jax.jit(lambda x: concrete.append(validate.is_concrete(x)))(1.0)
    assert concrete == [False]


def test_shapes_are_checked_under_tracing_too():
    with pytest.raises(ValueError, match=r"prior\.feature must have shape"):
        jax.jit(pnb.fit_naive)(tables(), pnb.Prior(np.ones(2), np.ones((2, 4, 2))))


def test_a_traced_mask_hides_no_neighbour_and_raises_nothing():
    counts = with_cell(math.nan)
    hidden = np.ones((3, 2), bool)
    hidden[2, 0] = False
    status = jax.jit(lambda m: pnb.fit_naive(tables(counts, mask=m)).status)
    assert status(hidden) == pnb.Status.SUCCESS
    assert status(np.ones((3, 2), bool)) == pnb.Status.BAD_INPUT
    hidden[2, 1] = False  # a feature without a category
    assert status(hidden) == pnb.Status.BAD_INPUT


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.ones(2, np.float32), np.float32),
        (np.ones(2, np.float64), np.float64),
        (jnp.ones(2, jnp.float32), np.float32),
        (np.ones(2, np.int32), np.float64),
        (np.ones(2, np.float16), np.float64),
        (jnp.ones(2, jnp.bfloat16), np.float64),
        ([1, 2], np.float64),
        (3, np.float64),
        (True, np.float64),
    ],
)
def test_inputs_decide_the_dtype(value, expected):
    out = validate.as_float_array("value", value)
    assert isinstance(out, jax.Array)
    assert out.dtype == expected


def test_choice_suggests_the_nearest_word():
    assert validate.choice("solver", "kkt", ["armijo", "kkt"]) == "kkt"
    with pytest.raises(ValueError, match=r"solver must be one of 'armijo', 'kkt', got 'armjo'"):
        validate.choice("solver", "armjo", ["armijo", "kkt"])
    with pytest.raises(ValueError, match=r"did you mean 'armijo'\?"):
        validate.choice("solver", "armjo", ["armijo", "kkt"])
    with pytest.raises(TypeError, match="solver must be one of"):
        validate.choice("solver", 3, ["armijo", "kkt"])


def test_numbers():
    assert validate.whole_number("n", np.int64(3)) == 3
    assert validate.real_number("x", 0, above=0, allow_zero=True) == 0.0
    assert validate.real_number("x", np.float32(0.5), above=0, below=1) == 0.5
    for bad, error in ((True, TypeError), (1.0, TypeError), (-1, ValueError)):
        with pytest.raises(error, match=r"^n must be"):
            validate.whole_number("n", bad)
    for bad, error in (
        (True, TypeError),
        (1j, TypeError),
        (1, ValueError),
        (math.nan, ValueError),
    ):
        with pytest.raises(error, match=rf"^x must be .* got {re.escape(repr(bad))}"):
            validate.real_number("x", bad, above=0, below=1)


def test_probabilities():
    good = jnp.asarray([[0.2, 0.8], [1.0, 0.0]])
    validate.probabilities("start", good, (2, 2))
    cases = [
        (good[0], "shape"),
        (jnp.asarray([[0.2, -0.8], [1.0, 0.0]]), "-0.8"),
        (jnp.asarray([[0.2, math.nan], [1.0, 0.0]]), "nan"),
        (jnp.asarray([[0.2, 0.8], [0.0, 0.0]]), "sums to 0"),
    ]
    for bad, word in cases:
        with pytest.raises(ValueError, match=f"start must.*{word}"):
            validate.probabilities("start", bad, (2, 2))


def test_values_are_described_by_type_and_size():
    secret = "Zoltan"
    for value, expected in (
        (None, "None"),
        (2.5, "2.5"),
        (True, "True"),
        (secret, "str of 6 characters"),
        (secret.encode(), "bytes of 6 characters"),
        ([secret, 1], "list of 2 items"),
        ({secret: 1}, "dict of 1 items"),
        (np.array([[secret]]), "ndarray of shape (1, 1) and dtype str192"),
        (jnp.ones(3), "ArrayImpl of shape (3,) and dtype float64"),
        (pnb.Laplace, "the type Laplace"),
        (iter([secret]), "list_iterator"),
    ):
        assert validate.describe(value) == expected
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"name": [secret] * 5, "dtype": secret})
    assert validate.describe(frame).startswith("DataFrame of shape (5, 2)")
    kinds = frame["name"].astype("category")
    assert validate.describe(kinds) == "Series of shape (5,) and dtype category"
    assert validate.word("armjo") == "'armjo'"
    assert validate.word("armjo" * 10) == "str of 50 characters"
