"""Number types, devices, and copies."""

import math
from typing import Any

import torch
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.lazy_algebra import Pointwise
from heedmap.map_cells import densify, require_room
from heedmap.map_functions.table import TABLE, on


@on("contiguous", "requires_grad_", "resolve_conj", "resolve_neg", "positive", "pin_memory",
    "is_contiguous")  # fmt: skip
def _same(held: AttentionMap, *_: Any, **__: Any) -> Any:
    return held


TABLE["is_contiguous"] = lambda held, **_: True


@on("detach")
def _detach(held: AttentionMap) -> AttentionMap:
    return held._detached()


@on("type")
def _type(held: AttentionMap, dtype: Any = None) -> Any:
    empty = torch.empty(0, dtype=held.dtype, device=held.device)
    return empty.type() if dtype is None else _to(held, empty.type(dtype).dtype)


@on("to")
def _to(held: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(held, AttentionMap):
        like = next(a for a in (*args, *kwargs.values()) if isinstance(a, AttentionMap))
        return held.to(like.device, like.dtype)
    if isinstance(kwargs.get("other"), Tensor):
        args = (*args, kwargs.pop("other"))
    like = next((a for a in args if isinstance(a, Tensor)), None)
    if like is not None:
        args = (like.device, like.dtype)
    dtype = kwargs.get("dtype") or next((a for a in args if isinstance(a, torch.dtype)), None)
    device = kwargs.get("device") or next(
        (a for a in args if isinstance(a, str | torch.device | int) and not isinstance(a, bool)),
        None,
    )
    if isinstance(device, str) and device.startswith("torch."):
        return NotImplemented
    rule = held._rule
    if device is not None and torch.device(device) != held.device:
        rule = rule.map_tensors(lambda tensor: tensor.to(device))
    if dtype is not None and not (dtype.is_floating_point and rule.dtype.is_floating_point):
        rule = Pointwise("cast", (rule, dtype))
    return held._on(rule, dtype)


for _name, _dtype in {
    "float": torch.float32, "double": torch.float64, "half": torch.float16,
    "bfloat16": torch.bfloat16, "bool": torch.bool, "int": torch.int32, "long": torch.int64,
}.items():  # fmt: skip
    TABLE[_name] = lambda held, _dtype=_dtype, **_: _to(held, _dtype)
TABLE["type_as"] = lambda held, other: held.to(other.dtype)
TABLE["is_same_size"] = lambda held, other: held.shape == other.shape
TABLE["cpu"] = lambda held, **_: _to(held, "cpu")
TABLE["cuda"] = lambda held, device="cuda", *_, **__: _to(held, device)


@on("item", "__bool__", "__float__", "__int__", "__index__", "__complex__")
def _item(held: AttentionMap) -> Any:
    if math.prod(held.shape) != 1:
        raise RuntimeError(
            f"a map of {math.prod(held.shape)} weights must not be used as one number; select one."
        )
    return NotImplemented


@on("clone")
def _clone(held: AttentionMap, **_: Any) -> Tensor:
    return densify(held, "clone()")


def _filled(name: str) -> Any:
    make = getattr(torch, name)

    def like(held: AttentionMap, *args: Any, **kwargs: Any) -> Tensor:
        require_room(held, name)
        return make(torch.empty(held.shape, dtype=held.dtype, device=held.device), *args, **kwargs)

    return like


for _name in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"):
    TABLE[_name] = _filled(_name)


def _new(name: str) -> Any:
    def new(held: AttentionMap, *args: Any, **kwargs: Any) -> Tensor:
        return getattr(torch.empty(0, dtype=held.dtype, device=held.device), name)(*args, **kwargs)

    return new


for _name in ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"):
    TABLE[_name] = _new(_name)
