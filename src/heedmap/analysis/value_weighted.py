"""Weights times the length of what they weigh."""

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.analysis.layers import at_least_single, map_of_heads
from heedmap.attention_map import AttentionMap
from heedmap.errors import ShapeError
from heedmap.precision import exactly


def value_weighted(
    weights: Float[Tensor, "*batch heads query key"], norms: Float[Tensor, "*batch kv_heads key"]
) -> AttentionMap:
    """Return the lazy map of how much of each key's value goes into the output of each query.

    Its cells are A[i, j]·‖v_j‖, the length of the vector that key j adds to the output of query i:
    a large weight on a value of length 0 adds nothing. Rows do not sum to 1.

    Args:
        weights: ``[batch, heads, query, key]`` or ``[heads, query, key]``.
        norms: What `value_norms` gives. Where there are fewer heads of values than of queries,
            head h takes those of number ⌊h · kv_heads / heads⌋, as `attention` does.

    Returns:
        A map of the shape and number type of `weights`. A pair of weight 0 is 0 whatever the value,
        NaN and infinity included, and so is every cell of a query that may look at nothing.

    Raises:
        ShapeError: for norms that do not fit the weights.
        DTypeError: for weights that are no floating-point numbers.

    Cost: nothing now; then that of reading `weights`, blocks that a mask leaves empty included.
    Differentiable in both.

    Example:
        >>> weights = torch.tensor([[[0.75, 0.25]]])
        >>> value_weighted(weights, torch.tensor([[0.0, 2.0]]))
        tensor([[[0.0000, 0.5000]]])

    Source: Kobayashi et al., Attention is Not Only a Weight (2020): their ‖α f(x)‖ if `value_norms`
    was given the output projection.
    """
    held = map_of_heads("weights", weights)
    heads, keys = held.shape[-3], held.shape[-1]
    batch = tuple(held.shape[:-3])
    if norms.ndim != held.ndim - 1 or (*norms.shape[:-2], norms.shape[-1]) != (*batch, keys):
        wanted = ", ".join(map(str, (*batch, "kv_heads", keys)))
        raise ShapeError(f"norms must be [{wanted}] for these weights; got {list(norms.shape)}.")
    if not norms.shape[-2] or heads % norms.shape[-2]:
        raise ShapeError(
            f"norms must have a number of heads that divides {heads}; got {norms.shape[-2]}."
        )
    each = norms.to(held._rule.dtype).repeat_interleave(heads // norms.shape[-2], dim=-2)
    each = each[..., None, :]
    finite = torch.isfinite(each)
    made = held * each.masked_fill(~finite, 0)
    if not bool(finite.all()):
        # Apart, because 0 · NaN is NaN, and in gradients too.
        made = torch.where((held != 0) & ~finite, each, made)
    return made.to(held.dtype)  # pyright: ignore[reportReturnType]


def value_norms(
    value: Float[Tensor, "*batch kv_heads key value_dim"],
    output_projection: Float[Tensor, "heads value_dim model_dim"] | None = None,
) -> Float[Tensor, "*batch all_heads key"]:
    """Return the length of each value, ‖v‖, or of what the output projection makes of it, ‖v·W‖.

    Args:
        value: ``[batch, kv_heads, key, value_dim]`` or ``[kv_heads, key, value_dim]``.
        output_projection: The part W of the output projection that belongs to each head of queries.
            Of a linear layer it is ``layer.weight.T.unflatten(0, (heads, value_dim))``. Its bias
            belongs to no key.

    Returns:
        Euclidean norms in float32 or better; with an output projection for each head of queries,
        else for each head of values.

    Raises:
        ShapeError: for values of another shape, and for a projection of another width than theirs
            or whose heads are no multiple of theirs.

    Cost: O(value); with a projection O(heads · key · value_dim · model_dim) time, and the memory of
    one head at a time. Differentiable.

    Example:
        >>> value_norms(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]))
        tensor([[5., 0.]])
        >>> layer = torch.nn.Linear(2 * 2, 4, bias=False)             # 2 heads of width 2
        >>> projection = layer.weight.T.unflatten(0, (2, 2))
        >>> value_norms(torch.ones(1, 3, 2), projection).shape        # one head of values for both
        torch.Size([2, 3])

    Source: Kobayashi et al., Attention is Not Only a Weight (2020): f(x) = (x·W^V + b^V)·W^O.
    """
    if value.ndim not in (3, 4):
        raise ShapeError(
            "value must be [batch, kv_heads, key, value_dim] or [kv_heads, key, value_dim]; "
            f"got {list(value.shape)}."
        )
    value = value.to(at_least_single(value.dtype))
    if output_projection is None:
        return torch.linalg.vector_norm(value, dim=-1)
    kv_heads, value_dim = value.shape[-3], value.shape[-1]
    heads, width = output_projection.shape[:2] if output_projection.ndim == 3 else (0, 0)
    if width != value_dim or not kv_heads or not heads or heads % kv_heads:
        raise ShapeError(
            f"output_projection must be [heads, {value_dim}, model_dim] with a multiple of "
            f"{kv_heads} heads; got {list(output_projection.shape)}."
        )
    group = heads // kv_heads
    with exactly():
        lengths = [
            torch.linalg.vector_norm(value[..., head // group, :, :] @ projection, dim=-1)
            for head, projection in enumerate(output_projection.to(value.dtype))
        ]
    return torch.stack(lengths, dim=-2)
