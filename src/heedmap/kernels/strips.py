"""Output and statistics in one pass by PyTorch's products: whole rows of weights at a time.

This is what an installation without a compiler has in place of our kernel's single pass.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from heedmap import scratch
from heedmap.bins import Bins
from heedmap.kernels.statistics import Found
from heedmap.largest import top_of_tile
from heedmap.masks import Extent
from heedmap.places import CELLS, pick, split, spread
from heedmap.problem import Problem

LOG2_E, LN_2 = math.log2(math.e), math.log(2)

LEAST_CELLS, MOST_KEYS = 1 << 20, 1 << 15
"""From how many weights, and up to how many keys, this is faster than two passes."""

FEW_ROWS = 64
"""How many rows a product may add up one after the other."""

MOST_ROWS, MOST_CELLS = 1024, 16 * CELLS
"""The most rows and cells of a strip."""

BLOCK_CELLS = 2 * CELLS
"""How many cells a block of a strip has: enough for fast products, and what a cache holds."""

Sides = tuple[Bins, Bins] | None
"""Where queries and keys fall in a picture; None for no picture."""

Strip = Sequence[Tensor]
"""The blocks of some rows, side by side."""


def attends(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> bool:
    """Return whether `attend` computes this problem, and faster than two passes do.

    The problem must be one that PyTorch's kernel serves. It knows no mask and nothing of scores but
    their scale, and gives no gradient.
    """
    if torch._C._are_functorch_transforms_active():
        return False
    given = (problem.query, problem.key, value)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return False
    return (
        problem.query.is_cpu
        and problem.mask is None
        and problem.scoring.is_plain
        and problem.scoring.sinks is None
        and problem.extent.keys <= MOST_KEYS
        and math.prod(problem.extent) >= LEAST_CELLS
        and all(type(t) in (Tensor, Parameter) for t in given)
    )


def attend(
    problem: Problem,
    value: Float[Tensor, "batch kv_heads key value_dim"],
    top: int,
    sides: Sides,
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
    Found,
]:
    """Return the output, the log-normaliser, and statistics of the weights.

    Args:
        problem: One that this `attends`.
        value: What is gathered.
        top: How many of the strongest keys of each row to find.
        sides: Where queries and keys fall in a picture of sums; None for no picture.

    Cost: the two products, each once; memory of the answers, of a strip, 64 MiB or less in float32,
    and of a block of 8 MiB.
    """
    batch, heads, queries, keys = problem.extent
    dtype, device = problem.compute_dtype, value.device
    query = problem.flat_query.to(dtype) * (problem.scoring.scale * LOG2_E)
    key, values = problem.flat_key.to(dtype), value.flatten(0, 1).to(dtype)
    output = query.new_empty((batch * heads, queries, value.shape[-1]))
    normalizer = query.new_empty((batch * heads, queries))
    gathered = _Gathered((batch * heads, queries, keys), query, top, sides)
    high, width = _shape(problem.extent, gathered)
    for matrices, rows in _strips(problem.extent, high):
        lines, (some, place) = (len(matrices), len(rows)), (spread(matrices), spread(rows))
        sizes = [(*lines, len(columns)) for columns in split(keys, width)]
        copied = keys if gathered.needs_whole(rows) and len(sizes) > 1 else 0
        *strip, room, weights = scratch.rooms([*sizes, sizes[0], (*lines, copied)], dtype, device)
        shared = problem.key_matrices(matrices)
        near = pick(key, shared, 0).split(width, 1), pick(values, shared, 0).split(width, 1)
        parts = [
            _take_in(query[some, place], *given, room) for given in zip(*near, strip, strict=True)
        ]
        joined = _joined(parts, strip)
        output[some, place], normalizer[some, place] = joined.output, joined.normalizer
        gathered.add(strip, joined, weights if copied else strip[0], (matrices, rows))
    scratch.let_go()
    shape = (batch, heads, queries)
    return output.view(*shape, -1).to(value.dtype), normalizer.view(shape), gathered.found()


def _strips(extent: Extent, high: int) -> Iterator[tuple[range, range]]:
    """Yield matrices and rows, so many at most; small matrices share a strip."""
    together = BLOCK_CELLS // (min(high, extent.queries) * extent.keys)
    for matrices in split(extent.batch * extent.heads, together):
        for rows in split(extent.queries, high):
            yield matrices, rows


def _shape(extent: Extent, gathered: "_Gathered") -> tuple[int, int]:
    """Return how many rows a strip has, and how many keys a block of it, in step with a picture."""
    high = min(MOST_ROWS, extent.queries, max(MOST_CELLS // extent.keys, 1))
    high = _in_step(high, gathered.bands)
    if any(gathered.needs_whole(rows) for rows in split(extent.queries, high)):
        # Half as much, since whole rows of weights are to be copied.
        high = _in_step((high + 1) // 2, gathered.bands)
    return high, min(extent.keys, _in_step(BLOCK_CELLS // high, gathered.columns))


def _in_step(size: int, side: Bins | None) -> int:
    """Return about this size, as a multiple of a picture's blocks where those are smaller."""
    each = 1 if side is None else side.size // side.count
    return size // each * each or size


class _Part(NamedTuple):
    """What a block of keys comes to; a share is 2 to the score less the row's peak there."""

    peak: Float[Tensor, "matrices rows 1"]
    total: Float[Tensor, "matrices rows 1"]
    spent: Float[Tensor, "matrices rows 1"]
    output: Float[Tensor, "matrices rows value_dim"]


def _take_in(query: Tensor, key: Tensor, value: Tensor, shares: Tensor, room: Tensor) -> _Part:
    """Leave the shares of a block in their place, and return what they come to."""
    powers = room.flatten()[: shares.numel()].view(shares.shape)
    torch.bmm(query, key.mT, out=powers)
    # Where nothing but −inf stands, the shares are to be 0.
    peak = powers.amax(-1, keepdim=True).clamp_(min=torch.finfo(powers.dtype).min)
    torch.exp2(powers.sub_(peak), out=shares)
    total = shares.sum(-1, keepdim=True)
    spent = powers.mul_(shares).sum(-1, keepdim=True)
    return _Part(peak, total, spent, torch.bmm(shares, value))


class _Joined(NamedTuple):
    """What whole rows come to, and the factor that makes weights of the shares of each block."""

    output: Float[Tensor, "matrices rows value_dim"]
    normalizer: Float[Tensor, "matrices rows"]
    entropy: Float[Tensor, "matrices rows"]
    factors: Float[Tensor, "blocks matrices rows 1"]


def _joined(parts: list[_Part], strip: Strip) -> _Joined:
    """Join the blocks of a strip; the outputs of its parts are used up."""
    peak = torch.stack([part.peak for part in parts])
    total = torch.stack([part.total for part in parts])
    spent = torch.stack([part.spent for part in parts])
    if bool(spent.isnan().any()):
        # A score of −inf makes 0 · −inf, which counts for nothing.
        kinds = [torch.special.entr(shares).sum(-1, keepdim=True) for shares in strip]
        spent = torch.stack(kinds) / -LN_2
    most = peak.amax(0)
    away = peak - most
    factors = torch.exp2(away)
    whole = (factors * total).sum(0)
    logarithm = whole.log2()
    entropy = logarithm - (factors * (spent + away * total)).sum(0) / whole
    factors /= whole
    output = parts[0].output.mul_(factors[0])
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        output.addcmul_(part.output, factor)
    normalizer = (most + logarithm) * LN_2
    return _Joined(output, normalizer[..., 0], (entropy * LN_2)[..., 0], factors)


class _Gathered:
    """The statistics as they grow, strip by strip."""

    def __init__(self, sizes: tuple[int, int, int], like: Tensor, top: int, sides: Sides) -> None:
        matrices, rows, columns = sizes
        self.top = top
        self.bands, self.columns = (Bins(rows, 1), None) if sides is None else sides
        self.received = like.new_zeros((matrices, columns))
        self.entropy = like.new_empty((matrices, rows))
        self.top_weights = like.new_empty((matrices, rows, top))
        self.top_keys = torch.empty_like(self.top_weights, dtype=torch.long)
        self.sums = None
        if sides is not None:
            self.sums = like.new_zeros((matrices, sides[0].count, sides[1].count))

    def needs_whole(self, rows: range) -> bool:
        """Return whether weights of these rows are needed, and not the shares of blocks alone."""
        return bool(self.top) or not self.bands.each(rows)

    def add(
        self, strip: Strip, joined: _Joined, weights: Tensor, place: tuple[range, range]
    ) -> None:
        """Take in the shares of some rows; `weights` is room for whole rows where needed."""
        matrices, rows = (spread(numbers) for numbers in place)
        self.entropy[matrices, rows] = joined.entropy
        for shares, factor, columns in zip(
            strip, joined.factors, _side_by_side(strip), strict=True
        ):
            if self.needs_whole(place[1]):
                made = torch.mul(shares, factor, out=weights[..., spread(columns)])
                bands, band_place = self.bands.gather(made, place[1], 1, "sum")
            else:
                bands = _banded(shares, factor, self.bands.each(place[1]))
                band_place = self.bands.place(place[1])
            self.received[matrices, spread(columns)] += bands.sum(1)
            if self.sums is not None and self.columns is not None:
                across, column_place = self.columns.gather(bands, columns, 2, "sum")
                self.sums[matrices, band_place, column_place] += across
        if self.top:
            found = top_of_tile(weights, self.top)
            self.top_weights[matrices, rows], self.top_keys[matrices, rows] = found

    def found(self) -> Found:
        """Return what was found."""
        top = (self.top_weights, self.top_keys) if self.top else (None, None)
        return Found(self.received, self.entropy, *top, self.sums)


def _side_by_side(strip: Strip) -> Iterator[range]:
    """Yield the columns of each block."""
    stop = 0
    for shares in strip:
        yield range(stop, stop := stop + shares.shape[-1])


def _banded(shares: Tensor, factor: Tensor, each: int) -> Tensor:
    """Return the sums of the weights of every `each` rows of a block, without making them."""
    # A product adds up one after the other, so only few rows at a time, for the digits' sake.
    few = math.gcd(each, FEW_ROWS)
    bands = factor.unflatten(1, (-1, few)).mT @ shares.unflatten(1, (-1, few))
    return bands[:, :, 0].unflatten(1, (-1, each // few)).sum(2)
