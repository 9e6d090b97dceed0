"""From weights of any size to the few cells that a picture draws."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import ArgumentError, DTypeError, ShapeError


@dataclass(frozen=True)
class Cells:
    """Block means of weights.

    Attributes:
        values: One mean for each drawn cell, on the CPU.
        block: How many queries and how many keys one cell stands for, at most.
    """

    values: Float[Tensor, "*batch rows columns"]
    block: tuple[int, int]


def pool_cells(
    name: str, weights: Float[Tensor, "*batch query key"], most_rows: int, most_columns: int
) -> Cells:
    """Return means of equal blocks of `weights`, no more than asked for.

    A lazy map computes them itself and never holds more; of an ordinary tensor torch takes the
    means. Blocks are of one size wherever the number of positions allows. `name` is the argument
    that errors speak of.

    Raises:
        ArgumentError: if a mean is negative or not finite.
    """
    queries, keys = weights.shape[-2:]
    block = (math.ceil(queries / most_rows), math.ceil(keys / most_columns))
    rows, columns = math.ceil(queries / block[0]), math.ceil(keys / block[1])
    if hasattr(weights, "pool"):
        values = weights.pool(rows, columns).detach()  # pyright: ignore[reportAttributeAccessIssue]
    elif block == (1, 1):
        values = weights.detach()
    else:
        flat = weights.detach().float().reshape(1, -1, queries, keys)
        values = torch.nn.functional.adaptive_avg_pool2d(flat, (rows, columns))
        values = values.reshape(*weights.shape[:-2], rows, columns)
    values = values.cpu().float()
    check_values(name, values)
    return Cells(values, block)


def check_values(name: str, values: Float[Tensor, "..."]) -> None:
    """Refuse weights that are negative or not finite; `name` is the argument they came in."""
    if not torch.isfinite(values).all():
        wrong = values[~torch.isfinite(values)][0].item()
        raise ArgumentError(f"{name} must be finite; got {wrong}. Find out where it comes from.")
    if (values < 0).any():
        raise ArgumentError(
            f"{name} must be 0 or more; got {values.min().item():.4g}. "
            "Pass what comes out of the softmax, not the scores."
        )


def check_weights(name: str, weights: Tensor, expected: tuple[str, ...], advice: str) -> None:
    """Refuse weights that do not have these dimensions, are empty, or no floating-point tensor."""
    if not isinstance(weights, Tensor):
        raise DTypeError(
            f"{name} must be a tensor or an AttentionMap; got {type(weights).__name__}. "
            "Of an array or lists torch.as_tensor makes one."
        )
    shape = tuple(weights.shape)
    if len(shape) != len(expected):
        raise ShapeError(
            f"{name} must be [{', '.join(expected)}]; got {list(shape)}. {advice}".rstrip()
        )
    if 0 in shape:
        raise ShapeError(f"{name} must have no empty dimension; got {list(shape)}.")
    if not weights.dtype.is_floating_point:
        raise DTypeError(
            f"{name} must be floating point; got {weights.dtype}. Convert with {name}.float()."
        )


def check_axis(name: str, axis_size: int, side: str, side_size: int) -> None:
    """Refuse an axis that has not one label for each position of its side."""
    if axis_size != side_size:
        raise ShapeError(
            f"{name} must have one label for each {side}; "
            f"got {axis_size} labels for {side_size} {side} positions."
        )
