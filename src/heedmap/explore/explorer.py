"""What the live map shows: tiles, rows, columns and sums of the maps of a scene."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.explore import tiles
from heedmap.explore.grid import Place, place_of, zooms_of
from heedmap.explore.scene import Scene, describe_axis
from heedmap.lazy import LazyMatrix
from heedmap.places import split
from heedmap.precision import exactly

Stop = Callable[[], bool]
Side = Literal["rows", "columns"]
STATISTICS = "mean", "max", "sum"


class Stopped(Exception):
    """A computation was given up, because nobody wants its answer any more."""


def never() -> bool:
    """Say that a computation is still wanted."""
    return False


class Explorer:
    """Answers what the page asks about the maps of a scene; safe to ask from many threads."""

    def __init__(self, scene: Scene, *, cache: Path | None = None) -> None:
        self.scene = scene
        self.cache = cache

    def description(self) -> dict[str, Any]:
        return self.scene.description()

    def axis(self, number: int) -> Mapping[str, Any]:
        _require("axis", number, len(self.scene.axes))
        return describe_axis(self.scene.axes[number])

    def tile(
        self,
        layer: int,
        head: int,
        statistic: str,
        zoom: int,
        x: int,
        y: int,
        stop: Stop = never,
    ) -> bytes:
        rule = self._rule(layer, head)
        if statistic not in STATISTICS:
            raise ArgumentError(
                f"statistic must be {', '.join(STATISTICS[:-1])} or {STATISTICS[-1]}; "
                f"got {statistic!r}."
            )
        place = place_of(*rule.sizes[1:], zoom, x, y)
        return self._picture(rule, head, place, statistic, stop)

    def thumbnail(self, layer: int, head: int, stop: Stop = never) -> bytes:
        rule = self._rule(layer, head)
        _, queries, keys = rule.sizes
        side = 2 ** (zooms_of(queries, keys) + 3)
        return self._picture(rule, head, Place(range(queries), range(keys), side), "mean", stop)

    def progress(self, layer: int, head: int) -> dict[str, Any]:
        self._rule(layer, head)
        return {"done": 1.0, "exact": True}

    def cell(self, layer: int, head: int, query: int, key: int) -> dict[str, Any]:
        rule = self._rule(layer, head)
        _require("query", query, rule.sizes[1])
        _require("key", key, rule.sizes[2])
        with torch.no_grad(), exactly():
            cell = rule.tile(range(head, head + 1), range(query, query + 1), range(key, key + 1))
        return {"weight": _plain(cell)[0]}

    def line(
        self,
        side: Side,
        layer: int,
        head: int,
        number: int,
        first: int,
        stop_at: int,
        bins: int,
        stop: Stop = never,
    ) -> dict[str, Any]:
        line = self._line(side, layer, head, number)
        if not 0 <= first <= stop_at <= len(line):
            raise ArgumentError(
                f"first and stop must lie in order from 0 to {len(line)}; got {first} and "
                f"{stop_at}."
            )
        if bins < 1:
            raise ArgumentError(f"bins must be 1 or more; got {bins}.")
        line = line[first:stop_at]
        bins = min(bins, len(line))
        edges = [i * len(line) // bins for i in range(bins + 1)] if bins else [0]
        return {
            "values": _plain(torch.stack([line[a:b].amax() for a, b in zip(edges, edges[1:])]))
            if bins
            else []
        }

    def top(
        self, side: Side, layer: int, head: int, number: int, count: int, stop: Stop = never
    ) -> dict[str, Any]:
        line = self._line(side, layer, head, number)
        if count < 0:
            raise ArgumentError(f"count must be 0 or more; got {count}.")
        weights, positions = line.nan_to_num(nan=-math.inf).sort(descending=True, stable=True)
        count = min(count, len(line))
        return {
            "positions": positions[:count].tolist(),
            "weights": _plain(weights[:count]),
            "sum": _plain(line.double().sum())[0],
        }

    def block(
        self, layer: int, head: int, rows: range, columns: range, stop: Stop = never
    ) -> dict[str, Any]:
        rule = self._rule(layer, head)
        _, queries, keys = rule.sizes
        for name, some, size in (("rows", rows, queries), ("columns", columns, keys)):
            if some.step != 1 or not 0 <= some.start < some.stop <= size:
                raise ArgumentError(
                    f"{name} must be a stretch from 0 to {size} with something in it; got "
                    f"{some.start}:{some.stop}."
                )
        total = whole = 0.0
        best, at = -math.inf, [rows.start, columns.start]
        with torch.no_grad(), exactly():
            for some in split(len(rows), max(1, 2**20 // keys)):
                if stop():
                    raise Stopped
                some = rows[some.start : some.stop]
                tile = rule.tile(range(head, head + 1), some, range(keys))[0]
                whole += float(tile.double().sum())
                tile = tile[:, columns.start : columns.stop]
                total += float(tile.double().sum())
                largest = float(tile.max())
                if largest > best or math.isnan(largest):
                    row, column = divmod(int(tile.argmax()), len(columns))
                    best, at = largest, [some.start + row, columns.start + column]
        numbers = total, total / (len(rows) * len(columns)), best, total / whole if whole else 0.0
        found = [number if math.isfinite(number) else None for number in numbers]
        return {"sum": found[0], "mean": found[1], "max": found[2], "max_at": at, "share": found[3]}

    def close(self) -> None:
        pass

    def _rule(self, layer: int, head: int) -> LazyMatrix:
        _require("layer", layer, len(self.scene.layers))
        rule = self.scene.layers[layer].weights._rule
        _require("head", head, rule.sizes[0])
        return rule

    def _line(self, side: Side, layer: int, head: int, number: int) -> Tensor:
        rule = self._rule(layer, head)
        _, queries, keys = rule.sizes
        one = range(number, number + 1)
        with torch.no_grad(), exactly():
            if side == "rows":
                _require("query", number, queries)
                return rule.tile(range(head, head + 1), one, range(keys))[0, 0]
            _require("key", number, keys)
            return rule.tile(range(head, head + 1), range(queries), one)[0, :, 0]

    def _picture(
        self, rule: LazyMatrix, head: int, place: Place, statistic: str, stop: Stop
    ) -> bytes:
        down, across = place.size
        side, rows, columns = place.side, place.rows, place.columns
        start, end = rule.column_range(rows) if rows else (0, 0)
        if end <= columns.start or start >= columns.stop or not (rows and columns):
            return tiles.empty(down, across)
        exact = len(rows) * len(columns) <= 2**24
        step = 1 if exact else side
        high = max(side // step, 1)
        bands = []
        with torch.no_grad(), exactly():
            for some in split(down, max(1, 2**20 * step // (side * len(columns)))):
                if stop():
                    raise Stopped
                lines = rows[some.start * side : some.stop * side : step]
                tile = rule.tile(range(head, head + 1), lines, columns)[0]
                bands.append(_shrunk(_shrunk(tile, high, statistic).mT, side, statistic).mT)
        values = torch.cat(bands)
        if statistic != "max":
            given = _counts(len(rows), side, high if exact else 1)[:, None] * _counts(
                len(columns), side, side
            )
            values = values / given
        if statistic == "sum":
            values = (
                values * _counts(len(rows), side, side)[:, None] * _counts(len(columns), side, side)
            )
        return tiles.encode(values, exact=exact)


def _require(name: str, number: int, size: int) -> None:
    if not 0 <= number < size:
        raise ArgumentError(f"{name} must be 0 to {size - 1}; got {number}.")


def _plain(numbers: Tensor) -> list[float | None]:
    return [n if math.isfinite(n) else None for n in numbers.flatten().tolist()]


def _shrunk(tile: Tensor, high: int, statistic: str) -> Tensor:
    """Return the sums or maxima of so many rows each."""
    whole = len(tile) // high * high
    parts = [tile[:whole].unflatten(0, (-1, high))] if whole else []
    parts += [tile[None, whole:]] if whole < len(tile) else []
    return torch.cat([part.amax(1) if statistic == "max" else part.sum(1) for part in parts])


def _counts(size: int, side: int, most: int) -> Tensor:
    starts = torch.arange(0, size, side)
    return (size - starts).clamp(max=most)
