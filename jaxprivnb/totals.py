"""Do the tables' totals fit N? A tail probability that is uniform where N is right.

Table k's total is N plus the noise of its M_k = I J_k cells, and tables are independent: a law that
is known once N is. For x > 0 and d = 1, 2, ... the sums of M noises have the tails

    Laplace:    P(sum > x b) = sum_{k < M} w_k Q(M - k, x)
    Geometric:  P(sum >= d)  = sum_{k < M} w_k I_q(d, M - k),  q = exp(-1/b)

where Q is the upper incomplete gamma function (a Gamma(M - k) exceeds x), I the incomplete beta
function (a negative binomial of M - k reaches d), and w_k the coefficients of

    W(s) = ((1 - (1 - q) s) / (1 + q - s))^M,  q = 1 for Laplace:

the partial fractions of the sum's generating function at its outer pole. All terms are positive, so
tails come out to a relative accuracy of their own. Gaussian sums are Gaussian.

Two questions are asked of the totals. *All together*: a wrong N shifts every table alike, so their
sum, each in units of its scale, sees it best (tables of unequal scales under geometric noise have
no such closed form: there, tables that share a scale are summed). *One by one*: a table that counts
other records stands out alone. The smallest of g independent tail probabilities p becomes
1 - (1 - p)^g, uniform again; of the two questions' answers, which are not independent, the smaller
becomes 1 - (1 - p)^2, which is uniform or larger.

Runs on the host, in float64: it is a few numbers of a release, looked at once.
"""

import functools
import warnings
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxprivnb import validate
from jaxprivnb.noise import Gaussian, Geometric, Laplace

if TYPE_CHECKING:
    from jaxprivnb.tables import NoisyTables

Known = Laplace | Geometric | Gaussian
"""Noises whose sums have a closed form."""
DOUBTFUL = 1e-3
"""A tail probability from which on a description asks whether N is right."""
INCREDIBLE = 1e-6
"""One at which a fit warns: a right N looks so once in a million releases."""


def p_value(tables: "NoisyTables") -> float | None:
    """The probability, given N, of totals at least as far from it as these; None if unknown.

    Of one dataset whose numbers are known, with Laplace, Geometric or Gaussian noise.
    """
    leaves = jax.tree.leaves(tables)
    known = bool(leaves) and all(hasattr(x, "shape") and validate.is_concrete(x) for x in leaves)
    if not known or tables.batch_shape or not tables.is_plain:
        return None
    if not isinstance(tables.noise, Known):
        return None
    mask = True if tables.mask is None else np.asarray(tables.mask)
    real = np.broadcast_to(mask, tables.counts.shape)
    counts = np.where(real, np.asarray(tables.counts, np.float64), 0)
    scale = np.broadcast_to(np.asarray(tables.noise.value, np.float64), real.shape[1:2])
    if not _valid(counts, real, float(tables.n_records), scale):
        return None
    # What the counts' own rounding may have moved a total by is no evidence against N.
    rounding = np.finfo(tables.counts.dtype).eps / 2 * np.abs(counts).sum((0, 2))
    off = counts.sum((0, 2)) - float(tables.n_records)
    cells = real.sum((0, 2))
    return totals_p_value(tables.noise, off, scale, cells, rounding)


def _valid(counts: np.ndarray, real: np.ndarray, N: float, scale: np.ndarray) -> bool:
    """What `NoisyTables.is_valid` says, on the host: before a fit's checks nothing is compiled."""
    whole = np.isfinite(N) and N >= 0 and N.is_integer()
    scales = np.isfinite(scale) & (scale > 0)
    return bool(whole and np.isfinite(counts).all() and real.any(-1).all() and scales.all())


def totals_p_value(
    noise: Known, off: np.ndarray, scale: np.ndarray, cells: np.ndarray, rounding: np.ndarray
) -> float:
    """Of totals that are `off` N, with scales, numbers of cells M and rounding, all `[K]`."""
    together, alone = questions(noise, off, scale, cells, rounding)
    return together if len(off) == 1 else smallest(np.array([together, alone]))


def questions(
    noise: Known, off: np.ndarray, scale: np.ndarray, cells: np.ndarray, rounding: np.ndarray
) -> tuple[float, float]:
    """The tail probabilities of all totals together, and of the one that stands out most."""
    if not isinstance(noise, Geometric):  # in units of its scale, every table has the same law
        off, rounding, scale = off / scale, rounding / scale, np.ones_like(scale)
    of_sum = lambda g: _both_tails(  # noqa: E731
        noise, max(abs(off[g].sum()) - rounding[g].sum(), 0.0), scale[g][0], int(cells[g].sum())
    )
    together = smallest(np.array([of_sum(scale == b) for b in np.unique(scale)]))
    alone = smallest(np.array([of_sum(np.arange(len(off)) == k) for k in range(len(off))]))
    return together, alone


def smallest(p: np.ndarray) -> float:
    """The smallest of independent tail probabilities, as one: 1 - (1 - min p)^g."""
    p = np.minimum(p, 1)
    return float(-np.expm1(p.size * np.log1p(-p.min()))) if p.min() < 1 else 1.0


def _both_tails(noise: Known, distance: float, b: float, M: int) -> float:
    """P(|sum of M noises| >= distance), in units of the scale where the noise is continuous."""
    from scipy import special

    if isinstance(noise, Gaussian):
        return float(special.erfc(distance / np.sqrt(2 * M)))
    k = np.arange(M)
    if isinstance(noise, Laplace):
        return min(1.0, 2 * float(_weights(1.0, M) @ special.gammaincc(M - k, distance)))
    d = np.ceil(distance)
    if d == 0:
        return 1.0
    q = np.exp(-1 / b)
    return min(1.0, 2 * float(_weights(q, M) @ special.betainc(d, M - k, q)))


@functools.lru_cache(maxsize=256)  # tables of one scale and size share theirs
def _weights(q: float, M: int) -> np.ndarray:
    """w_0, ..., w_(M-1), the coefficients of W.

    W' (1 - (1 - q) s) (1 + q - s) = M q^2 W gives a recurrence for ratios of neighbours.
    """
    inner, outer = 1 - q, 1 + q
    ratio, log_w = np.inf, [-M * np.log1p(q)]
    for k in range(M - 1):
        ratio = (M * q**2 + (1 + inner * outer) * k - inner * max(k - 1, 0) / ratio) / (
            outer * (k + 1)
        )
        if ratio == 0:  # no noise to speak of: q^2 underflows
            log_w.append(-np.inf)
            break
        log_w.append(log_w[-1] + np.log(ratio))
    return np.pad(np.exp(log_w), (0, M - len(log_w)))


def describe(p: float | None, *, only_doubts: bool = False) -> str:
    """Words to end a line with; none where nothing is known, or nothing is doubtful."""
    if p is None or (only_doubts and p >= DOUBTFUL):
        return ""
    question = "; is N right?" if p < DOUBTFUL else ""
    shown = f"p = {p:.2g}" if p >= 1e-300 else "p < 1e-300"
    return f", totals given N: {shown}{question}"


def warn(tables: "NoisyTables", stacklevel: int) -> None:
    """Warn if the totals would almost never look so under a right N."""
    p = p_value(tables)
    if p is not None and p < INCREDIBLE:
        warnings.warn(
            f"n_records does not fit the tables: were it right, their totals would be this far "
            f"from it with probability {max(p, 1e-300):.1g}; check n_records and the noise's "
            f"{tables.noise.parameter}",
            UserWarning,
            stacklevel=stacklevel,
        )
