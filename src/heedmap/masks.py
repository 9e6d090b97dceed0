"""Who may look at whom.

A mask says for each query and key whether the key is visible. True (or 1) means visible, here and
everywhere in heedmap; masks of the other polarity come in through the named converters. Masks are
combined with ``&`` (visible in both) and ``|`` (visible in either), and are never expanded to
query × key elements: a kernel asks for the block that it is working on.

Each mask answers three questions about blocks: `tile` (which pairs of this block are visible),
`key_range` (outside which keys nothing is visible to these queries), and `covers` (is all of this
block visible). The last two may err on the safe side. `bind` checks a mask against the sizes of a
problem, once, and settles what depends on them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from heedmap.errors import ArgumentError, DTypeError, ShapeError
from heedmap.places import Places, look_up


class Extent(NamedTuple):
    """The sizes of a problem that a mask is bound to."""

    batch: int
    heads: int
    queries: int
    keys: int


class Mask(ABC):
    """A rule that says which keys each query may look at; see the subclasses."""

    def __and__(self, other: "Mask") -> "Mask":
        """Return the mask of what is visible in both."""
        return Both(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: "Mask") -> "Mask":
        """Return the mask of what is visible in either."""
        return Either(self, other) if isinstance(other, Mask) else NotImplemented

    @abstractmethod
    def bind(self, extent: Extent) -> "Mask":
        """Return this mask checked against, and settled for, a problem of this extent."""

    @abstractmethod
    def tile(self, places: Places) -> Bool[Tensor, "..."]:
        """Return which of the places are visible, in a shape that broadcasts to all of them."""

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Return the start and stop of the keys that queries first to last may see at most."""
        return 0, keys

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Return whether every query first to last surely sees every key first to last."""
        return False

    def to(self, device: torch.device | str) -> "Mask":
        """Return the same mask with its tensors on `device`."""
        moved = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor | Mask)
        }
        return replace(self, **moved) if moved else self  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Both(Mask):
    """Visible in `first` and in `second`; written ``first & second``."""

    first: Mask
    second: Mask

    def bind(self, extent: Extent) -> Mask:
        """Bind both."""
        return Both(self.first.bind(extent), self.second.bind(extent))

    def tile(self, places: Places) -> Tensor:
        """Intersect the two tiles."""
        return self.first.tile(places) & self.second.tile(places)

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Intersect the two ranges."""
        a, b = (m.key_range(first_query, last_query, keys) for m in (self.first, self.second))
        return _ordered(max(a[0], b[0]), min(a[1], b[1]))

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Ask both."""
        block = first_query, last_query, first_key, last_key
        return self.first.covers(*block) and self.second.covers(*block)

    def __repr__(self) -> str:
        """Write it as it is made."""
        return f"({self.first} & {self.second})"


@dataclass(frozen=True)
class Either(Mask):
    """Visible in `first` or in `second`; written ``first | second``."""

    first: Mask
    second: Mask

    def bind(self, extent: Extent) -> Mask:
        """Bind both."""
        return Either(self.first.bind(extent), self.second.bind(extent))

    def tile(self, places: Places) -> Tensor:
        """Unite the two tiles."""
        return self.first.tile(places) | self.second.tile(places)

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Span the two ranges."""
        a, b = (m.key_range(first_query, last_query, keys) for m in (self.first, self.second))
        if a[0] == a[1] or b[0] == b[1]:
            return b if a[0] == a[1] else a
        return min(a[0], b[0]), max(a[1], b[1])

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Ask either."""
        block = first_query, last_query, first_key, last_key
        return self.first.covers(*block) or self.second.covers(*block)

    def __repr__(self) -> str:
        """Write it as it is made."""
        return f"({self.first} | {self.second})"


Alignment = Literal["start", "end"] | int | None


@dataclass(frozen=True)
class _Relative(Mask):
    """What visibility by distance shares: where query 0 stands among the keys."""

    alignment: Alignment = None

    def __post_init__(self) -> None:
        if isinstance(self.alignment, str) and self.alignment not in ("start", "end"):
            raise ArgumentError(
                "alignment must be 'start', 'end' or the number of the key at which query 0 "
                f"stands; got {self.alignment!r}."
            )

    def bind(self, extent: Extent) -> Mask:
        """Settle the alignment as a number."""
        if isinstance(self.alignment, int):
            return self
        if self.alignment is None and extent.queries != extent.keys:
            raise ArgumentError(
                f"{type(self).__name__} must be given an alignment when there are "
                f"{extent.queries} queries and {extent.keys} keys; got None. Use alignment='end' "
                "(the last query stands at the last key, as in decoding with a cache) or "
                "alignment='start'."
            )
        offset = 0 if self.alignment == "start" else extent.keys - extent.queries
        return replace(self, alignment=offset)

    @property
    def offset(self) -> int:
        """The number of the key at which query 0 stands."""
        assert isinstance(self.alignment, int), "bind the mask before it is used"
        return self.alignment


@dataclass(frozen=True)
class Causal(_Relative):
    """A query sees the key at its own place and those before it.

    Args:
        alignment: Where the queries stand among the keys when there are more of one than of the
            other: ``"start"`` (query 0 at key 0), ``"end"`` (the last query at the last key), or
            the number of the key at which query 0 stands. Not needed for equal numbers.

    Example:
        >>> show(Causal(), queries=3, keys=3)
        1 0 0
        1 1 0
        1 1 1
        >>> show(Causal(alignment="end"), queries=2, keys=4)
        1 1 1 0
        1 1 1 1
    """

    def tile(self, places: Places) -> Tensor:
        """Compare places."""
        return places.key <= places.query + self.offset

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Stop behind the last query's own place."""
        return 0, min(max(last_query + self.offset + 1, 0), keys)

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Is the last key at or before the first query?"""
        return last_key <= first_query + self.offset


@dataclass(frozen=True)
class Window(_Relative):
    """A query sees keys at most `before` places back and `after` places ahead; None is no bound.

    A causal sliding window of `w` keys is ``Window(before=w - 1, after=0)``. For `alignment` see
    `Causal`.

    Example:
        >>> show(Window(before=1, after=0), queries=3, keys=3)
        1 0 0
        1 1 0
        0 1 1
    """

    before: int | None = field(default=None, kw_only=True)
    after: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse negative bounds."""
        super().__post_init__()
        for name, bound in (("before", self.before), ("after", self.after)):
            if bound is not None and bound < 0:
                raise ArgumentError(f"{name} must be 0 or more, or None; got {bound}.")

    def tile(self, places: Places) -> Tensor:
        """Compare distances."""
        ahead = places.key - (places.query + self.offset)
        visible = torch.ones_like(ahead, dtype=torch.bool)
        if self.before is not None:
            visible &= ahead >= -self.before
        if self.after is not None:
            visible &= ahead <= self.after
        return visible

    def key_range(self, first_query: int, last_query: int, keys: int) -> tuple[int, int]:
        """Reach from the first query's oldest key to the last query's newest."""
        start = 0 if self.before is None else first_query + self.offset - self.before
        stop = keys if self.after is None else last_query + self.offset + self.after + 1
        return _ordered(min(max(start, 0), keys), min(max(stop, 0), keys))

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Ask the two corners that lie farthest apart."""
        before = self.before is None or first_key >= last_query + self.offset - self.before
        after = self.after is None or last_key <= first_query + self.offset + self.after
        return before and after


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
        >>> show(Padding(torch.tensor([[1, 1, 0]])), queries=2, keys=3)
        1 1 0
        1 1 0
    """

    valid: Bool[Tensor, "batch key"]

    def __init__(self, valid: Shaped[Tensor, "batch key"]) -> None:
        """Check `valid` and keep it as booleans."""
        if valid.ndim != 2:
            raise ShapeError(f"valid must be [batch, key]; got {list(valid.shape)}.")
        object.__setattr__(self, "valid", _as_bool(valid, "valid"))

    @classmethod
    def from_lengths(cls, lengths: Int[Tensor, " batch"], keys: int) -> "Padding":
        """Return the padding of samples that fill the first `lengths` of `keys` positions."""
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
            if ids.is_floating_point() or ids.dtype == torch.bool:
                raise DTypeError(f"{name} must be whole numbers; got {ids.dtype}.")
            if tuple(ids.shape) != (extent.batch, size):
                raise ShapeError(
                    f"{name} must be [batch, positions] = [{extent.batch}, {size}]; "
                    f"got {list(ids.shape)}."
                )
        return Documents(self.query_ids, key_ids)

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
        >>> show(Visible(torch.tensor([[True, False], [True, True]])), queries=2, keys=2)
        1 0
        1 1
    """

    table: Bool[Tensor, "..."]

    def __post_init__(self) -> None:
        """Refuse what is not a table of booleans."""
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
        if ignored.dtype != torch.bool:
            raise DTypeError(f"ignored must be bool; got {ignored.dtype}.")
        if ignored.ndim == 3:
            if ignored.shape[0] % heads:
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


def show(mask: Mask, *, queries: int, keys: int) -> None:
    """Print a small mask as ones and zeros, for one sample and one head.

    >>> show(Causal() & Window(before=1), queries=3, keys=3)
    1 0 0
    1 1 0
    0 1 1
    """
    zero = torch.zeros(1, dtype=torch.long)
    places = Places.of_block(zero, 1, torch.arange(queries), torch.arange(keys))
    tile = mask.bind(Extent(1, 1, queries, keys)).tile(places).expand(1, queries, keys)
    for row in tile[0].int().tolist():
        print(*row)


def parts_of(mask: Mask | None) -> list[Mask]:
    """Return the masks that `mask` is the intersection of."""
    if mask is None:
        return []
    if isinstance(mask, Both):
        return parts_of(mask.first) + parts_of(mask.second)
    return [mask]


def _as_bool(marks: Tensor, name: str) -> Tensor:
    if marks.dtype == torch.bool:
        return marks
    kept = marks != 0
    if bool((marks[kept] != 1).any()):
        wrong = marks[kept & (marks != 1)].flatten()[0].item()
        raise ArgumentError(
            f"{name} must hold only 0 (padding) and 1 (valid); got {wrong:g}. "
            "Scores to add are given as bias=."
        )
    return kept


def _ordered(start: int, stop: int) -> tuple[int, int]:
    return start, max(start, stop)


def _hull(marked: Tensor) -> tuple[int, int]:
    """Return the start and stop of the smallest stretch that holds every marked place."""
    places = marked.nonzero().flatten()
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
