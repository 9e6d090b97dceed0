"""The operator Attention of ONNX (opsets 23 to 25), said in the words of heedmap.

Roles of inputs and outputs, and what attributes mean, are those of the operator's documentation,
`onnx.defs.get_schema("Attention", 25)`.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import NodeProto, TensorProto
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Mask, Padding, Visible, Window
from heedmap.masks import Spans

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
BFLOAT16 = onnx.helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)

RAW, CAPPED, MASKED, WEIGHTS = range(4)
"""The modes of qk_matmul_output: what the scores have gone through."""


def run(node: NodeProto, arrays: Sequence[np.ndarray], backend: str) -> list[np.ndarray]:
    """Return the outputs that the node names, from its inputs, computed by heedmap."""
    roles = [role for role, name in zip(INPUTS, node.input, strict=False) if name]
    inputs = dict(zip(roles, map(_to_torch, arrays), strict=True))
    options = {part.name: onnx.helper.get_attribute_value(part) for part in node.attribute}
    outputs = attend(inputs, options, backend)
    wanted = [role for role, name in zip(OUTPUTS, node.output, strict=False) if name]
    return [_to_numpy(outputs[role]) for role in wanted]


def attend(
    inputs: Mapping[str, Tensor], options: Mapping[str, Any], backend: str
) -> dict[str, Tensor]:
    """Return all outputs of the operator by their roles."""
    query = _split_heads(inputs["Q"], options.get("q_num_heads"))
    key = _split_heads(inputs["K"], options.get("kv_num_heads"))
    value = _split_heads(inputs["V"], options.get("kv_num_heads"))
    if "past_key" in inputs:
        key = torch.cat([inputs["past_key"], key], dim=2)
        value = torch.cat([inputs["past_value"], value], dim=2)
    table = _table(inputs.get("attn_mask"), key.shape[2])
    masks = _masks_of_places(inputs, options, query.shape[2], key.shape[2])
    if table is not None and table.dtype == torch.bool:
        masks.append(Visible(table))
        table = None
    present = {"present_key": key, "present_value": value}
    if options.get("softmax_precision") == TensorProto.DOUBLE:
        # Every other precision is one that heedmap computes in, or exceeds, anyway.
        query, key, value = query.double(), key.double(), value.double()
    scale, cap = options.get("scale"), options.get("softcap") or None
    output, weights = heedmap.attention(
        query,
        key,
        value,
        mask=reduce(and_, masks) if masks else None,
        scale=scale,
        soft_cap=cap,
        bias=table,
        backend=backend,
    )
    mode = options.get("qk_matmul_output_mode", RAW)
    if mode in (RAW, CAPPED):
        cap = cap if mode == CAPPED else None
        cells = AttentionMap.from_factors(query, key, scale=scale, soft_cap=cap).scores
    else:
        cells = weights.scores if mode == MASKED else weights
    given = inputs["Q"].dtype
    folded = output.transpose(1, 2).flatten(2) if inputs["Q"].ndim == 3 else output
    return present | {"Y": folded.to(given), "qk_matmul_output": cells.to_dense().to(given)}


def _masks_of_places(
    inputs: Mapping[str, Tensor], options: Mapping[str, Any], queries: int, keys: int
) -> list[Mask]:
    """Return the masks that go by where queries and keys stand."""
    bounds = (options.get(f"{side}_window_size", -1) for side in ("left", "right"))
    before, after = (None if bound < 0 else bound for bound in bounds)
    is_causal, is_window = options.get("is_causal", 0) == 1, (before, after) != (None, None)
    if "nonpad_kv_seqlen" in inputs:
        lengths = inputs["nonpad_kv_seqlen"]
        places = (lengths - queries)[:, None, None] + torch.arange(queries)
        masks: list[Mask] = [Padding.from_lengths(lengths, keys)]
        masks += [_near(places, keys, None, 0)] if is_causal else []
        masks += [_near(places, keys, before, after)] if is_window else []
        return masks
    offset = inputs["past_key"].shape[2] if "past_key" in inputs else 0
    masks = [Causal(offset)] if is_causal else []
    masks += [Window(offset, before=before, after=after)] if is_window else []
    return masks


def _near(places: Tensor, keys: int, before: int | None, after: int | None) -> Spans:
    """Return the window around places among the keys that differ from sample to sample."""
    first = torch.zeros_like(places) if before is None else places - before
    last = torch.full_like(places, keys - 1) if after is None else places + after
    return Spans(first, last)


def _table(attn_mask: Tensor | None, keys: int) -> Tensor | None:
    """Return a mask of any rank in four dimensions, with what it lacks in keys not visible."""
    if attn_mask is None:
        return None
    hidden = False if attn_mask.dtype == torch.bool else -torch.inf
    full = F.pad(attn_mask, (0, keys - attn_mask.shape[-1]), value=hidden)
    return full[(None,) * (4 - full.ndim)]


def _split_heads(tensor: Tensor, heads: int | None) -> Tensor:
    if tensor.ndim == 4:
        return tensor
    assert heads is not None, "three dimensions need a number of heads"
    return tensor.unflatten(2, (heads, tensor.shape[2] // heads)).transpose(1, 2)


def _to_torch(array: np.ndarray) -> Tensor:
    if array.dtype == BFLOAT16:
        return torch.tensor(array.view(np.int16)).view(torch.bfloat16)
    return torch.tensor(array)


def _to_numpy(tensor: Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)
    return tensor.numpy()
