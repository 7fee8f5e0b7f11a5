"""Attempts to make a record show itself: in errors, warnings, logs, reprs, files or pickles.

Two secrets are planted, a text and a number. They are handed, in everything that can hold records,
to every argument of everything that takes arguments.
"""

import contextlib
import functools
import logging
import pickle
import re
import traceback
import warnings

import jax
import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb import cli, plots
from jaxprivnb.measurement import Measurement

pytest.importorskip("opendp")
pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

TEXT, NUMBER = "-".join(["Zoltan", "4711"]), 918273645
SECRETS = (TEXT, str(NUMBER), f"{NUMBER:,}"[:7], "9.18273", "9.18274e")

N = 24
COLUMNS = {"name": [TEXT, "b"] * (N // 2), "age": [NUMBER, 0, 1] * (N // 3)}
ROWS = [list(row) for row in zip(*COLUMNS.values(), strict=True)]
CLASSES = [TEXT, "no", "no"] * (N // 3)
FRAME = pandas.DataFrame(COLUMNS)
HEADLESS = pandas.DataFrame(ROWS[1:], columns=[str(x) for x in ROWS[0]])
DOMAIN = {"categories": {"name": ["a", "b"], "age": [0, 1]}, "classes": ["yes", "no"]}
SIZES = {"n_categories": 2, "n_classes": 2}
BINNED = {
    "categories": {"name": ["a", "b"]},
    "bins": {"age": {"edges": [0, 1, 2], "outside": "refuse"}},
}

HANDED = {
    "a frame": FRAME,
    "a frame without header": HEADLESS,
    "a column": FRAME["name"],
    "a categorical": FRAME["name"].astype("category"),
    "an object array": np.array(ROWS, object),
    "a text array": np.array(ROWS),
    "a 1-d array": np.array(COLUMNS["name"]),
    "numbers": np.full((N, 2), NUMBER),
    "a complex array": np.full((N, 2), NUMBER + 1j),
    "lists": ROWS,
    "a list": COLUMNS["name"],
    "ragged lists": [*ROWS, [TEXT]],
    "a record": ROWS[0],
    "a record of numbers": [-NUMBER, NUMBER],
    "a dict of columns": COLUMNS,
    "a dict of records": {TEXT: ROWS[0], NUMBER: ROWS[1]},
    "a record by name": dict(zip(COLUMNS, ROWS[0], strict=True)),
    "dicts": [dict(zip(COLUMNS, row, strict=True)) for row in ROWS],
    "an Arrow table": pyarrow.table(COLUMNS),
    "a set": {TEXT, NUMBER},
    "a file's text": "\n".join(",".join(map(str, row)) for row in ROWS),
    "bytes": TEXT.encode(),
    "text in three axes": np.full((2, 2, 2), TEXT, object),
    "numbers in three axes": np.full((2, 2, 2), NUMBER + 0.5),
    "text in a square": np.array([[TEXT, "b"], ["b", "c"]], object),
    "a cross table": pandas.DataFrame([[1.0, 2], [3, 4]], [TEXT, "b"], [TEXT, TEXT]),
    "a dict of frames": {"name": FRAME},
}


def release(X=FRAME, y=CLASSES, **options):
    given = {**DOMAIN, "epsilon_total": 1.0, **options}
    for one, other in (("n_categories", "categories"), ("n_classes", "classes")):
        if one in options:
            del given[other]
    if {"epsilon_per_table", "rho_total"} & set(options):
        del given["epsilon_total"]
    return pnb.release(X, y, **given)


def estimator(**options):
    return pnb.PrivateNaiveBayes(**{"method": "naive", **DOMAIN, **options})


def fit(X=FRAME, y=CLASSES, **options):
    model = estimator(**options)
    try:
        return model.fit(X, y)
    finally:
        assert not found_in(repr(model))


def tables():
    return pnb.NoisyTables(np.ones((2, 2, 2)), 4, pnb.Laplace(1.0))


PLAIN = pandas.DataFrame({"name": ["a", "b"] * (N // 2), "age": [0, 1] * (N // 2)})


@functools.cache
def fitted():
    return fit(PLAIN, ["yes", "no"] * (N // 2), epsilon=1e4)


def also(measurement):
    return pnb.NoisyTables(ONES, 4, pnb.Laplace(1.0), also=(measurement,))


RELEASE = (
    "X", "y", "epsilon_total", "epsilon_per_table", "rho_total", "n_categories", "n_classes",
    "categories", "classes", "weights", "class_table", "unknown", "ledger", "feature_names",
    "neighbours", "contributions", "bins",
)  # fmt: skip
ESTIMATOR = (
    "X", "y", "epsilon", "method", "alpha", "n_categories", "categories", "bins", "classes",
    "class_table", "unknown", "ledger", "random_state",
)  # fmt: skip
ONES = np.ones((2, 2, 2))
PUBLISHED = {
    "from_tables": {
        "tables": {"a": np.ones((2, 2))}, "noise": pnb.Laplace(1.0), "n_records": 4,
        "classes": (0, 1), "class_name": "class", "post_processed": None,
    },
    "load_tables": {"path": "tables.csv", "noise": pnb.Laplace(1.0), "n_records": 4},
    "processed": {
        "counts": ONES, "n_records": 4, "noise": pnb.Laplace(1.0), "clamp": None, "grid": None,
        "threshold": None, "ties": "even", "whole_numbers": None, "mask": None,
    },
    "simulate": {
        "key": jax.random.key(0), "n_records": 3, "n_classes": 2, "noise": None, "prior": None,
    },
    "load_release": {"path": "release.json"},
    "load_study": {"out": "study", "format": "arrow"},
    "run_study": {"spec": "no.toml", "out": "study", "engine": "local", "display": None},
}  # fmt: skip
"""Functions of which every argument is handed the records, and what the others are. What they are
given as published may be in what they return: only errors count.
"""
PLOTS = ("plot_forest", "plot_density", "plot_calibration", "plot_bound", "plot_tables")
TAKERS = {
    **{f"release({name})": lambda x, name=name: release(**{name: x}) for name in RELEASE},
    **{f"fit({name})": lambda x, name=name: fit(**{name: x}) for name in ESTIMATOR},
    "fit(X) with bins": lambda x: fit(x, **BINNED),
    "fit(X) with bins and other": lambda x: fit(x, ["no"] * N, unknown="other", **BINNED),
    "fit(bins of age)": lambda x: fit(**BINNED | {"bins": {"age": x}}),
    "release(X) with bins": lambda x: release(x, **BINNED),
    "release(X) with bins and other": lambda x: (
        release(x, ["no"] * N, unknown="other", **BINNED) and None
    ),
    "release(bins of age)": lambda x: release(**BINNED | {"bins": {"age": x}}),
    "release(outside)": lambda x: release(
        **BINNED | {"bins": {"age": {"edges": [0, 1], "outside": x}}}
    ),
    "release(bounds)": lambda x: release(
        **BINNED | {"bins": {"age": {"bins": NUMBER, "bounds": x}}}
    ),
    "encode with bins": lambda x: release(unknown="other", y=["no"] * N, **BINNED).encode(x),
    "release(X) by number": lambda x: release(x, **SIZES),
    # A domain that is read from the data is in the release, and warned of: only errors count.
    "release(X) read from the data": lambda x: pnb.release(x, CLASSES, epsilon_total=1.0) and None,
    "fit(X) by number": lambda x: fit(x, categories=None, n_categories=2),
    "predict": lambda x: fitted().predict(x),
    "from_release": pnb.PrivateNaiveBayes.from_release,
    "from_release(alpha)": lambda x: pnb.PrivateNaiveBayes.from_release(
        fitted().release_, method="naive", alpha=x
    ),
    "encode": lambda x: fitted().release_.encode(x),
    "NoisyTables(counts)": lambda x: pnb.NoisyTables(x, 4, pnb.Laplace(1.0)) and None,
    "NoisyTables(n_records)": lambda x: pnb.NoisyTables(np.ones((2, 2, 2)), x, pnb.Laplace(1.0)),
    **{
        f"NoisyTables({name})": lambda x, name=name: pnb.NoisyTables(
            ONES, 4, pnb.Laplace(1.0), **{name: x}
        )
        for name in ("upper", "also", "class_totals")
    },
    "Measurement(counts)": lambda x: also(Measurement(x, pnb.Laplace(1.0))),
    "Measurement(noise)": lambda x: also(Measurement(ONES, x)),
    "Measurement(upper)": lambda x: also(Measurement(ONES, pnb.Laplace(1.0), x)),
    "known": pnb.known,
    "combine": pnb.combine,
    "combine with tables": lambda x: pnb.combine(tables(), x),
    "combine with a release": lambda x: pnb.combine(fitted().release_, x),
    "from_tables(a table)": lambda x: pnb.from_tables({"a": x}, noise=pnb.Laplace(1.0)) and None,
    **{
        f"{function}({name})": lambda x, f=function, name=name: (
            getattr(pnb, f)(**PUBLISHED[f] | {name: x}) and None
        )
        for function, given in PUBLISHED.items()
        for name in given
    },
    "Laplace": pnb.Laplace,
    "Laplace.from_budget": pnb.Laplace.from_budget,
    "NoisyTables(noise)": lambda x: pnb.NoisyTables(np.ones((2, 2, 2)), 4, x),
    "NoisyTables(mask)": lambda x: pnb.NoisyTables(np.ones((2, 2, 2)), 4, pnb.Laplace(1.0), x),
    "Prior": lambda x: pnb.Prior(x, x),
    "Prior(n_records)": lambda x: pnb.Prior(np.ones(2), ONES, x),
    "Prior.symmetric": lambda x: pnb.Prior.symmetric(tables(), x),
    "fit_naive": pnb.fit_naive,
    "fit_vb": pnb.fit_vb,
    "fit_exact": pnb.fit_exact,
    "fit_bayes": pnb.fit_bayes,
    "fit_many": pnb.fit_many,
    "fit_prior": pnb.fit_prior,
    "fit_naive(prior)": lambda x: pnb.fit_naive(tables(), x),
    "fit_vb(solver)": lambda x: pnb.fit_vb(tables(), solver=x),
    "fit_vb(start)": lambda x: pnb.fit_vb(tables(), start=x),
    "fit_vb(key)": lambda x: pnb.fit_vb(tables(), key=x),
    "fit_many(method)": lambda x: pnb.fit_many(tables(), x),
    "predict_proba": lambda x: pnb.fit_naive(tables()).predict_proba(x),
    "interval": lambda x: pnb.fit_naive(tables()).class_interval(x),
    "sample": lambda x: pnb.fit_naive(tables()).sample(x, x),
    "replicate": lambda x: pnb.fit_naive(tables()).replicate(x),
    "score": lambda x: fitted().score(x, ["yes"] * N),
    "score(y)": lambda x: fitted().score(PLAIN, x),
    "score(sample_weight)": lambda x: fitted().score(PLAIN, ["yes"] * N, x),
    "save": lambda x: fitted().release_.save(x),
    **{name: getattr(plots, name) for name in PLOTS},
    "PrivacyLedger": lambda x: pnb.PrivacyLedger(x),
    "PrivacyLedger(path)": lambda x: pnb.PrivacyLedger(1.0, path=x),
    "PrivacyLedger(neighbours)": lambda x: pnb.PrivacyLedger(1.0, neighbours=x),
    "PrivacyLedger(contributions)": lambda x: pnb.PrivacyLedger(1.0, contributions=x),
    "charge": lambda x: pnb.PrivacyLedger(1.0).charge(x),
}

COMMAND = ["release", "data.csv", "--epsilon-total", "1", "--domain", "domain.toml", "-o", "r.json"]
COMMANDS = {
    "outside the domain": COMMAND,
    "the data as domain": [*COMMAND[:4], "--domain", "data.csv", "-o", "r.json"],
    "the data as ledger": [*COMMAND, "--ledger", "data.csv"],
    "the data as release": ["fit", "data.csv"],
    "the data as study": ["study", "data.csv", "--out", "out"],
    "no header": ["release", "headless.csv", *COMMAND[2:]],
    "not text": ["release", "bytes.csv", *COMMAND[2:]],
    "not a table": ["release", "ragged.csv", *COMMAND[2:]],
    "an open quote": ["release", "quote.csv", *COMMAND[2:]],
    "bytes as domain": [*COMMAND[:4], "--domain", "bytes.csv", "-o", "r.json"],
    "bytes as release": ["fit", "bytes.csv"],
    "released": [*COMMAND, "--unknown", "other"],
}


def write_inputs(folder):
    table = "name,age,class\n" + "".join(f"{a},{b},no\n" for a, b in ROWS)
    (folder / "data.csv").write_text(table)
    (folder / "headless.csv").write_text(table.partition("\n")[2])
    (folder / "bytes.csv").write_bytes(table.encode() + b"\xff")
    (folder / "ragged.csv").write_text(f"{table}{TEXT}\n")
    (folder / "quote.csv").write_text(f'{table}"{TEXT},\n')
    domain = '[class]\nclass = ["no", "yes"]\n[features]\nname = ["a", "b"]\nage = 2\n'
    (folder / "domain.toml").write_text(domain)


def found_in(text):
    """Which secrets a text, or bytes, holds."""
    if isinstance(text, bytes):
        found = [s for s in SECRETS if s.encode() in text]
        return found + [s for s in (NUMBER,) if s.to_bytes(4, "little") in text]
    return [s for s in SECRETS if s in text]


def told_by(error):
    """Everything an exception can say, and all that it was raised from or during."""
    yield "".join(traceback.format_exception(error))
    yield pickle.dumps(error)
    chain = [error]
    while chain:
        one = chain.pop()
        yield f"{one} {one!r} {one.args} {vars(one)}"
        # What decoders and parsers keep of the text they could not read.
        yield f"{getattr(one, 'object', '')} {getattr(one, 'doc', '')}"
        chain += [e for e in (one.__cause__, one.__context__) if e is not None]


def told(attempt, folder, capsys, caplog):
    """Everything that comes of an attempt, as text or bytes."""
    inputs = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = attempt()
        except Exception as error:
            yield from told_by(error)
        else:
            yield repr(result)
            yield str(result)
            yield pickle.dumps(result)
            with contextlib.suppress(AttributeError):
                yield result._repr_html_()
    yield from (str(w.message) for w in caught)
    yield caplog.text
    yield from capsys.readouterr()
    for path in folder.rglob("*"):
        if path.is_file() and inputs.get(path) != path.read_bytes():
            yield path.read_bytes()


ATTEMPTS = {
    **{
        f"command, {name}": lambda words=words: bool(cli.main(words))
        for name, words in COMMANDS.items()
    },
    "no header, a class that is no column": lambda: release(HEADLESS, "income"),
    "no header, a class from the frame": lambda: pnb.release(
        HEADLESS.iloc[:, :1], HEADLESS.iloc[:, 1], epsilon_total=1.0, **SIZES
    ),
    "no header, weights by name": lambda: pnb.release(
        HEADLESS, CLASSES[1:], epsilon_total=1.0, weights={"name": 1, "age": 1}, **SIZES
    ),
    "no header, some feature names": lambda: release(HEADLESS, feature_names=["name", "age"]),
    "no header, one feature name": lambda: release(HEADLESS, feature_names=["age"]),
    "no header, fitted": lambda: fit(HEADLESS, CLASSES[1:], categories=None, n_categories=2),
    "no header, fitted by name": lambda: fit(HEADLESS, CLASSES[1:]),
    "no header, the class fitted": lambda: fit(FRAME, pandas.Series(CLASSES, name=TEXT)),
    "twice the same name": lambda: release(pandas.concat([HEADLESS, HEADLESS], axis=1), "y"),
    "released": lambda: release(y=["no"] * N, unknown="other"),
    "saved": lambda: release(y=["no"] * N, unknown="other").save("saved.json"),
    "fitted": lambda: fit(y=["no"] * N, unknown="other"),
    "fitted with a ledger": lambda: fit(
        y=["no"] * N, unknown="other", ledger=pnb.PrivacyLedger(2, path="ledger.json")
    ),
    "predicted": lambda: fitted().predict_proba(FRAME),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_no_record_is_told_whatever_is_handed_over(taker, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    for what, records in HANDED.items():
        for text in told(lambda x=records: TAKERS[taker](x), tmp_path, capsys, caplog):
            found = text if isinstance(text, str) else "in a file or a pickle"
            assert not found_in(text), f"given {what}: {found}"


@pytest.mark.parametrize("name", ATTEMPTS)
def test_no_record_is_told(name, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    for text in told(ATTEMPTS[name], tmp_path, capsys, caplog):
        assert not found_in(text), text if isinstance(text, str) else "in a file or a pickle"


MANY = 7919
"""A number of records that is a secret: neighbours by "add-remove" differ in it."""
MANY_ROWS = {"name": ["a", "b"] * (MANY // 2) + ["a"], "age": [0, 1] * (MANY // 2) + [0]}
MANY_FRAME = pandas.DataFrame(MANY_ROWS)
MANY_HANDED = {
    "a frame": MANY_FRAME,
    "a frame on its side": MANY_FRAME.T,
    "a column": MANY_FRAME["name"],
    "a dict of columns": MANY_ROWS,
    "lists": MANY_FRAME.to_numpy(object).tolist(),
    "an array on its side": MANY_FRAME.to_numpy(object).T,
    "a list": MANY_ROWS["name"],
    "an array of three axes": np.zeros((MANY, 2, 1)),
    "a 1-d array": np.zeros(MANY),
    "ragged lists": [*MANY_FRAME.to_numpy(object).tolist(), ["a"]],
    "an Arrow table": pyarrow.table(MANY_ROWS),
    "a text": "a" * MANY,
}
MANY_SHOWN = re.compile(rf"(?<![\w.]){MANY}(?!\w)|7,919")


def release_without_n(**options):
    # Of no category are there so many that a noisy count of it could be MANY.
    y = ["yes", "no"] * (MANY // 2) + ["no"]
    given = {"X": MANY_FRAME, "y": y, "neighbours": "add-remove", **options}
    return release(**given)


@pytest.mark.parametrize("what", MANY_HANDED)
@pytest.mark.parametrize("name", [n for n in RELEASE if n != "neighbours"])
def test_no_number_of_records_is_told(name, what, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    attempt = lambda: release_without_n(**{name: MANY_HANDED[what]})  # noqa: E731
    for text in told(attempt, tmp_path, capsys, caplog):
        assert isinstance(text, bytes) or not MANY_SHOWN.search(text), text


def test_the_number_of_records_is_in_no_release(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    ledger = pnb.PrivacyLedger(1.0, path="ledger.json", neighbours="add-remove")

    def attempt():
        made = release_without_n(ledger=ledger, class_table=True)
        made.save("release.json")
        with pytest.raises(pnb.BudgetExceededError) as caught:
            release_without_n(ledger=ledger)
        return made, ledger, caught.value, pnb.load_release("release.json")

    texts = list(told(attempt, tmp_path, capsys, caplog))
    files = [p.read_text() for p in tmp_path.iterdir()]
    assert len(files) == 3  # the lock too
    for text in (*files, *texts):
        assert isinstance(text, bytes) or not MANY_SHOWN.search(text), text
    public = release_without_n(neighbours="replace")
    assert MANY_SHOWN.search(repr(public))  # so that the search can find it
    public.save("public.json")
    assert MANY_SHOWN.search((tmp_path / "public.json").read_text())
    with pytest.raises(TypeError) as caught:
        release_without_n(neighbours="replace", weights=MANY_FRAME)
    assert MANY_SHOWN.search(str(caught.value))


def _undecoded():
    try:
        (TEXT.encode() + b"\xff").decode()
    except UnicodeDecodeError:
        raise ValueError("not text") from None


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: int(TEXT),
        lambda: {}[NUMBER],
        _undecoded,
        lambda: warnings.warn(f"{FRAME}", stacklevel=1),
        lambda: logging.getLogger("jaxprivnb").debug("%s", NUMBER),
        lambda: print(TEXT),
        lambda: COLUMNS,
        lambda: np.save("kept.npy", np.array([NUMBER])),
    ],
)
def test_the_net_has_no_holes(attempt, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    assert any(map(found_in, told(attempt, tmp_path, capsys, caplog)))
