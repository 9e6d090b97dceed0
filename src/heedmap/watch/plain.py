"""Attention that a model computes by itself: a product, a softmax, a product.

Where all that came between was followed (`trail`), the weights are known by their factors; else
they are taken as the softmax gave them.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from heedmap.watch.call import Call, stacked
from heedmap.watch.mask_reading import MaskReader
from heedmap.watch.sdpa import both
from heedmap.watch.trail import Scores, Weights


class Trail:
    """What is known of the tensors of a pass."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._of: Any = WeakIdKeyDictionary()

    def __getitem__(self, tensor: Any) -> Scores | Weights | None:
        """Return what is known of a tensor, None if it was written into since."""
        if not isinstance(tensor, Tensor) or not (found := self._of.get(tensor)):
            return None
        return found[0] if found[1] == _version(tensor) else None

    def __setitem__(self, tensor: Tensor, known: Scores | Weights | None) -> None:
        """Note what is known of a tensor."""
        if known is not None:
            self._of[tensor] = known, _version(tensor)

    def __len__(self) -> int:
        """Return of how many living tensors something is known."""
        return len(self._of)

    def forget(self) -> None:
        """Forget all."""
        self._of = WeakIdKeyDictionary()


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def follow(trail: Trail, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call one of `FOLLOWED` and note what its result is."""
    known = [trail[arg] for arg in args[:2]] if len(trail) else []
    result = func(*args, **kwargs)
    if any(known) or func in SOFTMAXES:
        trail[result] = FOLLOWED[func](known or [None], args, kwargs, result)
    return result


def join(trail: Trail, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``torch.cat`` and note whether it joined sinks to scores."""
    parts = args[0] if args else kwargs.get("tensors", ())
    known = [trail[part] for part in parts] if len(trail) and len(parts) == 2 else []
    result = func(*args, **kwargs)
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if known and isinstance(known[0], Scores) and dim in (-1, result.ndim - 1):
        trail[result] = known[0].joined(parts[1])
    return result


Step = Callable[[list[Any], tuple[Any, ...], dict[str, Any], Tensor], Scores | Weights | None]


def _cellwise(change: Callable[[Scores, Any], Scores], *, swaps: bool = False) -> Step:
    def step(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Scores | None:
        first, second = known[0], known[1] if len(known) > 1 else None
        if kwargs.get("alpha", 1) != 1 or kwargs.get("rounding_mode"):
            return None
        if isinstance(first, Scores) and second is None:
            other = args[1] if len(args) > 1 else kwargs.get("other")
            return _like(args[0], result, change(first, other))
        if swaps and isinstance(second, Scores) and first is None:
            return _like(args[1], result, change(second, args[0]))
        return None

    return step


def _like(scores: Tensor, result: Tensor, known: Scores) -> Scores:
    """Return what is known unless the result has been spread to another shape."""
    return known if scores.shape == result.shape else known.unknown()


def _kept(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Scores | Weights | None:
    del kwargs, result
    return _onward(known[0], args[0])


def _onward(known: Any, tensor: Tensor, *, dropped: bool = False) -> Scores | Weights | None:
    return known.onward(tensor, dropped=dropped) if isinstance(known, Weights) else known


def _reshaped(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Scores | Weights | None:
    del kwargs
    if isinstance(known[0], Scores):
        return known[0].reshaped(args[0], result)
    kept = args[0].shape[-2:] == result.shape[-2:]
    return known[0].onward(args[0]) if kept else None


def _tanh(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Scores | None:
    del args, kwargs, result
    return known[0].tanh() if isinstance(known[0], Scores) else None


def _filled(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Scores | None:
    if not isinstance(known[0], Scores):
        return None
    hidden = args[1] if len(args) > 1 else kwargs["mask"]
    fill = args[2] if len(args) > 2 else kwargs["value"]
    return _like(args[0], result, known[0].shown(~hidden.bool(), fill))


def _chosen(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Scores | None:
    """Follow ``torch.where(visible, scores, fill)``."""
    del kwargs
    if len(args) < 3 or not isinstance(known[1], Scores):
        return None
    return _like(args[1], result, known[1].shown(args[0], args[2]))


def _cut(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Weights | None:
    """Follow ``weights[..., :-1]``, which takes the column of the sinks away."""
    del kwargs
    if not isinstance(known[0], Weights) or result.ndim != args[0].ndim:
        return None
    same = args[0].shape[:-1] == result.shape[:-1] and result.shape[-1] == args[0].shape[-1] - 1
    from_start = args[0].data_ptr() == result.data_ptr()
    return known[0].onward(args[0]) if same and from_start else None


def _softmax(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Weights | None:
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    if result.ndim < 3 or dim not in (-1, result.ndim - 1) or isinstance(known[0], Weights):
        return None
    return Weights(known[0])


def _dropped(known: list[Any], args: Any, kwargs: Any, result: Tensor) -> Weights | None:
    del result
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
    found = _onward(known[0], args[0], dropped=bool(training) and p > 0)
    return found if isinstance(found, Weights) else None


def product(left: Tensor, right: Tensor) -> Scores | None:
    """Return the trail of ``left @ right`` where these may be queries and keys."""
    return Scores(left, right.mT) if left.ndim >= 3 and right.ndim >= 3 else None


def as_product(
    equation: Any, left: Tensor, right: Tensor
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]] | None:
    """Return the operands of an einsum of two as those of a product, and what turns its result.

    None where it is no product of matrices.
    """
    if not isinstance(equation, str) or equation.count("->") != 1 or "." in equation:
        return None
    given, out = equation.replace(" ", "").split("->")
    first, second = given.split(",")
    shared = [label for label in out if label in first and label in second]
    rows = [label for label in out if label in first and label not in second]
    columns = [label for label in out if label in second and label not in first]
    summed = [label for label in first if label in second and label not in out]
    if [len(rows), len(columns), len(summed)] != [1, 1, 1]:
        return None

    def turned(tensor: Tensor, have: str, want: list[str]) -> Tensor:
        order = [have.index(label) for label in want]
        return tensor if order == list(range(tensor.ndim)) else tensor.permute(order)

    return (
        turned(left, first, [*shared, *rows, *summed]),
        turned(right, second, [*shared, *summed, *columns]),
        lambda result: turned(result, out, [*shared, *rows, *columns]),
    )


def read(reader: MaskReader, known: Weights, weights: Tensor, value: Tensor) -> Call:
    """Return what the attention is made of that gathers `value` by these weights.

    Its `dense` is what the softmax gave; whether the factors give the same is not looked at.
    """
    lead = tuple(weights.shape[:-2])
    dense = weights if known.softmax is None else known.softmax
    dense = stacked(dense[..., : weights.shape[-1]].reshape(weights.shape), lead)
    value = stacked(value, lead)
    call = Call(
        door="softmax",
        # Where scores are not known the shapes alone count.
        query=dense[..., :1],
        key=value[..., :1],
        value=value,
        lead=lead,
        dense=dense,
        dropout=known.dropped,
        understood=False,
    )
    scores = known.scores
    if scores is None or not scores.known or not _fits(scores, lead):
        return call
    call.understood = True
    call.query, call.key = _folded(scores.query, lead), _folded(scores.key, lead)
    call.scale, call.soft_cap, call.sinks = scores.scale, scores.soft_cap, scores.sinks
    if scores.squashed:
        call.scale, call.soft_cap = scores.scale, 1.0
    sizes = call.extent
    for given in (*scores.added, *scores.visible):
        spread = given if len(lead) == 2 else stacked(given.expand(weights.shape), lead)
        part = reader.read(spread, sizes)
        call.mask = both(call.mask, part.mask)
        if part.bias is not None:
            call.bias = part.bias if call.bias is None else call.bias + part.bias
    return call


def _fits(scores: Scores, lead: tuple[int, ...]) -> bool:
    sizes = [tensor.shape[:-2].numel() for tensor in (scores.query, scores.key)]
    return sizes == [torch.Size(lead).numel()] * 2


def _folded(tensor: Tensor, lead: tuple[int, ...]) -> Tensor:
    return stacked(tensor.reshape(*lead, *tensor.shape[-2:]), lead)


def _methods(*names: str) -> list[Any]:
    return [getattr(Tensor, name) for name in names]


PRODUCTS = [torch.matmul, torch.bmm, *_methods("matmul", "__matmul__", "bmm")]
_ADDED = [torch.add, *_methods("add", "add_", "__add__", "__radd__", "__iadd__")]
_TAKEN = [torch.sub, *_methods("sub", "sub_", "__sub__", "__isub__")]
_TIMES = [torch.mul, *_methods("mul", "mul_", "__mul__", "__rmul__", "__imul__")]
_OVER = [torch.div, torch.true_divide]
_OVER += _methods("div", "div_", "__truediv__", "__itruediv__", "true_divide")
_SAME = _methods("to", "float", "half", "bfloat16", "double", "type", "type_as", "contiguous")
_SAME += _methods("clone", "detach")
_SHAPED = [torch.reshape, *_methods("view", "reshape", "unflatten", "squeeze", "unsqueeze")]

SOFTMAXES = (torch.softmax, F.softmax, Tensor.softmax)

FOLLOWED: dict[Any, Step] = dict.fromkeys(SOFTMAXES, _softmax)
FOLLOWED |= dict.fromkeys(_ADDED, _cellwise(Scores.plus, swaps=True))
FOLLOWED |= dict.fromkeys(_TAKEN, _cellwise(lambda scores, other: scores.plus(other, -1)))
FOLLOWED |= dict.fromkeys(_TIMES, _cellwise(Scores.times, swaps=True))
FOLLOWED |= dict.fromkeys(_OVER, _cellwise(Scores.divided))
FOLLOWED |= dict.fromkeys(_SAME, _kept)
FOLLOWED |= dict.fromkeys(_SHAPED, _reshaped)
FOLLOWED |= dict.fromkeys([torch.tanh, Tensor.tanh], _tanh)
FOLLOWED |= dict.fromkeys([torch.masked_fill, *_methods("masked_fill", "masked_fill_")], _filled)
FOLLOWED |= dict.fromkeys([torch.where], _chosen)
FOLLOWED |= dict.fromkeys([Tensor.__getitem__], _cut)
FOLLOWED |= dict.fromkeys([F.dropout, torch.dropout], _dropped)
"""What is followed, and how, beside products and `torch.cat`."""
