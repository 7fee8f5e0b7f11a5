"""The designs: cells of (N, noise), and simulated releases that every peer is given.

Releases are ordered replicate by replicate, each holding all cells, so the first releases of a
design are always a balanced part of it: slow peers answer fewer of the same releases.
"""

from dataclasses import dataclass, field

import jax
import numpy as np
from common import EPSILONS, SIZES
from peers.protocol import Releases

import jaxprivnb as pnb


@dataclass(frozen=True)
class Cell:
    """One setting: N records, and epsilon of one table; b = 2 / epsilon."""

    n_records: int
    epsilon_per_table: float

    @property
    def scale(self) -> float:
        """The noise's b."""
        return 2 / self.epsilon_per_table


@dataclass(frozen=True)
class Design:
    """A shape of tables, its cells, and the cells on which fits are timed."""

    name: str
    title: str
    n_classes: int
    n_categories: tuple[int, ...]
    cells: tuple[Cell, ...]
    timed: tuple[Cell, ...]
    seed: int
    total: bool = False
    """Whether its epsilons are meant for all tables together."""
    replicates: dict[str, int] = field(default_factory=dict)
    """Replicates of every cell: {"full": ..., "quick": ...}."""
    intervals: int = 40
    """Replicates of every cell that get intervals where they cost time of their own."""

    @property
    def n_features(self) -> int:
        """K."""
        return len(self.n_categories)

    def epsilon(self, cell: Cell) -> float:
        """The epsilon to show: of all tables or of one, as the design is meant."""
        return cell.epsilon_per_table * (self.n_features if self.total else 1)


def _of_total(n_records: int, n_features: int, epsilons: tuple[float, ...]) -> tuple[Cell, ...]:
    return tuple(Cell(n_records, e / n_features) for e in epsilons)


DESIGNS = {
    d.name: d
    for d in (
        Design(
            "paper", "the paper's grid: I=2, K=5, J=2", 2, (2,) * 5,
            tuple(Cell(N, e) for N in SIZES for e in EPSILONS),
            (Cell(200, 0.01), Cell(200, 0.1), Cell(200, 1.0)),
            seed=11, replicates={"full": 200, "quick": 20},
        ),
        Design(
            "ju", "after Ju et al.: N=100, I=5, K=5, J=3, b = 2K/ε", 5, (3,) * 5,
            _of_total(100, 5, (0.1, 0.3, 1.0, 3.0, 10.0)), _of_total(100, 5, (1.0,)),
            seed=12, total=True, replicates={"full": 400, "quick": 20},
        ),
        Design(
            "large", "larger: N=10,000, I=4, K=20, J=5", 4, (5,) * 20,
            _of_total(10_000, 20, (0.1, 1.0, 10.0)), _of_total(10_000, 20, (1.0,)),
            seed=13, total=True, replicates={"full": 100, "quick": 2}, intervals=100,
        ),
    )
}  # fmt: skip
"""By name. Ju et al. give N, b and epsilon; their script has five classes; K, J and uniform priors
are ours, because their parameters are in data files."""


@dataclass(frozen=True)
class Truth:
    """What a design's releases were drawn from; never shown to a method that reads releases."""

    class_probs: np.ndarray
    """P(Y), `[R, I]`."""
    feature_probs: np.ndarray
    """P(X|Y), `[R, I, K, J]`."""
    cell: np.ndarray
    """Index of the cell, `[R]`."""


def _draw(design: Design, cells: tuple[Cell, ...], replicates: int, seed: int):
    """Simulations of all cells with axes `[replicate, cell]` flattened."""
    key = jax.random.key(seed)
    parts = [
        pnb.simulate(
            jax.random.fold_in(key, c),
            n_records=cell.n_records,
            n_classes=design.n_classes,
            n_categories=design.n_categories,
            noise=pnb.Laplace(cell.scale),
            shape=(replicates,),
        )
        for c, cell in enumerate(cells)
    ]
    join = lambda *x: np.stack(x, 1).reshape(-1, *x[0].shape[1:])  # noqa: E731
    drawn = jax.tree.map(lambda *x: join(*map(np.asarray, x)), *parts)
    releases = Releases(
        drawn.tables.counts, drawn.tables.n_records, drawn.tables.noise.scale, drawn.counts
    )
    cell = np.tile(np.arange(len(cells)), replicates)
    return releases, Truth(drawn.class_probs, drawn.feature_probs, cell)


def simulate(design: Design, replicates: int) -> tuple[Releases, Truth]:
    """The releases to answer, and what they were drawn from."""
    return _draw(design, design.cells, replicates, design.seed)


def simulate_timed(design: Design, size: int, every: bool = True) -> dict[str, Releases]:
    """`{cell: releases to time}`, `size` of each; only the middle cell unless `every`."""
    middle = len(design.timed) // 2
    return {
        timing_name(design, cell): _draw(design, (cell,), size, 1000 * design.seed + c)[0]
        for c, cell in enumerate(design.timed)
        if every or c == middle
    }


def timing_name(design: Design, cell: Cell) -> str:
    """Such as "paper N=200 eps=0.1"."""
    return f"{design.name} N={cell.n_records} eps={design.epsilon(cell):g}"
