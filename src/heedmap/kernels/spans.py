"""Masks in the form that our kernels take: stretches of keys, valid keys, tables for the rest."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedmap.masks import Causal, Padding, Spans, Visible, Window, parts_of
from heedmap.problem import Problem

_KINDS = (Padding, Causal, Window, Spans, Visible)


class Hidden(NamedTuple):
    """What the mask of a problem hides; None for nothing of this kind."""

    first: Int[Tensor, "#batch #heads query"] | None = None
    last: Int[Tensor, "#batch #heads query"] | None = None
    valid: Bool[Tensor, "#batch key"] | None = None
    visible: Bool[Tensor, "#batch #heads query key"] | None = None


_NOTHING = Hidden()


def is_simple(problem: Problem) -> bool:
    """Return whether the mask has a form that our kernels take."""
    tables = 0
    for part in parts_of(problem.mask):
        if type(part) not in _KINDS:
            return False
        tables += type(part) is Visible
    return tables <= 1


def is_padding(problem: Problem) -> bool:
    """Return whether the mask hides the same keys from all queries of a sample, or nothing."""
    return all(type(part) is Padding for part in parts_of(problem.mask))


def hidden_of(problem: Problem, rows: range) -> Hidden:
    """Return what the mask of a problem hides from some of its queries."""
    if problem.mask is None:
        return _NOTHING
    if type(problem.mask) is Padding:
        return Hidden(valid=problem.mask.valid.contiguous())
    keys, lines, device = problem.extent.keys, slice(rows.start, rows.stop), problem.query.device
    first = last = valid = visible = None
    for part in parts_of(problem.mask):
        low = high = None
        if isinstance(part, Padding):
            valid = _both(valid, part.valid)
        elif isinstance(part, Causal | Window):
            numbers = torch.arange(rows.start, rows.stop, device=device)
            place = (numbers + part.offset)[None, None]
            if isinstance(part, Causal):
                high = place
            else:
                low = None if part.before is None else place - part.before
                high = None if part.after is None else place + part.after
        elif isinstance(part, Spans):
            low, high = part.first[..., lines], part.last[..., lines]
            valid = _both(valid, part.valid)
        elif isinstance(part, Visible):
            visible = part.table if part.table.shape[2] == 1 else part.table[:, :, lines]
        first = low if first is None else first if low is None else torch.maximum(first, low)
        last = high if last is None else last if high is None else torch.minimum(last, high)
    if first is not None or last is not None:
        nothing = torch.zeros((1, 1, len(rows)), dtype=torch.long, device=device)
        first = nothing if first is None else first
        last = nothing + (keys - 1) if last is None else last
        first, last = torch.broadcast_tensors(first.clamp(0, keys), last.clamp(-1, keys - 1))
        first, last = (ends.to(torch.int32).contiguous() for ends in (first, last))
    return Hidden(first, last, None if valid is None else valid.contiguous(), visible)


def _both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
