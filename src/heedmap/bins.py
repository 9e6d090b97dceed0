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

    def gather(self, tile: Tensor, positions: range, dim: int, how: str) -> tuple[Tensor, slice]:
        """Return the sums (or, with ``how="amax"``, the largest cells) of a tile along `dim`.

        They come by block of neighbours, with a slice that says which blocks these are.
        """
        numbers = self.of(positions, tile.device)
        first, last = int(numbers[0]), int(numbers[-1])
        even = self.size // self.count if self.size % self.count == 0 else 0
        if even and positions.start % even == 0 and len(positions) % even == 0:
            parts = tile.unflatten(dim, (-1, even))
            found = parts.amax(dim + 1) if how == "amax" else _sum(parts, dim + 1)
            return found, slice(first, last + 1)
        shape = list(tile.shape)
        shape[dim] = last - first + 1
        if how == "sum":
            found = tile.new_zeros(shape).index_add(dim, numbers - first, tile)
        else:
            lined_up = [-1 if at == dim else 1 for at in range(tile.ndim)]
            index = (numbers - first).reshape(lined_up).expand_as(tile)
            found = tile.new_full(shape, -torch.inf).scatter_reduce(dim, index, tile, "amax")
        return found, slice(first, last + 1)


def _sum(parts: Tensor, dim: int) -> Tensor:
    """Return the sums along `dim`: of few neighbours, a product with ones is the faster way."""
    few = parts.shape[dim]
    if dim < parts.ndim - 1 or few > 16 or not parts.is_floating_point():
        return parts.sum(dim)
    return torch.mv(parts.reshape(-1, few), parts.new_ones(few)).view(parts.shape[:-1])
