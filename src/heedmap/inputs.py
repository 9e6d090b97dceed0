"""What query, key and value must be, and fit each other in, before anything is computed."""

import torch
from torch import Tensor

from heedmap.errors import DTypeError, ShapeError
from heedmap.tensors import require_numbers

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
STRIDED = torch.strided
LAYOUTS = {
    2: "[positions, dim]",
    3: "[batch, positions, dim]",
    4: "[batch, heads, positions, dim]",
}


def check_inputs(query: Tensor, key: Tensor, value: Tensor | None) -> None:
    """Refuse what attention cannot be computed of; a value of None stands for none.

    Raises:
        DTypeError: for what is no plain tensor of floating-point numbers, and for number types or
            devices that differ.
        ShapeError: for sizes that do not fit each other.
        UnsupportedError: for a tensor without numbers, and under ``torch.func.vmap``.
    """
    _check_tensor("query", query)
    alike = _is_alike(query, "key", key)
    if value is not None:
        alike &= _is_alike(query, "value", value)
    if query.ndim not in LAYOUTS:
        raise ShapeError(
            f"query must be {', '.join(LAYOUTS.values())}; got {list(query.shape)}. "
            "Merge further leading dimensions into the batch."
        )
    if not alike or (query.ndim == 4 and not query.shape[1]):
        _check_sizes(query, key, value)


def _is_alike(query: Tensor, name: str, tensor: Tensor) -> bool:
    """Return whether a tensor has the very shape of query; refuse one that cannot stand beside."""
    _check_tensor(name, tensor)
    alike = tensor.shape == query.shape
    if (
        tensor.dtype is not query.dtype
        or tensor.device != query.device
        or not (alike or tensor.ndim == query.ndim)
    ):
        _refuse_mixture(name, tensor, query)
    return alike


def _check_tensor(name: str, tensor: Tensor) -> None:
    """Refuse what is no tensor of numbers."""
    require_numbers(name, tensor)
    if tensor.layout is not STRIDED or tensor.is_nested:
        raise DTypeError(
            f"{name} must be an ordinary strided tensor; got "
            f"{'a nested one' if tensor.is_nested else tensor.layout}. Pad it and give "
            "mask=Padding(valid), or pack it and give mask=Documents(ids)."
        )
    if tensor.dtype not in FLOATS:
        raise DTypeError(
            f"{name} must be float64, float32, bfloat16 or float16; got {tensor.dtype}."
        )


def _refuse_mixture(name: str, tensor: Tensor, query: Tensor) -> None:
    if tensor.dtype != query.dtype:
        raise DTypeError(
            f"{name} must have the number type of query; got {tensor.dtype} and {query.dtype}."
        )
    if tensor.device != query.device:
        raise DTypeError(
            f"{name} must be on the device of query; got {tensor.device} and {query.device}."
        )
    raise ShapeError(
        f"{name} must have as many dimensions as query; got {tensor.ndim} and {query.ndim}."
    )


def _check_sizes(query: Tensor, key: Tensor, value: Tensor | None) -> None:
    if key.shape[-1] != query.shape[-1]:
        raise ShapeError(
            f"query and key must have the same head_dim; got {query.shape[-1]} and {key.shape[-1]}."
        )
    if value is not None and value.shape[-2] != key.shape[-2]:
        raise ShapeError(
            "key and value must have the same number of positions; "
            f"got {key.shape[-2]} and {value.shape[-2]}."
        )
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and query.ndim > 2 and tensor.shape[0] != query.shape[0]:
            raise ShapeError(
                f"query and {name} must have the same batch size; "
                f"got {query.shape[0]} and {tensor.shape[0]}."
            )
    if query.ndim < 4:
        return
    heads, kv_heads = query.shape[1], key.shape[1]
    if value is not None and value.shape[1] != kv_heads:
        raise ShapeError(
            f"key and value must have the same number of heads; got {kv_heads} and "
            f"{value.shape[1]}."
        )
    if not heads or not kv_heads or heads % kv_heads:
        raise ShapeError(
            "the number of query heads must be a multiple of the number of key heads, both at "
            f"least 1; got {heads} and {kv_heads}."
        )
