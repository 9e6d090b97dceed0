"""What one moment of sound or film looks at, over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import ArgumentError
from heedmap.plot.cells import check_axis, check_values, check_weights
from heedmap.plot.figures import new_axes, require_matplotlib, width_points
from heedmap.plot.labels import width_in_letters
from heedmap.plot.ticks import clock, edges_seconds, has_times, round_times, unit_of_clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_STEPS = 1500
NAMED_MOMENTS = 3
# Moments closer than this share of the whole are one and the same peak.
PEAK_SHARE = 0.03
STANDING_OUT_OF_MEAN = 1.2
STANDING_OUT_OF_LARGEST = 0.1
COLOUR_OF_WEIGHTS = "#35618f"
COLOUR_OF_QUERY = "#d62728"
FONT_POINTS = 8.5
LETTER = 0.6
# How much higher each row of remarks stands, as a share of the largest weight.
LEVEL = 0.16


@dataclass(frozen=True)
class Remark:
    """A few words about one moment."""

    seconds: float
    text: str
    colour: str | None


def plot_timeline(
    shares: Float[Tensor, "key"],
    axis: Axis,
    *,
    query: int,
    ax: Axes | None = None,
) -> Axes:
    """Return axes with one row of weights over time, its query marked and its peaks named.

    The three largest weights that lie apart are named with their times (for film, their first frame
    too), if they stand out: above the mean by a fifth, and not below a tenth of the largest. More
    than 1500 positions are drawn as the largest weight of each of equal blocks, so that no peak is
    lost, and the side says so.

    Args:
        shares: One row of weights, for example ``weights[0, 3, query]``.
        axis: The moments of sound or film that are looked at.
        query: The position of the moment that looks.
        ax: Where to draw; on a figure of its own without it.

    Raises:
        ShapeError: if shares are not one row, or the axis has not one moment for each.
        DTypeError: if shares are not floating point.
        ArgumentError: if the axis has no times in order, `query` is not on it, or a weight is
            negative or not finite.
        MissingExtraError: if matplotlib is not installed.

    Cost:
        One row.

    Example:
        >>> import torch
        >>> axis = Axis.of_seconds([(0.0, 0.5), (0.5, 1.0)])
        >>> plot_timeline(torch.tensor([0.2, 0.8]), axis, query=1).get_xlabel()
        'seconds'
    """
    _check(shares, axis, query)
    require_matplotlib()
    row = shares.detach().to_dense().cpu().float()
    check_values("shares", row)
    edges = edges_seconds(axis)
    if ax is None:
        ax = new_axes(9.0, 2.9)
    block = -(-len(row) // MOST_STEPS)
    heights = torch.nn.functional.pad(row, (0, -len(row) % block)).reshape(-1, block).amax(1)
    stairs = [*edges[:-1][::block], edges[-1]]
    ax.stairs(heights.numpy(), stairs, fill=True, color=COLOUR_OF_WEIGHTS, linewidth=0.5)
    remarks = [Remark(_middle(axis, query), f"query {_when(axis, query)}", COLOUR_OF_QUERY)]
    remarks += [
        Remark(_middle(axis, i), f"{_when(axis, i)}: {_percent(row[i].item())}", None)
        for i in _peaks(row, axis)
    ]
    _write(ax, remarks, row, edges)
    ax.set_ylabel(_meaning(row, block))
    return ax


def _check(shares: Tensor, axis: Axis, query: int) -> None:
    check_weights("shares", shares, ("key",), "Choose one row, for example weights[0, 3, 17].")
    check_axis("axis", len(axis), "key", shares.shape[0])
    if not has_times(axis):
        raise ArgumentError(
            f"axis must be moments in the order of time; got {axis.kind} positions. "
            "Use plot_arcs or plot_heatmap."
        )
    if not 0 <= query < len(axis):
        raise ArgumentError(f"query must lie from 0 to {len(axis) - 1}; got {query}.")


def _meaning(row: Float[Tensor, "key"], block: int) -> str:
    if not row.any():
        return "weight (all are 0)"
    return "weight" if block == 1 else f"weight, largest of {block}"


def _middle(axis: Axis, position: int) -> float:
    start, end = edges_seconds(axis)[position : position + 2]
    return (start + end) / 2


def _when(axis: Axis, position: int) -> str:
    longest = axis.spans[-1][1]
    text = clock(axis.spans[position][0], longest, 2)
    text += " s" if unit_of_clock(longest) == "seconds" else ""
    return f"{text} (frame {axis.frames[position][0]})" if axis.frames else text


def _percent(weight: float) -> str:
    return f"{100 * weight:.3g} %" if weight >= 0.001 else f"{100 * weight:.1g} %"


def _peaks(row: Float[Tensor, "key"], axis: Axis) -> list[int]:
    """Return the positions of the largest weights that lie apart, the largest first."""
    times = torch.tensor(edges_seconds(axis), dtype=torch.float64)[:-1]
    near = PEAK_SHARE * (axis.spans[-1][1] - axis.spans[0][0])
    left = row.clone()
    least = max(
        STANDING_OUT_OF_MEAN * row.mean().item(), STANDING_OUT_OF_LARGEST * row.max().item()
    )
    peaks: list[int] = []
    for _ in range(NAMED_MOMENTS):
        peak = int(left.argmax())
        if left[peak] <= least:
            break
        peaks.append(peak)
        left[(times - times[peak]).abs() <= near] = 0
    return peaks


def _write(ax: Axes, remarks: list[Remark], row: Float[Tensor, "key"], edges: list[float]) -> None:
    """Write each remark above its moment, higher where it would touch another one."""
    first, last = edges[0], edges[-1]
    top = row.max().item() or 1.0
    room = width_points(ax)
    colour_of_text = ax.xaxis.label.get_color()
    ends_points: list[float] = []
    for remark in sorted(remarks, key=lambda remark: remark.seconds):
        width = width_in_letters(remark.text) * LETTER * FONT_POINTS
        centre = (remark.seconds - first) / (last - first) * room
        left = max(min(centre - width / 2, room - width), 0.0)
        level = next((i for i, end in enumerate(ends_points) if end <= left), len(ends_points))
        ends_points[level : level + 1] = [left + width + 8]
        place, side = remark.seconds, "center"
        if left == 0.0:
            place, side = first + 4 / room * (last - first), "left"
        elif left == room - width:
            place, side = last, "right"
        height = top * (1.08 + LEVEL * level)
        ax.vlines(
            remark.seconds,
            0,
            height,
            color=remark.colour or colour_of_text,
            linewidth=0.9,
            linestyle=":",
            clip_on=False,
        )
        ax.text(
            place,
            height,
            remark.text,
            color=remark.colour or colour_of_text,
            fontsize=FONT_POINTS,
            ha=side,
            va="bottom",
            bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.0},
        )
    times = round_times(first, last)
    decimals = max((len(f"{t:.3f}".rstrip("0").partition(".")[2]) for t in times), default=0)
    ax.set_xticks(times, [clock(t, last, decimals) for t in times])
    ax.set(xlim=(first, last), ylim=(0, top * (1.1 + LEVEL * len(ends_points))))
    ax.set_xlabel(unit_of_clock(last))
    ax.spines[["top", "right"]].set_visible(False)
    # Above the ground of the remarks.
    ax.spines["left"].set_zorder(4)
