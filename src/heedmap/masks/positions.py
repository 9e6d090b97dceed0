"""Masks that go by what stands where: padding, documents, and tables of pairs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from heedmap.errors import ArgumentError, DTypeError, ShapeError
from heedmap.masks.base import Extent, Mask
from heedmap.places import Places, look_up
from heedmap.tensors import refuse_empty, require_tensor


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Only the keys marked valid are visible; queries are left as they are.

    Args:
        valid: ``[batch, key]``: True or 1 for a real position, False or 0 for padding; bool, or
            numbers that are all 0 or 1.

    Raises:
        ArgumentError: if a number other than 0 and 1 stands in it.
        ShapeError: if it is not ``[batch, key]``.

    Example:
        >>> from heedmap.masks import show
        >>> show(Padding(torch.tensor([[1, 1, 0]])), queries=2, keys=3)
        1 1 0
        1 1 0
    """

    valid: Bool[Tensor, "batch key"]

    def __init__(self, valid: Shaped[Tensor, "batch key"]) -> None:
        """Check `valid` and keep it as booleans."""
        require_tensor("valid", valid)
        if valid.ndim != 2:
            raise ShapeError(f"valid must be [batch, key]; got {list(valid.shape)}.")
        object.__setattr__(self, "valid", _as_bool(valid, "valid"))

    @classmethod
    def from_lengths(cls, lengths: Int[Tensor, " batch"], keys: int) -> "Padding":
        """Return the padding of samples that fill the first `lengths` of `keys` positions."""
        require_tensor("lengths", lengths)
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise DTypeError(f"lengths must be whole numbers; got {lengths.dtype}.")
        if lengths.ndim != 1 or bool(((lengths < 0) | (lengths > keys)).any()):
            raise ArgumentError(
                f"lengths must be [batch], each from 0 to {keys}; got {lengths.tolist()}."
            )
        return cls(torch.arange(keys, device=lengths.device) < lengths[:, None])

    @classmethod
    def from_key_padding_mask(cls, ignored: Bool[Tensor, "batch key"]) -> "Padding":
        """Return the padding of a `torch.nn.MultiheadAttention` mask, where True is *not* visible.

        >>> Padding.from_key_padding_mask(torch.tensor([[False, True]])).valid
        tensor([[ True, False]])
        """
        require_tensor("ignored", ignored)
        if ignored.dtype != torch.bool:
            raise DTypeError(f"ignored must be bool; got {ignored.dtype}.")
        return cls(~ignored)

    def bind(self, extent: Extent) -> Mask:
        """Compare sizes."""
        batch, keys = self.valid.shape
        if keys != extent.keys or batch != extent.batch:
            raise ShapeError(
                f"valid must be [batch, key] = [{extent.batch}, {extent.keys}]; "
                f"got [{batch}, {keys}]."
            )
        return self

    def tile(self, places: Places) -> Tensor:
        """Look the keys up."""
        return self.valid[places.batch, places.key]

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Reach from the first valid key of any sample to the last."""
        return _hull(self.valid.any(0))

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Are all these keys valid in every sample?"""
        return bool(self.valid[:, first_key : last_key + 1].all())

    def __repr__(self) -> str:
        """Name it without its numbers."""
        return f"Padding(batch={self.valid.shape[0]}, keys={self.valid.shape[1]})"


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query sees the keys of its own document only: several texts packed into one row.

    Args:
        query_ids: ``[batch, query]``: a number for each position; equal numbers are one document.
        key_ids: ``[batch, key]``, or None when the keys are the same positions.

    Example:
        >>> from heedmap.masks import show
        >>> show(Documents(torch.tensor([[7, 7, 8]])), queries=3, keys=3)
        1 1 0
        1 1 0
        0 0 1
    """

    query_ids: Int[Tensor, "batch query"]
    key_ids: Int[Tensor, "batch key"] | None = None

    def bind(self, extent: Extent) -> Mask:
        """Compare sizes, and let the keys be the queries where nothing else is said."""
        key_ids = self.query_ids if self.key_ids is None else self.key_ids
        for name, ids, size in (
            ("query_ids", self.query_ids, extent.queries),
            ("key_ids", key_ids, extent.keys),
        ):
            require_tensor(name, ids)
            if ids.is_floating_point() or ids.dtype == torch.bool:
                raise DTypeError(f"{name} must be whole numbers; got {ids.dtype}.")
            if tuple(ids.shape) != (extent.batch, size):
                raise ShapeError(
                    f"{name} must be [batch, positions] = [{extent.batch}, {size}]; "
                    f"got {list(ids.shape)}."
                )
        # Copies, so that what is written into the numbers later changes no map.
        return Documents(self.query_ids.clone(), key_ids.clone())

    def tile(self, places: Places) -> Tensor:
        """Compare document numbers."""
        assert self.key_ids is not None, "bind the mask before it is used"
        rows = self.query_ids[places.batch, places.query]
        return rows == self.key_ids[places.batch, places.key]

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Span the keys whose numbers lie between the least and greatest of these queries."""
        assert self.key_ids is not None, "bind the mask before it is used"
        rows = self.query_ids[:, first_query : last_query + 1]
        low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
        return _hull(((self.key_ids >= low) & (self.key_ids <= high)).any(0))

    def __repr__(self) -> str:
        """Name it without its numbers."""
        return f"Documents(batch={self.query_ids.shape[0]}, queries={self.query_ids.shape[1]})"


@dataclass(frozen=True, eq=False)
class Visible(Mask):
    """Exactly the pairs marked True are visible.

    Args:
        table: ``[query, key]``, ``[batch, query, key]`` or ``[batch, heads, query, key]``, True
            for visible. In the last form the sizes of batch, heads and query may be 1, which
            stands for all.

    Example:
        >>> from heedmap.masks import show
        >>> show(Visible(torch.tensor([[True, False], [True, True]])), queries=2, keys=2)
        1 0
        1 1
    """

    table: Bool[Tensor, "..."]

    def __post_init__(self) -> None:
        """Refuse what is not a table of booleans."""
        require_tensor("table", self.table)
        if self.table.dtype != torch.bool:
            raise DTypeError(
                f"table must be bool, True for visible; got {self.table.dtype}. "
                "Scores to add are given as bias=."
            )
        if self.table.ndim not in (2, 3, 4):
            raise ShapeError(
                "table must be [query, key], [batch, query, key] or [batch, heads, query, key]; "
                f"got {list(self.table.shape)}."
            )

    @classmethod
    def from_attn_mask(cls, ignored: Bool[Tensor, "..."], heads: int) -> "Visible":
        """Return the mask of a `torch.nn.MultiheadAttention` `attn_mask`, where True is hidden.

        `ignored` is ``[query, key]`` or ``[batch * heads, query, key]``, batch being the outer of
        the two.
        """
        require_tensor("ignored", ignored)
        if ignored.dtype != torch.bool:
            raise DTypeError(f"ignored must be bool; got {ignored.dtype}.")
        if ignored.ndim == 3:
            if heads < 1 or ignored.shape[0] % heads:
                raise ShapeError(
                    f"ignored must be [batch * heads, query, key] with {heads} heads; "
                    f"got {list(ignored.shape)}."
                )
            ignored = ignored.unflatten(0, (-1, heads))
        return cls(~ignored)

    def bind(self, extent: Extent) -> Mask:
        """Compare sizes by name, and give the table four dimensions."""
        shape, rank = list(self.table.shape), self.table.ndim
        sizes = {
            2: (extent.queries, extent.keys),
            3: (extent.batch, extent.queries, extent.keys),
            4: tuple(extent),
        }[rank]
        loose = 3 if rank == 4 else 0
        fits = all(
            have == want or (have == 1 and place < loose)
            for place, (have, want) in enumerate(zip(shape, sizes, strict=True))
        )
        if not fits:
            names = {2: "[query, key]", 3: "[batch, query, key]", 4: "[batch, heads, query, key]"}
            raise ShapeError(f"table must be {names[rank]} = {list(sizes)}; got {shape}.")
        table = self.table[:, None] if rank == 3 else self.table[(None,) * (4 - rank)]
        return Visible(table)

    def tile(self, places: Places) -> Tensor:
        """Cut the block out."""
        return look_up(self.table, places)

    def __repr__(self) -> str:
        """Name it without its numbers."""
        return f"Visible({list(self.table.shape)})"


def _as_bool(marks: Tensor, name: str) -> Tensor:
    if marks.dtype == torch.bool:
        # A copy, so that what is written into the marks later changes no map.
        return marks.clone()
    refuse_empty(name, marks)
    kept = marks.bool()
    if not _are_marks(marks, kept):
        wrong = marks[kept & (marks != 1)].flatten()[0].item()
        raise ArgumentError(
            f"{name} must hold only 0 (padding) and 1 (valid); got {wrong:g}. "
            "Scores to add are given as bias=."
        )
    return kept


FEW_MARKS = 100
"""So many numbers Python looks through in less time than it takes to have PyTorch do it."""


def _are_marks(marks: Tensor, kept: Tensor) -> bool:
    """Return whether all are 0 or 1, which as booleans are `kept`."""
    if marks.numel() <= FEW_MARKS and not is_functorch_wrapped_tensor(marks):
        return set().union(*marks.tolist()) <= {0, 1}
    return torch.equal(kept.to(marks.dtype), marks)


def _hull(marked: Tensor) -> tuple[int, int]:
    """Return the start and stop of the smallest stretch that holds every marked place."""
    places = marked.nonzero().flatten()
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
