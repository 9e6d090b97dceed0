"""A hash of all that decides the cells of a map."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from heedmap.explore.prepared import Prepared
from heedmap.explore.raw import view_of
from heedmap.places import split

VERSION = 1
"""What is kept under a hash of another version is made in another way."""

PIECE = 1 << 22
"""How many numbers are hashed at a time, where they do not lie in order."""


class _HasNone(Exception):
    """Something, such as a function, has no content that could be hashed."""


def fingerprint(*parts: Any) -> str | None:
    """Return a hash of tensors, rules, masks and plain values; None if one of them has none.

    Cost: about a second for a gigabyte.

    Example:
        >>> fingerprint(torch.ones(2)) == fingerprint(torch.ones(2)) != fingerprint(torch.ones(3))
        True
        >>> fingerprint(print) is None
        True
    """
    digest = hashlib.blake2b(digest_size=20)
    try:
        for piece in _pieces((VERSION, *parts)):
            digest.update(piece)
    except _HasNone:
        return None
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    """Yield what is to be hashed, each thing behind the name of its kind."""
    yield f"<{type(value).__qualname__}>".encode()
    if isinstance(value, Tensor):
        yield from _pieces_of_tensor(value)
    elif isinstance(value, Prepared):
        yield from _pieces((value.problem, value.known))
    elif is_dataclass(value):
        for field in fields(value):
            if field.init:
                yield f"<{field.name}>".encode()
                yield from _pieces(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        yield f"{len(value)}".encode()
        for part in value:
            yield from _pieces(part)
    elif value is None or isinstance(
        value, bool | int | float | str | range | torch.dtype | torch.device
    ):
        yield repr(value).encode()
    else:
        raise _HasNone


def _pieces_of_tensor(tensor: Tensor) -> Iterator[bytes | memoryview]:
    yield f"{tensor.dtype}{list(tensor.shape)}".encode()
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            # What was expanded is in memory once.
            tensor = tensor.narrow(dim, 0, 1)
    if not tensor.numel():
        return
    tensor = tensor.detach()[None] if not tensor.ndim else tensor.detach()
    step = PIECE // max(tensor[0].numel(), 1)
    for some in split(len(tensor), step):
        piece = tensor[some.start : some.stop].cpu().contiguous()
        yield view_of(piece)
