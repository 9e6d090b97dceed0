"""What the mask that a model hands to its kernel means, kept small.

A table of query × key booleans is read once, recognised as a causal, padding or interval mask, and
not kept. A model gives the same table to layer after layer, so what was read is remembered until
the model has run through.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from heedmap.masks import Causal, Extent, Mask, Padding, Spans, Visible
from heedmap.watch.spans import Stretches, spans_of_cells

MOST_CELLS = 1 << 26
"""Of how many cells a function is asked what it says of them, so as to keep that and not it."""


class Read(NamedTuple):
    """What a mask says: who may look at whom, and which scores are added."""

    mask: Mask | None
    bias: Float[Tensor, "batch heads query key"] | None


class MaskReader:
    """Reads masks, and knows those that it has read and that are still there."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[tuple[object, ...], tuple[StorageWeakRef, Read]] = {}
        self._rules: dict[tuple[int, Extent], tuple[object, Mask | None]] = {}

    def read(self, given: Tensor | None, sizes: Extent, *, hides: bool = False) -> Read:
        """Return the meaning of a mask of PyTorch's: of truth values, or of scores to add.

        Args:
            given: A tensor that spreads to `sizes`; of numbers, those at or below the least finite
                one of their type hide a pair.
            sizes: Batch, heads, queries, keys.
            hides: Whether True hides; else it shows.
        """
        if given is None:
            return Read(None, None)
        version = -1 if given.is_inference() else given._version
        # No other memory takes the number of one that is referred to, weakly though it be.
        memory = StorageWeakRef(given.untyped_storage())
        form = given.storage_offset(), given.shape, given.stride(), given.dtype
        # Scores that are learnt, as T5 learns what distances are worth, keep their graph.
        learnt = given.requires_grad and torch.is_grad_enabled()
        place = memory.cdata, *form, version, sizes, hides, learnt
        if place not in self._known or self._known[place][0].expired():
            self._known = {key: x for key, x in self._known.items() if not x[0].expired()}
            read = _read(given[(None,) * (4 - given.ndim)], sizes, hides)
            self._known[place] = memory, read
        return self._known[place][1]

    def read_rule(
        self, rule: Mask, function: object, asked: Extent, sizes: Extent, device: torch.device
    ) -> Mask | None:
        """Return the meaning of a mask that is a function of places, kept apart from the function.

        Args:
            rule: The mask.
            function: What it asks; it may look at tensors of the model.
            asked: Sizes of 1 for batch or heads of which the function does not make a difference.
            sizes: Batch, heads, queries, keys.
            device: Where the function's tensors are.
        """
        if math.prod(asked) > MOST_CELLS:
            return rule
        place = id(function), asked
        if place not in self._rules:
            spans = spans_of_cells(rule, asked, device)
            self._rules[place] = function, rule if spans is None else simplest(spans, sizes)
        return self._rules[place][1]

    def overwritten(self, tensor: Tensor) -> None:
        """Forget the masks in the memory of a tensor that was written into."""
        memory = StorageWeakRef(tensor.untyped_storage()).cdata
        self._known = {key: x for key, x in self._known.items() if key[0] != memory}

    def forget(self) -> None:
        """Forget all: after a pass of the model its tables are made anew."""
        self._known.clear()
        self._rules.clear()


def _read(given: Shaped[Tensor, "..."], sizes: Extent, hides: bool) -> Read:
    given = _without_repeats(given)
    if not given.is_floating_point():
        visible = given.bool()
        return Read(recognise(~visible if hides else visible, sizes), None)
    hidden = given <= torch.finfo(given.dtype).min
    mask = recognise(~hidden, sizes) if bool(hidden.any()) else None
    scores = given.masked_fill(hidden, 0)
    if not scores.any():
        return Read(mask, None)
    # Hidden once, by the mask; a table keeps its own shape, in which sizes of 1 stand for all.
    return Read(mask, scores)


def recognise(visible: Bool[Tensor, "..."], sizes: Extent) -> Mask | None:
    """Return the smallest mask that says what a table says; None where all is visible."""
    batch, _, queries, keys = sizes
    visible = _without_repeats(visible)
    if visible.shape[3] == 1:
        visible = visible.expand(-1, -1, -1, keys)
    if visible.shape[1] == visible.shape[2] == 1:
        valid = visible[:, 0, 0].expand(batch, -1)
        return None if bool(valid.all()) else Padding(valid.clone())
    if visible.shape[2] == 1:
        visible = visible.expand(-1, -1, queries, -1)
    spans = Spans.of_table(visible)
    if spans is None:
        return Visible(visible.clone())
    return simplest(spans, sizes)


def simplest(spans: Spans, sizes: Extent) -> Mask | None:
    """Return padding, or causal with or without padding, where the spans are no more than that."""
    batch, _, queries, keys = sizes
    tight = Stretches(spans.first, spans.last, spans.valid).tight()
    first, last = _one_head(tight.first), _one_head(tight.last)
    if first.shape[1] > 1 or last.shape[1] > 1 or not first.numel():
        return spans
    padding = None
    if spans.valid is not None and not bool(spans.valid.all()):
        padding = Padding(spans.valid.expand(batch, -1).clone())
    rows = torch.arange(queries, device=first.device)[None, None]
    for offset in sorted({keys - queries, 0, int(last.max()) - queries + 1}):
        ends = Stretches(torch.zeros_like(rows), (rows + offset).clamp(max=keys - 1), spans.valid)
        if _same(ends.tight(), first, last):
            causal = Causal(alignment=offset)
            return causal if padding is None else causal & padding
    every = Stretches(torch.zeros_like(rows), torch.full_like(rows, keys - 1), spans.valid)
    if _same(every.tight(), first, last):
        return padding
    return Spans(first, last, spans.valid)


def _one_head(ends: Tensor) -> Tensor:
    same = ends.shape[1] > 1 and torch.equal(ends, ends[:, :1].expand_as(ends))
    return ends[:, :1] if same else ends


def _same(stretches: Stretches, first: Tensor, last: Tensor) -> bool:
    return bool((stretches.first == first).all() and (stretches.last == last).all())


def _without_repeats(table: Tensor) -> Tensor:
    """Return the table with one entry along each dimension that was only spread."""
    for dim, stride in enumerate(table.stride()):
        if stride == 0 and table.shape[dim] > 1:
            table = table.narrow(dim, 0, 1)
    return table
