"""Rows of a softmax, put together from blocks of keys by their log-normalisers."""

import torch
from jaxtyping import Float
from torch import Tensor


class Rows:
    """The log-normaliser of some rows, and what they gather of the values, as keys come in.

    The log-normaliser is kept as the sum of two numbers, the largest of any block and the rest, so
    that digits behind the point are not lost beside a large one.
    """

    def __init__(
        self,
        rows: tuple[int, int, int],
        width: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Begin with rows (batch, heads, queries) that have seen nothing."""
        self.anchor = torch.full(rows, -torch.inf, dtype=dtype, device=device)
        self.rest = torch.zeros(rows, dtype=dtype, device=device)
        self.gathered = torch.zeros((*rows, width), dtype=dtype, device=device)

    def add(
        self,
        place: slice,
        output: Float[Tensor, "batch heads rows value_dim"],
        normalizer: Float[Tensor, "batch heads rows"],
        lacking: Float[Tensor, "batch heads rows"] | float = 0.0,
    ) -> None:
        """Take in what rows found in one block of keys.

        Args:
            place: Which rows.
            output: What they gathered there.
            normalizer: Their log-normaliser there, −inf for a row that saw nothing.
            lacking: What has to be added to it.
        """
        own, other = self.anchor[:, :, place], normalizer
        anchor = torch.maximum(own, other)
        base = anchor.masked_fill(anchor == -torch.inf, 0)
        before, now = own - base + self.rest[:, :, place], other - base + lacking
        rest = torch.logaddexp(before, now)
        unseen = anchor == -torch.inf
        kept, taken = (
            torch.exp(part - rest).masked_fill(unseen, 0)[..., None] for part in (before, now)
        )
        gathered = self.gathered[:, :, place]
        gathered.mul_(kept).add_(output.to(gathered.dtype) * taken)
        self.rest[:, :, place] = rest.masked_fill(unseen, 0)
        self.anchor[:, :, place] = anchor

    def join(self, sinks: Float[Tensor, " heads"]) -> None:
        """Let a sink for each head take part, which gathers nothing."""
        scores = sinks[:, None].to(self.anchor.dtype).expand(self.anchor.shape)
        self.add(slice(None), torch.zeros_like(self.gathered), scores)

    def normalizer(self) -> Float[Tensor, "batch heads queries"]:
        """Return the log-normaliser as one number for each row."""
        return self.anchor + self.rest
