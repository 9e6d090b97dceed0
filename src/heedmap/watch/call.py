"""One call of attention, in one form whatever door of PyTorch it went through."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from heedmap.masks import Extent, Mask, Spans
from heedmap.scoring import ScoreChange

Form = Callable[[Tensor], Tensor]
"""Turns a tensor, without a change to its numbers but a linear one."""


@dataclass(eq=False, kw_only=True)
class Call:
    """What decided the weights of one call, and what it put out; the model's own tensors.

    Attributes:
        door: The function that the model called.
        query: ``[batch, heads, query, head_dim]``.
        key: ``[batch, kv_heads, key, head_dim]``.
        value: ``[batch, kv_heads, key, value_dim]``; None where the call does not show it.
        lead: The dimensions before query and key that the weights have in the model.
        mask: Who may look at whom.
        bias: Scores to add; no copy yet.
        scale: The factor of the dot products; None for 1/√head_dim.
        soft_cap: Scores are squashed into ± this.
        sinks: One score for each head that belongs to no key.
        score_change: A function that the scores went through.
        crosses: Whether keys come from another sequence, where the call itself says so.
        dense: The weights themselves, where their making was not understood.
        output: ``[batch, heads, query, value_dim]``; None where it is not to be had.
        edge: Where the gradient comes by of the tensor that the model goes on with.
        form: Makes of that gradient the one of the output.
        dropout: Whether the output was made with some weights dropped.
        understood: Whether query, key and the rest are known to give the weights.
        fresh: How many queries the model made, where not all of them are kept.
        first: Which of them is the first that is kept.
        part: The name of the module that should have been run, where it was passed by.
    """

    door: str
    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch kv_heads key head_dim"]
    value: Float[Tensor, "batch kv_heads key value_dim"] | None = None
    lead: tuple[int, ...]
    mask: Mask | None = None
    bias: Float[Tensor, "..."] | None = None
    scale: float | None = None
    soft_cap: float | None = None
    sinks: Float[Tensor, " heads"] | None = None
    score_change: ScoreChange | None = None
    crosses: bool | None = None
    dense: Float[Tensor, "batch heads rows columns"] | None = None
    output: Float[Tensor, "batch heads query value_dim"] | None = None
    edge: GradientEdge | None = None
    form: Form = lambda gradient: gradient
    dropout: bool = False
    understood: bool = True
    fresh: int | None = None
    first: int = 0
    part: str = ""

    @property
    def extent(self) -> Extent:
        """Batch, heads, queries, keys."""
        batch, heads, queries, _ = self.query.shape
        return Extent(batch, heads, queries, self.key.shape[2])

    def gives(self, result: Tensor, form: Form) -> None:
        """Note what the model goes on with, and how it becomes the output, as its gradient does."""
        self.output = form(result)
        self.goes_on_with(result, form)

    def goes_on_with(self, result: Tensor, form: Form) -> None:
        """Note the tensor whose gradient tells that of the output."""
        self.form = form
        self.edge = get_gradient_edge(result) if result.requires_grad else None

    def turn_output(self, turn: Form) -> None:
        """Note that the output has another form than was thought."""
        if self.output is not None:
            form, self.output = self.form, turn(self.output)
            self.form = lambda result: turn(form(result))


def stacked(tensor: Tensor, lead: tuple[int, ...]) -> Shaped[Tensor, "batch heads positions dim"]:
    """Return ``[..., positions, dim]`` with its leading dimensions spread to `lead`, as two."""
    tensor = tensor.expand(*lead, *tensor.shape[-2:])
    if len(lead) == 2:
        return tensor
    if len(lead) < 2:
        return tensor.reshape(-1, 1, *tensor.shape[-2:])
    return tensor.flatten(0, len(lead) - 2)


def lead_of_keys(lead: tuple[int, ...], *tensors: Tensor) -> tuple[int, ...]:
    """Return the leading dimensions of key and value: with one head, where all queries share it."""
    shared = len(lead) > 1 and all(t.ndim > 2 and t.shape[-3] == 1 for t in tensors)
    return (*lead[:-1], 1) if shared else lead


def in_working_type(tensor: Tensor) -> Tensor:
    """Return a factor in the type in which a product takes it, which autocast decides."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.double:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def without_nesting(tensor: Tensor) -> tuple[Tensor, Int[Tensor, " batch"] | None]:
    """Return a nested tensor padded with zeros and the lengths of its samples; None for others.

    Args:
        tensor: Ordinary, or nested with samples ``[..., positions, dim]``.
    """
    if not tensor.is_nested:
        return tensor, None
    samples = tensor.unbind()
    lengths = [sample.shape[-2] for sample in samples]
    longest = max(lengths, default=0)
    padded = [
        F.pad(sample, (0, 0, 0, longest - length))
        for sample, length in zip(samples, lengths, strict=True)
    ]
    return torch.stack(padded), torch.tensor(lengths)


def ragged(
    queries: Int[Tensor, " batch"] | None, keys: Int[Tensor, " batch"] | None, longest: int
) -> Mask | None:
    """Return the mask of nested samples: what lies behind the end of one neither sees nor is seen.

    Args:
        queries: How many there are in each sample.
        keys: Likewise.
        longest: How many queries the longest sample has.
    """
    if queries is None or keys is None:
        return None
    is_real = torch.arange(longest) < queries[:, None]
    last = torch.where(is_real, keys[:, None] - 1, -1)
    return Spans(torch.zeros_like(last)[:, None], last[:, None])
