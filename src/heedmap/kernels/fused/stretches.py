"""A causal mask and padding, as blocks that kernels compute which know no mask.

Where the keys of a sample that may be seen are neighbours, the triangle of a causal mask and the
rectangles beside it are all there is. Their results are merged by their log-normalisers.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from heedmap.masks import Causal, Padding, parts_of
from heedmap.problem import Problem


class Stretch(NamedTuple):
    """A block of some samples, in which every query sees all keys, or those up to its own place.

    A causal one is square.
    """

    samples: slice
    rows: slice
    keys: slice
    is_causal: bool

    def is_whole(self, problem: Problem) -> bool:
        """Return whether there is nothing else in the problem."""
        batch, _, queries, keys = problem.extent
        return self[:3] == (slice(0, batch), slice(0, queries), slice(0, keys))

    def cut(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parts of query, key and value that the block is made of."""
        return (
            query[self.samples, :, self.rows],
            key[self.samples, :, self.keys],
            value[self.samples, :, self.keys],
        )


def stretches_of(problem: Problem) -> list[Stretch] | None:
    """Return the blocks that a problem is made of, None where it is not made of such."""
    parts = parts_of(problem.mask)
    if any(type(part) not in (Causal, Padding) for part in parts):
        return None
    offsets = [part.offset for part in parts if isinstance(part, Causal)]
    seen = _valid_keys(problem)
    if seen is None:
        return None
    queries = problem.extent.queries
    found: list[Stretch] = []
    for samples, start, stop in seen:
        if not offsets:
            found.append(Stretch(samples, slice(0, queries), slice(start, stop), False))
        else:
            found += _causal(samples, queries, start, stop, min(offsets))
    return found


def _causal(samples: slice, queries: int, start: int, stop: int, offset: int) -> list[Stretch]:
    """Return the blocks of a causal mask over the keys from `start` to `stop`."""
    # Before the first row nothing is seen; from `below` on, everything.
    first = min(max(start - offset, 0), queries)
    below = max(first, min(queries, stop - offset))
    corner = first + offset
    triangle = slice(first, below)
    found = [
        Stretch(samples, triangle, slice(start, corner), False),
        Stretch(samples, triangle, slice(corner, below + offset), True),
        Stretch(samples, slice(below, queries), slice(start, stop), False),
    ]
    return [part for part in found if _size(part.rows) and _size(part.keys)]


def _size(part: slice) -> int:
    return part.stop - part.start


def _valid_keys(problem: Problem) -> list[tuple[slice, int, int]] | None:
    """Return samples with the stretch of keys that they see; None where one sees no stretch."""
    batch, _, _, keys = problem.extent
    valid = None
    for part in parts_of(problem.mask):
        if isinstance(part, Padding):
            valid = part.valid if valid is None else valid & part.valid
    if valid is None:
        return [(slice(0, batch), 0, keys)]
    # From its first on, a stretch of as many keys as are valid has all of them.
    counts, first = valid.sum(1), valid.byte().argmax(1)
    last = (first + counts - 1).clamp(min=0)
    if not torch.equal(valid.cumsum(1).gather(1, last[:, None])[:, 0], counts):
        return None
    ends = list(zip(first.tolist(), (first + counts).tolist(), strict=True))
    if len(set(ends)) == 1:
        found = [(slice(0, batch), *ends[0])]
    else:
        found = [(slice(sample, sample + 1), *pair) for sample, pair in enumerate(ends)]
    return [(samples, start, stop) for samples, start, stop in found if start < stop]
