"""What a path is: one way to compute the blocks' messages and to go back from them.

Nothing outside a path's file knows which one it is; `plan.py` alone chooses.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax

from jaxprivnb.exact.aim import Aims, Scout
from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.moments import Sums

if TYPE_CHECKING:
    from jaxprivnb.exact.fourier import Fourier


class Chernoff(NamedTuple):
    """c_ik(n) <= exp(log_bound - slope (n - middle)) for all n: `[Q, I, K]` each."""

    slope: jax.Array
    log_bound: jax.Array


class Messages(NamedTuple):
    """The blocks' messages on their class's window, and what the way back needs."""

    log_c: jax.Array
    """log c_ik(n), `[I, K, W]`; -inf where it is not known."""
    log_most: jax.Array
    """log of an upper bound on c_ik(n), `[I, K, W]`."""
    start: jax.Array
    """First counts of the classes' windows, `[I]`."""
    middle: jax.Array
    """A count in the middle of each, `[I]`."""
    log_shift: jax.Array
    """What was taken out of all log c_ik(n), so that they are of the size of what they tell apart,
    `[I, K]`."""
    tails: Chernoff | None
    """Bounds for n outside the window; None if there are none."""
    inner: Any
    """Known to the path that made it."""


class Path(Protocol):
    """A frozen, hashable description of a computation; its fields are part of compiled shapes."""

    @property
    def whole(self) -> bool:
        """All classes' windows begin at 0 and hold 0..N."""
        ...

    def suits(self, data: Dataset) -> Any:
        """Whether the dataset is what the path takes for granted, bool scalar."""
        ...

    @property
    def scout(self) -> Scout | None:
        """How its aims are looked for; None if nothing needs aiming."""
        ...

    def messages(self, data: Dataset, aims: Aims | None) -> Messages:
        """Up: log c_ik(n) and a bound on it; aims are looked for where there are none."""
        ...

    def pulled(self, messages: Messages, z: jax.Array) -> Sums:
        """Back: sums over every cell's counts, from weights z `[Q, I, K, W]` on its class's."""
        ...

    @property
    def questions(self) -> "Fourier":
        """The path by which whole distributions of counts are computed."""
        ...


@dataclasses.dataclass(frozen=True)
class Refitted:
    """What a batch was fitted by when some of its datasets took a wider path than the others."""

    path: Path
    """The one that most took."""
    questions: "Fourier"
    """One that is good for all."""

    @property
    def whole(self) -> bool:
        """Whether all counts are computed."""
        return self.questions.whole
