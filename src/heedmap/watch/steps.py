"""The functions of PyTorch that are followed from scores to weights, and how."""

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedmap.watch.trail import Scores, Weights

Known = Scores | Weights
Step = Callable[[list[Any], tuple[Any, ...], dict[str, Any], Tensor], Known | None]
"""Says what the result of a call is, from what is known of its first arguments."""


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, *names: str) -> Any:
    """Return an argument by its place or one of its names."""
    if len(args) > place:
        return args[place]
    return next((kwargs[name] for name in names if name in kwargs), None)


def _like(scores: Tensor, result: Tensor, known: Scores) -> Scores:
    """Return what is known unless the result has been spread to another shape."""
    return known if scores.shape == result.shape else known.unknown()


def _lead(scores: Tensor) -> tuple[int, ...]:
    return tuple(scores.shape[:-2])


def _altered(known: Any) -> Weights | None:
    return known.unknown() if isinstance(known, Weights) else None


def _added(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    scores = next((place for place in (0, 1) if isinstance(known[place], Scores)), None)
    if scores is None:
        return _altered(known[0])
    if known[1 - scores] is not None:
        return None
    factor = kwargs.get("alpha", 1)
    other = args[1 - scores] if len(args) > 1 else kwargs.get("other")
    if scores == 1 and factor != 1:
        return None
    return _like(args[scores], result, known[scores].plus(other, _lead(args[scores]), factor))


def _taken(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    if not isinstance(known[0], Scores):
        return _altered(known[0])
    other, factor = _argument(args, kwargs, 1, "other"), -kwargs.get("alpha", 1)
    return _like(args[0], result, known[0].plus(other, _lead(args[0]), factor))


def _multiplied(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    for place in (0, 1):
        if isinstance(known[place], Scores):
            other = args[1 - place] if len(args) > 1 else kwargs.get("other")
            return _like(args[place], result, known[place].times(other))
    return _altered(known[0]) or _altered(known[1])


def _divided(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    if not isinstance(known[0], Scores) or kwargs.get("rounding_mode"):
        return _altered(known[0])
    by = _argument(args, kwargs, 1, "other")
    return _like(args[0], result, known[0].divided(by))


def _kept(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    del kwargs
    return known[0].onward(args[0], result) if isinstance(known[0], Weights) else known[0]


def _reshaped(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    if isinstance(known[0], Scores):
        return known[0].reshaped(args[0], result)
    return _kept(known, args, kwargs, result) if _has_same_ends(args[0], result) else None


def _has_same_ends(tensor: Any, result: Tensor) -> bool:
    return tensor.shape[-2:] == result.shape[-2:]


def _turned(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    """Follow weights that change queries and keys, and nothing else, on their way to values."""
    del kwargs
    if not isinstance(known[0], Weights):
        return None
    for part, have in ((args[0].shape, result.shape), (args[0].stride(), result.stride())):
        if tuple(have) != (*part[:-2], part[-1], part[-2]):
            return None
    return known[0].onward(args[0], result).swapped()


def _squashed(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    del args, kwargs, result
    return known[0].tanh() if isinstance(known[0], Scores) else None


def _filled(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    hidden, fill = _argument(args, kwargs, 1, "mask"), _argument(args, kwargs, 2, "value")
    if isinstance(known[0], Scores):
        shown = known[0].hidden(hidden, fill, _lead(args[0]))
        return _like(args[0], result, shown)
    if isinstance(known[0], Weights) and fill == 0 and known[0].has_hidden(hidden):
        return known[0].onward(args[0], result)
    return _altered(known[0])


def _chosen(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    """Follow ``torch.where(visible, scores, fill)`` and ``torch.where(hidden, fill, scores)``."""
    del kwargs
    if len(args) < 3:
        return None
    for place, other in ((1, 2), (2, 1)):
        if isinstance(known[place], Scores):
            change = known[place].shown if place == 1 else known[place].hidden
            changed = change(args[0], args[other], _lead(args[place]))
            return _like(args[place], result, changed)
    return _altered(known[1]) or _altered(known[2])


def _cut(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    """Follow ``weights[..., :-1]``, which takes the column of the sinks away."""
    if not isinstance(known[0], Weights) or result.ndim != args[0].ndim:
        return None
    same = args[0].shape[:-1] == result.shape[:-1] and result.shape[-1] == args[0].shape[-1] - 1
    from_start = args[0].data_ptr() == result.data_ptr()
    return _kept(known, args, kwargs, result) if same and from_start else None


def _softmax(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    dim = _argument(args, kwargs, 1, "dim")
    scores = known[0] if isinstance(known[0], Scores) else None
    if dim not in (-1, result.ndim - 1) or isinstance(known[0], Weights):
        return None
    # Two dimensions alone are as often a classifier's; then only a product that is known counts.
    return Weights(scores) if result.ndim > 2 or (scores and result.ndim == 2) else None


def _dropped(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Known | None:
    if not isinstance(known[0], Weights):
        return None
    p = _argument(args, kwargs, 1, "p")
    training = _argument(args, kwargs, 2, "training", "train")
    # Both names default to what drops: 0.5, and True.
    drops = (training is None or bool(training)) and (p is None or p > 0)
    return known[0].onward(args[0], result, dropped=drops)


def _methods(*names: str) -> list[Any]:
    return [getattr(Tensor, name) for name in names]


_SAME = _methods("to", "float", "half", "bfloat16", "double", "type", "type_as", "contiguous")
_SAME += _methods("clone", "detach", "nan_to_num")
_SHAPED = _methods("view", "reshape", "unflatten", "flatten", "squeeze", "unsqueeze", "view_as")
_SHAPED += [torch.reshape, torch.flatten, torch.squeeze, torch.unsqueeze]
_TURNS = _methods("transpose", "swapaxes", "permute")
_MATRIX_TRANSPOSE: Any = Tensor.mT

SOFTMAXES = (torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax)

FOLLOWED: dict[Any, Step] = dict.fromkeys(SOFTMAXES, _softmax)
"""What is followed, and how, beside products and `torch.cat`."""

for _step, _functions in (
    (_added, [torch.add, *_methods("add", "add_", "__add__", "__radd__", "__iadd__")]),
    (_taken, [torch.sub, *_methods("sub", "sub_", "__sub__", "__isub__")]),
    (_multiplied, [torch.mul, *_methods("mul", "mul_", "__mul__", "__rmul__", "__imul__")]),
    (_divided, [torch.div, torch.true_divide, *_methods("div", "div_", "true_divide")]),
    (_divided, _methods("__truediv__", "__itruediv__")),
    (_kept, [torch.nan_to_num, torch.clone, *_SAME]),
    (_reshaped, _SHAPED),
    (_turned, [torch.transpose, torch.permute, *_TURNS, _MATRIX_TRANSPOSE.__get__]),
    (_squashed, [torch.tanh, Tensor.tanh]),
    (_filled, [torch.masked_fill, *_methods("masked_fill", "masked_fill_")]),
    (_chosen, [torch.where]),
    (_cut, [Tensor.__getitem__]),
    (_dropped, [F.dropout, torch.dropout]),
):
    FOLLOWED.update(dict.fromkeys(_functions, _step))

_WRITING = re.compile(
    r"[a-z]\w*(?<!_)_|__setitem__"
    "|__i(add|and|div|floordiv|lshift|mod|mul|or|pow|rshift|sub|truediv|xor)__"
)

_IN_PLACE = {
    function
    for owner in (torch._C.TensorBase, Tensor)
    for name, function in vars(owner).items()
    if callable(function) and _WRITING.fullmatch(name)
}

WRITES = [function for function in _IN_PLACE if function not in FOLLOWED]
"""What writes into a tensor in a way that is not followed."""


def writes(func: Any) -> bool:
    """Return whether a function writes into its first argument."""
    return func in _IN_PLACE
