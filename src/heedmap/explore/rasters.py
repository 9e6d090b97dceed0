"""A whole map at one level, put together from its tiles, for a page that cannot ask for more."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.explore.explorer import Explorer
from heedmap.explore.grid import TILE, zooms_of
from heedmap.explore.shrinking import heights, shrink
from heedmap.explore.tiles import EMPTY, HEADER

PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Raster:
    """A map as means and largest weights of blocks.

    Attributes:
        side: How many cells of a side a block has, a power of two.
        mean: The mean of each block.
        max: The largest weight in each.
    """

    side: int
    mean: Float[Tensor, "rows columns"]
    max: Float[Tensor, "rows columns"]


def side_within(queries: int, keys: int, pixels: int) -> int:
    """Return the smallest power of two in blocks of which a map has at most so many pixels.

    >>> side_within(100_000, 100_000, 2**18), side_within(20, 20, 2**18)
    (256, 1)
    """
    side = 1
    while -(-queries // side) * -(-keys // side) > max(1, pixels):
        side *= 2
    return side


def raster(
    explorer: Explorer, layer: int, head: int, side: int, waiting: Callable[[float], None]
) -> Raster:
    """Return a map in blocks of `side` cells, exactly.

    Args:
        explorer: Computes the tiles.
        layer: The layer.
        head: The head.
        side: A power of two.
        waiting: Called now and then with how far the pass over a long map has come.

    Cost: a pass over the map.
    """
    while not (progress := explorer.progress(layer, head))["exact"]:
        waiting(progress["done"])
        time.sleep(PAUSE_SECONDS)
    _, queries, keys = explorer.scene.layers[layer].weights.shape
    zooms = zooms_of(queries, keys)
    zoom = max(0, zooms - side.bit_length() + 1)
    finest = 2 ** (zooms - zoom)
    largest = _whole(explorer, (layer, head, "max"), zoom, queries, keys, finest)
    mean = _whole(explorer, (layer, head, "mean"), zoom, queries, keys, finest)
    # Levels end where a map is one tile; a raster may be coarser.
    further = side // finest
    cells = heights(queries, finest)[:, None] * heights(keys, finest)
    areas = heights(queries, side)[:, None] * heights(keys, side)
    sums = shrink(mean.double() * cells, further, further, "sum")
    return Raster(side, (sums / areas).float(), shrink(largest, further, further, "max"))


def _whole(
    explorer: Explorer,
    name: tuple[int, int, str],
    zoom: int,
    queries: int,
    keys: int,
    side: int,
) -> Float[Tensor, "rows columns"]:
    down, across = (max(1, -(-size // (side * TILE))) for size in (queries, keys))
    lines = [
        torch.cat([_decode(explorer.tile(*name, zoom, x, y)) for x in range(across)], dim=1)
        for y in range(down)
    ]
    # The one tile of a map without positions has a size all the same.
    return torch.cat(lines)[: -(-queries // side), : -(-keys // side)]


def _decode(tile: bytes) -> Float[Tensor, "rows columns"]:
    _, kind, _, rows, columns, _, _ = HEADER.unpack_from(tile)
    if kind == EMPTY or not rows * columns:
        return torch.zeros(rows, columns)
    values = torch.frombuffer(bytearray(tile), dtype=torch.float32, offset=HEADER.size)
    return values.view(rows, columns)
