"""Posteriors in one line."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxprivnb import totals, validate
from jaxprivnb._pytree import shapes_repr
from jaxprivnb.report.names import Names, shown
from jaxprivnb.status import Status

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior

_CLASSES = 6
"""Classes whose probabilities are shown."""


def describe_posterior(posterior: "Posterior") -> str:
    """Shape, P(Y), the fit's own figures and status; of a batch, how many have which status.

    Where there are no numbers (tracers, shapes, trees of other things), the fields' shapes.
    """
    if not has_numbers(posterior):
        return shapes_repr(posterior)
    I, (K, J) = posterior.class_mean.shape[-1], posterior.categories.shape[-2:]
    if posterior.domain is not None:
        K = len(posterior.domain.features)  # without the class's own table
    parts = [f"{I} classes x {K} features x {J} categories"]
    if posterior.batch_shape:
        parts.insert(0, f"{'x'.join(map(str, posterior.batch_shape))} datasets")
    else:
        parts.append(_class_probabilities(posterior))
        for name in posterior.headline:
            parts.append(f"{name}={float(getattr(posterior, name)):.6g}")
    if getattr(posterior, "prior_status", None) is not None:
        parts.append(prior_text(posterior))
    parts.append(f"status {_statuses(np.asarray(posterior.status))}{_doubt(posterior)}")
    return f"{type(posterior).__name__}({', '.join(parts)})"


def prior_text(posterior: Any) -> str:
    """What became of the search for a prior."""
    codes = np.asarray(posterior.prior_status)
    if codes.ndim:
        return f"prior learned: {_statuses(codes)}"
    if codes != Status.SUCCESS:
        return f"prior uniform, not learned: {_statuses(codes)}"
    of_class, of_feature = map(np.asarray, posterior.concentrations)
    low, high = of_feature.min(), of_feature.max()
    return f"prior learned: {of_class:.2g} and {low:.2g} to {high:.2g}"


def n_records_p_value(posterior: "Posterior") -> float | None:
    """How well N fits the tables, if the posterior was told, or keeps them."""
    tables = getattr(posterior, "tables", None)
    told = posterior.n_records_p_value
    return told if told is not None or tables is None else tables.n_records_p_value()


def _doubt(posterior: "Posterior") -> str:
    return totals.describe(n_records_p_value(posterior), only_doubts=True)


def has_numbers(posterior: Any) -> bool:
    """Whether the posterior is there to be looked at, rather than traced or only shaped."""
    leaves = jax.tree.leaves(posterior)
    arrays = all(isinstance(x, jax.Array | np.ndarray) and validate.is_concrete(x) for x in leaves)
    return bool(leaves) and arrays and hasattr(posterior, "class_mean")


def _class_probabilities(posterior: "Posterior") -> str:
    mean, sd = np.asarray(posterior.class_mean), np.asarray(posterior.class_sd)
    domain = Names.of(posterior.domain, len(mean), posterior.categories).domain
    pairs = zip(domain.class_.categories, mean, sd, strict=True)
    each = [f"{shown(label)}: {p:.3f} ± {s:.3f}" for label, p, s in pairs]
    if len(each) > _CLASSES:
        each[_CLASSES:] = ["..."]
    return f"P({shown(domain.class_.name)}) = {{{', '.join(each)}}}"


def _statuses(codes: np.ndarray) -> str:
    if codes.ndim == 0:
        return Status(int(codes)).name
    values, counts = np.unique(codes, return_counts=True)
    each = [f"{c} {Status(int(v)).name}" for v, c in zip(values, counts, strict=True)]
    return ", ".join(each) or "none"
