"""Which token looks at which, as arcs over a line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import ArgumentError, ShapeError
from heedmap.plot.cells import check_axis, check_values, check_weights
from heedmap.plot.figures import height_points, new_axes, require_matplotlib, width_points
from heedmap.plot.fonts import Fonts, find_fonts
from heedmap.plot.labels import width_in_letters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ARCS = 100
MOST_TOKENS = 160
ONE_COLOUR = "#1f5fa8"
# Six colours that people with any kind of colour vision tell apart on white.
QUERY_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#4b2e83")
FONT_POINTS = 11.0
LETTER = 0.6
WIDEST_LINE_POINTS = 760.0
TURNED_PITCH_POINTS = 16.0
RING_POINTS = 12.0
MARGIN_POINTS = 6.0
STEPS = 48


@dataclass(frozen=True)
class Arc:
    """One weight that is drawn."""

    query: int
    key: int
    weight: float


@dataclass(frozen=True)
class Line:
    """Where the tokens stand.

    Attributes:
        labels: What is written.
        centres: The middle of each token, in points from the left.
        length: The length of the line, in points.
        depths: How far each token reaches down, in points.
        font_points: Its size.
        turned: Whether each token is written upwards.
        arc_scale: How high arcs are, where 1 is their height on a figure of their own.
    """

    labels: tuple[str, ...]
    centres: tuple[float, ...]
    length: float
    depths: tuple[float, ...]
    font_points: float
    turned: bool
    arc_scale: float = 1.0

    @property
    def depth(self) -> float:
        """The height of the writing, in points."""
        return max(self.depths)


def plot_arcs(
    weights: Float[Tensor, "query key"],
    axis: Axis,
    *,
    queries: Sequence[int] | None = None,
    minimum_share: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """Return axes with the text and an arc from each query token to the keys it looks at.

    Arcs above the text look back, to earlier tokens; arcs below look ahead; a ring is a token that
    looks at itself. Width and strength of colour grow with the weight. Up to six chosen queries
    have a colour each. At most the 100 largest weights are drawn, and a line says what was left
    out. Long texts are written upwards, one token beside the other.

    Args:
        weights: One matrix, of one head, over one text of at most 160 tokens.
        axis: The tokens of the text.
        queries: The positions whose arcs are drawn; all without it.
        minimum_share: The smallest weight that is drawn, as a share of its row, above 0.
        ax: Where to draw; on a figure of its own without it.

    Raises:
        ShapeError: if weights are not one square matrix with one token a position.
        DTypeError: if weights are not floating point.
        ArgumentError: if there are more than 160 tokens, a query is none of them, `minimum_share`
            is not above 0 and at most 1, or weights are negative, not finite, or no shares of 1.
        MissingExtraError: if matplotlib is not installed.

    Cost:
        The 1 / `minimum_share` largest weights of each chosen row.

    Example:
        >>> import torch
        >>> axis = Axis.of_tokens("a b", ["a", "b"], [(0, 1), (2, 3)])
        >>> len(plot_arcs(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), axis).collections)
        1
    """
    chosen = range(len(axis)) if queries is None else sorted({int(query) for query in queries})
    _check(weights, axis, chosen, minimum_share)
    require_matplotlib()
    arcs, enough = _strongest(weights, chosen, minimum_share)
    fonts = find_fonts(axis.labels)
    line = _lay_out(axis, fonts, None if ax is None else width_points(ax))
    if ax is None:
        ax = new_axes(line.length / 72 + 0.3, _height_points(arcs, line) / 72 + 0.6)
    else:
        line = _fit_height(arcs, line, height_points(ax))
    colours = {} if queries is None else _query_colours(chosen)
    _write_tokens(ax, line, fonts, colours)
    _draw_arcs(ax, arcs, line, colours)
    below, above = _reach(arcs, line)
    ax.set(
        xlim=(0, line.length),
        ylim=(-below - MARGIN_POINTS, above + MARGIN_POINTS),
        xticks=[],
        yticks=[],
    )
    ax.set_axis_off()
    ax.set_title(
        _account(len(arcs), enough, minimum_share), fontsize=8, color="#777777", loc="left"
    )
    return ax


def _check(weights: Tensor, axis: Axis, chosen: Sequence[int], minimum_share: float) -> None:
    check_weights(
        "weights", weights, ("query", "key"), "Choose one matrix, for example weights[0, 3]."
    )
    if weights.shape[0] != weights.shape[1]:
        raise ShapeError(
            "weights must have as many queries as keys, the same tokens; "
            f"got {list(weights.shape)}. Use plot_heatmap for two different sides."
        )
    check_axis("axis", len(axis), "query", weights.shape[0])
    if len(axis) > MOST_TOKENS:
        raise ArgumentError(
            f"axis must have at most {MOST_TOKENS} tokens to be readable; got {len(axis)}. "
            "Choose a part, for example weights[:100, :100] with axis.take(range(100))."
        )
    if not chosen:
        raise ArgumentError("queries must name at least one token; got none. Leave it out for all.")
    for query in chosen:
        if not 0 <= query < len(axis):
            raise ArgumentError(f"queries must lie from 0 to {len(axis) - 1}; got {query}.")
    if not 0 < minimum_share <= 1:
        raise ArgumentError(f"minimum_share must be above 0 and at most 1; got {minimum_share}.")


def _strongest(
    weights: Tensor, chosen: Sequence[int], minimum_share: float
) -> tuple[list[Arc], int]:
    """Return the arcs to draw, weakest first, and how many weights were large enough."""
    rows = weights[torch.tensor(chosen, device=weights.device)]
    # Shares of one row add up to 1, so that no more of them can reach the minimum.
    most = min(int(1 / minimum_share + 1e-6) + 1, weights.shape[1])
    values, keys = (part.detach().cpu() for part in rows.topk(most))
    values = values.float()
    check_values("weights", values)
    if values.sum(-1).max() > 1.01:
        raise ArgumentError(
            f"weights must have rows that add up to 1 at most; got {values.sum(-1).max():.4g}. "
            "Divide each row by its sum."
        )
    arcs = [
        Arc(query, key, weight)
        for query, row, places in zip(chosen, values.tolist(), keys.tolist(), strict=True)
        for weight, key in zip(row, places, strict=True)
        if weight >= minimum_share
    ]
    arcs.sort(key=lambda arc: arc.weight)
    return arcs[-MOST_ARCS:], len(arcs)


def _account(drawn: int, enough: int, minimum_share: float) -> str:
    """Return two lines that say what an arc is and how many weights have none."""
    least = f"{100 * minimum_share:g} %"
    if enough == 0:
        return f"no weight reaches {least}"
    sense = "above the text: looks back; below: looks ahead"
    if drawn == enough:
        return f"all weights of at least {least}: {drawn}\n{sense}"
    return f"the {drawn} largest weights; {enough - drawn} more reach {least}\n{sense}"


def _query_colours(chosen: Sequence[int]) -> dict[int, str]:
    if len(chosen) > len(QUERY_COLOURS):
        return dict.fromkeys(chosen, ONE_COLOUR)
    return dict(zip(chosen, QUERY_COLOURS, strict=False))


def _lay_out(axis: Axis, fonts: Fonts, room: float | None) -> Line:
    """Return tokens in a row of words where that fits, else written upwards at even distances."""
    labels = tuple(fonts.drawable(label) for label in axis.labels)
    widths = [max(width_in_letters(label), 1.0) * LETTER * FONT_POINTS for label in labels]
    steps = [width + 12.0 for width in widths]
    if sum(steps) <= (WIDEST_LINE_POINTS if room is None else room):
        ends = torch.tensor(steps).cumsum(0).tolist()
        centres = tuple(end - step / 2 for end, step in zip(ends, steps, strict=True))
        length = max(sum(steps), room or 260.0)
        shift = (length - sum(steps)) / 2
        moved = tuple(centre + shift for centre in centres)
        depths = (FONT_POINTS * 1.5,) * len(labels)
        return Line(labels, moved, length, depths, FONT_POINTS, turned=False)
    pitch = TURNED_PITCH_POINTS if room is None else room / len(labels)
    font_points = min(FONT_POINTS, 0.8 * pitch)
    depths = tuple(width_in_letters(label) * LETTER * font_points + 6 for label in labels)
    centres = tuple((i + 0.5) * pitch for i in range(len(labels)))
    return Line(labels, centres, pitch * len(labels), depths, font_points, turned=True)


def _fit_height(arcs: list[Arc], line: Line, room_points: float) -> Line:
    """Return the line with arcs as high as the axes leave room for."""
    arc_points = _height_points(arcs, line) - line.depth - 2 * MARGIN_POINTS
    left = max(room_points - line.depth - 2 * MARGIN_POINTS, 0.2 * room_points)
    return replace(line, arc_scale=left / arc_points)


def _height_of_arc(arc: Arc, line: Line) -> float:
    if arc.query == arc.key:
        return RING_POINTS * line.arc_scale
    # Less than in proportion, so that short arcs keep a height when one spans the whole text.
    return 1.5 * abs(line.centres[arc.query] - line.centres[arc.key]) ** 0.7 * line.arc_scale


def _reach(arcs: list[Arc], line: Line) -> tuple[float, float]:
    """Return how far the picture reaches below and above the upper edge of the writing."""
    above = max((_height_of_arc(a, line) for a in arcs if a.key <= a.query), default=1.0)
    below = max((_height_of_arc(a, line) for a in arcs if a.key > a.query), default=0.0)
    return below + line.depth, above


def _height_points(arcs: list[Arc], line: Line) -> float:
    return sum(_reach(arcs, line)) + 2 * MARGIN_POINTS


def _write_tokens(ax: Axes, line: Line, fonts: Fonts, colours: dict[int, str]) -> None:
    for i, (label, centre) in enumerate(zip(line.labels, line.centres, strict=True)):
        ax.text(
            centre,
            -line.depth / 2 if not line.turned else -3,
            label,
            fontfamily=list(fonts.families),
            fontsize=line.font_points,
            parse_math=False,
            color=colours.get(i),
            rotation=90 if line.turned else 0,
            ha="center",
            va="top" if line.turned else "center",
        )


def _draw_arcs(ax: Axes, arcs: list[Arc], line: Line, colours: dict[int, str]) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    strongest = max((arc.weight for arc in arcs), default=1.0)
    shares = [arc.weight / strongest for arc in arcs]
    ax.add_collection(
        LineCollection(
            [_curve(arc, line).numpy() for arc in arcs],
            linewidths=[0.5 + 3.5 * share for share in shares],
            colors=[
                (*to_rgb(colours.get(arc.query, ONE_COLOUR)), 0.25 + 0.7 * share)
                for arc, share in zip(arcs, shares, strict=True)
            ],
            capstyle="round",
        ),
        autolim=False,
    )


def _curve(arc: Arc, line: Line) -> Float[Tensor, "points 2"]:
    """Return half an ellipse from the query to the key, or a ring that stands on the token."""
    start, end = line.centres[arc.query], line.centres[arc.key]
    height = _height_of_arc(arc, line)
    if arc.query == arc.key:
        turn = torch.linspace(0, 2 * math.pi, STEPS)
        radius = min(RING_POINTS, 0.8 * line.length / len(line.centres)) / 2
        return torch.stack((start + radius * turn.sin(), 1 + height / 2 * (1 - turn.cos())), 1)
    turn = torch.linspace(0, math.pi, STEPS)
    x = (start + end) / 2 + (start - end) / 2 * turn.cos()
    y = height * turn.sin()
    if arc.key > arc.query:
        # Straight down from each token to the lower edge of the writing, where all arcs begin.
        x = torch.cat((torch.tensor([start]), x, torch.tensor([end])))
        ends = -torch.tensor([line.depths[arc.query], line.depths[arc.key]])
        y = torch.cat((ends[:1], -line.depth - y, ends[1:]))
    return torch.stack((x, y), 1)
