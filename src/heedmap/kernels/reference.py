"""The plain formula, written to be read: the oracle of the tests, and of gradients of gradients.

It makes every score at once, so it is for small problems only.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.problem import Problem, all_finite, gather


def dense_weights(
    problem: Problem,
) -> tuple[Float[Tensor, "matrices query key"], Float[Tensor, "matrices query"]]:
    """Return softmax(scores) and the log of what it divides by; a row that sees nothing is 0, −inf.

    Cost: O(matrices · queries · keys) memory.
    """
    batch, heads, queries, keys = problem.extent
    scores = problem.scores(range(batch * heads), range(queries), range(keys))
    if (sinks := problem.scoring.sinks) is not None:
        column = sinks.repeat(batch)[:, None, None].expand(-1, queries, 1)
        scores = torch.cat([scores, column], dim=-1)
    # A row of nothing but −inf has no softmax. It is set aside before, not repaired after, since
    # a NaN would live on in the gradient.
    empty = (scores == -torch.inf).all(-1)
    scores = scores.masked_fill(empty[..., None], 0)
    log_normalizer = torch.logsumexp(scores, dim=-1).masked_fill(empty, -torch.inf)
    weights = torch.softmax(scores, dim=-1).masked_fill(empty[..., None], 0)
    return weights[..., :keys], log_normalizer


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return weights @ value and the log-normaliser, by the plain formula."""
    batch, heads, queries, _ = problem.extent
    weights, log_normalizer = dense_weights(problem)
    shared = value.repeat_interleave(heads // value.shape[1], dim=1).flatten(0, 1)
    output = gather(weights, shared.to(weights.dtype), all_finite(value))
    return (
        output.to(value.dtype).reshape(batch, heads, queries, value.shape[-1]),
        log_normalizer.reshape(batch, heads, queries),
    )
