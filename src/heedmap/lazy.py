"""Matrices that are rules: a stack of them can be large, while only the cells asked for are made.

`LazyMatrix` is a stack of matrices, rows × columns, known by one primitive: `tile`, any block of
its cells. Here are the rules that only look at others: a dense matrix, a selection, a transpose;
`lazy_algebra` has those that compute. None of them knows how PyTorch spells such operations; see
`attention_map` for that.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from heedmap.places import Index, as_numbers, block_width, compose, pick, split


@dataclass(frozen=True, eq=False)
class LazyMatrix(ABC):
    """A stack of `matrices` matrices of `rows` × `columns` cells."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The number type of the tiles."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the tiles are made."""

    @abstractmethod
    def tile(
        self, matrices: Index, rows: Index, columns: Index
    ) -> Shaped[Tensor, "matrices rows columns"]:
        """Return a block of cells."""

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Shaped[Tensor, " cells"]:
        """Return single cells, given by three number tensors of equal length."""
        parts = [
            self.tile(m, r, c).flatten()
            for m, r, c in zip(matrices.split(1), rows.split(1), columns.split(1), strict=True)
        ]
        return torch.cat(parts) if parts else torch.empty(0, dtype=self.dtype, device=self.device)

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Return the start and stop of the columns outside which these rows are exactly 0."""
        del rows
        return 0, self.sizes[2]

    def left_multiply(
        self, left: Shaped[Tensor, "matrices lines rows"], matrices: Index, columns: Index
    ) -> Shaped[Tensor, "matrices lines columns"]:
        """Return `left` @ these matrices, the columns asked for."""
        total: Tensor | None = None
        for rows in split(self.sizes[1], block_width(len(columns) * len(matrices))):
            part = left[:, :, rows.start : rows.stop] @ self.tile(matrices, rows, columns)
            total = part if total is None else total + part
        if total is None:
            return left.new_zeros((len(matrices), left.shape[1], len(columns)))
        return total

    def tensors(self) -> list[Tensor]:
        """Return every tensor that the rule stands on."""
        return list(_tensors_in([getattr(self, f.name) for f in dataclasses.fields(self)]))

    def requires_grad(self) -> bool:
        """Return whether anything that the rule stands on requires a gradient."""
        return any(_requires_grad(getattr(self, field.name)) for field in dataclasses.fields(self))

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "LazyMatrix":
        """Return the same rule on changed tensors, `change` being called in their order."""
        changed = {f.name: _map_in(getattr(self, f.name), change) for f in dataclasses.fields(self)}
        return type(self)(**changed)

    def home(self) -> "Sharded | None":
        """Return the rule in several processes that this one is of, if it is of one cell by cell.

        Its rows and columns are then those of that rule; who makes all its blocks asks there.
        """
        return None


@dataclass(frozen=True, eq=False)
class Sharded(LazyMatrix, ABC):
    """A rule of which each of several processes has a part; all of them must ask the same.

    What goes through all cells is answered here, for this rule and those whose home it is: each
    process goes through its own rows. Everything comes back whole and the same everywhere, but for
    `summarize`, which gives each process its part.
    """

    @abstractmethod
    def add_up(
        self,
        rule: LazyMatrix,
        shapes: Sequence[tuple[int, ...]],
        visit: Callable[..., Any],
        further: Sequence[Tensor],
        dtype: torch.dtype,
    ) -> list[Tensor]:
        """Return what `stream.add_up` would."""

    @abstractmethod
    def top(self, rule: LazyMatrix, count: int, largest: bool) -> tuple[Tensor, Tensor]:
        """Return what `reductions.top` would."""

    @abstractmethod
    def summarize(self, rule: LazyMatrix, top: int, pool: tuple[int, int] | None) -> Any:
        """Return what `summary.summarize` would, of this process's queries and keys."""

    @abstractmethod
    def gathered(self, found: Any, *, is_part: bool) -> Any:
        """Return, in the first process, a `Summary` of the whole; None in the others.

        Args:
            found: What `summarize` gave here.
            is_part: Whether that is about this process's queries and keys alone.
        """

    @abstractmethod
    def in_form(self, form: Any) -> "Sharded | None":
        """Return the same cells read as scores or logarithms."""

    @abstractmethod
    def row_normalizer(self) -> Shaped[Tensor, "matrices rows"]:
        """Return the log-normaliser of every row."""

    @abstractmethod
    def trace(self) -> Any:
        """Return what a gradient with respect to whole weights is made of; None for others."""

    @abstractmethod
    def product(
        self,
        rows: Float[Tensor, "batch heads own_rows width"],
        columns: Float[Tensor, "batch kv_heads own_columns width"],
    ) -> "Sharded":
        """Return rows · columnsᵀ over the same processes, of which each gives its own of both."""

    @abstractmethod
    def is_same(self, other: "Sharded") -> bool:
        """Return whether another rule is of the same cells, in whatever form they are read."""

    @abstractmethod
    def described(self) -> list[str]:
        """Return words about it that need no other process."""


def sharded_in(value: Any) -> Sharded | None:
    """Return a rule in several processes that `value` stands on, if there is one."""
    if isinstance(value, Sharded):
        return value
    parts: Sequence[Any] = ()
    if isinstance(value, LazyMatrix):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, tuple | list):
        parts = value
    return next((found for part in parts if (found := sharded_in(part)) is not None), None)


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, LazyMatrix):
        yield from value.tensors()
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors_in(part)


def _requires_grad(value: Any) -> bool:
    if isinstance(value, LazyMatrix):
        return value.requires_grad()
    if isinstance(value, tuple):
        return any(map(_requires_grad, value))
    return isinstance(value, Tensor) and value.requires_grad


def _map_in(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, LazyMatrix):
        return value.map_tensors(change)
    if isinstance(value, tuple):
        return tuple(_map_in(part, change) for part in value)
    return value


@dataclass(frozen=True, eq=False)
class Dense(LazyMatrix):
    """Matrices that somebody already has."""

    cells_given: Shaped[Tensor, "matrices rows columns"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        matrices, rows, columns = self.cells_given.shape
        return matrices, rows, columns

    @property
    def dtype(self) -> torch.dtype:
        """The number type of the tiles: float32 for half precision, so that sums are exact."""
        given = self.cells_given.dtype
        return torch.float32 if given in (torch.float16, torch.bfloat16) else given

    @property
    def device(self) -> torch.device:
        """Where the tiles are made."""
        return self.cells_given.device

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Cut the block out."""
        cut = pick(pick(pick(self.cells_given, matrices, 0), rows, 1), columns, 2)
        return cut.to(self.dtype)

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Pick the cells."""
        return self.cells_given[matrices, rows, columns].to(self.dtype)


@dataclass(frozen=True, eq=False)
class OnBase(LazyMatrix):
    """A rule over one other, which gives it number type and device."""

    base: LazyMatrix

    @property
    def dtype(self) -> torch.dtype:
        """That of the base."""
        return self.base.dtype

    @property
    def device(self) -> torch.device:
        """That of the base."""
        return self.base.device


@dataclass(frozen=True, eq=False)
class Selection(OnBase):
    """Some matrices, rows and columns of another rule; a selection of a selection is one."""

    matrices: Index
    rows: Index
    columns: Index

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        return len(self.matrices), len(self.rows), len(self.columns)

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Ask the base for the same cells under its own numbers."""
        return self.base.tile(
            compose(self.matrices, matrices),
            compose(self.rows, rows),
            compose(self.columns, columns),
        )

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Ask the base for the same cells under its own numbers."""
        numbers = compose(self.matrices, matrices), compose(self.rows, rows)
        numbers = (*numbers, compose(self.columns, columns))
        return self.base.cells(*(as_numbers(index, self.device) for index in numbers))

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Translate the base's range where the columns are an ordered range."""
        if not isinstance(self.columns, range) or self.columns.step != 1:
            return 0, len(self.columns)
        start, stop = self.base.column_range(compose(self.rows, rows))
        low, size = self.columns.start, len(self.columns)
        start, stop = (min(max(end - low, 0), size) for end in (start, stop))
        return start, max(start, stop)

    def home(self) -> Sharded | None:
        """That of the base, where only matrices are selected."""
        whole = tuple(map(range, self.base.sizes[1:]))
        return self.base.home() if (self.rows, self.columns) == whole else None


def select(base: LazyMatrix, matrices: Index, rows: Index, columns: Index) -> LazyMatrix:
    """Return a selection of `base`, folded into its own if it is one already."""
    if (matrices, rows, columns) == tuple(map(range, base.sizes)):
        return base
    if isinstance(base, Selection):
        matrices = compose(base.matrices, matrices)
        rows, columns = compose(base.rows, rows), compose(base.columns, columns)
        base = base.base
    return Selection(base, matrices, rows, columns)


@dataclass(frozen=True, eq=False)
class Transpose(OnBase):
    """Another rule with rows and columns exchanged."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        matrices, rows, columns = self.base.sizes
        return matrices, columns, rows

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Turn the base's tile."""
        return self.base.tile(matrices, columns, rows).mT

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Ask the base with the two exchanged."""
        return self.base.cells(matrices, columns, rows)


def transpose(base: LazyMatrix) -> LazyMatrix:
    """Return `base` with rows and columns exchanged."""
    return base.base if isinstance(base, Transpose) else Transpose(base)
