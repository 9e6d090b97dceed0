"""Blocks of neighbouring positions: rows and columns of a picture that is smaller than a map."""

import torch
from torch import Tensor


class Bins:
    """Where `size` positions fall into `count` blocks of neighbours."""

    def __init__(self, size: int, count: int) -> None:
        """Remember the two; nothing is computed."""
        self.size, self.count = size, count

    def of(self, positions: range, device: torch.device) -> Tensor:
        """Return the block that each position falls into."""
        numbers = torch.arange(positions.start, positions.stop, device=device)
        # The greatest i with ⌊i·size/count⌋ ≤ position.
        return ((numbers + 1) * self.count - 1).div(self.size, rounding_mode="floor")

    def counts(self, device: torch.device) -> Tensor:
        """Return how many positions each block has."""
        edges = torch.arange(self.count + 1, device=device) * self.size
        return edges.div(max(self.count, 1), rounding_mode="floor").diff()

    def place(self, positions: range) -> slice:
        """Return which blocks these positions fall into; there must be some."""
        first, last = (
            ((at + 1) * self.count - 1) // self.size for at in (positions.start, positions.stop - 1)
        )
        return slice(first, last + 1)

    def each(self, positions: range) -> int:
        """Return how many of these neighbours fall into each block, 0 where that differs."""
        place = self.place(positions)
        if place.stop - place.start == 1:
            return len(positions)
        even, rest = divmod(self.size, self.count)
        return 0 if rest or positions.start % even or len(positions) % even else even

    def gather(self, tile: Tensor, positions: range, dim: int, how: str) -> tuple[Tensor, slice]:
        """Return the sums (or, with ``how="amax"``, the largest cells) of a tile along `dim`.

        They come by block of neighbours, with a slice that says which blocks these are.
        """
        place = self.place(positions)
        if each := self.each(positions):
            parts = tile.unflatten(dim, (-1, each))
            return (parts.amax(dim + 1) if how == "amax" else _sum(parts, dim + 1)), place
        numbers, first = self.of(positions, tile.device), place.start
        shape = list(tile.shape)
        shape[dim] = place.stop - first
        if how == "sum":
            found = tile.new_zeros(shape).index_add(dim, numbers - first, tile)
        else:
            lined_up = [-1 if at == dim else 1 for at in range(tile.ndim)]
            index = (numbers - first).reshape(lined_up).expand_as(tile)
            found = tile.new_full(shape, -torch.inf).scatter_reduce(dim, index, tile, "amax")
        return found, place


def _sum(parts: Tensor, dim: int) -> Tensor:
    """Return the sums along `dim`: of few neighbours, a product with ones is the faster way."""
    few = parts.shape[dim]
    if dim < parts.ndim - 1 or few > 16 or not parts.is_floating_point():
        return parts.sum(dim)
    return torch.mv(parts.reshape(-1, few), parts.new_ones(few)).view(parts.shape[:-1])
