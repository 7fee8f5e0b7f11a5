"""From zero-concentrated to approximate differential privacy.

A rho-zCDP release is (epsilon, delta)-DP if for some alpha > 1 (Canonne, Kamath and Steinke, "The
Discrete Gaussian for Differential Privacy", 2020)

    delta >= exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) (1 - 1 / alpha)^alpha

which for u = alpha - 1 and L = log(1 / delta) says

    epsilon >= (1 + u) rho + (L - log(1 + u)) / u - log(1 + 1 / u)

The right side falls until u^2 rho + log(1 + u) = L, and rises from there. Any u gives a valid
bound, so an inexact minimum costs tightness and no validity; u = sqrt(L / rho) is already below the
usual rho + 2 sqrt(rho L).
"""

import math

from jaxprivnb import validate

_ROUNDING = 8 * 2.0**-52


def epsilon_from_rho(rho: float, delta: float) -> float:
    """The smallest epsilon >= 0 at which rho-zCDP is known to be (epsilon, delta)-DP.

    Args:
        rho: of all that is composed, above 0.
        delta: above 0 and below 1.
    """
    from scipy.optimize import minimize_scalar

    rho = validate.real_number("rho", rho, above=0)
    L = -math.log(validate.real_number("delta", delta, above=0, below=1))

    def terms(log_u: float) -> tuple[float, ...]:
        u = math.exp(log_u)
        return rho, u * rho, (L - math.log1p(u)) / u, -math.log1p(1 / u)

    # At the minimum one of the two terms is between L / 2 and L, and the other is at most L.
    low, high = (
        min(0.5 * (math.log(part) - math.log(rho)), part + math.log(-math.expm1(-part)))
        for part in (L / 2, L)
    )
    found = minimize_scalar(
        lambda t: math.fsum(terms(t)),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-8},  # of a minimum's place; its value is good to the square
    )
    best = terms(float(found.x))
    # Rounded up: terms that cancel leave the rounding of the largest.
    return max(0.0, math.fsum(best) + _ROUNDING * max(map(abs, best)))


def rho_from_epsilon(epsilon: float, delta: float) -> float:
    """The largest rho, to a billionth of itself, at which `epsilon_from_rho` is at most `epsilon`.

    Args:
        epsilon: above 0.
        delta: above 0 and below 1.
    """
    epsilon = validate.real_number("epsilon", epsilon, above=0)
    delta = validate.real_number("delta", delta, above=0, below=1)
    low, high = 0.0, epsilon
    while epsilon_from_rho(high, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        # By ratios, since rho may be far below epsilon.
        middle = math.sqrt(low * high) if low else high / 16
        low, high = (middle, high) if epsilon_from_rho(middle, delta) <= epsilon else (low, middle)
    return low
