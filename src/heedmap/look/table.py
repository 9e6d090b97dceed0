"""What the chosen head looks at, as rows that people can read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.analysis.repeats import Repeats
from heedmap.analysis.rows import rows_of
from heedmap.axes import Axis

MOST_KEYS = 8
KEYS_OF_A_MOMENT = 3
MOMENTS = 10
STRETCH_SECONDS = 0.5
"""Neighbouring moments get nearly the same weight, so that they are listed as stretches of it."""

MOST_STRETCHES = 120
ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class Key:
    """One thing that is looked at: a token, or a stretch of time."""

    position: int
    text: str
    weight: float
    remark: str = ""


@dataclass(frozen=True)
class Row:
    """One thing that looks, and what it looks at, most first."""

    positions: tuple[int, ...]
    text: str
    keys: tuple[Key, ...]


def query_row(
    weights: Float[Tensor, "query key"],
    axis: Axis,
    positions: Sequence[int],
    shots: Sequence[int] | None = None,
) -> Row:
    """Return what a query looks at most; of several positions, the mean of their weights.

    On text, keys that repeat the query are marked.

    Args:
        weights: One head.
        axis: What its positions are.
        positions: The query.
        shots: For film, the number of the shot that each position lies in, for the remarks.
    """
    shares = rows_of(weights[torch.tensor(positions)]).mean(0)
    text = " ".join(_in_shot(axis, i, shots) for i in positions)
    keys = _keys(shares, axis, positions, MOST_KEYS, shots)
    if axis.kind == "token":
        repeats = Repeats(axis)
        again = torch.cat([repeats.tile(range(i, i + 1)) for i in positions]).any(0)
        keys = tuple(replace(key, remark="repeat") if again[key.position] else key for key in keys)
    return Row(tuple(positions), text, keys)


def token_rows(weights: Float[Tensor, "query key"], axis: Axis) -> tuple[Row, ...]:
    """Return for each token the one that it looks at most. Cost: one pass, by strips."""
    rows = []
    for start in range(0, len(axis), ROWS_AT_ONCE):
        values, keys = weights[start : start + ROWS_AT_ONCE].max(-1)
        for query, (weight, key) in enumerate(
            zip(values.tolist(), keys.tolist(), strict=True), start=start
        ):
            found = Key(key, axis.describe(key), weight, "itself" if key == query else "")
            rows.append(Row((query,), axis.describe(query), (found,)))
    return tuple(rows)


def moment_rows(
    weights: Float[Tensor, "query key"],
    axis: Axis,
    segments: Int[Tensor, " positions"],
    shots: Sequence[int] | None = None,
) -> tuple[Row, ...]:
    """Return what some moments look at: the middle of each segment, or evenly spaced ones.

    The middles are taken where there are 2 to 10 segments. `shots` are as for `query_row`.
    """
    count = len(axis)
    moments = [round((i + 0.5) * count / MOMENTS - 0.5) for i in range(MOMENTS)]
    if 2 <= len(segments.unique()) <= MOMENTS:
        moments = [int((segments == n).nonzero().median()) for n in segments.unique()]
    return tuple(
        Row(
            (moment,),
            _in_shot(axis, moment, shots),
            _keys(rows_of(weights[moment]), axis, [moment], KEYS_OF_A_MOMENT, shots),
        )
        for moment in sorted(set(moments))
    )


def _keys(
    shares: Float[Tensor, " key"],
    axis: Axis,
    query: Sequence[int],
    most: int,
    shots: Sequence[int] | None,
) -> tuple[Key, ...]:
    """Return the largest shares; those of sound and film by stretches of about half a second."""
    size = _stretch_positions(axis)
    stretches = [range(i, min(i + size, len(axis))) for i in range(0, len(axis), size)]
    sums = torch.nn.functional.pad(shares, (0, -len(shares) % size)).reshape(-1, size).sum(1)
    found = sums.topk(min(most, len(sums)))
    keys = []
    for weight, number in zip(found.values.tolist(), found.indices.tolist(), strict=True):
        held = stretches[number]
        strongest = held[int(shares[held.start : held.stop].argmax())]
        remarks = [f"shot {shots[strongest]}"] if shots else []
        remarks += ["itself"] if any(i in held for i in query) else []
        keys.append(Key(strongest, _describe(axis, held), weight, ", ".join(remarks)))
    return tuple(keys)


def _in_shot(axis: Axis, position: int, shots: Sequence[int] | None) -> str:
    described = axis.describe(position)
    return f"{described}, shot {shots[position]}" if shots else described


def _stretch_positions(axis: Axis) -> int:
    """Return how many positions make one row of the table: 1 for tokens."""
    if axis.unit != "second":
        return 1
    length = axis.spans[-1][1] - axis.spans[0][0]
    seconds = max(STRETCH_SECONDS, length / MOST_STRETCHES)
    return max(round(seconds * len(axis) / length), 1)


def _describe(axis: Axis, held: range) -> str:
    if len(held) == 1:
        return axis.describe(held.start)
    return f"{axis.spans[held.start][0]:.2f}–{axis.spans[held.stop - 1][1]:.2f} s"
