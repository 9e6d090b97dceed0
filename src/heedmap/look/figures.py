"""What one head does, in a handful of numbers, from one pass over its weights."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.look.alikeness import FAR_SECONDS, Alikeness
from heedmap.look.repeats import Repeats
from heedmap.look.running import Layer, Run, rows_of
from heedmap.look.segments import numbers_of

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
        on_special: For text, the share on tokens that stand for no character.
        on_repeats: For text, the share on repeats of the query's token; of the queries that have
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


def measure(run: Run) -> list[HeadFigures]:
    """Return the figures of every head, layer by layer.

    Cost: one pass over each map; memory of a few strips of 4 million weights.
    """
    repeats = Repeats(run.axis) if run.kind == "text" else None
    segments = numbers_of(run) if run.kind != "text" else None
    alikeness = Alikeness.of(run)
    figures = []
    for number, layer in enumerate(run.layers):
        found = _measure_layer(layer, run, repeats, segments)
        if alikeness is not None:
            found["prefers_alike"] = alikeness.preference(layer.weights)
        for head in range(layer.weights.shape[0]):
            values = {name: float(column[head]) for name, column in found.items()}
            figures.append(HeadFigures(number, head, **_without_nan(values)))
    return figures


def _measure_layer(
    layer: Layer, run: Run, repeats: Repeats | None, segments: Tensor | None
) -> dict[str, Float[Tensor, " heads"]]:
    heads, queries, keys = layer.weights.shape
    sums = _Sums(heads, keys)
    special = None
    seconds = None
    if repeats is not None:
        special = torch.tensor([float(end <= start) for start, end in run.axis.spans])
    else:
        seconds = torch.tensor([(start + end) / 2 for start, end in run.axis.spans])
    step = max(STRIP_CELLS // (heads * keys), 1)
    for start in range(0, queries, step):
        rows = range(start, min(start + step, queries))
        tile = rows_of(layer.weights[:, rows.start : rows.stop])
        places = torch.arange(keys) - torch.arange(rows.start, rows.stop)[:, None]
        sums.add("entropy_nats", torch.special.entr(tile).sum((1, 2)), len(rows))
        sums.add("mean_distance", (tile * places.abs()).sum((1, 2)), len(rows))
        for name, offset in (("on_self", 0), ("on_previous", -1), ("on_next", 1)):
            diagonal = tile.diagonal(rows.start + offset, 1, 2)
            if rows.start + offset < 0:
                diagonal = tile[:, 1:].diagonal(0, 1, 2)
            sums.add(name, diagonal.sum(1), diagonal.shape[1])
        others = tile[:, 1:] if rows.start == 0 else tile
        sums.add("on_first", others[:, :, 0].sum(1), others.shape[1])
        if special is not None:
            sums.add("on_special", (tile @ special).sum(1), len(rows))
        if segments is not None:
            own = segments[rows.start : rows.stop, None] == segments
            sums.add_related(tile, own, rows)
        if seconds is not None:
            far = (seconds[rows.start : rows.stop, None] - seconds).abs() > FAR_SECONDS
            sums.add("far", (tile * far).sum((1, 2)), len(rows))
        if repeats is not None:
            sums.add_related(tile, repeats.tile(rows), rows)
    found = sums.means()
    found["evenness"] = found["entropy_nats"] / max(math.log(keys), 1e-9)
    if segments is not None:
        share, beyond = sums.on_related(queries)
        found |= {"on_own_segment": share, "own_segment_beyond_distance": beyond}
    elif repeats is not None and bool(repeats.has_repeat.any()):
        share, beyond = sums.on_related(int(repeats.has_repeat.sum()))
        found |= {"on_repeats": share, "repeats_beyond_distance": beyond}
    return found


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
        """Return the mean of each figure; not a number where no query has it."""
        return {
            name: total / self._counts[name] if self._counts[name] else total * math.nan
            for name, total in self._sums.items()
        }


def _by_distance(tile: Float[Tensor, "heads rows keys"]) -> Float[Tensor, "heads distances"]:
    """Return the sums over the diagonals, from the lower left corner to the upper right.

    Each row is moved one further to the right than the row below it; then columns are diagonals.
    """
    rows, keys = tile.shape[1:]
    padded = torch.nn.functional.pad(tile.flip(1), (0, rows)).flatten(1)
    return padded[:, :-rows].unflatten(1, (rows, keys + rows - 1)).sum(1)


def _without_nan(values: dict[str, float]) -> dict[str, float]:
    # A single position has nothing before it, after it, or far away.
    optional = ("on_special", "on_repeats", "repeats_beyond_distance", "prefers_alike")
    kept = {k: v for k, v in values.items() if not (k in optional and math.isnan(v))}
    return {k: 0.0 if math.isnan(v) else v for k, v in kept.items()}
