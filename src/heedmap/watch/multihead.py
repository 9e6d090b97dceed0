"""Calls of PyTorch's own multi-head attention, in Python and in C++.

These take the sequence before its projection, so query and key are projected here once more.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedmap.masks import Extent
from heedmap.watch.call import Call, Form, ragged, without_nesting
from heedmap.watch.mask_reading import MaskReader
from heedmap.watch.sdpa import both


def read_python(
    reader: MaskReader,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Call:
    """Return what a call of ``F.multi_head_attention_forward`` is made of.

    The key gets the further columns of ``bias_k`` and ``add_zero_attn``, as the weights there do.
    """
    del embed_dim_to_check, need_weights, average_attn_weights, out_proj_weight, out_proj_bias
    del is_causal  # A hint beside the mask, which says the same.
    lead: tuple[int, ...] = (query.shape[1], num_heads) if query.ndim == 3 else (num_heads,)
    query, key, value = (t if t.ndim == 3 else t[:, None] for t in (query, key, value))
    if use_separate_proj_weight:
        weights: Any = q_proj_weight, k_proj_weight, v_proj_weight
    else:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    query, key, value = (
        F.linear(tensor, weight, bias)
        for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    batch = query.shape[1]
    if bias_k is not None and bias_v is not None:
        key = _longer(key, bias_k.expand(1, batch, -1))
        value = _longer(value, bias_v.expand(1, batch, -1))
    query, key, value = (_heads(t.transpose(0, 1), num_heads) for t in (query, key, value))
    if static_k is not None:
        key = static_k.unflatten(0, (batch, num_heads))
    if static_v is not None:
        value = static_v.unflatten(0, (batch, num_heads))
    if add_zero_attn:
        key, value = (F.pad(t, (0, 0, 0, 1)) for t in (key, value))
    sizes = Extent(batch, num_heads, query.shape[2], key.shape[2])
    padding = None
    if key_padding_mask is not None:
        padding = key_padding_mask.reshape(batch, 1, 1, -1)
    if attn_mask is not None and attn_mask.ndim == 3:
        attn_mask = attn_mask.unflatten(0, (batch, -1))
    masks = [_as_sdpa(mask, sizes[3]) for mask in (attn_mask, padding)]
    first, second = (reader.read(mask, sizes) for mask in masks)
    biases = [read.bias for read in (first, second) if read.bias is not None]
    return Call(
        door="multi_head_attention_forward",
        query=query,
        key=key,
        value=value,
        lead=lead,
        mask=both(first.mask, second.mask),
        bias=sum(biases[1:], biases[0]) if biases else None,
        dropout=training and dropout_p > 0,
    )


def unprojected(sizes: Extent, weight: Tensor) -> Form:
    """Return what makes of the gradient of the projected output that of the heads' own.

    Args:
        sizes: Of the call.
        weight: That of the projection.
    """

    def form(gradient: Tensor) -> Tensor:
        heads = (gradient @ weight).reshape(sizes.queries, sizes.batch, -1)
        return _heads(heads.transpose(0, 1), sizes.heads)

    return form


def read_native(
    reader: MaskReader,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor | None = None,
    proj_bias: Tensor | None = None,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Call:
    """Return what a call of the C++ multi-head attention is made of.

    Its mask hides where it is not 0: ``[query, key]`` for type 0, ``[batch, key]`` for type 1,
    else all four dimensions.
    """
    del embed_dim, proj_weight, proj_bias, need_weights, average_attn_weights
    (query, ends), (key, key_ends), (value, _) = map(without_nesting, (query, key, value))
    query, key, value = (
        _heads(F.linear(tensor, weight, bias), num_heads)
        for tensor, weight, bias in zip(
            (query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True
        )
    )
    sizes = Extent(query.shape[0], num_heads, query.shape[2], key.shape[2])
    given = None
    if mask is not None:
        shape = {0: (1, 1, *sizes[2:]), 1: (sizes[0], 1, 1, sizes[3])}
        given = ~mask.bool().reshape(shape.get(-1 if mask_type is None else mask_type, mask.shape))
    return Call(
        door="_native_multi_head_attention",
        query=query,
        key=key,
        value=value,
        lead=(sizes[0], num_heads),
        mask=both(reader.read(given, sizes).mask, ragged(ends, key_ends, sizes[2])),
        crosses=False,
    )


def read_native_layer(
    reader: MaskReader,
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    linear_weight_1: Tensor,
    linear_bias_1: Tensor,
    linear_weight_2: Tensor,
    linear_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Call:
    """Return what a call of the C++ encoder layer is made of."""
    del proj_weight, proj_bias, use_gelu, norm_weight_2, norm_bias_2
    del linear_weight_1, linear_bias_1, linear_weight_2, linear_bias_2
    if norm_first:
        src = F.layer_norm(src, (embed_dim,), norm_weight_1, norm_bias_1, eps)
    call = read_native(
        *(reader, src, src, src, embed_dim, num_heads, qkv_weight, qkv_bias),
        mask=mask,
        mask_type=mask_type,
    )
    call.door, call.part = "_transformer_encoder_layer_fwd", "self_attn"
    return call


def _heads(tensor: Tensor, heads: int) -> Tensor:
    """Return ``[batch, positions, features]`` as ``[batch, heads, positions, head_dim]``."""
    return tensor.unflatten(-1, (heads, -1)).transpose(1, 2)


def _longer(tensor: Tensor, row: Tensor) -> Tensor:
    """Return the tensor with one more position."""
    longer = F.pad(tensor, (0, 0, 0, 0, 0, 1))
    longer[-1:] = row
    return longer


def _as_sdpa(mask: Tensor | None, keys: int) -> Tensor | None:
    """Return a mask in which True hides as one in which it shows, with columns up to `keys`.

    The columns that ``bias_k`` and ``add_zero_attn`` add are visible.
    """
    if mask is None:
        return None
    mask = F.pad(mask, (0, keys - mask.shape[-1]))
    return ~mask if mask.dtype == torch.bool else mask
