"""What a mask consists of: its kind, its numbers, and its tensors."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from heedmap.errors import ShapeError, UnsupportedError
from heedmap.masks import (
    Both,
    Causal,
    Documents,
    Either,
    Extent,
    Mask,
    Padding,
    Spans,
    Visible,
    Window,
)
from heedmap.places import Places, as_numbers, strips
from heedmap.recording.files import unrepeated
from heedmap.watch.spans import Chosen

KINDS: dict[str, type[Mask]] = {
    "both": Both,
    "causal": Causal,
    "chosen": Chosen,
    "documents": Documents,
    "either": Either,
    "padding": Padding,
    "spans": Spans,
    "visible": Visible,
    "window": Window,
}
_NAMES = {kind: name for name, kind in KINDS.items()}

Rule = dict[str, Any]
"""The kind of something and its numbers, as JSON can hold them; its tensors lie elsewhere."""


def take_apart(
    mask: Mask, extent: Extent, device: torch.device, name: str = "mask"
) -> tuple[Rule, dict[str, Tensor]]:
    """Return the rule of a bound mask and its tensors.

    A mask of a kind that is not known, such as a function that was given to flex_attention, is read
    as spans where it is no more than that.

    Args:
        mask: The mask.
        extent: What it is bound to.
        device: Where it is asked.
        name: What the names of its tensors begin with.

    Raises:
        UnsupportedError: for a mask that cannot be saved.

    Cost: where it is read as spans, O(batch · heads · query · key) time.
    """
    if not isinstance(mask, Both | Either) and not _is_known(mask):
        mask = _as_spans(mask, extent, device)
    rule: Rule = {"kind": _NAMES[type(mask)]}
    tensors: dict[str, Tensor] = {}
    for field in fields(mask):  # pyright: ignore[reportArgumentType]
        part, full = getattr(mask, field.name), f"{name}.{field.name}"
        if isinstance(part, Tensor):
            # Only the last dimension of a table cannot stand for all.
            tensors[full] = unrepeated(part, 3) if isinstance(mask, Visible) else part
        elif isinstance(part, Mask):
            rule[field.name], more = take_apart(part, extent, device, full)
            tensors |= more
        else:
            rule[field.name] = part
    return rule, tensors


def put_together(rule: Rule, tensors: Mapping[str, Tensor], extent: Extent) -> Mask:
    """Return the mask that was taken apart, bound to an extent.

    Raises:
        ArgumentError, DTypeError, KeyError, TypeError: if the parts do not make one.
    """
    return _made(rule, tensors, extent, "mask").bind(extent)


def _made(rule: Rule, tensors: Mapping[str, Tensor], extent: Extent, name: str) -> Mask:
    kind = KINDS[rule["kind"]]
    parts = {}
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        full, plain = f"{name}.{field.name}", rule.get(field.name)
        if isinstance(plain, dict):
            parts[field.name] = _made(plain, tensors, extent, full)
        else:
            parts[field.name] = tensors.get(full, plain)
    for field, part in parts.items():
        if field in ("base", "first", "second") and not isinstance(part, Mask | Tensor):
            raise ShapeError(f"{name}.{field} must be a mask; got {part!r}")
    made = kind(**parts)
    if isinstance(made, Chosen):
        # Its own bind trusts it.
        for numbers, size in ((made.heads, extent.heads), (made.queries, extent.queries)):
            if numbers.is_floating_point() or tuple(numbers.shape) != (size,):
                raise ShapeError(f"{name} must choose {size}; got {list(numbers.shape)}")
    return made


def _is_known(mask: Mask) -> bool:
    inner = (part for part in vars(mask).values() if isinstance(part, Mask))
    return type(mask) in _NAMES and all(map(_is_known, inner))


def _as_spans(mask: Mask, extent: Extent, device: torch.device) -> Spans:
    """Read a mask that only its cells tell of."""
    spans = _read(mask, extent, device) if 0 not in extent else None
    if spans is None:
        raise UnsupportedError(
            f"its mask is a {type(mask).__name__}, which is a function of places and no stretch of "
            "keys for each query"
        )
    return spans


def _read(mask: Mask, extent: Extent, device: torch.device) -> Spans | None:
    batch, heads, queries, keys = extent
    columns = torch.arange(keys, device=device)
    first = torch.empty((batch * heads, queries), dtype=torch.long, device=device)
    last, seen = torch.empty_like(first), torch.empty_like(first)
    valid = torch.zeros((batch, keys), dtype=torch.bool, device=device)
    for matrices, rows in strips(batch * heads, queries, keys, wide=True):
        places = Places.of_block(
            as_numbers(matrices, device), heads, as_numbers(rows, device), columns
        )
        tile = mask.tile(places).expand(len(matrices), len(rows), keys)
        block = slice(matrices.start, matrices.stop), slice(rows.start, rows.stop)
        seen[block] = tile.sum(-1)
        first[block] = torch.where(tile, columns, keys).amin(-1)
        last[block] = torch.where(tile, columns, -1).amax(-1)
        for matrix, table in zip(matrices, tile, strict=True):
            valid[matrix // heads] |= table.any(0)
    first.masked_fill_(seen == 0, 0)
    first, last, seen = (numbers.unflatten(0, (batch, heads)) for numbers in (first, last, seen))
    # Whatever is seen lies within its span and at a valid key. So where as many keys are seen as
    # are valid within the span, they are the same keys.
    before = torch.nn.functional.pad(valid.cumsum(1), (1, 0))
    stop, start = (before.gather(1, ends.flatten(1)) for ends in (last + 1, first))
    if not torch.equal(stop - start, seen.flatten(1)):
        return None
    return Spans(first, last, None if bool(valid.all()) else valid)
