"""What tests of the live map share: scenes, tiles taken apart, and pictures of dense matrices."""

import struct
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedmap import AttentionMap
from heedmap.axes import Axis
from heedmap.explore.grid import zooms_of
from heedmap.explore.scene import Scene, SceneLayer


class Tile(NamedTuple):
    """What stands in a tile."""

    kind: int
    exact: bool
    rows: int
    columns: int
    largest: float
    values: Tensor | None


def taken_apart(tile: bytes) -> Tile:
    magic, kind, exact, rows, columns, nothing, largest = struct.unpack("<4sBBHHHf", tile[:16])
    assert (magic, nothing) == (b"HMT1", 0)
    assert kind in (0, 2)
    assert exact in (0, 1)
    assert len(tile) == 16 + (4 * rows * columns if kind else 0)
    values = None
    if kind:
        values = torch.frombuffer(bytearray(tile[16:]), dtype=torch.float32).view(rows, columns)
    return Tile(kind, bool(exact), rows, columns, largest, values)


def scene_of(*maps: AttentionMap) -> Scene:
    """Return a scene in which each map ``[head, query, key]`` is a layer."""
    axes, layers = [], []
    for number, weights in enumerate(maps):
        heads, queries, keys = weights.shape
        axes += [Axis.of_positions(queries), Axis.of_positions(keys)]
        names = tuple(map(str, range(heads)))
        layer = f"layers.{number}", "self", weights, 2 * number, 2 * number + 1
        layers.append(SceneLayer(*layer, names, ("",) * heads))
    return Scene("test", tuple(layers), tuple(axes))


def factors(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def picture_of(dense: Tensor, statistic: str, side: int) -> Tensor:
    """Return the statistic of each block of a dense matrix, which is filled up with nothing."""
    rows, columns = (-size % side for size in dense.shape)
    nothing = -torch.inf if statistic == "max" else 0.0
    blocks = pad(dense, (0, columns, 0, rows), value=nothing)
    blocks = blocks.unflatten(0, (-1, side)).unflatten(2, (-1, side))
    if statistic == "max":
        return blocks.amax((1, 3))
    sums = blocks.sum((1, 3))
    if statistic == "sum":
        return sums
    return sums / picture_of(torch.ones_like(dense), "sum", side)


def tile_of(dense: Tensor, statistic: str, zoom: int, x: int, y: int) -> Tensor:
    """Return the pixels of a tile of a dense matrix, the plain way."""
    side = 2 ** (zooms_of(*dense.shape) - zoom)
    step = 256 * side
    return picture_of(dense[y * step : (y + 1) * step, x * step : (x + 1) * step], statistic, side)


def tiles_at(queries: int, keys: int, zoom: int) -> list[tuple[int, int]]:
    step = 256 * 2 ** (zooms_of(queries, keys) - zoom)
    down, across = (max(1, -(-size // step)) for size in (queries, keys))
    return [(x, y) for y in range(down) for x in range(across)]
