"""From a call to its weights: the problem that it is, and whether that gives what was computed."""

import torch

from heedmap.attention_map import AttentionMap, map_of
from heedmap.exact_rows import row_of, sample
from heedmap.lazy_weights import LogNormalizer, Trace
from heedmap.problem import Problem, make_problem
from heedmap.watch.call import Call


def problem_of(call: Call) -> Problem:
    """Return the problem that a call poses."""
    problem, _ = make_problem(
        call.query,
        call.key,
        None,
        mask=call.mask,
        scale=call.scale,
        soft_cap=call.soft_cap,
        bias=call.bias,
        sinks=call.sinks,
        change=call.score_change,
    )
    return problem


def map_of_call(call: Call, problem: Problem | None = None, *, grad: bool = False) -> AttentionMap:
    """Return the weights of a call ``[*lead, query, key]``; with `grad`, with a trace to them.

    Args:
        call: The call.
        problem: The one that it poses, where that has been made already.
        grad: Whether the gradient with respect to the weights is to be had.
    """
    if call.dense is not None:
        return shaped(AttentionMap.from_weights(call.dense), call.lead)
    problem = problem_of(call) if problem is None else problem
    trace = None
    if grad and call.edge is not None and call.value is not None and not call.dropout:
        trace = Trace(call.edge, call.value, call.form)
    known = LogNormalizer(problem, trace=trace)
    return shaped(map_of(problem, known, problem.query), call.lead)


def shaped(weights: AttentionMap, lead: tuple[int, ...]) -> AttentionMap:
    """Return the map with the leading dimensions that the model has."""
    if len(lead) == 2:
        return weights
    folded = weights.reshape(*lead, *weights.shape[-2:])
    assert isinstance(folded, AttentionMap)
    return folded


@torch.no_grad()
def output_error(call: Call, problem: Problem) -> float | None:
    """Return how far weights · values lie from the kernel's output at most, in some rows.

    The unit is the largest value. Rows that see nothing are left out, to which some kernels give
    the mean of all values, and rows of NaN.
    """
    if call.output is None or call.value is None or call.dropout:
        return None
    heads, groups = problem.extent.heads, problem.extent.heads // call.value.shape[1]
    worst = 0.0
    # Two, for the model waits meanwhile.
    for matrix, row in sample(problem, 2):
        weights = row_of(problem, matrix, row)
        if not float(weights.sum()) > 0:
            continue
        batch, head = divmod(matrix, heads)
        # What nobody sees may be no number, and must not count.
        values = call.value[batch, head // groups].double().masked_fill((weights == 0)[:, None], 0)
        size = float(values.abs().amax()) or 1.0
        error = (weights @ values - call.output[batch, head, row].double()).abs().amax()
        worst = max(worst, float(error) / size)
    return worst


@torch.no_grad()
def agrees(call: Call, problem: Problem) -> bool:
    """Return whether factors give the weights that a softmax gave, in some rows."""
    if call.dense is None:
        return True
    dense = call.dense.flatten(0, 1)
    if tuple(problem.extent) != tuple(call.dense.shape):
        return False
    for matrix, row in sample(problem):
        weights = row_of(problem, matrix, row)
        if not float(weights.sum()) > 0:
            continue
        # A model in half precision may take the softmax alone in single.
        coarsest = max(torch.finfo(part.dtype).eps for part in (dense, call.query))
        tolerance = 16 * coarsest
        if not torch.allclose(dense[matrix, row].double(), weights, rtol=0, atol=tolerance):
            return False
    return True
