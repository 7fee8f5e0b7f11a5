"""Running, stopping and resuming: nothing that was reported as done is lost."""

import dataclasses
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from jaxprivnb.storage import LocalStorage, StorageError, open_storage
from jaxprivnb.study import compute
from jaxprivnb.study.chunks import chunk, n_chunks
from jaxprivnb.study.display import Display
from jaxprivnb.study.folder import OtherStudyError, StudyFolder, read_manifest, read_spec
from jaxprivnb.study.load import load_study, read_study_rows
from jaxprivnb.study.run import run_study
from jaxprivnb.study.specfile import parse_spec

pytest.importorskip("pyarrow")

TEXT = """\
name = "store"
seed = 5
chunk_size = 8

[grid]
n_records = 30
epsilon_per_table = [0.1, 1.0]
n_features = 2

[replicates]
parameters = 80

[methods.naive]
[methods.bayes]
"""
SPEC = parse_spec(TEXT)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "study"
    outcome = run_study(SPEC, out)
    assert (outcome.rows, outcome.computed, outcome.resumed) == (320, 20, 0)
    return out


def command(spec_file, out, cache, *more):
    base = [sys.executable, "-m", "jaxprivnb", "study", str(spec_file), "--out", str(out)]
    return [*base, "--quiet", "--compilation-cache", str(cache), *more]


def digests(out):
    return {
        p.name: hashlib.sha256(p.read_bytes()).digest() for p in (out / "parts").glob("p*.parquet")
    }


def test_a_second_run_computes_nothing(finished):
    before = digests(finished)
    outcome = run_study(SPEC, finished)
    assert (outcome.computed, outcome.resumed, outcome.rows) == (0, 20, 320)
    assert digests(finished) == before


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_do_not_depend_on_the_number_of_workers(finished, tmp_path, workers):
    run_study(SPEC, tmp_path, workers=workers)
    assert digests(tmp_path) == digests(finished)


def test_missing_damaged_and_foreign_parts_are_computed_again(finished, tmp_path):
    expected = load_study(finished)
    run_study(SPEC, tmp_path)
    parts = sorted((tmp_path / "parts").glob("*.parquet"))
    parts[3].unlink()
    parts[4].write_bytes(parts[4].read_bytes()[:-9])
    parts[5].write_bytes(parts[6].read_bytes())
    (tmp_path / "manifest.json").unlink()
    outcome = run_study(SPEC, tmp_path)
    assert (outcome.computed, outcome.resumed) == (3, 17)
    assert load_study(tmp_path).equals(expected)


def test_a_part_that_the_manifest_names_but_is_gone_is_computed_again(finished, tmp_path):
    run_study(SPEC, tmp_path)
    (tmp_path / "parts" / "part-000002.parquet").unlink()
    assert run_study(SPEC, tmp_path).computed == 1
    assert load_study(tmp_path).equals(load_study(finished))


def test_a_changed_spec_is_refused_with_the_difference(finished):
    before = digests(finished)
    other = parse_spec(TEXT.replace("seed = 5", "seed = 6").replace("[methods.bayes]", ""))
    with pytest.raises(OtherStudyError, match=r"seed: 5 -> 6\n  methods.bayes: .* -> \(absent\)"):
        run_study(other, finished)
    assert digests(finished) == before


def test_another_version_of_the_package_is_pointed_out(tmp_path):
    small = parse_spec(TEXT.replace("parameters = 80", "parameters = 8"))
    run_study(small, tmp_path)
    text = (tmp_path / "study.json").read_text()
    found = json.loads(text) | {"jaxprivnb": "0.0.0"}
    (tmp_path / "study.json").write_text(json.dumps(found))
    with pytest.warns(UserWarning, match="begun with jaxprivnb 0.0.0"):
        assert run_study(small, tmp_path).computed == 0


def test_overwrite_is_explicit(tmp_path):
    small = parse_spec(TEXT.replace("parameters = 80", "parameters = 8"))
    run_study(small, tmp_path)
    outcome = run_study(
        parse_spec(TEXT.replace("parameters = 80", "parameters = 4")), tmp_path, overwrite=True
    )
    assert outcome.rows == 16
    assert load_study(tmp_path).num_rows == 16


def test_an_unwritable_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match=r"cannot write .*file/study/study\.json"):
        run_study(SPEC, tmp_path / "file" / "study")


def test_a_full_disk_leaves_finished_parts_intact(finished, tmp_path, monkeypatch):
    real, written = os.fsync, []

    def full_after_a_while(handle):
        written.append(handle)
        if len(written) > 15:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle)

    with monkeypatch.context() as patch:
        patch.setattr("jaxprivnb.storage.os.fsync", full_after_a_while)
        with pytest.raises(StorageError, match=r"cannot write .*part-.*No space left") as caught:
            run_study(SPEC, tmp_path)
    assert caught.value.errno == errno.ENOSPC
    kept = digests(tmp_path)
    assert 0 < len(kept) < 20
    assert not list(tmp_path.rglob("*.tmp"))
    assert run_study(SPEC, tmp_path).resumed == len(kept)
    assert kept.items() <= digests(tmp_path).items()
    assert load_study(tmp_path).equals(load_study(finished))


def test_an_interrupt_keeps_what_is_done(finished, tmp_path, monkeypatch):
    real = StudyFolder.write_part

    def interrupted(self, number, columns):
        if number == 7:
            raise KeyboardInterrupt
        return real(self, number, columns)

    with monkeypatch.context() as patch:
        patch.setattr(StudyFolder, "write_part", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_study(SPEC, tmp_path)
    assert len(read_manifest(LocalStorage(tmp_path), SPEC)) >= 7
    assert not read_study_rows(tmp_path).complete
    assert 7 <= run_study(SPEC, tmp_path).resumed < 20
    assert load_study(tmp_path).equals(load_study(finished))


@pytest.mark.parametrize("lost", [False, True], ids=["raised", "lost"])
def test_an_interrupt_is_answered_at_once_and_leaves_chunks_at_their_next_piece(
    tmp_path, monkeypatch, lost
):
    """Also where what it raises is lost, as in a callback of Python's garbage collector."""
    told, answered, real = threading.Event(), [], compute.fit_chunk

    class Answer(Display):
        def stopping(self, chunks):
            assert chunks == 1
            told.set()

    def interrupt_first(*arguments):
        if not answered:
            os.kill(os.getpid(), signal.SIGINT)
            answered.append(told.wait(10))
        return real(*arguments)

    monkeypatch.setattr(compute, "fit_chunk", interrupt_first)
    if lost:
        monkeypatch.setattr(signal, "default_int_handler", lambda number, frame: None)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_study(SPEC, tmp_path, workers=1, display=Answer())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)
    assert answered == [True]
    assert not digests(tmp_path)  # the first of a chunk's two methods was the last piece


def test_large_tables_are_fitted_in_small_pieces_and_rows_do_not_tell(monkeypatch):
    text = TEXT.replace("[methods.bayes]", "[methods.exact]").replace("[0.1, 1.0]", "1.0")
    spec = parse_spec(text)
    whole, calls = compute.compute_chunk(spec, chunk(spec, 0)), []
    monkeypatch.setattr("jaxprivnb.study.fits._PIECE", 3 * 31 * 8)
    monkeypatch.setattr("jaxprivnb.study.fits._READY", set())
    cut = compute.compute_chunk(spec, chunk(spec, 0), lambda: calls.append(1))
    # Eight replicates: naive and its intervals at once, exact and its intervals two by two.
    assert len(calls) == (1 + 1) + (4 + 4)
    for name, column in whole.items():
        # A block of another length is another program: the last bits of intervals may differ.
        last = 1e-9 * ("width" in name) + 1e-6 * name.startswith(("low", "high"))
        np.testing.assert_allclose(cut[name], column, rtol=last, err_msg=name)


def test_kill_minus_nine_and_resume_gives_the_same_rows(finished, tmp_path, cache):
    spec_file, out = tmp_path / "store.toml", tmp_path / "out"
    spec_file.write_text(TEXT)
    rng = random.Random(20)
    for kill in range(3):
        process = subprocess.Popen(command(spec_file, out, cache))
        aim = rng.randrange(1 + 5 * kill, 5 + 5 * kill)  # somewhere in the middle of the parts
        deadline = time.monotonic() + 60
        while process.poll() is None and len(digests(out)) < aim and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.01)
        process.kill()
        process.wait()
        kept = digests(out)
        named = read_manifest(LocalStorage(out), SPEC)
        assert {f"part-{n:06d}.parquet" for n in named} <= kept.keys()
    assert subprocess.run(command(spec_file, out, cache), check=False).returncode == 0
    assert kept.items() <= digests(out).items()
    assert load_study(out).equals(load_study(finished))


def test_old_leftovers_of_killed_writers_are_swept(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.write("parts/part", b"whole")
    for name, age in ((".old.tmp", 7200), (".new.tmp", 0)):
        aside = tmp_path / "parts" / name
        aside.write_bytes(b"half")
        os.utime(aside, (time.time() - age,) * 2)
    storage.sweep("parts")
    assert sorted(os.listdir(tmp_path / "parts")) == [".new.tmp", "part"]
    assert storage.names("parts") == ["part"]


def test_urls_work_like_folders(finished):
    pytest.importorskip("fsspec")
    url = "memory://studies/one"
    assert run_study(SPEC, url).computed == 20
    assert run_study(SPEC, url).resumed == 20
    assert load_study(url).equals(load_study(finished))
    run_study(parse_spec(TEXT.replace("parameters = 80", "parameters = 4")), url, overwrite=True)
    assert load_study(url).num_rows == 16
    assert open_storage(url).names("nothing") == []


def test_rows_as_pandas_and_xarray(finished):
    pandas = pytest.importorskip("pandas")
    xarray = pytest.importorskip("xarray")
    frame = load_study(finished, "pandas")
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 320
    data = load_study(finished, "xarray")
    assert isinstance(data, xarray.Dataset)
    assert data.se_class.dims == ("cell", "estimator", "parameter", "dataset", "noise_draw")
    one = frame[
        (frame.method == "bayes") & (frame.epsilon_per_table == 1.0) & (frame.parameter == 3)
    ]
    assert (
        data.se_class.sel(estimator="bayes").isel(cell=1, parameter=3).item() == one.se_class.item()
    )
    with pytest.raises(ValueError, match="format must be"):
        load_study(finished, "excel")


def test_no_counts_are_stored(finished):
    names = load_study(finished).column_names
    assert not [name for name in names if "count" in name or "prob" in name]
    assert json.loads((finished / "study.json").read_text())["fingerprint"] == SPEC.fingerprint


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the scheduler, about the worker that is killed
def test_dask_survives_a_killed_worker(finished, tmp_path, cache, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))  # a kill may leave half an entry
    out, killed = tmp_path / "out", []

    def kill_one(pids):
        while not digests(out):
            time.sleep(0.005)
        os.kill(pids[0], signal.SIGKILL)
        killed.append(len(digests(out)))

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        killer = threading.Thread(target=kill_one, args=(pids,), daemon=True)
        killer.start()
        outcome = run_study(SPEC, out, engine="dask", address=cluster.scheduler_address)
        killer.join(10)
    assert killed
    assert killed[0] < n_chunks(SPEC)
    assert outcome.computed == 20
    assert load_study(out).equals(load_study(finished))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"[1, 2]", "is damaged"),
        (b'{"format": 1}', "is damaged"),
        ({"spec": None}, "is damaged"),
        ({"fingerprint": 3}, "is damaged"),
        ({"spec.n_records": 30}, None),
        ({"spec.n_records": "many"}, "n_records must be a whole number"),
        ({"spec.n_records": [[30]]}, "n_records must be a whole number"),
        ({"spec.seed": "5"}, "seed must be a whole number"),
        ({"spec.replicates": [80, 1, 1]}, r"needs a \[replicates\] table"),
        ({"spec.replicates": {"parameters": "x"}}, "replicates.parameters must be"),
        ({"spec.methods": {"naive": None}}, "methods.naive must be a table"),
        ({"spec.methods": {"naive": {"method": ["naive"]}}}, "methods.naive.method must be text"),
        ({"spec.more": 1}, "more means nothing"),
        ({"spec.levels": [{}]}, "levels must be"),
    ],
)
def test_a_malformed_description_is_refused_by_name(finished, tmp_path, content, message):
    out = tmp_path / "study"
    shutil.copytree(finished, out)
    if isinstance(content, dict):
        description = json.loads((out / "study.json").read_text())
        for key, value in content.items():
            *tables, last = key.split(".")
            table = description
            for name in tables:
                table = table[name]
            table[last] = value
        content = json.dumps(description).encode()
    (out / "study.json").write_bytes(content)
    if message is None:
        assert len(load_study(out)) == 320
        return
    with pytest.raises(ValueError, match=rf"study\.json.*{message}"):
        load_study(out)


def test_a_seed_of_the_command_line_is_read_back(tmp_path):
    for seed in (-3, 2**40):
        spec = dataclasses.replace(SPEC, seed=seed)
        StudyFolder(str(tmp_path / str(seed)), spec).begin()
        assert read_spec(LocalStorage(tmp_path / str(seed))) == spec


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff", b"[]", b"null", b'{"fingerprint": "FINGERPRINT", "done": [{"chunk": []}]}',
     b'{"fingerprint": "FINGERPRINT", "done": 3}', b'{"fingerprint": "FINGERPRINT"}',
     b'{"fingerprint": "FINGERPRINT", "done": [{"chunk": 1e999, "rows": 1, "failures": 0}]}'],
)  # fmt: skip
def test_a_malformed_manifest_costs_nothing(finished, tmp_path, content):
    out = tmp_path / "study"
    shutil.copytree(finished, out)
    content = content.replace(b"FINGERPRINT", SPEC.fingerprint.encode())
    (out / "manifest.json").write_bytes(content)
    outcome = run_study(SPEC, out)
    assert (outcome.rows, outcome.computed, outcome.resumed) == (320, 0, 20)
