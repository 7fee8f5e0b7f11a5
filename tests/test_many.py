"""Thousands of datasets in one call: order, independence of the batch, failures, compilations."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiles import count_compiles

import jaxprivnb as pnb
from jaxprivnb.many import lanes
from jaxprivnb.many.fit import _in_order
from jaxprivnb.many.lanes import NUMBERS, TILE, Job, Width


def release(shape, N=60, scale=5.0, seed=0):
    return pnb.simulate(
        jax.random.key(seed),
        n_records=N,
        n_classes=2,
        n_categories=(2, 3),
        noise=pnb.Laplace(scale),
        shape=shape,
    ).tables


def rows(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


COUNTDOWN = Job(
    begin=lambda item: item,
    step=lambda item, state: state - 1,
    unfinished=lambda state: state > 0,
)


@jax.jit
def countdown(queue, length):
    """A job that counts each item down to zero, one a step."""
    return lanes.run(queue, length, COUNTDOWN, Width(TILE, TILE, NUMBERS), 10_000)


@pytest.mark.parametrize("length", [0, 1, 100, 128, 129, 1000])
def test_lanes_serve_every_item_once_and_in_order(length):
    rng = np.random.default_rng(0)
    want = rng.integers(0, 50, 1024)
    harvest = countdown(jnp.asarray(want, jnp.int32), jnp.asarray(length, jnp.int32))
    np.testing.assert_array_equal(harvest.steps[:length], want[:length])
    assert jnp.all(harvest.states[:length] == 0)
    np.testing.assert_array_equal(harvest.steps[length:], 0)


@pytest.mark.parametrize("length", [2, 11])  # too few for the lanes, and for a refill
def test_an_idle_lane_works_on_a_real_item(length):
    """On padding an iteration of a step's own may run to its cap, and every lane would wait."""
    stepped = []

    def step(item, state):
        jax.debug.callback(lambda item: stepped.append(int(item)), item)
        return state - 1

    queue = jnp.where(jnp.arange(16) < length, jnp.int32(3), -1)
    job = COUNTDOWN._replace(step=step)
    jax.block_until_ready(lanes.run(queue, jnp.int32(length), job, Width(8, 8, NUMBERS), 100))
    jax.effects_barrier()
    assert min(stepped) > 0


def test_lanes_stay_busy():
    want = jnp.asarray(np.random.default_rng(1).integers(1, 40, 8192), jnp.int32)
    harvest = countdown(want, jnp.asarray(8192, jnp.int32))
    assert float(want.sum()) / float(harvest.executed) > 0.9


@pytest.mark.parametrize("method", ["vb", "exact", "naive"])
def test_many_equals_one_at_a_time(method):
    tables = release((5,))
    many = pnb.fit_many(tables, method)
    single = getattr(pnb, f"fit_{method}")
    for r in range(5):
        one = single(rows(tables, r))
        np.testing.assert_allclose(many.class_mean[r], one.class_mean, atol=1e-10)
        np.testing.assert_allclose(many.feature_mean[r], one.feature_mean, atol=1e-10)
    assert many.status.shape == (5,)


@pytest.mark.parametrize("method", ["vb", "exact", "naive"])
def test_results_do_not_depend_on_the_batch(method):
    tables = release((700,))
    whole = pnb.fit_many(tables, method)
    some = np.random.default_rng(2).permutation(700)[:300]
    assert_same(pnb.fit_many(rows(tables, some), method), rows(whole, some))
    assert_same(pnb.fit_many(tables, method, lanes=2 * TILE), whole)
    assert_same(pnb.fit_many(tables, method, workers=1), whole)


def test_the_width_of_a_block_follows_the_device_and_the_size_of_tables():
    assert Width.on("cpu", 20) == Width.on("cpu", 10_000) == (TILE, TILE, NUMBERS)
    assert Width.on("cpu", 20, lanes=3 * TILE).lanes == 3 * TILE
    for platform in ("gpu", "tpu"):
        assert Width.on(platform, 20) == (4096, 4096, 32 * NUMBERS)
        assert Width.on(platform, 20, lanes=TILE).lanes == 4096
        assert Width.on(platform, 4000).tile == 512
        assert Width.on(platform, 10**6).tile == TILE


@pytest.mark.slow
def test_results_do_not_depend_on_the_batch_in_wider_blocks(monkeypatch):
    tables = release((700,))
    narrow = pnb.fit_many(tables)
    monkeypatch.setattr(lanes, "wide", lambda size, platform: 2 * size)
    whole = pnb.fit_many(tables)
    assert_same(pnb.fit_many(rows(tables, slice(300, 400))), rows(whole, slice(300, 400)))
    assert_same(pnb.fit_many(tables, lanes=4 * TILE, workers=1), whole)
    np.testing.assert_allclose(whole.feature_mean, narrow.feature_mean, atol=1e-8)


@pytest.mark.parametrize("method", ["vb", "naive"])
def test_no_answer_depends_on_the_length_of_the_batch(method, dtype):
    sizes = {"n_classes": 3, "n_categories": (3, 3, 5, 2)}
    simulated = pnb.simulate(
        jax.random.key(0), n_records=60, noise=pnb.Laplace(5.0), shape=(700,), dtype=dtype, **sizes
    )
    whole = pnb.fit_many(simulated.tables, method)
    few = pnb.fit_many(rows(simulated.tables, slice(37)), method)
    assert_same(few, rows(whole, slice(37)))  # `elbo` is one of the arrays
    for name in ("class_mean", "class_sd", "feature_mean", "feature_sd"):
        np.testing.assert_array_equal(getattr(few, name), getattr(whole, name)[:37])
    records = np.array([[0, 0, 0, 0], [2, 1, 4, 1], [1, -1, 3, 0]])
    for ask in (
        lambda fit: fit.class_interval(),
        lambda fit: fit.feature_interval(),
        lambda fit: fit.feature_cdf(0.3),
        lambda fit: fit.predict_proba(records),
        lambda fit: fit.predict_proba(np.tile(records, (200, 1))),  # dataset by dataset
        lambda fit: fit.sample(jax.random.key(1), 2),
    ):
        assert_same(ask(few), rows(ask(whole), slice(37)))


def test_means_are_not_compiled_at_every_question():
    fit = pnb.fit_naive(release(()))
    names = ("class_mean", "class_sd", "feature_mean", "feature_sd")
    for name in names:
        getattr(fit, name)
    with count_compiles() as compiled:
        for name in names:
            getattr(fit, name)
    assert not compiled


@pytest.mark.parametrize("method", ["vb", "naive", "exact"])
def test_a_bad_scale_fails_its_dataset_alone(method):
    tables = release((5,))
    scale = np.full(5, 5.0)
    scale[3] = -1.0
    bad = pnb.NoisyTables(tables.counts, tables.n_records, pnb.Laplace(scale), tables.mask)
    status = np.asarray(pnb.fit_many(bad, method).status)
    assert status[3] == pnb.Status.BAD_INPUT
    assert (np.delete(status, 3) != pnb.Status.BAD_INPUT).all()


def test_two_devices_give_the_bits_of_one(tmp_path):
    program = """
import sys, jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxprivnb as pnb
tables = pnb.simulate(jax.random.key(0), n_records=60, n_categories=(2, 3), shape=(300,)).tables
assert len(jax.devices()) == int(sys.argv[1])
fits = [pnb.fit_many(tables, m) for m in ("vb", "exact", "naive")]
np.savez(sys.argv[2], *[np.asarray(x) for x in jax.tree.leaves(fits)])
"""
    found = []
    for n in (1, 2):
        flags = f"--xla_force_host_platform_device_count={n}"
        out = tmp_path / f"{n}.npz"
        subprocess.run(
            [sys.executable, "-c", program, str(n), str(out)],
            check=True,
            env={**os.environ, "XLA_FLAGS": flags},
        )
        found.append(np.load(out))
    for name in found[0].files:
        np.testing.assert_array_equal(found[0][name], found[1][name])


def test_a_bad_dataset_carries_its_status_alone():
    tables = release((200,))
    good = pnb.fit_many(tables, "vb")
    counts = tables.counts.at[7, 0, 0, 0].set(jnp.nan).at[9, 1, 1, 1].set(jnp.inf)
    scale = tables.noise.scale.at[11].set(-1.0)
    bad = pnb.NoisyTables(counts, tables.n_records, tables.noise.with_value(scale), tables.mask)
    mixed = pnb.fit_many(bad, "vb")
    keep = ~np.isin(np.arange(200), [7, 9, 11])
    assert np.all(np.asarray(mixed.status)[~keep] == pnb.Status.BAD_INPUT)
    assert_same(rows(mixed, keep), rows(good, keep))


def test_leading_axes_come_back_and_methods_vectorise():
    tables = release((3, 4))
    fit = pnb.fit_many(tables, "vb")
    assert fit.class_mean.shape == (3, 4, 2)
    assert fit.feature_interval(0.9)[0].shape == (3, 4, 2, 2, 3)
    assert fit.sample(jax.random.key(0), 5)[0].shape == (3, 4, 5, 2)
    assert fit.predict_proba(jnp.zeros((6, 2), jnp.int32)).shape == (3, 4, 6, 2)


def test_an_empty_batch_gives_an_empty_result():
    fit = pnb.fit_many(release((0,)), "naive")
    assert fit.class_mean.shape == (0, 2)


def test_a_prior_is_shared_or_one_a_dataset():
    tables = release((4,))
    shared = pnb.Prior(jnp.array([1.0, 2.0]), jnp.full((2, 2, 3), 0.5))
    each = jax.tree.map(lambda a: jnp.broadcast_to(a, (4, *a.shape)), shared)
    assert_same(pnb.fit_many(tables, prior=shared), pnb.fit_many(tables, prior=each))
    with pytest.raises(ValueError, match=r"prior\.class_ must have shape"):
        pnb.fit_many(tables, prior=pnb.Prior(jnp.ones(3), jnp.ones((3, 2, 3))))


def test_random_starts_are_those_of_single_fits():
    tables = release((3,))
    key = jax.random.key(4)
    many = pnb.fit_many(tables, "vb", n_starts=3, key=key)
    assert many.elbo_starts.shape == (3, 3)
    for r in range(3):
        one = pnb.fit_vb(rows(tables, r), n_starts=3, key=jax.random.fold_in(key, r))
        np.testing.assert_allclose(many.elbo_starts[r], one.elbo_starts, rtol=1e-9)
        np.testing.assert_allclose(many.elbo[r], one.elbo, rtol=1e-9)


def test_an_interrupt_waits_for_no_segment():
    begun, left, ended, alone = threading.Event(), threading.Event(), threading.Event(), []

    def segment(number):
        if number == 0:
            begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        alone.append(left.wait(10))
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        list(_in_order(segment, 5, 2))
    left.set()
    assert ended.wait(10)
    assert alone == [True]


def test_segments_of_large_tables_are_short():
    tables = release((600,), N=600)
    work = []
    pnb.fit_many(tables, "exact", workers=1, on_work=lambda useful, _: work.append(useful))
    assert len(work) > 1
    assert sum(work) == 600


@pytest.mark.parametrize("method", ["vb", "naive"])
def test_the_papers_grid_compiles_each_kernel_once(method):
    cells = [
        release((5,), N=N, scale=2 / eps) for N in (50, 100, 200, 500) for eps in (1e-4, 0.1, 1)
    ]
    pnb.fit_many(cells[0], method, workers=1)
    with count_compiles() as compiled:
        for tables in cells:
            pnb.fit_many(tables, method, workers=1)
    assert not compiled


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: pnb.fit_many(rows(t, 0)), ValueError, "leading axis"),
        (lambda t: pnb.fit_many(t.counts), TypeError, "tables must be a jaxprivnb.NoisyTables"),
        (lambda t: pnb.fit_many(t, "vbb"), ValueError, "did you mean 'vb'"),
        (lambda t: pnb.fit_many(t, lanes=100), ValueError, "lanes must be"),
        (lambda t: pnb.fit_many(t, solvr="kkt"), ValueError, "did you mean 'solver'"),
        (lambda t: pnb.fit_many(t, solver="kt"), ValueError, "did you mean 'kkt'"),
        (lambda t: pnb.fit_many(t, n_starts=2), TypeError, "need a key"),
        (lambda t: pnb.fit_many(t, start=(1, 2)), TypeError, "start must be one of"),
        (lambda t: pnb.fit_many(t, workers=0), ValueError, "workers must be at least 1"),
        (lambda t: pnb.fit_many(t, prio=3), ValueError, "did you mean 'prior'"),
        (lambda t: pnb.fit_many(t, prior=3), TypeError, "Prior.symmetric"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(release((2,)))
