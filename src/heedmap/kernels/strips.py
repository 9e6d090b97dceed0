"""Output and statistics in one pass by PyTorch's products: whole rows of weights at a time.

This is what an installation without a compiler has in place of our kernel's single pass.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from heedmap import scratch
from heedmap.bins import Bins
from heedmap.kernels.statistics import Found
from heedmap.largest import top_of_tile
from heedmap.masks import Extent
from heedmap.places import CELLS, Block, pick, split, spread
from heedmap.problem import Problem

LOG2_E, LN_2 = math.log2(math.e), math.log(2)

LEAST_CELLS, MOST_KEYS = 1 << 20, 1 << 15
"""From how many weights, and up to how many keys, this is faster than two passes."""


FEW_ROWS = 64
"""How many rows a product may add up one after the other."""


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
    sides: tuple[Bins, Bins] | None,
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

    Cost: the two products, each once; memory of the answers and of two strips, 32 MiB each
    or less in float32, and of a third for the strongest keys.
    """
    batch, heads, queries, keys = problem.extent
    dtype, device = problem.compute_dtype, value.device
    query = problem.flat_query.to(dtype) * (problem.scoring.scale * LOG2_E)
    key, values = problem.flat_key.to(dtype), value.flatten(0, 1).to(dtype)
    output = query.new_empty((batch * heads, queries, value.shape[-1]))
    normalizer = query.new_empty((batch * heads, queries))
    gathered = _Gathered((batch * heads, queries, keys), query, top, sides)
    for block in _strips(problem.extent, sides):
        some, lines = spread(block.matrices), spread(block.rows)
        place, shared = (some, lines), problem.key_matrices(block.matrices)
        first, second = scratch.two_tiles(block, dtype, device)
        powers = torch.bmm(query[place], pick(key, shared, 0).mT, out=first)
        most = powers.amax(-1, keepdim=True)
        shares = torch.exp2(powers.sub_(most), out=second)
        total = shares.sum(-1, keepdim=True)
        torch.bmm(shares, pick(values, shared, 0), out=output[place])
        output[place].div_(total)
        normalizer[place] = ((most + total.log2()) * LN_2)[..., 0]
        gathered.add(shares, powers, total, block)
    scratch.let_go()
    shape = (batch, heads, queries)
    return output.view(*shape, -1).to(value.dtype), normalizer.view(shape), gathered.found()


def _strips(extent: Extent, sides: tuple[Bins, Bins] | None) -> Iterator[Block]:
    """Yield blocks of whole rows, enough of them for fast products, and in step with a picture."""
    matrices, rows, columns = extent.batch * extent.heads, extent.queries, extent.keys
    high = max(scratch.KEPT_CELLS // columns, min(256, 8 * CELLS // columns))
    each = 1 if sides is None else sides[0].size // sides[0].count
    high = high // each * each or high
    for some in split(matrices, CELLS // (min(rows, high) * columns)):
        for lines in split(rows, high):
            yield Block(some, lines, range(columns))


class _Gathered:
    """The statistics as they grow, strip by strip.

    A weight is a share of its row's total. What is found of the shares is divided by the totals,
    and no strip, which is more.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int],
        like: Tensor,
        top: int,
        sides: tuple[Bins, Bins] | None,
    ) -> None:
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

    def add(self, shares: Tensor, powers: Tensor, total: Tensor, block: Block) -> None:
        """Take in one strip of shares, which are 2 to these powers; both are used up."""
        matrices, rows = spread(block.matrices), spread(block.rows)
        if self.top:
            largest, self.top_keys[matrices, rows] = top_of_tile(shares, self.top)
            self.top_weights[matrices, rows] = largest / total
        spent = powers.mul_(shares).sum(-1, keepdim=True)
        self.entropy[matrices, rows] = ((total.log2() - spent / total) * LN_2)[..., 0]
        bands, band_place = self._banded(shares, total, block.rows)
        self.received[matrices] += bands.sum(1)
        if self.sums is not None and self.columns is not None:
            across, place = self.columns.gather(bands, block.columns, 2, "sum")
            self.sums[matrices, band_place, place] += across

    def _banded(self, shares: Tensor, total: Tensor, rows: range) -> tuple[Tensor, slice]:
        """Return the sums of weights over rows that fall together, and which rows of a picture."""
        each = self.bands.each(rows)
        if not each:
            return self.bands.gather(shares.div_(total), rows, 1, "sum")
        # A product adds up one after the other, so only few rows at a time, for the digits' sake.
        few = math.gcd(each, FEW_ROWS)
        parts = total.reciprocal().unflatten(1, (-1, few)).mT
        bands = (parts @ shares.unflatten(1, (-1, few)))[:, :, 0]
        return bands.unflatten(1, (-1, each // few)).sum(2), self.bands.place(rows)

    def found(self) -> Found:
        """Return what was found."""
        top = (self.top_weights, self.top_keys) if self.top else (None, None)
        return Found(self.received, self.entropy, *top, self.sums)
