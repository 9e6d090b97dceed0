"""Which torch function goes to which reduction: the table behind `AttentionMap`.

`call` receives every torch function that meets a map. It looks for the function's name in the
table, which the other files of this folder fill; what is not there and cannot write is done on the
dense matrix, under the budget. Functions that write raise `FrozenError`, because a write into cells
that are made when asked for would be lost.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedmap import map_views as views
from heedmap.attention_map import AttentionMap
from heedmap.errors import FrozenError
from heedmap.map_cells import densify
from heedmap.map_functions import cells, kinds, reduced, shapes
from heedmap.map_functions.gradients import gradient, send_back
from heedmap.map_functions.table import TABLE
from heedmap.precision import exactly, never_compiled

__all__ = ["call", "cells", "kinds", "reduced", "shapes"]

_PLAIN = {
    "shape", "size", "dim", "ndim", "numel", "nelement", "ndimension", "device", "dtype",
    "is_floating_point", "is_complex", "layout", "is_sparse", "is_cuda", "is_cpu", "is_mps",
    "is_meta", "is_quantized", "is_nested", "element_size", "__len__", "itemsize", "nbytes",
    "get_device", "names", "has_names", "grad_fn",
    "is_conj", "is_neg", "is_inference", "is_shared", "__hash__", "result_type",
    "can_cast", "is_tensor", "_has_symbolic_sizes_strides", "output_nr", "_version", "is_mkldnn",
    "is_vulkan", "is_xpu", "is_xla", "is_ipu", "is_maia", "is_mtia", "is_sparse_csr",
}  # fmt: skip
"""What torch answers from the shape, number type and device alone."""

_VIEWS = {"reshape", "view", "flatten", "unflatten", "ravel", "expand", "expand_as", "view_as",
          "reshape_as", "unfold", "broadcast_to", "as_strided", "swapaxes", "swapdims", "T", "H",
          "mH", "adjoint", "diagonal", "real", "narrow_copy"}  # fmt: skip
"""Views of a tensor: where one has to be made dense, it comes back frozen."""

_WRITES = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__",
           "__ipow__", "__imod__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__",
           "set_", "__delitem__", "data", "untyped_storage", "storage", "data_ptr"}  # fmt: skip


@never_compiled
def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do a torch function that has met a map."""
    if func is torch.autograd.grad:
        return gradient(*args, **kwargs)
    if func is torch.autograd.backward:
        return send_back(*args, **kwargs)
    name = name_of(func)
    if name in _PLAIN:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    args, kwargs = _spelled_as_usual(args, kwargs)
    if _writes(name, args, kwargs):
        raise _frozen(name)
    handler = TABLE.get(name)
    if handler is not None and "out" not in kwargs and _fits(handler, args, kwargs):
        with exactly():
            made = handler(*args, **kwargs)
        if made is not NotImplemented:
            return made
    return _on_dense(func, name, args, kwargs)


_SPELLINGS = {"axis": "dim", "keepdims": "keepdim"}


def _spelled_as_usual(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with torch's second spellings replaced by its first."""
    kwargs = {
        _SPELLINGS.get(key, key): given
        for key, given in kwargs.items()
        if not (key == "out" and given is None) and not (key == "inplace" and given is False)
    }
    if not args and "input" in kwargs:
        args = (kwargs.pop("input"),)
    if len(args) == 1 and isinstance(kwargs.get("other"), Tensor):
        args = (*args, kwargs.pop("other"))
    return args, kwargs


def _fits(handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function of the table knows all of these arguments."""
    try:
        inspect.signature(handler).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def name_of(func: Callable[..., Any]) -> str:
    """Return the name under which the table knows a torch function."""
    name = getattr(func, "__name__", str(func))
    owner = getattr(func, "__self__", None)
    return getattr(owner, "__name__", name) if name in ("__get__", "__set__") else name


def _writes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call would write into a map."""
    if _holds_map(kwargs.get("out")):
        return True
    is_write = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
    return (is_write or bool(kwargs.get("inplace"))) and _holds_map(args[:1])


def _frozen(name: str) -> FrozenError:
    return FrozenError(
        f"a map must not be written into; got {name}. Its weights are made when asked for, so the "
        "write would be lost: take weights.clone(), an ordinary tensor, and write into that."
    )


def _on_dense(
    func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    made = func(*_dense_in(args, name), **_dense_in(kwargs, name))
    return views.frozen(made) if name in _VIEWS and isinstance(made, Tensor) else made


def _dense_in(value: Any, name: str) -> Any:
    if isinstance(value, AttentionMap):
        return densify(value, name)
    if isinstance(value, dict):
        return {key: _dense_in(part, name) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_dense_in(part, name) for part in value)
    return value


def _holds_map(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_holds_map, value))
    return isinstance(value, AttentionMap)
