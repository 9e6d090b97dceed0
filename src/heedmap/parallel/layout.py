"""How the positions of one sequence lie on several ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from heedmap.errors import ArgumentError, ShapeError


@dataclass(frozen=True)
class Layout:
    """Which positions of a sequence each rank has: some stretches of them, in its order.

    Every position belongs to exactly one rank. A rank may have none.

    Args:
        spans: For each rank its stretches, as ranges of step 1. Empty ones may be left out.

    Raises:
        ArgumentError: if a position belongs to no rank, or to more than one.

    Example:
        >>> Layout.zigzag(8, 2).spans
        ((range(0, 2), range(6, 8)), (range(2, 4), range(4, 6)))
    """

    spans: tuple[tuple[range, ...], ...]

    def __post_init__(self) -> None:
        """Check that all positions are there once, and leave out empty stretches."""
        _require_ranges(self.spans)
        spans = tuple(tuple(span for span in own if span) for own in self.spans)
        object.__setattr__(self, "spans", spans)
        if not spans:
            raise ArgumentError("spans must be those of at least one rank; got none.")
        end = 0
        for span in sorted((span for own in spans for span in own), key=lambda span: span.start):
            if span.start != end or span.step != 1:
                raise ArgumentError(
                    f"spans must hold every position once, by ranges of step 1; got {span} where "
                    f"position {end} should come."
                )
            end = span.stop

    @classmethod
    def even(cls, positions: int, ranks: int) -> "Layout":
        """Return one stretch for each rank, in the order of ranks, as equal as can be.

        >>> Layout.even(5, 2).lengths
        (3, 2)
        """
        _require_sizes(positions, ranks)
        return cls(tuple((part,) for part in _parts(positions, ranks)))

    @classmethod
    def zigzag(cls, positions: int, ranks: int) -> "Layout":
        """Return two stretches for each rank, one from either end, so that causal work is equal.

        Of 2 · `ranks` equal parts, rank r has part r and part 2 · `ranks` − 1 − r.
        """
        _require_sizes(positions, ranks)
        parts = _parts(positions, 2 * ranks)
        return cls(tuple((parts[rank], parts[-1 - rank]) for rank in range(ranks)))

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> "Layout":
        """Return one stretch of the given length for each rank, in the order of ranks.

        >>> Layout.of_lengths([3, 0, 2]).spans
        ((range(0, 3),), (), (range(3, 5),))
        """
        if any(length < 0 for length in lengths):
            raise ArgumentError(f"lengths must be 0 or more each; got {list(lengths)}.")
        ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
        ranges = (range(end - own, end) for end, own in zip(ends, lengths, strict=True))
        return cls(tuple((part,) for part in ranges))

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.spans)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many positions each rank has."""
        return tuple(sum(map(len, own)) for own in self.spans)

    @cached_property
    def size(self) -> int:
        """How many positions there are in all."""
        return sum(self.lengths)

    def pieces(self, rank: int) -> Iterator[tuple[range, slice]]:
        """Yield each stretch of a rank, and where it lies in what the rank has.

        >>> list(Layout.zigzag(8, 2).pieces(0))
        [(range(0, 2), slice(0, 2, None)), (range(6, 8), slice(2, 4, None))]
        """
        start = 0
        for span in self._of(rank):
            yield span, slice(start, start + len(span))
            start += len(span)

    def positions(self, rank: int) -> Int[Tensor, " own"]:
        """Return the numbers of the positions that a rank has, in its order."""
        parts = [torch.arange(span.start, span.stop) for span in self._of(rank)]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long)

    def owners(
        self, positions: Int[Tensor, " asked"]
    ) -> tuple[Int[Tensor, " asked"], Int[Tensor, " asked"]]:
        """Return which rank has each of these positions, and where in what it has."""
        device = positions.device
        starts, ranks, local = (table.to(device) for table in self._table)
        which = torch.searchsorted(starts, positions.contiguous(), right=True) - 1
        return ranks[which], positions - starts[which] + local[which]

    def shard(self, whole: Shaped[Tensor, "..."], rank: int, dim: int) -> Shaped[Tensor, "..."]:
        """Return a rank's part of a tensor along `dim`: a view where it is one stretch.

        Raises:
            ArgumentError: for a rank that there is not.
            ShapeError: if the tensor has not as many positions there, or no such dimension.

        Example:
            >>> Layout.zigzag(8, 2).shard(torch.arange(8), 1, dim=0)
            tensor([2, 3, 4, 5])
        """
        spans = self._of(rank)
        if not -whole.ndim <= dim < whole.ndim:
            raise ShapeError(f"whole must have dimension {dim}; got one of {list(whole.shape)}.")
        if whole.shape[dim] != self.size:
            raise ShapeError(
                f"whole must have the {self.size} positions of the layout along dimension {dim}; "
                f"got {whole.shape[dim]}."
            )
        parts = [whole.narrow(dim, span.start, len(span)) for span in spans]
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim) if parts else whole.narrow(dim, 0, 0)

    def whole(self, parts: Sequence[Shaped[Tensor, "..."]], dim: int) -> Shaped[Tensor, "..."]:
        """Return the parts of all ranks as one tensor, in the order of positions.

        Raises:
            ShapeError: if there are not as many parts as ranks, or one has another length.

        Example:
            >>> layout = Layout.zigzag(8, 2)
            >>> layout.whole([torch.tensor([0, 1, 6, 7]), torch.tensor([2, 3, 4, 5])], dim=0)
            tensor([0, 1, 2, 3, 4, 5, 6, 7])
        """
        got = tuple(part.shape[dim] for part in parts)
        if got != self.lengths:
            raise ShapeError(
                f"parts must have the lengths of the layout, {list(self.lengths)}; got {list(got)}."
            )
        pieces = [
            (span.start, parts[rank].narrow(dim, place.start, len(span)))
            for rank in range(self.ranks)
            for span, place in self.pieces(rank)
        ]
        ordered = [piece for _, piece in sorted(pieces, key=lambda pair: pair[0])]
        return torch.cat(ordered or list(parts), dim)

    def _of(self, rank: int) -> tuple[range, ...]:
        """Return the stretches of a rank that there is."""
        if not 0 <= rank < self.ranks:
            raise ArgumentError(f"rank must be 0 to {self.ranks - 1} in this layout; got {rank}.")
        return self.spans[rank]

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor, Tensor]:
        """The starts of all stretches in order, whose they are, and where they lie there."""
        rows = sorted(
            (span.start, rank, place.start)
            for rank in range(self.ranks)
            for span, place in self.pieces(rank)
        )
        starts, ranks, local = torch.tensor(rows, dtype=torch.long).reshape(-1, 3).unbind(1)
        return starts.contiguous(), ranks, local


def require_layout(layout: object) -> None:
    """Refuse what is neither a layout nor None.

    Raises:
        ArgumentError: for such a thing.
    """
    if layout is not None and not isinstance(layout, Layout):
        raise ArgumentError(
            f"layout must be a heedmap.parallel.Layout or None; got {type(layout).__name__}. "
            "Take Layout.zigzag(positions, mesh.size())."
        )


def _parts(positions: int, count: int) -> list[range]:
    short, longer = divmod(positions, count)
    starts = [number * short + min(number, longer) for number in range(count + 1)]
    return [range(*ends) for ends in pairwise(starts)]


def _require_ranges(spans: Any) -> None:
    for own in spans:
        if isinstance(own, range) or not all(isinstance(span, range) for span in own):
            raise ArgumentError(
                f"spans must be a sequence of ranges for each rank; got {own!r} for one. Write "
                "[[range(0, 5)], [range(5, 10)]]."
            )


def _require_sizes(positions: int, ranks: int) -> None:
    if positions < 0 or ranks < 1:
        raise ArgumentError(
            f"positions must be 0 or more, and ranks 1 or more; got {positions} and {ranks}."
        )
