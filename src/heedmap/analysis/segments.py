"""Where a sound or a film changes, by plain features: the borders of its segments."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.axes import Axis, Sequence

CONTEXT_SECONDS = {"video": 0.2, "audio": 1.0}
"""How much before and after a moment is compared: for film a few frames, for sound the length of
the windows that its features are taken over."""

LEAST_CHANGE = 0.6
"""Half the squared distance of two means of features from which on they are of different things: a
cut, another voice, or silence. The cuts of a test film have 0.8 to 1.5 and motion within its shots
at most 0.35; the turns of a test recording have 0.66 to 0.92 and changes within them 0.55."""


def borders(features: Sequence) -> list[int]:
    """Return the positions at which a new segment begins, the first, 0, included.

    A segment begins where the mean of the features after it differs most, among its neighbours,
    from the mean of those before it, and by at least `LEAST_CHANGE`.
    """
    start, end = features.axis.spans[0][0], features.axis.spans[-1][1]
    positions = len(features.axis)
    context = max(round(CONTEXT_SECONDS[features.axis.kind] * positions / (end - start)), 1)
    change = _change(features.values, context)
    largest_around = torch.nn.functional.max_pool1d(change[None], 2 * context + 1, 1, context)[0]
    found = [0]
    peaks = (change == largest_around) & (change >= LEAST_CHANGE)
    for place in peaks.nonzero().flatten().tolist():
        # Of equal peaks side by side the first is the border; the start of all is one anyway.
        if place - found[-1] > context // 2:
            found.append(place)
    return found


def numbers_of(axis: Axis, features: Sequence) -> Int[Tensor, " positions"]:
    """Return the number of the segment of `features` that each position of `axis` lies in."""
    begins = torch.tensor([features.axis.spans[place][0] for place in borders(features)])
    middles = torch.tensor([(start + end) / 2 for start, end in axis.spans])
    return torch.searchsorted(begins, middles, right=True) - 1


def _change(
    values: Float[Tensor, "positions features"], context: int
) -> Float[Tensor, " positions"]:
    """Return half the squared distance of the mean features before and from each position on.

    For features of length 1 that do not vary on either side it is 1 − their cosine; where they vary
    without a border, both means are short, and it is small.
    """
    sums = torch.cat([values.new_zeros(1, values.shape[1]), values.cumsum(0)])
    here = torch.arange(len(values))
    start, stop = (here - context).clamp_min(0), (here + context).clamp_max(len(values))
    before = (sums[here] - sums[start]) / (here - start).clamp_min(1)[:, None]
    after = (sums[stop] - sums[here]) / (stop - here)[:, None]
    return (before - after).square().sum(1) / 2
