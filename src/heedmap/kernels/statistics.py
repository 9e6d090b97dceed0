"""What can be asked of a kernel about the weights of a problem, and what it answers."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor


class Wanted(NamedTuple):
    """Which statistics of the weights to gather.

    Attributes:
        received: Whether to add up what each key receives.
        entropy: Whether to give the entropy of each row.
        top: How many of the strongest keys of each row to find.
        bins: Which row, and which column, of a picture each query and key falls into; both from 0
            on, without gaps, and never going down.
        sums: Whether to add up each block of the picture.
        maxima: Whether to give the largest weight of each block.
    """

    received: bool = False
    entropy: bool = False
    top: int = 0
    bins: tuple[Int[Tensor, " rows"], Int[Tensor, " key"]] | None = None
    sums: bool = False
    maxima: bool = False


class Found(NamedTuple):
    """The statistics, None for what was not asked for; equal weights in the order of their keys."""

    received: Float[Tensor, "matrices key"] | None = None
    entropy: Float[Tensor, "matrices rows"] | None = None
    top_weights: Float[Tensor, "matrices rows top"] | None = None
    top_keys: Int[Tensor, "matrices rows top"] | None = None
    sums: Float[Tensor, "matrices pooled_rows pooled_columns"] | None = None
    maxima: Float[Tensor, "matrices pooled_rows pooled_columns"] | None = None
