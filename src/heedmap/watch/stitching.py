"""The steps of a decoding put one below the other: what each query sees, in places of the whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from heedmap.masks import Extent, Mask, Spans, Visible
from heedmap.watch.mask_reading import simplest
from heedmap.watch.spans import Stretches


@dataclass(frozen=True, eq=False)
class Step:
    """One call within a track.

    Attributes:
        queries: How many queries of it are kept.
        base: At which key of the track its own keys begin.
        stretches: What its queries see of its own keys.
        keys: How many keys it had.
        parents: From which row of the step before each row goes on; None for the same.
        bias: Its scores to add.
        carries_on: Whether the keys that are valid are those of the step before and all new ones;
            then `stretches` do not say it again, for that would add up to steps × keys.
    """

    queries: int
    base: int
    stretches: Stretches | None
    keys: int
    parents: Int[Tensor, " batch"] | None = None
    bias: Tensor | None = None
    carries_on: bool = False


def ancestors(steps: Sequence[Step], batch: int) -> list[Int[Tensor, " batch"]]:
    """Return for each step the rows of the batch from which those of the last step come."""
    rows = torch.arange(batch)
    lines = [rows]
    for step in reversed(steps[1:]):
        rows = rows if step.parents is None else step.parents.to(rows.device)[rows]
        lines.append(rows)
    return lines[::-1]


def mask_of_steps(steps: Sequence[Step], lines: Sequence[Tensor], sizes: Extent) -> Mask | None:
    """Return the mask of all steps.

    Args:
        steps: One below the other.
        lines: The rows of the batch that each step is read from.
        sizes: Of the whole.
    """
    ends = [_placed(step, rows, sizes) for step, rows in zip(steps, lines, strict=True)]
    heads = max(first.shape[1] for first, _ in ends)
    valid = ends[0][0].new_zeros((sizes.batch, sizes.keys), dtype=torch.bool)
    for now in _valid_keys(steps, lines, sizes):
        valid |= now
    each = zip(ends, _valid_keys(steps, lines, sizes), strict=True)
    if any(_hides(first, last, now, valid) for (first, last), now in each):
        # A step that hides keys between others that it sees, and that other steps see.
        each = zip(ends, _valid_keys(steps, lines, sizes), strict=True)
        parts = [_table(*end, now).expand(-1, heads, -1, -1) for end, now in each]
        return Visible(torch.cat(parts, dim=2))
    first, last = (
        torch.cat([part.expand(-1, heads, -1) for part in side], dim=2)
        for side in zip(*ends, strict=True)
    )
    return simplest(Spans(first, last, valid), sizes)


def bias_of_steps(steps: Sequence[Step], lines: Sequence[Tensor], sizes: Extent) -> Tensor | None:
    """Return the scores added in all steps, 0 where a step has no key yet.

    Cost: O(query · key) memory, as in the model that has such a bias.
    """
    if steps[0].bias is None:
        return None
    parts = []
    for step, rows in zip(steps, lines, strict=True):
        assert step.bias is not None
        bias = _of(step.bias, rows)[..., : sizes.keys - step.base].expand(-1, -1, step.queries, -1)
        behind = sizes.keys - step.base - bias.shape[-1]
        parts.append(F.pad(bias, (step.base, behind)))
    return torch.cat(parts, dim=2)


def _placed(step: Step, rows: Tensor, sizes: Extent) -> tuple[Tensor, Tensor]:
    """Return the ends of what a step sees, in places of the whole, for these rows of the batch."""
    assert step.stretches is not None
    first, last = (
        _of(ends, rows).expand(sizes.batch, -1, step.queries) + step.base
        for ends in (step.stretches.first, step.stretches.last)
    )
    return first, last


def _valid_keys(
    steps: Sequence[Step], lines: Sequence[Tensor], sizes: Extent
) -> Iterator[Bool[Tensor, "batch key"]]:
    """Yield which keys are valid for each step; the same tensor, until one says anew."""
    now, end = torch.zeros(0), 0
    for step, rows in zip(steps, lines, strict=True):
        assert step.stretches is not None
        stop, valid = min(step.base + step.keys, sizes.keys), step.stretches.valid
        if step.carries_on:
            now[:, end:stop] = True
        else:
            device = step.stretches.first.device
            now = torch.zeros((sizes.batch, sizes.keys), dtype=torch.bool, device=device)
            own = True if valid is None else _of(valid, rows)[:, : stop - step.base]
            now[:, step.base : stop] = own
        end = stop
        yield now


def _hides(first: Tensor, last: Tensor, now: Tensor, valid: Tensor) -> bool:
    """Whether a key lies in the stretches of a step that is valid in the whole and not in it."""
    if not first.numel():
        return False
    numbers = torch.arange(valid.shape[1], device=valid.device)
    first, last = first.amin((1, 2))[:, None], last.amax((1, 2))[:, None]
    return bool((valid & ~now & (numbers >= first) & (numbers <= last)).any())


def _table(first: Tensor, last: Tensor, now: Tensor) -> Bool[Tensor, "batch heads query key"]:
    numbers = torch.arange(now.shape[1], device=now.device)
    seen = (numbers >= first[..., None]) & (numbers <= last[..., None])
    return seen & now[:, None, None]


def _of(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor[rows.to(tensor.device)] if tensor.shape[0] > 1 else tensor
