"""The table itself: which torch function is done by which of our functions."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

TABLE: dict[str, Callable[..., Any]] = {}
"""From the name of a torch function to what does it on a map.

A function of the table may return NotImplemented: there is no lazy form for these arguments.
"""


def on(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table under these names."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


def alias(names: dict[str, str]) -> None:
    """Enter further names of functions that the table has."""
    TABLE.update({name: TABLE[known] for name, known in names.items()})


def listed(given: Any) -> list[int]:
    """Return integers that came one by one or as one sequence."""
    if len(given) == 1 and not isinstance(given[0], int):
        given = given[0]
    return [int(number) for number in given]


def before(held: Tensor, dim: int) -> tuple[slice, ...]:
    """Return the index parts that stand before dimension `dim`."""
    if not -held.ndim <= dim < held.ndim:
        raise IndexError(f"dim must lie from {-held.ndim} to {held.ndim - 1}; got {dim}.")
    return (slice(None),) * (dim % held.ndim)


def one_of(dim: int, count: int) -> int:
    """Return a dimension counted from the front, or raise as torch does."""
    if not -count <= dim < count:
        raise IndexError(f"dim must lie from {-count} to {count - 1}; got {dim}.")
    return dim % count
