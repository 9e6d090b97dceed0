"""Keys and values on their way round all ranks, and what comes back to them.

At step i, each rank works on the keys of the rank i places before it, while those of the next step
are on their way to it. They come straight from their owner, not from hand to hand: each rank sends
and receives as much as in a ring of neighbours, but a pair of ranks that do not see each other
sends nothing, no copy is passed on, and what belongs to the keys comes back in one journey.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from heedmap.parallel.layout import Layout
from heedmap.parallel.members import Members, Transfer

KeyRange = Callable[[range], tuple[int, int]]
"""Says of some queries where the keys start and stop outside which they see nothing."""


class Pair(NamedTuple):
    """A stretch of one rank's queries and one of some rank's keys, and where each lies there."""

    queries: range
    own: slice
    keys: range
    theirs: slice


@dataclass(frozen=True)
class Plan:
    """Which ranks' queries may see which ranks' keys; the same on every rank."""

    queries: Layout
    keys: Layout
    key_range: KeyRange

    def pairs(self, rank: int, source: int) -> list[Pair]:
        """Return the pairs of stretches of which something may be seen."""
        return [
            Pair(queries, own, keys, theirs)
            for queries, own in self.queries.pieces(rank)
            for keys, theirs in self.keys.pieces(source)
            if self.sees(queries, keys)
        ]

    def sees(self, queries: range, keys: range) -> bool:
        """Return whether a stretch of queries may see anything of a stretch of keys."""
        start, stop = self._reach[queries]
        return max(start, keys.start) < min(stop, keys.stop)

    def needs(self, rank: int, source: int) -> bool:
        """Return whether a rank's queries may see anything of another's keys."""
        return any(
            self.sees(queries, keys)
            for queries in self.queries.spans[rank]
            for keys in self.keys.spans[source]
        )

    @cached_property
    def _reach(self) -> dict[range, tuple[int, int]]:
        return {span: self.key_range(span) for own in self.queries.spans for span in own}


def travel(
    members: Members, plan: Plan, given: Sequence[Tensor]
) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield what others, and this rank, give of their keys, with whose it is, where it is needed.

    Args:
        members: The ranks.
        plan: Who needs whose.
        given: What this rank gives, with its keys along dimension 2.

    Cost: memory of what two other ranks give, if the list that is yielded is all that is kept of
    it: it is emptied before more is asked for.
    """
    for _, source, tensors in _steps(members, plan, given):
        if tensors is not None:
            yield source, tensors


def round_trip(
    members: Members,
    plan: Plan,
    given: Sequence[Tensor],
    work: Callable[[int, list[Tensor]], list[Tensor]],
    sums: list[Tensor],
) -> None:
    """Let each rank work on the keys of others, and add up what belongs to them with their owners.

    Args:
        members: The ranks.
        plan: Who needs whose.
        given: What this rank gives, with its keys along dimension 2.
        work: Called with a rank and what it gives; returns what belongs to that rank's keys.
        sums: Where what belongs to this rank's keys is added up, in their place.

    Cost: memory of what two other ranks give, and twice of what comes back.
    """
    coming: tuple[Transfer, list[Tensor]] | None = None
    for step, source, tensors in _steps(members, plan, given):
        made = [] if tensors is None else work(source, tensors)
        if not step:
            _add(sums, made)
            continue
        worker = (members.rank + step) % members.size
        room = [torch.empty_like(part) for part in sums] if plan.needs(worker, members.rank) else []
        transfer = members.exchange(
            [(source, part) for part in made], [(worker, part) for part in room]
        )
        if coming is not None:
            coming[0].wait()
            _add(sums, coming[1])
        coming = transfer, room
    if coming is not None:
        coming[0].wait()
        _add(sums, coming[1])


def _steps(
    members: Members, plan: Plan, given: Sequence[Tensor]
) -> Iterator[tuple[int, int, list[Tensor] | None]]:
    """Yield each step with whose turn it is and what that rank gives; None if nobody needs it."""
    rank, size = members.rank, members.size
    own = [tensor.detach().contiguous() for tensor in given]
    ahead = _begin(members, plan, own, 1)
    yield 0, rank, list(own) if plan.needs(rank, rank) else None
    for step in range(1, size):
        transfer, room = ahead
        transfer.wait()
        ahead = _begin(members, plan, own, step + 1)
        yield step, (rank - step) % size, room
        if room is not None:
            room.clear()


def _begin(
    members: Members, plan: Plan, own: Sequence[Tensor], step: int
) -> tuple[Transfer, list[Tensor] | None]:
    """Begin to send and receive what is needed at a step."""
    rank, size = members.rank, members.size
    if step >= size:
        return Transfer([], []), None
    target, source = (rank + step) % size, (rank - step) % size
    room = None
    if plan.needs(rank, source):
        room = [room_like(tensor, 2, plan.keys.lengths[source]) for tensor in own]
    sent = [(target, tensor) for tensor in own] if plan.needs(target, rank) else []
    return members.exchange(sent, [(source, tensor) for tensor in room or []]), room


def room_like(like: Tensor, dim: int, length: int) -> Tensor:
    """Return memory for what another rank has in the place of this, of another length."""
    shape = list(like.shape)
    shape[dim] = length
    return like.new_empty(shape)


def zeros_for(like: Tensor, dtype: torch.dtype) -> Tensor:
    """Return zeros for what is added up of a tensor, whole in memory as ranks send it."""
    return torch.zeros(like.shape, dtype=dtype, device=like.device)


def _add(sums: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
    for total, part in zip(sums, parts, strict=False):
        total += part
