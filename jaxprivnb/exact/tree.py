"""One pass up the tree: from the weights of cells to the evidence."""

from functools import partial
from typing import NamedTuple

import jax

from jaxprivnb.exact.aim import Aims
from jaxprivnb.exact.classes import (
    Root,
    Shared,
    log_anchor,
    log_class_messages,
    root_of,
    shared,
)
from jaxprivnb.exact.dataset import Dataset, dataset
from jaxprivnb.exact.path import Messages, Path
from jaxprivnb.exact.rising import log_rising
from jaxprivnb.tables import NoisyTables, Prior


class Pass(NamedTuple):
    """All messages of a dataset."""

    data: Dataset
    messages: Messages
    log_h: jax.Array
    """log h_i(n), `[I, W]`."""
    root: Root
    """The classes together."""

    def together(self) -> Shared | None:
        """The classes' counts with N, where that is not known."""
        if self.data.log_n is None:
            return None
        return shared(self.log_h, self.data, self.messages.start)

    @property
    def log_evidence(self) -> jax.Array:
        """log P(m), scalar; differentiable in the prior and in the noise's scale.

        Where N is not known it is a sum over N, under weights that need not add up to 1.
        """
        data, messages = self.data, self.messages
        taken = messages.log_shift.sum() + data.log_constants().sum() + data.log_group_constants()
        if messages.tails is not None:
            taken = taken + log_anchor(data, messages.start).sum()
        if data.log_n is not None:
            return self.root.log_total + taken
        return self.root.log_total + taken - log_rising(data.n_records, data.a_class.sum())


@partial(jax.jit, static_argnames="path")
def upward(tables: NoisyTables, prior: Prior, path: Path, aims: Aims | None = None) -> Pass:
    """All messages, the evidence, and P(n_i = n | m).

    Args:
        tables: one valid dataset.
        prior: its prior.
        path: how.
        aims: where the class counts are expected; looked for if None.
    """
    data = dataset(tables, prior)
    messages = path.messages(data, aims)
    log_h = log_class_messages(messages.log_c, data, messages.start, whole=path.whole)
    together = root_of(log_h, data, messages.start, whole=path.whole)
    return Pass(data, messages, log_h, together)
