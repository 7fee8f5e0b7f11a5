"""Files of releases: a round trip, and no way in for what is not one."""

import hashlib
import json
import os
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.privacy import sealed
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.privacy.record import Guarantee, Release


def example(measure="epsilon", class_table=True, neighbours="replace", contributions=1):
    domain = Domain(
        Column("income", ("<=50K", ">50K")),
        (Column("sex", ("f", "m")), Column("région", (0, 1, 2)), Column("x", (True, 0.5, "other"))),
    )
    n_tables = 4 if class_table else 3
    scales = tuple(float(s) for s in (4, 8, 16, 32)[:n_tables])
    cells = 2 if neighbours == "replace" else 1
    per_table = tuple(
        cells * contributions / s if measure == "epsilon" else cells * contributions**2 / (2 * s**2)
        for s in scales
    )
    total = float(sum(per_table))
    promise = Guarantee(measure, total, total, per_table, scales, neighbours, contributions)
    rng = np.random.default_rng(0)
    tables = [rng.integers(-50, 2**40, (2, j)) for j in domain.n_categories]
    classes = np.array([-3, 2**61]) if class_table else None
    versions = {"jaxprivnb": "0.1.0", "opendp": "0.16.0"}
    N = 2**30 + 1 if neighbours == "replace" else None
    return Release.assemble(tables, classes, N, domain, promise, versions)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "release.json"
    example().save(file)
    return file


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("class_table", [True, False])
def test_round_trip(tmp_path, measure, class_table):
    made = example(measure, class_table)
    made.save(tmp_path / "r.json")
    back = pnb.load_release(tmp_path / "r.json")
    assert type(back) is pnb.Release
    np.testing.assert_array_equal(back.integers, made.integers)
    np.testing.assert_array_equal(back.real, made.real)
    np.testing.assert_array_equal(back.noise.value, made.noise.value)
    assert (back.size, back.domain, back.guarantee, back.versions) == (
        made.size, made.domain, made.guarantee, made.versions,
    )  # fmt: skip
    assert [type(c) for c in back.categories["x"]] == [bool, float, str]
    if class_table:
        np.testing.assert_array_equal(back.class_integers, made.class_integers)
        np.testing.assert_array_equal(back.noise.value, made.noise.value)
    else:
        assert back.class_integers is None
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["again.json", "r.json"]


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("contributions", [1, 3])
def test_neighbours_survive(tmp_path, measure, neighbours, contributions):
    made = example(measure, True, neighbours, contributions)
    made.save(tmp_path / "r.json")
    back = pnb.load_release(tmp_path / "r.json")
    assert back.guarantee == made.guarantee
    assert (back.size is None) == (back.n_records is None) == (neighbours == "add-remove")
    content = json.loads((tmp_path / "r.json").read_text())["content"]
    assert content["privacy"]["contributions"] == contributions
    assert content["privacy"]["neighbours"] == made.guarantee.relation
    assert content["n_records"] == made.size


def test_a_file_from_before_contributions_is_of_one(path):
    forge(path, lambda c: c["privacy"].pop("contributions"))
    assert pnb.load_release(path).guarantee == example().guarantee


def test_integers_survive_float32(tmp_path):
    with jax.enable_x64(False):
        example().save(tmp_path / "r.json")
        back = pnb.load_release(tmp_path / "r.json")
        assert back.counts.dtype == np.float32
    np.testing.assert_array_equal(back.integers, example().integers)
    assert back.size == 2**30 + 1


def test_a_real_release_survives(tmp_path):
    pytest.importorskip("opendp")
    made = pnb.release(
        np.zeros((5, 7), int), np.zeros(5, int), epsilon_total=0.7, n_categories=3, n_classes=2
    )
    made.save(tmp_path / "r.json")
    assert pnb.load_release(tmp_path / "r.json").guarantee == made.guarantee


def test_every_truncation_is_noticed(path):
    data = path.read_bytes().rstrip()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"release\.json: "):
            pnb.load_release(path)


def test_every_edited_byte_is_noticed(path):
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    for place in rng.choice(len(data) - 1, 300, replace=False):
        edited = bytearray(data)
        edited[place] = ord("7") if edited[place] != ord("7") else ord("8")
        path.write_bytes(bytes(edited))
        with pytest.raises(ValueError, match=r"release\.json: "):
            pnb.load_release(path)


def forge(path, change):
    """Change the content and seal it again, as an enemy would."""
    top = json.loads(path.read_text())
    change(top["content"])
    body = json.dumps(top["content"], sort_keys=True, separators=(",", ":"))
    top["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(json.dumps(top))


def at(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("n_records", -1), "n_records must be between"),
        (at("n_records", 1.5), "'n_records' is of the wrong type"),
        (at("n_records", True), "'n_records' is of the wrong type"),
        (at("n_records", 10**400), "n_records must be between"),
        (lambda c: c["features"][0].update(budget=float("inf")), "is no number of ours"),
        (at("extra", 1), "unknown key 'extra'"),
        (lambda c: c.pop("layout"), "lacks 'layout'"),
        (at("layout", "another"), "layout is not"),
        (at("features", []), "features must not be empty"),
        (at("features", [1]), r"features\[0\] must be an object"),
        (at("features", 0, "noise_scale", -4.0), r"features\[0\].noise_scale must be between"),
        (at("features", 0, "noise_scale", 0), r"features\[0\].noise_scale must be between"),
        (at("features", 0, "noise_scale", 1e300), r"features\[0\].noise_scale must be between"),
        (at("features", 0, "noise_scale", "4"), "'noise_scale' is of the wrong type"),
        (at("features", 0, "noise_scale", 5.0), r"features\[0\].budget is not what"),
        (at("features", 1, "budget", 1e-3), r"features\[1\].budget is not what"),
        (at("features", 0, "counts", [1, 2, 3]), r"features\[0\].counts must have 4 values"),
        (at("features", 0, "counts", [1, 2, 3, 4.0]), r"features\[0\].counts must be integers"),
        (at("features", 0, "counts", [1, 2, 3, None]), r"features\[0\].counts must be integers"),
        (at("features", 0, "counts", [1, 2, 3, True]), r"features\[0\].counts must be integers"),
        (at("features", 0, "counts", [1, 2, 3, 2**70]), r"features\[0\].counts must be integers"),
        (at("features", 0, "categories", ["f", "f"]), "hold a label twice"),
        (at("features", 0, "categories", ["f", ["m"]]), "must be strings, numbers"),
        (at("features", 0, "name", "income"), "names of their own"),
        (at("features", 0, "name", ""), "1 to 1000 characters"),
        (at("class", "table", "counts", [1]), "class.table.counts must have 2"),
        (at("class", "table", "noise_scale", -1), "class.table.noise_scale"),
        (at("class", "categories", []), "must not be empty"),
        (at("privacy", "measure", "delta"), "privacy.measure"),
        (at("privacy", "measure", "rho"), "budget is not what"),
        (at("privacy", "neighbours", "none"), "privacy.neighbours"),
        (at("privacy", "neighbours", "replace up to 3 records"), "privacy.neighbours"),
        (at("privacy", "neighbours", "add or remove one record"), "budget is not what"),
        (at("privacy", "contributions", 2), "privacy.neighbours must be .* as its contributions"),
        (at("privacy", "contributions", 0), "privacy.contributions must be between"),
        (at("privacy", "contributions", 10**400), "privacy.contributions must be between"),
        (at("privacy", "contributions", True), "'contributions' is of the wrong type"),
        (at("n_records", None), "n_records must be null where .* and only there"),
        (at("privacy", "mechanism", "none"), "privacy.mechanism"),
        (at("privacy", "sensitivity", 1), "privacy.sensitivity"),
        (at("privacy", "proved_total", 0.1), "privacy.proved_total"),
        (at("privacy", "stated_total", 0.1), "privacy.stated_total"),
        (at("privacy", "stated_total", 9.0), "privacy.stated_total"),
        (at("versions", "opendp", 1), "versions"),
        (at("versions", "opendp", "x" * 1000), "versions"),
    ],
)
def test_forged_contents_are_refused_by_field(path, change, message):
    forge(path, change)
    with pytest.raises(ValueError, match=message):
        pnb.load_release(path)


def test_the_forging_itself_is_not_what_is_refused(path):
    forge(path, lambda content: None)
    pnb.load_release(path)
    top = json.loads(path.read_text())
    top["sha256"] = "0" * 64
    path.write_text(json.dumps(top))
    with pytest.raises(ValueError, match="sha256 does not match"):
        pnb.load_release(path)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused_by_name(path, version):
    path.write_text(path.read_text().replace('"version":1', f'"version":{version}'))
    with pytest.raises(ValueError, match=f"version {version} of the format is not known"):
        pnb.load_release(path)


def huge_padding(content):
    """3 features of which one has many categories: small as a file, large when padded."""
    feature = content["features"][0]
    content["features"] = [
        {**feature, "name": f"x{k}", "categories": [0], "counts": [0, 0]} for k in range(20_000)
    ]
    content["features"][0] |= {"categories": list(range(50_000)), "counts": [0] * 100_000}


HEAD = b'{"format":"jaxprivnb release","version":'
HOSTILE = {
    "deep lists": lambda: b"[" * 10_000_000,
    "deep objects": lambda: b'{"a":' * 5_000_000,
    "wide": lambda: b"[" + b"0," * 30_000_000 + b"0]",
    "many empty lists": lambda: b"[" + b"[]" * 20_000_000,
    "many strings": lambda: b'""' * 30_000_000,
    "unclosed string": lambda: b'"' + b'\\"' * 300_000,
    "closed too often": lambda: b"]" * 30_000_000,
    "wide, within the bounds": lambda: (
        HEAD + b'1,"sha256":"","content":{"a":[' + b"1.5," * 3_900_000 + b"1]}}"
    ),
    "NaN": lambda: HEAD + b"NaN}",
    "infinite": lambda: HEAD + b'1,"sha256":"","content":{"n_records":1e999}}',
    "same key twice": lambda: b'{"format":"a","format":"jaxprivnb release"}',
    "long integer": lambda: HEAD + b"9" * 10_000_000 + b"}",
    "too large": lambda: b" " * (sealed.MAX_BYTES + 1),
    "binary": lambda: bytes(range(256)) * 100,
    "not an object": lambda: b"[1, 2]",
    "another format": lambda: b'{"format":"something else"}',
    "empty": lambda: b"",
    "null": lambda: b"null",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused_quickly(tmp_path, kind):
    path = tmp_path / "release.json"
    path.write_bytes(HOSTILE[kind]())
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"release\.json: "):
        pnb.load_release(path)
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_bounded_before_parsing(opening):
    with pytest.raises(ValueError, match="nested more than 8 deep"):
        sealed.open_sealed(opening * 9, "a", 1)
    with pytest.raises(ValueError, match="cut off"):
        sealed.open_sealed(opening * 8, "a", 1)
    text = b'{"format":"[[[[[[[[[[\\"[[[[[["}'  # brackets in a text are no depth
    with pytest.raises(ValueError, match="not a file of format"):
        sealed.open_sealed(text, "a", 1)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
@pytest.mark.parametrize("kind", ["wide", "wide, within the bounds", "many strings"])
def test_hostile_files_are_refused_in_bounded_memory(tmp_path, kind):
    path = tmp_path / "release.json"
    path.write_bytes(HOSTILE[kind]())
    code = f"""
from pathlib import Path
from jaxprivnb.privacy.file import load_release
# Not ru_maxrss: a child begins with its parent's.
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
try:
    load_release({str(path)!r})
except ValueError:
    print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 280 * 1024  # KiB


def test_a_shape_that_only_padding_makes_huge_is_refused_before_it_is_allocated(path):
    forge(path, huge_padding)
    begin = time.process_time()
    with pytest.raises(ValueError, match="2 classes x 20000 features x 50000 categories"):
        pnb.load_release(path)
    assert time.process_time() - begin < 5


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="cannot read"):
        pnb.load_release(tmp_path / "none.json")
    with pytest.raises(OSError, match="cannot read"):
        pnb.load_release(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        pnb.load_release(tmp_path / "pipe")


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        example("rho").save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_save_takes_no_devices_place(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        example("rho").save(pipe)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]
