"""Tensors that grow step by step, as the keys of a decoding do."""

import torch
from torch import Tensor


class Growing:
    """A tensor that grows along its third dimension without being copied at each step."""

    def __init__(self, first: Tensor) -> None:
        """Begin with a copy."""
        self.room = first.clone(memory_format=torch.contiguous_format)
        self.length = first.shape[2]

    def append(self, more: Tensor) -> None:
        """Add copies at the end."""
        length = self.length + more.shape[2]
        if length > self.room.shape[2]:
            shape = list(self.room.shape)
            shape[2] = max(2 * shape[2], length)
            room = self.room.new_empty(shape)
            room[:, :, : self.length] = self.room[:, :, : self.length]
            self.room = room
        self.room[:, :, self.length : length] = more
        self.length = length

    def cut(self, length: int) -> None:
        """Forget what lies behind."""
        self.length = length

    def reorder(self, rows: Tensor) -> None:
        """Let each row of the batch go on from another one."""
        self.room = self.room[rows]

    @property
    def tensor(self) -> Tensor:
        """What there is, safe from what is appended later."""
        # Another counter of writes: appending writes behind the end of this view.
        return self.room.data[:, :, : self.length]

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self.room.nbytes
