"""A queue of iterative jobs through a fixed number of lanes.

Under a plain `vmap` every lane of a `while_loop` runs until the slowest one ends. Here a lane whose
job has ended is given the next one from the queue, inside the compiled loop: the arithmetic always
runs on full lanes, and memory is that of the lanes and of the results.

Nothing in this module knows what the jobs are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Item = Any
State = Any
Result = Any


class Job(NamedTuple):
    """What is done to one item of the queue; each function is for one item and is vmapped here."""

    begin: Callable[[Item], State]
    step: Callable[[Item, State], State]
    unfinished: Callable[[Item, State], jax.Array]
    """Whether the state wants another step, bool scalar."""
    finish: Callable[[Item, State], Result]


class Harvest(NamedTuple):
    """What came out of the lanes."""

    results: Any
    """The pytree that `finish` gives, leading axis Q, in the order of the queue."""
    steps: jax.Array
    """Steps that each item took, int32 `[Q]`."""
    executed: jax.Array
    """Lane-steps executed in all, int32; sum(steps) / executed is the utilisation."""


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
    results: Result
    steps: jax.Array
    rounds: jax.Array
    """Times that all lanes were stepped."""


def run(queue: Item, length: jax.Array, job: Job, lanes: int, max_rounds: int) -> Harvest:
    """Take the first `length` items of `queue` through `job`.

    Args:
        queue: pytree with leading axis Q.
        length: how many items are real, int32; the rest is padding and gives zeros.
        job: what to do.
        lanes: L, static.
        max_rounds: cap on the steps of one item, a last resort: `unfinished` has its own.
    """
    Q = jax.tree.leaves(queue)[0].shape[0]
    batch = max(1, lanes // 4)  # lanes refilled at a time
    patience = max(1, lanes // 16)  # idle lanes that are worth a refill

    def take(index: jax.Array) -> Item:
        return jax.tree.map(lambda x: x[jnp.minimum(index, Q - 1)], queue)

    def admit(index: jax.Array) -> tuple[Item, State, jax.Array]:
        item = take(index)
        state = jax.vmap(job.begin)(item)
        return item, state, jax.vmap(job.unfinished)(item, state) & (index < length)

    def hand_in(at: _Lanes, slot: jax.Array) -> _Lanes:
        """Store the results of the items in the lanes `slot`; `lanes` itself names none."""
        inside = jnp.minimum(slot, lanes - 1)
        done = jnp.where(slot < lanes, at.place[inside], Q)
        pick = lambda x: x[inside]  # noqa: E731
        ended = jax.vmap(job.finish)(jax.tree.map(pick, at.item), jax.tree.map(pick, at.state))
        put = lambda store, new: store.at[done].set(new, mode="drop")  # noqa: E731
        return at._replace(
            results=jax.tree.map(put, at.results, ended), steps=put(at.steps, at.taken[inside])
        )

    def refill(at: _Lanes) -> _Lanes:
        """Hand in up to `batch` finished items and put the next ones in their lanes."""
        (slot,) = jnp.nonzero(held(at), size=batch, fill_value=lanes)
        slot = slot.astype(jnp.int32)
        at = hand_in(at, slot)
        index = at.next + jnp.cumsum(slot < lanes, dtype=jnp.int32) - 1
        index = jnp.where((slot < lanes) & (index < length), index, Q)
        item, state, wanting = admit(index)
        seat = lambda lane, new: lane.at[slot].set(new, mode="drop")  # noqa: E731
        return at._replace(
            item=jax.tree.map(seat, at.item, item),
            state=jax.tree.map(seat, at.state, state),
            place=seat(at.place, index),
            taken=seat(at.taken, jnp.zeros_like(index)),
            wanting=seat(at.wanting, wanting),
            next=at.next + jnp.sum(index < Q, dtype=jnp.int32),
        )

    def held(at: _Lanes) -> jax.Array:
        """Lanes whose item has finished and is not yet handed in."""
        return (at.place < Q) & ~at.wanting

    def going(at: _Lanes) -> jax.Array:
        return jnp.any(at.wanting) | (at.next < length)

    def round_(at: _Lanes) -> _Lanes:
        state = jax.vmap(job.step)(at.item, at.state)
        keep = jax.vmap(lambda w, new, old: jax.tree.map(lambda a, b: jnp.where(w, a, b), new, old))
        state = keep(at.wanting, state, at.state)
        taken = at.taken + at.wanting.astype(jnp.int32)
        wanting = at.wanting & jax.vmap(job.unfinished)(at.item, state) & (taken < max_rounds)
        at = at._replace(state=state, taken=taken, wanting=wanting, rounds=at.rounds + 1)
        ready = jnp.sum(held(at))
        worth = (ready >= patience) | ~jnp.any(at.wanting)
        return lax.cond(worth & (at.next < length), refill, lambda at: at, at)

    first = jnp.arange(lanes, dtype=jnp.int32)
    first = jnp.where(first < length, first, Q)
    item, state, wanting = admit(first)
    blank = jax.eval_shape(jax.vmap(job.finish), item, state)
    start = _Lanes(
        item,
        state,
        first,
        jnp.zeros(lanes, jnp.int32),
        wanting,
        jnp.minimum(length, lanes).astype(jnp.int32),
        jax.tree.map(lambda s: jnp.zeros((Q, *s.shape[1:]), s.dtype), blank),
        jnp.zeros(Q, jnp.int32),
        jnp.zeros((), jnp.int32),
    )
    end = lax.while_loop(going, round_, start)
    end = hand_in(end, jnp.arange(lanes, dtype=jnp.int32))  # idle lanes have index Q: dropped
    return Harvest(end.results, end.steps, end.rounds * lanes)
