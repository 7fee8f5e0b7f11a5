"""A queue of iterative jobs through a fixed number of lanes.

Under a plain `vmap` every lane of a `while_loop` runs until the slowest one ends. Here a lane whose
job has ended is given the next one from the queue, inside the compiled loop: the arithmetic always
runs on full lanes, and memory is that of the lanes and of the results.

Arithmetic is always done on tiles of lanes, of one size on one kind of device (`Width`). XLA may
compile the same formula to different last bits for different array lengths, but at one length every
lane goes through the same instructions: so what happens to an item does not depend on how many
lanes there are, nor on where in them it is.

Nothing in this module knows what the jobs are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxprivnb.parallel import wide

TILE = 128
"""Lanes in one piece of compiled arithmetic on a CPU; the fewest on any device."""
NUMBERS = 2**16
"""Numbers of all lanes of a tile together on a CPU, where a lane has many; a power of two. Few, so
that they stay in a core's cache (bench/exact_throughput.py)."""

Item = Any
State = Any


class Width(NamedTuple):
    """How much is worked on at a time; hashable, and the same for all batches on one platform."""

    lanes: int
    """L, jobs in work at a time, a multiple of `tile`."""
    tile: int
    """Lanes in one piece of compiled arithmetic, a power of two."""
    numbers: int
    """Numbers in it where a lane has many, a power of two."""

    @classmethod
    def on(cls, platform: str, cells: int, lanes: int | None = None) -> "Width":
        """What suits a platform and tables of so many cells.

        Args:
            platform: of the devices, "cpu" or another.
            cells: numbers in a dataset, I K J.
            lanes: as many at least; one tile if None.
        """
        numbers = wide(NUMBERS, platform)
        tile = max(TILE, min(wide(TILE, platform), share(numbers, cells)))
        return cls(-(-(lanes or tile) // tile) * tile, tile, numbers)


def share(numbers: int, each: int) -> int:
    """How many of size `each` are at most `numbers` together, a power of two or 0."""
    return numbers >> (each - 1).bit_length()


class Job(NamedTuple):
    """What is done to one item of the queue; each function is for one item and is mapped here."""

    begin: Callable[[Item], State]
    """Must only move numbers, not compute: it is mapped over batches of several lengths."""
    step: Callable[[Item, State], State]
    unfinished: Callable[[State], jax.Array]
    """Whether the state wants another step, bool scalar; comparisons only, as with `begin`."""


class Harvest(NamedTuple):
    """What came out of the lanes."""

    states: State
    """The last state of every item, leading axis Q, in the order of the queue."""
    steps: jax.Array
    """Steps that each item took, int32 `[Q]`."""
    executed: jax.Array
    """Lane-steps executed in all, int32; sum(steps) / executed is the utilisation."""


def by_tiles(
    f: Callable[..., Any], *trees: Any, tile: int = TILE, length: jax.Array | None = None
) -> Any:
    """vmap(f) over a leading axis that is a multiple of `tile`, one tile after the other.

    Only the first `length` items are asked for (all if None): tiles of padding cost nothing and
    give zeros.
    """
    tiles = jax.tree.leaves(trees)[0].shape[0] // tile
    if tiles == 1 and length is None:
        return jax.vmap(f)(*trees)
    split = lambda x: x.reshape(tiles, tile, *x.shape[1:])  # noqa: E731
    join = lambda x: x.reshape(tiles * tile, *x.shape[2:])  # noqa: E731

    def compute(piece: Any) -> Any:
        return jax.vmap(f)(*piece)

    def skip(piece: Any) -> Any:
        shapes = jax.eval_shape(compute, piece)
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def one(numbered: Any) -> Any:
        number, piece = numbered
        if length is None:
            return compute(piece)
        return lax.cond(number * tile < length, compute, skip, piece)

    pieces = jax.tree.map(split, trees)
    done = lax.map(one, (jnp.arange(tiles, dtype=jnp.int32), pieces))
    return jax.tree.map(join, done)


class _Lanes(NamedTuple):
    """The loop's carry. L lanes, Q items."""

    item: Item
    """The item in each lane, `[L, ...]`."""
    state: State
    """Its state, `[L, ...]`."""
    place: jax.Array
    """Where in the queue it came from, int32 `[L]`; Q for an idle lane."""
    taken: jax.Array
    """Steps it has taken, int32 `[L]`."""
    wanting: jax.Array
    """Whether it wants another step, bool `[L]`."""
    next: jax.Array
    """The first item that is still in the queue."""
    ended: State
    """The last states of items that were handed in, `[Q, ...]`."""
    steps: jax.Array
    rounds: jax.Array
    """Times that all lanes were stepped."""


def run(queue: Item, length: jax.Array, job: Job, width: Width, max_rounds: int) -> Harvest:
    """Take the first `length` items of `queue` through `job`.

    Args:
        queue: pytree with leading axis Q.
        length: how many items are real, int32; the rest is padding and keeps its first state.
        job: what to do.
        width: static.
        max_rounds: cap on the steps of one item, a last resort: `unfinished` has its own.
    """
    Q, lanes = jax.tree.leaves(queue)[0].shape[0], width.lanes
    batch = max(1, lanes // 4)  # lanes refilled at a time
    patience = max(1, lanes // 32)  # finished items that are worth a refill

    def admit(place: jax.Array) -> tuple[Item, State, jax.Array]:
        item = jax.tree.map(lambda x: x[jnp.clip(place, 0, length - 1)], queue)
        state = jax.vmap(job.begin)(item)
        return item, state, jax.vmap(job.unfinished)(state) & (place < length)

    def held(at: _Lanes) -> jax.Array:
        """Lanes whose item has finished and is not yet handed in."""
        return (at.place < Q) & ~at.wanting

    def hand_in(at: _Lanes, slot: jax.Array) -> _Lanes:
        """Store the states of the items in the lanes `slot`; the number `lanes` names none."""
        inside = jnp.minimum(slot, lanes - 1)
        done = jnp.where(slot < lanes, at.place[inside], Q)
        put = lambda store, lane: store.at[done].set(lane[inside], mode="drop")  # noqa: E731
        return at._replace(
            ended=jax.tree.map(put, at.ended, at.state), steps=put(at.steps, at.taken)
        )

    def refill(at: _Lanes) -> _Lanes:
        """Hand in up to `batch` finished items and put the next ones in their lanes."""
        (slot,) = jnp.nonzero(held(at), size=batch, fill_value=lanes)
        slot = slot.astype(jnp.int32)
        at = hand_in(at, slot)
        place = at.next + jnp.cumsum(slot < lanes, dtype=jnp.int32) - 1
        place = jnp.where((slot < lanes) & (place < length), place, Q)
        item, state, wanting = admit(place)
        seat = lambda lane, new: lane.at[slot].set(new, mode="drop")  # noqa: E731
        return at._replace(
            item=jax.tree.map(seat, at.item, item),
            state=jax.tree.map(seat, at.state, state),
            place=seat(at.place, place),
            taken=seat(at.taken, jnp.zeros_like(place)),
            wanting=seat(at.wanting, wanting),
            next=at.next + jnp.sum(place < Q, dtype=jnp.int32),
        )

    def going(at: _Lanes) -> jax.Array:
        return jnp.any(at.wanting) | (at.next < length)

    def advance(item: Item, state: State, wanting: jax.Array) -> State:
        """A step where one is wanted; a finished item is left as it is."""
        return jax.tree.map(lambda a, b: jnp.where(wanting, a, b), job.step(item, state), state)

    def round_(at: _Lanes) -> _Lanes:
        state = by_tiles(advance, at.item, at.state, at.wanting, tile=width.tile)
        taken = at.taken + at.wanting.astype(jnp.int32)
        wanting = at.wanting & jax.vmap(job.unfinished)(state) & (taken < max_rounds)
        at = at._replace(state=state, taken=taken, wanting=wanting, rounds=at.rounds + 1)
        worth = (jnp.sum(held(at)) >= patience) | ~jnp.any(at.wanting)
        return lax.cond(worth & (at.next < length), refill, lambda at: at, at)

    place = jnp.arange(lanes, dtype=jnp.int32)
    place = jnp.where(place < length, place, Q)
    item, state, wanting = admit(place)
    start = _Lanes(
        item,
        state,
        place,
        taken=jnp.zeros(lanes, jnp.int32),
        wanting=wanting,
        next=jnp.minimum(length, lanes).astype(jnp.int32),
        ended=jax.vmap(job.begin)(queue),
        steps=jnp.zeros(Q, jnp.int32),
        rounds=jnp.zeros((), jnp.int32),
    )
    end = lax.while_loop(going, round_, start)
    end = hand_in(end, jnp.arange(lanes, dtype=jnp.int32))  # idle lanes hold place Q: dropped
    return Harvest(end.ended, end.steps, end.rounds * lanes)
