"""Studies that grow: as if all had been asked for at once, and what is stored stays."""

import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

from jaxprivnb.storage import LocalStorage
from jaxprivnb.study.folder import OtherStudyError, StudyFolder, read_schedule
from jaxprivnb.study.load import load_study, read_study_rows
from jaxprivnb.study.missing import study_status
from jaxprivnb.study.run import run_study
from jaxprivnb.study.schedule import Schedule, continues
from jaxprivnb.study.spec import from_dict
from jaxprivnb.study.specfile import parse_spec

pytest.importorskip("pyarrow")

TEXT = """\
name = "growing"
seed = 5
chunk_size = 8
levels = [0.5, 0.95]

[grid]
n_records = 30
epsilon_per_table = [0.1, 1.0]
n_features = 2

[replicates]
parameters = 10
datasets = 2

[methods.bayes]
"""
MORE = {
    "replicates": [("parameters = 10", "parameters = 17")],
    "data sets and noise draws": [("datasets = 2", "datasets = 3\nnoise_draws = 2")],
    "cells": [("[0.1, 1.0]", "[0.5, 0.1, 1.0]")],
    "methods": [("[methods.bayes]", "[methods.naive]\n[methods.bayes]")],
    "levels": [("[0.5, 0.95]", "[0.5, 0.8, 0.95]")],
}
MORE["all of them"] = [pair for pairs in MORE.values() for pair in pairs if "data" not in pair[0]]


def changed(pairs, text=TEXT):
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def digests(out):
    return {
        p.name: hashlib.sha256(p.read_bytes()).digest() for p in (out / "parts").glob("p*.parquet")
    }


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    out = tmp_path_factory.mktemp("begun") / "study"
    assert run_study(parse_spec(TEXT), out).computed == 6
    return out


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All that is new at once, in a study that was never smaller."""
    out = tmp_path_factory.mktemp("everything") / "study"
    run_study(parse_spec(changed(MORE["all of them"])), out)
    return load_study(out)


@pytest.mark.parametrize("what", MORE)
def test_a_study_that_grew_is_the_one_that_was_asked_for_at_once(begun, everything, tmp_path, what):
    spec = parse_spec(changed(MORE[what]))
    grown = tmp_path / "grown"
    shutil.copytree(begun, grown)
    before = digests(grown)
    first = run_study(spec, grown)
    assert before.items() <= digests(grown).items()
    assert first.resumed == 6
    assert first.computed == len(digests(grown)) - 6 > 0
    if what == "all of them":
        expected = everything
    else:
        run_study(spec, tmp_path / "at once")
        expected = load_study(tmp_path / "at once")
    assert load_study(grown).equals(expected)
    assert load_study(grown).schema.equals(expected.schema)
    assert read_study_rows(grown).complete
    assert run_study(spec, grown).computed == 0


def test_step_by_step_and_with_chunks_of_every_step_missing(begun, everything, tmp_path):
    out = tmp_path / "study"
    shutil.copytree(begun, out)
    text = TEXT
    for what in ("levels", "methods", "replicates", "cells"):
        (out / "manifest.json").unlink()
        sorted((out / "parts").glob("p*.parquet"))[-2].unlink()
        text = changed(MORE[what], text)
        folder = StudyFolder(str(out), parse_spec(text))
        folder.begin()  # and killed at once
    status = study_status(out)
    assert not status.complete
    assert {m.method for m in status.missing} == {"naive", "bayes"}
    assert run_study(parse_spec(text), out).failures == 0
    assert study_status(out).complete
    assert load_study(out).equals(everything)
    assert len(read_schedule(LocalStorage(out)).specs) == 5
    found = json.loads((out / "study.json").read_text())
    assert found["spec"] == parse_spec(text).to_dict()


@pytest.mark.parametrize(
    "pairs",
    [
        [("parameters = 10", "parameters = 9")],
        [("[0.1, 1.0]", "[0.1, 2.0]")],
        [("[0.5, 0.95]", "[0.5]")],
        [("seed = 5", "seed = 6")],
        [("chunk_size = 8", "chunk_size = 9")],
        [("n_features = 2", "n_features = 3")],
        [("[methods.bayes]", "[methods.naive]")],
        [("parameters = 10", "parameters = 11"), ("seed = 5", 'seed = 5\ndtype = "float32"')],
    ],
)
def test_anything_but_more_is_refused_with_the_difference(begun, pairs):
    before = (begun / "study.json").read_bytes()
    with pytest.raises(OtherStudyError, match=r"the difference:\n  \S+: .* -> .*\n(.|\n)*asks for"):
        run_study(parse_spec(changed(pairs)), begun)
    assert (begun / "study.json").read_bytes() == before


def test_what_would_change_rows_is_not_more():
    spec = lambda *pairs: parse_spec(changed(pairs))  # noqa: E731
    every = ("seed = 5", "seed = 5\ninterval_every = 3")
    twice = ("[replicates]", "[published]\nreleases = 2\n[replicates]")
    wider = ("datasets = 2", "datasets = 4")
    noisier = ("datasets = 2", "datasets = 2\nnoise_draws = 2")
    longer = ("parameters = 10", "parameters = 99")
    assert continues(spec(every), spec(every, longer))
    assert not continues(spec(every), spec(every, wider))  # other replicates have intervals
    assert continues(spec(twice), spec(twice, longer, wider))
    assert not continues(spec(twice), spec(twice, noisier))  # another noise of the second release
    assert continues(spec(), spec(wider))
    assert not continues(spec(wider), spec())


def test_precision_asks_for_more_where_it_asks_for_less_error():
    def spec(target="relative = {se_class = 0.1}", most=900, first=30):
        text = f"[precision]\n{target}\nmax_replicates = {most}\n[replicates]"
        first = ("parameters = 10", f"parameters = {first}")
        return parse_spec(changed([("[replicates]", text), first]))

    fixed = parse_spec(changed([("parameters = 10", "parameters = 30")]))
    assert continues(fixed, spec())
    assert continues(spec(), spec("relative = {se_class = 0.05}"))
    assert continues(spec(), spec("relative = {se_class = 0.1, se_feature = 9.0}", most=2000))
    assert not continues(spec(), spec("relative = {se_class = 0.2}"))
    assert not continues(spec(), spec("absolute = {se_class = 0.1}"))
    assert not continues(spec(), spec(most=800))
    assert not continues(spec(), spec(first=40))  # would be looked at elsewhere
    assert not continues(spec(), fixed)
    assert continues(spec(), parse_spec(changed([("parameters = 10", "parameters = 450")])))


def test_chunks_cover_every_fit_once():
    specs = [TEXT]
    for what in ("levels", "data sets and noise draws", "methods", "replicates", "cells"):
        specs.append(changed(MORE[what], specs[-1]))
    schedule = Schedule([parse_spec(text) for text in specs])
    fits, coverage = set(), set()
    for number in range(schedule.size):
        task = schedule.task(number)
        cell = task.spec.cells[task.cell]
        sizes = task.spec.most
        for r, arm in itertools.product(task.replicates.tolist(), task.spec.arms):
            draws = (r // sizes.noise_draws // sizes.datasets, r // sizes.noise_draws
                     % sizes.datasets, r % sizes.noise_draws)  # fmt: skip
            key = (cell, arm, *draws)
            assert task.levels_only or key not in fits
            fits.add(key)
            new = {(*key, level) for level in task.spec.levels}
            assert not new & coverage
            coverage |= new
    spec = schedule.spec
    assert len(fits) == len(spec.cells) * spec.replicates.total * len(spec.arms)
    assert len(coverage) == len(fits) * len(spec.levels)
    for cell in range(len(spec.cells)):
        (chunks,) = schedule.rounds_of(cell)
        assert {schedule.chunk(number).cell for number in chunks} == {cell}
    again = Schedule([from_dict(json.loads(json.dumps(s.to_dict()))) for s in schedule.specs])
    assert again.size == schedule.size
    with pytest.raises(IndexError, match="chunk must be from 0"):
        schedule.task(schedule.size)


def test_kill_minus_nine_while_a_study_grows(begun, everything, tmp_path, cache):
    out, more, kept = tmp_path / "out", changed(MORE["all of them"]), {}
    for text, aim in ((TEXT, 2), (more, 9)):
        (tmp_path / "spec.toml").write_text(text)
        words = ["-m", "jaxprivnb", "study", tmp_path / "spec.toml", "--out", out, "--quiet"]
        process = subprocess.Popen([sys.executable, *words, "--compilation-cache", cache])
        while process.poll() is None and len(digests(out)) < aim:
            time.sleep(0.001)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert kept.items() <= digests(out).items()
        kept = digests(out)
    assert run_study(parse_spec(more), out).computed <= read_schedule(LocalStorage(out)).size - 9
    assert (kept | digests(begun)).items() <= digests(out).items()
    assert load_study(out).equals(everything)
