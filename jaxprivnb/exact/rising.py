"""Weights of a count: the rising weight of its prior, and the density of its noise.

log (a)_l / l! = log Gamma(l + a) - log Gamma(l + 1) - log Gamma(a) is about (a - 1) log l, while
its terms are about l log l: as a difference of log-gammas it has lost nine digits at l = 1e6. Here
one anchor a window is computed by a form whose size is that of the answer, and the rest of the
window by summing log((l - 1 + a) / l); a = 1 gives exactly 0.
"""

import jax
import jax.numpy as jnp

from jaxprivnb.gamma import log_gamma_ratio


def log_rising(count: jax.Array, a: jax.Array) -> jax.Array:
    """log (a)_l / l! = log Gamma(l + a) - log Gamma(l + 1) - log Gamma(a), elementwise; a > 0."""
    count, a = jnp.broadcast_arrays(count, a)
    # Gamma(l + a) / Gamma(x) over Gamma(1 + d) / Gamma(1), with the shorter step d of l and a - 1.
    few = count < a - 1
    x, d = jnp.where(few, a, count + 1), jnp.where(few, count, a - 1)
    ratios = log_gamma_ratio(jnp.stack([x, jnp.ones_like(x)]), jnp.stack([d, d]))
    return ratios[0] - ratios[1]


def log_rising_window(
    start: jax.Array | None, a: jax.Array, length: int, *, relative: bool = False
) -> jax.Array:
    """log (a)_l / l! for l = start, ..., start + length - 1.

    Args:
        start: whole numbers in float, broadcastable to `a`; None means 0.
        a: concentrations, `[...]`.
        length: of the window.
        relative: less its value at the start, which is 0 then.

    Returns:
        `[..., length]`.
    """
    a = a[..., None]
    count = jnp.arange(1, length, dtype=a.dtype)
    if start is not None:
        count = start[..., None] + count
    # At l = 1 the step is log a, which log1p(a - 1) would blur for tiny a.
    first = count <= 1
    step = jnp.log1p(jnp.where(first, 0, (a - 1) / count))
    step = jnp.where(first, jnp.log(a), step)
    if start is None or relative:
        anchor = jnp.zeros((*step.shape[:-1], 1), step.dtype)
    else:
        anchor = jnp.broadcast_to(log_rising(start[..., None], a), (*step.shape[:-1], 1))
    return jnp.concatenate([anchor, anchor + jnp.cumsum(step, axis=-1)], axis=-1)
