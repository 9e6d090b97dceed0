"""Rules that compute: cell-wise functions, reductions across the stack, joins, products.

Each is a `LazyMatrix` over others and makes a tile from theirs; none keeps any cell.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from heedmap.lazy import LazyMatrix, OnBase, Sharded, sharded_in
from heedmap.places import CELLS, Index, as_numbers, compose, pick, split

_NAMES = """
abs add clamp div eq exp ge gt isfinite isinf isnan le log log10 log1p log2 logical_and logical_not
logical_or lt maximum minimum mul nan_to_num ne neg pow reciprocal relu round sigmoid sign sqrt
square sub tanh where xlogy
"""

POINTWISE: dict[str, Callable[..., Tensor]] = {
    name: getattr(torch, name) for name in _NAMES.split()
}
POINTWISE |= {"entr": torch.special.entr, "cast": torch.Tensor.to}
"""The cell-wise functions, by the name under which a rule (and a saved file) knows them."""

_KEEPS_ZERO = {"abs", "cast", "neg", "sqrt", "square", "sign", "tanh", "relu", "round", "entr"}


@dataclass(frozen=True, eq=False)
class Pointwise(LazyMatrix):
    """A cell-wise function of rules and numbers; sizes of 1 stand for all.

    Attributes:
        name: Which of `POINTWISE`.
        operands: Rules, numbers, and other plain arguments, in the function's order.
        options: Its keyword arguments.
    """

    name: str
    operands: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def rules(self) -> list[LazyMatrix]:
        """Those of the operands that are rules."""
        return [operand for operand in self.operands if isinstance(operand, LazyMatrix)]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        matrices, rows, columns = torch.broadcast_shapes(*(rule.sizes for rule in self.rules))
        return matrices, rows, columns

    @property
    def dtype(self) -> torch.dtype:
        """What the function makes of the operands' number types."""
        return self._apply(
            lambda rule: torch.ones((1, 1, 1), dtype=rule.dtype, device=rule.device)
        ).dtype

    @property
    def device(self) -> torch.device:
        """That of the operands."""
        return self.rules[0].device

    def requires_grad(self) -> bool:
        """A function that gives no floating-point numbers carries no gradient."""
        return self.dtype.is_floating_point and super().requires_grad()

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Apply the function to the operands' tiles."""
        asked = matrices, rows, columns

        def part(rule: LazyMatrix) -> Tensor:
            numbers = zip(rule.sizes, self.sizes, asked, strict=True)
            return rule.tile(
                *(range(1) if have == 1 != want else index for have, want, index in numbers)
            )

        made = self._apply(part)
        shape = tuple(len(index) for index in asked)
        return made if made.shape == shape else made.expand(shape)

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Apply the function to the operands' cells."""
        asked = matrices, rows, columns

        def part(rule: LazyMatrix) -> Tensor:
            numbers = zip(rule.sizes, self.sizes, asked, strict=True)
            return rule.cells(
                *(index * 0 if have == 1 != want else index for have, want, index in numbers)
            )

        return self._apply(part)

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Keep the first operand's zeros where the function does; else promise nothing."""
        first = self.operands[0]
        keeps = self.name in _KEEPS_ZERO or (self.name in ("mul", "div") and _is_number(self))
        if keeps and isinstance(first, LazyMatrix) and first.sizes == self.sizes:
            return first.column_range(rows)
        return 0, self.sizes[2]

    def home(self) -> Sharded | None:
        """That of all operands, but for those that are one row or column for all, or no map."""
        homes = [rule.home() for rule in self.rules]
        first = next((home for home in homes if home is not None), None)
        for rule, home in zip(self.rules, homes, strict=True):
            alike = home is not None and first is not None and home.is_same(first)
            if not alike and sharded_in(rule) is not None:
                return None
        return first if first is not None and first.sizes[1:] == self.sizes[1:] else None

    def _apply(self, part: Callable[[LazyMatrix], Tensor]) -> Tensor:
        given = [part(x) if isinstance(x, LazyMatrix) else x for x in self.operands]
        return POINTWISE[self.name](*given, **dict(self.options))


def _is_number(rule: Pointwise) -> bool:
    """Whether the second operand is a plain number that leaves 0 at 0."""
    other = rule.operands[1] if len(rule.operands) > 1 else None
    if not isinstance(other, int | float):
        return False
    return other != 0 and other == other and abs(other) != float("inf")


@dataclass(frozen=True, eq=False)
class AcrossMatrices(OnBase):
    """A reduction across the stack, such as the mean over heads: cell by cell, still lazy.

    Attributes:
        base: What is reduced.
        groups: For each resulting matrix, the numbers of those that go into it.
        how: ``sum``, ``mean``, ``amax``, ``amin``, ``argmax`` or ``argmin``.
    """

    groups: Int[Tensor, "matrices members"]
    how: str

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        return len(self.groups), *self.base.sizes[1:]

    @property
    def dtype(self) -> torch.dtype:
        """That of the base, or whole numbers for what counts or names a matrix."""
        if self.how.startswith("arg"):
            return torch.int64
        base = self.base.dtype
        return torch.int64 if self.how == "sum" and not base.is_floating_point else base

    def requires_grad(self) -> bool:
        """The number of a member carries no gradient."""
        return self.dtype.is_floating_point and super().requires_grad()

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Go through the members one tile at a time."""
        members = pick(self.groups, matrices, 0).unbind(1)
        return self._reduce(lambda numbers: self.base.tile(numbers, rows, columns), members)

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Go through the members one at a time."""
        members = self.groups[matrices].unbind(1)
        return self._reduce(lambda numbers: self.base.cells(numbers, rows, columns), members)

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Where every member is 0, so is their sum, mean or extreme."""
        return (0, self.sizes[2]) if self.how.startswith("arg") else self.base.column_range(rows)

    def home(self) -> Sharded | None:
        """That of the base."""
        return self.base.home()

    def _reduce(self, part: Callable[[Tensor], Tensor], members: tuple[Tensor, ...]) -> Tensor:
        if self.how in ("sum", "mean"):
            total = part(members[0]).to(self.dtype)
            for numbers in members[1:]:
                total = total + part(numbers)
            return total / len(members) if self.how == "mean" else total
        best = part(members[0])
        place = torch.zeros_like(best, dtype=torch.int64)
        for number, numbers in enumerate(members[1:], start=1):
            other = part(numbers)
            better = other > best if self.how.endswith("max") else other < best
            better = better | (other.isnan() & ~best.isnan())
            best = torch.where(better, other, best)
            place = place.masked_fill(better, number)
        return place if self.how.startswith("arg") else best


@dataclass(frozen=True, eq=False)
class Join(LazyMatrix):
    """Rules side by side along one dimension: 0 for the stack, 1 for rows, 2 for columns."""

    parts: tuple[LazyMatrix, ...]
    along: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        sizes = list(self.parts[0].sizes)
        sizes[self.along] = sum(part.sizes[self.along] for part in self.parts)
        return sizes[0], sizes[1], sizes[2]

    @property
    def dtype(self) -> torch.dtype:
        """What the parts' number types promote to."""
        dtype = self.parts[0].dtype
        for part in self.parts[1:]:
            dtype = torch.promote_types(dtype, part.dtype)
        return dtype

    @property
    def device(self) -> torch.device:
        """That of the parts."""
        return self.parts[0].device

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Gather from each part what lies in it."""
        pieces, order = [], []
        for part, here, where in self._shares((matrices, rows, columns)[self.along]):
            asked: list[Index] = [matrices, rows, columns]
            asked[self.along] = here
            pieces.append(part.tile(*asked).to(self.dtype))
            order.append(where)
        if len(pieces) == 1:
            return pieces[0]
        joined = torch.cat(pieces, dim=self.along)
        return joined.index_select(self.along, torch.argsort(torch.cat(order)))

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Gather from each part what lies in it."""
        asked = [matrices, rows, columns]
        pieces, order = [], []
        for part, here, where in self._shares(asked[self.along]):
            mine = [index[where] for index in asked]
            mine[self.along] = here
            pieces.append(part.cells(*mine).to(self.dtype))
            order.append(where)
        return torch.cat(pieces)[torch.argsort(torch.cat(order))] if pieces else matrices[:0]

    def _shares(self, index: Index) -> Iterator[tuple[LazyMatrix, Tensor, Tensor]]:
        """Yield each part that is asked for, its own numbers, and their places in `index`."""
        start = 0
        numbers = as_numbers(index, self.device)
        for part in self.parts:
            stop = start + part.sizes[self.along]
            where = ((numbers >= start) & (numbers < stop)).nonzero().flatten()
            if len(where):
                yield part, numbers[where] - start, where
            start = stop


@dataclass(frozen=True, eq=False)
class Product(LazyMatrix):
    """A matrix product, which stays one until rows of it are asked for.

    Rows are carried through the factors from the left, so that one row of a long chain costs one
    pass over each factor.
    """

    left: LazyMatrix
    right: LazyMatrix

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        matrices = max(self.left.sizes[0], self.right.sizes[0])
        return matrices, self.left.sizes[1], self.right.sizes[2]

    @property
    def dtype(self) -> torch.dtype:
        """What the factors' number types promote to."""
        return torch.promote_types(self.left.dtype, self.right.dtype)

    @property
    def device(self) -> torch.device:
        """That of the factors."""
        return self.left.device

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Carry the rows of the left factor through the right one, some at a time."""
        inner = range(self.left.sizes[2])
        step = max(CELLS // max(len(inner) * len(matrices), 1), 1)
        results = [
            self.right.left_multiply(
                self.left.tile(matrices, compose(rows, some), inner).to(self.dtype),
                matrices,
                columns,
            )
            for some in split(len(rows), step)
        ]
        return torch.cat(results, dim=1) if results else self._empty(matrices, columns)

    def left_multiply(self, left: Tensor, matrices: Index, columns: Index) -> Tensor:
        """Carry the rows through one factor after the other."""
        inner = self.left.left_multiply(left, matrices, range(self.left.sizes[2]))
        return self.right.left_multiply(inner.to(self.dtype), matrices, columns)

    def _empty(self, matrices: Index, columns: Index) -> Tensor:
        size = (len(matrices), 0, len(columns))
        return torch.empty(size, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, eq=False)
class Chosen(OnBase):
    """The cells that a boolean matrix marks, in one row: what `masked_select` gives.

    Only its sum is made without making all of it.
    """

    marks: LazyMatrix
    count: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """One matrix of one row."""
        return 1, 1, self.count

    def elsewhere_zero(self) -> LazyMatrix:
        """Return the base with 0 for every cell that is not marked."""
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        return Pointwise("where", (self.marks, self.base, zero))

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Make all of the marked cells and cut out what is asked for."""
        whole = [range(size) for size in self.base.sizes]
        marked = self.marks.tile(*(whole if self.marks.sizes[0] > 1 else [range(1), *whole[1:]]))
        cells = self.base.tile(*whole).masked_select(marked)[None, None]
        return pick(pick(pick(cells, matrices, 0), rows, 1), columns, 2)
