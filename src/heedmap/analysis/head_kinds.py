"""A plain name for each head of a model."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import overload

from jaxtyping import Bool, Float
from torch import Tensor

from heedmap import axes
from heedmap.analysis.figures import measure
from heedmap.analysis.kind_rules import HeadKind, kind_of
from heedmap.analysis.layers import layers_of
from heedmap.errors import ArgumentError, ShapeError


@overload
def head_kinds(
    maps: Float[Tensor, "*one heads positions positions"],
    axis: axes.Axis | None = None,
    *,
    features: axes.Sequence | None = None,
    sounding: Bool[Tensor, " _"] | None = None,
) -> list[HeadKind]: ...


@overload
def head_kinds(
    maps: Sequence[Float[Tensor, "*one _ positions positions"]],
    axis: axes.Axis | None = None,
    *,
    features: axes.Sequence | None = None,
    sounding: Bool[Tensor, " _"] | None = None,
) -> list[list[HeadKind]]: ...


def head_kinds(
    maps: Float[Tensor, "*one heads positions positions"]
    | Sequence[Float[Tensor, "*one _ positions positions"]],
    axis: axes.Axis | None = None,
    *,
    features: axes.Sequence | None = None,
    sounding: Bool[Tensor, " _"] | None = None,
) -> list[HeadKind] | list[list[HeadKind]]:
    """Return what each head does, in plain words, by the rules that `heedmap look` uses.

    `heedmap.analysis.RULES` states them. They speak of where the weight goes on average (“self”,
    “previous token”, “first position (sink)”, “repeated word”, “similar sound”, “broad” …), never
    of why. Means are over all queries; one that may look at nothing counts with 0.

    Args:
        maps: One map, or a sequence of them, one per layer: ``[heads, query, key]``, or the same
            with a batch of 1. Cut padding away first.
        axis: What the positions are. Tokens add special tokens and repeated words; sound and film
            what is nearby. Without it, positions are bare numbers.
        features: For sound and film, plain features of it (``media.sequence()``), at times of their
            own: they add “same segment” and “similar sound” or “similar picture”.
        sounding: For sound, which positions of `features` are not silent; None for all. Silence is
            alike everywhere, and not compared.

    Returns:
        ``kinds[head]`` for one map, ``kinds[layer][head]`` for a sequence. Each says on which
        number its name rests, and keeps all the others in ``figures``.

    Raises:
        ArgumentError: for no maps, features of something else than the axis, or weights that are
            not finite.
        ShapeError: for maps that are not square or of several samples, or an axis that does not
            fit them.
        DTypeError: for maps that hold no floating-point numbers.

    Cost: one pass over each layer, or two with `features`, on the CPU in float32; memory of a few
    strips of 4 million weights. Not differentiable.

    Example:
        >>> import torch
        >>> previous = torch.eye(5).roll(-1, dims=1)
        >>> even = torch.full((5, 5), 0.2)
        >>> for kind in head_kinds(torch.stack([previous, even])):
        ...     print(kind)
        previous position (on_previous 1.00)
        broad (evenness 1.00)
    """
    layers = _checked(maps, axis, features, sounding)
    axis = axes.Axis.of_positions(layers[0].shape[-1]) if axis is None else axis
    figures = measure(layers, axis, features, sounding)
    for found in figures:
        if not math.isfinite(found.entropy_nats):
            raise ArgumentError(
                f"maps must hold finite weights; got NaN in layer {found.layer}, head {found.head}."
            )
    kinds = [
        [kind_of(found, axis.kind) for found in group]
        for _, group in groupby(figures, lambda found: found.layer)
    ]
    return kinds[0] if isinstance(maps, Tensor) else kinds


def _checked(
    maps: Tensor | Sequence[Tensor],
    axis: axes.Axis | None,
    features: axes.Sequence | None,
    sounding: Tensor | None,
) -> list[Tensor]:
    layers = layers_of([maps] if isinstance(maps, Tensor) else maps, square=True)
    batch, size = layers[0].shape[:-3], layers[0].shape[-1]
    if batch.numel() != 1:
        raise ShapeError(
            f"maps must be of one sample; got a batch of {batch[0]}. Choose one first: weights[0]."
        )
    if not size:
        raise ShapeError("maps must have at least one position; got none.")
    if axis is not None and len(axis) != size:
        raise ShapeError(f"axis must have one label for each of {size} keys; got {len(axis)}.")
    if axis is not None and axis.kind != "position" and not axis.spans:
        raise ArgumentError("axis must have spans for tokens, sound and film; got none.")
    if features is not None and (
        axis is None or axis.unit != "second" or axis.kind != features.axis.kind
    ):
        raise ArgumentError(
            "features must be of the sound or film that axis has the times of; got "
            f"{features.axis.kind} for {'no axis' if axis is None else axis.kind}."
        )
    if sounding is not None and (features is None or len(sounding) != len(features.axis)):
        got = "no features" if features is None else f"{len(features.axis)} of them"
        raise ShapeError(
            f"sounding must be one for each position of features; got {len(sounding)} for {got}."
        )
    return [weights[0] if batch else weights for weights in layers]
