"""Where in a problem a block, or a handful of single cells, lies."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

Index = range | Tensor
"""Which positions: a range, or an integer tensor of one dimension."""


CELLS = 1 << 20
"""About how many cells a block has: large enough for fast products, small enough for a cache."""

SIDE = 1024
"""How many rows a block has at most."""


LEAST_SIDE = 64
"""How many rows or columns a block has at least, where there are that many."""


class Block(NamedTuple):
    """A block of a stack of matrices, by ranges."""

    matrices: range
    rows: range
    columns: range


class Places(NamedTuple):
    """Sample, head, query and key numbers that broadcast against each other.

    A block has them along three dimensions (matrices, rows, columns); a list of single cells has
    all four along one.
    """

    batch: Int[Tensor, "#matrices #rows #columns"]
    head: Int[Tensor, "#matrices #rows #columns"]
    query: Int[Tensor, "#matrices #rows #columns"]
    key: Int[Tensor, "#matrices #rows #columns"]

    @classmethod
    def of_block(cls, matrices: Tensor, heads: int, rows: Tensor, columns: Tensor) -> "Places":
        """Return the places of a block, given the numbers along each of its dimensions."""
        lead = matrices[:, None, None]
        return cls(lead // heads, lead % heads, rows[None, :, None], columns[None, None, :])

    @classmethod
    def of_cells(cls, matrices: Tensor, heads: int, rows: Tensor, columns: Tensor) -> "Places":
        """Return the places of single cells, given three number tensors of equal length."""
        return cls(matrices // heads, matrices % heads, rows, columns)


def look_up(
    table: Shaped[Tensor, "#batch #heads #query #key"], places: Places
) -> Shaped[Tensor, "..."]:
    """Return the entries of `table` at `places`; sizes of 1 stand for all."""
    if places.query.ndim == 1:
        return table[
            tuple(
                number if size > 1 else torch.zeros_like(number)
                for number, size in zip(places, table.shape, strict=True)
            )
        ]
    batch, heads, queries, keys = table.shape
    samples = (places.batch if batch > 1 else torch.zeros_like(places.batch)).flatten().tolist()
    head = (places.head if heads > 1 else torch.zeros_like(places.head)).flatten().tolist()
    pairs = list(zip(samples, head, strict=True))
    if len(set(pairs)) == 1:
        pairs = pairs[:1]
    if not pairs:
        return table.new_zeros((0, *(n for n in (places.query.numel(), places.key.numel()))))
    rows = places.query.flatten() if queries > 1 else None
    columns = places.key.flatten() if keys > 1 else None
    return torch.stack([_cut(table[pair], rows, columns) for pair in pairs])


def _cut(
    matrix: Shaped[Tensor, "#query #key"],
    rows: Tensor | None,
    columns: Tensor | None,
) -> Shaped[Tensor, "#rows #columns"]:
    cut = matrix if rows is None else matrix.index_select(0, rows)
    return cut if columns is None else cut.index_select(1, columns)


def pick(tensor: Shaped[Tensor, "..."], index: Index, dim: int) -> Shaped[Tensor, "..."]:
    """Return the entries at `index` along `dim`: a view for a range, else a copy."""
    if isinstance(index, range):
        if index == range(tensor.shape[dim]):
            return tensor
        return tensor[(slice(None),) * dim + (slice(index.start, index.stop, index.step),)]
    return tensor.index_select(dim, index.to(tensor.device))


def as_numbers(index: Index, device: torch.device) -> Int[Tensor, " positions"]:
    """Return an index as numbers on `device`."""
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step, device=device)
    return index.to(device)


def compose(outer: Index, inner: Index) -> Index:
    """Return where `inner` lands, if it counts within `outer`.

    >>> compose(range(10, 20), range(2, 4))
    range(12, 14)
    """
    if isinstance(inner, range):
        if isinstance(outer, range):
            start, stop, step = inner.start, inner.stop, inner.step
            return outer[start:stop:step]
        return outer[inner.start : inner.stop : inner.step]
    if isinstance(outer, range):
        return inner * outer.step + outer.start
    return outer[inner.to(outer.device)]


def blocks(matrices: int, rows: int, columns: int, wide: bool = False) -> Iterator[Block]:
    """Yield blocks of about a million cells that cover a stack of matrices, strip by strip.

    Blocks are about square; or, if `wide`, as low as still makes for fast products.

    >>> [(len(b.matrices), len(b.rows), len(b.columns)) for b in blocks(1, 2, 1_000_000)]
    [(1, 2, 524288), (1, 2, 475712)]
    """
    for some, lines in strips(matrices, rows, columns, wide):
        for across in split(columns, block_width(len(some) * len(lines))):
            yield Block(some, lines, across)


def strips(
    matrices: int, rows: int, columns: int, wide: bool = False
) -> Iterator[tuple[range, range]]:
    """Yield matrices and rows of strips of blocks; small matrices share a strip."""
    high = min(rows, block_width(columns) if wide else SIDE)
    across = min(columns, block_width(high))
    for some in split(matrices, CELLS // max(high * across, 1)):
        for lines in split(rows, high):
            yield some, lines


def block_width(lines: int) -> int:
    """Return how many columns a block of so many lines should have."""
    return max(CELLS // max(lines, 1), LEAST_SIDE)


def spread(numbers: range) -> slice:
    """Return the slice that covers a range of step 1."""
    return slice(numbers.start, numbers.stop)


def split(size: int, step: int) -> Iterator[range]:
    """Yield ranges of at most `step` numbers that cover 0 to `size`.

    >>> list(split(5, 2))
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    step = max(step, 1)
    for start in range(0, size, step):
        yield range(start, min(start + step, size))
