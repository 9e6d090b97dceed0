"""Single rows of weights by the plain formula in float64, to compare others with."""

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.places import look_up
from heedmap.problem import Problem

ROWS = 4
"""How many rows of a problem are compared."""


def sample(problem: Problem, rows: int = ROWS) -> list[tuple[int, int]]:
    """Return matrices and rows to compare: the first and last, and some between."""
    batch, heads, queries, _ = problem.extent
    cells = batch * heads * queries
    if not cells:
        return []
    numbers = sorted({round(i * (cells - 1) / (rows - 1)) for i in range(rows)})
    return [divmod(number, queries) for number in numbers]


def row_of(problem: Problem, matrix: int, row: int) -> Float[Tensor, " key"]:
    """Return one row of weights by the plain formula in float64.

    Cost: O(keys · head_dim).
    """
    scoring, (_, heads, _, keys) = problem.scoring, problem.extent
    block = range(matrix, matrix + 1), range(row, row + 1), range(keys)
    # Not out of `flat_key`: that would be a copy of them all.
    batch, head = divmod(matrix, heads)
    key = problem.key[batch, head // (heads // problem.key.shape[1])]
    scores = key.double() @ problem.query[batch, head, row].double()
    scores = scores * scoring.scale
    if scoring.soft_cap is not None:
        scores = torch.tanh(scores / scoring.soft_cap) * scoring.soft_cap
    if scoring.bias is not None:
        bias = look_up(scoring.bias, problem.places(*block)).double()
        scores = scores + bias.expand(1, 1, keys)[0, 0]
    if scoring.change is not None:
        scores = scoring.change(scores[None, None], problem.places(*block))[0, 0]
    visible = problem.visible(*block)
    if visible is not None:
        scores = scores.masked_fill(~visible.expand(1, 1, keys)[0, 0], -torch.inf)
    if scoring.sinks is not None:
        scores = torch.cat([scores, scoring.sinks[head].double()[None]])
    if bool((scores == -torch.inf).all()):
        return torch.zeros_like(scores[:keys])
    return torch.softmax(scores, dim=0)[:keys]
