"""The functions through which attention passes, and what is done about each."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedmap.watch import flex, interface, multihead, plain, sdpa
from heedmap.watch.call import Call, stacked
from heedmap.watch.interception import (
    DOORS,
    Undo,
    attempt,
    here,
    inside_call,
    is_watched,
    patch,
    run_eagerly,
    wrapped,
)


def _sdpa(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not is_watched():
        return func(*args, **kwargs)
    with inside_call():
        call = attempt(func.__name__, lambda: sdpa.read(here.reader, *args, **kwargs))
        output = func(*args, **kwargs)
        if call:
            call.output = None if output.is_nested else stacked(output, call.lead)
            interface.deliver(call)
    return output


def _multi_head(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Look inside where that calls scaled_dot_product_attention; else make query and key again."""
    if not is_watched():
        return func(*args, **kwargs)
    before, here.crosses = here.crosses, args[0] is not args[1]
    try:
        if not kwargs.get("need_weights", True):
            return func(*args, **kwargs)
        with inside_call():
            call = attempt(
                func.__name__, lambda: multihead.read_python(here.reader, *args, **kwargs)
            )
            result = func(*args, **kwargs)
            if call:
                interface.deliver(call)
            return result
    finally:
        here.crosses = before


def _native(
    read: Callable[..., Call],
) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]:
    def door(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_watched():
            return func(*args, **kwargs)
        with inside_call():
            call = attempt(func.__name__, lambda: read(here.reader, *args, **kwargs))
            result = func(*args, **kwargs)
            if call:
                interface.deliver(call)
        return result

    return door


def _flex(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not is_watched():
        return func(*args, **kwargs)
    with inside_call():
        call = attempt("flex_attention", lambda: flex.read(*args, **kwargs))
        result = func(*args, **kwargs)
        if call:
            call.output = result[0]
            interface.deliver(call)
    return result


def _follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return plain.follow(here.trail, func, args, kwargs)


def _join(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return plain.join(here.trail, func, args, kwargs)


def _product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) < 2 or not is_watched():
        return func(*args, **kwargs)
    return _gathered(args[0], args[1], lambda: func(*args, **kwargs))


def _gathered(left: Tensor, right: Tensor, run: Callable[[], Tensor]) -> Tensor:
    """Run a product, and note it if it is one of queries and keys or of weights and values."""
    known = here.trail[left] if len(here.trail) else None
    result = run()
    if not isinstance(known, plain.Weights):
        here.trail[result] = plain.product(left, right)
        return result
    with inside_call():
        call = attempt("softmax", lambda: plain.read(here.reader, known, left, right))
        if call:
            call.output = stacked(result, call.lead)
            interface.deliver(call)
    return result


def _baddbmm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = func(*args, **kwargs)
    if len(args) == 3 and is_watched() and (found := plain.product(args[1], args[2])):
        found = found.times(kwargs.get("alpha", 1))
        if kwargs.get("beta", 1):
            found = found.plus(args[0] * kwargs.get("beta", 1))
        here.trail[result] = found
    return result


def _einsum(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    factors = plain.as_product(*args) if is_watched() and len(args) == 3 else None
    if factors is None:
        return func(*args, **kwargs)
    known = here.trail[args[1]] if len(here.trail) else None
    result = func(*args, **kwargs)
    left, right, back = factors
    if isinstance(known, plain.Weights) and left.shape == args[1].shape:
        with inside_call():
            call = attempt("softmax", lambda: plain.read(here.reader, known, left, right))
            if call:
                call.output = stacked(back(result), call.lead)
                interface.deliver(call)
    elif back(result) is result:
        here.trail[result] = plain.product(left, right)
    return result


# Names that torch does not call public, which its own layers call all the same.
_TORCH: Any = torch

DOORS.update(
    {
        F.scaled_dot_product_attention: _sdpa,
        F.multi_head_attention_forward: _multi_head,
        _TORCH._native_multi_head_attention: _native(multihead.read_native),
        _TORCH._transformer_encoder_layer_fwd: _native(multihead.read_native_layer),
        torch.baddbmm: _baddbmm,
        Tensor.baddbmm: _baddbmm,
        torch.einsum: _einsum,
        torch.cat: _join,
        torch.concat: _join,
    }
)
DOORS.update(dict.fromkeys(plain.FOLLOWED, _follow))
DOORS.update(dict.fromkeys(plain.PRODUCTS, _product))

_BY_NAME = (
    (F, "scaled_dot_product_attention"),
    (F, "multi_head_attention_forward"),
    (torch, "_native_multi_head_attention"),
    (torch, "_transformer_encoder_layer_fwd"),
)


def hang() -> list[Undo]:
    """Put the stand-ins up, let compiled code run as written; return what undoes it."""
    if "torch.nn.attention.flex_attention" in sys.modules:
        from torch._higher_order_ops.flex_attention import flex_attention

        DOORS[flex_attention] = _flex
    stand_ins = [patch(owner, name, wrapped) for owner, name in _BY_NAME]
    return [*stand_ins, *interface.hang(), *run_eagerly()]
