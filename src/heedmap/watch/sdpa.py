"""Calls of ``torch.nn.functional.scaled_dot_product_attention``."""

import torch
from torch import Tensor

from heedmap.masks import Causal, Extent, Mask
from heedmap.watch.call import (
    Call,
    in_working_type,
    lead_of_keys,
    ragged,
    stacked,
    without_nesting,
)
from heedmap.watch.mask_reading import MaskReader


def read(
    reader: MaskReader,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    """Return what a call with these arguments is made of."""
    (query, ends), (key, key_ends), (value, _) = map(without_nesting, (query, key, value))
    query, key, value = map(in_working_type, (query, key, value))
    lead = leading(query, key, enable_gqa)
    kv_lead = (*lead[:-1], key.shape[-3]) if enable_gqa else lead_of_keys(lead, key, value)
    query, key, value = stacked(query, lead), stacked(key, kv_lead), stacked(value, kv_lead)
    sizes = Extent(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    given = attn_mask
    if given is not None and len(lead) != 2:
        # One dimension before query and key is the batch, of one head; many are one batch.
        given = stacked(given.expand(*lead, *sizes[2:]), lead)
    mask, bias = reader.read(given, sizes)
    mask = both(Causal(alignment="start") if is_causal else None, mask)
    return Call(
        door="scaled_dot_product_attention",
        query=query,
        key=key,
        value=value,
        lead=lead,
        mask=both(mask, ragged(ends, key_ends, sizes[2])),
        bias=bias,
        scale=scale,
        dropout=dropout_p > 0,
    )


def both(first: Mask | None, second: Mask | None) -> Mask | None:
    """Return the mask of what is visible in both; None hides nothing."""
    if first is None or second is None:
        return first if second is None else second
    return first & second


def leading(query: Tensor, key: Tensor, grouped: bool) -> tuple[int, ...]:
    """Return the dimensions before positions that the output has."""
    if grouped:
        batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
        return (*batch, *query.shape[-3:-2])
    return tuple(torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]))
