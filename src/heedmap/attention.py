"""Attention: the output and its map, in one call."""

from typing import Literal, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap import summary
from heedmap.attention_map import AttentionMap, map_of
from heedmap.errors import ArgumentError, DTypeError
from heedmap.kernels import differentiable, native, strips
from heedmap.lazy_weights import LogNormalizer, trace_of
from heedmap.masks import Mask
from heedmap.precision import AS_IT_IS, exactly, never_compiled
from heedmap.problem import Problem, make_problem
from heedmap.summary import Summary

Query = Float[Tensor, "*batch_heads query head_dim"]
Key = Float[Tensor, "*batch_kv_heads key head_dim"]
Value = Float[Tensor, "*batch_kv_heads key value_dim"]
Output = Float[Tensor, "*batch_heads query value_dim"]


@overload
def attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    mask: Mask | Bool[Tensor, "..."] | None = ...,
    scale: float | None = ...,
    soft_cap: float | None = ...,
    bias: Float[Tensor, "..."] | None = ...,
    sinks: Float[Tensor, " heads"] | None = ...,
    backend: str = ...,
    keep: Literal["factors"] = ...,
) -> tuple[Output, AttentionMap]: ...


@overload
def attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    mask: Mask | Bool[Tensor, "..."] | None = ...,
    scale: float | None = ...,
    soft_cap: float | None = ...,
    bias: Float[Tensor, "..."] | None = ...,
    sinks: Float[Tensor, " heads"] | None = ...,
    backend: str = ...,
    keep: Summary,
) -> tuple[Output, Summary]: ...


@never_compiled
def attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    mask: Mask | Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Tensor, "..."] | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
    backend: str = "auto",
    keep: Literal["factors"] | Summary = "factors",
) -> tuple[Output, AttentionMap | Summary]:
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
        keep: ``"factors"`` for the map; or a `Summary` for the answers to its questions instead,
            found in the same pass as the output, where our kernel runs or nothing is hidden
            (without our kernel, the output may then differ in its last bits). They carry no
            gradient; the output does.

    Returns:
        The output, in the number type of query, and its `AttentionMap`, or the `Summary`.

    Raises:
        ShapeError: for sizes that do not fit each other.
        DTypeError: for number types that are not floating point, or not the same.
        ArgumentError: for a mask, scale, cap, bias, sinks, backend or keep that make no sense.

    Cost: O(query · key) time; memory of the output and one number for each query. A `Summary`
    adds a fifth to the time and its answers to the memory, and each thread keeps up to 20 MB;
    without our kernel it takes three quarters as long again and up to 72 MiB, or a second pass
    where anything is hidden.

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
        >>> attention(x, x, x, keep=Summary(top=1))[1].received
        tensor([1., 1., 1.])

    Source: Vaswani et al., “Attention is all you need”, 2017, equation 1.
    """
    problem, values = make_problem(
        query, key, value, mask=mask, scale=scale, soft_cap=soft_cap, bias=bias, sinks=sinks
    )
    if values is None:
        raise DTypeError("value must be a torch.Tensor; got None. For weights alone: from_factors.")
    if isinstance(keep, Summary):
        keep.require_sense(problem.extent.keys)
    elif keep != "factors":
        raise ArgumentError(f"keep must be 'factors' or a heedmap.Summary; got {keep!r}.")
    is_free, backend = backend == "auto", _chosen(backend, problem, values)
    answers = None
    # Our own kernel's products are exact whatever was said of PyTorch's.
    with AS_IT_IS if backend == "native" else exactly():
        if not isinstance(keep, Summary):
            output, normalizer = differentiable.run(problem, values, backend)
        elif backend == "native" and native.attends(problem, values):
            output, normalizer, answers = summary.attend(problem, values, keep)
        elif is_free and backend == "fused" and strips.attends(problem, values):
            with torch.no_grad():
                output, normalizer, answers = summary.attend_by_strips(problem, values, keep)
        else:
            output, normalizer = differentiable.run(problem, values, backend)
    known = LogNormalizer(problem, normalizer, backend, trace_of(output, values))
    weights = map_of(problem, known, query)
    if query.ndim < 4:
        output = output.squeeze(1) if query.ndim == 3 else output[0, 0]
    if not isinstance(keep, Summary):
        return output, weights
    if answers is None:
        return output, weights.summarize(top=keep.top, pool=keep.pool)
    return output, keep.answered(answers, tuple(query.shape[:-2]), query.dtype)


def _chosen(backend: str, problem: Problem, value: Tensor) -> str:
    """Return the name of the kernel to take."""
    if backend == "auto":
        return differentiable.choose(problem, value)
    if backend not in differentiable.KERNELS:
        raise ArgumentError(
            f"backend must be 'auto', 'native', 'fused', 'tiles' or 'reference'; got {backend!r}."
        )
    if not differentiable.serves(backend, problem, value):
        raise ArgumentError(
            f"backend must be 'auto' or 'tiles' for this problem; got {backend!r}. Neither "
            "PyTorch's kernels nor ours know a soft-cap or a gradient of a bias; those for a GPU "
            "know no bias at all and no float64; ours knows no GPU and no float64, and must have "
            "been compiled."
        )
    return backend
