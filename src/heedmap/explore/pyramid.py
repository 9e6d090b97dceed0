"""The sums and maxima of small blocks of a whole map, of which its low levels are made."""

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.explore import pictures
from heedmap.explore.grid import Place
from heedmap.explore.heads import Head
from heedmap.explore.pictures import Statistic
from heedmap.explore.shrinking import shrink
from heedmap.places import CELLS, split

LEAST_SIDE = 16
"""Levels whose pixels stand for fewer cells a side are quick to make when they are looked at."""

PIXELS = 10 << 20
"""How many pixels the base has at most; each takes eight bytes."""

ROWS = 256
"""How many rows are made between two looks at what else there is to do."""


def base_side(queries: int, keys: int) -> int:
    """Return how many cells of a side a pixel of the base stands for.

    >>> base_side(100_000, 100_000), base_side(20_000, 20_000)
    (32, 16)
    """
    side = LEAST_SIDE
    while -(-queries // side) * -(-keys // side) > PIXELS:
        side *= 2
    return side


class Pyramid:
    """A map at the level of its base, filled line by line; lower levels are made of that.

    Attributes:
        side: How many cells of a side a pixel of the base stands for.
        pixels: The sums, and the maxima, of the blocks.
        lines: How many lines of pixels are filled.
    """

    pixels: Float[Tensor, "2 down across"]

    def __init__(self, queries: int, keys: int) -> None:
        """Make room; 80 MB for 100,000 positions."""
        self.queries, self.keys, self.side = queries, keys, base_side(queries, keys)
        down, across = (-(-size // self.side) for size in (queries, keys))
        self.pixels = torch.zeros((2, down, across), dtype=torch.float32)
        self.lines = 0

    @property
    def done(self) -> float:
        """Which part of the map is through, 0 to 1."""
        return self.lines / self.pixels.shape[1]

    def fill_some(self, head: Head) -> None:
        """Fill the next lines.

        Raises:
            Stopped: if they are not wanted any more; nothing is filled then.

        Cost: O(keys) time for each of about 256 rows.
        """
        side, first = self.side, self.lines
        last = min(first + max(ROWS // side, 1), self.pixels.shape[1])
        rows = range(first * side, min(last * side, self.queries))
        made = head.sums_and_maxima(rows, side, side)
        if made is None:
            made = pictures.exact(head, Place(rows, range(self.keys), side), ("sum", "max"))
        for kept, new in zip(self.pixels, made, strict=True):
            kept[first:last] = new
        self.lines = last

    def picture(self, place: Place, statistic: Statistic) -> Float[Tensor, "down across"] | None:
        """Return the pixels of a place, or None where they are finer or not filled yet."""
        side = self.side
        if place.side < side or place.rows.stop > self.lines * side:
            return None
        how, step = pictures.how_of(statistic), place.side // side
        base = self._cut(int(how == "max"), place.rows, place.columns)
        down = place.size[0]
        parts = [
            shrink(base[some.start * step : some.stop * step].double(), step, step, how)
            for some in split(down, CELLS // max(step * base.shape[1], 1))
        ]
        return pictures.finished(torch.cat(parts), place, statistic)

    def inner(self, rows: range, columns: range) -> tuple[range, range] | None:
        """Return the largest part of a block that whole pixels cover, None if there is none."""
        side, filled = self.side, self.lines * self.side
        ends = []
        for some, size in ((rows, self.queries), (columns, self.keys)):
            last = some.stop if some.stop == size else some.stop // side * side
            ends.append(range(-(-some.start // side) * side, last))
        down, across = ends
        down = range(down.start, min(down.stop, filled))
        return (down, across) if down and across else None

    def total(self, rows: range, columns: range) -> Float[Tensor, ""]:
        """Return the sum of a block that whole pixels cover."""
        return self._cut(0, rows, columns).sum(dtype=torch.float64)

    def strongest(self, rows: range, columns: range) -> tuple[range, range]:
        """Return the cells of the pixel that holds the largest weight of such a block."""
        maxima, side = self._cut(1, rows, columns), self.side
        down, across = divmod(int(maxima.argmax()), maxima.shape[1])
        first, left = rows.start + down * side, columns.start + across * side
        return (
            range(first, min(first + side, rows.stop)),
            range(left, min(left + side, columns.stop)),
        )

    def _cut(self, which: int, rows: range, columns: range) -> Tensor:
        side = self.side
        down, across = (
            slice(some.start // side, -(-some.stop // side)) for some in (rows, columns)
        )
        return self.pixels[which, down, across]
