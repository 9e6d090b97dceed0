"""Weights of one matrix of a problem by blocks, and a softmax that is gathered in one sweep.

Scores are base-2 logarithms here, because 2ˣ is several times faster than eˣ on a CPU. Most of
the time goes into the products of queries and keys, so a sweep makes each of them once: it brings
the log-normaliser and, with it, what the picture of these rows is made of.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.explore.shrinking import shrink
from heedmap.explore.stopping import require_wanted
from heedmap.kernels import tiles
from heedmap.kernels.tiles import LOG2_E
from heedmap.places import Index, pick, split
from heedmap.problem import Problem

CELLS = 1 << 18
"""About how many cells a block has: few enough for the cache of a core, which reads them again and
again, and enough for fast products."""


class Swept(NamedTuple):
    """What one sweep over some rows found.

    Attributes:
        normalizer: The log-normaliser of each row.
        sums: The sum of each block of `side` × `side` weights, where they were asked for.
        maxima: The largest weight of each.
    """

    normalizer: Float[Tensor, " rows"]
    sums: Float[Tensor, "down across"] | None = None
    maxima: Float[Tensor, "down across"] | None = None


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


def sweep(problem: Problem, matrix: int, rows: Index, side: int | None = None) -> Swept:
    """Return the log-normaliser of some rows and, if `side` is given, their picture.

    The picture is right where everything in the problem is finite.

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
        sums = shrink(powers, 1, side, "sum")
        totals.append(sums.sum(1))
        pictures.append((columns.start // side, sums, shrink(powers, 1, side, "max")))
    logarithm = _joined(problem, matrix, len(rows), peaks, totals)
    if side is None:
        return Swept(logarithm / LOG2_E)
    down, across = -(-len(rows) // side), -(-keys // side)
    whole = logarithm.new_zeros((2, down, across))
    for peak, (place, sums, maxima) in zip(peaks, pictures, strict=True):
        share = torch.exp2(_anchor(peak) - _anchor(logarithm))[:, None]
        here = slice(place, place + sums.shape[1])
        whole[0, :, here] = shrink(sums * share, side, 1, "sum")
        whole[1, :, here] = shrink(maxima * share, side, 1, "max")
    return Swept(logarithm / LOG2_E, *whole)


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
