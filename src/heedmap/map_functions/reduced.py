"""Reductions and products: what turns a map into something small, in one pass over its cells."""

import math
from typing import Any

import torch
from torch import Tensor

from heedmap import budget, reductions
from heedmap import map_views as views
from heedmap.attention_map import AttentionMap
from heedmap.lazy import Dense, LazyMatrix, transpose
from heedmap.lazy_algebra import AcrossMatrices, Chosen, Pointwise, Product
from heedmap.map_cells import densify
from heedmap.map_functions.table import TABLE, listed, on


def _dims_of(held: AttentionMap, dim: Any) -> tuple[list[int], list[int]]:
    """Return the leading dimensions that `dim` names, and which of −2 and −1."""
    every = dim is None or (isinstance(dim, tuple | list) and not dim)
    dims = list(range(held.ndim)) if every else listed((dim,))
    for number in dims:
        if not -held.ndim <= number < held.ndim:
            raise IndexError(f"dim must lie from {-held.ndim} to {held.ndim - 1}; got {number}.")
    if len({number % held.ndim for number in dims}) < len(dims):
        raise RuntimeError(f"dim must name each dimension once; got {list(dims)}.")
    places = sorted({number % held.ndim for number in dims})
    lead = len(held._lead)
    return [p for p in places if p < lead], [p - held.ndim for p in places if p >= lead]


def _across(held: AttentionMap, dims: list[int], how: str) -> tuple[LazyMatrix, tuple[int, ...]]:
    """Return the rule reduced over leading dimensions, and those that remain, as size 1."""
    if not dims:
        return held._rule, held._lead
    rest = [at for at in range(len(held._lead)) if at not in dims]
    kept, members = (math.prod(held._lead[at] for at in part) for part in (rest, dims))
    lead = tuple(1 if at in dims else size for at, size in enumerate(held._lead))
    if not members and how in ("sum", "mean"):
        cell = torch.full((1, 1, 1), 0 if how == "sum" else math.nan).to(held._rule.dtype)
        return Dense(cell.expand(kept, *held._rule.sizes[1:]).to(held.device)), lead
    if not members:
        raise IndexError(f"{how} must be taken over at least one map; got none.")
    groups = torch.arange(held._rule.sizes[0]).reshape(held._lead).permute(*rest, *dims)
    return AcrossMatrices(held._rule, groups.reshape(kept, members).to(held.device), how), lead


def _shaped(
    held: AttentionMap, answer: Tensor, lead_dims: list[int], tail_dims: list[int], keepdim: bool
) -> Tensor:
    """Give an answer (stack, then rows or columns or neither) the shape that torch would."""
    lead = [1 if at in lead_dims else size for at, size in enumerate(held._lead)]
    tail = [1 if place in tail_dims else held.shape[place] for place in (-2, -1)]
    answer = answer.reshape(*lead, *tail)
    gone = lead_dims + [held.ndim + place for place in tail_dims]
    return answer if keepdim else answer.squeeze(gone)


def _lazy_shaped(
    held: AttentionMap, rule: LazyMatrix, lead_dims: list[int], keepdim: bool, dtype: torch.dtype
) -> AttentionMap:
    lead = [
        1 if at in lead_dims else size
        for at, size in enumerate(held._lead)
        if keepdim or at not in lead_dims
    ]
    return AttentionMap(rule, tuple(lead), (True, True), dtype)


def _is_whole(held: Any) -> bool:
    return isinstance(held, AttentionMap) and held._kept == (True, True)


@on("sum")
def _sum(held: AttentionMap, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if isinstance(held._rule, Chosen):
        return _chosen_sum(held, dtype)
    return _added(held, dim, keepdim, dtype, "sum") if _is_whole(held) else NotImplemented


@on("mean")
def _mean(held: AttentionMap, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if isinstance(held._rule, Chosen):
        return _chosen_sum(held, dtype) / held.shape[0]
    if not (dtype or held.dtype).is_floating_point:
        raise RuntimeError(f"mean must be taken of floating-point cells; got {held.dtype}.")
    return _added(held, dim, keepdim, dtype, "mean") if _is_whole(held) else NotImplemented


def _added(held: AttentionMap, dim: Any, keepdim: bool, dtype: Any, how: str) -> Any:
    lead_dims, tail_dims = _dims_of(held, dim)
    rule, _ = _across(held, lead_dims, how)
    if dtype is None:
        dtype = held.dtype if held.dtype.is_floating_point else torch.int64
    if not tail_dims:
        return _lazy_shaped(held, rule, lead_dims, keepdim, dtype)
    if tail_dims == [-2]:
        answer = reductions.column_sums(rule)
    else:
        answer = reductions.row_sums(rule)
        answer = answer.sum(-1) if len(tail_dims) == 2 else answer
    if how == "mean":
        answer = answer / math.prod(held.shape[place] for place in tail_dims)
    return _shaped(held, answer.to(dtype), lead_dims, tail_dims, keepdim)


def _chosen_sum(held: AttentionMap, dtype: Any) -> Tensor:
    rule = held._rule
    assert isinstance(rule, Chosen)
    return reductions.total(rule.elsewhere_zero()).sum().to(dtype or held.dtype)


@on("amax")
def _amax(held: AttentionMap, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(held, dim, keepdim, True)


@on("amin")
def _amin(held: AttentionMap, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(held, dim, keepdim, False)


def _extreme(held: AttentionMap, dim: Any, keepdim: bool, largest: bool) -> Any:
    if not _is_whole(held):
        return NotImplemented
    lead_dims, tail_dims = _dims_of(held, dim)
    rule, _ = _across(held, lead_dims, "amax" if largest else "amin")
    if not tail_dims:
        return _lazy_shaped(held, rule, lead_dims, keepdim, held.dtype)
    answer = reductions.extremes(transpose(rule) if tail_dims == [-2] else rule, largest)[0]
    if len(tail_dims) == 2:
        answer = answer.amax(-1) if largest else answer.amin(-1)
    return _shaped(held, answer.to(held.dtype), lead_dims, tail_dims, keepdim)


@on("argmax")
def _argmax(held: AttentionMap, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(held, dim, keepdim, True)


@on("argmin")
def _argmin(held: AttentionMap, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(held, dim, keepdim, False)


def _place(held: AttentionMap, dim: int | None, keepdim: bool, largest: bool) -> Any:
    if not _is_whole(held):
        return NotImplemented
    if dim is None:
        value, column = reductions.extremes(held._rule, largest)
        best = value.argmax() if largest else value.argmin()
        answer = best * held.shape[-1] + column.flatten()[best]
        return answer.reshape((1,) * held.ndim) if keepdim else answer
    lead_dims, tail_dims = _dims_of(held, dim)
    if lead_dims:
        rule, _ = _across(held, lead_dims, "argmax" if largest else "argmin")
        return _lazy_shaped(held, rule, lead_dims, keepdim, torch.int64)
    turned = transpose(held._rule) if tail_dims == [-2] else held._rule
    answer = reductions.extremes(turned, largest)[1]
    return _shaped(held, answer, [], tail_dims, keepdim)


@on("max")
def _max(held: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _both(held, dim, keepdim, "max")


@on("min")
def _min(held: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _both(held, dim, keepdim, "min")


def _both(held: Any, dim: Any, keepdim: bool, which: str) -> Any:
    if isinstance(dim, Tensor):
        return TABLE[f"{which}imum"](held, dim)
    if not _is_whole(held):
        return NotImplemented
    values = TABLE[f"a{which}"](held, dim, keepdim)
    if dim is None:
        return values
    places = TABLE[f"arg{which}"](held, dim, keepdim)
    return getattr(torch.return_types, which)((values, places))


@on("topk")
def _topk(
    held: AttentionMap, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    del sorted
    if not _is_whole(held):
        return NotImplemented
    lead_dims, tail_dims = _dims_of(held, dim)
    if lead_dims:
        return NotImplemented
    if not 0 <= k <= held.shape[dim]:
        raise RuntimeError(f"k must be 0 to {held.shape[dim]}; got {k}.")
    turned = tail_dims == [-2]
    rule = transpose(held._rule) if turned else held._rule
    values, places = reductions.top(rule, k, largest)
    found, at = held._fold(values.to(held.dtype)), held._fold(places)
    return torch.return_types.topk((found.mT, at.mT) if turned else (found, at))


@on("count_nonzero")
def _count_nonzero(held: AttentionMap, dim: Any = None) -> Any:
    return _sum(held != 0, dim) if _is_whole(held) else NotImplemented


@on("any")
def _any(held: AttentionMap, dim: Any = None, keepdim: bool = False) -> Any:
    return _sum(held != 0, dim, keepdim) > 0 if _is_whole(held) else NotImplemented


@on("all")
def _all(held: AttentionMap, dim: Any = None, keepdim: bool = False) -> Any:
    return _sum(held == 0, dim, keepdim) == 0 if _is_whole(held) else NotImplemented


@on("equal")
def _equal(held: Tensor, other: Tensor) -> Any:
    return held.shape == other.shape and not bool((held != other).any())


@on("allclose")
def _allclose(
    held: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    if equal_nan:
        return NotImplemented
    apart = (held - other).abs()
    near = (apart <= other.abs() * rtol + atol) | (held == other)
    return bool(near.all())


@on("var")
def _var(
    held: AttentionMap,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    if not _is_whole(held):
        return NotImplemented
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = float(unbiased) if correction is None else correction
    lead_dims, tail_dims = _dims_of(held, dim)
    count = math.prod(held.shape[at] for at in [*lead_dims, *tail_dims])
    centred = held - _mean(held, dim, True)
    return _sum(centred.square(), dim, keepdim) / max(count - correction, 0)


@on("std")
def _std(held: AttentionMap, *args: Any, **kwargs: Any) -> Any:
    made = _var(held, *args, **kwargs)
    if made is NotImplemented:
        return made
    # As in torch, a deviation of 0 has the gradient 0, which the root alone has not.
    zero = made == 0
    return made.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


@on("norm")
def _norm(
    held: AttentionMap,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Any:
    if not _is_whole(held) or p not in (2, "fro", None) or dtype is not None:
        return NotImplemented
    return _sum(held.square(), dim, keepdim).sqrt()


@on("softmax", "special_softmax")
def _softmax(held: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if not _is_whole(held) or dim is None:
        return NotImplemented
    held = held if dtype is None else held.to(dtype)
    lifted = (held - _amax(held, dim, True)).exp()
    return lifted / _sum(lifted, dim, True)


@on("log_softmax", "special_log_softmax")
def _log_softmax(held: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if not _is_whole(held) or dim is None:
        return NotImplemented
    held = held if dtype is None else held.to(dtype)
    centred = held - _amax(held, dim, True)
    return centred - _sum(centred.exp(), dim, True).log()


# Two maps compared, as distillation does


def _any_given(older: dict[str, Any]) -> bool:
    """Return whether any of the older or rarer arguments says something."""
    return any(given is not None for given in older.values())


def _finished(cells: Any, reduction: str) -> Any:
    if reduction == "none":
        return cells
    if reduction == "batchmean":
        return cells.sum() / cells.shape[0]
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be none, mean, sum or batchmean; got {reduction!r}.")
    return cells.mean() if reduction == "mean" else cells.sum()


@on("mse_loss")
def _mse_loss(input: Any, target: Any, *, reduction: str = "mean", **older: Any) -> Any:
    if _any_given(older):
        return NotImplemented
    return _finished((input - target).square(), reduction)


@on("l1_loss")
def _l1_loss(input: Any, target: Any, *, reduction: str = "mean", **older: Any) -> Any:
    if _any_given(older):
        return NotImplemented
    return _finished((input - target).abs(), reduction)


@on("kl_div")
def _kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Any:
    if log_target:
        return _finished(target.exp() * (target - input), reduction)
    return _finished(torch.xlogy(target, target) - target * input, reduction)


# Products


@on("matmul", "__matmul__")
def _matmul(left: Any, right: Any) -> Any:
    if _is_whole(left) and isinstance(right, AttentionMap):
        return _chain(left, right) if _is_whole(right) else left @ densify(right, "matmul")
    if _is_whole(left):
        return _times(left, right)
    if _is_whole(right) and isinstance(left, Tensor) and not isinstance(left, AttentionMap):
        return _times_from_left(left, right)
    return NotImplemented


@on("bmm")
def _bmm(left: Tensor, right: Tensor) -> Any:
    return _matmul(left, right) if left.ndim == right.ndim == 3 else NotImplemented


@on("mm")
def _mm(left: Tensor, right: Tensor) -> Any:
    return _matmul(left, right) if left.ndim == right.ndim == 2 else NotImplemented


@on("mv")
def _mv(left: Tensor, right: Tensor) -> Any:
    return _matmul(left, right) if (left.ndim, right.ndim) == (2, 1) else NotImplemented


@on("__rmatmul__")
def _rmatmul(right: Any, left: Any) -> Any:
    return _matmul(left, right)


def _chain(left: AttentionMap, right: AttentionMap) -> AttentionMap:
    if left.shape[-1] != right.shape[-2]:
        raise RuntimeError(f"matmul: sizes do not fit: {list(left.shape)}, {list(right.shape)}.")
    lead = tuple(torch.broadcast_shapes(left._lead, right._lead))
    rules = [views.lead_rule(held._rule, held._lead, lead) for held in (left, right)]
    dtype = torch.promote_types(left.dtype, right.dtype)
    return AttentionMap(Product(*rules), lead, (True, True), dtype)


def _stays_lazy(lead: tuple[int, ...], rows: int, columns: int, inner: int, size: int) -> bool:
    """Whether a product is itself a map too large to be made: then it is carried as one."""
    return columns >= inner and (math.prod(lead) * rows * columns * size > budget.allowed_bytes())


def _times(left: AttentionMap, right: Tensor) -> Any:
    if right.dtype != left.dtype:
        raise RuntimeError(f"matmul must have one number type; got {left.dtype} and {right.dtype}.")
    if right.ndim == 1:
        return _times(left, right[:, None])[..., 0]
    if right.shape[-2] != left.shape[-1]:
        raise RuntimeError(f"matmul: sizes do not fit: {list(left.shape)}, {list(right.shape)}.")
    own = tuple(right.shape[:-2])
    lead = tuple(torch.broadcast_shapes(left._lead, own))
    rows, inner = left.shape[-2:]
    if _stays_lazy(lead, rows, right.shape[-1], inner, left.element_size()):
        return _chain(left, AttentionMap.from_weights(right))
    rule = views.lead_rule(left._rule, left._lead, lead)
    which = torch.arange(math.prod(own), device=right.device).reshape(own).expand(lead).flatten()
    stack = right.reshape(math.prod(own), *right.shape[-2:])
    made = reductions.multiply(rule, stack, which)
    dtype = torch.promote_types(left.dtype, right.dtype)
    return made.reshape(*lead, rows, right.shape[-1]).to(dtype)


def _times_from_left(left: Tensor, right: AttentionMap) -> Any:
    if left.ndim == 1:
        return _times_from_left(left[None], right)[..., 0, :]
    if left.shape[-1] != right.shape[-2]:
        raise RuntimeError(f"matmul: sizes do not fit: {list(left.shape)}, {list(right.shape)}.")
    lead = tuple(torch.broadcast_shapes(tuple(left.shape[:-2]), right._lead))
    inner, columns = right.shape[-2:]
    if _stays_lazy(lead, left.shape[-2], columns, inner, right.element_size()) and (
        left.shape[-2] >= inner
    ):
        return _chain(AttentionMap.from_weights(left), right)
    turned = views.view(right, transpose(right._rule), right._lead, (True, True))
    return _times(turned, left.mT).mT


@on("masked_select")
def _masked_select(held: Any, mask: Any) -> Any:
    if not _is_whole(held) or isinstance(mask, AttentionMap):
        return NotImplemented
    shape = tuple(torch.broadcast_shapes(held.shape, mask.shape))
    lead = shape[:-2]
    if shape[-2:] != tuple(held.shape[-2:]):
        return NotImplemented
    if math.prod(shape) * held.element_size() <= budget.allowed_bytes():
        return NotImplemented
    full = mask if mask.ndim > 1 else mask[(None,) * (2 - mask.ndim)]
    rule = views.lead_rule(held._rule, held._lead, lead)
    marks = Dense(full.reshape(-1, *full.shape[-2:]))
    marks = marks if marks.sizes[0] == 1 else views.lead_rule(marks, tuple(full.shape[:-2]), lead)
    count = int(reductions.total(Pointwise("logical_and", (marks, _ones_like(rule)))).sum())
    return AttentionMap(Chosen(rule, marks, count), (), (False, True), held.dtype)


def _ones_like(rule: LazyMatrix) -> LazyMatrix:
    """Return a rule of True in the sizes of another, at no cost."""
    one = torch.ones((1, 1, 1), dtype=torch.bool, device=rule.device)
    return Dense(one.expand(rule.sizes))


@on("gather")
def _gather(held: AttentionMap, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    del sparse_grad
    if not _is_whole(held) or dim % held.ndim != held.ndim - 1:
        return NotImplemented
    if index.shape[:-1] != held.shape[:-1] or bool((index < 0).any()):
        return NotImplemented
    stack = index.reshape(held._rule.sizes[0], *index.shape[-2:])
    return reductions.cells_at(held._rule, stack).reshape(index.shape).to(held.dtype)
