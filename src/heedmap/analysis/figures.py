"""What one head does, in a handful of numbers, from one pass over its weights."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.analysis.alikeness import FAR_SECONDS, Alikeness
from heedmap.analysis.repeats import Repeats
from heedmap.analysis.rows import rows_of
from heedmap.analysis.segments import numbers_of
from heedmap.axes import Axis, Sequence

STRIP_CELLS = 1 << 22
"""How many weights are made at a time: 16 MB of them."""


@dataclass(frozen=True)
class HeadFigures:
    """The figures of one head; shares are means over the queries, of a whole of 1.

    Attributes:
        layer: Number of the layer, from 0.
        head: Number of the head, from 0.
        entropy_nats: Mean entropy of a row.
        evenness: That entropy as a share of the largest possible, ln(keys).
        mean_distance: How many positions away a query looks, on average.
        on_self: Share on the query's own position.
        on_previous: Share on the position before; of the queries that have one.
        on_next: Share on the position after; of the queries that have one.
        on_first: Share on position 0, of the other queries.
        on_special: For tokens, the share on tokens that stand for no character.
        on_repeats: For tokens, the share on repeats of the query's token; of the queries that have
            one; None where no token is repeated.
        repeats_beyond_distance: That share, less what the head gives to keys at the same distances
            that are no repeats: what remains is not explained by where the repeats stand.
        on_own_segment: For sound and film, the share on the query's own segment.
        own_segment_beyond_distance: That share, less what the head gives to moments at the same
            distances that lie in other segments.
        far: For sound and film, the share on moments more than a second away.
        prefers_alike: For sound and film, among moments more than a second away: how often one of
            the third most alike by plain features gets more weight than one of the third least; 0.5
            is no preference.
    """

    layer: int
    head: int
    entropy_nats: float
    evenness: float
    mean_distance: float
    on_self: float
    on_previous: float
    on_next: float
    on_first: float
    on_special: float | None = None
    on_repeats: float | None = None
    repeats_beyond_distance: float | None = None
    on_own_segment: float | None = None
    own_segment_beyond_distance: float | None = None
    far: float | None = None
    prefers_alike: float | None = None


def measure(
    maps: Iterable[Float[Tensor, "_ positions positions"]],
    axis: Axis,
    features: Sequence | None = None,
    sounding: Bool[Tensor, " _"] | None = None,
) -> list[HeadFigures]:
    """Return the figures of every head, layer by layer.

    Args:
        maps: The weights of each layer, ``[heads, query, key]``.
        axis: What the positions are; it decides what else is measured.
        features: For sound and film, plain features at times of their own. Without them nothing is
            said of segments and of what is alike.
        sounding: For sound, which positions of `features` are not silent; None for all.

    Cost: one pass over each map, or two with `features`; memory of a few strips of 4 million
    weights. Not differentiable.
    """
    by_kind = _by_kind(axis, features)
    alikeness = None if features is None else Alikeness.of(axis, features, sounding)
    figures = []
    with torch.no_grad():
        for number, weights in enumerate(maps):
            found = _measure_layer(weights, by_kind)
            if alikeness is not None:
                found["prefers_alike"] = alikeness.preference(weights)
            for head in range(weights.shape[0]):
                values = {name: float(column[head]) for name, column in found.items()}
                figures.append(HeadFigures(number, head, **values))
    return figures


def _by_kind(axis: Axis, features: Sequence | None) -> "_OfNumbers | _OfText | _OfTime":
    if axis.kind == "position":
        return _OfNumbers()
    return _OfText(axis) if axis.kind == "token" else _OfTime(axis, features)


def _measure_layer(
    weights: Float[Tensor, "heads query key"], by_kind: "_OfNumbers | _OfText | _OfTime"
) -> dict[str, Float[Tensor, " heads"]]:
    heads, queries, keys = weights.shape
    sums = _Sums(heads, keys)
    step = max(STRIP_CELLS // (heads * keys), 1)
    for start in range(0, queries, step):
        rows = range(start, min(start + step, queries))
        tile = rows_of(weights[:, rows.start : rows.stop])
        _add_places(sums, tile, rows)
        by_kind.add(sums, tile, rows)
    found = sums.means()
    found["evenness"] = found["entropy_nats"] / max(math.log(keys), 1e-9)
    return found | by_kind.related(sums)


def _add_places(sums: "_Sums", tile: Float[Tensor, "heads rows keys"], rows: range) -> None:
    """Add what depends on the places of query and key only."""
    places = torch.arange(tile.shape[2]) - torch.arange(rows.start, rows.stop)[:, None]
    sums.add("entropy_nats", torch.special.entr(tile).sum((1, 2)), len(rows))
    sums.add("mean_distance", (tile * places.abs()).sum((1, 2)), len(rows))
    with_previous = tile[:, 1:] if rows.start == 0 else tile
    for name, having, column in (
        ("on_self", tile, rows.start),
        ("on_previous", with_previous, max(rows.start - 1, 0)),
        ("on_next", tile, rows.start + 1),
    ):
        diagonal = having[:, :, column:].diagonal(0, 1, 2)
        sums.add(name, diagonal.sum(1), diagonal.shape[1])
    sums.add("on_first", with_previous[:, :, 0].sum(1), with_previous.shape[1])


class _OfNumbers:
    """What is measured of bare positions only: nothing."""

    def add(self, sums: "_Sums", tile: Float[Tensor, "heads rows keys"], rows: range) -> None:
        """Add nothing."""

    def related(self, sums: "_Sums") -> dict[str, Float[Tensor, " heads"]]:
        """Return nothing."""
        del sums
        return {}


class _OfText:
    """What is measured of a text only: special tokens and repeats."""

    def __init__(self, axis: Axis) -> None:
        self._repeats = Repeats(axis)
        self._special = torch.tensor([float(end <= start) for start, end in axis.spans])

    def add(self, sums: "_Sums", tile: Float[Tensor, "heads rows keys"], rows: range) -> None:
        """Add a strip."""
        sums.add("on_special", (tile @ self._special).sum(1), len(rows))
        sums.add_related(tile, self._repeats.tile(rows), rows)

    def related(self, sums: "_Sums") -> dict[str, Float[Tensor, " heads"]]:
        """Return what the strips have added up to; nothing where no token is repeated."""
        asking = int(self._repeats.has_repeat.sum())
        if not asking:
            return {}
        share, beyond = sums.on_related(asking)
        return {"on_repeats": share, "repeats_beyond_distance": beyond}


class _OfTime:
    """What is measured of sound and film only: segments, and what is far away."""

    def __init__(self, axis: Axis, features: Sequence | None) -> None:
        self._segments = None if features is None else numbers_of(axis, features)
        self._seconds = torch.tensor([(start + end) / 2 for start, end in axis.spans])

    def add(self, sums: "_Sums", tile: Float[Tensor, "heads rows keys"], rows: range) -> None:
        """Add a strip."""
        here = slice(rows.start, rows.stop)
        far = (self._seconds[here, None] - self._seconds).abs() > FAR_SECONDS
        sums.add("far", (tile * far).sum((1, 2)), len(rows))
        if self._segments is not None:
            sums.add_related(tile, self._segments[here, None] == self._segments, rows)

    def related(self, sums: "_Sums") -> dict[str, Float[Tensor, " heads"]]:
        """Return what the strips have added up to; nothing where segments are not known."""
        if self._segments is None:
            return {}
        share, beyond = sums.on_related(len(self._segments))
        return {"on_own_segment": share, "own_segment_beyond_distance": beyond}


class _Sums:
    """Sums over the queries, as they grow strip by strip."""

    def __init__(self, heads: int, keys: int) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        # Sums over the pairs at each distance, key − query + keys − 1: all, and the related ones.
        self._all, self._related = torch.zeros(2, heads, 2 * keys - 1)
        self._pairs, self._related_pairs = torch.zeros(2, 2 * keys - 1)

    def add(self, name: str, total: Float[Tensor, " heads"], count: int) -> None:
        """Add to the sum of one figure what so many queries have in total."""
        self._sums[name] = self._sums.get(name, 0) + total
        self._counts[name] = self._counts.get(name, 0) + count

    def add_related(
        self,
        tile: Float[Tensor, "heads rows keys"],
        related: Bool[Tensor, "rows keys"],
        rows: range,
    ) -> None:
        """Add the weights of a strip by distance, and those of related pairs once more."""
        keys = tile.shape[2]
        # The last row of the strip begins at distance −(rows.stop − 1).
        start = keys - rows.stop
        place = slice(start, start + keys + len(rows) - 1)
        self._all[:, place] += _by_distance(tile)
        self._related[:, place] += _by_distance(tile * related)
        self._pairs[place] += _by_distance(torch.ones(1, len(rows), keys))[0]
        self._related_pairs[place] += _by_distance(related.float()[None])[0]

    def on_related(self, asking: int) -> tuple[Float[Tensor, " heads"], Float[Tensor, " heads"]]:
        """Return the mean share on related keys, and how much of it distance does not explain."""
        others = self._pairs - self._related_pairs
        usual = (self._all - self._related) / others.clamp_min(1)
        # Where every pair at a distance is related there is nothing to compare with.
        known = others > 0
        excess = (self._related - usual * self._related_pairs)[:, known].sum(1)
        return self._related.sum(1) / asking, excess / asking

    def means(self) -> dict[str, Float[Tensor, " heads"]]:
        """Return the mean of each figure; 0 where no query has it, such as a place before it."""
        return {name: total / max(self._counts[name], 1) for name, total in self._sums.items()}


def _by_distance(tile: Float[Tensor, "heads rows keys"]) -> Float[Tensor, "heads distances"]:
    """Return the sums over the diagonals, from the lower left corner to the upper right.

    Each row is moved one further to the right than the row below it; then columns are diagonals.
    """
    rows, keys = tile.shape[1:]
    padded = torch.nn.functional.pad(tile.flip(1), (0, rows)).flatten(1)
    return padded[:, :-rows].unflatten(1, (rows, keys + rows - 1)).sum(1)
