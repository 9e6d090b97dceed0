"""Whether a head looks at moments that are alike, far away in time: the checkerboard in a map."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis, Sequence

MOST_MOMENTS = 400
"""Maps are compared as pictures of at most so many moments on a side."""

LEAST_SECONDS = 0.1
"""Shorter moments have no voice of their own."""

FAR_SECONDS = 1.0
"""Sound and pictures hardly change within less, so that neighbours are alike in any case."""


@dataclass(frozen=True, eq=False)
class Alikeness:
    """Pairs of moments, by the plain features of sound or film.

    Attributes:
        most: Pairs more than a second apart, the third most alike of each row.
        least: The third least alike.
    """

    most: Bool[Tensor, "moments moments"]
    least: Bool[Tensor, "moments moments"]

    @classmethod
    def of(
        cls, axis: Axis, features: Sequence, sounding: Bool[Tensor, " positions"] | None
    ) -> "Alikeness | None":
        """Return the pairs of a sound or film, or None where nothing differs.

        Args:
            axis: When the positions of the maps are.
            features: Plain features of the same sound or film, at times of their own.
            sounding: Which positions of `features` are not silent; None for all.
        """
        spans = axis.spans
        length = spans[-1][1] - spans[0][0]
        count = max(min(MOST_MOMENTS, len(spans), int(length / LEAST_SECONDS)), 1)
        middles = spans[0][0] + (torch.arange(count) + 0.5) * length / count
        begins = torch.tensor([start for start, _ in features.axis.spans])
        held = (torch.searchsorted(begins, middles, right=True) - 1).clamp_min(0)
        values = features.values[held]
        pairs = (middles[:, None] - middles).abs() > FAR_SECONDS
        if sounding is not None:
            sounding = sounding[held]
            pairs &= sounding[:, None] & sounding
        alike = (values @ values.T).masked_fill(~pairs, torch.nan)
        most = alike >= alike.nanquantile(2 / 3, dim=1, keepdim=True)
        least = alike <= alike.nanquantile(1 / 3, dim=1, keepdim=True)
        # Where many are equally alike, a third can be empty.
        most, least = most & ~least, least & ~most
        return cls(most, least) if bool(most.any() and least.any()) else None

    def preference(self, weights: Float[Tensor, "heads query key"]) -> Float[Tensor, " heads"]:
        """Return for each head how often an alike pair has more weight than an unlike one.

        It is 0.5 for a head that does not care and 1 for one that always prefers what is alike
        (the area under the curve of the two kinds). As it counts comparisons, a few large weights
        do not decide it.

        Cost: one pass over the map; memory of a small picture of each head.
        """
        count = len(self.most)
        pictures = AttentionMap.from_weights(weights).pool(count, count).float().cpu()
        most, least = pictures[:, self.most], pictures[:, self.least].sort(1).values
        below = torch.searchsorted(least, most) + torch.searchsorted(least, most, right=True)
        return below.double().mean(1) / (2 * max(least.shape[1], 1))
