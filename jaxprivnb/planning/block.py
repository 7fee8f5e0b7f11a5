"""The posterior of a class's counts in one table, given how many records the class has.

The paper's model with p integrated out, for one block (class i, feature k) that has n records:

    P(l_1, ..., l_J | n, m) = prod_j w_j(l_j) / c(n)   where l_1 + ... + l_J = n
    w_j(l) = Gamma(l + a_j) / (l! Gamma(a_j)) f(m_j - l)
    c(n) = [w_1 * ... * w_J](n)

Convolutions are Fourier transforms of tilted weights w_j(l) exp(theta l), with theta such that the
tilted means add up to n: then what is read off, the sum's law at n, is the largest of the
transform. Counts are taken every s, s odd: a point stands for the s counts around it, with their
prior mass. With noise narrow enough that s = 1 nothing is approximated; else there are `FINE`
points to a standard deviation of a cell, and means and widths are off by some (s / sd)^2 / 12 of
themselves.
"""

import math
from typing import NamedTuple

import numpy as np

from jaxprivnb.privacy.budget import Measure

FINE = 8
"""Points of the lattice to a standard deviation of a cell."""
REACH = {"epsilon": 18.0, "rho": 7.0}
"""How far a cell's window goes beyond its noisy count, in scales: 1e-8 of the noise is farther."""
_ROUNDING = 1e-13
"""What is smaller is rounding of the transforms."""
_NOWHERE = -1e4
"""The log of a probability that is as good as none."""


class Block(NamedTuple):
    """The noisy table of one class, tilted, for blocks `[B]` that have n records each."""

    step: np.ndarray
    """s, `[B]`."""
    first: np.ndarray
    """Place of the first point of every cell's lattice, `[B, J]`: its count is s times that."""
    pmf: np.ndarray
    """w_j(l) exp(theta l), a law on the lattice, `[B, J, W]`."""
    log_mass: np.ndarray
    """log of what c(n) exp(theta n) is over the law of the sum at n, `[B]`."""
    theta: np.ndarray
    """The tilt, a step of the lattice, `[B]`."""
    place: np.ndarray
    """The place of n among the sums of places, counted from that of the first points, `[B]`."""
    size: int
    """Length of the transforms."""


def log_noise(x: np.ndarray, measure: Measure, scale: float) -> np.ndarray:
    """log f(x) but for its constant: -|x| / b, or -x^2 / (2 sigma^2)."""
    return -np.abs(x) / scale if measure == "epsilon" else -0.5 * (x / scale) ** 2


def noise_sd(measure: Measure, scale: float) -> float:
    """Standard deviation of the integer noise."""
    if measure == "rho":
        return scale
    q = np.exp(-1 / scale)
    return float(np.sqrt(2 * q) / (1 - q))


def tilted(
    m: np.ndarray,
    n: np.ndarray,
    a: np.ndarray,
    measure: Measure,
    scale: float,
    most: np.ndarray | None = None,
) -> Block:
    """The blocks with noisy counts m `[B, J]` and concentrations a `[B, J]`, given n `[B]`.

    They can be asked about other numbers of records near n, up to `most` `[B]`.
    """
    step, first, log_w = _lattice(m, n, n if most is None else most, a, measure, scale)
    W = log_w.shape[-1]
    # In steps from the first point, so that large counts cost no digits.
    place = n / step - first.sum(-1)
    log_k, theta, pmf, spread = _tilt(log_w, place)
    # The sum of the others spreads over some 8 standard deviations, beside the window itself.
    size = 1 << math.ceil(math.log2(max(2, W + 16 * float(spread.max(initial=0)))))
    return Block(step, first, pmf, log_k - np.log(step), theta, place, size)


def log_evidence(block: Block, away: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(log c(n + away), and how large that is in the transform, `[B, S]` both), away `[B, S]`.

    log c is without terms that do not depend on n.
    """
    law = np.fft.irfft(np.fft.rfft(block.pmf, block.size).prod(1), block.size)
    place = block.place[:, None] + away / block.step[:, None]
    found = _between(law[:, None], place[:, None])[:, 0]
    # Farther away the law is that of the other end.
    within = np.abs(place - block.place[:, None]) < block.size / 2 - 1
    found = np.where((place >= 0) & within, found, 0)
    good = found > _ROUNDING
    log_c = (
        np.log(np.where(good, found, 1)) + block.log_mass[:, None] - block.theta[:, None] * place
    )
    return np.where(good, log_c, _NOWHERE), found


def laws(block: Block) -> np.ndarray:
    """P(l_j | n, m) on the lattice, `[B, J, W]`."""
    others = np.fft.irfft(_all_but_one(np.fft.rfft(block.pmf, block.size)), block.size)
    back = np.arange(block.pmf.shape[-1])
    place = block.place[:, None, None] - back
    joint = block.pmf * np.maximum(_between(others, place), 0)
    total = joint.sum(-1, keepdims=True)
    good = total > _ROUNDING
    return np.where(good, joint / np.where(good, total, 1), block.pmf)


def _between(law: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Laws `[B, J, L]` at places `[B, 1, S]`, taken modulo L, that need not be whole."""
    low = np.floor(place)
    share = place - low
    shape = (*law.shape[:2], place.shape[-1])
    at = [np.broadcast_to((low + d).astype(int) % law.shape[-1], shape) for d in (0, 1)]
    below, above = (np.take_along_axis(law, x, -1) for x in at)
    return below * (1 - share) + above * share


def _all_but_one(spectra: np.ndarray) -> np.ndarray:
    """prod_{h != j} F_h along axis 1, without division."""
    found = np.ones_like(spectra)
    for j in range(1, spectra.shape[1]):
        found[:, j] = found[:, j - 1] * spectra[:, j - 1]
    after = np.ones_like(spectra[:, 0])
    for j in range(spectra.shape[1] - 1, -1, -1):
        found[:, j] *= after
        after = after * spectra[:, j]
    return found


def _lattice(
    m: np.ndarray,
    n: np.ndarray,
    most: np.ndarray,
    a: np.ndarray,
    measure: Measure,
    scale: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Step s `[B]`, first place of every cell's window `[B, J]`, log weights `[B, J, W]`)."""
    wide = noise_sd(measure, scale)
    sd = np.minimum(wide, (n + 1) / (m.shape[1] + 1))
    step = 2 * np.floor(sd / FINE / 2) + 1
    reach = REACH[measure] * scale + 3
    low = np.clip(np.minimum(m, n[:, None]) - reach, 0, n[:, None])
    high = np.clip(np.maximum(m, 0) + reach, 0, most[:, None])
    first = np.floor(low / step[:, None])
    W = int((np.ceil(high / step[:, None]) - first).max(initial=0)) + 1
    l = (first[..., None] + np.arange(W)) * step[:, None, None]
    half = (step[:, None, None] - 1) / 2
    beyond = l - half > np.maximum(high, 1)[..., None]
    log_w = _log_mass(l, half, a[..., None]) + log_noise(m[..., None] - l, measure, scale)
    return step, first, np.where(beyond & (l > 0), -np.inf, log_w)


def _log_mass(l: np.ndarray, half: np.ndarray, a: np.ndarray) -> np.ndarray:
    """log of the sum of Gamma(k + a) / (k! Gamma(a)) over k from max(0, l - half) to l + half.

    Sums from 0 are Gamma(k + 1 + a) / (k! Gamma(a + 1)).
    """
    if (a == 1).all():
        return np.log(np.where(l == 0, half + 1, 2 * half + 1))

    from scipy.special import gammaln

    def upto(k: np.ndarray) -> np.ndarray:
        return gammaln(k + 1 + a) - gammaln(k + 1) - gammaln(a + 1)

    below = l - half - 1
    inside = below >= 0
    whole = upto(l + half)
    part = np.exp(np.where(inside, upto(np.where(inside, below, 0)) - whole, -np.inf))
    return whole + np.log1p(-np.minimum(part, 1 - 1e-15))


def _tilt(
    log_w: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(sum_j log sum_t w_j(t) exp(theta t), theta, laws `[B, J, W]`, sd of their sum), for theta
    `[B]` with means that add up to `place`, about.

    Newton's steps inside a bracket that shrinks. Any theta is right; a near one keeps digits.
    """
    t = np.arange(log_w.shape[-1], dtype=float)
    theta = np.zeros(len(place))
    low, high = np.full(len(place), -np.inf), np.full(len(place), np.inf)
    for left in reversed(range(40)):
        log_q = log_w + theta[:, None, None] * t
        top = log_q.max(-1, keepdims=True)
        q = np.exp(log_q - top)
        mass = q.sum(-1, keepdims=True)
        q /= mass
        mean = q @ t
        variance = np.maximum(q @ t**2 - mean**2, 0).sum(-1)
        away = place - mean.sum(-1)
        done = np.abs(away) <= 0.3 * np.sqrt(variance) + 1e-6
        if done.all() or not left:
            break
        low, high = np.where(away > 0, theta, low), np.where(away < 0, theta, high)
        # Far from the end the slope misleads: tilts move by a few of their own size at most.
        most = 2 * np.abs(theta) + 4 / np.sqrt(np.maximum(variance, 1e-2))
        new = theta + np.clip(away / np.maximum(variance, 1e-12), -most, most)
        below, above = (np.where(np.isfinite(x), x, theta) for x in (low, high))
        inside = (new > low) & (new < high)
        theta = np.where(done, theta, np.where(inside, new, 0.5 * (below + above)))
    log_k = (np.log(mass) + top)[..., 0].sum(-1)
    return log_k, theta, q, np.sqrt(variance)
