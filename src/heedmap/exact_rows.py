"""Single rows of weights by the plain formula in float64, to compare others with."""

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.places import Places, look_up
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
    device = problem.query.device
    matrices, keys = torch.tensor([matrix], device=device), problem.extent.keys
    rows, columns = torch.tensor([row], device=device), torch.arange(keys, device=device)
    places = Places.of_block(matrices, problem.extent.heads, rows, columns)
    scoring = problem.scoring
    # Not out of `flat_key`: that would be a copy of them all.
    batch, head = divmod(matrix, problem.extent.heads)
    key = problem.key[batch, head // (problem.extent.heads // problem.key.shape[1])]
    scores = key.double() @ problem.query[batch, head, row].double()
    scores = scores * scoring.scale
    if scoring.soft_cap is not None:
        scores = torch.tanh(scores / scoring.soft_cap) * scoring.soft_cap
    if scoring.bias is not None:
        scores = scores + look_up(scoring.bias, places).double().expand(1, 1, keys)[0, 0]
    if scoring.change is not None:
        scores = scoring.change(scores[None, None], places)[0, 0]
    if problem.mask is not None:
        visible = problem.mask.tile(places).expand(1, 1, keys)[0, 0]
        scores = scores.masked_fill(~visible, -torch.inf)
    if scoring.sinks is not None:
        scores = torch.cat([scores, problem.sink_column(matrices)[0].double()])
    if bool((scores == -torch.inf).all()):
        return torch.zeros_like(scores[:keys])
    return torch.softmax(scores, dim=0)[:keys]
