"""Posterior draws as ArviZ keeps them: labelled arrays with named dimensions.

ArviZ 0.x holds them in its `InferenceData`, ArviZ 1.x in xarray's `DataTree`; the dataset inside is
the same, by the ArviZ schema (https://python.arviz.org/en/latest/schema/schema.html).
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxprivnb import validate
from jaxprivnb._version import __version__
from jaxprivnb.extras import require
from jaxprivnb.report.names import Names
from jaxprivnb.report.summary import single

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior

CLASS, FEATURE, CATEGORY = "class", "feature", "category"


def to_arviz(
    posterior: "Posterior", key: jax.Array, n: int, *, chains: int, by_feature: bool
) -> Any:
    """`chains` times n draws of one dataset's posterior, as ArviZ's own container."""
    single("to_arviz", posterior)
    n = validate.whole_number("n", n, at_least=1)
    chains = validate.whole_number("chains", chains, at_least=1)
    arviz = require("arviz", "arviz", "to_arviz")
    dataset = draws_dataset(posterior, key, n, chains=chains, by_feature=by_feature)
    if arviz.__version__.startswith("0."):
        return arviz.InferenceData(posterior=dataset)
    return require("xarray", "arviz", "to_arviz").DataTree.from_dict({"posterior": dataset})


def draws_dataset(
    posterior: "Posterior", key: jax.Array, n: int, *, chains: int, by_feature: bool
) -> Any:
    """The draws as an `xarray.Dataset` with coordinates."""
    xarray = require("xarray", "arviz", "to_arviz")
    p_class, p_feature = (
        np.asarray(p).reshape(chains, n, *p.shape[1:]) for p in posterior.sample(key, chains * n)
    )
    named = Names.of(posterior.domain, p_class.shape[-1], posterior.categories)
    coords: dict[str, Any] = {
        "chain": np.arange(chains),
        "draw": np.arange(n),
        CLASS: _labels(named.domain.class_.categories),
    }
    variables: dict[str, Any] = {"p_class": (("chain", "draw", CLASS), p_class)}
    if by_feature:
        for k, (feature, cells) in enumerate(zip(named.domain.features, named.cells, strict=True)):
            dimension = f"{feature.name}_{CATEGORY}"
            coords[dimension] = _labels(feature.categories)
            variables[f"p_feature_{feature.name}"] = (
                ("chain", "draw", CLASS, dimension),
                p_feature[:, :, :, k, cells],
            )
    else:
        real = np.asarray(posterior.categories)
        K, J = len(named.domain.features), real.shape[-1]
        cube = np.where(real, p_feature, np.nan)[:, :, :, :K]
        variables["p_feature"] = (("chain", "draw", CLASS, FEATURE, CATEGORY), cube)
        coords[FEATURE] = [feature.name for feature in named.domain.features]
        coords |= _category_coordinates(named, J)
    attributes = {
        "inference_library": "jaxprivnb",
        "inference_library_version": __version__,
        "posterior": type(posterior).__name__,
        "draws": "independent",
    }
    return xarray.Dataset(variables, coords=coords, attrs=attributes)


def _category_coordinates(named: Names, J: int) -> dict[str, Any]:
    """The categories' labels where features share them, otherwise their places.

    `category_label` (feature, category) has every feature's own labels as text; "" where masked.
    """
    labels = np.full((len(named.cells), J), "", dtype=object)
    for k, (feature, cells) in enumerate(zip(named.domain.features, named.cells, strict=True)):
        labels[k, cells] = [str(label) for label in feature.categories]
    full = {f.categories for f in named.domain.features if len(f) == J}
    prefixes = all(
        f.categories == labels_[: len(f)] for labels_ in full for f in named.domain.features
    )
    shared = len(full) == 1 and prefixes
    category = _labels(next(iter(full))) if shared else np.arange(J)
    return {CATEGORY: category, "category_label": ((FEATURE, CATEGORY), labels.astype(str))}


def _labels(labels: Any) -> Any:
    """Labels of one type as they are; of several, as text, which coordinates can hold and sort."""
    kinds = {type(label) for label in labels}
    return list(labels) if len(kinds) == 1 else [str(label) for label in labels]
