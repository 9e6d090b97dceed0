"""Where the turns of speakers stand in a picture: in lines of time, and in rows within a line."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Span = tuple[float, float]
Turn = tuple[float, float, str]
Look = tuple[int, int, float]

ONE_LINE_SECONDS = 90.0
LINE_SECONDS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0)
MOST_LINES = 12
LINE_POINTS = 640.0
BAR_POINTS = 11.0
# Of several lines, and where the rows of a line would take more than this together.
LOW_BAR_POINTS = 8.0
ROWS_POINTS = 90.0
LOWEST_BAR_POINTS = 5.0
ROW_GAP_POINTS = 3.0
# Above the bars of a row: a number or weight, and an arc that ends on it.
WORDS_POINTS = 9.0
ARC_POINTS = 16.0
LANE_POINTS = 4.0
LANE_GAP_POINTS = 3.5
TIMES_POINTS = 25.0


@dataclass(frozen=True)
class Lines:
    """How a recording is broken into lines, each as long as the first, but for the last.

    Attributes:
        seconds: How long a line is.
        count: How many there are.
        duration_seconds: Where the last one ends.
    """

    seconds: float
    count: int
    duration_seconds: float

    def of(self, seconds: float) -> int:
        """Return the line that a moment lies in."""
        return min(int(seconds / self.seconds), self.count - 1)

    def span(self, line: int) -> Span:
        """Return where a line begins and ends, in seconds."""
        start = line * self.seconds
        return start, min(start + self.seconds, self.duration_seconds)

    def pieces(self, start: float, end: float) -> Iterator[tuple[int, float, float]]:
        """Yield each line that a stretch lies in, and where it begins and ends there, in points."""
        for line in range(self.of(start), self.of(end) + 1):
            first, last = self.span(line)
            if max(start, first) < min(end, last):
                yield line, self.x(max(start, first), line), self.x(min(end, last), line)

    def x(self, seconds: float, line: int) -> float:
        """Return where a moment of a line stands, in points."""
        return (seconds - line * self.seconds) / self.seconds * LINE_POINTS


@dataclass(frozen=True)
class Rows:
    """Where rows stand, in points upwards from the top of the first line.

    Attributes:
        speakers: Who has a row in each line, from above.
        kinds: What has a lane above those rows.
        bar_points: How high a bar is.
        room_points: What is left free above the bars of a speaker in a line; a gap without it.
    """

    speakers: tuple[str, ...]
    kinds: tuple[str, ...]
    bar_points: float
    room_points: Mapping[tuple[int, str], float]

    def top(self, line: int) -> float:
        """Return where a line begins; of the line after the last, where the picture ends."""
        return -sum(self._rows_points(before) + TIMES_POINTS for before in range(line))

    def bottom(self, line: int) -> float:
        """Return where the rows of a line end and its times begin."""
        return self.top(line) - self._rows_points(line)

    def lane(self, line: int, kind: str) -> float:
        """Return the lower edge of a lane."""
        return self.top(line) - self.kinds.index(kind) * self._lane_pitch - LANE_POINTS

    def bar(self, line: int, speaker: str) -> float:
        """Return the lower edge of the bars of a speaker."""
        rows = self.speakers[: self.speakers.index(speaker) + 1]
        return self.top(line) - self._lanes_points - sum(self._pitch(line, row) for row in rows)

    @property
    def _lane_pitch(self) -> float:
        return LANE_POINTS + LANE_GAP_POINTS

    @property
    def _lanes_points(self) -> float:
        return len(self.kinds) * self._lane_pitch

    def _rows_points(self, line: int) -> float:
        return self._lanes_points + sum(self._pitch(line, row) for row in self.speakers)

    def _pitch(self, line: int, speaker: str) -> float:
        return self.bar_points + self.room_points.get((line, speaker), ROW_GAP_POINTS)


def lines_of(duration_seconds: float) -> Lines:
    """Return lines of a round length, the shortest of which at most 12 are needed."""
    if duration_seconds <= ONE_LINE_SECONDS:
        return Lines(duration_seconds, 1, duration_seconds)
    least = duration_seconds / MOST_LINES
    seconds = next((length for length in LINE_SECONDS if length >= least), least)
    return Lines(seconds, math.ceil(duration_seconds / seconds), duration_seconds)


def rows_of(
    turns: Sequence[Turn],
    speakers: tuple[str, ...],
    kinds: tuple[str, ...],
    looks: Sequence[Look],
    lines: Lines,
) -> Rows:
    """Return rows as high as all of them can be, with room for what is written of the looks."""
    bar = BAR_POINTS if lines.count == 1 else LOW_BAR_POINTS
    bar = max(min(ROWS_POINTS / max(len(speakers), 1), bar), LOWEST_BAR_POINTS)
    room: dict[tuple[int, str], float] = {}
    for query, key, _ in looks:
        with_arc = lines.of(middle_of(turns[query])) == lines.of(middle_of(turns[key]))
        for turn in (turns[query], turns[key]):
            place = lines.of(middle_of(turn)), turn[2]
            needed = WORDS_POINTS + ARC_POINTS * with_arc
            room[place] = max(room.get(place, 0.0), needed)
    return Rows(speakers, kinds, bar, room)


def middle_of(turn: Turn) -> float:
    """Return the moment, in seconds, at which words about a turn stand."""
    return (turn[0] + turn[1]) / 2
