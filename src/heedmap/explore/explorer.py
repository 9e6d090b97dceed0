"""What the live map shows: tiles, rows, columns and sums of the maps of a scene."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from heedmap.errors import ArgumentError
from heedmap.explore import figures, pictures, store, tiles
from heedmap.explore.figures import Side
from heedmap.explore.grid import Place, place_of, require_number, thumbnail_place
from heedmap.explore.heads import Head
from heedmap.explore.passes import Passes
from heedmap.explore.pictures import STATISTICS, Statistic
from heedmap.explore.prepared import prepare
from heedmap.explore.pyramid import Pyramid
from heedmap.explore.scene import Scene, describe_axis
from heedmap.explore.stopping import Stop, Stopped, never, wanted_until
from heedmap.lazy import LazyMatrix
from heedmap.precision import exactly

__all__ = ["Explorer", "Stop", "Stopped"]

LIVE_CELLS = 1 << 24
"""Up to how many cells are computed while somebody waits: less than a tenth of a second."""

TILE_BYTES = 64 << 20
"""How much memory the tiles take that were asked for last."""


class Explorer:
    """Answers what the page asks about the maps of a scene; safe to ask from many threads.

    A recording is refused with an InputError from when its file was changed on, but for what is
    being read in that moment.

    Values that are no finite numbers are NaN in tiles and None in what becomes JSON.

    Args:
        scene: What there is to see.
        cache: The folder in which pyramids are kept; None for the user's. Where it cannot be
            written, nothing is kept.

    Example:
        >>> from heedmap import AttentionMap
        >>> from heedmap.axes import Axis
        >>> from heedmap.explore.scene import SceneLayer
        >>> weights = AttentionMap.from_weights(torch.eye(3)[None])
        >>> layer = SceneLayer("eye", "self", weights, 0, 0, ("0",), ("",))
        >>> with Explorer(Scene("eye", (layer,), (Axis.of_positions(3),))) as explorer:
        ...     explorer.cell(0, 0, 2, 2)
        {'weight': 1.0}
    """

    def __init__(self, scene: Scene, *, cache: Path | None = None) -> None:
        """Compute nothing yet."""
        self.scene = scene
        self._passes = Passes(store.cache_folder() if cache is None else cache)
        self._recent = tiles.Recent(TILE_BYTES)
        self._rules: dict[int, LazyMatrix] = {}
        self._heads: dict[tuple[int, int], Head] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def __enter__(self) -> "Explorer":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def description(self) -> dict[str, Any]:
        """Return the scene as the page learns of it, without its numbers."""
        return self.scene.description()

    def axis(self, number: int) -> Mapping[str, Any]:
        """Return an axis as the page has it.

        Raises:
            ArgumentError: if there is none of this number.
        """
        require_number("axis", number, len(self.scene.axes))
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
        """Return a tile as it goes over the wire.

        It is exact, but for tiles of too many cells as long as the pass over the map is not
        through there: those are made of some of their queries, and say so.

        Raises:
            ArgumentError: for a tile that does not exist.
            Stopped: if `stop` says that it is not wanted any more.
            UnsupportedError: if what the map stands on was written into.

        Cost: up to about a tenth of a second.
        """
        found = self._head(layer, head)
        if statistic not in STATISTICS:
            raise ArgumentError(f"statistic must be mean, max or sum; got {statistic!r}.")
        place = place_of(found.queries, found.keys, zoom, x, y)
        address = layer, head, statistic, zoom, x, y
        if (kept := self._recent.get(address)) is not None:
            return kept
        with self._answering(stop):
            made, is_exact = self._picture(found, (layer, head), place, statistic)
        if is_exact:
            self._recent.put(address, made)
        return made

    def thumbnail(self, layer: int, head: int, stop: Stop = never) -> bytes:
        """Return the means of the whole map as a tile of at most 32 × 32 values.

        Raises and cost: as for `tile`.
        """
        found = self._head(layer, head)
        place = thumbnail_place(found.queries, found.keys)
        with self._answering(stop):
            return self._picture(found, (layer, head), place, "mean")[0]

    def progress(self, layer: int, head: int) -> dict[str, Any]:
        """Return how far the pass over a map has come; the first call begins it.

        A small map needs none, and is exact from the beginning.

        Raises:
            Exception: that which ended the pass, if one did.
        """
        found = self._head(layer, head)
        with _plainly():
            done = 1.0 if _is_small(found) else self._passes.progress((layer, head), found)
        return {"done": done, "exact": done == 1}

    def cell(self, layer: int, head: int, query: int, key: int) -> dict[str, Any]:
        """Return a single weight.

        Raises:
            ArgumentError: if it does not exist.
        """
        with self._answering(never):
            return figures.cell(self._head(layer, head), query, key)

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
        """Return the largest weight in each of some equal stretches of a row or a column.

        A column needs to know something of every row. Where a large map does not know it yet, the
        column is made of some rows, says that it is not exact, and the pass begins.

        Raises:
            ArgumentError: for what does not exist.
            Stopped: if `stop` says that it is not wanted any more.
        """
        found = self._head(layer, head)
        with self._answering(stop):
            answer = figures.line(found, side, number, first, stop_at, bins)
        return self._hastened(answer, layer, head)

    def top(
        self, side: Side, layer: int, head: int, number: int, count: int, stop: Stop = never
    ) -> dict[str, Any]:
        """Return the strongest weights of a row or a column, and its sum.

        A column is made of some rows at first, as with `line`; its sum is None then.

        Raises:
            ArgumentError: for what does not exist.
            Stopped: if `stop` says that it is not wanted any more.
        """
        found = self._head(layer, head)
        with self._answering(stop):
            answer = figures.top(found, side, number, count)
        return self._hastened(answer, layer, head)

    def block(
        self, layer: int, head: int, rows: range, columns: range, stop: Stop = never
    ) -> dict[str, Any]:
        """Return sum, mean, largest weight and its place, and the share of a block.

        Raises:
            ArgumentError: for what does not exist.
            Stopped: if `stop` says that it is not wanted any more.

        Cost: O(rows · columns) time where no pass has been there, much less where one has.
        """
        found = self._head(layer, head)
        with self._answering(stop):
            return figures.block(found, rows, columns, self._pyramid(found, (layer, head)))

    def close(self) -> None:
        """End whatever is being computed, and the thread of the passes."""
        self._closed.set()
        self._passes.close()

    def _head(self, layer: int, head: int) -> Head:
        require_number("layer", layer, len(self.scene.layers))
        found = self.scene.layers[layer]
        require_number("head", head, found.weights.shape[0])
        found.require_unchanged()
        with self._lock, _plainly():
            if layer not in self._rules:
                self._rules[layer] = prepare(found.weights._rule)
            if (layer, head) not in self._heads:
                self._heads[layer, head] = Head(self._rules[layer], head, found.require_unchanged)
            return self._heads[layer, head]

    def _hastened(self, answer: dict[str, Any], layer: int, head: int) -> dict[str, Any]:
        """Begin the pass that will make an answer exact."""
        if not answer["exact"]:
            self.progress(layer, head)
        return answer

    @contextmanager
    def _answering(self, stop: Stop) -> Iterator[None]:
        """Compute before any pass, and as long as it is wanted."""
        with (
            _plainly(),
            self._passes.precedence(),
            wanted_until(lambda: self._closed.is_set() or stop()),
        ):
            yield

    def _pyramid(self, head: Head, name: tuple[int, int]) -> Pyramid | None:
        return None if _is_small(head) else self._passes.find(name, head)

    def _picture(
        self, head: Head, name: tuple[int, int], place: Place, statistic: Statistic
    ) -> tuple[bytes, bool]:
        """Return a tile, and whether it is exact."""
        rows, columns = place.rows, place.columns
        start, end = head.column_range(rows)
        if end <= columns.start or start >= columns.stop:
            return tiles.empty(*place.size), True
        pyramid = self._pyramid(head, name)
        pixels = None if pyramid is None else pyramid.picture(place, statistic)
        if pixels is None and (_is_quick(head, place) or (pyramid and pyramid.done == 1)):
            (pixels,) = pictures.exact(head, place, [pictures.how_of(statistic)])
            pixels = pictures.finished(pixels, place, statistic)
        is_exact = pixels is not None
        if pixels is None:
            pixels = pictures.sampled(head, place, statistic, _sample(head, place))
        return tiles.encode(pixels, exact=is_exact), is_exact


@contextmanager
def _plainly() -> Iterator[None]:
    """Compute exactly and without gradients, whatever block the caller stands in."""
    with torch.inference_mode(False), torch.no_grad(), exactly():
        yield


def _is_small(head: Head) -> bool:
    """Whether the whole map is computed while somebody waits."""
    return head.queries * head.keys <= LIVE_CELLS


def _is_quick(head: Head, place: Place) -> bool:
    """Whether all cells of a place are computed while somebody waits."""
    cells = len(place.rows) * len(place.columns)
    return cells <= LIVE_CELLS and head.is_quickly_known(place.rows)


def _sample(head: Head, place: Place) -> int:
    """Return how many queries of each line of pixels are quickly read."""
    wide = head.keys if head.missing(place.rows) else len(place.columns)
    return max(1, min(place.side, LIVE_CELLS // (place.size[0] * wide)))
