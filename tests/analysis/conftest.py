"""Small axes and maps that the tests make themselves."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from heedmap import Axis


def tokens(words: Sequence[str]) -> Axis:
    """Return the axis of words with blanks between them; <…> stands for no character."""
    spans, text = [], ""
    for word in words:
        if word.startswith("<"):
            spans.append((len(text), len(text)))
            continue
        spans.append((len(text), len(text) + len(word)))
        text += word + " "
    return Axis.of_tokens(text, words, spans)


Factors = tuple[Tensor, Tensor]


def factors(*shape: int, seed: int = 0) -> Factors:
    """Return a query and a key of this shape."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def plain_weights(query: Tensor, key: Tensor, visible: Tensor | None = None) -> Tensor:
    """Return the weights by the plain formula in float64; 0 where a row sees nothing."""
    scores = query.double() @ key.double().mT / math.sqrt(query.shape[-1])
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(-1).nan_to_num(0.0)
