"""What ranks compare of masks and numbers that must be the same everywhere: words, not cells."""

from dataclasses import Field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from heedmap.masks import Mask
from heedmap.places import CELLS


def described(given: Any) -> str:
    """Return words that are the same for the same mask, tensor, index or plain value.

    >>> described(None), described(range(3))
    ('None', 'range(0, 3)')
    """
    if isinstance(given, Tensor):
        return (
            f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)} #{_checksum(given):x}"
        )
    if isinstance(given, tuple | list):
        return f"({', '.join(map(described, given))})"
    if isinstance(given, Mask):
        parts = [f"{part.name}={described(getattr(given, part.name))}" for part in _fields(given)]
        return f"{type(given).__name__}({', '.join(parts)})"
    if given is None or isinstance(given, bool | int | float | str | range):
        return repr(given)
    return type(given).__name__


def _fields(mask: Mask) -> tuple[Field[Any], ...]:
    return fields(mask) if is_dataclass(mask) else ()


def _checksum(tensor: Tensor) -> int:
    """Return a number that is unlikely to be the same for other contents, or another order."""
    total = torch.zeros((), dtype=torch.long, device=tensor.device)
    flat = tensor.detach().reshape(-1)
    if flat.is_floating_point():
        # Of simple numbers only the upper bits are not 0, and those would be cut off.
        flat = flat.double().view(torch.long)
        flat = flat ^ (flat >> 32)
    for number, part in enumerate(flat.split(CELLS)):
        places = torch.arange(len(part), device=part.device)
        # Whole numbers run over, and do so alike everywhere.
        mixed = (part.long() + 1) * (2 * places + 0x9E3779B97F4A7C1) * (2 * places + 1)
        total = total * 0x100000001B3 + mixed.sum() + number
    return int(total) & 0xFFFFFFFFFFFF
