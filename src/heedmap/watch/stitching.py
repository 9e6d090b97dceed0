"""The steps of a decoding put one below the other: what each query sees, in places of the whole."""

from collections.abc import Sequence
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
    """

    queries: int
    base: int
    stretches: Stretches | None
    keys: int
    parents: Int[Tensor, " batch"] | None = None
    bias: Tensor | None = None


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
    parts = [_placed(step, rows, sizes) for step, rows in zip(steps, lines, strict=True)]
    heads = max(part.first.shape[1] for part in parts)
    first, last = (
        torch.cat([getattr(part, end).expand(-1, heads, -1) for part in parts], dim=2)
        for end in ("first", "last")
    )
    valid = torch.stack([_valid(part) for part in parts]).any(0)
    if any(_hides(part, valid) for part in parts):
        # A step that hides keys between others that it sees, and that other steps see.
        return Visible(torch.cat([_table(part, heads) for part in parts], dim=2))
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


def _placed(step: Step, rows: Tensor, sizes: Extent) -> Stretches:
    """Return what a step sees, in places of the whole, for these rows of the batch."""
    assert step.stretches is not None
    first, last, valid = step.stretches
    first, last = (
        _of(ends, rows).expand(sizes.batch, -1, step.queries) + step.base for ends in (first, last)
    )
    keys = min(step.keys, sizes.keys - step.base)
    if valid is None:
        valid = first.new_ones((1, keys), dtype=torch.bool)
    valid = _of(valid, rows)[:, :keys].expand(sizes.batch, -1)
    return Stretches(first, last, F.pad(valid, (step.base, sizes.keys - step.base - keys)))


def _valid(part: Stretches) -> Bool[Tensor, "batch key"]:
    assert part.valid is not None
    return part.valid


def _hides(part: Stretches, valid: Bool[Tensor, "batch key"]) -> bool:
    """Whether a key lies in the stretches of a step that is valid in the whole and not in it."""
    if not part.first.numel():
        return False
    numbers = torch.arange(valid.shape[1], device=valid.device)
    first, last = part.first.amin((1, 2))[:, None], part.last.amax((1, 2))[:, None]
    return bool((valid & ~_valid(part) & (numbers >= first) & (numbers <= last)).any())


def _table(part: Stretches, heads: int) -> Bool[Tensor, "batch heads query key"]:
    valid = _valid(part)
    numbers = torch.arange(valid.shape[1], device=valid.device)
    seen = (numbers >= part.first[..., None]) & (numbers <= part.last[..., None])
    return (seen & valid[:, None, None]).expand(-1, heads, -1, -1)


def _of(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor[rows.to(tensor.device)] if tensor.shape[0] > 1 else tensor
