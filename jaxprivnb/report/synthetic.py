"""Records drawn from a posterior, and what several sets of them say together.

Each set has parameters of its own, drawn from the posterior, and its records are drawn from the
model with these: P(Y) for the class, P(X_k | Y) for every feature. Of a set's estimate q with
sampling variance u (that of q as if the set's records had been observed) then

    Var(q) = V + u,    V the posterior variance of what q estimates

so over m sets the variance b of the estimates is about V + u, and their mean is as far from the
truth as sqrt(V + (V + u) / m) says, which is T = (1 + 1/m) b - u: the rule of Raghunathan, Reiter
and Rubin (2003) for fully synthetic data. Rules which let u stand for V do not hold here: those of
Reiter (2003) for partially synthetic data, b / m + u, and of Raab, Nowok and Dibben (2017). They
rest on V being the sampling variance of as many records, and here V has the noise of the release
in it as well.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxprivnb import validate
from jaxprivnb.extras import require
from jaxprivnb.privacy.domain import Column
from jaxprivnb.report.names import Names
from jaxprivnb.report.summary import single

if TYPE_CHECKING:
    from jaxprivnb.posterior import Posterior

MOST = 2**28
"""Values (records times columns) of one set."""
_NODES = 96
_HALVINGS = 60
_LEAST = 1e-250


def synthesize(
    posterior: "Posterior", key: jax.Array, n_records: Any, n_datasets: Any, as_frame: Any
) -> list[Any]:
    """`n_datasets` sets of records, each a data frame or a dict of columns."""
    single("synthesize", posterior)
    key = validate.random_key("key", key)
    n_datasets = validate.whole_number("n_datasets", n_datasets, at_least=1)
    if not isinstance(as_frame, bool):
        raise TypeError(f"as_frame must be True or False, got {validate.describe(as_frame)}")
    pandas = require("pandas", "pandas", "synthesize with as_frame=True") if as_frame else None
    named = Names.of(posterior.domain, posterior.class_mean.shape[-1], posterior.categories)
    p_class, p_feature, sizes = _parameters(posterior, key, n_datasets, n_records)
    words = np.asarray(jax.random.key_data(jax.random.fold_in(key, 1))).ravel()
    rngs = np.random.default_rng(words).spawn(n_datasets)
    sets = []
    for rng, p, q, N in zip(rngs, p_class, p_feature, sizes, strict=True):
        y, x = draw_records(rng, p, q[:, : len(named.cells)], N)
        places = [np.asarray(cells) for cells in named.cells]
        columns = {
            feature.name: _labelled(feature, np.searchsorted(own, x[:, k]), pandas)
            for k, (feature, own) in enumerate(zip(named.domain.features, places, strict=True))
        }
        class_ = named.domain.class_
        columns[class_.name] = _labelled(class_, y, pandas)
        sets.append(columns if pandas is None else pandas.DataFrame(columns))
    return sets


def draw_records(
    rng: np.random.Generator, p_class: np.ndarray, p_feature: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """n records: classes, int `[n]`, and cells of the features, int `[n, K]`.

    Args:
        rng: where chance comes from.
        p_class: P(Y), `[I]`.
        p_feature: P(X_k | Y=i), `[I, K, J]`; cells of probability 0 are not drawn.
        n: number of records.
    """
    class_, feature = _cumulated(p_class), _cumulated(p_feature)
    y = np.searchsorted(class_, rng.random(n), side="right")
    x = np.empty((n, p_feature.shape[1]), np.intp)
    for i in range(len(p_class)):
        (rows,) = np.nonzero(y == i)
        for k in range(x.shape[1]):
            x[rows, k] = np.searchsorted(feature[i, k], rng.random(len(rows)), side="right")
    return y, x


class Combined(NamedTuple):
    """What several synthetic sets say of one quantity, or of an array of them."""

    estimate: np.ndarray
    """The mean of the sets' estimates, `[...]`."""
    variance: np.ndarray
    """T = (1 + 1/m) b - u, `[...]`; u where that is not above 0 (Reiter 2002)."""
    df: np.ndarray
    """(m - 1) (1 - u / ((1 + 1/m) b))^2, the degrees of freedom of a t that stands for the
    posterior (Raghunathan, Reiter and Rubin), `[...]`; m - 1 where T is not above 0."""
    lower: np.ndarray
    """Lower end of the interval, `[...]`."""
    upper: np.ndarray
    """Upper end, `[...]`."""


def combine_synthetic(estimates: Any, variances: Any, level: float = 0.95) -> Combined:
    """One estimate and interval from those of several synthetic sets of `posterior.synthesize`.

    With m sets, b the variance of their estimates (over m - 1) and u the mean of their variances,
    the truth is normal around the estimates' mean with variance (1 + 1/m) B - u, where B, the
    variance that b estimates, is not known: b (m - 1) / B is chi-square of m - 1 degrees of
    freedom, and B > u. The interval integrates over that; it is the posterior which Raghunathan,
    Reiter and Rubin (2003) derive before they put a t in its place. That t, of scale sqrt(T) and
    `df`, has next to no degrees of freedom where b is not well above u, and its interval is then
    useless; where b is far above u the two agree.

    The estimate should be about normal in the synthetic sets. Five sets give valid intervals, 20
    give them at little more than their least width.

    Args:
        estimates: of every set, `[m, ...]`, m at least 2.
        variances: their squared standard errors, as if each set were real, `[m, ...]`.
        level: of the interval.
    """
    from scipy import stats

    q, within = (
        np.asarray(validate.as_float_array(name, x), np.float64)
        for name, x in (("estimates", estimates), ("variances", variances))
    )
    level = validate.real_number("level", level, above=0, below=1)
    if q.ndim < 1 or q.shape != within.shape:
        raise ValueError(
            "estimates and variances must have one shape [m, ...], the sets first, "
            f"got {q.shape} and {within.shape}"
        )
    m = len(q)
    if m < 2:
        raise ValueError(
            "estimates must be of at least 2 sets: one set does not say how much another would "
            "differ (synthesize(..., n_datasets=5))"
        )
    if not np.isfinite(q).all() or not (np.isfinite(within) & (within >= 0)).all():
        raise ValueError("estimates must be finite, and variances finite and at least 0")
    mean, b, u = q.mean(0), q.var(0, ddof=1), within.mean(0)
    T = (1 + 1 / m) * b - u
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(T > 0, (m - 1) * np.square(1 - u / ((1 + 1 / m) * b)), m - 1)
        most = np.where(u > 0, (m - 1) * b / u, np.inf)  # of the chi-square, since B > u
        # Gauss and Legendre's rule for its distribution function, denser towards 0.
        points, weights = np.polynomial.legendre.leggauss(_NODES)
        s, weights = (points + 1) / 2, weights * (points + 1) / 2
        s, weights = (x.reshape(-1, *(1,) * b.ndim) for x in (s, weights))
        mass = stats.chi2.cdf(most, m - 1)
        chi2 = stats.chi2.ppf(s * s * mass, m - 1)
        # Where that is no number any more, its distribution function is a power of chi2 / most.
        power = np.maximum((m - 1 - most) / 2, 1e-9)
        share = np.where(mass > _LEAST, chi2 / most, s ** (2 / power))
        B = np.where(u > 0, u / share, (m - 1) * b / chi2)
    scale = np.sqrt(np.maximum((1 + 1 / m) * B - u, 0))
    reach = _reach(scale, weights, level)
    return Combined(mean, np.where(T > 0, T, u), df, mean - reach, mean + reach)


def _reach(scale: np.ndarray, weights: np.ndarray, level: float) -> np.ndarray:
    """h with P(|x| < h) = level, of a mixture of centred normals `[nodes, ...]`: by bisection."""
    from scipy import special

    z = special.ndtri((1 + level) / 2)
    low, high = z * scale.min(0), z * scale.max(0)
    safe = np.where(scale > 0, scale, 1)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = np.where(scale > 0, special.erf(middle / (safe * np.sqrt(2))), 1)
        short = (weights * inside).sum(0) < level
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _parameters(
    posterior: "Posterior", key: jax.Array, n: int, n_records: Any
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """P(Y) `[n, I]` and P(X|Y) `[n, I, K, J]`, drawn, and every set's number of records."""
    if n_records is None:
        *drawn, sizes = posterior._sample_with_sizes(key, n)
    else:
        sizes = [validate.whole_number("n_records", n_records, at_least=1)] * n
        drawn = list(posterior.sample(key, n))
    p_class, p_feature = (np.asarray(p, np.float64) for p in drawn)
    sums = np.append(p_class.sum(-1).ravel(), p_feature.sum(-1).ravel())
    if not (np.abs(sums - 1) < 1e-3).all():  # NaN is not below either
        raise ValueError("the posterior has no numbers to draw from: look at its status")
    if max(sizes) * (p_feature.shape[2] + 1) > MOST:
        raise ValueError(
            f"n_records times the number of columns must be at most {MOST}: draw more sets of fewer"
        )
    return p_class, p_feature, sizes


def _cumulated(p: np.ndarray) -> np.ndarray:
    """Cumulated probabilities over the last axis, which end in 1 exactly."""
    upto = np.cumsum(p, axis=-1)
    return upto / upto[..., -1:]


def _labelled(column: Column, codes: np.ndarray, pandas: Any) -> Any:
    """The labels of codes: numbers as an array, others as a pandas categorical of the domain."""
    labels = column.categories
    if len({type(label) for label in labels}) == 1 and not isinstance(labels[0], str):
        return np.asarray(labels)[codes]
    if pandas is None:
        array = np.empty(len(labels), object)
        array[:] = labels
        return array[codes]
    ordered = column.bins is not None and labels == column.bins.labels
    return pandas.Categorical.from_codes(codes, categories=list(labels), ordered=ordered)
