"""A tile as it goes over the wire; `docs/explore.md` says what its bytes mean."""

import struct
import threading
from collections import OrderedDict
from collections.abc import Hashable

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.explore.raw import view_of

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
    header = HEADER.pack(MAGIC, FLOAT32, exact, rows, columns, 0, largest)
    return header + view_of(values)


def empty(rows: int, columns: int) -> bytes:
    """Return a tile of which it is known that every weight in it is 0.

    >>> len(empty(256, 10))
    16
    """
    return HEADER.pack(MAGIC, EMPTY, True, rows, columns, 0, 0.0)


class Recent:
    """The tiles that were asked for last, so that going back to them costs nothing."""

    def __init__(self, most_bytes: int) -> None:
        """Keep up to so many bytes."""
        self._most_bytes, self._bytes = most_bytes, 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, address: Hashable) -> bytes | None:
        """Return a tile that is still there."""
        with self._lock:
            if address in self._kept:
                self._kept.move_to_end(address)
            return self._kept.get(address)

    def put(self, address: Hashable, tile: bytes) -> None:
        """Keep a tile, and let the one go that was asked for least lately."""
        with self._lock:
            self._bytes += len(tile) - len(self._kept.pop(address, b""))
            self._kept[address] = tile
            while self._bytes > self._most_bytes:
                self._bytes -= len(self._kept.popitem(last=False)[1])
