"""All heads of a model on one page, a thumbnail each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from heedmap.errors import ArgumentError, ShapeError
from heedmap.plot.cells import check_weights, pool_cells
from heedmap.plot.figures import new_axes, require_matplotlib
from heedmap.plot.fonts import find_fonts
from heedmap.plot.scale import colour_map, linear_range, zeros_left_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Shape = tuple[int, int]
MOST_CELLS = 96
# As shares of a thumbnail.
GAP = 0.08
LABEL = 0.2
THUMBNAIL_INCHES = 1.16
DOTS_PER_INCH = 100
COLOUR_OF_FRAME = "#d62728"


def plot_atlas(
    maps: Float[Tensor, "layers heads query key"] | Sequence[Float[Tensor, "_ _ _"]],
    *,
    labels: Sequence[Sequence[str]] | None = None,
    chosen: tuple[int, int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Return axes with one small heat map per head: layers downwards, heads to the right.

    Each has a colour scale of its own, from 0 to what the rule of `plot_heatmap` says, so that a
    head can be told by its pattern; strengths cannot be compared between heads. What is exactly 0
    is grey.

    Args:
        maps: The weights of all layers, or one map [heads, query, key] per layer (layers may
            differ in size).
        labels: A few words under each head, ``labels[layer][head]``.
        chosen: The layer and the head that get a red frame, counted from 0.
        ax: Where to draw; on a figure of its own without it.

    Raises:
        ShapeError: if maps are not matrices per layer and head, or labels do not fit them.
        DTypeError: if weights are not floating point.
        ArgumentError: if `chosen` is not one of the heads, or a weight is negative or not finite.
        MissingExtraError: if matplotlib is not installed.

    Cost:
        One pass over each map; memory of 96 × 96 cells a head.

    Example:
        >>> import torch
        >>> plot_atlas(torch.eye(4).expand(2, 3, 4, 4), chosen=(1, 2)).get_ylabel()
        'layer'
    """
    layers = _checked_layers(maps)
    heads = [len(layer) for layer in layers]
    if labels is not None and [len(row) for row in labels] != heads:
        raise ShapeError(
            f"labels must have one text for each head of each layer, {heads}; "
            f"got {[len(row) for row in labels]}."
        )
    if chosen is not None and not (
        0 <= chosen[0] < len(heads) and 0 <= chosen[1] < heads[chosen[0]]
    ):
        raise ArgumentError(
            f"chosen must be one of {len(heads)} layers and one of its heads, counted from 0; "
            f"got {chosen}."
        )
    require_matplotlib()
    thumbnails = [_thumbnails(layer) for layer in layers]
    box = (max(len(t[0]) for t in thumbnails), max(len(t[0][0]) for t in thumbnails))
    gap = math.ceil(GAP * max(box))
    pitch = (box[0] + gap + (math.ceil(LABEL * max(box)) if labels else 0), box[1] + gap)
    page = _compose(thumbnails, pitch)
    if ax is None:
        inches = THUMBNAIL_INCHES / max(box)
        width, height = (max(n * inches, 1.5) + 0.6 for n in (page.shape[1], page.shape[0]))
        ax = new_axes(width, height, DOTS_PER_INCH)
    ax.imshow(page.numpy(), interpolation="auto")
    _name_rows_and_columns(ax, len(layers), max(heads), box, pitch)
    ax.text(0, page.shape[0], "scale: each its own\ngrey: exactly 0", fontsize=7, va="top")
    if labels is not None:
        _write_labels(ax, labels, box, pitch)
    if chosen is not None:
        _frame(ax, chosen, thumbnails[chosen[0]][0].shape, pitch)
    return ax


def _checked_layers(maps: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if isinstance(maps, Tensor):
        check_weights(
            "maps", maps, ("layers", "heads", "query", "key"), "Choose one sample of a batch first."
        )
        return [maps[layer] for layer in range(maps.shape[0])]
    layers = list(maps) if isinstance(maps, Iterable) else []
    if not layers:
        raise ShapeError("maps must have at least one layer; got none.")
    for layer in layers:
        check_weights(
            "each of maps", layer, ("heads", "query", "key"), "Choose one sample of a batch first."
        )
    return layers


def _thumbnails(layer: Float[Tensor, "heads query key"]) -> UInt8[Tensor, "heads height width 4"]:
    """Return the heads of one layer as coloured pictures, small maps enlarged by whole factors."""
    values = pool_cells("maps", layer, MOST_CELLS, MOST_CELLS).values
    factor = max(round(MOST_CELLS / max(values.shape[-2:])), 1)
    colours = colour_map()
    pictures = [
        colours((zeros_left_out(head) / linear_range(head).highest).numpy(), bytes=True)
        for head in values
    ]
    pixels = torch.stack([torch.from_numpy(picture) for picture in pictures])
    return pixels.repeat_interleave(factor, 1).repeat_interleave(factor, 2)


def _compose(
    thumbnails: list[UInt8[Tensor, "_ _ _ 4"]], pitch: Shape
) -> UInt8[Tensor, "height width 4"]:
    """Return one transparent page with all thumbnails: a single image draws fast."""
    rows, columns = len(thumbnails), max(map(len, thumbnails))
    page = torch.zeros(rows * pitch[0], columns * pitch[1], 4, dtype=torch.uint8)
    for row, layer in enumerate(thumbnails):
        for column, picture in enumerate(layer):
            top, left = row * pitch[0], column * pitch[1]
            page[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return page


def _name_rows_and_columns(ax: Axes, rows: int, columns: int, box: Shape, pitch: Shape) -> None:
    ax.set_xticks([c * pitch[1] + box[1] / 2 for c in range(columns)], [*map(str, range(columns))])
    ax.set_yticks([r * pitch[0] + box[0] / 2 for r in range(rows)], [*map(str, range(rows))])
    ax.set(xlabel="head", ylabel="layer")
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)


def _write_labels(ax: Axes, labels: Sequence[Sequence[str]], box: Shape, pitch: Shape) -> None:
    fonts = find_fonts(itertools.chain.from_iterable(labels))
    for row, layer in enumerate(labels):
        for column, label in enumerate(layer):
            if label:
                ax.text(
                    column * pitch[1] + box[1] / 2,
                    row * pitch[0] + box[0] * 1.05,
                    fonts.drawable(label),
                    fontfamily=list(fonts.families),
                    fontsize=8,
                    parse_math=False,
                    ha="center",
                    va="top",
                )


def _frame(ax: Axes, chosen: tuple[int, int], size: Sequence[int], pitch: Shape) -> None:
    from matplotlib.patches import Rectangle

    corner = (chosen[1] * pitch[1] - 2.5, chosen[0] * pitch[0] - 2.5)
    frame = Rectangle(
        corner, size[1] + 4, size[0] + 4, fill=False, edgecolor=COLOUR_OF_FRAME, linewidth=2
    )
    # The frame of the first row or column reaches over the edge of the axes.
    frame.set_clip_on(False)
    ax.add_patch(frame)
