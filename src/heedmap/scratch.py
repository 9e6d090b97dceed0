"""Memory that stays in use from block to block: fresh pages cost more than what is done in them."""

import itertools
import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from heedmap.places import CELLS

KEPT_CELLS = 6 * CELLS
"""So much of it stays in use between calls: 24 MiB in float32, for each thread."""

_kept = threading.local()


def rooms(
    shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Return room for tensors of these shapes, the same for every call of a thread."""
    cells = [math.prod(shape) for shape in shapes]
    ends = list(itertools.accumulate(cells))
    held: Tensor | None = getattr(_kept, "cells", None)
    if held is None or len(held) < ends[-1] or (held.dtype, held.device) != (dtype, device):
        with torch.inference_mode(False):
            held = torch.empty(ends[-1], dtype=dtype, device=device)
        _kept.cells = held
    places = zip(shapes, cells, ends, strict=True)
    return [held[end - count : end].view(shape) for shape, count, end in places]


def let_go() -> None:
    """Give back what is larger than is worth keeping."""
    held: Tensor | None = getattr(_kept, "cells", None)
    if held is not None and len(held) > KEPT_CELLS:
        del _kept.cells
