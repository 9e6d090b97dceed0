"""Functions that work cell by cell: they stay lazy, whatever broadcasts with the map."""

import math
from typing import Any

import torch
from torch import Tensor

from heedmap import map_views as views
from heedmap.attention_map import AttentionMap
from heedmap.lazy import Dense, LazyMatrix
from heedmap.lazy_algebra import POINTWISE, Pointwise
from heedmap.lazy_weights import in_form
from heedmap.map_functions.table import TABLE, alias, on

_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_LOGICAL = {"logical_and", "logical_or", "logical_not"}


def _pointwise(name: str, *args: Any, **kwargs: Any) -> Any:
    maps = [a for a in args if isinstance(a, AttentionMap)]
    tensors = [a for a in args if isinstance(a, Tensor)]
    if any(held._kept != (True, True) for held in maps) or not maps:
        return NotImplemented
    if any(isinstance(given, Tensor) for given in kwargs.values()):
        return NotImplemented
    if name in _LOGICAL and any(given.dtype != torch.bool for given in tensors):
        return NotImplemented
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    lead, tail = tuple(shape[:-2]), tuple(shape[-2:])
    if any(tuple(held.shape[-2:]) != tail for held in maps):
        return NotImplemented
    args = tuple(a.item() if _is_scalar_of_numpy(a) else a for a in args)
    examples = [
        torch.ones((1,) * a.ndim, dtype=a.dtype) if isinstance(a, Tensor) else a for a in args
    ]
    dtype = POINTWISE[name](*examples, **kwargs).dtype
    operands = tuple(_operand(a, lead) if isinstance(a, Tensor) else a for a in args)
    if name in _COMPARISONS:
        # What is compared is what people would see, rounded to the map's number type.
        operands = tuple(
            Pointwise("cast", (rule, given.dtype)) if _is_rounded(given, rule) else rule
            for given, rule in zip(args, operands, strict=True)
        )
    return AttentionMap(Pointwise(name, operands, tuple(kwargs.items())), lead, (True, True), dtype)


def _is_scalar_of_numpy(given: Any) -> bool:
    return hasattr(given, "item") and hasattr(given, "dtype") and not isinstance(given, Tensor)


def _is_rounded(given: Any, rule: Any) -> bool:
    return isinstance(given, AttentionMap) and given.dtype != rule.dtype


def _operand(given: Tensor, lead: tuple[int, ...]) -> LazyMatrix:
    """Return a map or tensor as a rule whose stack is that of `lead`, or 1 for all."""
    shape = (1,) * (2 - given.ndim) + tuple(given.shape)
    if isinstance(given, AttentionMap):
        rule, own = given._rule, given._lead
    else:
        own = shape[:-2]
        rule = Dense(given.reshape(math.prod(own), *shape[-2:]))
    return rule if math.prod(own) == 1 else views.lead_rule(rule, own, lead)


for _name in POINTWISE:
    TABLE[_name] = lambda *args, _name=_name, **kwargs: _pointwise(_name, *args, **kwargs)
alias({
    "__add__": "add", "__mul__": "mul", "__sub__": "sub", "__truediv__": "div", "__pow__": "pow",
    "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__neg__": "neg", "__abs__": "abs", "absolute": "abs", "multiply": "mul", "subtract": "sub",
    "divide": "div", "true_divide": "div", "negative": "neg", "greater": "gt", "less": "lt",
    "greater_equal": "ge", "less_equal": "le", "not_equal": "ne", "clip": "clamp",
    "__and__": "logical_and", "__or__": "logical_or", "__invert__": "logical_not",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_not": "logical_not",
    "special_xlogy": "xlogy", "special_entr": "entr",
})  # fmt: skip
for _name, _same_as in {"__radd__": "add", "__rmul__": "mul", "__rsub__": "sub",
                        "__rtruediv__": "div", "__rdiv__": "div", "__rpow__": "pow",
                        "rsub": "sub"}.items():  # fmt: skip
    TABLE[_name] = lambda a, b, *, _to=_same_as, **kw: TABLE[_to](b, a, **kw)


@on("clamp_min")
def _clamp_min(held: Any, min: Any) -> Any:
    return _pointwise("clamp", held, min=min)


@on("clamp_max")
def _clamp_max(held: Any, max: Any) -> Any:
    return _pointwise("clamp", held, max=max)


@on("log")
def _log(held: AttentionMap) -> Any:
    exact = in_form(held._rule, "log_weights")
    return _pointwise("log", held) if exact is None else held._on(exact)


@on("masked_fill")
def _masked_fill(held: Any, mask: Any, value: Any) -> Any:
    value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=held.dtype)
    return _pointwise("where", mask, value, held)


@on("where")
def _where(*args: Any) -> Any:
    return _pointwise("where", *args) if len(args) == 3 else NotImplemented


@on("masked_select")
def _masked_select(held: Any, mask: Any) -> Any:
    return views.index(held, mask) if isinstance(held, AttentionMap) else NotImplemented
