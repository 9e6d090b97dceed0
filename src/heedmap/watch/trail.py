"""What becomes of a product of queries and keys, from function to function, up to the softmax."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedmap.watch.call import in_working_type

HIDES = -1e4
"""A number that, put in the place of a score, is meant to hide it."""


class Part(NamedTuple):
    """A tensor that was spread over scores: a mask, or numbers to add.

    Attributes:
        tensor: As the model had it.
        lead: The dimensions before query and key that the scores had then.
        factor: What it was multiplied with since.
        hides: Whether True hides, in a mask.
    """

    tensor: Tensor
    lead: tuple[int, ...]
    factor: float = 1.0
    hides: bool = False

    def spread(self, lead: tuple[int, ...]) -> Tensor:
        """Return it for scores that have these leading dimensions, of as many cells."""
        tensor = self.tensor
        if lead == self.lead:
            return tensor
        tensor = tensor[(None,) * (2 - tensor.ndim)]
        return tensor.expand(*self.lead, *tensor.shape[-2:]).reshape(*lead, *tensor.shape[-2:])


@dataclass(frozen=True, eq=False)
class Scores:
    """How scores came about.

    Attributes:
        query: The left factor, ``[..., query, head_dim]``.
        key: The right one, turned: ``[..., key, head_dim]``.
        lead: The dimensions before query and key, batch and heads where they were ever two.
        scale: What the product was multiplied with.
        soft_cap: They were squashed into ± this.
        squashed: Whether they went through a tanh and were not multiplied since.
        added: Scores to add, among them masks as numbers.
        masks: What was replaced by a number that hides.
        sinks: What was joined on as one more column.
        known: Whether every step was understood.
    """

    query: Tensor
    key: Tensor
    lead: tuple[int, ...]
    scale: float = 1.0
    soft_cap: float | None = None
    squashed: bool = False
    added: tuple[Part, ...] = ()
    masks: tuple[Part, ...] = ()
    sinks: Tensor | None = None
    known: bool = True

    @classmethod
    def of_product(cls, left: Tensor, right: Tensor) -> "Scores | None":
        """Return the scores ``left @ right``; None where these are not matrices both."""
        if left.ndim < 2 or right.ndim < 2:
            return None
        lead = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        return cls(in_working_type(left), in_working_type(right).mT, tuple(lead))

    @property
    def is_scaled_product(self) -> bool:
        """Whether they are a product and a factor, and nothing else."""
        plain = self.soft_cap is None and not self.squashed and self.sinks is None
        return plain and not self.added and not self.masks

    def unknown(self) -> "Scores":
        """Return that something happened to them that is not followed."""
        return replace(self, known=False, added=(), masks=())

    def times(self, factor: Any) -> "Scores":
        """Follow a multiplication."""
        number = as_number(factor)
        if number is None:
            return self._times_each_row(factor)
        if self.masks or self.sinks is not None or (self.soft_cap and not self.squashed):
            return self.unknown()
        if self.squashed:
            # m · tanh(s·q·k) squashes scores of scale s·m into ±m.
            return replace(self, squashed=False, soft_cap=number, scale=self.scale * number)
        added = tuple(part._replace(factor=part.factor * number) for part in self.added)
        return replace(self, scale=self.scale * number, added=added)

    def _times_each_row(self, factors: Any) -> "Scores":
        """Follow a multiplication with one factor for each query, or for each head."""
        if not isinstance(factors, Tensor) or not self.is_scaled_product:
            return self.unknown()
        if not is_one_for_a_row(factors, self.key) or factors.ndim > self.query.ndim:
            return self.unknown()
        query = self.query * factors
        return replace(self, query=query) if query.shape == self.query.shape else self.unknown()

    def divided(self, by: Any) -> "Scores":
        """Follow a division."""
        number = as_number(by)
        return self.times(1 / number) if number else self.unknown()

    def tanh(self) -> "Scores":
        """Follow the tanh of a soft-cap."""
        return replace(self, squashed=True) if self.is_scaled_product else self.unknown()

    def plus(self, other: Any, lead: tuple[int, ...], factor: float = 1.0) -> "Scores":
        """Follow an addition, to scores that now have these leading dimensions."""
        if isinstance(other, Tensor) and is_one_for_a_row(other, self.key):
            return self
        if not isinstance(other, Tensor) or not other.is_floating_point():
            return self.unknown()
        if self.squashed or self.sinks is not None:
            return self.unknown()
        return replace(self, added=(*self.added, Part(other, lead, factor)))

    def shown(self, mask: Tensor, fill: Any, lead: tuple[int, ...]) -> "Scores":
        """Follow the replacement, by a number, of all that is False or 0 in a mask."""
        return self._masked(Part(mask, lead), fill)

    def hidden(self, mask: Tensor, fill: Any, lead: tuple[int, ...]) -> "Scores":
        """Follow the replacement, by a number, of all that is True or 1 in a mask."""
        return self._masked(Part(mask, lead, hides=True), fill)

    def _masked(self, mask: Part, fill: Any) -> "Scores":
        number = as_number(fill)
        if number is None or number > HIDES or self.squashed or self.sinks is not None:
            return self.unknown()
        return replace(self, masks=(*self.masks, mask))

    def joined(self, column: Tensor) -> "Scores":
        """Follow the joining of a column of sinks."""
        if self.sinks is not None or column.ndim != 4 or column.shape[-1] != 1:
            return self.unknown()
        return replace(self, sinks=column[0, :, 0, 0])

    def reshaped(self, old: Tensor, new: Tensor) -> "Scores":
        """Follow another folding of the dimensions before query and key."""
        if old.shape[-2:] != new.shape[-2:]:
            return self.unknown()
        return replace(self, lead=tuple(new.shape[:-2])) if new.ndim == 4 else self


@dataclass(frozen=True, eq=False)
class Weights:
    """What a softmax made of scores.

    Attributes:
        scores: How these came about; None if they are not a product that was followed.
        softmax: What the softmax gave; None for the tensor itself that this is known of, which
            must not be kept alive by what is known of it.
        dropped: Whether some were dropped since.
        turned: Whether keys and queries changed places since.
        told: The modules that gathered by them already, by their ids.
    """

    scores: Scores | None
    softmax: Tensor | None = None
    dropped: bool = False
    turned: bool = False
    told: set[int] = field(default_factory=set)

    def onward(self, tensor: Tensor, result: Tensor, *, dropped: bool = False) -> "Weights":
        """Return the same for what was made of `tensor`."""
        softmax = self.softmax
        if softmax is None and result is not tensor:
            softmax = tensor
        return replace(self, softmax=softmax, dropped=self.dropped or dropped)

    def unknown(self) -> "Weights":
        """Return that what gathers is no longer what the softmax gave."""
        return Weights(None)

    def swapped(self) -> "Weights":
        """Return the same with keys and queries in each other's place."""
        return replace(self, turned=not self.turned)

    def has_hidden(self, mask: Tensor) -> bool:
        """Return whether the scores were hidden by just this mask."""
        masks = () if self.scores is None else self.scores.masks
        return any(part.hides and torch.equal(part.tensor, mask) for part in masks)


def as_number(factor: Any) -> float | None:
    """Return a number, or the only one of a tensor; None for anything else."""
    if isinstance(factor, int | float):
        return float(factor)
    if isinstance(factor, Tensor) and factor.numel() == 1:
        return float(factor.detach())
    return None


def is_one_for_a_row(other: Tensor, key: Tensor) -> bool:
    """Whether one number is meant for all keys of a row; added, a softmax does not see it."""
    return (
        other.ndim >= 2 and other.shape[-1] == 1 < key.shape[-2] and torch.is_floating_point(other)
    )
