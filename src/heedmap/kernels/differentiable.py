"""Output and log-normaliser as differentiable steps, whichever kernel computes them."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedmap import budget
from heedmap.kernels import fused, native, reference, tiles
from heedmap.kernels.gradients import Gradients
from heedmap.kernels.statistics import Found, Wanted
from heedmap.precision import exactly
from heedmap.problem import Problem
from heedmap.tensors import refuse_mapped

KERNELS: dict[str, Any] = {
    "native": native,
    "fused": fused,
    "tiles": tiles,
    "reference": reference,
}


def choose(problem: Problem, value: Tensor) -> str:
    """Return the name of the fastest kernel that computes this problem exactly."""
    if native.serves(problem, value):
        return "native"
    return "fused" if fused.serves(problem, value) else "tiles"


def serves(backend: str, problem: Problem, value: Tensor) -> bool:
    """Return whether a kernel computes this problem, and its gradients where they are wanted."""
    kernel = KERNELS[backend]
    return not hasattr(kernel, "serves") or kernel.serves(problem, value)


def run(problem: Problem, value: Tensor, backend: str) -> tuple[Tensor, Tensor]:
    """Return the output, differentiable, and the log-normaliser, a plain number for each row."""
    if backend == "reference":
        output, normalizer = reference.forward(problem, value)
        # To detach what has a forward derivative would take that away.
        return output, normalizer.detach() if normalizer.requires_grad else normalizer
    inputs = (*problem.tensors(), value)
    if _needs_gradient(inputs):
        return _output().apply(problem, backend, None, *inputs)[:2]  # pyright: ignore
    return KERNELS[backend].forward(problem, value)


def run_asking(problem: Problem, value: Tensor, wanted: Wanted) -> tuple[Tensor, Tensor, Found]:
    """Return the same by our own kernel, and statistics of the weights, plain numbers.

    The problem must be one that `native.attends`.
    """
    inputs = (*problem.tensors(), value)
    if _needs_gradient(inputs):
        return _output().apply(problem, "native", wanted, *inputs)  # pyright: ignore
    return native.attend(problem, value, wanted)


def plain_log_normalizer(problem: Problem, backend: str) -> Tensor:
    """Return the log-normaliser as plain numbers.

    PyTorch's kernel gives it beside an output, here with the keys as values.
    """
    if backend == "native":
        return native.log_normalizer(problem)
    return run(problem, problem.key, backend)[1]


def log_normalizer(problem: Problem, known: Tensor, backend: str) -> Tensor:
    """Return the known log-normaliser as a differentiable function of what the problem is made of.

    It hangs on query and key, not on the kernel's output, so that a loss on the weights and a loss
    on the output can each be sent backwards.
    """
    inputs = problem.tensors()
    if not _needs_gradient(inputs):
        return known
    if backend == "reference":
        return reference.forward(problem, problem.key)[1]
    return _LogNormalizer.apply(problem, known, backend, *inputs)  # pyright: ignore


def _needs_gradient(tensors: tuple[Tensor, ...]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _rebuilt(problem: Problem, tensors: list[Tensor]) -> Problem:
    """Return the problem with these in place of its `tensors`."""
    remaining = iter(tensors)
    return problem.map_tensors(lambda _: next(remaining))


def _listed(problem: Problem, grads: Gradients) -> list[Tensor | None]:
    """Return the gradients of the problem's tensors, in their order."""
    bias, sinks = problem.scoring.bias, problem.scoring.sinks
    listed = [grads.query, grads.key]
    listed += [grads.bias] if bias is not None else []
    return listed + ([grads.sinks] if sinks is not None else [])


class _Output(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        problem: Problem, backend: str, wanted: Wanted | None, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Found | None]:
        # Within torch.func, these are the numbers and those of the problem only stand for them.
        *tensors, value = inputs
        problem = _rebuilt(problem, tensors)
        if wanted is not None:
            return native.attend(problem, value, wanted)
        return *KERNELS[backend].forward(problem, value), None

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.problem, ctx.backend, _, *tensors = inputs
        ctx.save_for_backward(*tensors, *output[:2])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_output: Tensor, *_: Any
    ) -> tuple[Tensor | None, ...]:
        refuse_mapped("gradient", d_output)
        *inputs, output, normalizer = ctx.saved_tensors
        again = _needs_gradient((*_apart(inputs), d_output))
        *tensors, value = _apart(inputs, again)
        problem = _rebuilt(ctx.problem, tensors)
        if again:
            _require_room(problem)
            plain = reference.forward(problem, value)[0]
            wanted = ctx.needs_input_grad[3:]
            return None, None, None, *_again(plain, [*tensors, value], wanted, d_output)
        with exactly():
            grads = backward_of(ctx.backend, problem)(
                problem, value, output, normalizer, d_output, None
            )
        return None, None, None, *_listed(problem, grads), grads.value


class _PlainOutput(torch.autograd.Function):
    """The same outside torch.func, in half the time around the kernel."""

    @staticmethod
    def forward(
        ctx: Any, problem: Problem, backend: str, wanted: Wanted | None, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Found | None]:
        if wanted is None:
            found = *KERNELS[backend].forward(problem, inputs[-1]), None
        else:
            found = native.attend(problem, inputs[-1], wanted)
        _Output.setup_context(ctx, (problem, backend, wanted, *inputs), found)
        return found

    backward = _Output.backward


def _output() -> type[torch.autograd.Function]:
    return _Output if torch._C._are_functorch_transforms_active() else _PlainOutput


class _LogNormalizer(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        problem: Problem, known: Tensor, backend: str, *inputs: Tensor
    ) -> Tensor:
        del problem, backend, inputs
        return known.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        ctx.problem, known, ctx.backend, *tensors = inputs
        ctx.save_for_backward(*tensors, known)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_normalizer: Tensor
    ) -> tuple[Tensor | None, ...]:
        refuse_mapped("gradient", d_normalizer)
        *inputs, normalizer = ctx.saved_tensors
        again = _needs_gradient((*_apart(inputs), d_normalizer))
        tensors = _apart(inputs, again)
        problem = _rebuilt(ctx.problem, tensors)
        if again:
            _require_room(problem)
            plain = reference.forward(problem, problem.key)[1]
            wanted = ctx.needs_input_grad[3:]
            return None, None, None, *_again(plain, tensors, wanted, d_normalizer)
        # With values of 0 only the log-normaliser's own gradient is left.
        value = problem.key.new_zeros((*problem.key.shape[:3], 1))
        output = problem.query.new_zeros((*problem.query.shape[:3], 1))
        with exactly():
            grads = backward_of(ctx.backend, problem)(
                problem, value, output, normalizer, None, d_normalizer
            )
        return None, None, None, *_listed(problem, grads)


def backward_of(backend: str, problem: Problem) -> Callable[..., Gradients]:
    """Return the backward pass of a kernel, or that of `tiles` where it has none for a device."""
    if backend == "fused" and not problem.query.is_cpu:
        return tiles.backward
    return KERNELS[backend].backward


def _require_room(problem: Problem) -> None:
    shape = tuple(problem.extent)
    size = torch.finfo(problem.compute_dtype).bits // 8
    budget.require(math.prod(shape) * size, shape, "a gradient of a gradient", None)


def _apart(tensors: list[Tensor], again: bool = False) -> list[Tensor]:
    """Return views, so that one tensor that is query, key and value has a gradient as each.

    Of what torch.func.vjp gives back later nothing requires a gradient any more; with `again`, all
    views do.
    """
    views = [tensor.view_as(tensor) for tensor in tensors]
    if not again or torch._C._are_functorch_transforms_active():
        return views
    return [view if view.requires_grad else view.detach().requires_grad_() for view in views]


def _again(
    plain: Tensor, inputs: list[Tensor], wanted: tuple[bool, ...], upward: Tensor
) -> list[Tensor | None]:
    """Return gradients that can be differentiated again, by way of the plain formula.

    Cost: O(queries · keys) memory, under the budget: no fused kernel has a second derivative.
    """
    asked = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    grads = torch.autograd.grad(plain, asked, upward, create_graph=True, allow_unused=True)
    remaining = iter(grads)
    return [next(remaining) if want else None for want in wanted]
