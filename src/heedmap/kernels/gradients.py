"""What a backward pass gives back."""

from typing import NamedTuple

from torch import Tensor


class Gradients(NamedTuple):
    """The gradients of a problem's tensors and of its value; None for what was not asked for."""

    query: Tensor
    key: Tensor
    bias: Tensor | None
    sinks: Tensor | None
    value: Tensor
