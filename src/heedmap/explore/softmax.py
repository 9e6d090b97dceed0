"""Weights of one matrix of a problem by blocks, and the log-normalisers of its rows.

Scores are base-2 logarithms here, because 2ˣ is several times faster than eˣ on a CPU. Where our
own kernel does not serve, most of the time goes into the products of queries and keys, so a sweep
makes each of them once: it brings the log-normaliser and, with it, the picture of these rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.explore.cut import cut
from heedmap.explore.shrinking import shrink
from heedmap.explore.stopping import require_wanted
from heedmap.kernels import native, tiles
from heedmap.kernels.tiles import LOG2_E
from heedmap.places import Index, pick, split
from heedmap.problem import Problem

CELLS = 1 << 18
"""About how many cells a block has: few enough for the cache of a core, which reads them again and
again, and enough for fast products."""

Pictures = tuple[Float[Tensor, "down across"], Float[Tensor, "down across"]]


class Swept(NamedTuple):
    """What one sweep over some rows found.

    Attributes:
        normalizer: The log-normaliser of each row.
        pictures: The sum of each block of `side` × `side` weights, and the largest of each, where
            they were asked for.
    """

    normalizer: Float[Tensor, " rows"]
    pictures: Pictures | None = None


def weights(
    problem: Problem,
    normalizer: Float[Tensor, " rows"],
    matrix: int,
    rows: Index,
    columns: Index,
) -> Float[Tensor, "rows columns"]:
    """Return a block of weights, given the log-normaliser of its rows."""
    if not _is_plain(problem):
        one = range(matrix, matrix + 1)
        return tiles.weights(problem, normalizer[None], one, rows, columns)[0]
    anchor = normalizer.masked_fill(normalizer == -torch.inf, 0)
    query, key = _factors(problem, matrix, rows, columns)
    logarithms = torch.addmm(anchor[:, None] * -LOG2_E, query, key.mT)
    return _hide(problem, logarithms, matrix, rows, columns).exp2_()


def log_normalizer(problem: Problem, matrix: int, rows: Index) -> Float[Tensor, " rows"]:
    """Return the log-normaliser of some rows.

    Raises:
        Stopped: if it is not wanted any more.

    Cost: O(rows · keys · head_dim) time, some blocks in memory.
    """
    if native.serves(problem, None):
        require_wanted()
        return native.log_normalizer(cut(problem, matrix, rows))[0, 0]
    return sweep(problem, matrix, rows).normalizer


def sums_and_maxima(
    problem: Problem,
    normalizer: Float[Tensor, " rows"],
    matrix: int,
    rows: Index,
    high: int,
    wide: int,
) -> Pictures:
    """Return the sum and the largest of each block of `high` × `wide` weights of some rows.

    The rows must have finite numbers alone, and our own kernel must serve.

    Cost: O(rows · keys · head_dim) time; memory of the pictures.
    """
    bins = torch.arange(len(rows)) // high, torch.arange(problem.extent.keys) // wide
    wanted = native.Wanted(bins=bins, sums=True, maxima=True)
    found = native.statistics(cut(problem, matrix, rows), normalizer[None], wanted)
    assert found.sums is not None
    assert found.maxima is not None
    return found.sums[0], found.maxima[0]


def sweep(problem: Problem, matrix: int, rows: Index, side: int | None = None) -> Swept:
    """Return the log-normaliser of some rows and, if `side` is given, their picture.

    The picture is right where everything in the problem is finite.

    Raises:
        Stopped: if they are not wanted any more.

    Cost: O(rows · keys · head_dim) time, some blocks in memory.
    """
    keys = problem.extent.keys
    peaks, totals = [], []
    pictures: list[tuple[int, Tensor, Tensor]] = []
    for columns in _column_blocks(problem, rows, side or 1):
        require_wanted()
        powers = _scores(problem, matrix, rows, columns)
        peak = powers.amax(1)
        # Where a row sees nothing the peak is −inf, and −inf − −inf is not a number.
        powers.sub_(_anchor(peak)[:, None]).exp2_()
        peaks.append(peak)
        if side is None:
            totals.append(powers.sum(1))
            continue
        added = shrink(powers, 1, side, "sum")
        totals.append(added.sum(1))
        pictures.append((columns.start // side, added, shrink(powers, 1, side, "max")))
    logarithm = _joined(problem, matrix, len(rows), peaks, totals)
    if side is None:
        return Swept(logarithm / LOG2_E)
    down, across = -(-len(rows) // side), -(-keys // side)
    sums, maxima = (logarithm.new_zeros((down, across)) for _ in range(2))
    for peak, (place, added, largest) in zip(peaks, pictures, strict=True):
        share = torch.exp2(_anchor(peak) - _anchor(logarithm))[:, None]
        here = slice(place, place + added.shape[1])
        sums[:, here] = shrink(added * share, side, 1, "sum")
        maxima[:, here] = shrink(largest * share, side, 1, "max")
    return Swept(logarithm / LOG2_E, (sums, maxima))


def _joined(
    problem: Problem, matrix: int, rows: int, peaks: list[Tensor], totals: list[Tensor]
) -> Float[Tensor, " rows"]:
    """Return the base-2 logarithm of all that the softmax of each row divides by."""
    numbers = {"dtype": problem.compute_dtype, "device": problem.query.device}
    if (sinks := problem.scoring.sinks) is not None:
        sink = sinks[matrix % problem.extent.heads].detach() * LOG2_E
        peaks = [*peaks, sink.expand(rows)]
        totals = [*totals, torch.ones(rows, **numbers)]
    if not peaks:
        return torch.full((rows,), -torch.inf, **numbers)
    every = torch.stack(peaks)
    anchor = _anchor(every.amax(0))
    return (torch.stack(totals) * torch.exp2(every - anchor)).sum(0).log2() + anchor


def _column_blocks(problem: Problem, rows: Index, side: int) -> Iterator[range]:
    """Yield the keys that these rows may see, in stretches of whole blocks of the picture."""
    start, stop = problem.key_range(rows)
    start = start // side * side
    for some in split(stop - start, max(CELLS // max(len(rows), 1) // side, 1) * side):
        yield range(start + some.start, start + some.stop)


def _scores(problem: Problem, matrix: int, rows: Index, columns: range) -> Tensor:
    """Return base-2 scores in memory of their own, −inf where hidden."""
    if not _is_plain(problem):
        return problem.scores(range(matrix, matrix + 1), rows, columns)[0] * LOG2_E
    query, key = _factors(problem, matrix, rows, columns)
    return _hide(problem, query @ key.mT, matrix, rows, columns)


def _factors(
    problem: Problem, matrix: int, rows: Index, columns: Index
) -> tuple[Float[Tensor, "rows head_dim"], Float[Tensor, "columns head_dim"]]:
    dtype = problem.compute_dtype
    (key_matrix,) = problem.key_matrices(range(matrix, matrix + 1))
    query = pick(problem.flat_query[matrix], rows, 0).to(dtype)
    key = pick(problem.flat_key[int(key_matrix)], columns, 0).to(dtype)
    return query * (problem.scoring.scale * LOG2_E), key


def _hide(problem: Problem, scores: Tensor, matrix: int, rows: Index, columns: Index) -> Tensor:
    visible = problem.visible(range(matrix, matrix + 1), rows, columns)
    return scores if visible is None else scores.masked_fill_(~visible[0], -torch.inf)


def _is_plain(problem: Problem) -> bool:
    return problem.scoring.is_plain and problem.clean


def _anchor(logarithm: Tensor) -> Tensor:
    return logarithm.masked_fill(logarithm == -torch.inf, 0)
