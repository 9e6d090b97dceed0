"""Rows, columns and single cells, brought together from the ranks that have them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from heedmap.masks import Mask
from heedmap.parallel.blocks import Picked, as_positions
from heedmap.parallel.layout import Layout
from heedmap.parallel.members import Members
from heedmap.parallel.reading import Known
from heedmap.parallel.shards import Shards
from heedmap.places import Index, Places, look_up, pick
from heedmap.problem import Problem


class _Together(torch.autograd.Function):
    """Puts together along one dimension what each rank has of it; the same on every rank.

    The gradient is the same on every rank, too, so each takes its own part of it.
    """

    @staticmethod
    def forward(ctx: Any, part: Tensor, mine: Tensor, dim: int, members: Members) -> Tensor:
        ctx.save_for_backward(mine)
        ctx.dim = dim
        shape = list(part.shape)
        shape[dim] = len(mine)
        whole = part.new_zeros(shape)
        whole.index_copy_(dim, mine.nonzero().flatten(), part)
        members.add_up(whole)
        return whole

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        (mine,) = ctx.saved_tensors
        return grad.index_select(ctx.dim, mine.nonzero().flatten()), None, None, None


@dataclass(frozen=True, eq=False)
class Asked:
    """Some positions, and which of them this rank has.

    Attributes:
        numbers: The positions.
        mine: Which of them are this rank's.
        local: Where those lie in what it has.
    """

    numbers: Tensor
    mine: Tensor
    local: Tensor

    @classmethod
    def of(cls, index: Index, layout: Layout, rank: int) -> "Asked":
        """Look up whose the positions are."""
        numbers = as_positions(index)
        owners, local = layout.owners(numbers)
        return cls(numbers, owners == rank, local[owners == rank])


def whole_rows(
    part: Shaped[Tensor, "..."], layout: Layout, members: Members, dim: int
) -> Shaped[Tensor, "..."]:
    """Return what each rank has along `dim`, in the order of positions, on every rank."""
    asked = Asked.of(range(layout.size), layout, members.rank)
    own = part.index_select(dim, asked.local.to(part.device))
    return _Together.apply(own, asked.mine.to(part.device), dim, members)  # pyright: ignore


class Fetched:
    """What a block needs, brought together from those who have it.

    Args:
        shards: The problem.
        known: What is known of this rank's rows.
    """

    def __init__(self, shards: Shards, known: Known) -> None:
        """Hold both."""
        self.shards, self.known = shards, known

    def block(self, matrices: Index, rows: Index, columns: Index) -> tuple[Problem, Known]:
        """Return the problem of some matrices, rows and columns, and the rows' log-normaliser.

        Cost: sends O(matrices · (rows + columns) · head_dim) numbers, and those of the bias.
        """
        shards, rank = self.shards, self.shards.members.rank
        stack = as_positions(matrices)
        lines = Asked.of(rows, shards.queries, rank)
        across = Asked.of(columns, shards.keys, rank)
        shared = self._key_matrices(stack)
        query = self._of(shards.query.flatten(0, 1), stack, lines)
        key = self._of(shards.key.flatten(0, 1), shared, across)
        bias = self._bias(stack, lines, across.numbers)
        mask = shards.mask
        if mask is not None:
            mask = self._picked(mask, stack, lines.numbers, across.numbers)
        problem = self._problem(query[None], key[None], mask, bias)
        return problem, self.known.map(
            lambda numbers: self._of(numbers[..., None], stack, lines)[..., 0]
        )

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> tuple[Problem, Known]:
        """Return the same for single cells: each is a matrix of one row and one column.

        Cost: sends O(cells · head_dim) numbers.
        """
        shards, rank = self.shards, self.shards.members.rank
        stack, rows, columns = (index.cpu() for index in (matrices, rows, columns))
        lines = Asked.of(rows, shards.queries, rank)
        across = Asked.of(columns, shards.keys, rank)
        shared = self._key_matrices(stack)
        query = self._each(shards.query.flatten(0, 1), stack, lines)
        key = self._each(shards.key.flatten(0, 1), shared, across)
        bias = shards.scoring.bias
        if bias is not None:
            mine = (stack[lines.mine], lines.local, columns[lines.mine])
            which, *where = (index.to(bias.device) for index in mine)
            own = look_up(bias, Places.of_cells(which, shards.query.shape[1], *where))
            bias = self._joined(own[:, None, None, None], lines, 0)
        mask = shards.mask
        if mask is not None:
            mask = replace(self._picked(mask, stack, rows, columns), paired=True)
        problem = self._problem(query[:, None, None], key[:, None, None], mask, bias)
        return problem, self.known.map(lambda numbers: self._each(numbers[..., None], stack, lines))

    def _key_matrices(self, stack: Tensor) -> Tensor:
        """Return which matrices of keys these matrices of queries look into."""
        heads, kv_heads = self.shards.query.shape[1], self.shards.key.shape[1]
        return stack // heads * kv_heads + stack % heads // (heads // kv_heads)

    def _of(self, given: Tensor, stack: Tensor, asked: Asked) -> Tensor:
        own = pick(pick(given, stack, 0), asked.local, 1)
        return self._joined(own, asked, 1)

    def _each(self, given: Tensor, stack: Tensor, asked: Asked) -> Tensor:
        own = given[stack[asked.mine].to(given.device), asked.local.to(given.device)]
        return self._joined(own, asked, 0)

    def _bias(self, stack: Tensor, lines: Asked, columns: Tensor) -> Tensor | None:
        bias = self.shards.scoring.bias
        if bias is None:
            return None
        heads = self.shards.query.shape[1]
        which, *where = (index.to(bias.device) for index in (stack, lines.local, columns))
        own = look_up(bias, Places.of_block(which, heads, *where))
        shape = (len(stack), len(lines.local), own.shape[-1])
        return self._joined(own.expand(shape), lines, 1)[None]

    def _joined(self, own: Tensor, asked: Asked, dim: int) -> Tensor:
        # gloo does not add up every number type of half precision.
        own = own.to(self.shards.compute_dtype) if own.dtype != torch.float64 else own
        mine = asked.mine.to(own.device)
        return _Together.apply(own, mine, dim, self.shards.members)  # pyright: ignore

    def _picked(self, mask: Mask, stack: Tensor, rows: Tensor, columns: Tensor) -> Picked:
        query = self.shards.query
        stack, rows, columns = (index.to(query.device) for index in (stack, rows, columns))
        return Picked(mask, query.shape[1], stack, rows, columns)

    def _problem(
        self, query: Tensor, key: Tensor, mask: Picked | None, bias: Tensor | None
    ) -> Problem:
        scoring = replace(self.shards.scoring, bias=bias, sinks=None)
        return Problem(query, key, mask, scoring, all(self.shards.clean))
