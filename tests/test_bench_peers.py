"""The peers' benchmark: its protocol, its measures and the adapters that run here."""

import itertools
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import class_moments, enumerate_posterior, feature_moments

BENCH = Path(__file__).parent.parent / "bench"
if not (BENCH / "peers").exists():
    pytest.skip("needs bench/, which the source distribution leaves out", allow_module_level=True)
sys.path.insert(0, str(BENCH))

from peers import designs, measures, protocol, registry, report  # noqa: E402
from peers.adapters import augmentation  # noqa: E402
from peers.protocol import Answer, Method, Releases  # noqa: E402


def laplace(b):
    return lambda x: -np.abs(x) / b - np.log(2 * b)


def releases(size, I=2, K=3, J=2):
    rng = np.random.default_rng(0)
    shape = (size, I, K, J)
    return Releases(rng.normal(20, 5, shape), np.full(size, 100.0), np.full(size, 2.0))


def frequencies(given, seen=None):
    """Clipped frequencies: an estimator that a table determines by hand."""
    if seen is not None:
        seen.append(given.size)
    m = np.maximum(given.counts, 1e-9)
    by_class = m.sum((2, 3))
    q = m / m.sum(-1, keepdims=True)
    p = by_class / by_class.sum(-1, keepdims=True)
    return Answer(p, q, np.stack([p - 0.1, p + 0.1]), np.stack([q, q]), {"sum": m.sum((1, 2, 3))})


# The protocol.


def test_a_job_comes_back_in_order_and_whole_chunks_of_one_length(tmp_path):
    given = releases(7)
    seen = []
    method = Method(partial(frequencies, seen=seen), packages=("numpy",))
    job, out = tmp_path / "job.npz", tmp_path / "out.npz"
    protocol.save_job(job, given, {"a": given, "b": given}, cap=60.0, step=2, lanes=5, intervals=0)
    protocol.run(method, job, out)
    answer, found = protocol.load_answer(out)
    direct = frequencies(given)
    for one, other in zip(answer[:4], direct[:4], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(answer.extra["sum"], direct.extra["sum"])
    assert set(seen) == {1, 4, 5}  # alone; two replicates of two cells, padded; a timed batch
    assert set(found["times"]) == {"a", "b"}
    assert found["times"]["a"]["batch_size"] == 5
    assert found["versions"] == {"numpy": np.__version__}
    assert found["peak_mib"] > 10


def test_time_that_runs_out_leaves_the_first_releases(monkeypatch):
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr(protocol.time, "perf_counter", lambda: next(clock))
    answer = protocol.answer_all(
        Method(frequencies), releases(20), cap=3.0, step=2, lanes=4, intervals=0
    )
    assert len(answer.class_mean) in (8, 12)
    np.testing.assert_array_equal(
        answer.class_mean, frequencies(releases(20)).class_mean[: len(answer.class_mean)]
    )


def test_a_batch_is_timed_by_its_best_call_and_compilation_apart(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(protocol.time, "perf_counter", lambda: clock[0])
    lengths = iter([9.0, 5.0, 3.0, 4.0, 6.0, 5.0])  # of batches, the first with compilation

    def fit(some):
        clock[0] += next(lengths) if some.size > 1 else 1.0
        return frequencies(some)

    found = protocol.time_method(Method(fit), releases(4), cap=1e9, lanes=4)
    assert found["alone"] == 1
    assert found["batch"] == 3 / 4
    assert found["compile_batch"] == 6
    assert found["batch_size"] == 4


def test_intervals_that_cost_time_are_for_the_first_releases():
    plain = lambda r: frequencies(r)._replace(class_interval=None, feature_interval=None)  # noqa: E731
    method = Method(plain, intervals=frequencies)
    answer = protocol.answer_all(method, releases(11), 60.0, step=2, lanes=100, intervals=4)
    direct = frequencies(releases(11))
    np.testing.assert_array_equal(answer.class_mean, direct.class_mean)
    np.testing.assert_array_equal(answer.feature_interval, direct.feature_interval[:, :4])
    found = measures.per_release(answer, direct.class_mean, direct.feature_mean)
    assert len(found["se_class"]) == 11
    np.testing.assert_array_equal(found["coverage_class"], np.ones(4))


def test_true_counts_reach_only_the_method_that_asks():
    case, _, _ = protocol.known_cases()["frequencies"]
    assert case.raw is not None
    given = []
    spy = lambda r: given.append(r.raw) or frequencies(r)  # noqa: E731
    protocol.check(Method(spy, check={"frequencies": 1e-3}))
    protocol.check(Method(spy, check={"frequencies": 1e-3}, raw=True))
    assert [x is None for x in given] == [True, True, False, False]


def test_a_wrong_answer_is_an_error():
    swapped = lambda r: frequencies(r)._replace(class_mean=frequencies(r).class_mean[:, ::-1])  # noqa: E731
    with pytest.raises(AssertionError, match="case frequencies: error"):
        protocol.check(Method(swapped, check={"frequencies": 1e-3}))
    empty = lambda r: frequencies(r)._replace(class_mean=np.full((1, 2), np.nan))  # noqa: E731
    with pytest.raises(AssertionError, match="inf"):
        protocol.check(Method(empty, check={"frequencies": 1e-3}))
    with pytest.raises(ValueError, match="known answer"):
        protocol.check(Method(frequencies))


def test_the_enumerated_case_agrees_with_the_oracle():
    m = np.array([[2.5, 4.0], [-1.0, 3.0]])
    p, q = protocol.enumerate_tables(m, 7, 2.0)
    whole = enumerate_posterior(m[:, None], 7, laplace(2.0), np.ones(2), np.ones((2, 1, 2)))
    np.testing.assert_allclose(p, class_moments(whole)[0], rtol=1e-12)
    np.testing.assert_allclose(q, feature_moments(whole)[0], rtol=1e-12)


# Measures, by hand.


def test_measures_of_a_small_answer():
    p_class = np.array([[0.5, 0.5], [0.25, 0.75]])
    p_feature = np.array([[[[0.5, 0.5]], [[0.2, 0.8]]]] * 2)
    q_feature = p_feature + np.array([0.1, -0.1])
    answer = Answer(
        np.array([[0.5, 0.5], [0.5, 0.5]]),
        q_feature,
        np.array([[[0.4, 0.4]] * 2, [[0.6, 0.6]] * 2]),
        np.stack([q_feature - 0.11, q_feature + np.array([0.11, 0.05])]),
    )
    found = measures.per_release(answer, p_class, p_feature)
    np.testing.assert_allclose(found["se_class"], [0, 0.0625])
    np.testing.assert_allclose(found["se_feature"], 0.01)
    np.testing.assert_allclose(found["coverage_class"], [1, 0])
    np.testing.assert_allclose(found["coverage_feature"], 0.5)  # the second category is missed
    np.testing.assert_allclose(found["width_feature"], 0.19)
    lost = (
        0.5 * (0.5 * np.log(0.6 / 0.5) + 0.5 * np.log(0.4 / 0.5))
        + 0.5 * (0.2 * np.log(0.3 / 0.2) + 0.8 * np.log(0.7 / 0.8))
    )  # fmt: skip
    np.testing.assert_allclose(found["log_density"][0], lost, rtol=1e-9)


def test_certain_mistakes_cost_a_bounded_number_of_nats():
    q = np.array([[1.0, 0.0]])
    p = np.array([[0.5, 0.5]])
    one = np.ones((1, 2, 1, 1))
    lost = measures.log_density_lost(measures.floored(q), one, p, one)
    assert np.isfinite(lost).all()
    np.testing.assert_allclose(lost, 0.5 * np.log(2) + 0.5 * np.log(2e-4), atol=2e-4)


def test_accuracy_against_all_records():
    rng = np.random.default_rng(3)
    p_class = rng.dirichlet(np.ones(3), 4)
    p_feature = rng.dirichlet(np.ones(2), (4, 3, 3))
    q_class, q_feature = rng.dirichlet(np.ones(3), 4), rng.dirichlet(np.ones(2), (4, 3, 3))
    found = measures.accuracy(q_class, q_feature, p_class, p_feature)
    for r in range(4):
        expected, spread = 0.0, 0.0
        for x in itertools.product(range(2), repeat=3):
            at = (slice(None), range(3), x)
            truth = p_class[r] * p_feature[r][at].prod(-1)
            right = truth[(q_class[r] * q_feature[r][at].prod(-1)).argmax()]
            expected += right
            spread += right**2 / truth.sum()
        error = np.sqrt((spread - expected**2) / measures.FRESH)
        assert abs(found[r] - expected) < 4 * error + 1e-12


def test_pairs_are_of_releases_that_both_answered():
    cell = np.array([0, 1, 0, 1, 0, 1])
    ours = np.array([1.0, 2.0, 1.0, 2.0, 9.0, 9.0])
    theirs = np.array([1.5, 2.0, 2.5, 1.0])
    rows = measures.paired(ours, theirs, cell, 2)
    assert rows[0]["gap"] == 1.0
    assert rows[1]["gap"] == -0.5
    assert rows[0]["t"] == pytest.approx(2.0)
    assert rows[0]["p"] == pytest.approx(0.5 + np.arctan(2.0) / np.pi)  # Cauchy: t with one degree
    assert [c["replicates"] for c in measures.by_cell({"x": ours}, cell, 2)] == [3, 3]


def test_coverage_is_judged_by_its_replicates():
    assert measures.off_nominal(0.95, 0.01, 50, 0.95) == 1.0
    far = measures.off_nominal(0.90, 0.01, 2, 0.95), measures.off_nominal(0.90, 0.01, 500, 0.95)
    assert far[0] == pytest.approx(1 - 2 * np.arctan(5.0) / np.pi)
    assert far[1] < 1e-6
    assert measures.off_nominal(1.0, 0.0, 5, 0.95) == 0.0


def test_seconds_to_a_precision():
    # 1,500 steps take 3 s and 1,000 of them are worth 500: 10,000 need 20,000 + the warm-up.
    found = measures.seconds_to_precision(3.0, 500, 1000, 500.0, 0.01)
    assert found == pytest.approx(3.0 * 20_500 / 1500)


# Designs and the page.


def test_releases_are_balanced_and_reproducible():
    design = designs.DESIGNS["ju"]
    given, truth = designs.simulate(design, 2)
    assert given.counts.shape == (10, 5, 5, 3)
    np.testing.assert_array_equal(truth.cell, [0, 1, 2, 3, 4] * 2)
    np.testing.assert_allclose(given.scale[:5], [2 * 5 / e for e in (0.1, 0.3, 1, 3, 10)])
    np.testing.assert_array_equal(given.raw.sum((1, 3)), 100)
    longer, _ = designs.simulate(design, 3)
    np.testing.assert_array_equal(longer.counts[:10], given.counts)


def test_every_peer_has_an_adapter_a_label_and_our_colours():
    from jaxprivnb.methods import METHODS

    for peer in registry.PEERS:
        assert (BENCH / "peers" / "adapters" / f"{peer.adapter}.py").exists()
        assert peer.name in registry.LABELS
        for name in designs.DESIGNS:
            assert peer.limit(name) is not None or peer.why_not[name]
        if peer.environment == "jaxprivnb":
            assert (peer.color, peer.marker) == METHODS[peer.name.split()[1]].look[:2]
        else:
            assert (BENCH / "peers" / "requirements" / f"{peer.environment}.txt").exists()


def made_content(pgm_ms):
    """A run with known numbers: exact takes .1 ms, private-pgm `pgm_ms`."""
    design = designs.DESIGNS["paper"]
    rng = np.random.default_rng(5)
    R = 6 * len(design.cells)
    truth = designs.Truth(
        rng.dirichlet(np.ones(2), R),
        rng.dirichlet(np.ones(2), (R, 2, 5)),
        np.tile(np.arange(len(design.cells)), 6),
    )
    near = Answer(
        truth.class_probs + 0.01, truth.feature_probs + rng.normal(0, 0.01, (R, 2, 5, 2)),
        np.stack([truth.class_probs - 0.1, truth.class_probs + 0.1]),
        np.stack([truth.feature_probs - 0.1, truth.feature_probs + 0.1]),
    )  # fmt: skip
    far = near._replace(
        feature_mean=near.feature_mean + 0.1, class_interval=None, feature_interval=None
    )
    answers = {registry.OURS: near, "private-pgm l1": far}
    values = {
        k: measures.per_release(a, truth.class_probs, truth.feature_probs)
        for k, a in answers.items()
    }
    reports = {}
    for name, milliseconds in ((registry.OURS, 0.1), ("private-pgm l1", pgm_ms)):
        time = {
            "alone": milliseconds / 1e3, "batch": milliseconds / 1e3, "batch_size": 1000,
            "compile": 1.0, "compile_batch": 2.0, "intervals": 1e-3,
        }  # fmt: skip
        times = {designs.timing_name(design, c): time for c in design.timed}
        reports[name] = {"times": times, "peak_mib": 100.0, "answer_seconds": 1.0}
    content = {
        "mode": "quick", "platform": "here", "versions": {"private-pgm l1": {"mbi": "2.0.0"}},
        "designs": {"paper": report.summarise(design, truth, values, reports, answers)},
    }  # fmt: skip
    content["targets"] = report.targets(content)
    return content


def test_targets_are_judged_by_the_numbers():
    verdict = lambda ms: {t["claim"]: t for t in made_content(ms)["targets"]}  # noqa: E731
    alone = "`fit_many` exact against private-pgm l1 alone"
    fast, slow = verdict(9.0), verdict(11.0)
    assert not fast[alone]["holds"]
    assert fast[alone]["found"].startswith("90 (eps=0.01)")
    assert slow[alone]["holds"]
    assert slow["exact has the lowest squared error of P(X|Y) in every cell"]["holds"]


def test_coverage_is_judged_in_cells_with_enough_replicates():
    cell = {"coverage_feature": (0.925, 0.02), "replicates_of_intervals": 8}
    low = {"cells": [cell] * 7, "overall": {"coverage_feature": (0.925, 0.008)}}
    assert report.coverage_off(low, "coverage_feature") == (0, 7, 0.925, 0.008)
    bad = {**cell, "coverage_feature": (0.6, 0.02)}
    assert report.coverage_off({**low, "cells": [bad, *[cell] * 6]}, "coverage_feature").cells == 1
    few = {**bad, "replicates_of_intervals": 4}
    assert report.coverage_off({**low, "cells": [few]}, "coverage_feature") is None


def test_the_page_says_where_a_peer_wins():
    page = report.markdown(made_content(0.05))
    assert "private-pgm, l1 loss" in page
    assert "one fit alone at N=200 eps=0.1 (0.05 against 0.1 ms)" in page
    assert "**no**" in page
    short = page[page.index("## In short") : page.index("## What was asked")]
    assert "private-pgm, l1 loss" in short
    assert "| 0.05, " in short


# Adapters.


def test_augmentation_samples_the_exact_posterior():
    m = np.array([[[3.0, 1.5], [-1.0, 4.0]], [[2.0, 0.5], [2.5, 1.0]]])
    N, b, chains = 6, 1.5, 64
    whole = enumerate_posterior(m, N, laplace(b), np.ones(2), np.ones((2, 2, 2)))
    p, q, tables = augmentation.batch(
        jax.random.split(jax.random.key(8), chains),
        jnp.broadcast_to(jnp.asarray(m), (chains, *m.shape)),
        jnp.full(chains, N, jnp.int32), jnp.full(chains, b), most=N, warmup=100, samples=500,
    )  # fmt: skip
    tables = np.asarray(tables)
    assert (tables >= 0).all()
    np.testing.assert_array_equal(tables.sum((1, 3)), N)
    for draws, (mean, sd) in (
        (np.asarray(p), class_moments(whole)),
        (np.asarray(q), feature_moments(whole)),
    ):
        of_chains = draws.mean(1)  # chains are independent: their spread gives the error
        error = of_chains.std(0, ddof=1) / chains**0.5
        assert (np.abs(of_chains.mean(0) - mean) < 4.5 * error).all()
        assert (error < 0.1 * sd).all()
        np.testing.assert_allclose(draws.std((0, 1)), sd, rtol=0.06)


def test_augmentation_draws_by_weight():
    weights = jnp.array([0.0, 2.0, 0.0, 1.0, 1.0, 0.0])
    u = (jnp.arange(4000.0) + 0.5) / 4000
    got = np.bincount(augmentation.pick(jnp.broadcast_to(weights, (4000, 6)), u), minlength=6)
    np.testing.assert_allclose(got / 4000, [0, 0.5, 0, 0.25, 0.25, 0], atol=1e-3)


def test_the_paper_loop_adapter_knows_the_answer():
    pytest.importorskip("scipy")
    from peers.adapters import loop

    protocol.check(loop.METHODS["paper's loop"])
    mean, (low, high) = loop.dirichlet(np.array([2.0, 2.0]))
    np.testing.assert_allclose(mean, 0.5)
    np.testing.assert_allclose([low[0], high[0]], [0.094299, 0.905701], atol=1e-6)  # Beta(2, 2)


def test_the_scikit_learn_adapter_knows_the_answer():
    pytest.importorskip("sklearn")
    from peers.adapters import categorical

    protocol.check(categorical.METHODS["CategoricalNB"])
    counts = np.array([[[4.2, -3.0], [1.4, 2.0]], [[-1.0, -2.0], [-0.2, -5.0]]])
    p, q = categorical.fit_one(counts)  # clipped and rounded: 4 0, 1 2; an empty class
    np.testing.assert_allclose(p, [1, 0])
    np.testing.assert_allclose(q[0], [[5 / 6, 1 / 6], [2 / 5, 3 / 5]])
    np.testing.assert_allclose(q[1], 0.5)
    p, q = categorical.fit_one(-np.ones((2, 2, 2)))  # nothing left at all
    np.testing.assert_allclose(p, 0.5)
    np.testing.assert_allclose(q, 0.5)
