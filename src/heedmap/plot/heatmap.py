"""One matrix of weights as a picture: queries downwards, keys to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Axis
from heedmap.plot.cells import Cells, check_axis, check_weights, pool_cells
from heedmap.plot.figures import new_axes, require_matplotlib
from heedmap.plot.fonts import find_fonts
from heedmap.plot.scale import (
    COLOUR_OF_ZERO,
    Range,
    colour_map,
    linear_range,
    logarithmic_range,
    normalisation,
    zeros_left_out,
)
from heedmap.plot.ticks import draw_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CELLS = 800
SMOOTHED_FROM = 100


def plot_heatmap(
    weights: Float[Tensor, "query key"],
    *,
    query_axis: Axis | None = None,
    key_axis: Axis | None = None,
    log: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Return axes with the weights as colours, queries downwards and keys to the right.

    More than 800 positions on a side are drawn as means of equal blocks, and the colour bar says
    so. Its scale ends at the 99.5th percentile of the drawn cells above 0, or at twice their mean
    where that is more, and it says how large the largest is. What is exactly 0 (what a mask hides,
    above all) is grey.

    Args:
        weights: One matrix, of one head.
        query_axis: What the queries are; bare positions without it.
        key_axis: What the keys are; bare positions without it.
        log: Whether equal steps of colour mean equal factors, from the largest weight down over
            four powers of ten at most.
        title: Written above.
        ax: Where to draw; on a figure of its own without it.

    Raises:
        ShapeError: if weights are not one matrix, or an axis has not one label a position.
        DTypeError: if weights are not floating point.
        ArgumentError: if a weight is negative or not finite.
        MissingExtraError: if matplotlib is not installed.

    Cost:
        One pass over the map; memory of at most 800 × 800 cells.

    Example:
        >>> import torch
        >>> plot_heatmap(torch.tensor([[1.0, 0.0], [0.5, 0.5]])).get_xlabel()
        'key'
    """
    check_weights(
        "weights", weights, ("query", "key"), "Choose one matrix, for example weights[0, 3]."
    )
    queries, keys = weights.shape
    for name, axis, side, size in (
        ("query_axis", query_axis, "query", queries),
        ("key_axis", key_axis, "key", keys),
    ):
        if axis is not None:
            check_axis(name, len(axis), side, size)
    require_matplotlib()
    cells = pool_cells("weights", weights, MOST_CELLS, MOST_CELLS)
    if ax is None:
        ax = new_axes(*_size_inches(queries, keys))
    _draw_cells(ax, cells, queries, keys, log)
    titles = [title] if title else []
    labels = [label for axis in (query_axis, key_axis) if axis for label in axis.labels]
    fonts = find_fonts(labels + titles)
    draw_ticks(ax, "y", query_axis, queries, "query", fonts)
    draw_ticks(ax, "x", key_axis, keys, "key", fonts)
    for text in titles:
        ax.set_title(fonts.drawable(text, 100), fontfamily=list(fonts.families), parse_math=False)
    return ax


def _draw_cells(ax: Axes, cells: Cells, queries: int, keys: int, log: bool) -> None:
    limits = (logarithmic_range if log else linear_range)(cells.values)
    image = ax.imshow(
        zeros_left_out(cells.values).numpy(),
        cmap=colour_map(),
        norm=normalisation(limits, log),
        extent=(-0.5, keys - 0.5, queries - 0.5, -0.5),
        aspect="equal" if 0.25 <= queries / keys <= 4 else "auto",
        # Smoothing keeps fine lines even, but would run a few broad cells into each other.
        interpolation="auto" if min(cells.values.shape) >= SMOOTHED_FROM else "nearest",
    )
    below = log and bool(((cells.values > 0) & (cells.values < limits.lowest)).any())
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max"}.get(
        (below, limits.clipped), "both"
    )
    bar = ax.get_figure().colorbar(image, ax=ax, extend=extend, fraction=0.05, pad=0.03)  # pyright: ignore[reportOptionalMemberAccess]
    bar.set_label(_meaning(cells, limits))
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(labelsize=8)
    if bool((cells.values == 0).any()):
        _explain_grey(bar.ax)
    ax.spines[:].set_color("#888888")


def _meaning(cells: Cells, limits: Range) -> str:
    if limits.largest == 0:
        return "weight (all are 0)"
    rows, columns = cells.block
    name = "weight" if cells.block == (1, 1) else f"weight, mean of {rows} × {columns} cells"
    if limits.clipped:
        name += f"\ncut at {limits.highest:.2g}; the largest is {limits.largest:.2g}"
    return name


def _explain_grey(bar_axes: Axes) -> None:
    from matplotlib.patches import Rectangle

    bar_axes.add_patch(
        Rectangle(
            (0, -0.1),
            1,
            0.04,
            transform=bar_axes.transAxes,
            facecolor=COLOUR_OF_ZERO,
            clip_on=False,
        )
    )
    bar_axes.text(1.4, -0.08, "exactly 0", transform=bar_axes.transAxes, fontsize=8, va="center")


def _size_inches(queries: int, keys: int) -> tuple[float, float]:
    """Return the size of a figure in which up to 40 labels fit and cells are square."""
    longest = max(queries, keys)
    side = min(max(0.17 * longest, 3.4), 6.2)
    height, width = (
        max(side * n / longest, 0.3 * side, 0.14 * min(n, 40)) for n in (queries, keys)
    )
    return width + 1.9, height + 1.0
