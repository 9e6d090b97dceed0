"""Masks as one block of them is seen: its queries and keys are counted from 0."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from heedmap.masks import Causal, Documents, Extent, Mask, Padding, Spans, Visible, Window, parts_of
from heedmap.places import Places


def seen_from(mask: Mask | None, queries: range, keys: range) -> Mask | None:
    """Return what a bound mask shows of a block; None where it shows all of it.

    The parts of it that kernels know stay of their kind.

    Args:
        mask: Bound to the whole sequence.
        queries: Which of its queries, at least one.
        keys: Which of its keys, at least one.
    """
    ends = queries[0], queries[-1], keys[0], keys[-1]
    cut: Mask | None = None
    for part in parts_of(mask):
        if not part.covers(*ends):
            piece = _cut(part, queries, keys)
            cut = piece if cut is None else cut & piece
    return cut


def _cut(mask: Mask, queries: range, keys: range) -> Mask:
    rows, columns = slice(queries.start, queries.stop), slice(keys.start, keys.stop)
    # Whoever makes a subclass of these may mean something else by it.
    if type(mask) in (Causal, Window):
        assert isinstance(mask, Causal | Window)
        return replace(mask, alignment=mask.offset + queries.start - keys.start)
    if type(mask) is Padding:
        return Padding(mask.valid[:, columns])
    if type(mask) is Documents:
        assert mask.key_ids is not None, "bind the mask before it is used"
        return Documents(mask.query_ids[:, rows], mask.key_ids[:, columns])
    if type(mask) is Spans:
        first, last = (ends[..., rows] - keys.start for ends in (mask.first, mask.last))
        return Spans(first, last, None if mask.valid is None else mask.valid[:, columns])
    if type(mask) is Visible:
        return Visible(cut_table(mask.table, queries, keys))
    return Shifted(mask, queries.start, keys.start)


def cut_table(table: Tensor, queries: range, keys: range) -> Tensor:
    """Return a block of ``[batch, heads, query, key]``, where sizes of 1 stand for all."""
    for dim, index in ((2, queries), (3, keys)):
        if table.shape[dim] > 1:
            table = table.narrow(dim, index.start, len(index))
    return table


@dataclass(frozen=True, eq=False)
class Shifted(Mask):
    """What a bound mask shows of the block that begins at a query and a key."""

    whole: Mask
    first_query: int
    first_key: int

    def bind(self, extent: Extent) -> Mask:
        """Stay as it is: the whole mask is bound."""
        del extent
        return self

    def tile(self, places: Places) -> Tensor:
        """Ask the whole mask under its own numbers."""
        return self.whole.tile(
            places._replace(query=places.query + self.first_query, key=places.key + self.first_key)
        )

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Ask the whole mask, and cut to the block."""
        own, at = self.first_query, self.first_key
        start, stop = self.whole.key_range(first_query + own, last_query + own, at + keys)
        start, stop = (min(max(end - at, 0), keys) for end in (start, stop))
        return start, max(start, stop)

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Ask the whole mask under its own numbers."""
        own, at = self.first_query, self.first_key
        return self.whole.covers(first_query + own, last_query + own, first_key + at, last_key + at)


@dataclass(frozen=True, eq=False)
class Picked(Mask):
    """What a bound mask shows of some matrices, rows and columns, each one head of one sample.

    Where `paired`, each matrix is a single cell: rows and columns say which.
    """

    whole: Mask
    heads: int
    matrices: Int[Tensor, " matrices"]
    rows: Int[Tensor, " rows"]
    columns: Int[Tensor, " columns"]
    paired: bool = False

    def bind(self, extent: Extent) -> Mask:
        """Stay as it is: the whole mask is bound."""
        del extent
        return self

    def tile(self, places: Places) -> Tensor:
        """Ask the whole mask under its own numbers."""
        if self.paired:
            cells = Places.of_cells(self.matrices, self.heads, self.rows, self.columns)
            return self.whole.tile(cells)[places.batch]
        matrices = self.matrices[places.head]
        return self.whole.tile(
            Places(
                matrices // self.heads,
                matrices % self.heads,
                self.rows[places.query],
                self.columns[places.key],
            )
        )


def as_positions(index: range | Tensor) -> Int[Tensor, " positions"]:
    """Return an index as numbers in main memory."""
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step)
    return index.cpu()
