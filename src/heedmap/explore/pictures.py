"""The pixels of a tile, made of all its cells or of a sample of its queries."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.explore.grid import Place
from heedmap.explore.heads import Head
from heedmap.explore.shrinking import How, heights, shrink
from heedmap.explore.softmax import CELLS
from heedmap.explore.stopping import require_wanted
from heedmap.places import Index, split

Statistic = Literal["mean", "max", "sum"]
STATISTICS: tuple[Statistic, ...] = "mean", "max", "sum"

STEP = 256
"""How many rows a block has at least, where there are that many: a product of fewer is slow."""


def how_of(statistic: Statistic) -> How:
    """Return what blocks are shrunk by; a mean is made of a sum."""
    return "max" if statistic == "max" else "sum"


def finished(
    pixels: Float[Tensor, "down across"], place: Place, statistic: Statistic
) -> Float[Tensor, "down across"]:
    """Return sums as the means of the cells that there are, sums and maxima as they are."""
    return pixels / _areas(place) if statistic == "mean" else pixels


def exact(head: Head, place: Place, hows: Sequence[How]) -> list[Float[Tensor, "down across"]]:
    """Return the sums and the maxima of all blocks of a place, as asked.

    Raises:
        Stopped: if they are not wanted any more.

    Cost: O(cells) time, a block of them in memory.
    """
    down, across = place.size
    side, columns = place.side, place.columns
    pixels = [torch.zeros((down, across), dtype=torch.float64) for _ in hows]
    for lines in _bands(place):
        rows = place.rows[lines.start * side : lines.stop * side]
        for some in _stretches(head, place, rows):
            require_wanted()
            cells = head.tile(rows, columns[some.start * side : some.stop * side])
            for made, how in zip(pixels, hows, strict=True):
                made[lines.start : lines.stop, some.start : some.stop] = shrink(
                    cells, side, side, how
                )
    return pixels


def sampled(
    head: Head, place: Place, statistic: Statistic, count: int
) -> Float[Tensor, "down across"]:
    """Return a picture made of `count` queries of each line of pixels, and of all their keys.

    Raises:
        Stopped: if it is not wanted any more.

    Cost: O(lines · count · keys) time.
    """
    queries, how = _spread(place, count), how_of(statistic)
    made = None
    if place.columns == range(head.keys):
        made = head.sums_and_maxima(queries.flatten(), count, place.side)
    if made is not None:
        pixels = made[int(how == "max")].double()
    else:
        pixels = _read(head, place, queries, how)
    if statistic == "max":
        return pixels
    means = pixels / (count * heights(len(place.columns), place.side))
    return means if statistic == "mean" else means * _areas(place)


def _read(
    head: Head, place: Place, queries: Int[Tensor, "down count"], how: How
) -> Float[Tensor, "down across"]:
    """Shrink what some queries of each line of pixels give to the keys of a place."""
    down, count = queries.shape
    side, columns = place.side, place.columns
    pixels = torch.zeros(place.size, dtype=torch.float64)
    for lines in split(down, max(STEP // count, 1)):
        rows = queries[lines.start : lines.stop].flatten()
        for some in _stretches(head, place, rows):
            require_wanted()
            cells = head.tile(rows, columns[some.start * side : some.stop * side])
            pixels[lines.start : lines.stop, some.start : some.stop] = shrink(
                cells, count, side, how
            )
    return pixels


def _bands(place: Place) -> Iterator[range]:
    """Yield lines of pixels, some at a time."""
    high = max(STEP, CELLS // max(len(place.columns), 1))
    return split(place.size[0], max(high // place.side, 1))


def _stretches(head: Head, place: Place, rows: Index) -> Iterator[range]:
    """Yield columns of pixels in which these rows may be other than 0, some at a time."""
    side, columns = place.side, place.columns
    ends = (min(max(end, columns.start), columns.stop) for end in head.column_range(rows))
    start, stop = ((end - columns.start) for end in ends)
    if start >= stop:
        return
    start, stop = start // side, -(-stop // side)
    for some in split(stop - start, CELLS // max(len(rows), 1) // side):
        yield range(start + some.start, start + some.stop)


def _spread(place: Place, count: int) -> Tensor:
    """Return the numbers of `count` queries for each line of pixels, evenly spread over it.

    Where a line has fewer, some stand twice.
    """
    high = heights(len(place.rows), place.side)[:, None]
    starts = torch.arange(place.rows.start, place.rows.stop, place.side)[:, None]
    return starts + (2 * torch.arange(count) + 1) * high // (2 * count)


def _areas(place: Place) -> Tensor:
    down, across = (heights(len(cells), place.side) for cells in (place.rows, place.columns))
    return down[:, None] * across
