"""The columns of a study's rows, as an Arrow table.

cell                index into the grid
n_records ... noise the cell's values; also epsilon_total or rho_total, truth, assumed_noise and
                    assumed_scale where the spec states them
method              label of the method
replicate           number within the cell; parameter, dataset, noise_draw name it in the design
se_*                squared error of the posterior mean, averaged over P(X|Y)'s or P(Y)'s cells
coverage_*_L        share of those cells whose L% interval has the truth in it
width_*             mean width of their intervals at the spec's width_level
                    (coverage and width are null where the spec's interval_every skips a replicate)
low_*, high_*       ends of the interval at width_level of the first P(X_k=j|Y=i) or P(Y=i), minus
                    the truth, for pictures
log_evidence        log P(m) (exact) or its lower bound (variational); null for others
iterations, max_decrease   of fits by iterations; null for others
status              0 is success; see `jaxprivnb.Status`
message             what an estimator from outside says of its failure; null for others, and no
                    column where there is none
"""

from typing import Any

import numpy as np

from jaxprivnb.extras import require
from jaxprivnb.study.spec import Spec

DRAWS = ("parameter", "dataset", "noise_draw")
"""What names a replicate in the design, stage by stage."""
NAMES = ("cell", "method", "replicate", *DRAWS)
"""What names a row among what is computed."""
_WHOLE = ("n_records", "n_classes", "n_features")


def row_table(spec: Spec, columns: dict[str, np.ndarray]) -> Any:
    """`columns` as an Arrow table, with the cells' values and the methods' labels spelled out."""
    pa = require("pyarrow", "study", "storing a study")
    cells = spec.cells
    index = columns["cell"]
    out: dict[str, Any] = {"cell": pa.array(index)}
    for name in spec.columns:
        values = [c.column(name) for c in cells]
        if isinstance(values[0], str):
            words, code = np.unique(values, return_inverse=True)
            out[name] = pa.DictionaryArray.from_arrays(
                code[index].astype(np.int16), pa.array(words.tolist())
            )
        else:
            out[name] = pa.array(np.array(values, np.int32 if name in _WHOLE else float)[index])
    labels = pa.array([m.label for m in spec.arms])
    out["method"] = pa.DictionaryArray.from_arrays(columns["method"], labels)
    for name, column in columns.items():
        if name == "message":
            out[name] = pa.array([m or None for m in column], pa.string()).dictionary_encode()
        elif name not in ("cell", "method"):
            missing = np.isnan(column) if column.dtype.kind == "f" else None
            out[name] = pa.array(column, mask=None if name.startswith("se_") else missing)
    return pa.table(out)


def method_codes(table: Any, labels: list[str]) -> np.ndarray:
    """The method of each row as an index into `labels`."""
    column = table["method"].combine_chunks()
    order = np.array([labels.index(label) for label in column.dictionary.to_pylist()], np.int64)
    return order[column.indices.to_numpy()]
