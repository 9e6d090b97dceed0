"""The output and log-normaliser of a problem as one differentiable step, whatever the kernel."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedmap.kernels import fused, reference, tiles
from heedmap.kernels.gradients import Gradients
from heedmap.problem import Problem

KERNELS = {"fused": fused, "tiles": tiles, "reference": reference}


def choose(problem: Problem, value: Tensor) -> str:
    """Return the name of the fastest kernel that computes this problem exactly."""
    return "fused" if fused.serves(problem, value) else "tiles"


def run(problem: Problem, value: Tensor, backend: str) -> tuple[Tensor, Tensor]:
    """Return the output and the log-normaliser, both differentiable."""
    if backend == "reference":
        return reference.forward(problem, value)
    inputs = (*problem.tensors(), value)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Attention.apply(problem, backend, *inputs)  # pyright: ignore[reportReturnType]
    return KERNELS[backend].forward(problem, value)


def rebuilt(problem: Problem, tensors: list[Tensor]) -> Problem:
    """Return the problem with these in place of its `tensors`."""
    remaining = iter(tensors)
    return problem.map_tensors(lambda _: next(remaining))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: Problem, backend: str, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        output, normalizer = KERNELS[backend].forward(problem, inputs[-1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output, normalizer)
        ctx.problem, ctx.backend = problem, backend
        return output, normalizer

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_output: Tensor | None, d_normalizer: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *tensors, value, output, normalizer = ctx.saved_tensors
        problem = rebuilt(ctx.problem, tensors)
        if torch.is_grad_enabled():
            wanted = ctx.needs_input_grad[2:]
            grads = _twice_differentiable(problem, value, d_output, d_normalizer, wanted)
            return None, None, *grads
        step: Callable[..., Gradients] = KERNELS[ctx.backend].backward
        grads = step(problem, value, output, normalizer, d_output, d_normalizer)
        given = [grads.query, grads.key]
        given += [grads.bias] if problem.scoring.bias is not None else []
        given += [grads.sinks] if problem.scoring.sinks is not None else []
        return None, None, *given, grads.value


def _twice_differentiable(
    problem: Problem,
    value: Tensor,
    d_output: Tensor | None,
    d_normalizer: Tensor | None,
    wanted: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return gradients that can be differentiated again, by way of the plain formula.

    Cost: O(queries · keys) memory: no fused kernel has a second derivative.
    """
    output, normalizer = reference.forward(problem, value)
    asked = [
        (result, upward)
        for result, upward in ((output, d_output), (normalizer, d_normalizer))
        if upward is not None
    ]
    inputs = [*problem.tensors(), value]
    grads = torch.autograd.grad(
        [result for result, _ in asked],
        [tensor for tensor, want in zip(inputs, wanted, strict=True) if want],
        [upward for _, upward in asked],
        create_graph=True,
        allow_unused=True,
    )
    remaining = iter(grads)
    return [next(remaining) if want else None for want in wanted]
