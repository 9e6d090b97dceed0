"""Masks that go by how far a key lies from a query: causal, and windows."""

from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.masks.base import Extent, Mask, ordered
from heedmap.places import Places

Alignment = Literal["start", "end"] | int | None

FARTHEST = 1 << 53
"""No key is as far from a query; numbers beyond would overflow where they are added up."""


def _is_place(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, Integral):
        return False
    return abs(int(number)) < FARTHEST


@dataclass(frozen=True)
class Relative(Mask):
    """What visibility by distance shares: where query 0 stands among the keys."""

    alignment: Alignment = None

    def __post_init__(self) -> None:
        """Refuse an alignment that says nothing."""
        named = self.alignment in (None, "start", "end")
        if not named and not (isinstance(self.alignment, int) and _is_place(self.alignment)):
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
class Causal(Relative):
    """A query sees the key at its own place and those before it.

    Args:
        alignment: Where the queries stand among the keys when there are more of one than of the
            other: ``"start"`` (query 0 at key 0), ``"end"`` (the last query at the last key), or
            the number of the key at which query 0 stands. Not needed for equal numbers.

    Example:
        >>> from heedmap.masks import show
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
class Window(Relative):
    """A query sees keys at most `before` places back and `after` places ahead; None is no bound.

    A causal sliding window of `w` keys is ``Window(before=w - 1, after=0)``. For `alignment` see
    `Causal`.

    Example:
        >>> from heedmap.masks import show
        >>> show(Window(before=1, after=0), queries=3, keys=3)
        1 0 0
        1 1 0
        0 1 1
    """

    before: int | None = field(default=None, kw_only=True)
    after: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse bounds that are no numbers of keys."""
        super().__post_init__()
        for name, bound in (("before", self.before), ("after", self.after)):
            if bound is not None and not (_is_place(bound) and bound >= 0):
                raise ArgumentError(
                    f"{name} must be a whole number of keys from 0 on, or None; got {bound!r}."
                )

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
        return ordered(min(max(start, 0), keys), min(max(stop, 0), keys))

    def covers(self, first_query: int, last_query: int, first_key: int, last_key: int) -> bool:
        """Ask the two corners that lie farthest apart."""
        before = self.before is None or first_key >= last_query + self.offset - self.before
        after = self.after is None or last_key <= first_query + self.offset + self.after
        return before and after
