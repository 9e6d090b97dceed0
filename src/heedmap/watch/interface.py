"""The attention functions of transformers: one door in front of whichever implementation runs.

They are handed query and key before heads are repeated or packed for a kernel, the layer that asks,
and what the kernel itself need not know (a window, sinks). What goes through PyTorch behind them is
read there; here it is completed, and the layer gets the map as its weights.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from heedmap.masks import Causal, Extent, Padding, Window
from heedmap.watch.call import Call
from heedmap.watch.flex import read_mask
from heedmap.watch.interception import (
    Undo,
    attempt,
    here,
    inside_call,
    is_watched,
    patch,
    tell,
    tell_missed,
    unseen,
)
from heedmap.watch.sdpa import both

_MODULE = "transformers.modeling_utils"


class Asked:
    """One call of an attention function: what the layer gave it, and what was seen behind it."""

    def __init__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any = None,
        **options: Any,
    ) -> None:
        """Hold the arguments."""
        self.module, self.query, self.key, self.value = module, query, key, value
        self.mask, self.options = attention_mask, options
        self.found = False
        self.weights: Callable[[], Tensor | None] | None = None

    @property
    def is_causal(self) -> bool:
        """Whether nothing but the flag says that later keys are hidden."""
        flag = self.options.get("is_causal")
        flag = getattr(self.module, "is_causal", True) if flag is None else flag
        return bool(flag) and self.mask is None and self.query.shape[2] > 1

    def completed(self, call: Call) -> Call:
        """Return a call seen behind this one, with query, key and masks as the layer made them.

        A kernel may have been given one query of several heads as several queries of one, heads
        repeated, and a bias and a mask added up.
        """
        keys = call.key.shape[2]
        as_asked = call.query.shape == self.query.shape and call.key.shape == self.key.shape
        bias = self.options.get("position_bias")
        if call.dense is not None or (as_asked and bias is None):
            return call
        if keys > self.key.shape[2] or call.query.numel() != self.query.numel():
            return call
        batch, heads, queries, _ = self.query.shape
        sizes = Extent(batch, heads, queries, keys)
        if call.door != "softmax" and (self.mask is not None or bias is not None):
            given = None if self.mask is None else self.mask[..., :keys]
            call.mask, call.bias = here.reader.read(given, sizes)
            if self.is_causal:
                call.mask = Causal(alignment="start")
            if bias is not None:
                call.bias = _sum(call.bias, here.reader.read(bias[..., :keys], sizes).bias)
        call.turn_output(lambda output: output.reshape(*sizes[:3], -1))
        call.lead = (sizes[0], sizes[1])
        call.query = self.query
        call.key, call.value = self.key[:, :, :keys], self.value[:, :, :keys]
        return call


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second


def deliver(call: Call) -> None:
    """Tell about a call, by itself or as what was seen behind an attention function."""
    asked: Asked | None = here.interface
    if asked is None:
        tell(call)
        return
    asked.found = True
    asked.weights = tell(asked.completed(call))


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for an attention function, which is called as ever."""
    if hasattr(function, "asks_for"):
        return function

    @functools.wraps(function)
    def ask(*args: Any, **kwargs: Any) -> Any:
        if here.inside_call or not is_watched():
            return function(*args, **kwargs)
        try:
            asked = Asked(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)
        before, here.interface = here.interface, asked
        options = dict(kwargs)
        if function.__module__.startswith("transformers.integrations"):
            # Fused ones have no weights to give, and say so wherever they are asked.
            options.pop("output_attentions", None)
        try:
            result = _run(function, asked, args, options)
        finally:
            here.interface = before
        if isinstance(result, tuple) and len(result) == 2 and asked.weights is not None:
            weights = asked.weights() if _wants_weights(kwargs) else None
            return result if weights is None else (result[0], weights)
        return result

    ask.asks_for = function  # pyright: ignore[reportAttributeAccessIssue]
    return ask


def _wants_weights(kwargs: dict[str, Any]) -> bool:
    """Return whether the model was asked to put its attention out.

    It asks its layers by an argument, or collects what they return.
    """
    if kwargs.get("output_attentions"):
        return True
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:
        return True
    return any("attentions" in name for name in _active_collector.get() or {})


def _run(
    function: Callable[..., Any], asked: Asked, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call an attention function, and read what cannot be seen behind it from its arguments."""
    readers = {"flash_attention_forward": _read_flash, "flex_attention_forward": _read_flex}
    read = readers.get(function.__name__)
    if function.__module__ == "heedmap.parallel.sharing":
        tell_missed("attention", "ranks share the sequence: its maps are those of share()")
        with inside_call():
            return function(*args, **kwargs)
    if read is None:
        result = function(*args, **kwargs)
        if not asked.found:
            tell_missed(function.__name__, "it computes attention in a kernel of its own")
        return result
    with inside_call():
        call = attempt(function.__name__, lambda: read(asked))
        with unseen(), _compiled_as_ever():
            result = function(*args, **kwargs)
        if call:
            call.gives(result[0], lambda output: output.transpose(1, 2))
            asked.weights = tell(call)
    return result


def _compiled_as_ever() -> Any:
    """Return a block in which transformers may compile its flex_attention, as it does unwatched."""
    return torch.compiler.set_stance("default")


def _read_flash(asked: Asked) -> Call:
    """Return what a flash kernel is asked for: padding ``[batch, key]``, a window, a soft-cap."""
    queries, keys = asked.query.shape[2], asked.key.shape[2]
    options = asked.options
    flag = options.get("is_causal")
    causal = getattr(asked.module, "is_causal", True) if flag is None else flag
    mask = Causal(alignment="end") if causal and queries > 1 else None
    if options.get("sliding_window"):
        # A window of n holds the query's own place and the n - 1 before it.
        mask = both(mask, Window(before=options["sliding_window"] - 1, alignment="end"))
    if isinstance(asked.mask, Tensor):
        mask = both(mask, Padding(asked.mask[:, -keys:].bool()))
    return _call(asked, "flash_attention", mask=mask)


def _read_flex(asked: Asked) -> Call:
    """Return what flex_attention is asked for: functions of places, or tables to add."""
    if isinstance(asked.mask, Tensor):
        call = _call(asked, "flex_attention")
        given = asked.mask[..., : call.extent.keys]
        call.mask, call.bias = here.reader.read(given, call.extent)
    else:
        call = _call(asked, "flex_attention")
        if asked.mask is not None:
            blocks = asked.mask.as_tuple()
            call.mask = read_mask(here.reader, blocks, call.extent, call.query.device)
    if (bias := asked.options.get("position_bias")) is not None:
        call.bias = _sum(call.bias, bias)
    return call


def _call(asked: Asked, door: str, **options: Any) -> Call:
    return Call(
        door=door,
        query=asked.query,
        key=asked.key,
        value=asked.value,
        lead=tuple(asked.query.shape[:2]),
        scale=asked.options.get("scaling"),
        soft_cap=asked.options.get("softcap"),
        sinks=asked.options.get("s_aux"),
        dropout=asked.options.get("dropout", 0.0) > 0,
        **options,
    )


def hang() -> list[Undo]:
    """Put stand-ins before all attention functions, under the names that they have."""
    if _MODULE not in sys.modules:
        return []
    from transformers.modeling_utils import AttentionInterface

    def making(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def find(*args: Any, **kwargs: Any) -> Any:
            return _asking(method(*args, **kwargs))

        return find

    return [patch(AttentionInterface, name, making) for name in ("get_interface", "__getitem__")]
