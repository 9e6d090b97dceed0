"""Who may look at whom.

A mask says for each query and key whether the key is visible. True (or 1) means visible, here and
everywhere in heedmap; masks of the other polarity come in through the named converters. Masks are
combined with ``&`` (visible in both) and ``|`` (visible in either), and are never expanded to
query × key elements: a kernel asks for the block that it is working on.

Each mask answers three questions about blocks: `tile` (which pairs of this block are visible),
`key_range` (outside which keys nothing is visible to these queries), and `covers` (is all of this
block visible). The last two may err on the safe side. `bind` checks a mask against the sizes of a
problem, once, and settles what depends on them.
"""

import torch

from heedmap.masks.base import Both, Either, Extent, Mask, parts_of
from heedmap.masks.distances import Causal, Window
from heedmap.masks.positions import Documents, Padding, Visible
from heedmap.masks.spans import Spans
from heedmap.places import Places

__all__ = [
    "Both",
    "Causal",
    "Documents",
    "Either",
    "Extent",
    "Mask",
    "Padding",
    "Spans",
    "Visible",
    "Window",
    "parts_of",
    "show",
]


def show(mask: Mask, *, queries: int, keys: int) -> None:
    """Print a small mask as ones and zeros, for one sample and one head.

    >>> show(Causal() & Window(before=1), queries=3, keys=3)
    1 0 0
    1 1 0
    0 1 1
    """
    zero = torch.zeros(1, dtype=torch.long)
    places = Places.of_block(zero, 1, torch.arange(queries), torch.arange(keys))
    tile = mask.bind(Extent(1, 1, queries, keys)).tile(places).expand(1, queries, keys)
    for row in tile[0].int().tolist():
        print(*row)
