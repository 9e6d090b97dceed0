"""Problems that ranks share, each with what one process finds by the plain formula in float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Visible, Window
from heedmap.masks import Spans
from heedmap.parallel import Layout

LENGTH, BATCH, WIDTH, VALUE_WIDTH = 41, 2, 6, 5

LAYOUTS: dict[str, Callable[[int], Layout]] = {
    "even": lambda ranks: Layout.even(LENGTH, ranks),
    "zig-zag": lambda ranks: Layout.zigzag(LENGTH, ranks),
    "uneven": lambda ranks: Layout.of_lengths([LENGTH - 5 * (ranks - 1), *[5] * (ranks - 1)]),
    "one has none": lambda ranks: Layout.of_lengths([0, *_rest(ranks - 1)]),
    "mixed": lambda ranks: Layout(
        (
            (range(30, 41), range(2), range(9, 11)),
            (range(2, 9), range(11, 30)),
            *[()] * (ranks - 2),
        )
    ),
}


def _rest(ranks: int) -> list[int]:
    return [LENGTH // ranks] * (ranks - 1) + [LENGTH - LENGTH // ranks * (ranks - 1)]


def _draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


VALID = torch.ones(BATCH, LENGTH, dtype=torch.long)
VALID[0, 33:] = 0
VALID[1, :12] = 0
IDS = torch.arange(LENGTH).expand(BATCH, LENGTH) // 13
FIRST = (torch.arange(LENGTH) - 6).clamp(min=0)[None, None]


@dataclass(frozen=True)
class Case:
    """What is particular about a problem, and how it lies on the ranks."""

    layout: str = "even"
    mask: Callable[[], Mask | Tensor | None] = lambda: None
    heads: tuple[int, int] = (2, 2)
    options: dict[str, Any] = field(default_factory=dict)
    spoilt: bool = False


CASES = {
    "plain": Case(),
    "causal": Case("zig-zag", Causal),
    "causal, uneven": Case("uneven", Causal, (4, 2)),
    "padded": Case("uneven", lambda: Padding(VALID), (4, 2)),
    "padded and causal, spoilt": Case("even", lambda: Padding(VALID) & Causal(), spoilt=True),
    "window": Case("even", lambda: Window(before=4, after=2)),
    "causal window": Case("mixed", lambda: Causal() & Window(before=7)),
    "documents": Case("zig-zag", lambda: Documents(IDS) & Causal()),
    "spans": Case("mixed", lambda: Spans(FIRST, FIRST + 4, VALID.bool())),
    "table": Case("zig-zag", lambda: Visible(_draw(BATCH, 1, LENGTH, LENGTH) > 0.7)),
    "a bare table": Case("one has none", lambda: _draw(LENGTH, LENGTH) > 0.7),
    "either": Case("even", lambda: Padding(VALID) | Window(before=0)),
    "soft cap, sinks": Case("mixed", Causal, (4, 1), {"soft_cap": 1.5, "sinks": (4,)}),
    "bias": Case("zig-zag", Causal, (2, 2), {"bias": (BATCH, 1, LENGTH, LENGTH), "scale": 0.3}),
    "bias of keys, sinks": Case("one has none", options={"bias": (1, LENGTH), "sinks": (2,)}),
    "nothing to see": Case("even", lambda: Visible(torch.zeros(LENGTH, LENGTH).bool())),
}


@dataclass
class Whole:
    """A problem in one process, in float64, and its map by the plain formula."""

    inputs: list[Tensor]
    options: dict[str, Any]
    output: Tensor
    weights: AttentionMap


def whole(case: Case, dtype: torch.dtype = torch.float64, factor: float = 1.0) -> Whole:
    """Return the problem with inputs that have the digits of `dtype`."""
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn.to(dtype).double()

    heads, kv_heads = case.heads
    inputs = [
        draw(BATCH, heads, LENGTH, WIDTH) * factor,
        draw(BATCH, kv_heads, LENGTH, WIDTH),
        draw(BATCH, kv_heads, LENGTH, VALUE_WIDTH),
    ]
    if case.spoilt:
        hidden = ~VALID.bool()[:, None, :, None]
        inputs[1] = inputs[1].masked_fill(hidden, math.nan)
        inputs[2] = inputs[2].masked_fill(hidden, math.inf)
    options = {"mask": case.mask(), **case.options}
    for name in ("bias", "sinks"):
        if name in options:
            options[name] = draw(*options[name])
    inputs = [tensor.requires_grad_() for tensor in inputs]
    for name in ("bias", "sinks"):
        if name in options:
            inputs.append(options[name].requires_grad_())
    output, weights = heedmap.attention(*inputs[:3], **options, backend="reference")
    return Whole(inputs, options, output, weights)


def shards_of(problem: Whole, layout: Layout, rank: int, dtype: torch.dtype) -> list[Tensor]:
    """Return a rank's part of the inputs, as leaves of their own."""
    parts = []
    for number, tensor in enumerate(problem.inputs):
        part = tensor.detach().to(dtype)
        if number < 3 or (part.ndim == 4 and part.shape[2] == LENGTH):
            part = layout.shard(part, rank, dim=2)
        if number < 3:
            # As layers give them: heads lie within positions.
            part = part.transpose(1, 2).contiguous().transpose(1, 2)
        parts.append(part.clone(memory_format=torch.preserve_format).requires_grad_())
    return parts


def some_values() -> Tensor:
    """Return values for a product, of which a gradient is wanted."""
    drawn = torch.linspace(-1, 1, 3 * LENGTH, dtype=torch.float64).reshape(3, LENGTH)
    return drawn.mT.requires_grad_()


def questions(weights: AttentionMap, values: Tensor) -> dict[str, Tensor]:
    """Ask a map everything that is answered whole."""
    top = weights.topk(3)
    lines = torch.tensor([0, 17, LENGTH - 1])
    return {
        "row sums": weights.sum(-1),
        "received": weights.received(),
        "entropy": weights.entropy(),
        "top": top.values,
        "top keys": top.indices,
        "smallest": weights.topk(2, largest=False).values,
        "largest": weights.amax(-1),
        "any above": (weights > 0.3).amax(-1).double(),
        "smallest of marks": (weights > 0).amin(-1).double(),
        "picture": weights.pool(7, 5),
        "picture of largest": weights.pool(4, 4, "max"),
        "product": weights @ values,
        "log-normaliser": weights.log_normalizer,
        "a row": weights[1, -1, 20].to_dense(),
        "a column": weights[..., 3].to_dense(),
        "a block": weights[:, 1, lines, 5:30:4].to_dense(),
        "diagonal": weights.diagonal(-1, -2, -1),
        "head mean": weights.mean(1).received(),
        "head mean, top": weights.mean(1).topk(2).values,
        "one head": weights[1, 0].entropy(),
        "some rows": weights[0, :, 10:30].received(),
        "by hand": (weights * weights.log_weights.masked_fill(weights == 0, 0)).sum(-1),
        "squares": weights.square().sum(-2),
        "dense": weights.to_dense(),
    }


PLAIN = {"top keys", "smallest", "picture of largest"}
"""What has no gradient, or one that is of no matter."""


def loss_of(output: Tensor, answers: dict[str, Tensor], up: Tensor) -> Tensor:
    """Return a loss of an output, with its own factors, and of every answer."""
    total = (output * up).sum()
    for number, (name, answer) in enumerate(answers.items()):
        if name not in PLAIN:
            seen = answer.masked_fill(~torch.isfinite(answer), 0)
            ramp = torch.arange(seen.numel(), dtype=seen.dtype).remainder(7).reshape(seen.shape)
            total = total + (seen * (ramp - 2)).sum() * (number + 1) / 10
    return total
