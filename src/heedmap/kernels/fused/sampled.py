"""Whether a kernel's output and log-normaliser are right: sampled rows of them in float64.

What a kernel gives beside its output is no part of PyTorch's public promises. It may be padded,
laid out otherwise, counted in another base, or rounded, and nobody but us would notice.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.exact_rows import row_of, sample
from heedmap.problem import Problem

ROWS = 16

NORMALIZER_ERROR = 3e-5
"""How far off a log-normaliser may be, and where it is beyond ±1, over its size.

Weights made with it are off by the same share.
"""

LEAST_OUTPUT_ERROR = 1e-5
"""How far off an output may be, over the largest value, where its number type is not coarser."""


def is_right(
    problem: Problem,
    value: Float[Tensor, "batch kv_heads key value_dim"],
    output: Float[Tensor, "batch heads query value_dim"],
    normalizer: Float[Tensor, "batch heads query"],
) -> bool:
    """Return whether sampled rows of output and log-normaliser are those of the plain formula.

    Both are without sinks.

    Cost: O(keys · width) for each of the sampled rows, in float64.
    """
    heads = problem.extent.heads
    problem = replace(problem, scoring=replace(problem.scoring, sinks=None))
    eps = torch.finfo(value.dtype).eps
    reach = max(2 * eps, LEAST_OUTPUT_ERROR) * float(value.abs().max())
    for matrix, row in sample(problem, ROWS):
        batch, head = divmod(matrix, heads)
        weights = row_of(problem, matrix, row)
        shared = value[batch, head // (heads // value.shape[1])]
        if not _is_close(output[batch, head, row].double(), weights @ shared.double(), reach):
            return False
        exact = _log_normalizer(problem, weights, matrix, row)
        allowed = NORMALIZER_ERROR * max(1.0, abs(float(exact)) if exact > -torch.inf else 1.0)
        if not _is_close(normalizer[batch, head, row].double(), exact, allowed):
            return False
    return True


def _log_normalizer(problem: Problem, weights: Tensor, matrix: int, row: int) -> Tensor:
    """Return that of a row of weights: the score of its strongest key less the weight's log."""
    heads, kv_heads = problem.extent.heads, problem.key.shape[1]
    batch, head = divmod(matrix, heads)
    key = int(weights.argmax())
    if not weights[key] > 0:
        return weights.new_tensor(-torch.inf)
    vector = problem.key[batch, head // (heads // kv_heads), key].double()
    score = problem.query[batch, head, row].double() @ vector * problem.scoring.scale
    return score - torch.log(weights[key])


def _is_close(found: Tensor, exact: Tensor, allowed: float) -> bool:
    # Equal infinities have no difference that is a number.
    return bool(((found == exact) | ((found - exact).abs() <= allowed)).all())
