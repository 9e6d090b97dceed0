"""Who speaks from when to when: the one form in which all parts of `heedmap.speech` say it."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from heedmap.errors import ArgumentError


@dataclass(frozen=True, order=True)
class Turn:
    """A stretch of time in which one speaker speaks; turns sort by their start.

    Attributes:
        start_seconds: Where it begins, from the beginning of the recording.
        end_seconds: Where it ends, after its start.
        speaker: Who speaks.
    """

    start_seconds: float
    end_seconds: float
    speaker: str

    def __post_init__(self) -> None:
        """Refuse a stretch that is none."""
        if not (0 <= self.start_seconds < self.end_seconds < math.inf):
            raise ArgumentError(
                "a turn must end after it begins, and begin at 0 s or later; "
                f"got {self.start_seconds:g} s to {self.end_seconds:g} s."
            )

    @property
    def duration_seconds(self) -> float:
        """How long it lasts."""
        return self.end_seconds - self.start_seconds


def speakers_of(turns: Iterable[Turn]) -> tuple[str, ...]:
    """Return the speakers, each once, in the order in which they first speak.

    >>> speakers_of([Turn(2, 3, "Bo"), Turn(0, 1, "Al"), Turn(4, 5, "Al")])
    ('Al', 'Bo')
    """
    return tuple(dict.fromkeys(turn.speaker for turn in sorted(turns)))


def merged(turns: Iterable[Turn], gap_seconds: float = 0.0) -> list[Turn]:
    """Return the turns, those of one speaker joined where not more than a gap lies between them.

    Args:
        turns: In any order; those of one speaker may overlap.
        gap_seconds: How long a pause may be that is closed; 0 joins what touches or overlaps.

    Returns:
        Turns in order; two of one speaker lie more than the gap apart.

    Example:
        >>> [t.end_seconds for t in merged([Turn(0, 1, "a"), Turn(1.5, 2, "a")], gap_seconds=0.5)]
        [2]
    """
    done: list[Turn] = []
    last: dict[str, Turn] = {}
    for turn in sorted(turns):
        before = last.get(turn.speaker)
        if before is None or turn.start_seconds - before.end_seconds > gap_seconds:
            if before is not None:
                done.append(before)
            last[turn.speaker] = turn
        elif turn.end_seconds > before.end_seconds:
            last[turn.speaker] = replace(before, end_seconds=turn.end_seconds)
    return sorted([*done, *last.values()])


def without_short(turns: Iterable[Turn], least_seconds: float) -> list[Turn]:
    """Return the turns that last at least this long, in order.

    >>> without_short([Turn(0, 1, "a"), Turn(2, 2.1, "a")], least_seconds=0.25)
    [Turn(start_seconds=0, end_seconds=1, speaker='a')]
    """
    return sorted(turn for turn in turns if turn.duration_seconds >= least_seconds)


def spoken_spans(turns: Iterable[Turn], least_speakers: int = 1) -> list[tuple[float, float]]:
    """Return the stretches, in seconds, in which at least so many different speakers speak.

    Args:
        turns: In any order; those of one speaker may overlap.
        least_speakers: 1 for all speech, 2 for overlap.

    Returns:
        Start and end of each stretch, in order, no two touching.

    Cost: one sort of the turns.

    Example:
        >>> spoken_spans([Turn(0, 2, "a"), Turn(1, 3, "b")], least_speakers=2)
        [(1, 2)]
    """
    changes: dict[float, int] = {}
    for turn in merged(turns):
        changes[turn.start_seconds] = changes.get(turn.start_seconds, 0) + 1
        changes[turn.end_seconds] = changes.get(turn.end_seconds, 0) - 1
    spans: list[tuple[float, float]] = []
    speaking = 0
    for (time, change), (until, _) in pairwise(sorted(changes.items())):
        speaking += change
        if speaking < least_speakers:
            continue
        if spans and spans[-1][1] == time:
            spans[-1] = spans[-1][0], until
        else:
            spans.append((time, until))
    return spans


def within(turns: Iterable[Turn], spans: Sequence[tuple[float, float]]) -> list[Turn]:
    """Return the parts of turns that lie in stretches, in order.

    Args:
        turns: In any order.
        spans: Starts and ends in seconds, in order, none overlapping.

    Example:
        >>> [(t.start_seconds, t.end_seconds) for t in within([Turn(0, 4, "a")], [(1, 2), (3, 9)])]
        [(1, 2), (3, 4)]
    """
    starts = [start for start, _ in spans]
    ends = [end for _, end in spans]
    parts = []
    for turn in turns:
        first = bisect_right(ends, turn.start_seconds)
        last = bisect_left(starts, turn.end_seconds)
        for start, end in spans[first:last]:
            parts.append(
                replace(
                    turn,
                    start_seconds=max(start, turn.start_seconds),
                    end_seconds=min(end, turn.end_seconds),
                )
            )
    return sorted(parts)
