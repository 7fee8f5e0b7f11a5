"""The referee: one dataset's exact posterior by plain sums over counts, in NumPy and SciPy alone.

Nothing here comes from the package. Sums run over all of 0..N, in logs, and have positive terms
only, so nothing cancels and nothing underflows. The rounding of a log counts absolutely, and in
tables that contradict each other logs are large: so they are computed in NumPy's long double and
kept as two doubles, whole eighths, which add up exactly, and a rest below 1/8. Counts far outside
0..N tilt a cell's weights by slope * l; counts of a block add up to n, and class counts to N, so
the largest slope comes out of every sum before anything is rounded.

Symbols follow `docs`: counts m `[I, K, J]`, N records, class concentrations a `[I]`, feature
concentrations alpha `[I, K, J]` with row sums A, mask bool `[K, J]`.
"""

import dataclasses
import functools
import math

import numpy as np
from scipy.special import betainc, betaincc, betaln

LONG = np.longdouble
NEGLIGIBLE = 1e-18
"""Components of a mixture that weigh less than this are left out of its CDF."""
_AT_ONCE = 2**18
"""Numbers in one table of pairs."""


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The law of one parameter: Beta(a, b) with probability p; three vectors."""

    p: np.ndarray
    a: np.ndarray
    b: np.ndarray
    """0 for a probability that is 1."""

    def cdf(self, x):
        """P(parameter <= x)."""
        return self._tail(betainc, x, x >= 1)

    def sf(self, x):
        """P(parameter > x), to a relative accuracy of its own."""
        return self._tail(betaincc, x, x < 1)

    def _tail(self, f, x, of_a_point):
        proper = self.b > 0
        inside = f(self.a, np.where(proper, self.b, 1), min(max(x, 0.0), 1.0))
        return float(self.p @ np.where(proper, inside, of_a_point))

    def cdf_at_log(self, log_x):
        """P(log parameter <= log_x), also where exp(log_x) is 0 in floating point."""
        if log_x > -600:
            return self.cdf(math.exp(log_x))
        # I_x(a, b) = x^a / (a B(a, b)) (1 + O(x)).
        proper = self.b > 0
        log_i = self.a * log_x - np.log(self.a) - betaln(self.a, np.where(proper, self.b, 1))
        return float(self.p @ np.where(proper, np.exp(np.minimum(log_i, 0)), 0))

    def log_quantile(self, level):
        """Log of the level-quantile, for levels up to 1/2, by bisection through `cdf_at_log`."""
        low, high = -1.0, 0.0
        while self.cdf_at_log(low) > level:
            low *= 4
        while high - low > 1e-14 * max(1.0, -low):
            middle = (low + high) / 2
            low, high = (low, middle) if self.cdf_at_log(middle) > level else (middle, high)
        return (low + high) / 2

    def quantile(self, level):
        """The level-quantile: through the nearer tail, and in log x where it is small."""
        if level <= 0.5:
            log_x = self.log_quantile(level)
            if log_x < math.log(0.5):
                return math.exp(log_x)
        tail, low, high = 1 - level, 0.0, 1.0
        for _ in range(1100):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (middle, high) if self.sf(middle) > tail else (low, middle)
        return (low + high) / 2

    def holds(self, x, level, tolerance, tiny):
        """Whether x is the level-quantile to a relative `tolerance`, of x or of its nearer tail.

        Numbers up to `tiny` are one and the same: they underflow.
        """
        upper = level > 0.5
        beyond, tail = (self.sf, 1 - level) if upper else (self.cdf, level)
        if abs(beyond(x) - tail) <= tolerance * tail:
            return True
        low, high = beyond(x * (1 - tolerance) - tiny), beyond(x * (1 + tolerance) + tiny)
        return high <= tail <= low if upper else low <= tail <= high


class Reference:
    """The exact posterior of one dataset; arrays are computed when they are asked for.

    Args:
        counts: m `[I, K, J]`.
        n_records: N.
        noise: "laplace", "geometric" or "gaussian".
        scale: b or sigma, a scalar or `[K]`.
        prior_class: a `[I]`; 1 if None.
        prior_feature: alpha `[I, K, J]`; 1 if None.
        mask: bool `[K, J]`; all real if None.
    """

    def __init__(
        self, counts, n_records, noise, scale, prior_class=None, prior_feature=None, mask=None
    ):
        counts = np.asarray(counts, np.float64)
        self.I, self.K, self.J = counts.shape
        self.N = int(n_records)
        self.mask = np.ones((self.K, self.J), bool) if mask is None else np.asarray(mask, bool)
        a = np.ones(self.I) if prior_class is None else np.asarray(prior_class, np.float64)
        alpha = np.ones(counts.shape) if prior_feature is None else prior_feature
        self.a, self.alpha = a, np.where(self.mask, np.asarray(alpha, np.float64), 0.0)
        self.A = self.alpha.sum(-1)
        self.n = np.arange(self.N + 1)
        b = np.broadcast_to(np.asarray(scale, np.float64), (self.K,))[:, None]
        counts = np.where(self.mask, counts, 0.0)
        self._weights = _noise_weights(noise, counts.astype(LONG), b.astype(LONG), self.n)
        self._upward()

    @classmethod
    def of(cls, tables, prior=None):
        """Of one `NoisyTables` and `Prior`, of which only the numbers are read."""
        return cls(
            tables.counts,
            tables.n_records,
            type(tables.noise).__name__.lower(),
            getattr(tables.noise, tables.noise.parameter),
            None if prior is None else prior.class_,
            None if prior is None else prior.feature,
            tables.mask,
        )

    def _upward(self):
        """From the cells to log P(m), keeping what the other cells of each block say."""
        nearest, peak, slope, rest = self._weights
        I, K, J, N = self.I, self.K, self.J, self.N
        self._w = np.zeros((2, I, K, J, N + 1))
        self._others = np.zeros((2, I, K, J, N + 1))
        log_h = _log_rising(self.a, N)
        theta = np.zeros(I, LONG)
        for k in range(K):
            cells = np.flatnonzero(self.mask[k])
            most = slope[:, k, cells].max(-1)
            theta += most
            tilt = (slope[:, k, cells] - most[:, None])[..., None] * self.n
            w = _split(_log_rising(self.alpha[:, k, cells], N) + tilt + rest[:, k, cells])
            before, after = [None], [None]
            for j in range(len(cells)):
                before.append(_join(before[-1], w[:, :, j]))
                after.append(_join(w[:, :, -1 - j], after[-1]))
            log_h = log_h + _whole(before[-1]) - _log_rising(self.A[:, k], N)
            for j, cell in enumerate(cells):
                others = _join(before[j], after[len(cells) - 1 - j])
                self._w[:, :, k, cell] = w[:, :, j]
                self._others[:, :, k, cell] = _unit(I, N) if others is None else others
        log_h = log_h + (theta - theta.max())[:, None] * self.n
        h = _split(log_h)
        log_q = np.empty((2, I, N + 1))
        for i in range(I):
            rest_i = functools.reduce(_join, [h[:, [j]] for j in range(I) if j != i], None)
            log_q[:, i] = h[:, i] + (_unit(1, N) if rest_i is None else rest_i)[:, 0, ::-1]
        self.class_count_pmf, total = _normalise(log_q)
        cells = self.mask[None] & np.ones((I, 1, 1), bool)
        constant = (peak - slope * nearest)[cells].sum() + N * theta.max()
        self.log_evidence = float(_whole(total)[0] + constant - _log_rising(self.a.sum(), N)[-1])

    def joint(self, k, j):
        """P(n_i = n, n_ikj = l | m), `[I, n, l]`."""
        return self._given(k, j) * self.class_count_pmf[..., None]

    def _given(self, k, j):
        """P(n_ikj = l | n_i = n, m), `[I, n, l]`."""
        return _normalise(_pairs(self._w[:, :, k, j], self._others[:, :, k, j]))[0]

    @functools.cached_property
    def _features(self):
        """(mean, sd `[I, K, J]`, count pmf `[I, K, J, l]`, E[p_ikj | n_i = n] `[I, K, J, n]`)."""
        shape = (self.I, self.K, self.J)
        mean, sd = np.zeros(shape), np.zeros(shape)
        law, given_n = np.zeros((*shape, self.N + 1)), np.zeros((*shape, self.N + 1))
        n, l = self.n[:, None], self.n
        for k, j in np.argwhere(self.mask):
            given = self._given(k, j)
            joint = given * self.class_count_pmf[..., None]
            law[:, k, j] = joint.sum(1)
            for i in range(self.I):
                alpha, rest = self.alpha[i, k, j], _but(self.alpha[i, k], j)
                p = (l + alpha) / (n + alpha + rest)
                q = (np.maximum(n - l, 0) + rest) / (n + alpha + rest)
                mean[i, k, j], sd[i, k, j] = _moments(joint[i], p, q, n + alpha + rest)
                given_n[i, k, j] = (given[i] * p).sum(-1)
        return mean, sd, law, given_n

    @functools.cached_property
    def _classes(self):
        out = []
        for i, pmf in enumerate(self.class_count_pmf):
            rest = _but(self.a, i)
            total = self.N + self.a[i] + rest
            p, q = (self.n + self.a[i]) / total, (self.N - self.n + rest) / total
            out.append(_moments(pmf, p, q, total))
        return np.array(out)

    class_mean = property(lambda self: self._classes[:, 0])
    class_sd = property(lambda self: self._classes[:, 1])
    feature_mean = property(lambda self: self._features[0])
    feature_sd = property(lambda self: self._features[1])
    count_pmf = property(lambda self: self._features[2], doc="P(n_ikj = l | m), `[I, K, J, l]`.")

    def predict_proba(self, x):
        """P(Y=i | x, m), `[I]`, for one record x int `[K]`; -1 is missing."""
        joint = self.class_count_pmf * (self.n + self.a[:, None])
        for k, category in enumerate(x):
            if category >= 0:
                joint = joint * self._features[3][:, k, category]
        joint = joint.sum(-1)
        return joint / joint.sum()

    def class_mixture(self, i):
        """The law of P(Y=i)."""
        return _mixture(
            self.class_count_pmf[i], self.n + self.a[i], self.N - self.n + _but(self.a, i)
        )

    def feature_mixture(self, i, k, j):
        """The law of P(X_k=j | Y=i)."""
        n, l = np.broadcast_arrays(self.n[:, None], self.n)
        inside = l <= n
        joint = self.joint(k, j)[i][inside]
        rest = _but(self.alpha[i, k], j)
        return _mixture(joint, l[inside] + self.alpha[i, k, j], (n - l)[inside] + rest)


def _mixture(p, a, b):
    keep = p > NEGLIGIBLE
    return Mixture(p[keep] / p[keep].sum(), a[keep], b[keep])


def _but(x, j):
    """The sum of all entries but one, without a difference."""
    return x[:j].sum() + x[j + 1 :].sum()


def _moments(weight, p, q, total):
    """(mean, sd) of a mixture of Betas with means p = 1 - q and concentrations `total`.

    Deviations are taken of the smaller of p and 1 - p, which has the digits.
    """
    mean, complement = (weight * p).sum(), (weight * q).sum()
    off = p - mean if mean <= 0.5 else q - complement
    return mean, math.sqrt((weight * (off * off + p * q / (total + 1))).sum())


def _noise_weights(noise, m, b, n):
    """log f(m - l) = peak + slope (l - nearest) + rest(l), for l = n.

    `nearest` is the count of 0..N next to m and `peak` the log density there; the slope is that of
    a count m outside of 0..N, and 0 inside.
    """
    N = n[-1]
    nearest = np.clip(np.rint(m), 0, N)
    below, above = m < 0, m > N
    outside = np.where(below, m, np.where(above, m - N, 0))
    off = m - nearest
    steps = np.abs(n - nearest[..., None])
    if noise == "gaussian":
        peak = -0.5 * (off / b) ** 2 - np.log(b) - 0.5 * np.log(2 * np.pi * LONG(1))
        slope = outside / b**2
        # (m - l)^2 - (m - nearest)^2 = (nearest - l) (2 (m - nearest) + (nearest - l))
        back = nearest[..., None] - n
        inner = np.where(outside == 0, off, 0)[..., None]
        rest = -0.5 * back * (2 * inner + back) / b[..., None] ** 2
        return nearest, peak, slope, rest
    if noise == "laplace":
        peak = -np.log(2 * b)
    elif noise == "geometric":
        peak = np.log(np.tanh(1 / (2 * b)))
    else:
        raise ValueError(f"noise must be laplace, geometric or gaussian, got {noise!r}")
    slope = np.sign(outside) / b
    far = np.abs(m[..., None] - n) - np.abs(off)[..., None]
    rest = np.where((outside == 0)[..., None], -far / b[..., None], 0 * steps)
    return nearest, peak - np.abs(off) / b, slope, rest


def _log_rising(a, N):
    """log (a)_l / l! for l = 0..N, `[..., N + 1]`."""
    a = np.asarray(a, LONG)[..., None]
    l = np.arange(1, N + 1)
    steps = np.log((a + (l - 1)) / l)
    return np.concatenate([np.zeros_like(a), np.cumsum(steps, -1)], -1)


def _split(x):
    """A log as (whole eighths, the rest), `[2, ...]`: sums of the first are exact."""
    eighths = np.rint(8 * x) / 8
    return np.stack([eighths, x - eighths]).astype(np.float64)


def _whole(x):
    """The long double of a `_split`."""
    return x[0].astype(LONG) + x[1]


def _unit(rows, N):
    """log of the convolution's unit, `[2, rows, N + 1]`."""
    unit = np.zeros((2, rows, N + 1))
    unit[0, :, 1:] = -np.inf
    return unit


def _pairs(u, v):
    """u(l) + v(n - l), `[2, ..., n, l]`; -inf for l > n."""
    N = u.shape[-1] - 1
    nothing = np.zeros((*v.shape[:-1], N))
    nothing[0] = -np.inf
    padded = np.concatenate([v[..., ::-1], nothing], -1)
    shifted = np.lib.stride_tricks.sliding_window_view(padded, N + 1, axis=-1)
    return u[..., None, :] + shifted[..., ::-1, :]


def _normalise(x):
    """(exp(x) over its sum on the last axis, the log of that sum)."""
    most = x[0].max(-1)
    each = np.exp((x[0] - most[..., None]) + x[1])
    total = each.sum(-1)
    log_total = np.log(total)
    eighths = np.rint(8 * log_total) / 8
    return each / total[..., None], np.stack([most + eighths, log_total - eighths])


def _join(u, v):
    """log of the convolution of exp(u) and exp(v), all `[2, rows, N + 1]`, at 0..N; None is one."""
    if u is None or v is None:
        return v if u is None else u
    rows = max(1, _AT_ONCE // u.shape[-1] ** 2)
    pieces = [slice(r, r + rows) for r in range(0, u.shape[1], rows)]
    return np.concatenate([_normalise(_pairs(u[:, r], v[:, r]))[1] for r in pieces], 1)
