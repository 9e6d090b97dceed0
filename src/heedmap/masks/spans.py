"""The mask that says for each query which stretch of keys it sees."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from heedmap.errors import DTypeError, ShapeError
from heedmap.masks.base import Extent, Mask, ordered
from heedmap.places import CELLS, Places, split
from heedmap.tensors import require_tensor

MOST_IN_A_BYTE = 255

Block = tuple[slice, slice, slice]
"""Samples, heads and queries."""


@dataclass(frozen=True, eq=False)
class Spans(Mask):
    """A query sees the keys from its first to its last, both included, that are valid.

    Causal masks, windows, packed documents, prefixes and steps of decoding, with or without
    padding, are all of this form, so a table of pairs that a model made can be kept at the size of
    its edges: see `of_table`.

    Args:
        first: ``[batch, heads, query]``: the number of the first key that the query sees. Sizes
            may be 1, which stands for all.
        last: The number of the last key, in the same form. A query whose last key lies before its
            first sees nothing; keys that do not exist may lie between the two.
        valid: ``[batch, key]``, False for keys that no query sees; or None where all are valid. The
            size of batch may be 1.

    Raises:
        DTypeError: if `first` or `last` are not whole numbers, or `valid` is not bool.
        ShapeError: if the dimensions are not those above.

    Cost: memory of the tensors given, O(query + key) for each sample and head.

    Example:
        >>> from heedmap.masks import show
        >>> first, last = torch.tensor([[[0, 0, 2]]]), torch.tensor([[[0, 2, 3]]])
        >>> show(Spans(first, last), queries=3, keys=4)
        1 0 0 0
        1 1 1 0
        0 0 1 1
    """

    first: Int[Tensor, "#batch #heads #query"]
    last: Int[Tensor, "#batch #heads #query"]
    valid: Bool[Tensor, "#batch key"] | None = None

    def __post_init__(self) -> None:
        """Refuse what are not numbers of keys and marks of keys."""
        for name, numbers in (("first", self.first), ("last", self.last)):
            require_tensor(name, numbers)
            if numbers.is_floating_point() or numbers.dtype == torch.bool:
                raise DTypeError(f"{name} must be whole numbers; got {numbers.dtype}.")
            if numbers.ndim != 3:
                raise ShapeError(
                    f"{name} must be [batch, heads, query]; got {list(numbers.shape)}."
                )
        if self.valid is None:
            return
        require_tensor("valid", self.valid)
        if self.valid.dtype != torch.bool:
            raise DTypeError(f"valid must be bool, True for a valid key; got {self.valid.dtype}.")
        if self.valid.ndim != 2:
            raise ShapeError(f"valid must be [batch, key]; got {list(self.valid.shape)}.")

    def __getstate__(self) -> dict[str, object]:
        """Return what is worth saving, without what was worked out from it."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def of_table(cls, visible: Bool[Tensor, "batch heads query key"]) -> "Spans | None":
        """Return the mask that shows exactly the pairs marked True, or None if it is no Spans.

        Args:
            visible: ``[batch, heads, query, key]``, True for visible. The sizes of batch, heads and
                query may be 1, which stands for all. What was expanded is read once.

        Returns:
            The mask, with `valid` False for the keys that nobody sees in a sample; or None, if some
            query does not see a key between its first and last that others of its sample see.

        Raises:
            DTypeError: if `visible` is not bool.
            ShapeError: if it has not four dimensions.

        Cost: O(batch · heads · query · key) time, a fraction of a nanosecond for each pair; memory
        of about a million pairs beside the result.

        Example:
            >>> causal = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
            >>> Spans.of_table(causal).last
            tensor([[[0, 1, 2]]])
            >>> Spans.of_table(torch.tensor([[[[1, 0, 1], [1, 1, 1]]]]).bool()) is None
            True
        """
        require_tensor("visible", visible)
        if visible.dtype != torch.bool:
            raise DTypeError(f"visible must be bool, True for visible; got {visible.dtype}.")
        if visible.ndim != 4:
            raise ShapeError(
                f"visible must be [batch, heads, query, key]; got {list(visible.shape)}."
            )
        table = _collapsed(visible)
        sizes = table.shape
        return cls.of_blocks(lambda block: table[block], sizes, table.device, visible.shape[2])

    @classmethod
    def of_blocks(
        cls,
        block_of: Callable[[Block], Bool[Tensor, "batch heads query key"]],
        sizes: Sequence[int],
        device: torch.device,
        queries: int | None = None,
    ) -> "Spans | None":
        """Return the mask that shows exactly the pairs marked True, or None if it is no Spans.

        Args:
            block_of: Returns all keys of some samples, heads and queries.
            sizes: Of what it returns blocks of: batch, heads, queries, keys.
            device: Where the blocks are.
            queries: How many queries there are, where one stands for all.

        Cost: as for `of_table`.
        """
        edges = _read(block_of, sizes, device)
        queries = sizes[2] if queries is None else queries
        # Whatever is seen lies within its span and at a valid key. So where as many keys are seen
        # as are valid within the span, they are the same keys.
        before = pad(edges.valid.cumsum(1), (1, 0))
        stop, start = (before.gather(1, e.flatten(1)) for e in (edges.last + 1, edges.first))
        if not torch.equal(stop - start, edges.seen.flatten(1)):
            return None
        first, last = (e.expand(-1, -1, queries) for e in (edges.first, edges.last))
        return cls(first, last, None if bool(edges.valid.all()) else edges.valid)

    def bind(self, extent: Extent) -> Mask:
        """Compare sizes, and give every query its numbers."""
        batch, heads, queries, keys = extent
        for name, numbers in (("first", self.first), ("last", self.last)):
            _require_sizes(name, numbers, "[batch, heads, query]", (batch, heads, queries), 3)
        if self.valid is not None:
            _require_sizes("valid", self.valid, "[batch, key]", (batch, keys), 1)
        # Copies, so that what is written into the tensors later changes no map.
        first, last = (
            numbers.expand(-1, -1, queries).to(torch.long).clone()
            for numbers in (self.first, self.last)
        )
        return Spans(first, last, None if self.valid is None else self.valid.clone())

    def tile(self, places: Places) -> Tensor:
        """Compare the keys with both ends."""
        visible = (places.key >= _at(self.first, places)) & (places.key <= _at(self.last, places))
        if self.valid is not None:
            samples = places.batch if len(self.valid) != 1 else 0
            visible = visible & self.valid[samples, places.key]
        return visible

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Reach from the earliest first key of these queries to the latest last."""
        reach, rows = self._reach, slice(first_query, last_query + 1)
        start = max(int(reach.earliest_first[rows].amin()), reach.first_valid)
        stop = min(int(reach.latest_last[rows].amax()), reach.last_valid) + 1
        return ordered(min(max(start, 0), keys), min(max(stop, 0), keys))

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Do all these queries start before these keys and stop behind, and are the keys valid?"""
        reach, rows = self._reach, slice(first_query, last_query + 1)
        return (
            int(reach.latest_first[rows].amax()) <= first_key
            and int(reach.earliest_last[rows].amin()) >= last_key
            and reach.invalid_among(first_key, last_key) == 0
        )

    @cached_property
    def _reach(self) -> "_Reach":
        first, last = torch.broadcast_tensors(self.first, self.last)
        return _reach(first, last, self.valid)

    def __repr__(self) -> str:
        """Name it without its numbers."""
        batch, heads, queries = torch.broadcast_shapes(self.first.shape, self.last.shape)
        return f"Spans(batch={batch}, heads={heads}, queries={queries})"


class _Reach(NamedTuple):
    """How far the spans of each query reach over all samples and heads, in main memory."""

    earliest_first: Int[Tensor, " query"]
    latest_first: Int[Tensor, " query"]
    earliest_last: Int[Tensor, " query"]
    latest_last: Int[Tensor, " query"]
    first_valid: int
    last_valid: int
    invalid_before: Int[Tensor, " keys_and_one"] | None

    def invalid_among(self, first_key: int, last_key: int) -> int:
        """Return how many of these keys are not valid in every sample."""
        if self.invalid_before is None:
            return 0
        return int(self.invalid_before[last_key + 1] - self.invalid_before[first_key])


def _reach(
    first: Int[Tensor, "batch heads query"],
    last: Int[Tensor, "batch heads query"],
    valid: Bool[Tensor, "samples key"] | None,
) -> _Reach:
    most = torch.iinfo(torch.long).max
    first, last = first.to("cpu", torch.long), last.to("cpu", torch.long)
    blind = first > last
    edges = (
        first.masked_fill(blind, most).amin((0, 1)),
        first.amax((0, 1)),
        last.amin((0, 1)),
        last.masked_fill(blind, -1).amax((0, 1)),
    )
    if valid is None:
        return _Reach(*edges, first_valid=0, last_valid=most, invalid_before=None)
    valid = valid.cpu()
    found = valid.any(0).nonzero().flatten().tolist() or [0, -1]
    invalid_before = pad((~valid).any(0).cumsum(0), (1, 0))
    return _Reach(*edges, found[0], found[-1], invalid_before)


class _Edges(NamedTuple):
    """What a table says: where its rows begin and end, what they hold, which keys are seen."""

    first: Int[Tensor, "batch heads query"]
    last: Int[Tensor, "batch heads query"]
    seen: Int[Tensor, "batch heads query"]
    valid: Bool[Tensor, "batch key"]


def _read(
    block_of: Callable[[Block], Tensor], sizes: Sequence[int], device: torch.device
) -> _Edges:
    batch, heads, queries, keys = sizes
    first, last, seen = (
        torch.zeros((batch, heads, queries), dtype=torch.long, device=device) for _ in range(3)
    )
    valid = torch.zeros((batch, keys), dtype=torch.bool, device=device)
    for block in _blocks(sizes):
        words = _words(block_of(block))
        seen[block] = _count(words)
        blind = seen[block] == 0
        first[block] = _first(words).masked_fill(blind, 0)
        last[block] = _last(words).masked_fill(blind, -1)
        valid[block[0]] |= words.view(torch.uint8).amax((1, 2))[:, :keys].bool()
    return _Edges(first, last, seen, valid)


def _blocks(sizes: Sequence[int]) -> Iterator[Block]:
    """Yield samples, heads and queries of blocks of about a million pairs."""
    batch, heads, queries, keys = sizes
    parts = (
        split(batch, CELLS // max(heads * queries * keys, 1)),
        split(heads, CELLS // max(queries * keys, 1)),
        split(queries, CELLS // max(keys, 1)),
    )
    for some in product(*parts):
        samples, heads_of_block, lines = (slice(part.start, part.stop) for part in some)
        yield samples, heads_of_block, lines


def _words(
    block: Bool[Tensor, "batch heads query key"],
) -> Int[Tensor, "batch heads query word"]:
    """Return eight pairs, and zeros behind the last, as one number: an eighth of the work."""
    keys = block.shape[-1]
    padded = block.new_zeros((*block.shape[:-1], (keys // 8 + 1) * 8))
    padded[..., :keys] = block
    return padded.view(torch.long)


def _count(words: Int[Tensor, "*rows word"]) -> Int[Tensor, "*rows"]:
    """Return how many bytes of each row are 1."""
    # The bytes of a sum of words are eight sums, as long as none of them overflows.
    sums = torch.stack([part.sum(-1) for part in words.split(MOST_IN_A_BYTE, dim=-1)], dim=-1)
    return sums.view(torch.uint8).sum(-1, dtype=torch.long)


def _first(words: Int[Tensor, "*rows word"]) -> Int[Tensor, "*rows"]:
    """Return the number of the first byte of each row that is 1."""
    word = _first_one(words != 0)
    return 8 * word + _first_one(_bytes_of(words, word))


def _last(words: Int[Tensor, "*rows word"]) -> Int[Tensor, "*rows"]:
    """Return the number of the last byte of each row that is 1."""
    word = words.shape[-1] - 1 - _first_one((words != 0).flip(-1))
    return 8 * word + 7 - _first_one(_bytes_of(words, word).flip(-1))


def _first_one(marks: Tensor) -> Int[Tensor, "..."]:
    # Of equal bytes, max gives the first; it is much faster than argmax, and than either of bool.
    return marks.view(torch.uint8).max(-1).indices


def _bytes_of(words: Int[Tensor, "*rows word"], word: Int[Tensor, "*rows"]) -> Tensor:
    return words.gather(-1, word[..., None]).view(torch.uint8)


def _collapsed(table: Bool[Tensor, "batch heads query key"]) -> Tensor:
    """Return the table without the repetitions that `expand` makes."""
    for dim in range(3):
        if table.stride(dim) == 0 and table.shape[dim] > 1:
            table = table.narrow(dim, 0, 1)
    return table


def _at(numbers: Int[Tensor, "#batch #heads query"], places: Places) -> Int[Tensor, "..."]:
    batch, heads, _ = numbers.shape
    return numbers[
        places.batch if batch != 1 else 0, places.head if heads != 1 else 0, places.query
    ]


def _require_sizes(
    name: str, tensor: Tensor, form: str, sizes: tuple[int, ...], loose: int
) -> None:
    """Refuse other sizes than these; the first `loose` of them may be 1."""
    fits = all(
        have == want or (have == 1 and place < loose)
        for place, (have, want) in enumerate(zip(tensor.shape, sizes, strict=True))
    )
    if not fits:
        raise ShapeError(f"{name} must be {form} = {list(sizes)}; got {list(tensor.shape)}.")
