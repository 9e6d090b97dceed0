"""Calls of ``torch.nn.attention.flex_attention``, whose masks are functions of places."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedmap.masks import Extent, Mask
from heedmap.places import Places
from heedmap.watch.call import Call
from heedmap.watch.mask_reading import MaskReader

_BLOCK = ((0, 0, None, None), (None, None, 0, None), (None, None, None, 0))
_CELLS = ((0, 0, 0, 0),)


@dataclass(frozen=True)
class VisibleWhere(Mask):
    """Visible where a function of sample, head, query and key numbers says so.

    Args:
        function: A ``mask_mod`` of flex_attention, which knows single numbers only.
    """

    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

    def bind(self, extent: Extent) -> Mask:
        """Fit any extent."""
        del extent
        return self

    def tile(self, places: Places) -> Tensor:
        """Ask the function about each place."""
        return _spread(self.function, places)


@dataclass(frozen=True)
class ChangedScores:
    """Scores put through a ``score_mod`` of flex_attention, a function of each and its place."""

    function: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

    def __call__(self, scores: Tensor, places: Places) -> Tensor:
        """Return the changed scores."""
        return _spread(self.function, places, scores).to(scores.dtype)


def read_mask(
    reader: MaskReader, block_mask: tuple[Any, ...], extent: Extent, device: torch.device
) -> Mask | None:
    """Return the mask that a block mask says, taken apart; None where it hides nothing."""
    blocks: Tensor = block_mask[2]
    function: Any = block_mask[-1]
    if getattr(function, "__name__", "") == "noop_mask":
        return None
    # Its blocks are of one sample, or one head, where it is the same for all.
    asked = extent._replace(
        batch=min(blocks.shape[0], extent.batch), heads=min(blocks.shape[1], extent.heads)
    )
    return reader.read_rule(VisibleWhere(function), function, asked, extent, device)


def read(
    reader: MaskReader,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: Any = None,
    *buffers: Any,
) -> Call:
    """Return what a call of the operator behind ``flex_attention`` is made of."""
    del kernel_options, buffers
    batch = torch.broadcast_shapes(query.shape[:1], key.shape[:1])[0]
    query, key, value = (t.expand(batch, -1, -1, -1) for t in (query, key, value))
    extent = Extent(batch, query.shape[1], query.shape[2], key.shape[2])
    changes = getattr(score_mod, "__name__", "") != "_identity"
    return Call(
        door="flex_attention",
        query=query,
        key=key,
        value=value,
        lead=tuple(query.shape[:2]),
        mask=read_mask(reader, block_mask, extent, query.device),
        scale=scale,
        score_change=ChangedScores(score_mod) if changes else None,
    )


def _spread(function: Any, places: Places, scores: Tensor | None = None) -> Tensor:
    """Return the function of every place, as flex_attention calls it: for one number at a time."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    single = places.query.ndim == 1
    numbers = list(places) if single else [part.flatten() for part in places]
    dims: tuple[tuple[int | None, ...], ...] = _CELLS if single else _BLOCK
    for dim in reversed(dims):
        given = dim if scores is None else (0, *dim)
        function = torch.vmap(function, in_dims=given)
    with TransformGetItemToIndex():
        return function(*([] if scores is None else [scores]), *numbers)
