"""Which cells a tile of a level shows: levels, tiles and their edges, in numbers alone."""

from dataclasses import dataclass

from heedmap.errors import ArgumentError

TILE = 256
"""How many pixels a side of a tile has."""

THUMBNAIL = 32
"""How many pixels a side of the picture of a whole map has at most."""


def zooms_of(queries: int, keys: int) -> int:
    """Return the deepest zoom, at which one pixel is one weight.

    >>> zooms_of(100_000, 100_000), zooms_of(256, 3), zooms_of(0, 0)
    (9, 0, 0)
    """
    return max(0, (max(queries, keys, 1) - 1).bit_length() - 8)


@dataclass(frozen=True)
class Place:
    """The cells that one tile shows.

    Attributes:
        rows: The queries.
        columns: The keys.
        side: How many cells of a side one pixel stands for.
    """

    rows: range
    columns: range
    side: int

    @property
    def size(self) -> tuple[int, int]:
        """How many pixels lie inside the matrix: down and across."""
        down, across = (-(-len(cells) // self.side) for cells in (self.rows, self.columns))
        return down, across


def place_of(queries: int, keys: int, zoom: int, x: int, y: int) -> Place:
    """Return the cells of a tile.

    Raises:
        ArgumentError: for a tile that no level has.

    Example:
        >>> place_of(1000, 600, 1, 1, 0)
        Place(rows=range(0, 512), columns=range(512, 600), side=2)
    """
    zooms = zooms_of(queries, keys)
    require_number("zoom", zoom, zooms + 1)
    side = 2 ** (zooms - zoom)
    step = TILE * side
    for name, number, size in (("x", x, keys), ("y", y, queries)):
        # Even a map without cells has one tile, an empty one.
        require_number(name, number, max(1, -(-size // step)))
    rows, columns = (
        range(min(at * step, size), min((at + 1) * step, size))
        for at, size in ((y, queries), (x, keys))
    )
    return Place(rows, columns, side)


def thumbnail_place(queries: int, keys: int) -> Place:
    """Return all cells, on at most 32 × 32 pixels of blocks that tile those of zoom 0.

    >>> thumbnail_place(1000, 600).size
    (32, 19)
    """
    side = 2 ** zooms_of(queries, keys) * (TILE // THUMBNAIL)
    return Place(range(queries), range(keys), side)


def require_number(name: str, number: int, count: int) -> None:
    """Refuse a number that is not one of so many, counted from 0.

    Raises:
        ArgumentError: naming it and the numbers that there are.
    """
    if not 0 <= number < count:
        there_are = f"0 to {count - 1}" if count else "a number, and there is none"
        raise ArgumentError(f"{name} must be {there_are}; got {number}.")
