"""Answers about a map, each streamed over its tiles; the methods of a map only forward to them.

Every function takes a `LazyMatrix`, a stack of matrices, and returns ordinary tensors whose first
dimension is the stack. Memory is that of the answer and of a block of about a million cells.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from heedmap.bins import Bins
from heedmap.largest import top_of_tile
from heedmap.lazy import LazyMatrix
from heedmap.lazy_algebra import Product
from heedmap.places import Block, block_width, blocks, split, spread
from heedmap.stream import Share, add_up


def sum_type(rule: LazyMatrix) -> torch.dtype:
    """Return the number type in which cells add up: whole numbers for booleans and whole ones."""
    return rule.dtype if rule.dtype.is_floating_point else torch.int64


def row_sums(rule: LazyMatrix) -> Shaped[Tensor, "matrices rows"]:
    """Return the sum of each row. Cost: one pass."""
    if isinstance(rule, Product):
        ones = torch.ones((1, rule.sizes[2], 1), dtype=rule.dtype, device=rule.device)
        return multiply(rule, ones)[..., 0]
    dtype = sum_type(rule)

    def visit(tile: Tensor, block: Block) -> list[Share]:
        place = spread(block.matrices), spread(block.rows)
        return [Share(0, place, tile.sum(-1, dtype=dtype))]

    return add_up(rule, [rule.sizes[:2]], visit, dtype=dtype)[0]


def column_sums(rule: LazyMatrix) -> Shaped[Tensor, "matrices columns"]:
    """Return the sum of each column: how much each key is looked at in all. Cost: one pass."""
    dtype = sum_type(rule)
    matrices, _, columns = rule.sizes

    def visit(tile: Tensor, block: Block) -> list[Share]:
        place = spread(block.matrices), spread(block.columns)
        return [Share(0, place, tile.sum(-2, dtype=dtype))]

    return add_up(rule, [(matrices, columns)], visit, dtype=dtype)[0]


def total(rule: LazyMatrix) -> Shaped[Tensor, " matrices"]:
    """Return the sum of all cells of each matrix. Cost: one pass."""
    return row_sums(rule).sum(-1)


def entropy(rule: LazyMatrix) -> Float[Tensor, "matrices rows"]:
    """Return −Σ p·ln p of each row in nats, 0·ln 0 being 0. Cost: one pass."""

    def visit(tile: Tensor, block: Block) -> list[Share]:
        # The slope of p·ln p at 0 is infinite, and 1·ln 1 is 0 too.
        terms = torch.special.entr(torch.where(tile == 0, 1, tile))
        return [Share(0, (spread(block.matrices), spread(block.rows)), terms.sum(-1))]

    return add_up(rule, [rule.sizes[:2]], visit)[0]


class Drop(NamedTuple):
    """Dropout that can be repeated: a share, and a seed that with a block's place decides."""

    share: float
    seed: int

    def factors(self, tile: Tensor, block: Block) -> Tensor:
        """Return 0 for the cells of a tile that are dropped, and 1/(1 − share) for the rest."""
        place = (block.matrices.start, block.rows.start, block.columns.start)
        generator = torch.Generator(tile.device).manual_seed(hash((self.seed, *place)) % 2**62)
        kept = torch.empty_like(tile).bernoulli_(1 - self.share, generator=generator)
        return kept / (1 - self.share)


def multiply(
    rule: LazyMatrix,
    right: Float[Tensor, "stack columns width"],
    which: Int[Tensor, " matrices"] | None = None,
    drop: Drop | None = None,
) -> Float[Tensor, "matrices rows width"]:
    """Return each matrix @ its `right`, which is right[which]. Cost: one pass.

    Args:
        rule: The matrices.
        right: What they are multiplied with, some or one of them for all.
        which: The number of each matrix's own; None when there is one for all.
        drop: What to drop of the cells before they are used; None for nothing.
    """
    matrices, rows, _ = rule.sizes
    if isinstance(rule, Product) and drop is None:
        # From the right, so that no factor is ever multiplied with another.
        own = torch.arange(matrices, device=right.device)
        return multiply(rule.left, multiply(rule.right, right, which), own)
    numbers = torch.zeros(matrices, dtype=torch.long, device=right.device)
    numbers = numbers if which is None else which
    right = right.to(rule.dtype)

    def visit(tile: Tensor, block: Block, stack: Tensor) -> list[Share]:
        own = stack[numbers[spread(block.matrices)], spread(block.columns)]
        tile = tile if drop is None else tile * drop.factors(tile.detach(), block)
        place = spread(block.matrices), spread(block.rows)
        return [Share(0, place, torch.bmm(tile, own))]

    return add_up(rule, [(matrices, rows, right.shape[-1])], visit, [right])[0]


def extremes(
    rule: LazyMatrix, largest: bool = True
) -> tuple[Shaped[Tensor, "matrices rows"], Int[Tensor, "matrices rows"]]:
    """Return the largest (or smallest) cell of each row and its column, the first of equals.

    Cost: one pass. The value is differentiable through that cell.
    """
    columns = rule.sizes[2]
    if not columns:
        raise IndexError("an extreme must be taken over at least one cell; got none.")
    if (home := rule.home()) is not None:
        value, found = home.top(rule, 1, largest)
        return value[..., 0], found[..., 0]
    values, places = [], []
    with torch.no_grad():
        for matrices, lines in _row_strips(rule):
            best: Tensor | None = None
            place = None
            for across in split(columns, block_width(len(matrices) * len(lines))):
                tile = rule.tile(matrices, lines, across)
                tile = tile.byte() if tile.dtype == torch.bool else tile
                value, at = tile.max(-1) if largest else tile.min(-1)
                at = at + across.start
                if best is None or place is None:
                    best, place = value, at
                    continue
                better = value > best if largest else value < best
                better |= value.isnan() & ~best.isnan()
                best, place = torch.where(better, value, best), torch.where(better, at, place)
            assert best is not None
            assert place is not None
            values.append((matrices, lines, best))
            places.append((matrices, lines, place))
    found = _assemble(places, rule.sizes[:2], torch.int64, rule.device)
    value = _assemble(values, rule.sizes[:2], rule.dtype, rule.device)
    if _needs_gradient(rule):
        value = _with_gradient(rule, value[..., None], found[..., None])[..., 0]
    return value, found


def top(
    rule: LazyMatrix, count: int, largest: bool = True
) -> tuple[Float[Tensor, "matrices rows count"], Int[Tensor, "matrices rows count"]]:
    """Return the `count` largest cells of each row, in order, with their columns.

    Equal cells come in the order of their columns, so the answer is exact and repeatable.

    Cost: one pass; memory of the answer. The values are differentiable.
    """
    shape = (*rule.sizes[:2], count)
    if not count:
        empty = torch.zeros(shape, dtype=rule.dtype, device=rule.device)
        return empty, empty.long()
    if (home := rule.home()) is not None:
        return home.top(rule, count, largest)
    found, values = [], []
    with torch.no_grad():
        for some, lines in _row_strips(rule):
            held: tuple[Tensor, Tensor] | None = None
            for across in _worth_searching(rule, some, lines, count, largest):
                tile = rule.tile(some, lines, across)
                value, place = top_of_tile(tile, min(count, len(across)), largest)
                place = place + across.start
                if held is not None:
                    value = torch.cat([held[0], value], dim=-1)
                    place = torch.cat([held[1], place], dim=-1)
                    value, order = value.sort(dim=-1, descending=largest, stable=True)
                    value, place = value[..., :count], place.gather(-1, order)[..., :count]
                held = value, place
            if held is not None:
                values.append((some, lines, held[0]))
                found.append((some, lines, held[1]))
    place = _assemble(found, shape, torch.int64, rule.device)
    value = _assemble(values, shape, rule.dtype, rule.device)
    return (_with_gradient(rule, value, place) if _needs_gradient(rule) else value), place


def _worth_searching(
    rule: LazyMatrix, matrices: range, rows: range, count: int, largest: bool
) -> list[range]:
    """Return the columns in which the top of these rows can lie, a block at a time.

    Where all columns outside a range are 0, the first `count` on either side stand for the rest.
    """
    columns = rule.sizes[2]
    start, stop = rule.column_range(rows) if largest else (0, columns)
    width = max(block_width(len(matrices) * len(rows)), 4 * count)
    before, after = range(min(count, start)), range(stop, min(stop + count, columns))
    within = [range(start + some.start, start + some.stop) for some in split(stop - start, width)]
    return [some for some in (before, *within, after) if some]


def pool(
    rule: LazyMatrix, rows: int, columns: int, how: str = "mean"
) -> Float[Tensor, "matrices pooled_rows pooled_columns"]:
    """Return the map as a small picture: the mean, sum or maximum of rectangular blocks.

    Block i of n covers the positions from ⌊i·size/n⌋ up to ⌊(i+1)·size/n⌋; a side shorter than
    what is asked for keeps its own size.

    Cost: one pass; memory of the picture. Mean and sum are differentiable.
    """
    matrices, size_rows, size_columns = rule.sizes
    rows, columns = min(rows, size_rows), min(columns, size_columns)
    if how == "max":
        return _pool_max(rule, rows, columns)
    row_bins, column_bins = Bins(size_rows, rows), Bins(size_columns, columns)

    def visit(tile: Tensor, block: Block) -> list[Share]:
        # Rows first: they add up whole lines, and leave little for the slower columns.
        down, row_place = row_bins.gather(tile, block.rows, 1, "sum")
        across, column_place = column_bins.gather(down, block.columns, 2, "sum")
        return [Share(0, (spread(block.matrices), row_place, column_place), across)]

    summed = add_up(rule, [(matrices, rows, columns)], visit)[0]
    if how == "sum":
        return summed
    return summed / (row_bins.counts(rule.device)[:, None] * column_bins.counts(rule.device))


def _pool_max(rule: LazyMatrix, rows: int, columns: int) -> Tensor:
    matrices, size_rows, size_columns = rule.sizes
    pooled = torch.full((matrices, rows, columns), -torch.inf, device=rule.device).to(rule.dtype)
    row_bins, column_bins = Bins(size_rows, rows), Bins(size_columns, columns)
    with torch.no_grad():
        for block in blocks(*rule.sizes):
            down, row_place = row_bins.gather(rule.tile(*block), block.rows, 1, "amax")
            across, column_place = column_bins.gather(down, block.columns, 2, "amax")
            part = pooled[spread(block.matrices), row_place, column_place]
            torch.maximum(part, across, out=part)
    return pooled


def edges(
    rule: LazyMatrix, threshold: float
) -> tuple[Int[Tensor, "edges 3"], Float[Tensor, " edges"]]:
    """Return the cells of at least `threshold`: their matrix, row and column, and their values.

    They come in the order matrix, row, column. Cost: one pass; memory of the answer.
    """
    places, values = [], []
    with torch.no_grad():
        for block in blocks(*rule.sizes):
            tile = rule.tile(*block)
            at = (tile >= threshold).nonzero()
            values.append(tile[tuple(at.unbind(1))])
            starts = [block.matrices.start, block.rows.start, block.columns.start]
            places.append(at + torch.tensor(starts, device=at.device))
    if not places:
        empty = torch.empty((0, 3), dtype=torch.int64, device=rule.device)
        return empty, torch.empty(0, dtype=rule.dtype, device=rule.device)
    place, value = torch.cat(places), torch.cat(values)
    _, rows, columns = rule.sizes
    order = torch.argsort((place[:, 0] * rows + place[:, 1]) * columns + place[:, 2])
    return place[order], value[order]


def diagonal(rule: LazyMatrix, offset: int = 0) -> Float[Tensor, "matrices length"]:
    """Return the cells with column − row = offset. Cost: O(length) time and memory."""
    matrices, rows, columns = rule.sizes
    first_row, first_column = max(-offset, 0), max(offset, 0)
    length = max(min(rows - first_row, columns - first_column), 0)
    steps = torch.arange(length, device=rule.device)
    which = torch.arange(matrices, device=rule.device).repeat_interleave(length)
    at = steps.repeat(matrices)
    return rule.cells(which, at + first_row, at + first_column).reshape(matrices, length)


def dense(rule: LazyMatrix) -> Shaped[Tensor, "matrices rows columns"]:
    """Return every cell. Cost: memory of them all; the caller has seen to the budget."""
    return rule.tile(*(range(size) for size in rule.sizes))


def _row_strips(rule: LazyMatrix) -> list[tuple[range, range]]:
    seen: dict[tuple[range, range], None] = {}
    for block in blocks(*rule.sizes):
        seen[block.matrices, block.rows] = None
    return list(seen)


def _assemble(
    parts: list[tuple[range, range, Tensor]],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    whole = torch.zeros(shape, dtype=dtype, device=device)
    for matrices, rows, part in parts:
        whole[spread(matrices), spread(rows)] = part.to(dtype)
    return whole


def _needs_gradient(rule: LazyMatrix) -> bool:
    return torch.is_grad_enabled() and rule.requires_grad()


def _with_gradient(rule: LazyMatrix, value: Tensor, place: Tensor) -> Tensor:
    """Return `value` to the bit, with the gradient of the cells that it was read from."""
    cells = cells_at(rule, place)
    # −inf − −inf is not a number; such a cell has no gradient anyway.
    change = (cells - cells.detach()).masked_fill(~torch.isfinite(cells), 0)
    return value + change


def cells_at(
    rule: LazyMatrix, columns: Int[Tensor, "matrices rows count"]
) -> Shaped[Tensor, "matrices rows count"]:
    """Return the cells of each row at these columns. Cost: that of so many single cells."""
    matrices, rows, count = columns.shape
    which = torch.arange(matrices, device=columns.device)[:, None, None].expand_as(columns)
    lines = torch.arange(rows, device=columns.device)[None, :, None].expand_as(columns)
    cells = rule.cells(which.flatten(), lines.flatten(), columns.flatten())
    return cells.reshape(matrices, rows, count)
