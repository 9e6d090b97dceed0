"""Views: indexing, reshaping, reordering, splitting and joining."""

import math
from typing import Any

import torch
from torch import Tensor

from heedmap import map_views as views
from heedmap import reductions
from heedmap.attention_map import AttentionMap
from heedmap.map_functions.table import before, listed, on, one_of


@on("__getitem__")
def _getitem(held: Any, key: Any) -> Any:
    return views.index(held, key) if isinstance(held, AttentionMap) else NotImplemented


@on("select")
def _select(held: AttentionMap, dim: int, index: int) -> Any:
    return views.index(held, (*before(held, dim), index))


@on("narrow")
def _narrow(held: AttentionMap, dim: int, start: Any, length: int) -> Any:
    if length < 0 or not held.ndim:
        raise RuntimeError(
            f"narrow must be given a dimension and a length of 0 or more; got {length}."
        )
    size = held.shape[one_of(dim, held.ndim)]
    if not -size <= int(start) <= size:
        raise IndexError(f"start must lie from {-size} to {size}; got {int(start)}.")
    start = int(start) + (size if int(start) < 0 else 0)
    if start + length > size:
        raise RuntimeError(f"narrow must stay within {size}; got {start} and {length}.")
    return views.index(held, (*before(held, dim), slice(start, start + length)))


@on("index_select")
def _index_select(held: AttentionMap, dim: int, index: Tensor) -> Any:
    if bool((index < 0).any()):
        raise IndexError(f"index must lie from 0 to {held.shape[dim] - 1}; got {index.tolist()}.")
    return views.index(held, (*before(held, dim), index))


@on("unbind")
def _unbind(held: AttentionMap, dim: int = 0) -> tuple[Any, ...]:
    return tuple(_select(held, dim, i) for i in range(held.shape[one_of(dim, held.ndim)]))


@on("split", "split_with_sizes")
def _split(held: AttentionMap, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
    if isinstance(split_size, int) and split_size < 0:
        raise RuntimeError(f"split_size must be 0 or more; got {split_size}.")
    size = held.shape[one_of(dim, held.ndim)]
    if isinstance(split_size, int):
        if split_size == 0 and size:
            raise RuntimeError(f"split_size must be 1 or more for {size} entries; got 0.")
        # Of nothing there is one part, as of what is smaller than a part.
        starts = range(0, size, split_size) if size else [0]
        split_size = [min(split_size, size - at) for at in starts]
    if sum(split_size) != size:
        raise RuntimeError(f"split sizes must add up to {size}; got {list(split_size)}.")
    ends = [sum(split_size[: i + 1]) for i in range(len(split_size))]
    return tuple(
        _narrow(held, dim, end - length, length)
        for end, length in zip(ends, split_size, strict=True)
    )


@on("chunk")
def _chunk(held: AttentionMap, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    if chunks < 1:
        raise RuntimeError(f"chunks must be 1 or more; got {chunks}.")
    size = held.shape[one_of(dim, held.ndim)]
    return _split(held, math.ceil(size / chunks) if size else [0] * chunks, dim)


@on("flip")
def _flip(held: AttentionMap, *dims: Any) -> Any:
    for dim in listed(dims):
        back = torch.arange(held.shape[one_of(dim, held.ndim)] - 1, -1, -1)
        held = _index_select(held, dim, back)
    return held


@on("unsqueeze")
def _unsqueeze(held: AttentionMap, dim: int) -> Any:
    dim = one_of(dim, held.ndim + 1)
    return views.reshape(held, (*held.shape[:dim], 1, *held.shape[dim:]), "unsqueeze")


@on("squeeze")
def _squeeze(held: AttentionMap, *dims: Any) -> Any:
    asked = {one_of(dim, held.ndim) for dim in listed(dims)} if dims else set(range(held.ndim))
    key = tuple(
        0 if at in asked and size == 1 else slice(None) for at, size in enumerate(held.shape)
    )
    return views.index(held, key)


@on("view", "reshape")
def _reshape(held: AttentionMap, *shape: Any) -> Any:
    if shape and isinstance(shape[0], torch.dtype):
        return NotImplemented
    return views.reshape(held, tuple(listed(shape)), "reshape")


@on("view_as", "reshape_as")
def _reshape_as(held: Any, other: Tensor) -> Any:
    if not isinstance(held, AttentionMap):
        return NotImplemented
    return views.reshape(held, tuple(other.shape), "reshape_as")


@on("flatten")
def _flatten(held: AttentionMap, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = one_of(start_dim, held.ndim), one_of(end_dim, held.ndim)
    if start > end:
        raise RuntimeError(f"start_dim must not come after end_dim; got {start} and {end}.")
    merged = math.prod(held.shape[start : end + 1])
    return views.reshape(held, (*held.shape[:start], merged, *held.shape[end + 1 :]), "flatten")


@on("unflatten")
def _unflatten(held: AttentionMap, dim: int, sizes: Any) -> Any:
    dim = dim % held.ndim
    return views.reshape(held, (*held.shape[:dim], *sizes, *held.shape[dim + 1 :]), "unflatten")


@on("permute")
def _permute(held: AttentionMap, *dims: Any) -> Any:
    return views.permute(held, [one_of(dim, held.ndim) for dim in listed(dims)], "permute")


@on("transpose", "swapaxes", "swapdims")
def _transpose(held: AttentionMap, dim0: int, dim1: int) -> Any:
    order = list(range(held.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return views.permute(held, order, "transpose")


@on("movedim", "moveaxis")
def _movedim(held: AttentionMap, source: Any, destination: Any) -> Any:
    source, destination = listed((source,)), listed((destination,))
    rest = [at for at in range(held.ndim) if at not in {s % held.ndim for s in source}]
    for place, dim in sorted(
        (d % held.ndim, s % held.ndim) for s, d in zip(source, destination, strict=True)
    ):
        rest.insert(place, dim)
    return views.permute(held, rest, "movedim")


@on("mT", "mH", "adjoint")
def _mt(held: AttentionMap) -> Any:
    if held.ndim < 2:
        raise RuntimeError(f"mT must be asked of a map of 2 or more dimensions; got {held.ndim}.")
    return _transpose(held, -2, -1)


@on("T", "t", "H")
def _t(held: AttentionMap) -> Any:
    return _transpose(held, 0, 1) if held.ndim == 2 else NotImplemented


@on("diagonal")
def _diagonal(held: AttentionMap, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    pair = [dim1 % held.ndim, dim2 % held.ndim]
    matrix = [held.ndim - 2, held.ndim - 1]
    if held._kept != (True, True) or sorted(pair) != matrix:
        return NotImplemented
    return held._fold(reductions.diagonal(held._rule, offset if pair == matrix else -offset))


@on("expand")
def _expand(held: AttentionMap, *sizes: Any) -> Any:
    shape = listed(sizes)
    new = len(shape) - held.ndim
    shape = [
        held.shape[at - new] if size == -1 and at >= new else size for at, size in enumerate(shape)
    ]
    tail = held.ndim - len(held._lead)
    if tuple(shape[len(shape) - tail :]) != tuple(held.shape[len(held._lead) :]):
        return NotImplemented
    return views.with_lead(held, tuple(shape[: len(shape) - tail]))


@on("stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    first = next(part for part in tensors if isinstance(part, AttentionMap))
    return views.join(list(tensors), one_of(dim, first.ndim + 1), True, "stack")


@on("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0) -> Any:
    first = next(part for part in tensors if isinstance(part, AttentionMap))
    return views.join(list(tensors), one_of(dim, first.ndim), False, "cat")
