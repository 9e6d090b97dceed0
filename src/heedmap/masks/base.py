"""What every mask can do, and how two are combined."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from heedmap.places import Places


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
        return ordered(max(a[0], b[0]), min(a[1], b[1]))

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


def parts_of(mask: Mask | None) -> list[Mask]:
    """Return the masks that `mask` is the intersection of."""
    if mask is None:
        return []
    if type(mask) is Both:
        return parts_of(mask.first) + parts_of(mask.second)
    return [mask]


def ordered(start: int, stop: int) -> tuple[int, int]:
    """Return a range whose stop is not before its start."""
    return start, max(start, stop)
