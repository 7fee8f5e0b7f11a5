"""What the plots are given: posteriors and their looks, names, the truth."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.methods import METHODS, Look, maker
from jaxprivnb.posterior import Posterior
from jaxprivnb.report.names import Names
from jaxprivnb.style import looks

WHAT = ("class", "feature")
"""P(Y), or P(X|Y)."""


class Series(NamedTuple):
    """One posterior of a picture."""

    posterior: Posterior
    look: Look


def as_series(posteriors: Any, *, batched: bool = False) -> list[Series]:
    """The argument `posteriors`, checked: of one shape, with looks.

    Args:
        posteriors: a posterior, or a mapping from label to posterior; a fitted
            `PrivateNaiveBayes` stands for its `posterior_`.
        batched: whether they must have leading axes; if not, they must have none.
    """
    posteriors = _fitted(posteriors)
    if isinstance(posteriors, Posterior):
        posteriors = {maker(posteriors) or "posterior": posteriors}
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise TypeError(
            "posteriors must be a posterior or a mapping from label to posterior, "
            f"got {type(posteriors).__name__}"
        )
    posteriors = {label: _fitted(x) for label, x in posteriors.items()}
    shape = None
    for label, posterior in posteriors.items():
        if not isinstance(posterior, Posterior):
            raise TypeError(
                "posteriors must be a posterior or a mapping from label to posterior, "
                f"got a mapping to {type(posterior).__name__}"
            )
        if bool(posterior.batch_shape) != batched:
            wanted = "a leading axis, as from fit_many" if batched else "one dataset"
            hint = "" if batched else "; take one with posterior.replicate(0)"
            raise ValueError(
                f"posteriors[{label!r}] must have {wanted}; its leading axes are "
                f"{posterior.batch_shape}{hint}"
            )
        shape = shape or posterior.feature_mean.shape
        if posterior.feature_mean.shape != shape:
            raise ValueError(
                f"posteriors must be of the same tables: {label!r} has shape "
                f"{posterior.feature_mean.shape}, an earlier one {shape}"
            )
    domains = {label: p.domain for label, p in posteriors.items() if p.domain is not None}
    for label, domain in domains.items():
        first = next(iter(domains))
        if domain != domains[first]:
            raise ValueError(
                f"posteriors must have the same classes and categories in the same order: those of "
                f"{label!r} and {first!r} differ"
            )
    # A label that is a method's name has its look, any other that of the posterior's type.
    makers = [str(x) if x in METHODS else maker(p) or "" for x, p in posteriors.items()]
    found = looks(zip(map(str, posteriors), makers, strict=True))
    return [Series(p, look) for p, look in zip(posteriors.values(), found, strict=True)]


def _fitted(x: Any) -> Any:
    """The posterior of a fitted estimator; anything else as it is."""
    return getattr(x, "posterior_", x)


def as_truth(truth: Any, like: Posterior) -> tuple[np.ndarray, np.ndarray] | None:
    """The argument `truth`, checked: (P(Y) `[..., I]`, P(X|Y) `[..., I, K, J]`), or None."""
    if truth is None:
        return None
    if hasattr(truth, "class_probs"):
        truth = (truth.class_probs, truth.feature_probs)
    if not isinstance(truth, tuple | list) or len(truth) != 2:
        raise TypeError(
            "truth must be a Simulation or a pair (P(Y) [I], P(X|Y) [I, K, J]), "
            f"got {type(truth).__name__}"
        )
    found = []
    for n, (p, expected) in enumerate(
        zip(truth, (like.class_mean.shape, like.feature_mean.shape), strict=True)
    ):
        array = np.asarray(validate.as_float_array(f"truth[{n}]", p))
        if array.shape != expected:
            raise ValueError(f"truth[{n}] must have shape {expected}, got {array.shape}")
        found.append(array)
    return found[0], found[1]


def names_for(posterior: Posterior, domain: Any) -> Names:
    """The given names, else those that the posterior carries."""
    source = posterior.domain if domain is None else domain
    return Names.of(source, posterior.class_mean.shape[-1], posterior.categories)
