"""What becomes of a product of queries and keys, from function to function, up to the softmax."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

HIDES = -1e4
"""A number that, put in the place of a score, is meant to hide it."""


@dataclass(frozen=True, eq=False)
class Scores:
    """How scores came about.

    Attributes:
        query: The left factor, ``[..., query, head_dim]``.
        key: The right one, turned: ``[..., key, head_dim]``.
        scale: What the product was multiplied with.
        soft_cap: They were squashed into ± this.
        squashed: Whether they went through a tanh and were not multiplied since.
        added: Scores to add, among them masks as numbers.
        visible: Masks in which True shows.
        sinks: What was joined on as one more column.
        known: Whether every step was understood.
    """

    query: Tensor
    key: Tensor
    scale: float = 1.0
    soft_cap: float | None = None
    squashed: bool = False
    added: tuple[Tensor, ...] = ()
    visible: tuple[Tensor, ...] = ()
    sinks: Tensor | None = None
    known: bool = True

    @property
    def is_scaled_product(self) -> bool:
        """Whether they are a product and a factor, and nothing else."""
        plain = self.soft_cap is None and not self.squashed and self.sinks is None
        return plain and not self.added and not self.visible

    def unknown(self) -> "Scores":
        """Return that something happened to them that is not followed."""
        return replace(self, known=False)

    def times(self, factor: Any) -> "Scores":
        """Follow a multiplication."""
        number = as_number(factor)
        if number is None or self.added or self.visible or self.sinks is not None:
            return self.unknown()
        if self.squashed:
            # m · tanh(s·q·k) squashes scores of scale s·m into ±m.
            return replace(self, squashed=False, soft_cap=number, scale=self.scale * number)
        return self.unknown() if self.soft_cap else replace(self, scale=self.scale * number)

    def divided(self, by: Any) -> "Scores":
        """Follow a division."""
        number = as_number(by)
        return self.times(1 / number) if number else self.unknown()

    def tanh(self) -> "Scores":
        """Follow the tanh of a soft-cap."""
        return replace(self, squashed=True) if self.is_scaled_product else self.unknown()

    def plus(self, other: Any, sign: int = 1) -> "Scores":
        """Follow an addition or, with sign −1, a subtraction."""
        if isinstance(other, Tensor) and is_one_for_a_row(other, self.key):
            return self
        if not isinstance(other, Tensor) or sign < 0 or self.squashed or self.sinks is not None:
            return self.unknown()
        return replace(self, added=(*self.added, other))

    def shown(self, visible: Tensor, fill: Any) -> "Scores":
        """Follow the replacement of what is not visible by a number."""
        number = as_number(fill)
        if number is None or number > HIDES or self.squashed or self.sinks is not None:
            return self.unknown()
        return replace(self, visible=(*self.visible, visible))

    def joined(self, column: Tensor) -> "Scores":
        """Follow the joining of a column of sinks."""
        if self.sinks is not None or column.ndim != 4 or column.shape[-1] != 1:
            return self.unknown()
        return replace(self, sinks=column[0, :, 0, 0])

    def reshaped(self, old: Tensor, new: Tensor) -> "Scores":
        """Follow another folding of the dimensions before query and key."""
        kept = old.shape[-2:] == new.shape[-2:]
        return self if kept and not self.added and not self.visible else self.unknown()


@dataclass(frozen=True, eq=False)
class Weights:
    """What a softmax made of scores.

    Attributes:
        scores: How these came about; None if they are not a product that was followed.
        softmax: What the softmax gave; None for the tensor itself that this is known of, which
            must not be kept alive by what is known of it.
        dropped: Whether some were dropped since.
    """

    scores: Scores | None
    softmax: Tensor | None = None
    dropped: bool = False

    def onward(self, tensor: Tensor, *, dropped: bool = False) -> "Weights":
        """Return the same for what was made of `tensor`."""
        softmax = tensor if self.softmax is None else self.softmax
        return replace(self, softmax=softmax, dropped=self.dropped or dropped)


def as_number(factor: Any) -> float | None:
    """Return a number, or the only one of a tensor; None for anything else."""
    if isinstance(factor, int | float):
        return float(factor)
    if isinstance(factor, Tensor) and factor.numel() == 1:
        return float(factor.detach())
    return None


def is_one_for_a_row(other: Tensor, key: Tensor) -> bool:
    """Whether one number is added to all keys of a row, which a softmax does not see."""
    return (
        other.ndim >= 2 and other.shape[-1] == 1 < key.shape[-2] and torch.is_floating_point(other)
    )
