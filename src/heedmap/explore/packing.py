"""Bytes with an index in JSON, as `page/unpacking.js` reads them.

A length (uint32), the index, and pieces, each from a multiple of four on. The index says of each
piece where it begins, behind the index. Numbers are little-endian. Weights are float16, divided by
the largest of their piece; single weights, which are read as numbers, are float32.
"""

import json
import struct
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.explore.raw import view_of

ALIGNED = 4
SMALLEST = 2.0**-24
"""The smallest number of half precision above 0."""


class Pack:
    """What is packed so far.

    Attributes:
        index: What the JSON will be.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.index: dict[str, Any] = {}
        self._pieces: list[bytes] = []
        self._size = 0

    def copy(self) -> "Pack":
        """Return another pack with the same content, to which other things can be added."""
        made = Pack()
        made.index, made._pieces, made._size = dict(self.index), list(self._pieces), self._size
        return made

    def add(self, content: bytes) -> dict[str, Any]:
        """Add a piece, and return what the index must say of it."""
        place = {"at": self._size, "bytes": len(content)}
        padding = bytes(-len(content) % ALIGNED)
        self._pieces += [content, padding]
        self._size += len(content) + len(padding)
        return place

    def add_blocks(self, values: Float[Tensor, "rows columns"]) -> dict[str, Any]:
        """Add what blocks of weights have in common, and return what the index must say of it."""
        finite = values[values.isfinite()].abs()
        largest = float(finite.max()) if finite.numel() else 0.0
        scaled = (values.float() / (largest or 1.0)).half()
        # Exactly 0 is for what a mask hides.
        lost = (scaled == 0) & (values != 0)
        scaled[lost] = values[lost].sign().half() * SMALLEST
        rows, columns = values.shape
        said = {"bits": 16, "largest": largest, "rows": rows, "columns": columns}
        return self.add(_bytes_of(scaled)) | said

    def add_weights(self, weights: Float[Tensor, "rows columns"]) -> dict[str, Any]:
        """Add single weights with all their digits, and return what the index must say of them."""
        rows, columns = weights.shape
        return self.add(_bytes_of(weights.float())) | {"bits": 32, "rows": rows, "columns": columns}

    def add_strongest(
        self,
        weights: Float[Tensor, "lines count"],
        positions: Int[Tensor, "lines count"],
        sums: Float[Tensor, " lines"],
    ) -> dict[str, Any]:
        """Add the strongest weights of each row or column, their positions, and all sums."""
        return {
            "weights": self.add_weights(weights),
            "positions": self.add(_bytes_of(positions.to(torch.int32))),
            "sums": self.add(_bytes_of(sums.float())),
        }

    def content(self) -> bytes:
        """Return all of it."""
        head = json.dumps(self.index, separators=(",", ":"), allow_nan=False).encode()
        head += b" " * (-len(head) % ALIGNED)
        return b"".join([struct.pack("<I", len(head)), head, *self._pieces])


def _bytes_of(tensor: Tensor) -> bytes:
    tensor = tensor.contiguous()
    return view_of(tensor).tobytes()
