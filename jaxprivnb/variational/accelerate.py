"""SQUAREM: squared extrapolation of the coordinate ascent (Varadhan and Roland, 2008).

A sweep is a fixed-point map of x = (log t[i], log t[i,k,j]). From x0, x1 = map(x0), x2 = map(x1),

    r = x1 - x0,   v = (x2 - x1) - r,   s = |r| / |v|,   x' = x0 + 2 s r + s^2 v,

where s = 1 gives x' = x2. The steps live in log t, unconstrained up to a normalisation. The
extrapolated point is only proposed: `ascent.py` keeps it where the bound does not fall.

A long first step can jump to the slope of another, lower maximum, so s may double with every cycle
and no faster: with that the ascent ends where plain sweeps from the same start do.
"""

import jax
import jax.numpy as jnp

from jaxprivnb.simplex.problem import normalise
from jaxprivnb.variational.bound import Data
from jaxprivnb.variational.starts import Theta

DOUBLINGS = 13
"""s is at most 2 to this power: where a class empties, log t falls by the same amount each sweep
and |v| vanishes."""


def extrapolate(data: Data, x0: Theta, x1: Theta, x2: Theta, cycle: jax.Array) -> Theta:
    """The point x' that three successive points of the map lead to.

    Args:
        data: of the fit.
        x0: where the cycle began.
        x1: map(x0).
        x2: map(x1).
        cycle: how many cycles there were before, int32.
    """
    r = jax.tree.map(lambda a, b: b - a, x0, x1)
    v = jax.tree.map(lambda b, c, d: (c - b) - d, x1, x2, r)
    # Each coordinate counts by its probability: what an almost empty cell does is not the trend.
    weight = jax.tree.map(jnp.exp, x2)
    squared = lambda d: sum(  # noqa: E731
        jnp.sum(w * z * z) for w, z in zip(weight, d, strict=True)
    )
    rr, vv = squared(r), squared(v)
    s = jnp.sqrt(rr / jnp.where(vv > 0, vv, 1))
    longest = jnp.exp2(jnp.minimum(cycle, DOUBLINGS).astype(s.dtype))
    s = jnp.where(vv > 0, jnp.clip(s, 1, longest), 1)
    moved = jax.tree.map(lambda x, r, v: x + 2 * s * r + s * s * v, x0, r, v)
    every = jnp.ones_like(moved.log_t_class, bool)
    return Theta(
        normalise(moved.log_t_class, every),
        normalise(moved.log_t_feature, jnp.broadcast_to(data.real, moved.log_t_feature.shape)),
    )
