"""The plain formula, apart from the library."""

import math

import torch
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap
from heedmap.layers import Layer
from heedmap.lazy_weights import leaves
from heedmap.problem import Problem


def dense_weights(
    query: Tensor,
    key: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(query · keyᵀ · scale + bias) in float64, 0 where nothing is visible."""
    query, key = query.detach().double(), key.detach().double()
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias.detach().double()
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return torch.softmax(scores, dim=-1).nan_to_num()


def require_close(got: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Compare weights, or other numbers, with those of the formula, shapes included."""
    assert got.shape == expected.shape
    dense = got.to_dense().double()
    torch.testing.assert_close(dense, expected.double(), atol=tolerance, rtol=0)


def watch_once(model: nn.Module, *inputs: Tensor) -> Layer:
    """Return the one layer that attends in a model, whose output must not change."""
    alone = model(*inputs)
    with heedmap.watch(model) as seen:
        watched = model(*inputs)
    assert torch.equal(alone, watched)
    assert torch.equal(alone, model(*inputs))
    assert seen.missed == []
    (layer,) = seen.layers
    return layer


def problem_of(weights: AttentionMap) -> Problem:
    """Return what a map holds: query, key, mask and scoring."""
    (leaf,) = leaves(weights._rule)
    return leaf.problem


def key_of(weights: AttentionMap) -> Tensor:
    """Return the key that a map holds, ``[batch, kv_heads, key, head_dim]``."""
    return problem_of(weights).key
