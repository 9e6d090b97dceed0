"""Maps of a model, one per layer, checked before anything is computed of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.errors import ArgumentError, DTypeError, ShapeError


def layers_of(maps: Sequence[Tensor], *, square: bool) -> list[AttentionMap]:
    """Return maps ``[batch, heads, query, key]`` or ``[heads, query, key]`` that fit each other.

    Layers may differ in heads, and unless `square` in queries.

    Raises:
        ArgumentError: for no map at all.
        ShapeError: for other shapes, no heads, different batches or keys, or, where `square`, for
            another number of queries than of keys.
        DTypeError: for cells that are no floating-point numbers.
    """
    if isinstance(maps, Tensor) or not maps:
        got = "a single tensor" if isinstance(maps, Tensor) else "none"
        raise ArgumentError(f"maps must be a sequence of maps, one per layer; got {got}.")
    layers = [map_of_heads("each of maps", weights) for weights in maps]
    first = layers[0]
    for weights in layers:
        if (weights.shape[:-3], weights.shape[-1]) != (first.shape[:-3], first.shape[-1]):
            raise ShapeError(
                "maps must have the same batch and keys in each layer; got "
                f"{list(first.shape)} and {list(weights.shape)}."
            )
        if square and weights.shape[-2] != weights.shape[-1]:
            raise ShapeError(
                f"maps must have as many queries as keys; got {list(weights.shape)}. "
                "Cross-attention and steps of decoding cannot be chained."
            )
    return layers


def map_of_heads(name: str, weights: Tensor) -> AttentionMap:
    """Return weights ``[batch, heads, query, key]`` or ``[heads, query, key]`` as a map.

    Raises:
        ShapeError: for another number of dimensions, or no heads.
        DTypeError: for cells that are no floating-point numbers.
    """
    if not isinstance(weights, Tensor) or weights.ndim not in (3, 4) or not weights.shape[-3]:
        got = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ShapeError(
            f"{name} must be [batch, heads, query, key] or [heads, query, key]; got {got}."
        )
    if not weights.dtype.is_floating_point:
        raise DTypeError(f"{name} must hold floating-point weights; got {weights.dtype}.")
    return AttentionMap.from_weights(weights)


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Return the number type for sums: float32 for half precision, else the type itself."""
    return torch.promote_types(dtype, torch.float32)
