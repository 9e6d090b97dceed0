"""One problem put three ways: to `attention`, to `SelfAttention`, and to a model that is watched.

Queries come from `x`, keys and values from `source`, both ``[batch, positions, features]`` and cut
into two heads; nothing is projected, so that all three compute the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Causal, Mask, Padding
from heedmap.layers import Layer
from heedmap.nn import SelfAttention

HEADS = 2


class Answer(NamedTuple):
    """What came back: ``[batch, query, features]`` and ``[batch, heads, query, key]``."""

    output: Tensor
    weights: AttentionMap


def draw(*shape: int, seed: int = 0, **options: Any) -> Tensor:
    """Return normal numbers, the same each time."""
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.to(**({"dtype": torch.float32} | options))


def heads_of(x: Tensor) -> Tensor:
    """Return ``[batch, heads, positions, head_dim]``."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def of_attention(
    x: Tensor, source: Tensor, valid: Tensor | None = None, causal: bool = False
) -> Answer:
    mask: Mask | None = None if valid is None else Padding(valid)
    if causal:
        mask = Causal() if mask is None else mask & Causal()
    query, key = heads_of(x), heads_of(source)
    output, weights = heedmap.attention(query, key, key, mask=mask)
    return Answer(output.transpose(1, 2).flatten(2), weights)


def of_module(
    x: Tensor, source: Tensor, valid: Tensor | None = None, causal: bool = False
) -> Answer:
    layer = plain_layer(x.shape[-1], x.dtype, causal=causal)
    return Answer(*layer(x, valid, context=None if source is x else source))


def plain_layer(width: int, dtype: torch.dtype = torch.float32, **options: Any) -> SelfAttention:
    """Return a layer whose projections change nothing."""
    layer = SelfAttention(width, width, num_heads=HEADS, **options).to(dtype)
    for projection in (layer.w_q, layer.w_k, layer.w_v):
        nn.init.eye_(projection.weight)
    return layer


class Fused(nn.Module):
    """A model that attends by PyTorch's function, with a table of what is visible."""

    def forward(self, x: Tensor, source: Tensor, visible: Tensor | None) -> Tensor:
        query, key = heads_of(x), heads_of(source)
        found = F.scaled_dot_product_attention(query, key, key, attn_mask=visible)
        return found.transpose(1, 2).flatten(2)


def of_watched_model(
    x: Tensor,
    source: Tensor,
    valid: Tensor | None = None,
    causal: bool = False,
    *,
    grad: bool = False,
) -> Answer:
    visible = None if valid is None else valid.bool()[:, None, None]
    if causal:
        table = torch.ones(x.shape[1], source.shape[1], dtype=torch.bool).tril()
        visible = table if visible is None else visible & table
    output, layer = watched(Fused(), x, source, visible, grad=grad)
    return Answer(output, layer.weights)


def of_model_watched_with_gradients(
    x: Tensor, source: Tensor, valid: Tensor | None = None, causal: bool = False
) -> Answer:
    return of_watched_model(x, source, valid, causal, grad=True)


def watched(model: nn.Module, *inputs: Any, **options: Any) -> tuple[Any, Layer]:
    """Return what a model puts out, and the one layer of it that attends."""
    alone = model(*inputs)
    with heedmap.watch(model, **options) as seen:
        output = model(*inputs)
    assert seen.missed == []
    (layer,) = seen.layers
    same = output if isinstance(output, Tensor) else output[0]
    assert torch.equal(same.nan_to_num(7), (alone if same is output else alone[0]).nan_to_num(7))
    return output, layer


Way = Callable[..., Answer]

WAYS: dict[str, Way] = {
    "attention": of_attention,
    "SelfAttention": of_module,
    "watched": of_watched_model,
}
WAYS_OF_GRADIENTS: dict[str, Way] = WAYS | {"watched": of_model_watched_with_gradients}
