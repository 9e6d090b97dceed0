"""Attention over a sequence that several processes share.

Each process has some of the queries, keys and values; `Layout` says which. Keys and values go from
process to process while each works on what it has, and the map that comes back has the shape of the
whole sequence. Processes are started with ``torchrun`` and connected by `torch.distributed`.

`start` gives the mesh that everything else takes, and sees to it that a process that is gone is
named; `share` is for models of transformers; `save` writes a map, each process its part.
"""

from heedmap.parallel.attend import attention
from heedmap.parallel.layout import Layout
from heedmap.parallel.saving import save
from heedmap.parallel.sharing import share
from heedmap.parallel.starting import start, stop

__all__ = ["Layout", "attention", "save", "share", "start", "stop"]
