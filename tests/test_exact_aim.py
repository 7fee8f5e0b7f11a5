"""Tilts make the counts that they are aimed at likely."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import Case
from reference import Reference

import jaxprivnb as pnb
from jaxprivnb.exact.aim import aim_at, class_centre, depth, offsets_for
from jaxprivnb.exact.dataset import dataset


def tilted(data, aim, N):
    """Log of the tilted weights at 0..N, `[I, K, J, N + 1]`."""
    l = jnp.broadcast_to(jnp.arange(N + 1.0), (*data.anchor.shape, N + 1))
    return np.asarray(data.log_weight(l, flat=False) + aim.tilt[..., None, None] * l)


@pytest.mark.parametrize("noise", ["Laplace", "Gaussian"])
@pytest.mark.parametrize("scale", [0.5, 4.0, 1e3])
@pytest.mark.parametrize("prior", [0.1, 1.0, 20.0])
def test_tilted_means_add_up_to_the_aim(noise, scale, prior):
    N = 120
    data = dataset(*Case((2, 3, 3), N, noise, scale, prior).build())
    for goal in ((30.0, 90.0), (2.0, 118.0), (70.0, 50.0)):
        aim = aim_at(data, jnp.asarray(goal), offsets_for(N), flat=prior == 1)
        log_w = tilted(data, aim, N)
        p = np.exp(log_w - log_w.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        mean = (p * np.arange(N + 1)).sum((-1, -2))
        sd = np.sqrt((p * np.arange(N + 1) ** 2).sum(-1) - (p * np.arange(N + 1)).sum(-1) ** 2)
        sd = np.sqrt(np.square(sd).sum(-1))
        # Any tilt is right; this one is good if the aim is within a few sds of the tilted mass, or
        # within a few counts where that is narrow.
        assert np.all(np.abs(mean - np.array(goal)[:, None]) <= sd + 8)
        # And the windows hold all that is within the depth of the largest weight.
        kept = log_w >= log_w.max(-1, keepdims=True) - depth(log_w.dtype)
        n = np.arange(N + 1)
        inside = (n >= np.asarray(aim.low)[..., None]) & (n <= np.asarray(aim.high)[..., None])
        assert np.all(inside | ~kept)


@pytest.mark.parametrize("case", [Case(), Case(scale=0.5, contradiction=60), Case(prior=30.0)])
def test_the_centre_is_where_the_class_counts_are(case):
    tables, prior = case.build()
    centre = class_centre(dataset(tables, prior))
    right = Reference.of(tables, prior)
    mean = (right.class_count_pmf * right.n).sum(-1)
    assert float(centre.centre.sum()) == pytest.approx(case.N)
    assert np.all(np.abs(np.asarray(centre.centre) - mean) <= np.asarray(centre.reach))
    far = np.abs(right.n - np.asarray(centre.centre)[:, None]) > np.asarray(centre.reach)[:, None]
    assert right.class_count_pmf[far].sum() < 1e-12


def test_no_gradient_goes_through_an_aim():
    import jax

    tables, prior = Case((2, 2, 3), 30).build()

    def tilt(scale):
        data = dataset(pnb.NoisyTables(tables.counts, 30, pnb.Laplace(scale)), prior)
        return aim_at(data, jnp.asarray([10.0, 20.0]), 6, flat=True).tilt.sum()

    assert float(jax.grad(tilt)(2.0)) == 0
