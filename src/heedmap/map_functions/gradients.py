"""The gradient of a loss with respect to the weights: a map of low rank, never dense.

With O = P·V, the gradient of a loss with respect to P is dO·Vᵀ: the product of two factors as thin
as query and key, which is exactly what a map of scores is.
"""

from typing import Any

import torch
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.errors import UnsupportedError
from heedmap.lazy_weights import LazyWeights, LogNormalizer, Trace, leaves
from heedmap.map_cells import densify
from heedmap.problem import Problem
from heedmap.scoring import Scoring


def gradient(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Do `torch.autograd.grad` where some of the inputs are maps.

    Raises:
        UnsupportedError: for a map that is not the whole map of an `attention` call, whose
            gradient has no output to come from; and for outputs that depend on the map by more
            than the output, since that part would be missing.
    """
    outputs = _dense(outputs)
    args, kwargs = tuple(map(_dense, args)), {key: _dense(x) for key, x in kwargs.items()}
    single = isinstance(inputs, Tensor)
    asked = [inputs] if single else list(inputs)
    traces = {at: _trace(held) for at, held in enumerate(asked) if isinstance(held, AttentionMap)}
    for at, trace in traces.items():
        _refuse_other_ways(outputs, asked[at], trace)
    roots = [traces[at].output if at in traces else held for at, held in enumerate(asked)]
    found = torch.autograd.grad(outputs, roots, *args, **kwargs)
    return tuple(
        _low_rank(held, traces[at], grad)
        if isinstance(held, AttentionMap) and grad is not None
        else grad
        for at, (held, grad) in enumerate(zip(asked, found, strict=True))
    )


def _dense(given: Any) -> Any:
    """Return what was given with ordinary tensors for maps, under the budget."""
    if isinstance(given, AttentionMap):
        return densify(given, "autograd.grad")
    return [_dense(part) for part in given] if isinstance(given, tuple | list) else given


def _trace(held: AttentionMap) -> Trace:
    rule = held._rule
    if not isinstance(rule, LazyWeights) or rule.form != "weights" or rule.trace is None:
        raise UnsupportedError(
            "the gradient with respect to a map must be asked of the whole map that "
            "heedmap.attention returned with its output; this one was selected, reduced or made "
            "without an output."
        )
    if not rule.trace.output.requires_grad:
        raise UnsupportedError(
            "the gradient with respect to a map must come from an output that requires a "
            "gradient; this one does not. Set requires_grad on query, key or value."
        )
    return rule.trace


def _refuse_other_ways(outputs: Any, held: Tensor, trace: Trace) -> None:
    """Refuse a loss that reads the weights themselves beside gathering values with them.

    Whatever is computed from the weights passes through their log-normaliser, which is found in
    the graph of the loss, short of the output's own part of it.
    """
    assert isinstance(held, AttentionMap)
    (leaf,) = leaves(held._rule)
    starts = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    waiting = [start.grad_fn for start in starts if start.grad_fn is not None]
    seen = {trace.output.grad_fn}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if getattr(node, "problem", None) is leaf.problem:
            raise UnsupportedError(
                "the loss must reach the map by the output alone; it also reads the weights. Take "
                "the two gradients apart, or use weights.to_dense() in the loss."
            )
        waiting += [further for further, _ in node.next_functions if further is not None]


def _low_rank(held: AttentionMap, trace: Trace, grad: Tensor) -> AttentionMap:
    problem = Problem(grad, trace.value.detach(), None, Scoring(1.0))
    rule = LazyWeights(problem, LogNormalizer(problem), "scores")
    return AttentionMap(rule, held._lead, (True, True), held.dtype)
