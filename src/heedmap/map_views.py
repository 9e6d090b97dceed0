"""What an index, a reshape or a permutation does to a map: always a view, computing nothing.

The leading dimensions of a map are one row of numbers, folded; so an index into them is done on
those numbers by torch itself. An index into query or key becomes a selection of the rule. What
mixes query and key with each other has no lazy form: it goes through the budget and comes back as
a frozen map, since a view must never swallow a write.
"""

import math
from typing import Any

import torch
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.lazy import Dense, LazyMatrix, select, transpose
from heedmap.lazy_algebra import Join
from heedmap.map_cells import densify
from heedmap.places import Index


def index(held: AttentionMap, key: Any) -> Any:
    """Return ``held[key]`` as a view, or as a tensor where it has no lazy form."""
    parts = [
        torch.as_tensor(part) if _is_array(part) else part
        for part in (key if isinstance(key, tuple) else (key,))
    ]
    key = tuple(parts)
    if any(isinstance(part, AttentionMap) for part in parts) or not _is_simple(parts):
        return _index_dense(held, key)
    parts = _spelled_out(parts, held.ndim)
    if parts is None:
        raise IndexError(f"too many indices for a map of {held.ndim} dimensions: {key!r}")
    tail = sum(held._kept)
    cut = _split_at(parts, held.ndim - tail)
    lead_key, tail_key = parts[:cut], parts[cut:]
    if any(part is None for part in tail_key) or _is_mixed(lead_key, tail_key):
        return _index_dense(held, key)
    numbers = torch.arange(max(held._rule.sizes[0], 0)).reshape(held._lead)
    lead = numbers[tuple(lead_key)] if lead_key else numbers
    given = iter(tail_key)
    chosen: list[Index] = []
    kept: list[bool] = []
    for size, was_kept in zip(held._rule.sizes[1:], held._kept, strict=True):
        part = next(given) if was_kept else slice(None)
        where, keep = _along(part, size)
        chosen.append(where)
        kept.append(was_kept and keep)
    rule = select(held._rule, as_range(lead.flatten()), *chosen)
    return view(held, rule, tuple(lead.shape), (kept[0], kept[1]))


def view(
    held: AttentionMap, rule: LazyMatrix, lead: tuple[int, ...], kept: tuple[bool, bool]
) -> AttentionMap:
    """Return a map with another rule, of the same number type."""
    return AttentionMap(rule, lead, kept, held.dtype)


def lead_rule(rule: LazyMatrix, own: tuple[int, ...], lead: tuple[int, ...]) -> LazyMatrix:
    """Return a rule with its stack repeated so that it folds into `lead` instead of `own`."""
    numbers = torch.arange(rule.sizes[0]).reshape(own).expand(lead)
    rows, columns = rule.sizes[1:]
    return select(rule, as_range(numbers.flatten()), range(rows), range(columns))


def with_lead(held: AttentionMap, lead: tuple[int, ...]) -> AttentionMap:
    """Return the map with its leading dimensions expanded to `lead`."""
    return view(held, lead_rule(held._rule, held._lead, lead), lead, held._kept)


def frozen(dense: Tensor) -> AttentionMap:
    """Return a map that stands on a tensor of any shape, so that it cannot be written into."""
    if not dense.ndim:
        dense = dense[None]
        return AttentionMap(Dense(dense[None, None]), (), (False, False), dense.dtype)
    stack = dense.reshape(math.prod(dense.shape[:-1]), 1, dense.shape[-1])
    return AttentionMap(Dense(stack), tuple(dense.shape[:-1]), (False, True), dense.dtype)


def reshape(held: AttentionMap, shape: tuple[int, ...], wish: str) -> AttentionMap:
    """Return the map in another shape: lazy where query and key stay the last dimensions."""
    shape = _resolved(shape, math.prod(held.shape))
    tail = held.ndim - len(held._lead)
    same_tail = len(shape) >= tail and tuple(shape[len(shape) - tail :]) == tuple(
        held.shape[held.ndim - tail :]
    )
    lead = tuple(shape[: len(shape) - tail])
    if tail and same_tail and math.prod(lead) == math.prod(held._lead):
        return view(held, held._rule, lead, held._kept)
    return frozen(densify(held, wish).reshape(shape))


def permute(held: AttentionMap, order: list[int], wish: str) -> AttentionMap:
    """Return the map with its dimensions in another order, lazy where query and key stay last."""
    if sorted(order) != list(range(held.ndim)):
        raise RuntimeError(f"dims must name each of the {held.ndim} dimensions once; got {order}.")
    lead = len(held._lead)
    if set(order[:lead]) != set(range(lead)):
        return frozen(densify(held, wish).permute(order))
    numbers = torch.arange(held._rule.sizes[0]).reshape(held._lead).permute(order[:lead])
    rule = held._rule
    if list(order[:lead]) != list(range(lead)):
        rows, columns = rule.sizes[1:]
        rule = select(rule, as_range(numbers.flatten()), range(rows), range(columns))
    kept = held._kept
    if order[lead:] != sorted(order[lead:]):
        rule = transpose(rule)
    return view(held, rule, tuple(numbers.shape), kept)


def join(maps: list[Any], dim: int, stack: bool, wish: str) -> Any:
    """Return maps stacked or concatenated: lazy along leading dimensions, query and key."""
    first = next(part for part in maps if isinstance(part, AttentionMap))
    parts = [as_map(part, first) for part in maps]
    lead, tail = len(first._lead), first.ndim - len(first._lead)
    dim = dim % (first.ndim + stack)
    shapes = {tuple(part.shape) for part in parts}
    alike = all(part._kept == first._kept for part in parts)
    if stack and len(shapes) > 1:
        raise RuntimeError(f"stack expects maps of one shape; got {sorted(shapes)}.")
    if not alike or tail == 0 or (stack and dim > lead):
        made = [densify(part, wish) for part in parts]
        return torch.stack(made, dim) if stack else torch.cat(made, dim)
    dtype = first.dtype
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    if not stack and len({(*p.shape[:dim], *p.shape[dim + 1 :]) for p in parts}) > 1:
        raise RuntimeError(
            f"cat expects maps alike but for dimension {dim}; got "
            f"{[list(part.shape) for part in parts]}."
        )
    if not stack and dim >= lead:
        return _join_tail(parts, dim - lead, dtype, wish)
    numbers, start = [], 0
    for part in parts:
        count = part._rule.sizes[0]
        numbers.append(torch.arange(start, start + count).reshape(part._lead))
        start += count
    order = torch.stack(numbers, dim) if stack else torch.cat(numbers, dim)
    joined = Join(tuple(part._rule for part in parts), 0)
    rows, columns = joined.sizes[1:]
    rule = select(joined, as_range(order.flatten()), range(rows), range(columns))
    return AttentionMap(rule, tuple(order.shape), first._kept, dtype)


def _join_tail(parts: list[AttentionMap], side: int, dtype: torch.dtype, wish: str) -> Any:
    first = parts[0]
    if first._kept != (True, True):
        return torch.cat([densify(part, wish) for part in parts], -1)
    joined = Join(tuple(part._rule for part in parts), side + 1)
    return AttentionMap(joined, first._lead, (True, True), dtype)


def as_map(part: Any, like: AttentionMap) -> AttentionMap:
    """Return a tensor as a map that keeps the same sides as `like`."""
    if isinstance(part, AttentionMap):
        return part
    if like._kept == (True, True):
        return AttentionMap.from_weights(part)
    return frozen(part)


def as_range(numbers: Tensor) -> Index:
    """Return evenly rising numbers as a range, which selects without a copy; others as they are."""
    listed = numbers.tolist()
    if not listed:
        return range(0)
    step = listed[1] - listed[0] if len(listed) > 1 else 1
    if step > 0 and listed == list(range(listed[0], listed[-1] + 1, step)):
        return range(listed[0], listed[-1] + 1, step)
    return numbers


def _index_dense(held: AttentionMap, key: Any) -> Tensor:
    key = tuple(
        densify(part, "an index") if isinstance(part, AttentionMap) else part
        for part in (key if isinstance(key, tuple) else (key,))
    )
    return densify(held, f"indexing with {_spelling(key)}")[key]


def _spelling(key: tuple[Any, ...]) -> str:
    words = [f"a {p.dtype} tensor" if isinstance(p, Tensor) else repr(p) for p in key]
    return ", ".join(words)


def _is_array(part: Any) -> bool:
    return hasattr(part, "__array__") and not isinstance(part, Tensor)


def _is_simple(parts: list[Any]) -> bool:
    """Whether every part takes exactly one dimension, or is None or an ellipsis."""
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, int | slice)
        or (isinstance(part, list) and all(isinstance(x, int | bool) for x in part))
        or (isinstance(part, Tensor) and part.ndim == 1)
        or (isinstance(part, Tensor) and part.ndim == 0 and part.dtype != torch.bool)
        or (hasattr(part, "__index__") and not isinstance(part, Tensor))
        for part in parts
    ) and not any(isinstance(part, bool) for part in parts)


def _spelled_out(parts: list[Any], ndim: int) -> list[Any] | None:
    """Return the parts with the ellipsis replaced and one for each dimension, Nones aside."""
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if taken > ndim or sum(part is Ellipsis for part in parts) > 1:
        return None
    fill: list[Any] = [slice(None)] * (ndim - taken)
    if not any(part is Ellipsis for part in parts):
        return [*parts, *fill]
    at = next(place for place, part in enumerate(parts) if part is Ellipsis)
    return [*parts[:at], *fill, *parts[at + 1 :]]


def _split_at(parts: list[Any], lead: int) -> int:
    """Return how many of the parts belong to the first `lead` dimensions, Nones included."""
    seen = 0
    for place, part in enumerate(parts):
        if seen == lead and part is not None:
            return place
        seen += part is not None
    return len(parts)


def _is_mixed(lead_key: list[Any], tail_key: list[Any]) -> bool:
    """Whether index tensors stand in more than one of leading dimensions, query and key."""
    advanced = [isinstance(part, list | Tensor) and not _is_number(part) for part in tail_key]
    in_lead = any(isinstance(part, list | Tensor) for part in lead_key)
    return in_lead + sum(advanced) > 1


def _is_number(part: Any) -> bool:
    return isinstance(part, Tensor) and part.ndim == 0


def _along(part: Any, size: int) -> tuple[Index, bool]:
    """Return which positions an index part takes of `size`, and whether the dimension stays."""
    if isinstance(part, slice):
        if part.step is not None and part.step < 1:
            raise ValueError(f"the step of a slice must be 1 or more; got {part.step}. Use flip.")
        return range(size)[part], True
    if isinstance(part, list):
        part = torch.tensor(part, dtype=None if part else torch.long)
    if isinstance(part, Tensor) and part.ndim == 1:
        if part.dtype == torch.bool:
            if len(part) != size:
                raise IndexError(f"a boolean index must have {size} entries; got {len(part)}.")
            return part.nonzero().flatten(), True
        if len(part) and not (-size <= int(part.min()) and int(part.max()) < size):
            raise IndexError(f"an index must lie from {-size} to {size - 1}; got {part.tolist()}.")
        return torch.where(part < 0, part + size, part).long(), True
    number = part.__index__()
    if not -size <= number < size:
        raise IndexError(f"an index must lie from {-size} to {size - 1}; got {number}.")
    number %= size
    return range(number, number + 1), False


def _resolved(shape: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return a shape with its −1 worked out."""
    known = math.prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and known and total % known == 0:
        shape = tuple(total // known if size == -1 else size for size in shape)
    if -1 in shape or math.prod(shape) != total:
        raise RuntimeError(f"shape {list(shape)} is invalid for a map of {total} weights.")
    return shape
