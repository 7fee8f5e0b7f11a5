"""Read a study's rows back."""

import os
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.storage import StorageError, open_storage
from jaxprivnb.study.chunks import n_chunks
from jaxprivnb.study.folder import PARTS, part_name, part_numbers, read_spec
from jaxprivnb.study.spec import Spec


class Study(NamedTuple):
    """The rows that are stored so far."""

    spec: Spec
    table: Any
    """`pyarrow.Table`, in the order of chunks; columns as in `jaxprivnb.study.schema`."""
    chunks: int
    """How many chunks are stored."""

    @property
    def complete(self) -> bool:
        """Whether every chunk is."""
        return self.chunks == n_chunks(self.spec)


def read_study_rows(out: str | os.PathLike[str]) -> Study:
    """Every stored row, with the spec."""
    pa = require("pyarrow", "study", "reading a study")
    pq = require("pyarrow.parquet", "study", "reading a study")
    storage = open_storage(out)
    spec = read_spec(storage)
    numbers = part_numbers(storage, spec)
    if not numbers:
        raise ValueError(f"{storage.url} holds no finished chunk yet")
    parts = []
    for number in numbers:
        name = f"{PARTS}/{part_name(number)}"
        try:
            parts.append(pq.read_table(pa.BufferReader(storage.read(name))))
        except pa.ArrowInvalid as error:
            raise StorageError(
                f"{storage.url}/{name} is damaged ({error}); delete it and run the study again"
            ) from error
    # Parts of an earlier version may lack a column.
    table = pa.concat_tables(parts, promote_options="default").replace_schema_metadata(None)
    return Study(spec, table, len(numbers))


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
    if format not in ("arrow", "pandas", "xarray"):
        raise ValueError(f"format must be 'arrow', 'pandas' or 'xarray', got {format!r}")
    study = read_study_rows(out)
    if format == "arrow":
        return study.table
    if format == "pandas":
        require("pandas", "pandas", "a pandas table")
        return study.table.to_pandas()
    return _to_xarray(study, require("xarray", "xarray", "an xarray dataset"))


def _to_xarray(study: Study, xarray: Any) -> Any:
    spec, table = study.spec, study.table
    shape = (len(spec.cells), len(spec.arms), *spec.replicates)
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


def method_codes(table: Any, labels: list[str]) -> np.ndarray:
    """The method of each row as an index into `labels`."""
    column = table["method"].combine_chunks()
    order = np.array([labels.index(label) for label in column.dictionary.to_pylist()], np.int64)
    return order[column.indices.to_numpy()]
