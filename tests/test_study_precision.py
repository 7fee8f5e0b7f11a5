"""Cells that end when they know enough: early, rightly, and the same way however they were run."""

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from test_study_schedule import changed, digests

from jaxprivnb.study.chunks import cuts, n_chunks, rounds
from jaxprivnb.study.display import LiveDisplay, LogDisplay
from jaxprivnb.study.load import load_study, read_study_rows
from jaxprivnb.study.missing import format_status, study_status
from jaxprivnb.study.precision import Look, Progress, Share
from jaxprivnb.study.run import run_study
from jaxprivnb.study.schedule import Schedule
from jaxprivnb.study.spec import Precision, Replicates, SpecError, from_dict
from jaxprivnb.study.specfile import parse_spec
from jaxprivnb.study.summary import summarise

pytest.importorskip("pyarrow")

TARGET = """\
[precision]
relative = { se_class = 0.12 }
absolute = { coverage_feature_95 = 0.013 }
max_replicates = 1000
"""
LARGER = [("chunk_size = 8", "chunk_size = 100"), ("parameters = 10", "parameters = 20")]
SURE = changed([*LARGER, ("[methods.bayes]", f"[methods.naive]\n[methods.bayes]\n{TARGET}")])
SPEC = parse_spec(SURE)


@pytest.fixture(scope="module")
def sure(tmp_path_factory):
    out = tmp_path_factory.mktemp("sure") / "study"
    run_study(SPEC, out)
    return out


def test_a_cell_ends_at_the_first_round_in_which_every_method_is_sure(sure):
    study = read_study_rows(sure)
    assert study.complete
    ends = rounds(SPEC)
    ended = []
    for cell in range(len(SPEC.cells)):
        frame = study.table.filter(np.asarray(study.table["cell"]) == cell)
        ended.append(max(frame["replicate"].to_pylist()) + 1)
        for end in ends[: ends.index(ended[-1]) + 1]:
            upto = frame.filter(np.asarray(frame["replicate"]) < end)
            summary = summarise(study._replace(table=upto))
            relative = summary.se["se_class"] / summary.mean["se_class"]
            absolute = summary.se["coverage_feature_95"]
            met = (relative <= 0.12).all() and (absolute <= 0.013).all()
            assert met == (end == ended[-1])
    assert 40 < min(ended) < max(ended) < 1000  # early, and each in its own time


def test_rows_do_not_depend_on_workers_kills_or_parts(sure, tmp_path):
    expected, parts = load_study(sure), digests(sure)
    run_study(SPEC, tmp_path / "one", workers=1)
    assert digests(tmp_path / "one") == parts
    for part in ("2/3", "1/3", "3/3"):
        outcome = run_study(SPEC, tmp_path / "three", part=part)
        assert (outcome.computed == 0) == (part == "3/3")  # there are two cells
    assert digests(tmp_path / "three") == parts
    names = sorted((tmp_path / "one" / "parts").glob("*.parquet"))
    for name in (names[0], names[3], names[-1]):
        name.unlink()
    assert not read_study_rows(tmp_path / "one").complete
    assert run_study(SPEC, tmp_path / "one").computed == 3
    assert load_study(tmp_path / "one").equals(expected)


def test_a_study_grows_to_its_precision(sure, tmp_path):
    """From a fixed design, a looser target with fewer replicates allowed, and one method."""
    steps = [changed(LARGER)]
    steps.append(steps[0] + TARGET.replace("1000", "150").replace("0.12", "0.3"))
    steps.append(steps[1].replace("0.3", "0.12").replace("150", "1000"))
    steps.append(steps[2].replace("[methods.bayes]", "[methods.naive]\n[methods.bayes]"))
    computed = [run_study(parse_spec(text), tmp_path).computed for text in steps]
    assert min(computed) > 0
    assert parse_spec(steps[-1]) == SPEC
    assert load_study(tmp_path).equals(load_study(sure))
    assert study_status(tmp_path).complete
    with pytest.raises(ValueError, match=r"precision.relative.se_class: 0.12 -> 0.3"):
        run_study(parse_spec(steps[-1].replace("0.12", "0.3")), tmp_path)


def test_a_cell_that_is_not_sure_ends_at_the_most_replicates(tmp_path):
    text = SURE.replace("0.12", "1e-9").replace("1000", "200")
    run_study(parse_spec(text), tmp_path)
    status = study_status(tmp_path)
    assert status.complete
    assert {look.replicates for look in status.looks.values()} == {200}
    said = format_status(status)
    assert "0 of 2 cells are as sure as asked" in said
    assert "at max_replicates with se_class" in said
    data = load_study(tmp_path, "pandas")
    assert data.groupby("cell").replicate.max().tolist() == [199, 199]


def test_an_array_has_room_for_the_cell_that_went_furthest(sure):
    pytest.importorskip("xarray")
    table, data = load_study(sure), load_study(sure, "xarray")
    assert data.sizes["parameter"] == max(table["parameter"].to_pylist()) + 1
    assert int(data.se_class.notnull().sum()) == table.num_rows


def test_rounds_grow_by_a_quarter_and_end_with_whole_draws():
    spec = lambda most, *first: dataclasses.replace(  # noqa: E731
        SPEC,
        replicates=Replicates(*first or (20, 2, 1)),
        precision=SPEC.precision._replace(max_replicates=most),
    )
    assert rounds(spec(1000)) == (40, 168, 296, 424, 552, 690, 864, 1000)
    assert rounds(spec(1001)) == rounds(spec(1000))
    assert rounds(spec(864)) == rounds(spec(1000))[:-1]
    assert rounds(spec(40)) == (40,)
    assert rounds(dataclasses.replace(SPEC, precision=None)) == (40,)
    one = spec(400, 1, 30, 4)
    assert one.most == Replicates(1, 100, 4)
    assert rounds(one) == (120, 248, 376, 400)
    assert cuts((40, 168), 100) == (0, 40, 140, 168)
    assert n_chunks(spec(168)) == 2 * 3


def test_precision_survives_json():
    again = from_dict(json.loads(json.dumps(SPEC.to_dict())))
    assert again == SPEC
    assert again.precision == Precision(
        (("se_class", 0.12),), (("coverage_feature_95", 0.013),), 1000
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("se_class", "se_clas", "se_clas is not a measure.*did you mean 'se_class'"),
        ("coverage_feature_95", "coverage_feature_90", "is not a measure"),
        ("0.12", "0.0", "precision.relative.se_class must be a finite number above 0"),
        ("max_replicates = 1000", "", "precision must say max_replicates"),
        ("max_replicates = 1000", "max_replicates = 39", "is below the 40 replicates"),
        ("relative =", "relativ =", "did you mean 'relative'"),
        ("{ se_class = 0.12 }", "0.12", "relative must be a table"),
        ("parameters = 20", "parameters = 19", "replicates.parameters must be at least 20"),
    ],
)
def test_mistakes_are_named(old, new, message):
    assert SURE.count(old) == 1
    with pytest.raises(SpecError, match=rf"^s\.toml:\d+: .*{message}"):
        parse_spec(SURE.replace(old, new), "s.toml")


def test_precision_of_nothing_is_refused():
    text = SURE.replace("relative = { se_class = 0.12 }\n", "")
    with pytest.raises(SpecError, match="precision names no measure"):
        parse_spec(text.replace("absolute = { coverage_feature_95 = 0.013 }\n", ""))


class Rows(dict):
    """The columns of a made-up chunk, as a table has them."""

    @property
    def column_names(self):
        return list(self)

    def __getitem__(self, name):
        column = super().__getitem__(name)
        return column if name == "method" else _Column(column)


class _Column:
    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def made_up(monkeypatch, values):
    """The last look at the first of SPEC's cells after its first round, whose rows are given."""
    monkeypatch.setattr("jaxprivnb.study.precision.method_codes", lambda table, labels: codes)
    r = np.tile(np.arange(40), 2)
    codes = np.repeat([0, 1], 40)
    names = {"parameter": r // 2, "dataset": r % 2, "noise_draw": 0 * r, "method": None}
    progress = Progress(Schedule([SPEC]), lambda number, columns: Rows(names | values))
    progress.begin([0])
    return progress.looks[0]


def test_a_measure_that_a_method_does_not_have_is_not_asked_of_it(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.where(np.arange(80) < 40, np.nan, rng.random(80))
    look = made_up(monkeypatch, {"se_class": x, "coverage_feature_95": np.full(80, 0.5)})
    assert (look.method, look.measure, look.relative) == ("bayes", "se_class", True)
    draws = x[40:].reshape(20, 2).mean(1)
    assert look.error == pytest.approx(draws.std(ddof=1) / 20**0.5 / draws.mean())
    x[43:] = np.nan  # two draws at last, then one
    assert math.isfinite(made_up(monkeypatch, {"se_class": x}).error)
    x[42] = np.nan
    assert not made_up(monkeypatch, {"se_class": x}).met


def test_shares_are_whole_and_apart():
    for parts in (1, 2, 7, 100):
        shares = [Share(part, parts) for part in range(1, parts + 1)]
        counts = [sum(share.has(n) for n in range(72)) for share in shares]
        assert all(sum(share.has(n) for share in shares) == 1 for n in range(72))
        assert max(counts) - min(counts) <= 1
    nine = [[n for n in range(36) if Share(part, 9).has(n)] for part in range(1, 10)]
    assert all(len({n % 9 for n in own}) == 4 for own in nine)  # not the same epsilon four times
    assert Share.parse("3/100") == (3, 100)
    for text in ("0/4", "5/4", "3", "a/b", "1/0", "-1/3", ""):
        with pytest.raises(ValueError, match="part must be like 3/100"):
            Share.parse(text)
    with pytest.raises(ValueError, match="leave part out"):
        run_study(SPEC, "nowhere", part="1/2", overwrite=True)


def test_displays_show_the_error_reached(sure, tmp_path):
    console = pytest.importorskip("rich.console")
    log, live = io.StringIO(), io.StringIO()
    run_study(SPEC, tmp_path / "log", display=LogDisplay(log, every=0))
    first, *lines = log.getvalue().splitlines()
    assert "2 cells x 40 to 1000 replicates x 2 methods; 0 of 80 replicates done" in first
    assert "0 of 2 cells as sure as asked; least sure: coverage_feature_95 0.0" in log.getvalue()
    assert "(asked: 0.013) of naive at N=30" in log.getvalue()
    assert "2 of 2 cells as sure as asked" in lines[-1]
    assert "(100%)" in lines[-1]

    shown = LiveDisplay(console.Console(file=live, width=160, force_terminal=True))
    shown.progress = Progress(Schedule([SPEC]), None)
    shown.progress.begin([])
    shown.start(SPEC, [])
    shown.progress.looks[0] = Look(40, "naive", "se_class", 0.18, 0.12, True)
    shown.stop()
    plain = console.Console(file=io.StringIO(), width=160)
    plain.print(shown.render())
    assert "1.5" in plain.file.getvalue()
    assert "as sure as asked, 0 of 2 cells" in plain.file.getvalue()
    assert shown.expected(0) == 40 + 50  # 40 * 1.5^2
