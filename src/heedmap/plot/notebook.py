"""What a notebook shows of a map: its words, and a small picture of its first matrices."""

import html
import io
import time
from base64 import b64encode

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.plot.scale import colour_map, linear_range, normalisation, zeros_left_out

PIXELS = 96
MOST_PICTURES = 8
BUDGET_SECONDS = 0.5
FEW_CELLS = 2048**2
"""Matrices of so many cells are drawn from all of them; larger ones from some of their queries."""


def picture_of(weights: AttentionMap) -> str | None:
    """Return HTML with the words of `repr` and pictures of the first heads; None if there are none.

    Each picture shows block means. Of a large matrix 96 queries, evenly spread, stand for all, and
    the caption says so. After half a second no further picture is begun.

    Raises:
        ImportError: if matplotlib is not installed.

    Cost: at most 4 million cells for each picture, or 96 rows of a longer map.
    """
    if weights.ndim < 2 or 0 in weights.shape:
        return None
    queries, keys = weights.shape[-2:]
    stack = weights.detach().reshape(-1, queries, keys)
    sampled = queries * keys > FEW_CELLS
    begun, pictures = time.monotonic(), []
    for matrix in stack[:MOST_PICTURES]:
        pictures.append(_image(_cells(matrix, sampled)))
        if time.monotonic() - begun > BUDGET_SECONDS:
            break
    words = html.escape(repr(weights).split("\n")[0].rstrip(",")) if sampled else ""
    what = f"{_counted(len(pictures), len(stack))}: query downwards, key across, means of blocks"
    if sampled:
        what += f"; of {PIXELS} queries, evenly spread. weights.explore() shows all"
    size = " × ".join(map(str, weights.shape))
    return (
        f"<div><div><b>AttentionMap</b> {size}</div>{''.join(pictures)}"
        f"<div><small>{what}</small></div><div><small>{words}</small></div></div>"
    )


def _counted(shown: int, there: int) -> str:
    return f"{shown} of {there} matrices" if there > 1 else "the matrix"


def _cells(matrix: Tensor, sampled: bool) -> Float[Tensor, "rows columns"]:
    assert isinstance(matrix, AttentionMap)
    queries, keys = matrix.shape
    if sampled and queries > PIXELS:
        chosen = matrix[torch.linspace(0, queries - 1, PIXELS).long()]
        assert isinstance(chosen, AttentionMap)
        matrix, queries = chosen, PIXELS
    return matrix.pool(min(queries, PIXELS), min(keys, PIXELS)).cpu().float()


def _image(cells: Float[Tensor, "rows columns"]) -> str:
    from matplotlib.image import imsave

    finite = torch.where(torch.isfinite(cells), cells, 0)
    colours = colour_map()(normalisation(linear_range(finite), log=False)(zeros_left_out(finite)))
    stored = io.BytesIO()
    imsave(stored, colours, format="png")
    data = b64encode(stored.getvalue()).decode()
    rows, columns = cells.shape
    width = max(1, round(PIXELS * min(1, columns / rows)))
    height = max(1, round(PIXELS * min(1, rows / columns)))
    style = f"width:{2 * width}px;height:{2 * height}px;image-rendering:pixelated;margin:2px"
    return f'<img alt="a matrix of weights" style="{style}" src="data:image/png;base64,{data}">'
