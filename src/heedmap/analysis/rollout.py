"""How much of each input position flows into a position of the last layer."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap import budget
from heedmap.analysis.layers import at_least_single, layers_of
from heedmap.attention_map import AttentionMap
from heedmap.errors import ArgumentError, ShapeError
from heedmap.places import Block, spread
from heedmap.stream import Share, add_up


def rollout(
    maps: Sequence[Float[Tensor, "*batch _ positions positions"]],
    queries: Sequence[int],
    *,
    residual: float = 0.5,
) -> Float[Tensor, "*batch asked positions"]:
    """Return how much of each input position flows into these positions of the last layer.

    With A the mean over the heads of a layer and r the share of the residual connection,

        Ā = r·I + (1 − r)·A,   and the rollout is Ā_last · … · Ā_1.

    Only the rows of `queries` are computed: each is carried as a vector through the layers, from
    the last to the first. Nothing is divided by row sums, because rows of Ā sum to 1 as those of A
    do. Where rows of A sum to less (attention sinks), what is missing flows from nowhere.

    Args:
        maps: The weights of each layer, first layer first, ``[batch, heads, query, key]`` or
            ``[heads, query, key]``, with as many queries as keys; heads may differ.
        queries: Positions of the last layer, such as ``[0]`` for a class token or ``[-1]`` for the
            last; negative ones count from the end.
        residual: How much of a position is carried past attention, 0 to 1.

    Returns:
        A row for each of `queries`, in float32 or better, which sums to 1. A query that may look at
        nothing in some layer passes nothing on there, not even of itself: its row of Ā is 0.

    Raises:
        ArgumentError: for no maps, or a residual outside 0 to 1.
        ShapeError: for maps that are not square or do not fit each other, or a position that there
            is not.
        DTypeError: for maps that hold no floating-point numbers.
        BudgetError: if as many queries as there are positions are asked for and the answer, which
            is then as large as a dense map, exceeds the budget; see `heedmap.dense_budget`.

    Cost: one pass over each layer, memory of the answer and a block. Differentiable.

    Example:
        >>> first = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])      # both look at position 0
        >>> last = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])       # both look at position 1
        >>> rollout([first, last], [0])
        tensor([[0.7500, 0.2500]])

    Source: Abnar and Zuidema, Quantifying Attention Flow in Transformers (2020), equation 1, with
    their A = 0.5·W + 0.5·I as the default.
    """
    layers = layers_of(maps, square=True)
    if not 0 <= residual <= 1:
        raise ArgumentError(f"residual must be from 0 to 1; got {residual}.")
    flow = _one_hot(layers[-1], queries)
    for weights in reversed(layers):
        carried, sees = _carry(flow, weights)
        flow = residual * flow * sees[..., None, :] + (1 - residual) * carried
    return flow


def _one_hot(weights: AttentionMap, queries: Sequence[int]) -> Float[Tensor, "*batch asked key"]:
    size = weights.shape[-1]
    wrong = [position for position in queries if not -size <= position < size]
    if wrong:
        raise ShapeError(f"queries must be from {-size} to {size - 1}; got {wrong[0]}.")
    shape = (*weights.shape[:-3], len(queries), size)
    dtype = at_least_single(weights.dtype)
    if len(queries) >= size > 1:
        needed_bytes = math.prod(shape) * dtype.itemsize
        budget.require(needed_bytes, shape, "rollout of all queries", None)
    flow = torch.zeros(shape, dtype=dtype, device=weights.device)
    for number, position in enumerate(queries):
        flow[..., number, position] = 1
    return flow


def _carry(
    flow: Float[Tensor, "*batch asked query"], weights: AttentionMap
) -> tuple[Float[Tensor, "*batch asked key"], Bool[Tensor, "*batch query"]]:
    """Return `flow` @ the mean head, and which queries of it see anything, in one pass."""
    mean = weights.mean(-3)
    assert isinstance(mean, AttentionMap)
    rule = mean._rule
    matrices, rows, columns = rule.sizes
    left = flow.to(rule.dtype).reshape(matrices, -1, rows)

    def visit(tile: Tensor, block: Block, left: Tensor) -> list[Share]:
        some, lines, across = (spread(numbers) for numbers in block)
        return [
            Share(0, (some, slice(None), across), left[some, :, lines] @ tile),
            Share(1, (some, lines), tile.sum(-1)),
        ]

    shapes = [(matrices, left.shape[1], columns), (matrices, rows)]
    carried, sums = add_up(rule, shapes, visit, [left])
    return carried.reshape(flow.shape), (sums > 0).reshape(*flow.shape[:-2], rows)
