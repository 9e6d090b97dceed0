"""Sums and maxima of blocks of cells."""

from typing import Literal

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

How = Literal["sum", "max"]


def shrink(
    cells: Shaped[Tensor, "rows columns"], high: int, wide: int, how: How
) -> Shaped[Tensor, "down across"]:
    """Return the sum or the largest of each block of `high` × `wide` cells.

    The last blocks have the cells that remain. NaN in a block is NaN in its sum and its maximum.

    Example:
        >>> shrink(torch.tensor([[1, 2, 3], [4, 5, 6]]), 2, 2, "sum")
        tensor([[12,  9]])
    """
    # Rows first: whole lines are added, and little remains for the slower columns.
    return _shrink(_shrink(cells, 0, high, how), 1, wide, how)


def _shrink(cells: Tensor, dim: int, step: int, how: How) -> Tensor:
    size = cells.shape[dim]
    if step == 1 or not size:
        return cells
    whole = size // step * step
    parts = []
    if whole:
        parts.append(_reduce(cells.narrow(dim, 0, whole).unflatten(dim, (-1, step)), dim + 1, how))
    if whole < size:
        rest = cells.narrow(dim, whole, size - whole)
        parts.append(_reduce(rest, dim, how).unsqueeze(dim))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _reduce(cells: Tensor, dim: int, how: How) -> Tensor:
    return cells.amax(dim) if how == "max" else cells.sum(dim)


def heights(size: int, side: int) -> Int[Tensor, " blocks"]:
    """Return how many of `size` cells lie in each block of `side`.

    >>> heights(5, 2)
    tensor([2, 2, 1])
    """
    return (size - torch.arange(0, size, side)).clamp(max=side)
