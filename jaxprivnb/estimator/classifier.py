"""`PrivateNaiveBayes`: a scikit-learn classifier that sees its data once, through a release."""

import numbers
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb import validate
from jaxprivnb.estimator.lineage import Lineage
from jaxprivnb.exact.learn import LEARNED
from jaxprivnb.extras import require
from jaxprivnb.methods import METHODS, fit_function, names
from jaxprivnb.noise import Neighbours, check_neighbours
from jaxprivnb.privacy.columns import factorise
from jaxprivnb.privacy.domain import (
    MAX_CELLS,
    UNFIT,
    UNKNOWN,
    PrivacyWarning,
    binned,
    infer_column,
    settle_domain,
    warn_inferred,
)
from jaxprivnb.privacy.publish import release as make_release
from jaxprivnb.privacy.record import Release
from jaxprivnb.status import Status
from jaxprivnb.tables import Prior, mask_from_categories, resolve_prior

require("sklearn", "sklearn", "PrivateNaiveBayes")  # for the message; the rest is needed at once
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.validation import check_consistent_length, check_is_fitted  # noqa: E402

from jaxprivnb.estimator.records import (  # noqa: E402
    Training,
    encode_records,
    read_classes,
    read_training,
)

_SIZES = (64, 1024)
"""Records predicted at once: few sizes, so that few programs are compiled."""
_NUMBERS = 4_000_000
"""Numbers held at once while intervals are computed, about."""


class PosteriorDraws(NamedTuple):
    """I.i.d. draws of the parameters; classes as in `classes_`."""

    class_probs: np.ndarray
    """P(Y=i), `[n, n_classes]`."""
    feature_probs: list[np.ndarray]
    """P(X_k=j | Y=i), a feature each: `[n, n_classes, n_categories_[k]]`."""


class PrivateNaiveBayes(ClassifierMixin, BaseEstimator):
    """Naive Bayes for categorical features under differential privacy.

    `fit` releases one noisy class-by-category table a feature (`jaxprivnb.release`), once, for
    the whole of `epsilon`, and forgets the records; everything after is computed from the release.
    The noise is OpenDP's, cryptographic and without a seed: **`random_state` cannot make a fit
    repeatable**, and two fits of the same data differ. It seeds posterior draws only.

    **Every fit spends `epsilon` anew.** Cross-validation with five folds spends it five times on
    most records, a grid search once a candidate and fold. Fits of an estimator and its clones after
    the first give a `PrivacyWarning`, before anything is spent; with a `ledger`, which clones
    share, fits are charged to it instead and refused beyond its limit. To look at a model without
    spending again, hold out test records before fitting, or compare methods and priors on one
    release: `PrivateNaiveBayes.from_release(fitted.release_, method="vb")`.

    Values may be numbers or text, in arrays, pandas or Arrow tables; labels match by value and
    type, and numbers of features with `bins` fall into them, in prediction too. In training, a
    value that is missing or outside the public domain is refused, or counted as "other"
    (`unknown`). In prediction it is "other" where the domain has it, and otherwise missing: the
    record is classified by its other features.

    Args:
        epsilon: pure differential privacy of the whole fit (all tables together), against what
            `neighbours` and `contributions` say. For other budgets use `jaxprivnb.release` and
            `from_release`.
        method: "exact" (calibrated), "vb" (the paper's variational posterior), "naive" (noisy
            counts at face value), or one of your own (`jaxprivnb.register`).
        alpha: Dirichlet concentration of P(Y) and of every P(X_k | Y): one number (1 is uniform,
            1/2 is Jeffreys'), or a `jaxprivnb.Prior` with classes in the order of `classes`
            (sorted if those are not given; of the release in `from_release`), or "learned": one
            number for P(Y) and one for each feature, from the release itself (method "exact").
        n_categories: public numbers of categories, which are then 0, 1, ...: one for all
            features, one a feature, or a mapping by name.
        categories: instead, each feature's public labels: lists in order, or a mapping by name.
        bins: public edges of features that are numbers, by name (`"x0"`, `"x1"`, ... of an array),
            as in `jaxprivnb.release`: `{"age": [0, 18, 65, 120]}`. The other arguments are then of
            the other features.
        classes: the public class labels. What is not given of the domain is read from the data,
            with a `PrivacyWarning`.
        class_table: also release the table of the class, for a share of the budget.
        unknown: "error" refuses training records outside the domain; "other" counts them, and
            missing values, in a category "other" that every feature then has; a mapping, as in
            `{"age": "other"}`, says so of some features.
        neighbours: "replace": a record is replaced by another, and the number of records is public;
            "add-remove": it is there or not, and that number is not told (method "exact" or
            "naive").
        contributions: the largest number of records of one person, all of which neighbours differ
            in; the noise is that many times as wide.
        ledger: a `jaxprivnb.PrivacyLedger` to charge. Clones share it, and processes if it has
            a path.
        random_state: seeds `sample_posterior` and `predict_proba_interval`: int, RandomState
            or None.

    Attributes:
        classes_: class labels, sorted, `[n_classes]`.
        class_log_prior_: log of the posterior mean of P(Y), `[n_classes]`.
        feature_log_prob_: log posterior means of P(X_k | Y), a list of
            `[n_classes, n_categories_[k]]`.
        category_count_: the noisy release, a list of `[n_classes, n_categories_[k]]`; counts may
            be negative.
        class_count_: noisy numbers of records, `[n_classes]`: the class's released table, or else
            the row sums of the features' tables, averaged.
        n_categories_: numbers of categories, `[n_features]`.
        release_: the `Release`, which is all that the fit knows; `release_.save(path)` keeps it.
        guarantee_: the promise of `release_`.
        budget_spent_: epsilon that this fit spent, as proved by OpenDP's maps (rho for a release
            under that budget).
        posterior_: the fitted posterior, classes in the release's order, `release_.classes`.
        n_features_in_: number of features.
        feature_names_in_: their names, if X or the release had any.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        method: str = "exact",
        alpha: Any = 1.0,
        n_categories: Any = None,
        categories: Any = None,
        bins: Any = None,
        classes: Any = None,
        class_table: bool = False,
        unknown: str | Mapping[str, str] = "error",
        neighbours: Neighbours = "replace",
        contributions: int = 1,
        ledger: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.method = method
        self.alpha = alpha
        self.n_categories = n_categories
        self.categories = categories
        self.bins = bins
        self.classes = classes
        self.class_table = class_table
        self.unknown = unknown
        self.neighbours = neighbours
        self.contributions = contributions
        self.ledger = ledger
        self.random_state = random_state

    @classmethod
    def from_release(
        cls,
        release: Release,
        *,
        method: str = "exact",
        alpha: Any = 1.0,
        random_state: Any = None,
    ) -> Self:
        """A fitted estimator from a release alone: it sees no data and spends nothing.

        Args:
            release: from `jaxprivnb.release`, `jaxprivnb.load_release` or `release_`.
            method: as in the class.
            alpha: as in the class.
            random_state: as in the class.
        """
        if not isinstance(release, Release):
            raise TypeError(f"release must be a jaxprivnb.Release, got {type(release).__name__}")
        self = cls(
            epsilon=release.guarantee.epsilon(),
            method=method,
            alpha=alpha,
            categories={n: x for n, x in release.categories.items() if n not in release.bins},
            bins=release.bins or None,
            classes=release.classes,
            class_table=release.class_integers is not None,
            neighbours=release.guarantee.neighbours,
            contributions=release.guarantee.contributions,
            random_state=random_state,
        )
        self._check_parameters()
        self.n_features_in_ = len(release.feature_names)
        if release.feature_names != tuple(f"x{k}" for k in range(self.n_features_in_)):
            self.feature_names_in_ = np.asarray(release.feature_names, object)
        return self._learn(release, _sorted_labels(release.classes))

    def fit(self, X: Any, y: Any) -> Self:
        """Release the tables of X and y, spending `epsilon`, and fit the release.

        Args:
            X: N records of K categorical features, `[N, K]`.
            y: their classes, `[N]`.
        """
        self._check_parameters()
        epsilon = validate.real_number("epsilon", self.epsilon, above=0)
        with validate.sizes_hidden(self.neighbours == "add-remove"):
            made = self._release(X, y, epsilon)
        # Kept before anything else can go wrong: it is paid for.
        self.release_ = made
        return self._learn(made, _sorted_labels(made.classes))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The posterior predictive P(Y=i | x), `[n, n_classes]`.

        With method "exact" it is not the plug-in of the means in `feature_log_prob_`: it also
        averages over what the noise leaves open.
        """
        return self._by_record(X, self._predictive)[0]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log of `predict_proba`, `[n, n_classes]`; -inf where that is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each record, `[n]`."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of records whose class is predicted, each with its weight if there are any.

        Scikit-learn's own would quote y where it cannot be classes.
        """
        truth = read_classes(y).tolist()
        predicted = self.predict(X).tolist()
        check_consistent_length(predicted, truth)
        hits = [bool(found == true) for found, true in zip(predicted, truth, strict=True)]
        if sample_weight is None:
            return float(np.mean(hits))
        weights = np.asarray(validate.as_float_array("sample_weight", sample_weight))
        check_consistent_length(predicted, weights)
        return float(np.average(hits, weights=weights))

    def predict_proba_interval(
        self, X: Any, level: float = 0.95, *, n_draws: int = 1000
    ) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed posterior intervals of P(Y=i | x): (lower, upper), `[n, n_classes]` each.

        P(Y=i | x) is a function of the parameters, p_i prod_k p_ikx_k up to its constant; these are
        its quantiles over posterior draws of them.

        Args:
            X: records, as for `predict_proba`.
            level: of the intervals.
            n_draws: parameter draws; the ends have a Monte Carlo error that falls as its root.
        """
        check_is_fitted(self)
        tail = (1 - validate.real_number("level", level, above=0, below=1)) / 2
        draws = self.sample_posterior(validate.whole_number("n_draws", n_draws, at_least=1))
        tiny = np.finfo(float).tiny  # a draw may underflow to 0, which has no logarithm
        log_class = np.log(np.maximum(draws.class_probs, tiny))
        # A category more, the last, so that -1 finds it: a missing feature says nothing.
        log_feature = [
            np.pad(np.log(np.maximum(p, tiny)), ((0, 0), (0, 0), (0, 1)))
            for p in draws.feature_probs
        ]
        at_once = max(1, _NUMBERS // log_class.size)

        def intervals(codes: np.ndarray) -> list[np.ndarray]:
            found = []
            for start in range(0, len(codes), at_once):
                some = codes[start : start + at_once]
                joint = log_class[:, :, None] + sum(
                    log_p[:, :, some[:, k]] for k, log_p in enumerate(log_feature)
                )  # [draws, I, records]
                joint = np.exp(joint - joint.max(axis=1, keepdims=True))
                joint /= joint.sum(axis=1, keepdims=True)
                found.append(np.quantile(joint, [tail, 1 - tail], axis=0))
            ends = np.concatenate(found, axis=-1)  # [2, I, records]
            return [end.T for end in ends]

        lower, upper = self._by_record(X, intervals)
        return lower, upper

    def sample_posterior(self, n: int = 1) -> PosteriorDraws:
        """n i.i.d. draws of P(Y) and every P(X_k | Y) from the posterior.

        With an int as `random_state` every call gives the same draws.
        """
        check_is_fitted(self)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        p_class, p_feature = self.posterior_.sample(jax.random.key(seed), n)
        p_class, p_feature = np.asarray(p_class, float), np.asarray(p_feature, float)
        order = self._class_order
        return PosteriorDraws(p_class[:, order], self._per_feature(p_feature[:, order]))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # Collections by type and size, since records may have been passed for a parameter.
        usual = type(self)().get_params(deep=False)
        given = self.get_params(deep=False).items()
        changed = [f"{k}={validate.word(v)}" for k, v in given if v is not usual[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = self.unknown != "error"
        tags.non_deterministic = True  # cryptographic noise
        return tags

    def __sklearn_clone__(self) -> Self:
        clone = super().__sklearn_clone__()
        clone._lineage = self._own_lineage().add_clone()
        return clone

    def _own_lineage(self) -> Lineage:
        # Not made in __init__, which scikit-learn wants to set parameters only.
        if not hasattr(self, "_lineage"):
            self._lineage = Lineage()
        return self._lineage

    def _check_parameters(self) -> None:
        """What can be wrong without data, before a budget is spent on it."""
        validate.choice("method", self.method, names("tables"))
        if not isinstance(self.unknown, Mapping):  # `release` knows the names
            validate.choice("unknown", self.unknown, UNKNOWN)
        check_neighbours(self.neighbours, self.contributions)
        if self.method == "vb" and self.neighbours == "add-remove":
            raise ValueError('method "vb" needs the number of records, which add-remove hides')
        if isinstance(self.alpha, str):
            validate.choice("alpha", self.alpha, (LEARNED,))
            if not METHODS[self.method].learns_prior:
                able = ", ".join(repr(m.name) for m in METHODS.values() if m.learns_prior)
                raise ValueError(f"alpha='learned' needs method={able}, got method={self.method!r}")
        elif not isinstance(self.alpha, Prior):
            validate.real_number("alpha", self.alpha, above=0)
        seed = self.random_state
        known = isinstance(seed, numbers.Integral | np.random.RandomState | None)
        if not known and seed is not np.random:  # the module stands for its own state
            raise ValueError(
                "random_state must be a whole number as a seed, a RandomState or None, "
                f"got {validate.describe(seed)}"
            )
        check_random_state(seed)

    def _release(self, X: Any, y: Any, epsilon: float) -> Release:
        """The release of X and y, made and counted."""
        records = read_training(self, X, y)
        domain = self._stated_domain(records)
        self._check_prior(records, domain)
        lineage = self._own_lineage()
        if self.ledger is None and lineage.spends_again():
            warnings.warn(
                "this PrivateNaiveBayes or a clone of it has been fitted before: the fit spends "
                f"another epsilon={epsilon:g}, and where its records are the same people's, the "
                "budgets add up. Cross-validation and grid search do this once a fold and "
                "candidate. Hold out test records and fit once, use from_release, or give a ledger",
                PrivacyWarning,
                stacklevel=3,
            )
        made = make_release(
            records.columns,
            records.class_name,
            epsilon_total=epsilon,
            class_table=self.class_table,
            unknown=self.unknown,
            ledger=self.ledger,
            neighbours=self.neighbours,
            contributions=self.contributions,
            **domain,
        )
        lineage.add_fit()
        return made

    def _stated_domain(self, records: Training) -> dict[str, Any]:
        """The domain as arguments of `release`; what is not stated is read from the records."""
        inferred = []
        bins = binned(self.bins, tuple(records.feature_names))
        rest = [name for name in records.feature_names if name not in bins]
        features: dict[str, Any] = {
            "n_categories": self.n_categories,
            "categories": self.categories,
        }
        if rest and self.n_categories is None and self.categories is None:
            inferred.append("n_categories (or categories)")
            # In order: by name, they would pass for names that the caller has typed.
            features["categories"] = [
                infer_column(name, factorise(records.columns[name], repr(name))).categories
                for name in rest
            ]
        if self.classes is None:
            inferred.append("classes")
            classes = np.unique(records.y)
        else:
            classes = self.classes
        if inferred:
            most = max((len(x.edges) for x in bins.values()), default=0)
            most = max(most, _most_categories(**features))
            cells = len(classes) * len(records.feature_names) * most
            if cells > MAX_CELLS:
                raise ValueError(UNFIT)  # here, since `release` would tell the shape
            warn_inferred(inferred, stacklevel=5)
        return {**features, "bins": bins, "classes": classes}

    def _check_prior(self, records: Training, domain: dict[str, Any]) -> None:
        """A prior of another shape than the tables', before a budget is spent on them."""
        if not isinstance(self.alpha, Prior):
            return
        names, class_name = dict.fromkeys(records.feature_names), records.class_name
        settled = settle_domain(names, class_name, None, **domain, unknown=self.unknown)  # type: ignore[arg-type]
        sizes = (*settled.n_categories, *([1] if self.class_table else []))
        counts = jnp.zeros((len(settled.class_), len(sizes), max(sizes)))
        resolve_prior(self.alpha, counts, mask_from_categories(sizes))

    def _learn(self, release: Release, classes: np.ndarray) -> Self:
        """Fit the release and set every attribute from it."""
        alpha = self.alpha
        given = isinstance(alpha, Prior | str)
        prior = alpha if given else Prior.symmetric(release, alpha)
        posterior = fit_function(self.method)(release, prior)
        status = Status(int(posterior.status))
        if status != Status.SUCCESS:
            warnings.warn(
                f"the {self.method} fit ended with status {status.name}: {status.sentence}",
                ConvergenceWarning,
                stacklevel=3,
            )
        place = {label: i for i, label in enumerate(release.classes)}
        order = np.asarray([place[label] for label in classes.tolist()])
        self.classes_ = classes
        self.release_ = release
        self.posterior_ = posterior
        self.guarantee_ = release.guarantee
        self.budget_spent_ = release.guarantee.total
        self.n_categories_ = np.asarray(release.domain.n_categories)
        self._class_order = order
        self.class_log_prior_ = np.log(np.asarray(posterior.class_mean, float)[order])
        means = np.asarray(posterior.feature_mean, float)[order]
        self.feature_log_prob_ = [np.log(p) for p in self._per_feature(means)]
        noisy = release.integers[order].astype(float)
        self.category_count_ = self._per_feature(noisy)
        if release.class_integers is not None:
            self.class_count_ = release.class_integers[order].astype(float)
        else:
            self.class_count_ = noisy.sum(axis=2).mean(axis=1)
        return self

    def _per_feature(self, x: np.ndarray) -> list[np.ndarray]:
        """`[..., K, J]` as a list over the features of `[..., J_k]`."""
        return [x[..., k, :J] for k, J in enumerate(self.n_categories_)]

    def _by_record(
        self, X: Any, compute: Callable[[np.ndarray], list[np.ndarray]]
    ) -> list[np.ndarray]:
        """Compute arrays `[n, ...]` from the categories of n records, each distinct one once."""
        check_is_fitted(self)
        codes = encode_records(self, X, self.release_)
        if not len(codes):
            raise ValueError("Found array with 0 sample(s): X has no records to predict")
        distinct, which = np.unique(codes, axis=0, return_inverse=True)
        return [found[which.ravel()] for found in compute(distinct)]

    def _predictive(self, codes: np.ndarray) -> list[np.ndarray]:
        size = _SIZES[0] if len(codes) <= _SIZES[0] else _SIZES[1]
        found = []
        for start in range(0, len(codes), size):
            some = codes[start : start + size]
            padded = np.pad(some, ((0, size - len(some)), (0, 0)))
            found.append(np.asarray(self.posterior_.predict_proba(padded), float)[: len(some)])
        p = np.concatenate(found)[:, self._class_order]
        return [p / p.sum(axis=1, keepdims=True)]


def _most_categories(n_categories: Any, categories: Any) -> int:
    """The J of what the user stated, 0 if it makes no sense: `release` says what is wrong."""
    given = n_categories if categories is None else categories
    try:
        each = given.values() if isinstance(given, Mapping) else given
        each = each if isinstance(each, Iterable) else [each]
        return max(map(int if categories is None else len, each), default=0)
    except (TypeError, ValueError):
        return 0


def _sorted_labels(labels: tuple[Any, ...]) -> np.ndarray:
    """Labels in order, as scikit-learn's scorers expect; as they are if they do not compare."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1:
        return np.asarray(sorted(labels))
    array = np.empty(len(labels), object)
    array[:] = labels
    return array
