"""Masks as stretches of keys, which can be put one below the other and cut."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedmap.masks import Both, Causal, Extent, Mask, Padding, Spans, Visible, Window
from heedmap.places import CELLS, Places


class Stretches(NamedTuple):
    """Which keys each query sees: from the first to the last, of those that are valid."""

    first: Int[Tensor, "#batch #heads query"]
    last: Int[Tensor, "#batch #heads query"]
    valid: Bool[Tensor, "#batch key"] | None

    def written(self, keys: int) -> int:
        """Return how many keys there are up to the last one that anybody sees."""
        last = int(self.last.max()) if self.last.numel() else -1
        if self.valid is not None:
            seen = self.valid[:, : last + 1].any(0).nonzero()
            last = int(seen[-1]) if len(seen) else -1
        return min(last + 1, keys)

    def tight(self) -> "Stretches":
        """Return the same with each stretch from a valid key to a valid key; 0 to −1 for none."""
        first, last, valid = self
        if valid is not None and valid.numel():
            batch, keys = max(len(first), len(valid)), valid.shape[1]
            valid = valid.expand(batch, -1)
            numbers = torch.arange(keys, device=valid.device)
            before = torch.where(valid, numbers, -1).cummax(1).values
            behind = torch.where(valid, numbers, keys).flip(1).cummin(1).values.flip(1)
            outside = (first > last) | (last < 0) | (first >= keys)
            first, last = (_looked_up(*pair) for pair in ((behind, first), (before, last)))
            first, last = first.masked_fill(outside, 0), last.masked_fill(outside, -1)
        empty = first > last
        return Stretches(first.masked_fill(empty, 0), last.masked_fill(empty, -1), valid)


def _looked_up(table: Tensor, places: Tensor) -> Tensor:
    """Return the entries of a table ``[batch, key]`` at places ``[batch, heads, query]``."""
    places = places.expand(len(table), -1, -1).clamp(0, table.shape[1] - 1)
    return table.gather(1, places.flatten(1)).view(places.shape)


def stretches_of(mask: Mask | None, extent: Extent, device: torch.device) -> Stretches | None:
    """Return a mask as stretches, None where it has no such form."""
    rows = torch.arange(extent.queries, device=device)[None, None]
    whole = Stretches(torch.zeros_like(rows), torch.full_like(rows, extent.keys - 1), None)
    if mask is None:
        return whole
    if isinstance(mask, Both):
        parts = [stretches_of(part, extent, device) for part in (mask.first, mask.second)]
        return None if None in parts else _intersection(*parts)  # pyright: ignore
    mask = mask.bind(extent)
    if isinstance(mask, Causal | Window):
        first, last = whole.first, whole.last
        if isinstance(mask, Causal):
            last = torch.minimum(last, rows + mask.offset)
        elif mask.before is not None:
            first = torch.maximum(first, rows + mask.offset - mask.before)
        if isinstance(mask, Window) and mask.after is not None:
            last = torch.minimum(last, rows + mask.offset + mask.after)
        return whole._replace(first=first, last=last)
    if isinstance(mask, Padding):
        return whole._replace(valid=mask.valid)
    if isinstance(mask, Chosen):
        return None
    if not isinstance(mask, Spans):
        mask = _as_spans(mask, extent, device)
        if mask is None:
            return None
    return Stretches(mask.first, mask.last, mask.valid)


def _as_spans(mask: Mask, extent: Extent, device: torch.device) -> Spans | None:
    """Read a mask that only its cells tell of, where these are few."""
    batch, heads, queries, keys = extent
    if isinstance(mask, Visible) or batch * heads * queries * keys > CELLS:
        return None
    return spans_of_cells(mask, extent, device)


def spans_of_cells(mask: Mask, extent: Extent, device: torch.device) -> Spans | None:
    """Return a mask as spans by asking it about each cell, or None if it has no such form.

    Cost: O(batch · heads · query · key) time; memory of about a million cells.
    """
    heads, columns = extent.heads, torch.arange(extent.keys, device=device)

    def block_of(block: tuple[slice, slice, slice]) -> Tensor:
        samples, some, rows = (
            torch.arange(size, device=device)[part]
            for size, part in zip(extent, block, strict=False)
        )
        matrices = (samples[:, None] * heads + some).flatten()
        tile = mask.tile(Places.of_block(matrices, heads, rows, columns))
        tile = tile.expand(len(matrices), len(rows), extent.keys)
        return tile.unflatten(0, (len(samples), len(some)))

    return Spans.of_blocks(block_of, extent, device)


def _intersection(one: Stretches, other: Stretches) -> Stretches:
    valid = one.valid
    if other.valid is not None:
        valid = other.valid if valid is None else valid & other.valid
    return Stretches(
        torch.maximum(one.first, other.first), torch.minimum(one.last, other.last), valid
    )


@dataclass(frozen=True, eq=False)
class Chosen(Mask):
    """Some heads and queries of another mask, which is bound already.

    Args:
        base: The mask of all heads and queries.
        heads: The numbers of the heads.
        queries: The numbers of the queries.
    """

    base: Mask
    heads: Int[Tensor, " heads"]
    queries: Int[Tensor, " query"]

    def bind(self, extent: Extent) -> Mask:
        """Fit: the base was bound to the whole."""
        del extent
        return self

    def tile(self, places: Places) -> Tensor:
        """Ask the base under its own numbers."""
        head, query = self.heads[places.head], self.queries[places.query]
        return self.base.tile(places._replace(head=head, query=query))

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Ask the base about all from the least to the greatest query."""
        return self.base.key_range(*self._ends(first_query, last_query), keys)

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Ask the base about all from the least to the greatest query."""
        return self.base.covers(*self._ends(first_query, last_query), first_key, last_key)

    def _ends(self, first_query: int, last_query: int) -> tuple[int, int]:
        some = self.queries[first_query : last_query + 1]
        return int(some.min()), int(some.max())
