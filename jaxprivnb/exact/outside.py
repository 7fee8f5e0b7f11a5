"""The message of a block to one of its cells: the convolution of the block's other cells."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.exact import filters
from jaxprivnb.exact.convolve import align, convolve, log_convolve, log_slide, slide
from jaxprivnb.exact.evidence import normalise, over_rows, safe_log, zero
from jaxprivnb.exact.window import Layout, Placement
from jaxprivnb.tables import NoisyTables


class Outside(NamedTuple):
    """What a cell's block says without it: v_ikj = the convolution of w_ikj' over j' != j."""

    cell: jax.Array
    """w_ikj(l) without its scale, `[I, K, J, cell window]`; a log if the layout is in log space."""
    others: jax.Array
    """v_ikj(s) without its scale, `[I, K, J, class window + cell window - 1]`. Entry y is at
    s = n - l for n, l at places t, r in their windows with y = t - r + cell window - 1."""
    log_scale: jax.Array
    """The two scales together, `[I, K, J]`."""


def outside(
    log_w: jax.Array, tables: NoisyTables, place: Placement, layout: Layout, n_cells: int
) -> Outside:
    """The messages to the first `n_cells` cells of every block."""
    x, scale, _ = normalise(log_w, layout)
    J, reach = x.shape[-2], layout.class_ + layout.cell - 1
    if layout.filters:
        values, log_scale = filters.others(
            filters.kernels(tables, layout.filters), layout.filters, n_cells
        )
        begin = place.class_[:, None, None] - place.cell[..., :n_cells] - (layout.cell - 1)
        near = align(values, begin, reach)
        return Outside(x[..., :n_cells, :], near, log_scale + scale[..., :n_cells])
    after = chain(x, layout)
    before, before_scale = _unit(x, layout), jnp.zeros_like(scale[..., 0])
    shift = place.class_[:, None] - place.cell.sum(-1, dtype=jnp.int32) - (layout.cell - 1)
    found, scales = [], []
    for j in range(n_cells):
        tail, tail_scale = after[j + 1]
        found.append(_cut(before, tail, shift, reach, layout))
        scales.append(before_scale + tail_scale)
        if j + 1 < J:
            length = layout.cell if layout.whole else None
            before, grown = _convolve(before, x[..., j, :], length, layout)
            before_scale = before_scale + grown
    total = scale.sum(-1, keepdims=True)
    return Outside(x[..., :n_cells, :], jnp.stack(found, -2), jnp.stack(scales, -1) + total)


def chain(x: jax.Array, layout: Layout) -> list[tuple[jax.Array, jax.Array]]:
    """Convolutions of the cells from j on, for j = 0, ..., J (the last is the unit).

    Returns:
        (values `[I, K, S]`, log scale `[I, K]` beyond that of the cells), one for each j.
    """
    J = x.shape[-2]
    length = layout.cell if layout.whole else None
    found = [(_unit(x, layout), jnp.zeros_like(x[..., 0, 0]))]
    for j in reversed(range(J)):
        values, scale = found[0]
        values, grown = _convolve(values, x[..., j, :], length, layout)
        found.insert(0, (values, scale + grown))
    return found


def _unit(x: jax.Array, layout: Layout) -> jax.Array:
    return jnp.full((*x.shape[:-2], 1), 0.0 if layout.log_space else 1.0, x.dtype)


def _convolve(
    u: jax.Array, v: jax.Array, length: int | None, layout: Layout
) -> tuple[jax.Array, jax.Array]:
    """(u * v rescaled to a largest entry of 1, log of what was taken out)."""
    nothing = jnp.zeros_like(v[..., 0])
    if u.shape[-1] == 1:  # the unit, or a multiple of it
        return v, nothing
    if layout.log_space:
        return over_rows(log_convolve)(u, v, length), nothing
    out = convolve(u, v, length)
    top = out.max(-1)
    top = jnp.where(top > 0, top, 1)
    return out / top[..., None], jnp.log(top)


def _cut(u: jax.Array, v: jax.Array, shift: jax.Array, length: int, layout: Layout) -> jax.Array:
    """Entries shift, ..., shift + length - 1 of u * v."""
    if u.shape[-1] > v.shape[-1]:
        u, v = v, u
    S = u.shape[-1]
    if layout.whole:
        # Counts below 0 first, then 0, ..., cell window - 1.
        short = (over_rows(log_convolve) if layout.log_space else convolve)(u, v, layout.cell)
        widths = [(0, 0)] * (u.ndim - 1) + [(length - layout.cell, 0)]
        return jnp.pad(short, widths, constant_values=zero(layout))
    near = align(v, shift - (S - 1), length + S - 1, zero(layout))
    return over_rows(log_slide)(u, near) if layout.log_space else slide(u, near)


def log_share(out: Outside, log_c: jax.Array, pmf: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(Log of the scale over c_ik(n), where P(n_i = n | m) > 0), both `[I, K, J, class window]`.

    Args:
        out: the messages to the cells.
        log_c: log c_ik(n), `[I, K, class window]`.
        pmf: P(n_i = n | m), `[I, class window]`.
    """
    log_c, pmf = log_c[:, :, None], pmf[:, None, None]
    reached = (pmf > 0) & jnp.isfinite(log_c)
    return out.log_scale[..., None] - jnp.where(reached, log_c, 0), reached


def log_mean_count(out: Outside, log_c: jax.Array, counts: jax.Array, layout: Layout) -> jax.Array:
    """Log E[n_ikj | n_i = n, m] for every n in the class windows, `[I, K, J, class window]`.

    Args:
        out: the messages to the cells.
        log_c: log c_ik(n), `[I, K, class window]`.
        counts: the counts in the cells' windows, broadcastable to `[I, K, J, cell window]`.
        layout: of the fit.
    """
    if layout.log_space:
        log_sum = over_rows(log_slide)(out.cell + safe_log(counts), out.others)
    else:
        log_sum = safe_log(slide(out.cell * counts, out.others))
    reached = jnp.isfinite(log_c)[..., None, :]
    ratio = log_sum + out.log_scale[..., None] - jnp.where(reached, log_c[..., None, :], 0)
    return jnp.where(reached, ratio, -jnp.inf)


def reversed_last(x: jax.Array) -> jax.Array:
    """X with its last axis reversed."""
    return lax.rev(x, (x.ndim - 1,))
