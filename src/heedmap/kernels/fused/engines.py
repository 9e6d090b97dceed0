"""PyTorch's kernels for GPUs, and in which form each gives its log-normaliser.

They take blocks in which nothing but a triangle is hidden. All count in natural logarithms.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.backends.cuda import (
    SDPAParams,
    can_use_cudnn_attention,
    can_use_efficient_attention,
    can_use_flash_attention,
)

Run = Callable[[Tensor, Tensor, Tensor, bool, float], tuple[Tensor, Tensor]]


class Engine(NamedTuple):
    """One of PyTorch's kernels.

    Attributes:
        name: What PyTorch calls it.
        can: Whether PyTorch would use it for such inputs, on this machine and with its switches.
        run: Returns output and log-normaliser of query, key and value, ``[batch, heads, positions,
            width]``; whether it is causal, which takes a square; and the scale.
        shares_heads: Whether it takes fewer heads of keys than of queries.
    """

    name: str
    can: Callable[[SDPAParams], bool]
    run: Run
    shares_heads: bool

    def takes(self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> bool:
        """Return whether it computes this block."""
        is_shared = key.shape[1] != query.shape[1]
        return self.can(SDPAParams(query, key, value, None, 0.0, is_causal, is_shared))


def _flash(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention.default
    output, normalizer = kernel(query, key, value, 0.0, is_causal, False, scale=scale)[:2]
    # Some versions round the number of rows up.
    return output, normalizer[:, :, : query.shape[2]]


def _cudnn(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    found = kernel(query, key, value, None, True, 0.0, is_causal, False, scale=scale)
    # It has one more dimension, of size 1.
    return found[0], found[1].reshape(query.shape[:3])


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention.default
    output, normalizer = kernel(query, key, value, None, True, 0.0, is_causal, scale=scale)[:2]
    # The number of rows is rounded up to a multiple of 32, and what lies behind is not set.
    return output, normalizer[:, :, : query.shape[2]]


ENGINES = (
    Engine("flash", can_use_flash_attention, _flash, shares_heads=True),
    Engine("cuDNN", can_use_cudnn_attention, _cudnn, shares_heads=False),
    Engine("efficient", can_use_efficient_attention, _efficient, shares_heads=False),
)
"""In the order in which they are tried, which is PyTorch's own."""
