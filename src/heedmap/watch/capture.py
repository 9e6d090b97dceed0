"""Attention of other people's models, taken where they call PyTorch for it.

For now one door is watched: `torch.nn.functional.scaled_dot_product_attention`, through which the
models of transformers attend with ``attn_implementation="sdpa"``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heedmap.attention_map import AttentionMap
from heedmap.errors import ModelError
from heedmap.masks import Causal, Mask, Visible


@dataclass(frozen=True, eq=False)
class Captured:
    """The weights of one call of attention.

    Attributes:
        name: The dotted name of the module that called, as `model.named_modules` has it; empty for
            the model itself.
        weights: ``[batch, heads, query, key]``, of copies of the call's query and key.
    """

    name: str
    weights: AttentionMap


@contextmanager
def capture(model: nn.Module) -> Iterator[list[Captured]]:
    """Yield a list that holds, once the block is left, each call of attention in its order.

    The model computes what it computes without this, on the kernel that it had. Weights are those
    before dropout. A mask of numbers that are all 0 or the least of their type, which is how some
    models hide a pair, hides it exactly.

    Args:
        model: Any module that attends through ``F.scaled_dot_product_attention``.

    Raises:
        ModelError: at the end of the block, if no call was made: the model was not run, has no
            softmax attention, or computes it by itself.

    Cost: a copy of query, key and mask of each call; the weights are not computed.

    Example:
        >>> class Model(nn.Module):
        ...     def forward(self, x):
        ...         return F.scaled_dot_product_attention(x, x, x)
        >>> model = Model()
        >>> with capture(model) as calls:
        ...     output = model(torch.zeros(1, 2, 3, 4))
        >>> calls[0].weights.shape
        torch.Size([1, 2, 3, 3])
    """
    calls: list[Captured] = []
    inside: list[str] = []
    with _named_calls(model, inside), _Recorder(calls, inside):
        yield calls
    if not calls:
        raise ModelError(
            "model must attend through torch.nn.functional.scaled_dot_product_attention while it "
            f"is captured; got {type(model).__name__}, which made no such call. If it is a model "
            'of transformers, load it with attn_implementation="sdpa".'
        )


@contextmanager
def _named_calls(model: nn.Module, inside: list[str]) -> Iterator[None]:
    """Keep in `inside` the names of the modules that are being run, the innermost last."""

    def entering(name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            inside.append(name)

        return enter

    def leave(*_: Any) -> None:
        inside.pop()

    hooks = []
    try:
        for name, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(entering(name), prepend=True))
            # Called even when the module raises, so that the names stay in step.
            hooks.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Recorder(TorchFunctionMode):
    """Takes note of each call of attention and lets it through unchanged."""

    def __init__(self, calls: list[Captured], inside: list[str]) -> None:
        super().__init__()
        self._calls = calls
        self._inside = inside

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            name = self._inside[-1] if self._inside else ""
            # Before the call: what comes after it may overwrite query and key in place.
            self._calls.append(Captured(name, _map_of_call(*args, **kwargs)))
        return func(*args, **kwargs)


def _map_of_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionMap:
    """Return the weights of a call of ``scaled_dot_product_attention`` with these arguments."""
    del value, dropout_p, enable_gqa
    mask: Mask | None = Causal(alignment="start") if is_causal else None
    bias = None
    if attn_mask is not None:
        hidden = _hidden(attn_mask)
        if hidden is None:
            bias = _four_dimensional(attn_mask.detach().clone())
        else:
            mask = Visible(_four_dimensional(~hidden))
    with torch.no_grad():
        return AttentionMap.from_factors(
            query.detach().clone(), key.detach().clone(), mask=mask, bias=bias, scale=scale
        )


def _hidden(mask: Tensor) -> Tensor | None:
    """Return which pairs a mask hides, or None where it holds scores to add."""
    if mask.dtype == torch.bool:
        return ~mask
    hidden = mask <= torch.finfo(mask.dtype).min
    return hidden if bool((hidden | (mask == 0)).all()) else None


def _four_dimensional(mask: Tensor) -> Tensor:
    """Return a mask as [batch, heads, query, key]; PyTorch reads one of three as heads first."""
    return mask[(None,) * (4 - mask.ndim)]
