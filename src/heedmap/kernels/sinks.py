"""Sinks: one more term in what a softmax divides by, joined on after the keys."""

import torch
from jaxtyping import Float
from torch import Tensor


def join(
    output: Float[Tensor, "*rows value_dim"],
    normalizer: Float[Tensor, "*rows"],
    sinks: Float[Tensor, "..."],
) -> tuple[Float[Tensor, "*rows value_dim"], Float[Tensor, "*rows"]]:
    """Return output and log-normaliser of rows in which a sink of this score takes part."""
    both = torch.logaddexp(normalizer, sinks)
    share = torch.exp(normalizer - both).masked_fill(both == -torch.inf, 0)
    return output * share[..., None], both


def gradient(
    sinks: Float[Tensor, " heads"],
    normalizer: Float[Tensor, "batch heads query"],
    slope: Float[Tensor, "batch heads query"],
) -> Float[Tensor, " heads"]:
    """Return the gradient of the sinks from dℓ − rowsum(dO ∘ O) of each row, the slope."""
    # A sink that hides itself (−inf) in an empty row has share exp(−inf + inf).
    share = torch.exp(sinks[:, None] - normalizer).masked_fill(normalizer == -torch.inf, 0)
    return (share * slope).sum((0, 2))
