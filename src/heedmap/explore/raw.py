"""The memory of a tensor as bytes, without NumPy."""

import ctypes

from torch import Tensor


def view_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor in main memory, as the processor has them.

    What is written into them stands in the tensor, which lives as long as they do.

    Example:
        >>> import torch
        >>> view_of(torch.tensor([1.0])).tobytes()
        b'\\x00\\x00\\x80?'
    """
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(bytearray())
    memory = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    # The view holds `memory`, so that holds the tensor.
    vars(memory)["tensor"] = tensor
    return memoryview(memory).cast("B")
