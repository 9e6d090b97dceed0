"""Numbers about single rows, columns and blocks of a map, as plain values for JSON.

What is no finite number is None: JSON has no word for it.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.explore.grid import require_number
from heedmap.explore.heads import Head
from heedmap.explore.pictures import STEP
from heedmap.explore.pyramid import Pyramid
from heedmap.explore.softmax import CELLS
from heedmap.explore.stopping import require_wanted
from heedmap.places import split

Side = Literal["rows", "columns"]

SAMPLE = 1024
"""How many weights of a column are read where reading all would take too long."""


def cell(head: Head, query: int, key: int) -> dict[str, Any]:
    """Return a single weight."""
    require_number("query", query, head.queries)
    require_number("key", key, head.keys)
    return {"weight": _plain(head.tile(range(query, query + 1), range(key, key + 1)).flatten())[0]}


def line(head: Head, side: Side, number: int, first: int, stop: int, bins: int) -> dict[str, Any]:
    """Return the largest weight in each of some equal stretches of a row or column.

    A stretch shorter than `bins` gives each of its weights.

    Raises:
        ArgumentError: for a line that does not exist, or a stretch that does not lie in it.
        Stopped: if it is not wanted any more.
    """
    size = _require_line(head, side, number)
    if not 0 <= first <= stop <= size:
        raise ArgumentError(
            f"first and stop must be in order and 0 to {size}; got {first} and {stop}."
        )
    if bins < 1:
        raise ArgumentError(f"bins must be 1 or more; got {bins}.")
    size = stop - first
    bins = min(bins, size)
    weights, places, is_exact = _read(head, side, number, range(first, stop), bins)
    edges = torch.tensor([place * size // bins for place in range(bins + 1)] if bins else [0])
    cuts = pairwise(torch.searchsorted(places, edges).tolist())
    values = (weights[start:end].amax() if start < end else math.nan for start, end in cuts)
    return {"values": _plain(values), "exact": is_exact}


def top(head: Head, side: Side, number: int, count: int) -> dict[str, Any]:
    """Return the strongest weights of a row or column, equal ones in order, and its sum.

    Raises:
        ArgumentError: for a line that does not exist, or a negative count.
        Stopped: if it is not wanted any more.
    """
    size = _require_line(head, side, number)
    if count < 0:
        raise ArgumentError(f"count must be 0 or more; got {count}.")
    weights, places, is_exact = _read(head, side, number, range(size), SAMPLE)
    # What is not a number would stand first.
    ranked = weights.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    order = ranked.sort(descending=True, stable=True).indices[:count]
    return {
        "positions": places[order].tolist(),
        "weights": _plain(weights[order]),
        "sum": _plain([weights.double().sum() if is_exact else math.nan])[0],
        "exact": is_exact,
    }


def block(head: Head, rows: range, columns: range, pyramid: Pyramid | None) -> dict[str, Any]:
    """Return sum, mean, largest weight and its place, and the share of a block.

    Raises:
        ArgumentError: for what is not a stretch of rows and of columns.
        Stopped: if it is not wanted any more.

    Cost: O(rows · columns) time, of which what a pyramid holds is not made again; O(rows · keys)
    for a map that was computed from others.
    """
    for name, some, size in (("rows", rows, head.queries), ("columns", columns, head.keys)):
        if some.step != 1 or not 0 <= some.start < some.stop <= size:
            raise ArgumentError(
                f"{name} must be first:stop within 0:{size} and not empty; got "
                f"{some.start}:{some.stop}."
            )
    found = _Found()
    inner = None if pyramid is None else pyramid.inner(rows, columns)
    if pyramid is None or inner is None:
        found.add(head, rows, columns)
    else:
        found.total += pyramid.total(*inner)
        found.look_for_largest(head, *pyramid.strongest(*inner))
        for part in _around(rows, columns, *inner):
            found.add(head, *part)
    whole = _whole_rows(head, rows)
    total = found.total
    figures = _plain([total, total / (len(rows) * len(columns)), found.largest, total / whole])
    named = dict(zip(("sum", "mean", "max", "share"), figures, strict=True))
    if whole == 0:
        named["share"] = 0.0
    return named | {"max_at": list(found.place)}


class _Found:
    """What was found in the parts of a block so far."""

    def __init__(self) -> None:
        self.total = torch.zeros((), dtype=torch.float64)
        self.largest, self.place = -math.inf, (0, 0)

    def add(self, head: Head, rows: range, columns: range) -> None:
        """Read all cells of a part."""
        for cells in self._blocks_of(head, rows, columns):
            self.total += cells.sum(dtype=torch.float64).cpu()

    def look_for_largest(self, head: Head, rows: range, columns: range) -> None:
        """Find the largest cell of a part whose sum is known."""
        for _ in self._blocks_of(head, rows, columns):
            pass

    def _blocks_of(self, head: Head, rows: range, columns: range) -> Iterator[Tensor]:
        for lines, across in _blocks(rows, columns):
            require_wanted()
            cells = head.tile(lines, across)
            largest = float(cells.max())
            if not math.isnan(self.largest) and not largest <= self.largest:
                row, column = divmod(int(cells.argmax()), len(across))
                self.largest, self.place = largest, (lines[row], across[column])
            yield cells


def _whole_rows(head: Head, rows: range) -> Tensor:
    """Return all that these rows give, to whichever keys."""
    sums = head.row_sums(rows)
    if sums is not None:
        return sums.sum().cpu()
    total = torch.zeros((), dtype=torch.float64)
    for lines, across in _blocks(rows, range(head.keys)):
        require_wanted()
        total += head.tile(lines, across).sum(dtype=torch.float64).cpu()
    return total


def _around(
    rows: range, columns: range, inner_rows: range, inner_columns: range
) -> Iterator[tuple[range, range]]:
    """Yield what of a block lies above, below, left and right of an inner one."""
    parts = (
        (range(rows.start, inner_rows.start), columns),
        (range(inner_rows.stop, rows.stop), columns),
        (inner_rows, range(columns.start, inner_columns.start)),
        (inner_rows, range(inner_columns.stop, columns.stop)),
    )
    return ((some, across) for some, across in parts if some and across)


def _blocks(rows: range, columns: range) -> Iterator[tuple[range, range]]:
    high = max(STEP, CELLS // len(columns))
    for some in split(len(rows), high):
        lines = rows[some.start : some.stop]
        for part in split(len(columns), CELLS // len(lines)):
            yield lines, columns[part.start : part.stop]


def _require_line(head: Head, side: Side, number: int) -> int:
    """Return how many weights a line has, if there is such a line."""
    if side == "rows":
        require_number("query", number, head.queries)
        return head.keys
    require_number("key", number, head.keys)
    return head.queries


class _Line(NamedTuple):
    """What was read of a stretch of a row or column.

    Attributes:
        weights: Those that were read.
        places: Where they stand, counted from the beginning of the stretch.
        is_exact: Whether these are all.
    """

    weights: Float[Tensor, " places"]
    places: Int[Tensor, " places"]
    is_exact: bool


def _read(head: Head, side: Side, number: int, where: range, sample: int) -> _Line:
    """Read a stretch; of a column at least so many weights, where all would take too long."""
    one, places = range(number, number + 1), torch.arange(len(where))
    if side == "rows":
        return _Line(head.tile(one, where)[0].cpu(), places, True)
    known = head.known_among(where, min(sample, SAMPLE))
    if known is not None:
        places = known.cpu()
    parts = [torch.zeros(0)]
    for part in split(len(places), STEP):
        require_wanted()
        some = places[part.start : part.stop]
        rows = where[int(some[0]) : int(some[-1]) + 1]
        lines = rows if len(rows) == len(some) else some + where.start
        parts.append(head.tile(lines, one)[:, 0].cpu())
    return _Line(torch.cat(parts), places, known is None)


def _plain(numbers: Iterable[Tensor | float]) -> list[float | None]:
    return [number if math.isfinite(number) else None for number in map(float, numbers)]
