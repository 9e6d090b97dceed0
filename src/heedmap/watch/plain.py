"""Attention that a model computes by itself: a product, a softmax, a product.

Where all that came between was followed (`trail`), the weights are known by their factors; else
they are taken as the softmax gave them.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from heedmap.masks import Extent
from heedmap.watch.call import Call, lead_of_keys, stacked
from heedmap.watch.mask_reading import MaskReader, Read
from heedmap.watch.sdpa import both
from heedmap.watch.steps import FOLLOWED, SOFTMAXES
from heedmap.watch.trail import Part, Scores, Weights


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

    def __bool__(self) -> bool:
        """Return whether anything is known of any tensor."""
        return bool(self._of.data)

    def overwritten(self, tensor: Tensor) -> None:
        """Note that others who share the memory of a tensor are no longer what they were."""
        memory = tensor.untyped_storage().data_ptr()
        for other in list(self._of):
            if other is not tensor and other.untyped_storage().data_ptr() == memory:
                self[other] = self._of[other][0].unknown()

    def forget(self) -> None:
        """Forget all."""
        self._of = WeakIdKeyDictionary()


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def follow(trail: Trail, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call one of `FOLLOWED` and note what its result is."""
    if not trail and func not in SOFTMAXES:
        return func(*args, **kwargs)
    given = args[:3] or (kwargs.get("input"),)
    known = [trail[arg] for arg in given]
    known += [None] * (3 - len(known))
    result = func(*args, **kwargs)
    if any(known) or func in SOFTMAXES:
        trail[result] = FOLLOWED[func](known, args, kwargs, result)
    return result


def join(trail: Trail, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``torch.cat`` and note whether it joined sinks to scores."""
    parts = args[0] if args else kwargs.get("tensors", ())
    known = [trail[part] for part in parts] if trail and len(parts) == 2 else []
    result = func(*args, **kwargs)
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if known and isinstance(known[0], Scores) and dim in (-1, result.ndim - 1):
        trail[result] = known[0].joined(parts[1])
    return result


def write(trail: Trail, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that writes into its first argument, and note that this is another now."""
    known = trail[args[0]] if trail and args else None
    result = func(*args, **kwargs)
    if known is not None:
        trail[args[0]] = known.unknown()
    return result


def read(reader: MaskReader, known: Weights, weights: Tensor, value: Tensor) -> Call:
    """Return what the attention is made of that gathers `value` by these weights.

    Its `dense` is what the softmax gave; whether the factors give the same is not looked at.

    Raises:
        ValueError: if neither is known what the softmax gave nor how it came about.
    """
    dense = weights if known.softmax is None else known.softmax
    gathering, lead = tuple(weights.shape[:-2]), _lead(known, dense, weights)
    dense = stacked(dense[..., : weights.shape[-1]].reshape(*lead, *weights.shape[-2:]), lead)
    call = Call(
        door="softmax",
        # Where scores are not known the shapes alone count.
        query=dense[..., :1],
        key=dense[..., :1, :].mT,
        lead=lead,
        dense=dense,
        dropout=known.dropped,
        understood=False,
    )
    key_lead = lead
    if (scores := known.scores) is not None and scores.known:
        product = torch.broadcast_shapes(scores.query.shape[:-2], scores.key.shape[:-2])
        if tuple(product) == gathering == lead:
            key_lead = lead_of_keys(lead, scores.key, value)
        if product.numel() == torch.Size(lead).numel():
            _explain(call, scores, reader)
            call.key = _spread(scores.key, product, key_lead)
    if known.dropped and known.softmax is None:
        if not call.understood:
            raise ValueError("weights were dropped in place, and their scores are not understood")
        call.dense = None
    if _spreads(value, gathering):
        call.value = _spread(value, gathering, key_lead)
    return call


def _lead(known: Weights, softmax: Tensor, weights: Tensor) -> tuple[int, ...]:
    """Return the dimensions before query and key: batch and heads, where they were ever apart."""
    cells = weights.shape[:-2].numel()
    found = [] if known.scores is None else [known.scores.lead]
    for lead in [*found, tuple(softmax.shape[:-2])]:
        if len(lead) == 2 and torch.Size(lead).numel() == cells:
            return lead
    return tuple(weights.shape[:-2])


def _explain(call: Call, scores: Scores, reader: MaskReader) -> None:
    """Say of what the scores of a call are made."""
    product = torch.broadcast_shapes(scores.query.shape[:-2], scores.key.shape[:-2])
    call.query = _spread(scores.query, product, call.lead)
    call.scale, call.soft_cap, call.sinks = scores.scale, scores.soft_cap, scores.sinks
    if scores.squashed:
        call.soft_cap = 1.0
    sizes = call.extent._replace(keys=scores.key.shape[-2])
    for part in (*scores.added, *scores.masks):
        mask, bias = _read(reader, part, call.lead, sizes)
        call.mask = both(call.mask, mask)
        if bias is not None:
            call.bias = bias if call.bias is None else call.bias + bias
    call.understood = True


def _read(reader: MaskReader, part: Part, lead: tuple[int, ...], sizes: Extent) -> Read:
    given, factor = part.spread(lead), part.factor
    if len(lead) != 2:
        given = stacked(given.expand(*lead, *sizes[2:]), lead)
    if factor < 0:
        # What is taken away hides by a large number, not by a low one.
        given, factor = given * factor, 1.0
    read = reader.read(given, sizes, hides=part.hides)
    if read.bias is None or factor == 1:
        return read
    return Read(read.mask, read.bias * factor)


def _spreads(tensor: Tensor, lead: tuple[int, ...]) -> bool:
    """Whether a tensor has these leading dimensions, or sizes of 1 in their place."""
    have = tuple(tensor.shape[:-2])
    return torch.broadcast_shapes(have, lead) == lead


def _spread(tensor: Tensor, old: tuple[int, ...], lead: tuple[int, ...]) -> Tensor:
    """Return a tensor of a product of dimensions `old` with others, of as many cells."""
    if torch.Size(old).numel() == torch.Size(lead).numel() and tuple(old) != lead:
        tensor = tensor.expand(*old, *tensor.shape[-2:]).reshape(*lead, *tensor.shape[-2:])
    return stacked(tensor, lead)
