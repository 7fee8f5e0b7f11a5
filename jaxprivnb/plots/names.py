"""What is drawn: which posteriors, which parameters, what they are called, what is true."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.posterior import Posterior
from jaxprivnb.privacy.domain import Domain
from jaxprivnb.report.names import name_cells, shown
from jaxprivnb.style import METHODS, Style, styles

WHAT = ("class", "feature")
"""P(Y), or P(X|Y)."""


class Names(NamedTuple):
    """Labels of classes, features and categories, and where they stand in the arrays.

    The class's own table, which a release may hold after the features', is no feature.
    """

    domain: Domain
    cells: tuple[tuple[int, ...], ...]
    """The cells of each feature's categories."""

    @classmethod
    def of(cls, source: Any, mask: Any, n_classes: int) -> "Names":
        """From a `Domain` or what has one; numbers where there is none.

        Args:
            source: what the user passed as `domain`.
            mask: real cells, bool `[K, J]`.
            n_classes: I.
        """
        domain = getattr(source, "domain", source)
        if not isinstance(domain, Domain | None):
            raise TypeError(f"domain must be a Release, a Domain or None, got {source!r}")
        named = name_cells(domain, n_classes, mask)
        return cls(named.domain, tuple(tuple(cells.tolist()) for cells in named.cells))

    def class_index(self, label: Any) -> int:
        """The index of a class given by label or position."""
        return _index("class_", label, self.domain.class_.categories)

    def feature_index(self, label: Any) -> int:
        """The index of a feature given by name or position."""
        return _index("feature", label, [f.name for f in self.domain.features])

    def category_index(self, k: int, label: Any) -> int:
        """The cell of a category of feature k, given by label or position."""
        feature = self.domain.features[k]
        return self.cells[k][_index(f"category of {feature.name}", label, feature.categories)]

    def event(self, k: int, j: int) -> str:
        """X_k = j in words, for the category in cell j."""
        feature = self.domain.features[k]
        return shown(f"{feature.name} = {feature.categories[self.cells[k].index(j)]}")

    def class_event(self, i: int) -> str:
        """Y = i in words."""
        return shown(f"{self.domain.class_.name} = {self.domain.class_.categories[i]}")

    def parameter(self, i: int, k: int | None = None, j: int | None = None) -> str:
        """How P(Y=i), or P(X_k=j | Y=i), is written."""
        if k is None or j is None:
            return f"P({self.class_event(i)})"
        return f"P({self.event(k, j)} | {self.class_event(i)})"


def _index(what: str, label: Any, known: Sequence[Any]) -> int:
    """Labels come before positions: the class called 2 need not be class number 2."""
    if label in known:
        return known.index(label)
    position = isinstance(label, int | np.integer) and not any(isinstance(x, int) for x in known)
    if position and 0 <= label < len(known):
        return int(label)
    listed = ", ".join(map(repr, known[:12])) + (", ..." if len(known) > 12 else "")
    raise ValueError(f"{what} must be one of {listed}; got {label!r}")


class Series(NamedTuple):
    """One posterior of a picture."""

    posterior: Posterior
    style: Style


def as_series(posteriors: Any, *, batched: bool = False) -> list[Series]:
    """The argument `posteriors`, checked: of one shape, with looks.

    Args:
        posteriors: a posterior, or a mapping from label to posterior; a fitted
            `PrivateNaiveBayes` stands for its `posterior_`.
        batched: whether they must have leading axes; if not, they must have none.
    """
    posteriors = _fitted(posteriors)
    if isinstance(posteriors, Posterior):
        posteriors = {_method(posteriors): posteriors}
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
                f"posteriors[{label!r}] must be what a fit returns, got {type(posterior).__name__}"
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
    looks = styles((str(label), _known(str(label), p)) for label, p in posteriors.items())
    return [Series(p, look) for p, look in zip(posteriors.values(), looks, strict=True)]


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


def _method(posterior: Posterior) -> str:
    """What made a posterior that has no label."""
    if hasattr(posterior, "log_evidence"):
        return "exact"
    return "vb" if hasattr(posterior, "elbo") else "posterior"


def _known(label: str, posterior: Posterior) -> str:
    """The method whose colour a label takes: its own name, else that of its kind of posterior."""
    return label if label in METHODS else _method(posterior)


def names_for(posterior: Posterior, domain: Any) -> Names:
    """The given names, else those that the posterior carries."""
    source = posterior.domain if domain is None else domain
    return Names.of(source, posterior.mask, posterior.class_mean.shape[-1])
