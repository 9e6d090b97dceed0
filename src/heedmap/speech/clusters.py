"""Voices that belong together: a tree of how alike they are, cut into as many as may be.

Average linkage over cosine distances. Two voices of one window are two people who speak at the same
time or in turn, so they count as opposites, whatever their likeness.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from heedmap.errors import ArgumentError, MissingExtraError

OPPOSITE = 2.0
"""The largest cosine distance there is."""

NOBODY = -1
"""The cluster of a voice that belongs to none."""


@dataclass(frozen=True)
class SpeakerCount:
    """How many speakers there may be.

    Attributes:
        least: At least so many, as far as there are voices for them; 0 for any number.
        most: At most so many; None for any number.
    """

    least: int = 0
    most: int | None = None

    @classmethod
    def of(
        cls,
        speakers: int | None = None,
        min_speakers: int | None = None,
        max_speakers: int | None = None,
    ) -> "SpeakerCount":
        """Return the bounds that an exact number, or a least and a largest number, mean.

        Raises:
            ArgumentError: for numbers below 1, a least above the largest, and an exact number
                beside bounds.

        Example:
            >>> SpeakerCount.of(speakers=2)
            SpeakerCount(least=2, most=2)
            >>> SpeakerCount.of(max_speakers=4)
            SpeakerCount(least=0, most=4)
        """
        given = {
            "speakers": speakers,
            "min_speakers": min_speakers,
            "max_speakers": max_speakers,
        }
        for name, number in given.items():
            if number is not None and number < 1:
                raise ArgumentError(f"{name} must be a number of people, 1 or more; got {number}.")
        if speakers is not None:
            if min_speakers is not None or max_speakers is not None:
                raise ArgumentError(
                    "speakers must be given without min_speakers and max_speakers; got "
                    f"speakers {speakers}, min_speakers {min_speakers}, "
                    f"max_speakers {max_speakers}."
                )
            return cls(speakers, speakers)
        least = 0 if min_speakers is None else min_speakers
        if max_speakers is not None and max_speakers < least:
            raise ArgumentError(
                f"max_speakers must be no smaller than min_speakers; got {max_speakers} "
                f"and {least}."
            )
        return cls(least, max_speakers)


def clusters_of(
    points: Float[Tensor, "voices features"],
    window: Int[Tensor, " voices"],
    seconds: Float[Tensor, " voices"],
    *,
    threshold: float,
    count: SpeakerCount,
    least_seconds: float = 0.0,
) -> Int[Tensor, " voices"]:
    """Return which cluster each voice belongs to, counted from 0; `NOBODY` for stray voices.

    The tree is split from its top, always at the least likely joint, as long as that lies above the
    threshold or there are too few clusters. What is split off and lasts too short is a stray and no
    cluster. Where there would be too few clusters, it counts from half the length, a quarter, and
    so on; voices nearer than half the threshold are split only when that does not help, either.

    Args:
        points: One row for each voice, of any length above 0.
        window: The window in which it was heard.
        seconds: How long it was heard.
        threshold: The cosine distance, from 0 to 2, above which voices are not joined.
        count: How many clusters there may be.
        least_seconds: How long the voices of a cluster last together, at least.

    Returns:
        Clusters in the order in which their first voices stand. There are fewer than
        ``count.least`` only where there are fewer voices.

    Raises:
        MissingExtraError: if scipy is not installed.

    Cost: O(voices²) time and memory, about 20 bytes for each pair.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> one = SpeakerCount()
        >>> clusters_of(points, torch.arange(3), torch.ones(3), threshold=0.5, count=one).tolist()
        [0, 0, 1]
    """
    voices = len(points)
    if voices < 2:
        return torch.zeros(voices, dtype=torch.long)
    tree = _tree(points, window)
    lasting = torch.cat([seconds.double(), torch.zeros(voices - 1, dtype=torch.float64)]).tolist()
    for node, (left, right, _) in enumerate(tree, start=voices):
        lasting[node] = lasting[left] + lasting[right]
    wanted = max(1, min(count.least, voices))
    nodes: list[int] = []
    for floor in (threshold / 2, 0.0):
        for least in _halved(least_seconds):
            if len(nodes) < wanted:
                nodes = _split(tree, lasting, threshold, floor, count, least)
    return _named(nodes, tree, voices)


def require_scipy() -> Any:
    """Return scipy with the parts that are used here.

    Raises:
        MissingExtraError: if it is not installed.
    """
    try:
        import scipy.cluster.hierarchy
        import scipy.optimize
        import scipy.spatial.distance
    except ImportError:
        raise MissingExtraError("scipy", "speech") from None
    return scipy


Joint = tuple[int, int, float]
"""The two nodes that are joined, and their distance."""


def _tree(points: Tensor, window: Tensor) -> list[Joint]:
    """Return the joints of the tree, the nearest first; leaves are counted before them."""
    scipy = require_scipy()
    units = normalize(points.double(), dim=-1)
    distances = (1 - units @ units.T).clamp_(0, OPPOSITE)
    distances[window[:, None] == window] = OPPOSITE
    # The upper triangle alone is read, so that rounding does not matter, nor the diagonal.
    pairs = scipy.spatial.distance.squareform(distances.numpy(), checks=False)
    made = scipy.cluster.hierarchy.linkage(pairs, method="average")
    return [(int(left), int(right), float(height)) for left, right, height, _ in made]


def _halved(seconds: float) -> list[float]:
    """Return this many seconds, half of it, and so on, and 0."""
    return [seconds / 2**halvings for halvings in range(8)] + [0.0]


def _split(
    tree: list[Joint],
    lasting: list[float],
    threshold: float,
    floor: float,
    count: SpeakerCount,
    least_seconds: float,
) -> list[int]:
    """Return the nodes of the clusters."""
    leaves = len(tree) + 1
    root = leaves + len(tree) - 1
    splittable = [(-tree[-1][2], root)]
    done: list[int] = []
    while splittable:
        found = len(done) + len(splittable)
        height = -splittable[0][0]
        if height < floor or found == count.most:
            break
        if found >= count.least and height <= threshold:
            break
        _, node = heapq.heappop(splittable)
        parts = [part for part in tree[node - leaves][:2] if lasting[part] >= least_seconds]
        if not parts:
            # Neither half lasts long enough alone: they stay together.
            done.append(node)
        for part in parts:
            if part < leaves:
                done.append(part)
            else:
                heapq.heappush(splittable, (-tree[part - leaves][2], part))
    return done + [node for _, node in splittable]


def _named(nodes: list[int], tree: list[Joint], leaves: int) -> Int[Tensor, " voices"]:
    """Return the number of each leaf's cluster, in the order of their first leaves."""
    members = sorted(sorted(_leaves_under(node, tree, leaves)) for node in nodes)
    cluster = torch.full((leaves,), NOBODY, dtype=torch.long)
    for number, own in enumerate(members):
        cluster[own] = number
    return cluster


def _leaves_under(node: int, tree: list[Joint], leaves: int) -> list[int]:
    found, open_nodes = [], [node]
    while open_nodes:
        node = open_nodes.pop()
        if node < leaves:
            found.append(node)
        else:
            open_nodes.extend(tree[node - leaves][:2])
    return found
