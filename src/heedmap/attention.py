"""Attention: the output and its map, in one call."""

from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.attention_map import AttentionMap, map_of
from heedmap.errors import ArgumentError, DTypeError
from heedmap.kernels import differentiable
from heedmap.lazy_weights import LogNormalizer, trace_of
from heedmap.masks import Mask
from heedmap.precision import exactly, never_compiled
from heedmap.problem import make_problem


@never_compiled
def attention(
    query: Float[Tensor, "*batch_heads query head_dim"],
    key: Float[Tensor, "*batch_kv_heads key head_dim"],
    value: Float[Tensor, "*batch_kv_heads key value_dim"],
    *,
    mask: Mask | Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Tensor, "..."] | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "*batch_heads query value_dim"], AttentionMap]:
    """Return softmax(query · keyᵀ · scale) · value, and the exact weights as a lazy map.

    A query that may look at nothing has output 0 and weights 0. What stands in a slot of key or
    value that no query may look at, NaN and infinity included, reaches nothing.

    Args:
        query: ``[batch, heads, query, head_dim]``; batch and heads may be left out.
        key: As query. There may be fewer heads, each shared by neighbouring heads of query.
        value: As key, of any width.
        mask: Who may look at whom, see `heedmap.masks`; a bool tensor is True for visible.
        scale: The factor of the dot products; 1/√head_dim unless given.
        soft_cap: Squash scores into ±soft_cap before bias and mask.
        bias: Scores to add, ``[query, key]``, ``[batch, query, key]`` or
            ``[batch, heads, query, key]``, sizes of 1 standing for all; −inf hides a pair.
        sinks: A score for each head that takes part in the softmax and belongs to no key.
        backend: ``"auto"``, ``"native"`` (our kernel, where it could be compiled), ``"fused"``
            (PyTorch's), ``"tiles"`` or ``"reference"`` (the plain formula, which makes every
            weight). `AttentionMap.backend` says which one ran.

    Returns:
        The output, in the number type of query, and its `AttentionMap`.

    Raises:
        ShapeError: for sizes that do not fit each other.
        DTypeError: for number types that are not floating point, or not the same.
        ArgumentError: for a mask, scale, cap, bias, sinks or backend that make no sense.

    Cost: O(query · key) time; memory of the output and one number for each query.

    Exactness: scores and softmax in float32 or better, whatever the inputs.

    Example:
        >>> import torch
        >>> from heedmap import Causal, attention
        >>> x = torch.ones(3, 4)
        >>> output, weights = attention(x, x, x, mask=Causal())
        >>> weights
        tensor([[1.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.3333, 0.3333, 0.3333]])

    Source: Vaswani et al., “Attention is all you need”, 2017, equation 1.
    """
    problem, values = make_problem(
        query, key, value, mask=mask, scale=scale, soft_cap=soft_cap, bias=bias, sinks=sinks
    )
    if values is None:
        raise DTypeError("value must be a torch.Tensor; got None. For weights alone: from_factors.")
    if backend == "auto":
        backend = differentiable.choose(problem, values)
    elif backend not in differentiable.KERNELS:
        raise ArgumentError(
            f"backend must be 'auto', 'native', 'fused', 'tiles' or 'reference'; got {backend!r}."
        )
    elif not differentiable.serves(backend, problem, values):
        raise ArgumentError(
            f"backend must be 'auto' or 'tiles' for this problem; got {backend!r}. Neither "
            "PyTorch's kernel nor ours knows a soft-cap, a gradient of a bias, or a device but the "
            "CPU; ours knows no float64 either, and must have been compiled."
        )
    with exactly():
        output, normalizer = differentiable.run(problem, values, backend)
    known = LogNormalizer(problem, normalizer, backend, trace_of(output, values))
    weights = map_of(problem, known, query)
    if query.ndim < 4:
        output = output.reshape(*query.shape[:-1], value.shape[-1])
    return output, weights
