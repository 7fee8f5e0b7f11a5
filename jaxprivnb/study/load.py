"""Read a study's rows back."""

import os
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.storage import check_path, open_storage
from jaxprivnb.study.chunks import cuts, rounds
from jaxprivnb.study.folder import part_numbers, read_part, read_schedule
from jaxprivnb.study.precision import Progress
from jaxprivnb.study.schedule import Schedule, renumbered
from jaxprivnb.study.schema import DRAWS, NAMES, method_codes, row_table
from jaxprivnb.study.spec import Spec, coverage_name


class Study(NamedTuple):
    """The rows that are stored so far."""

    spec: Spec
    table: Any
    """`pyarrow.Table`, in the order of chunks; columns as in `jaxprivnb.study.schema`."""
    chunks: int
    """How many chunks are stored."""
    wanted: int
    """How many there are to be, as far as is known: under `[precision]` a cell may need more."""

    @property
    def complete(self) -> bool:
        """Whether every chunk is."""
        return self.chunks == self.wanted


def read_study_rows(out: str | os.PathLike[str]) -> Study:
    """Every stored row, with the spec."""
    pa = require("pyarrow", "study", "reading a study")
    storage = open_storage(out)
    schedule = read_schedule(storage)
    numbers = part_numbers(storage, schedule)
    if not numbers:
        raise ValueError(f"{storage.url} holds no finished chunk yet")
    parts = {number: read_part(storage, number) for number in numbers}
    progress = Progress(schedule, lambda number, columns: parts[number])
    progress.begin(numbers)
    if len(schedule.specs) == 1:
        # Parts of an earlier version may lack a column.
        table = pa.concat_tables(parts.values(), promote_options="default")
        table = table.replace_schema_metadata(None)
    else:
        table = _as_one(schedule, parts)
    return Study(schedule.spec, table, len(numbers), sum(map(len, progress.wanted.values())))


def _as_one(schedule: Schedule, parts: dict[int, Any]) -> Any:
    """The rows of a study that grew, as if the last spec had been asked for at once."""
    spec = schedule.spec
    labels = [arm.label for arm in spec.arms]
    index = {cell: i for i, cell in enumerate(spec.cells)}
    kinds: dict[bool, list[dict[str, np.ndarray]]] = {False: [], True: []}
    for number, table in parts.items():
        work = schedule.work(number)
        places = np.array([index[cell] for cell in work.spec.cells], np.int32)
        columns = {
            name: table[name].to_numpy()
            for name in table.column_names
            if name not in (*work.spec.columns, "method")
        }
        columns["cell"] = places[columns["cell"]]
        columns |= {"method": method_codes(table, labels).astype(np.int16)}
        columns["replicate"] = renumbered(work.spec, spec, columns["replicate"]).astype(np.int32)
        kinds[work.levels_only].append(columns)
    rows = _stacked(spec, kinds[False])
    key = _key(spec, rows)
    for columns in kinds[True]:
        order = np.argsort(key, kind="stable")
        found = np.minimum(np.searchsorted(key, _key(spec, columns), sorter=order), key.size - 1)
        at, there = order[found], key[order[found]] == _key(spec, columns)
        for name in columns.keys() - set(NAMES):
            rows[name][at[there]] = columns[name][there]
    chunk = np.searchsorted(cuts(rounds(spec), spec.chunk_size), rows["replicate"], side="right")
    order = np.lexsort((rows["replicate"], rows["method"], chunk, rows["cell"]))
    return row_table(spec, {name: column[order] for name, column in rows.items()})


def _stacked(spec: Spec, parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns one below the other, in the order that `spec` gives them; nan, or None for a message,
    where a part has none of a column.
    """
    size = [columns["cell"].size for columns in parts]
    absent = lambda name, n: np.full(n, None if name == "message" else np.nan)  # noqa: E731
    coverage = [coverage_name(what, x) for x in spec.levels for what in ("feature", "class")]
    own = list(dict.fromkeys(name for columns in parts for name in columns))
    at = next((i for i, name in enumerate(own) if name.startswith("coverage_")), len(own))
    rest = [name for name in own[at:] if not name.startswith("coverage_")]
    return {
        name: np.concatenate(
            [
                columns[name] if name in columns else absent(name, n)
                for columns, n in zip(parts, size, strict=True)
            ]
        )
        for name in (*own[:at], *coverage, *rest)
    }


def _key(spec: Spec, rows: dict[str, np.ndarray]) -> np.ndarray:
    """A number for each row that no other has."""
    group = rows["cell"].astype(np.int64) * len(spec.arms) + rows["method"]
    return group * spec.most.total + rows["replicate"]


def load_study(
    out: str | os.PathLike[str], format: Literal["arrow", "pandas", "xarray"] = "arrow"
) -> Any:
    """The rows of a study, finished or not.

    Args:
        out: the study's folder or URL.
        format: "arrow" gives a `pyarrow.Table`, "pandas" a `DataFrame`, both with one row for each
            replicate and method; "xarray" gives a `Dataset` with dimensions (cell, estimator,
            parameter, dataset, noise_draw), NaN where a chunk is missing. (Its `sel` has an
            argument called method already.)
    """
    from jaxprivnb import validate  # with JAX, which rows do not need

    validate.choice("format", format, ("arrow", "pandas", "xarray"))
    study = read_study_rows(check_path("out", out))
    if format == "arrow":
        return study.table
    if format == "pandas":
        require("pandas", "pandas", "a pandas table")
        return study.table.to_pandas()
    return _to_xarray(study, require("xarray", "xarray", "an xarray dataset"))


def _to_xarray(study: Study, xarray: Any) -> Any:
    spec, table = study.spec, study.table
    sizes = list(spec.most)
    if spec.precision is not None:  # no cell may have come so far
        stage = spec.most.stage
        sizes[stage] = table[DRAWS[stage]].to_numpy().max() + 1
    shape = (len(spec.cells), len(spec.arms), *sizes)
    dims = ("cell", "estimator", "parameter", "dataset", "noise_draw")
    labels = [m.label for m in spec.arms]
    index = (
        table["cell"].to_numpy(),
        method_codes(table, labels),
        *(table[name].to_numpy() for name in dims[2:]),
    )
    skip = {*spec.columns, *dims, "method", "replicate", "message"}
    variables = {}
    for name in table.column_names:
        if name not in skip:
            grid = np.full(shape, np.nan)
            grid[index] = table[name].to_numpy()
            variables[name] = (dims, grid)
    coords: dict[str, Any] = {"estimator": labels}
    for name in spec.columns:
        coords[name] = ("cell", [cell.column(name) for cell in spec.cells])
    return xarray.Dataset(variables, coords)
