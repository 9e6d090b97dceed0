"""The gradient of a loss with respect to the weights: a map of low rank, never dense.

With O = P·V, the gradient of a loss with respect to P is dO·Vᵀ: the product of two factors as thin
as query and key, which is exactly what a map of scores is. It is had by `torch.autograd.grad`, by
``backward(inputs=[weights])``, and after `retain_grad` and `register_hook`, as a tensor's is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from heedmap.attention_map import AttentionMap
from heedmap.errors import FrozenError, UnsupportedError
from heedmap.lazy import Sharded
from heedmap.lazy_weights import LazyWeights, LogNormalizer, Trace, leaves
from heedmap.map_cells import densify
from heedmap.map_functions.table import on
from heedmap.problem import Problem
from heedmap.scoring import Scoring


def gradient(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Do `torch.autograd.grad` where some of its arguments are maps.

    Raises:
        UnsupportedError: for a map whose gradient has no output to come from; and for outputs that
            depend on the map by more than the output, since that part would be missing.
    """
    asked: list[Any] = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    traces = {at: trace_of(held) for at, held in enumerate(asked) if isinstance(held, AttentionMap)}
    if traces and is_grads_batched:
        raise UnsupportedError(
            "is_grads_batched must be False for the gradient with respect to a map; got True. Ask "
            "for one gradient after the other, with retain_graph=True."
        )
    outputs = _dense(outputs)
    for trace in traces.values():
        _refuse_other_ways(outputs, trace)
    roots: Any = [traces[at].edge if at in traces else held for at, held in enumerate(asked)]
    found = torch.autograd.grad(
        outputs,
        roots,
        _dense(grad_outputs),
        retain_graph,
        create_graph,
        only_inputs,
        True if materialize_grads and traces else allow_unused,
        is_grads_batched,
        materialize_grads and not traces,
    )
    if not traces:
        return found
    given = []
    for at, (held, grad) in enumerate(zip(asked, found, strict=True)):
        trace = traces.get(at)
        if trace is not None and (grad is not None or materialize_grads):
            grad = _none_of(held, trace) if grad is None else trace.form(grad)
            grad = _maker(held, trace, create_graph)(grad)
        elif grad is None and materialize_grads:
            grad = torch.zeros_like(held, requires_grad=create_graph)
        given.append(grad)
    return tuple(given)


def send_back(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Do `torch.autograd.backward` where some of its arguments are maps.

    Raises:
        UnsupportedError: as `gradient`, and for maps beside tensors among the inputs.
    """
    asked = [] if inputs is None else list(inputs)
    maps = [held for held in asked if isinstance(held, AttentionMap)]
    if not maps:
        torch.autograd.backward(
            _dense(tensors), _dense(grad_tensors), retain_graph, create_graph, inputs=inputs
        )
        return
    if len(maps) < len(asked):
        raise UnsupportedError(
            "inputs must be maps alone or tensors alone for a backward pass; got both. Use "
            "torch.autograd.grad, which takes them together."
        )
    traces = [trace_of(held) for held in maps]
    for trace in traces:
        _refuse_other_ways(_dense(tensors), trace)
    found = torch.autograd.grad(
        _dense(tensors),
        [trace.edge for trace in traces],
        _dense(grad_tensors),
        retain_graph,
        create_graph,
    )
    for trace, grad in zip(traces, found, strict=True):
        trace.asked.retains = True
        trace.listen()
        trace.asked.take(trace.form(grad))


@on("retain_grad")
def _retain_grad(held: AttentionMap) -> None:
    trace = trace_of(held)
    trace.asked.retains = True
    trace.listen()


@on("retains_grad")
def _retains_grad(held: AttentionMap) -> bool:
    trace = _known_trace(held)
    return trace is not None and trace.asked.retains


@on("register_hook")
def _register_hook(held: AttentionMap, hook: Callable[[AttentionMap], None]) -> RemovableHandle:
    trace = trace_of(held)
    make = _maker(held, trace, False)

    def tell(grad: Tensor) -> None:
        if hook(make(grad)) is not None:
            raise UnsupportedError(
                "a hook on a map must return None; got something else. The gradient is passed on "
                "by the output: change it there, with output.register_hook."
            )

    trace.listen()
    handle = RemovableHandle(trace.asked.hooks)
    trace.asked.hooks[handle.id] = tell
    return handle


@on("grad")
def _grad(held: AttentionMap, *written: Any) -> AttentionMap | None:
    if written and written[0] is not None:
        raise FrozenError(
            "grad must not be set on a map but to None; got something else. It is what a backward "
            "pass brings after retain_grad()."
        )
    if not held.requires_grad and not _retains_grad(held):
        return None
    trace = trace_of(held)
    if written:
        trace.asked.kept = None
        return None
    if not trace.asked.retains:
        raise UnsupportedError(
            "grad must be asked of a map on which retain_grad() was called before the backward "
            "pass; it was not. Call it, or use torch.autograd.grad(loss, [weights])."
        )
    kept = trace.asked.kept
    return None if kept is None else _maker(held, trace, kept.requires_grad)(kept)


@on("is_leaf")
def _is_leaf(held: AttentionMap) -> bool:
    return not held.requires_grad


def trace_of(held: AttentionMap) -> Trace:
    """Return how the gradient with respect to a map is had.

    Raises:
        UnsupportedError: if it cannot be had.
    """
    trace = _known_trace(held)
    if trace is None:
        raise UnsupportedError(
            "the gradient with respect to a map must be asked of a whole map that came with an "
            "output that requires a gradient, from heedmap.attention or heedmap.watch(grad=True), "
            "and without dropout; this one did not, or was selected, reduced or computed with. Ask "
            "for that of the map it was made of, or work on weights.to_dense()."
        )
    return trace


def _known_trace(held: AttentionMap) -> Trace | None:
    rule = held._rule
    if isinstance(rule, LazyWeights) and rule.form == "weights":
        return rule.normalizer.trace
    return rule.trace() if isinstance(rule, Sharded) else None


def _refuse_other_ways(outputs: Any, trace: Trace) -> None:
    """Refuse a loss that reads the weights themselves beside gathering values with them.

    Whatever is computed from the weights passes through their log-normaliser, which is marked in
    the graph of the loss, short of the output's own part of it.
    """
    starts = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    waiting = [start.grad_fn for start in starts if start.grad_fn is not None]
    seen = {trace.edge.node}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if getattr(node, "asked", None) is trace.asked:
            raise UnsupportedError(
                "the loss must reach the map by the output alone; it also reads the weights. Take "
                "the two gradients apart; or make dense = weights.to_dense(), gather and read with "
                "that, and ask for the gradient with respect to it."
            )
        waiting += [further for further, _ in node.next_functions if further is not None]


def _dense(given: Any) -> Any:
    """Return what was given with ordinary tensors for maps, under the budget."""
    if isinstance(given, AttentionMap):
        return densify(given, "a backward pass")
    return [_dense(part) for part in given] if isinstance(given, tuple | list) else given


def _maker(held: AttentionMap, trace: Trace, graph: bool) -> Callable[[Tensor], AttentionMap]:
    """Return what makes the gradient of a map from that of its output; it holds no graph node."""
    value, lead, dtype = trace.value if graph else trace.value.detach(), held._lead, held.dtype
    shared = held._detached()._rule if isinstance(held._rule, Sharded) else None

    def make(grad: Tensor) -> AttentionMap:
        if isinstance(shared, Sharded):
            return AttentionMap(shared.product(grad, value), lead, (True, True), dtype)
        problem = Problem(grad, value, None, Scoring(1.0))
        rule = LazyWeights(problem, LogNormalizer(problem), "scores")
        return AttentionMap(rule, lead, (True, True), dtype)

    return make


def _none_of(held: AttentionMap, trace: Trace) -> Tensor:
    """Return the gradient of an output that a loss does not depend on."""
    if isinstance(held._rule, Sharded):
        query = held._rule.tensors()[0]
    else:
        (leaf,) = leaves(held._rule)
        query = leaf.problem.query
    return trace.value.new_zeros((*query.shape[:3], trace.value.shape[-1]))
