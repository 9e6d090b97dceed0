"""What is written along the sides of a picture: tokens, positions, or round times."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedmap.axes import Axis
from heedmap.plot.figures import height_points, width_points
from heedmap.plot.fonts import Fonts
from heedmap.plot.labels import width_in_letters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOKENS = 40
THINNED_TOKENS = 20
MOST_NUMBERS = 9
# How much of a side, in points, one mark needs at least.
TOKEN_POINTS = 6.5
NUMBER_POINTS = 36.0
# A second's decimal steps, then the steps of a clock.
STEPS_SECONDS = (
    *(mantissa * 10.0**power for power in (-3, -2, -1) for mantissa in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0),
)
CLOCK_FROM_SECONDS = 120.0


@dataclass(frozen=True)
class Ticks:
    """Marks along one side.

    Attributes:
        places: Where they stand, in positions.
        labels: What they say.
        unit: What they count, for the name of the side; empty for tokens.
    """

    places: tuple[float, ...]
    labels: tuple[str, ...]
    unit: str = ""


def ticks_of(axis: Axis | None, size: int, fonts: Fonts, room_points: float) -> Ticks:
    """Return the marks for one side of `size` positions that is so many points long.

    Up to 40 tokens are all named where they fit; of more, at most 20 are, each with its position in
    front. Sound and film are marked at round times, bare positions at round numbers.
    """
    most_numbers = max(min(MOST_NUMBERS, int(room_points / NUMBER_POINTS)), 2)
    if axis is None or axis.kind == "position":
        every = _step_of_positions(size, most_numbers)
        numbers = range(0, size, every)
        return Ticks(tuple(map(float, numbers)), tuple(map(str, numbers)))
    if has_times(axis):
        return _times(edges_seconds(axis), most_numbers)
    return _tokens(axis, size, fonts, room_points)


def has_times(axis: Axis) -> bool:
    """Return whether the positions are moments, each of which begins after the one before it."""
    if axis.kind not in ("audio", "video") or not axis.spans:
        return False
    return all(later > earlier for earlier, later in itertools.pairwise(edges_seconds(axis)))


def edges_seconds(axis: Axis) -> list[float]:
    """Return where each position of sound or film begins, and where the last one ends.

    >>> edges_seconds(Axis.of_seconds([(0.0, 0.5), (0.4, 0.9)]))
    [0.0, 0.4, 0.9]
    """
    return [start for start, _ in axis.spans] + [axis.spans[-1][1]]


def round_times(first: float, last: float, most: int = MOST_NUMBERS) -> list[float]:
    """Return at most `most` (or two) round times from `first` to `last`, in seconds.

    >>> round_times(0.0, 29.98)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    """
    wanted = (last - first) / most
    step = next((s for s in STEPS_SECONDS if s >= wanted), None)
    if step is None:
        step = 86400.0 * math.ceil(wanted / 86400.0)
    numbers = range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)
    return [round(n * step, 6) for n in numbers]


def clock(seconds: float, longest: float, decimals: int = 0) -> str:
    """Return a time as seconds, or as on a clock where times reach two minutes.

    >>> clock(12.5, 30.0, 1), clock(75.0, 600.0), clock(3675.0, 7200.0)
    ('12.5', '1:15', '1:01:15')
    """
    if longest < CLOCK_FROM_SECONDS:
        return f"{seconds:.{decimals}f}"
    whole = round(seconds, decimals)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(int(minutes), 60)
    width = 2 if decimals == 0 else 3 + decimals
    if longest < 3600:
        return f"{minutes}:{rest:0{width}.{decimals}f}"
    return f"{hours}:{minutes:02d}:{rest:0{width}.{decimals}f}"


def unit_of_clock(longest: float) -> str:
    """Return what the numbers of `clock` count."""
    if longest < CLOCK_FROM_SECONDS:
        return "seconds"
    return "minutes:seconds" if longest < 3600 else "hours:minutes:seconds"


def draw_ticks(ax: Axes, side: str, axis: Axis | None, size: int, name: str, fonts: Fonts) -> None:
    """Write what the positions of side ``"x"`` or ``"y"`` are, turned where labels are long."""
    target = ax.xaxis if side == "x" else ax.yaxis
    room = width_points(ax) if side == "x" else height_points(ax)
    ticks = ticks_of(axis, size, fonts, room)
    target.set_ticks(list(ticks.places), list(ticks.labels))
    target.set_label_text(f"{name} ({ticks.unit})" if ticks.unit else name)
    gap = min((b - a for a, b in itertools.pairwise(ticks.places)), default=size) / size * room
    font_size = max(min(9.0, 0.85 * gap), 5.0)
    longest = max(map(width_in_letters, ticks.labels), default=0.0)
    turned = side == "x" and longest * 0.62 * font_size > gap - 3
    for label in target.get_ticklabels():
        label.set(fontfamily=list(fonts.families), fontsize=font_size, parse_math=False)
        if turned:
            label.set(rotation=90)
    target.set_tick_params(length=2.5, color="#888888")


def _tokens(axis: Axis, size: int, fonts: Fonts, room_points: float) -> Ticks:
    if size <= min(MOST_TOKENS, room_points / TOKEN_POINTS):
        return Ticks(tuple(map(float, range(size))), tuple(map(fonts.drawable, axis.labels)))
    most = max(min(THINNED_TOKENS, int(room_points / TOKEN_POINTS / 2)), 2)
    named = range(0, size, _step_of_positions(size, most))
    labels = tuple(f"{i}  {fonts.drawable(axis.labels[i])}" for i in named)
    return Ticks(tuple(map(float, named)), labels)


def _step_of_positions(size: int, most: int) -> int:
    power = 1
    while True:
        for mantissa in (1, 2, 5):
            if size <= most * mantissa * power:
                return mantissa * power
        power *= 10


def _times(edges: list[float], most: int) -> Ticks:
    times = round_times(edges[0], edges[-1], most)
    decimals = max((len(f"{t:.3f}".rstrip("0").partition(".")[2]) for t in times), default=0)
    longest = edges[-1]
    return Ticks(
        tuple(place_of(t, edges) for t in times),
        tuple(clock(t, longest, decimals) for t in times),
        unit_of_clock(longest),
    )


def place_of(seconds: float, edges: list[float]) -> float:
    """Return where a time lies among positions, the first of which reaches from −0.5 to 0.5.

    >>> place_of(0.75, [0.0, 0.5, 1.0])
    1.0
    """
    after = min(max(bisect.bisect_right(edges, seconds), 1), len(edges) - 1)
    start, end = edges[after - 1], edges[after]
    return after - 1.5 + (seconds - start) / (end - start)
