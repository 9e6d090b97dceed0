"""The functions through which attention passes, and what is done about each."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedmap.watch import einsum, flex, interface, multihead, plain, sdpa, steps
from heedmap.watch.call import Call, Form, stacked
from heedmap.watch.interception import (
    DOORS,
    Undo,
    attempt,
    here,
    inside_call,
    is_watched,
    patch,
    run_eagerly,
    tell_missed,
    wrapped,
)
from heedmap.watch.trail import Scores, Weights


def _sdpa(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not is_watched():
        return func(*args, **kwargs)
    with inside_call():
        call = attempt(func.__name__, lambda: sdpa.read(here.reader, *args, **kwargs))
        output = func(*args, **kwargs)
        if call:
            lead = call.lead
            if not output.is_nested:
                call.gives(output, lambda result: stacked(result, lead))
            interface.deliver(call)
    return output


def _multi_head(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Look inside where that calls scaled_dot_product_attention; else make query and key again."""
    if not is_watched():
        return func(*args, **kwargs)
    given = inspect.signature(func).bind(*args, **kwargs).arguments
    before, here.crosses = here.crosses, not _is_same(given["query"], given["key"])
    try:
        if not given.get("need_weights", True) and given["query"].ndim == 3:
            return func(*args, **kwargs)
        with inside_call():
            call = attempt(
                func.__name__, lambda: multihead.read_python(here.reader, *args, **kwargs)
            )
            result = func(*args, **kwargs)
            if call:
                unprojected = multihead.unprojected(call.extent, given["out_proj_weight"])
                call.goes_on_with(result[0], unprojected)
                interface.deliver(call)
            return result
    finally:
        here.crosses = before


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two are one sequence, turned perhaps on the way."""
    if one is other:
        return True
    forms = ((t.data_ptr(), t.shape, t.stride()) for t in (one, other))
    return len(set(forms)) == 1


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
        call = attempt("flex_attention", lambda: flex.read(here.reader, *args, **kwargs))
        result = func(*args, **kwargs)
        if call:
            call.gives(result[0], lambda output: output)
            interface.deliver(call)
    return result


def _follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = plain.follow(here.trail, func, args, kwargs)
    if steps.writes(func):
        _overwritten(args[0])
    return result


def _join(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return plain.join(here.trail, func, args, kwargs)


def _write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = plain.write(here.trail, func, args, kwargs)
    if args:
        _overwritten(args[0])
    return result


def _overwritten(tensor: Any) -> None:
    """Note a write where no version counter tells of it: in tensors made in inference mode."""
    if isinstance(tensor, Tensor) and tensor.is_inference() and not tensor.is_nested:
        here.trail.overwritten(tensor)
        here.reader.overwritten(tensor)


def _product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    factors = [*args, *(kwargs[name] for name in ("other", "mat2") if name in kwargs)]
    result = func(*args, **kwargs)
    if len(factors) == 2 and is_watched():
        left, right = factors
        _note(left, right, result)
    return result


def _note(left: Tensor, right: Tensor, result: Tensor) -> None:
    """Note a product of queries and keys; tell of one of weights and values."""
    known = (here.trail[left], here.trail[right]) if here.trail else (None, None)
    if isinstance(known[0], Weights) and not known[0].turned:
        _tell(known[0], left, right, result)
    elif isinstance(known[1], Weights) and known[1].turned:
        # Values come first where channels are rows: v @ weights.mT.
        _tell(known[1], right.mT, left.mT, result, lambda turned: turned.mT)
    else:
        here.trail[result] = Scores.of_product(left, right)


def _tell(
    known: Weights,
    weights: Tensor,
    value: Tensor,
    result: Tensor,
    form: Form = lambda result: result,
) -> None:
    """Tell of attention that the model computed by itself: ``form(result) = weights @ value``.

    Weights that one module uses twice, as for values and for those of distances, are told of once.
    """
    who = id(here.modules[-1].module) if here.modules else 0
    if who in known.told:
        return
    if known.scores is None and isinstance(here.trail[value], Scores):
        # A softmax over features, and a product of keys and values: no position looks at another.
        tell_missed("softmax", "it is over features (linear attention), so there are no weights")
        return
    with inside_call():
        call = attempt("softmax", lambda: plain.read(here.reader, known, weights, value))
        if call:
            known.told.add(who)
            lead = call.lead
            if call.value is not None:
                call.gives(result, form)
                call.turn_output(lambda t: stacked(t.reshape(*lead, *t.shape[-2:]), lead))
            interface.deliver(call)


def _baddbmm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = func(*args, **kwargs)
    if is_watched():
        _note_sum(*args, result=result, **kwargs)
    return result


def _note_sum(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    result: Tensor,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> None:
    """Note ``beta · input + alpha · (batch1 @ batch2)``."""
    del out
    scores = Scores.of_product(batch1, batch2)
    if scores is not None:
        scores = scores.times(alpha)
        lead = tuple(result.shape[:-2])
        here.trail[result] = scores.plus(input, lead, beta) if beta else scores


def _einsum(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = func(*args, **kwargs)
    if len(args) != 3 or not is_watched():
        return result
    if here.trail and isinstance(here.trail[args[2]], Weights):
        args = (einsum.swapped(args[0]), args[2], args[1])
    known = here.trail[args[1]] if here.trail else None
    gathers = isinstance(known, Weights)
    factors = einsum.as_product(*args, in_order_of_left=gathers)
    if factors is None:
        return result
    left, right, back = factors
    if not gathers and back(result) is result:
        here.trail[result] = Scores.of_product(left, right)
    elif gathers and left is args[1] and not known.turned:
        _tell(known, left, right, result, back)
    return result


# Names that torch does not call public, which its own layers call all the same.
_TORCH: Any = torch

DOORS.update(
    {
        F.scaled_dot_product_attention: _sdpa,
        F.multi_head_attention_forward: _multi_head,
        _TORCH._native_multi_head_attention: _native(multihead.read_native),
        _TORCH._transformer_encoder_layer_fwd: _native(multihead.read_native_layer),
        torch.einsum: _einsum,
        torch.cat: _join,
        torch.concat: _join,
    }
)
for _door, _functions in (
    (_follow, steps.FOLLOWED),
    (_write, steps.WRITES),
    (_product, [torch.matmul, torch.bmm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm]),
    (_baddbmm, [torch.baddbmm, Tensor.baddbmm]),
):
    DOORS.update(dict.fromkeys(_functions, _door))

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
