"""Posteriors with known numbers, and Axes to draw them on, for the tests of plots."""

import jax.numpy as jnp
import numpy as np

from jaxprivnb.posterior import DirichletPosterior
from jaxprivnb.privacy.domain import Column, Domain

MASK = np.array([[True, True, False], [True, True, True]])
DOMAIN = Domain(
    Column("diagnosis", ("benign", "malignant")),
    (Column("radius", ("small", "large")), Column("texture", ("fine", "medium", "coarse"))),
)


def posterior(seed, batch=()):
    """Random Dirichlets: 2 classes, a feature of 2 categories and one of 3."""
    rng = np.random.default_rng(seed)
    feature = rng.gamma(2.0, 3.0, (*batch, 2, 2, 3)) + 0.5
    return DirichletPosterior(
        mask=jnp.asarray(np.broadcast_to(MASK, (*batch, 2, 3))),
        status=jnp.zeros(batch, jnp.int32),
        class_alpha=jnp.asarray(rng.gamma(2.0, 3.0, (*batch, 2)) + 0.5),
        feature_alpha=jnp.asarray(np.where(MASK, feature, 0)),
    )


def truths(seed, batch=()):
    """A pair (P(Y), P(X|Y))."""
    rng = np.random.default_rng(seed)
    feature = np.where(MASK, rng.gamma(1.0, 1.0, (*batch, 2, 2, 3)), 0)
    class_ = rng.gamma(1.0, 1.0, (*batch, 2))
    return (
        class_ / class_.sum(-1, keepdims=True),
        feature / feature.sum(-1, keepdims=True),
    )


def new_axes():
    """An Axes that pyplot does not know, so that nothing need be closed."""
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def legend(ax):
    """The legend's entries."""
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]
