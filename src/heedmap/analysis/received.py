"""How much each key is looked at in all, over layers, heads and queries."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from heedmap.analysis.layers import at_least_single, layers_of
from heedmap.errors import ArgumentError


def received(
    maps: Sequence[Float[Tensor, "*batch _ _ key"]], *, last: int | None = None
) -> Float[Tensor, "*batch key"]:
    """Return how much each key is looked at in all: the weights summed over all but the keys.

    With A of layer l and head h, received[j] = Σ_l Σ_h Σ_i A_lh[i, j]. Divided by layers · heads ·
    queries it is the mean weight. A key-value cache keeps the keys that get most; with `last`, only
    the newest queries are counted, which say best what the next ones will look at. Under a causal
    mask early keys are seen by more queries than late ones, and get more for that alone.

    Args:
        maps: The weights of each layer, ``[batch, heads, query, key]`` or ``[heads, query, key]``;
            heads and queries may differ.
        last: How many queries, counted from the end, are counted; None for all.

    Returns:
        A number for each key, in float32 or better. Queries that may look at nothing add nothing.

    Raises:
        ArgumentError: for no maps, or `last` outside 1 to the number of queries.
        ShapeError: for maps that do not fit each other.
        DTypeError: for maps that hold no floating-point numbers.

    Cost: one pass over each layer, or over its last rows; memory of the answer and a block.
    Differentiable.

    Example:
        >>> import torch
        >>> weights = torch.tensor([[[1.0, 0.0], [0.75, 0.25]]])
        >>> received([weights, weights])
        tensor([3.5000, 0.5000])
        >>> received([weights, weights], last=1)
        tensor([1.5000, 0.5000])

    Source: the accumulated scores of Zhang et al., H2O: Heavy-Hitter Oracle (2023); `last` is the
    observation window of Li et al., SnapKV (2024). Both keep them apart by layer and head, as
    ``AttentionMap.received`` gives them.
    """
    layers = layers_of(maps, square=False)
    queries = min(weights.shape[-2] for weights in layers)
    if last is not None and not 1 <= last <= queries:
        raise ArgumentError(f"last must be from 1 to the {queries} queries; got {last}.")
    parts = layers if last is None else [weights[..., -last:, :] for weights in layers]
    total = _over_heads(parts[0])
    for weights in parts[1:]:
        total = total + _over_heads(weights)
    return total


def _over_heads(weights: Tensor) -> Float[Tensor, "*batch key"]:
    return weights.to(at_least_single(weights.dtype)).sum(-2).sum(-2)
