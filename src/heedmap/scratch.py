"""Memory for tiles that stays in use from block to block: fresh pages cost more than the work."""

import math
import threading

import torch
from torch import Tensor

from heedmap.places import CELLS, Block

KEPT_CELLS = 2 * CELLS
"""For tiles of so many cells it stays in use between calls: 16 MiB for two, in float32."""

_kept = threading.local()


def two_tiles(block: Block, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return room for two tiles, the same for every block and call of a thread."""
    shape = tuple(len(numbers) for numbers in block)
    cells = math.prod(shape)
    held: Tensor | None = getattr(_kept, "cells", None)
    if held is None or held.shape[1] < cells or (held.dtype, held.device) != (dtype, device):
        with torch.inference_mode(False):
            held = torch.empty((2, max(cells, CELLS)), dtype=dtype, device=device)
        _kept.cells = held
    return held[0, :cells].view(shape), held[1, :cells].view(shape)


def let_go() -> None:
    """Give back what is larger than is worth keeping."""
    held: Tensor | None = getattr(_kept, "cells", None)
    if held is not None and held.shape[1] > KEPT_CELLS:
        del _kept.cells
