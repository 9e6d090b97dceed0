"""Which colour stands for which weight.

A few weights of a big map are larger than all others by orders of magnitude, and a scale that ends
at the largest shows nothing else. The rule here, for the cells that are drawn and larger than 0:

- linear: from 0 to their 99.5th percentile, or to twice their mean where that is more (so that a
  sharp line on an even ground does not turn the ground bright), but never beyond the largest;
- logarithmic: from the largest down to the smallest, over four powers of ten at most.

Larger weights take the last colour. Weights of exactly 0, what a mask hides among them, are grey,
which is no colour of the scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize

COLOURS = "viridis"
COLOUR_OF_ZERO = "#dcdcdc"
KEPT_SHARE = 0.995
LOG_RANGE = 1e-4


@dataclass(frozen=True)
class Range:
    """The weights between which colours are told apart.

    Attributes:
        lowest: What the first colour stands for.
        highest: What the last colour stands for.
        largest: The largest weight that is drawn.
    """

    lowest: float
    highest: float
    largest: float

    @property
    def clipped(self) -> bool:
        """Whether some cells are larger than the last colour says."""
        return self.largest > self.highest


def linear_range(values: Float[Tensor, "..."]) -> Range:
    """Return the range of a linear scale; that of cells that are all 0 ends at 1.

    >>> linear_range(torch.tensor([0.0, 0.25, 0.75]))
    Range(lowest=0.0, highest=0.75, largest=0.75)
    """
    positive = values[values > 0]
    if positive.numel() == 0:
        return Range(0.0, 1.0, 0.0)
    ordered = positive.flatten().sort().values
    # The cell at or above the percentile, so that up to 200 cells nothing is cut.
    kept = ordered[-1 - int((1 - KEPT_SHARE) * (len(ordered) - 1))].item()
    largest = ordered[-1].item()
    return Range(0.0, min(largest, max(kept, 2 * positive.mean().item())), largest)


def logarithmic_range(values: Float[Tensor, "..."]) -> Range:
    """Return the range of a logarithmic scale, over four powers of ten at most.

    >>> logarithmic_range(torch.tensor([0.0, 0.5])).highest
    0.5
    """
    positive = values[values > 0]
    if positive.numel() == 0:
        return Range(LOG_RANGE, 1.0, 0.0)
    largest = positive.max().item()
    lowest = max(positive.min().item(), largest * LOG_RANGE)
    # One single weight still needs a scale with two ends.
    return Range(min(lowest, largest / 10), largest, largest)


def colour_map() -> Colormap:
    """Return matplotlib's perceptually uniform map, with grey for what is exactly 0."""
    import matplotlib

    return matplotlib.colormaps[COLOURS].with_extremes(bad=COLOUR_OF_ZERO)


def normalisation(limits: Range, log: bool) -> Normalize:
    """Return the step from weights to the part of the colour map that shows them."""
    from matplotlib.colors import LogNorm, Normalize

    kind = LogNorm if log else Normalize
    return kind(limits.lowest, limits.highest)


def zeros_left_out(values: Float[Tensor, "*cells"]) -> Float[Tensor, "*cells"]:
    """Return the cells with NaN, which the colour map shows in grey, for what is exactly 0."""
    return torch.where(values == 0, torch.nan, values)
