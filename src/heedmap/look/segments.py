"""Where a sound or a film changes, by plain features: the borders of its segments."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.axes import Sequence
from heedmap.look.running import Run

CONTEXT_SECONDS = {"video": 0.2, "audio": 1.0}
"""How much before and after a moment is compared: for film a few frames, for sound the length of
the windows that its features are taken over."""

LEAST_CHANGE = 0.5
"""Features whose cosine is below 1 − this have changed: a cut, another voice, or silence."""


def borders(plain: Sequence, kind: str) -> list[int]:
    """Return the positions at which a new segment begins, the first, 0, included.

    A segment begins where the mean of the features after it differs most, among its neighbours,
    from the mean of those before it, and by at least `LEAST_CHANGE` (1 − cosine).
    """
    start, end = plain.axis.spans[0][0], plain.axis.spans[-1][1]
    positions = len(plain.axis)
    context = max(round(CONTEXT_SECONDS[kind] * positions / (end - start)), 1)
    change = _change(plain.values, context)
    found = [0]
    for place in range(1, positions):
        around = change[max(place - context, 0) : place + context + 1]
        is_peak = change[place] >= around.max() and change[place] >= LEAST_CHANGE
        if is_peak and place - found[-1] > context // 2:
            found.append(place)
    return found


def numbers_of(run: Run) -> Int[Tensor, " positions"]:
    """Return the number of the segment that each position of a run lies in."""
    assert run.plain is not None
    begins = torch.tensor(
        [run.plain.axis.spans[place][0] for place in borders(run.plain, run.kind)]
    )
    middles = torch.tensor([(start + end) / 2 for start, end in run.axis.spans])
    return torch.searchsorted(begins, middles, right=True) - 1


def _change(
    values: Float[Tensor, "positions features"], context: int
) -> Float[Tensor, " positions"]:
    """Return 1 − the cosine of the mean features before and from each position on."""
    sums = torch.cat([values.new_zeros(1, values.shape[1]), values.cumsum(0)])
    here = torch.arange(len(values))
    before = sums[here] - sums[(here - context).clamp_min(0)]
    after = sums[(here + context).clamp_max(len(values))] - sums[here]
    return 1 - torch.nn.functional.cosine_similarity(before, after, dim=1)
