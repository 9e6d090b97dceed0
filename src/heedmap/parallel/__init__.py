"""Attention over a sequence that several processes share.

Each process has some of the queries, keys and values; `Layout` says which. Keys and values go from
process to process while each works on what it has, and the map that comes back has the shape of the
whole sequence. Processes are started with ``torchrun`` and connected by `torch.distributed`.
"""

from heedmap.parallel.attend import attention
from heedmap.parallel.layout import Layout

__all__ = ["Layout", "attention"]
