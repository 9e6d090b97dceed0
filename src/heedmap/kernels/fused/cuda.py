"""PyTorch's fused kernels for GPUs: flash, cuDNN, and the memory-efficient one.

Each is checked the first time that inputs of a kind come to it, by computing some of its rows again
in float64 (see `sampled`). One whose log-normaliser is wrong is named in a warning and left alone,
and what no kernel is left for goes to `tiles`. Gradients come from `tiles`.
"""

import warnings
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch.nn.functional import pad

from heedmap.kernels import sinks
from heedmap.kernels.fused import sampled
from heedmap.kernels.fused.engines import ENGINES, Engine
from heedmap.kernels.fused.stretches import Stretch, stretches_of
from heedmap.problem import Problem, all_finite

WIDTHS = 8
"""Of what the width of a vector, and the way from one to the next, must be a multiple."""

ALIGNED = 128
"""Numbers of rows that are a multiple of this need no rounding up in any kernel."""

_right: dict[tuple[object, ...], bool] = {}
"""Which engines have been checked for which kinds of inputs, and what came of it."""


def serves(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> bool:
    """Return whether a kernel computes this problem as promised, and has been seen to.

    They know causal masks and padding at the ends, no bias, no soft-cap, no float64; they let NaN
    in a hidden slot through, and have no forward derivative.

    Cost: where inputs of this kind are new, that of `forward` and of the rows that are compared.
    """
    return problem.query.is_cuda and suits(problem, value) and choose(problem, value) is not None


def suits(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> bool:
    """Return whether a problem is of the kind that these kernels are made for."""
    given = (*problem.tensors(), value)
    if forward_ad._current_level >= 0 or is_functorch_wrapped_tensor(problem.query):
        return False
    if any(type(tensor) not in (Tensor, Parameter) for tensor in given):
        return False
    # They take the largest score before it is scaled.
    if not problem.clean or not problem.scoring.is_plain or problem.scoring.scale <= 0:
        return False
    if problem.compute_dtype == torch.float64 or not all(tensor.numel() for tensor in given):
        return False
    return problem.mask is None or all_finite(value)


class Plan(NamedTuple):
    """How a problem is computed: by which kernel, in which blocks, from which inputs."""

    engine: Engine
    stretches: list[Stretch]
    inputs: tuple[Tensor, Tensor, Tensor]


def choose(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> Plan | None:
    """Return how the first kernel that is right computes this problem, None where there is none."""
    stretches = stretches_of(problem)
    if not stretches:
        return None
    with torch.no_grad():
        for engine in ENGINES:
            plan = Plan(engine, stretches, _fit(problem, value, engine))
            takes_all = all(
                engine.takes(*some.cut(*plan.inputs), some.is_causal) for some in stretches
            )
            if takes_all and _is_right(problem, value, plan):
                return plan
    return None


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return the output and the log-normaliser of a problem that `choose` finds a kernel for.

    Cost: that of the kernel; memory of the output, where a mask is made of several blocks in
    float32. Keys and values that are shared by heads are copied for all kernels but flash.
    """
    plan = choose(problem, value)
    assert plan is not None
    output, normalizer = _run(problem, value, plan)
    if (own := problem.scoring.sinks) is not None:
        output, normalizer = sinks.join(output, normalizer, own[:, None])
    return output.to(value.dtype), normalizer


def _is_right(problem: Problem, value: Tensor, plan: Plan) -> bool:
    """Return whether a kernel is right about inputs of this kind, and warn where it is not.

    Nothing is learnt from inputs that are not finite: those go elsewhere until others have come.
    """
    kind = _kind(problem, value, plan)
    if kind in _right:
        return _right[kind]
    if not all(map(all_finite, (problem.query, problem.key, value))):
        return False
    _right[kind] = sampled.is_right(problem, value, *_run(problem, value, plan))
    if not _right[kind]:
        warnings.warn(
            f"PyTorch's {plan.engine.name} kernel gives another output or log-normaliser than "
            f"float64 does, for {problem.query.dtype} of width {problem.query.shape[-1]} on "
            f"{problem.query.device} (torch {torch.__version__}); heedmap does without it.",
            stacklevel=2,
        )
    return _right[kind]


def _kind(problem: Problem, value: Tensor, plan: Plan) -> tuple[object, ...]:
    """Return what decides how a kernel lays out what it gives."""
    query, key = problem.query, problem.key
    return (
        plan.engine.name,
        query.device,
        query.dtype,
        query.shape[-1],
        value.shape[-1],
        query.shape[1] == key.shape[1],
        query.shape[2] % ALIGNED == 0,
        any(some.is_causal for some in plan.stretches),
        len(plan.stretches) == 1,
    )


def _run(problem: Problem, value: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return output and log-normaliser by a kernel, without sinks."""
    engine, stretches, inputs = plan
    width, scale = value.shape[-1], problem.scoring.scale
    if len(stretches) == 1 and stretches[0].is_whole(problem):
        output, normalizer = engine.run(*inputs, stretches[0].is_causal, scale)
        return output[..., :width], normalizer
    shape, device = problem.query.shape[:3], value.device
    output = torch.zeros((*shape, width), device=device)
    normalizer = torch.full(shape, -torch.inf, device=device)
    for some in stretches:
        part, part_total = engine.run(*some.cut(*inputs), some.is_causal, scale)
        place = some.samples, slice(None), some.rows
        total = normalizer[place]
        both = torch.logaddexp(total, part_total)
        old, new = (torch.exp(t - both)[..., None] for t in (total, part_total))
        output[place] = output[place] * old + part[..., :width] * new
        normalizer[place] = both
    return output, normalizer


def _fit(problem: Problem, value: Tensor, engine: Engine) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value as a kernel wants them."""
    query, key = problem.query, problem.key
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and not engine.shares_heads:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    width = max(query.shape[-1], value.shape[-1])
    width += -width % WIDTHS
    return _aligned(query, width), _aligned(key, width), _aligned(value, width)


def _aligned(tensor: Tensor, width: int) -> Tensor:
    """Return vectors of this width that begin where kernels may read eight numbers at once."""
    if tensor.shape[-1] < width:
        return pad(tensor, (0, width - tensor.shape[-1]))
    sizes, steps = tensor.shape[:-1], tensor.stride()[:-1]
    starts = [step for size, step in zip(sizes, steps, strict=True) if size > 1]
    if tensor.stride(-1) == 1 and not any(n % WIDTHS for n in (*starts, tensor.storage_offset())):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
