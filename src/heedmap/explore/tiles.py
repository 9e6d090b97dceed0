"""A tile as it goes over the wire; `docs/explore.md` says what its bytes mean."""

import ctypes
import struct

import torch
from jaxtyping import Float
from torch import Tensor

MAGIC = b"HMT1"
HEADER = struct.Struct("<4sBBHHHf")
EMPTY, FLOAT32 = 0, 2


def encode(values: Float[Tensor, "rows columns"], *, exact: bool) -> bytes:
    """Return a tile of these pixels; one in which all are exactly 0 is only a header.

    The largest value in the header is that of the pixels that are numbers; 0 if none is. Of an
    inexact tile nobody knows whether it is empty, so it is sent whole.
    """
    rows, columns = values.shape
    if exact and not bool(values.any()):
        return empty(rows, columns)
    values = values.detach().to("cpu", torch.float32).contiguous()
    numbers = values[values.isfinite()]
    largest = float(numbers.max()) if len(numbers) else 0.0
    return HEADER.pack(MAGIC, FLOAT32, exact, rows, columns, 0, largest) + bytes_of(values)


def empty(rows: int, columns: int) -> bytes:
    """Return a tile of which it is known that every weight in it is 0.

    >>> len(empty(256, 10))
    16
    """
    return HEADER.pack(MAGIC, EMPTY, True, rows, columns, 0, 0.0)


def bytes_of(tensor: Tensor) -> bytes:
    """Return the bytes of a contiguous tensor in main memory, as the processor has them.

    >>> bytes_of(torch.tensor([1.0]))
    b'\\x00\\x00\\x80?'
    """
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
