"""Who speaks when, what else is heard, and which turns a turn looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedmap.errors import ArgumentError
from heedmap.plot.arcs import QUERY_COLOURS
from heedmap.plot.figures import new_axes, require_matplotlib
from heedmap.plot.fonts import Fonts, find_fonts
from heedmap.plot.labels import width_in_letters
from heedmap.plot.speaker_rows import (
    ARC_POINTS,
    LANE_POINTS,
    LINE_POINTS,
    WORDS_POINTS,
    Lines,
    Look,
    Rows,
    Span,
    Turn,
    lines_of,
    middle_of,
    rows_of,
)
from heedmap.plot.ticks import clock, round_times, unit_of_clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN_POINTS = 4.0
RIGHT_POINTS = 14.0
TITLE_POINTS = 34.0
FONT_POINTS = 8.5
SMALL_FONT_POINTS = 6.5
TIME_POINTS = 7.5
NUMBER_POINTS = 8.0
LETTER = 0.56
KIND_COLOURS = {"speech": "#8f9aa5", "music": "#b279a2", "overlap": "#d62728"}
COLOUR_OF_OTHER_KINDS = "#9c9c9c"
COLOUR_OF_REMARKS = "#777777"
COLOUR_OF_LINES = "#e2e2e2"
# How strong the colour of a bar of which nothing is sure is.
PALEST = 0.3


def plot_speakers(
    turns: Sequence[Turn],
    *,
    duration_seconds: float | None = None,
    kinds: Mapping[str, Sequence[Span]] | None = None,
    looks: Sequence[Look] = (),
    sure: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Return axes with a row of turns for each speaker, and what else is heard above them.

    More than 90 seconds are broken into at most 12 lines, one below the other. A turn that looked
    has its number, and an arc with the weight goes from it to each turn that it looked at. At one
    of another line there is the weight alone, with the number before it.

    Args:
        turns: Start and end in seconds, and the speaker, in the order of their numbers from 1.
        duration_seconds: How long the recording is; until the last end without it.
        kinds: What is heard when: a thin lane of stretches in seconds for each name, such as
            ``"speech"``, ``"music"`` and ``"overlap"``.
        looks: Which turn looked at which, by their places among `turns` from 0, and the weight.
        sure: How sure each turn is, from 0 to 1: the less, the paler.
        ax: Where to draw; on a figure of its own without it.

    Raises:
        ArgumentError: for a stretch that does not end after its start, a look from or at a turn
            that is not there, a weight or sureness outside 0 to 1, or no duration.
        MissingExtraError: if matplotlib is not installed.

    Cost: one shape for each turn, stretch and look.

    Example:
        >>> axes = plot_speakers([(0.0, 2.0, "Ada"), (2.5, 4.0, "Bo")], looks=[(1, 0, 0.2)])
        >>> [text.get_text() for text in axes.texts][:2]
        ['Ada', 'Bo']
    """
    kinds = dict(kinds or {})
    duration = max((end for _, end, _ in turns), default=0.0)
    duration = duration if duration_seconds is None else duration_seconds
    _check(turns, duration, kinds, looks, sure)
    require_matplotlib()
    speakers = tuple(dict.fromkeys(speaker for _, _, speaker in turns))
    fonts = find_fonts([*speakers, *kinds])
    lines = lines_of(duration)
    rows = rows_of(turns, speakers, tuple(kinds), looks, lines)
    names = {name: fonts.drawable(name) for name in (*speakers, *kinds)}
    widths = [_width_points(name, FONT_POINTS) for name in names.values()]
    # The first time of a line reaches into the gutter.
    widths.append(_width_points(unit_of_clock(duration) + "0:00", SMALL_FONT_POINTS))
    gutter = 12 + max(widths)
    if ax is None:
        width = gutter + LINE_POINTS + RIGHT_POINTS
        ax = new_axes(width / 72, (MARGIN_POINTS - rows.top(lines.count) + TITLE_POINTS) / 72)
    _draw_rows(ax, rows, lines, names, fonts)
    _draw_kinds(ax, kinds, rows, lines)
    _draw_turns(ax, turns, sure, rows, lines)
    _draw_looks(ax, turns, looks, rows, lines)
    _draw_times(ax, rows, lines)
    ax.set(
        xlim=(-gutter, LINE_POINTS + RIGHT_POINTS),
        ylim=(rows.top(lines.count), MARGIN_POINTS),
        xticks=[],
        yticks=[],
    )
    ax.set_axis_off()
    account = _account(turns, speakers, looks, sure)
    ax.set_title(account, fontsize=8, color=COLOUR_OF_REMARKS, loc="left")
    return ax


def weight_words(weight: float) -> str:
    """Return a weight with two digits that say something: in long recordings weights are small.

    >>> weight_words(0.44), weight_words(0.0123)
    ('0.44', '0.012')
    """
    decimals = 2 if weight >= 0.095 else 3 if weight >= 0.0095 else 4
    return f"{weight:.{decimals}f}"


def _check(
    turns: Sequence[Turn],
    duration_seconds: float,
    kinds: Mapping[str, Sequence[Span]],
    looks: Sequence[Look],
    sure: Sequence[float] | None,
) -> None:
    if not 0 < duration_seconds < math.inf:
        raise ArgumentError(
            f"duration_seconds must be above 0 and finite; got {duration_seconds:g}."
        )
    stretches = [(start, end) for start, end, _ in turns]
    for start, end in [*stretches, *(span for spans in kinds.values() for span in spans)]:
        if not 0 <= start < end <= duration_seconds:
            raise ArgumentError(
                "turns and kinds must be stretches that end after they begin, from 0 to "
                f"{duration_seconds:g} s; got {start:g} s to {end:g} s."
            )
    for query, key, weight in looks:
        if not (0 <= query < len(turns) and 0 <= key < len(turns) and 0 <= weight <= 1):
            raise ArgumentError(
                f"looks must go from one of {len(turns)} turns to one of them, counted from 0, "
                f"with a weight from 0 to 1; got ({query}, {key}, {weight:g})."
            )
    if sure is not None and not (
        len(sure) == len(turns) and all(0 <= value <= 1 for value in sure)
    ):
        raise ArgumentError(
            f"sure must be a number from 0 to 1 for each of {len(turns)} turns; got {list(sure)}."
        )


def _width_points(words: str, font_points: float) -> float:
    return width_in_letters(words) * LETTER * font_points


def _colours(speakers: Sequence[str]) -> dict[str, str]:
    count = len(QUERY_COLOURS)
    return {name: QUERY_COLOURS[number % count] for number, name in enumerate(speakers)}


def _draw_rows(ax: Axes, rows: Rows, lines: Lines, names: Mapping[str, str], fonts: Fonts) -> None:
    """Draw a thin line for each row of each line, and write before it what the row is."""
    for line in range(lines.count):
        start, end = lines.span(line)
        left, right = lines.x(start, line), lines.x(end, line)
        places = [
            (rows.bar(line, name) + rows.bar_points / 2, name, FONT_POINTS, "#222222")
            for name in rows.speakers
        ]
        places += [
            (rows.lane(line, name) + LANE_POINTS / 2, name, SMALL_FONT_POINTS, COLOUR_OF_REMARKS)
            for name in rows.kinds
        ]
        for middle, name, points, colour in places:
            ax.hlines(middle, left, right, color=COLOUR_OF_LINES, linewidth=0.6, zorder=0)
            ax.text(
                -6,
                middle,
                names[name],
                fontfamily=list(fonts.families),
                fontsize=points,
                parse_math=False,
                color=colour,
                ha="right",
                va="center_baseline",
            )


def _draw_kinds(ax: Axes, kinds: Mapping[str, Sequence[Span]], rows: Rows, lines: Lines) -> None:
    for kind, spans in kinds.items():
        boxes = [
            _box(left, right, rows.lane(line, kind), LANE_POINTS)
            for start, end in spans
            for line, left, right in lines.pieces(start, end)
        ]
        colour = KIND_COLOURS.get(kind, COLOUR_OF_OTHER_KINDS)
        _fill(ax, boxes, [colour] * len(boxes), colour, edge_points=0.0)


def _draw_turns(
    ax: Axes, turns: Sequence[Turn], sure: Sequence[float] | None, rows: Rows, lines: Lines
) -> None:
    from matplotlib.colors import to_rgb

    for speaker, colour in _colours(rows.speakers).items():
        boxes, faces = [], []
        for number, (start, end, name) in enumerate(turns):
            if name != speaker:
                continue
            strength = 1.0 if sure is None else PALEST + (1 - PALEST) * sure[number]
            # Mixed with white: rows would show through a colour that is not opaque.
            face = tuple(1 - strength * (1 - part) for part in to_rgb(colour))
            for line, left, right in lines.pieces(start, end):
                boxes.append(_box(left, right, rows.bar(line, name), rows.bar_points))
                faces.append(face)
        # The edge keeps the shortest turn of the longest line visible.
        _fill(ax, boxes, faces, colour, edge_points=0.5)


def _box(left: float, right: float, bottom: float, height: float) -> list[tuple[float, float]]:
    top = bottom + height
    return [(left, bottom), (left, top), (right, top), (right, bottom)]


def _fill(
    ax: Axes, boxes: list[Any], faces: Sequence[Any], edge: str, *, edge_points: float
) -> None:
    from matplotlib.collections import PolyCollection

    drawn = PolyCollection(boxes, facecolors=faces, edgecolors=edge, linewidths=edge_points)
    ax.add_collection(drawn, autolim=False)


def _draw_looks(
    ax: Axes, turns: Sequence[Turn], looks: Sequence[Look], rows: Rows, lines: Lines
) -> None:
    """Draw an arc for each look within a line, the number of who looks, and the weights."""
    colours = _colours(rows.speakers)
    taken: list[tuple[float, float, float]] = []
    looking = sorted({query for query, _, _ in looks})
    for query in looking:
        x, y = _crest(turns[query], rows, lines)
        _write_once(ax, x, y, f"{query + 1}", colours[turns[query][2]], taken, bold=True)
    strongest = max((weight for _, _, weight in looks), default=1.0) or 1.0
    for query, key, weight in sorted(looks, key=lambda look: -look[2]):
        if query == key:
            continue
        colour = colours[turns[query][2]]
        start, end = _crest(turns[query], rows, lines), _crest(turns[key], rows, lines)
        if lines.of(middle_of(turns[query])) == lines.of(middle_of(turns[key])):
            # Numbers stand between a bar and the arc.
            feet = [
                (x, y + (WORDS_POINTS if turn in looking else 1.0))
                for turn, (x, y) in ((query, start), (key, end))
            ]
            top = _draw_arc(ax, feet, colour, weight / strongest)
            _write_once(ax, (start[0] + end[0]) / 2, top, weight_words(weight), colour, taken)
        else:
            _write_once(ax, *end, f"{query + 1}: {weight_words(weight)}", colour, taken)


def _crest(turn: Turn, rows: Rows, lines: Lines) -> tuple[float, float]:
    """Return the middle of the upper edge of a turn, in points."""
    line = lines.of(middle_of(turn))
    return lines.x(middle_of(turn), line), rows.bar(line, turn[2]) + rows.bar_points


def _draw_arc(ax: Axes, feet: list[tuple[float, float]], colour: str, share: float) -> float:
    """Draw an arc, the higher the further it reaches, and return where words stand on its top."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    reach = (abs(feet[1][0] - feet[0][0]) / LINE_POINTS) ** 0.5
    inner = max(y for _, y in feet) + ARC_POINTS * (0.6 + 0.4 * reach)
    points = [feet[0], (feet[0][0], inner), (feet[1][0], inner), feet[1]]
    ax.add_patch(
        PathPatch(
            Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]),
            facecolor="none",
            edgecolor=colour,
            alpha=0.35 + 0.5 * share,
            linewidth=0.5 + 1.5 * share,
            zorder=3,
        )
    )
    # The middle of such a curve, less half the height of the words.
    return (feet[0][1] + feet[1][1] + 6 * inner) / 8 - SMALL_FONT_POINTS / 2 - 1


def _write_once(
    ax: Axes,
    x: float,
    y: float,
    words: str,
    colour: str,
    taken: list[tuple[float, float, float]],
    *,
    bold: bool = False,
) -> None:
    """Write a few words above a place, unless others stand there already."""
    points = NUMBER_POINTS if bold else SMALL_FONT_POINTS
    half = _width_points(words, points) / 2 + 1
    x = min(max(x, half), LINE_POINTS - half)
    height = SMALL_FONT_POINTS + 1.5
    near = ((left, right) for left, right, other in taken if abs(y - other) < height)
    if any(left < x + half and x - half < right for left, right in near):
        return
    taken.append((x - half, x + half, y))
    ax.text(
        x,
        y + 1.5,
        words,
        fontsize=points,
        fontweight="bold" if bold else "normal",
        color=colour,
        ha="center",
        va="bottom",
        zorder=4,
        bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.6},
    )


def _draw_times(ax: Axes, rows: Rows, lines: Lines) -> None:
    """Write round times below each line, and what they count before those of the last."""
    for line in range(lines.count):
        edge = rows.bottom(line) - 4
        end = lines.span(line)[1]
        ax.hlines(edge, 0, lines.x(end, line), color="#888888", linewidth=0.8)
        for x, words in _times(lines, line):
            ax.vlines(x, edge - 3, edge, color="#888888", linewidth=0.8)
            ax.text(
                x, edge - 4.5, words, fontsize=TIME_POINTS, color="#444444", ha="center", va="top"
            )
    first, words = _times(lines, lines.count - 1)[0]
    ax.text(
        first - _width_points(words, TIME_POINTS) / 2 - 5,
        rows.bottom(lines.count - 1) - 9,
        unit_of_clock(lines.duration_seconds),
        fontsize=SMALL_FONT_POINTS,
        color=COLOUR_OF_REMARKS,
        ha="right",
        va="top",
    )


def _times(lines: Lines, line: int) -> list[tuple[float, str]]:
    """Return where round times of a line stand, in points, and how they are written.

    The beginning of a line is always one.
    """
    start, end = lines.span(line)
    times = round_times(start, start + lines.seconds)
    decimals = max(len(f"{time:.3f}".rstrip("0").partition(".")[2]) for time in times)
    longest = lines.duration_seconds
    return [(lines.x(t, line), clock(t, longest, decimals)) for t in times if t <= end]


def _account(
    turns: Sequence[Turn],
    speakers: Sequence[str],
    looks: Sequence[Look],
    sure: Sequence[float] | None,
) -> str:
    """Return two lines that say what is drawn and how to read it."""
    if not turns:
        return "nobody speaks"
    people = f"{len(speakers)} speaker{'s' * (len(speakers) != 1)}"
    drawn = f"{people}, {len(turns)} turn{'s' * (len(turns) != 1)}"
    parts = [] if sure is None else ["paler: less sure"]
    parts += ["arcs and weights: what the turns with a number looked at"] if looks else []
    return f"{drawn}\n{'; '.join(parts)}" if parts else drawn
