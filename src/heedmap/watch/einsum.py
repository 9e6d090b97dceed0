"""Products of matrices that are written as an einsum."""

import string
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Product(NamedTuple):
    """An einsum of two as a product of matrices.

    Attributes:
        left: ``[..., rows, summed]``.
        right: ``[..., summed, columns]``.
        back: What turns the einsum's result to that of ``left @ right``.
    """

    left: Tensor
    right: Tensor
    back: Callable[[Tensor], Tensor]


def as_product(
    equation: Any, left: Tensor, right: Tensor, *, in_order_of_left: bool
) -> Product | None:
    """Return the product that an einsum is, None where it is none.

    Args:
        equation: As `torch.einsum` takes it.
        left: The first operand.
        right: The second one.
        in_order_of_left: Whether the dimensions that both share keep the order that they have in
            `left`; else that of the result.
    """
    if not isinstance(equation, str) or equation.count("->") != 1 or equation.count(",") != 1:
        return None
    named = _named(equation.replace(" ", ""), left, right)
    if named is None:
        return None
    first, second, out = named
    ordered = first if in_order_of_left else out
    shared = [label for label in ordered if label in first and label in second and label in out]
    rows = [label for label in out if label in first and label not in second]
    columns = [label for label in out if label in second and label not in first]
    summed = [label for label in first if label in second and label not in out]
    all_used = {len(shared) + 2} == {len(first), len(second), len(out)}
    if [len(rows), len(columns), len(summed)] != [1, 1, 1] or not all_used:
        return None
    return Product(
        _turned(left, first, [*shared, *rows, *summed]),
        _turned(right, second, [*shared, *summed, *columns]),
        lambda result: _turned(result, out, [*shared, *rows, *columns]),
    )


def swapped(equation: str) -> str:
    """Return the equation for the operands in the other order."""
    given, arrow, out = equation.partition("->")
    first, _, second = given.partition(",")
    return f"{second},{first}{arrow}{out}"


def _named(equation: str, left: Tensor, right: Tensor) -> tuple[str, str, str] | None:
    """Return the labels of both operands and of the result, with letters for an ellipsis."""
    given, out = equation.split("->")
    first, second = given.split(",")
    hidden = [
        tensor.ndim - len(labels.replace("...", ""))
        for labels, tensor in ((first, left), (second, right))
        if "..." in labels
    ]
    if not hidden:
        return first, second, out
    if len(set(hidden)) != 1:
        return None
    free = [letter for letter in string.ascii_letters if letter not in equation]
    letters = "".join(free[: hidden[0]])
    first, second, out = (labels.replace("...", letters) for labels in (first, second, out))
    return first, second, out


def _turned(tensor: Tensor, have: str, want: list[str]) -> Tensor:
    order = [have.index(label) for label in want]
    return tensor if order == list(range(tensor.ndim)) else tensor.permute(order)
