"""From dot product to score.

    score = soft_cap · tanh(query · key · scale / soft_cap) + bias

and, where there are sinks, one more term exp(sink) in the sum that the softmax divides by.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import ArgumentError, DTypeError, ShapeError
from heedmap.places import Places

ScoreChange = Callable[[Tensor, Places], Tensor]
"""A function of a block of scores, or of single ones, and of where they lie."""


@dataclass(frozen=True, eq=False)
class Scoring:
    """How a score is made of a dot product.

    Attributes:
        scale: The factor of the dot product.
        soft_cap: Scores are squashed into ±soft_cap before bias and mask; None for no cap.
        bias: Added to the scores, after the cap; sizes of 1 stand for all. −inf hides a pair.
        sinks: A score for each head that takes part in the softmax but belongs to no key, so that
            rows sum to less than 1.
        change: A function that the scores go through after cap and bias; None for none.
    """

    scale: float
    soft_cap: float | None = None
    bias: Float[Tensor, "#batch #heads #query #key"] | None = None
    sinks: Float[Tensor, " heads"] | None = None
    change: ScoreChange | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a score is a scaled dot product and nothing else."""
        return self.soft_cap is None and self.bias is None and self.change is None


def make_scoring(
    *,
    head_dim: int,
    sizes: tuple[int, int, int, int],
    scale: float | None,
    soft_cap: float | None,
    bias: Tensor | None,
    sinks: Tensor | None,
    change: ScoreChange | None,
    dtype: torch.dtype,
) -> Scoring:
    """Return the checked scoring of a problem of `sizes` (batch, heads, queries, keys).

    Raises:
        ArgumentError: for a scale that is not finite, a cap that is not positive, or a bias or
            sink with +inf or NaN in it.
        ShapeError: for a bias or sinks of the wrong shape.
    """
    if scale is None:
        scale = 1 / math.sqrt(head_dim) if head_dim else 1.0
    elif not _is_number(scale):
        raise ArgumentError(f"scale must be a finite number; got {scale!r}.")
    if soft_cap is None and bias is None and sinks is None and change is None:
        return _plain(float(scale))
    if soft_cap is not None and not (_is_number(soft_cap) and soft_cap > 0):
        raise ArgumentError(f"soft_cap must be a finite number above 0; got {soft_cap!r}.")
    if bias is not None:
        bias = _checked_bias(bias, sizes)
    if sinks is not None:
        if tuple(sinks.shape) != (sizes[1],):
            raise ShapeError(f"sinks must be [heads] = [{sizes[1]}]; got {list(sinks.shape)}.")
        _refuse_upper("sinks", sinks)
        sinks = sinks.to(dtype)
    return Scoring(float(scale), soft_cap, bias, sinks, change)


def _is_number(given: object) -> bool:
    """Return whether it is one finite number; a tensor of one number is, too."""
    try:
        return math.isfinite(given)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, RuntimeError):
        return False


@functools.lru_cache(maxsize=64)
def _plain(scale: float) -> Scoring:
    """Return the scoring that most problems share."""
    return Scoring(scale)


def _checked_bias(bias: Tensor, sizes: tuple[int, int, int, int]) -> Tensor:
    if not bias.is_floating_point():
        raise DTypeError(
            f"bias must be floating-point scores to add; got {bias.dtype}. "
            "What may be looked at is given as mask=."
        )
    if not 2 <= bias.ndim <= 4:
        raise ShapeError(
            "bias must be [query, key], [batch, query, key] or [batch, heads, query, key]; "
            f"got {list(bias.shape)}."
        )
    full = bias[:, None] if bias.ndim == 3 else bias[(None,) * (4 - bias.ndim)]
    if any(have not in (1, want) for have, want in zip(full.shape, sizes, strict=True)):
        raise ShapeError(
            f"bias must fit [batch, heads, query, key] = {list(sizes)}, where 1 stands for all; "
            f"got {list(bias.shape)}."
        )
    _refuse_upper("bias", full)
    return full


def _refuse_upper(name: str, scores: Tensor) -> None:
    # One reduction finds both: the maximum of anything with NaN in it is NaN.
    if scores.numel() and not float(scores.detach().amax()) < math.inf:
        raise ArgumentError(
            f"{name} must hold finite numbers or -inf (not visible); got +inf or NaN."
        )
