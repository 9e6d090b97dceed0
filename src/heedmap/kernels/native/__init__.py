"""Our own kernel for CPUs, compiled when heedmap is installed, where there is a compiler.

It takes float32 and, widened, half precision; masks that are a stretch of keys for each query,
padding, tables; additive bias, sinks, grouped heads. What it does not take goes to PyTorch.
"""

import ctypes
import os

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from heedmap.errors import BudgetError
from heedmap.kernels import sinks
from heedmap.kernels.gradients import Gradients
from heedmap.kernels.native.library import Gradients as Pointers
from heedmap.kernels.native.library import Problem as Given
from heedmap.kernels.native.library import Statistics, load
from heedmap.kernels.native.spans import Hidden, hidden_of, is_simple
from heedmap.problem import Problem, all_finite

_FIRST_PROCESS = os.getpid()


def serves(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"] | None) -> bool:
    """Return whether the kernel computes this problem exactly as promised, and is there.

    It knows no soft-cap and no function of scores, gives no gradient to a bias and no forward
    derivative, and lets NaN in a hidden slot of the values through.
    """
    scoring, query = problem.scoring, problem.query
    if problem.compute_dtype != torch.float32 or not query.is_cpu or load() is None:
        return False
    if forward_ad._current_level >= 0 or is_functorch_wrapped_tensor(query):
        return False
    given = (*problem.tensors(), *(() if value is None else (value,)))
    if any(type(tensor) not in (Tensor, Parameter) for tensor in given):
        # Others may have no memory of their own.
        return False
    if scoring.soft_cap is not None or scoring.change is not None or not problem.clean:
        return False
    if not (query.numel() and problem.key.numel() and (value is None or value.numel())):
        return False
    if not is_simple(problem):
        return False
    if (bias := scoring.bias) is not None and (bias.requires_grad or bias.dtype == torch.float64):
        return False
    if value is not None and (problem.mask is not None or bias is not None):
        return all_finite(value)
    return True


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return the output and the log-normaliser.

    Cost: O(visible pairs) time; memory of the output and a tile for each thread.
    """
    batch, heads, queries, _ = problem.query.shape
    output = torch.empty((batch, heads, queries, value.shape[-1]))
    normalizer = torch.empty((batch, heads, queries))
    given = _Given(problem, value)
    _run("heedmap_forward", given.address, output.data_ptr(), normalizer.data_ptr())
    if (own := problem.scoring.sinks) is not None:
        output, normalizer = sinks.join(output, normalizer, own[:, None])
    return output.to(value.dtype), normalizer


def backward(
    problem: Problem,
    value: Float[Tensor, "batch kv_heads key value_dim"],
    output: Float[Tensor, "batch heads query value_dim"],
    log_normalizer: Float[Tensor, "batch heads query"],
    output_gradient: Float[Tensor, "batch heads query value_dim"] | None,
    log_normalizer_gradient: Float[Tensor, "batch heads query"] | None,
) -> Gradients:
    """Return the gradients of a loss from those of the output and of the log-normaliser.

    Cost: O(visible pairs) time; memory of the gradients, and of those of one key head for each
    thread.
    """
    upward = torch.zeros(output.shape) if output_gradient is None else output_gradient.float()
    slope = (upward * output).sum(-1)
    if log_normalizer_gradient is not None:
        slope = slope - log_normalizer_gradient.masked_fill(log_normalizer == -torch.inf, 0)
    upward, slope, known = (t.contiguous() for t in (upward, slope, log_normalizer))
    d_query, d_key, d_value = (torch.empty(t.shape) for t in (problem.query, problem.key, value))
    given = _Given(problem, value)
    asked = Pointers(*(t.data_ptr() for t in (known, upward, slope, d_query, d_key, d_value)))
    _run("heedmap_backward", given.address, ctypes.addressof(asked))
    own = problem.scoring.sinks
    d_sinks = None if own is None else sinks.gradient(own, log_normalizer, -slope)
    dtype = value.dtype
    return Gradients(d_query.to(dtype), d_key.to(dtype), None, d_sinks, d_value.to(dtype))


def log_normalizer(problem: Problem) -> Float[Tensor, "batch heads query"]:
    """Return the log-normaliser alone.

    Cost: O(visible pairs) time; memory of the answer and a tile for each thread.
    """
    normalizer = torch.empty(problem.query.shape[:3])
    given = _Given(problem, None)
    _run("heedmap_forward", given.address, 0, normalizer.data_ptr())
    if problem.scoring.sinks is not None:
        return torch.logaddexp(normalizer, problem.scoring.sinks[:, None])
    return normalizer


def statistics(
    problem: Problem,
    log_normalizer: Float[Tensor, "batch heads query"],
    *,
    top: int = 0,
    bins: tuple[Int[Tensor, " query"], Int[Tensor, " key"]] | None = None,
) -> tuple[
    Float[Tensor, "matrices key"],
    Float[Tensor, "matrices query"],
    tuple[Float[Tensor, "matrices query top"], Int[Tensor, "matrices query top"]],
    Float[Tensor, "matrices rows columns"] | None,
]:
    """Return received, entropy, the strongest weights with their keys, and sums of blocks.

    Args:
        problem: One that the kernel serves.
        log_normalizer: Of its rows.
        top: How many of the strongest keys of each row to find.
        bins: Which row, and which column, of a picture each query and key falls into.

    Cost: O(visible pairs) time; memory of the answers, and of `received` once for each thread.
    """
    batch, heads, queries, keys = problem.extent
    matrices = batch * heads
    known = log_normalizer.contiguous()
    received, entropy = known.new_empty((matrices, keys)), known.new_empty((matrices, queries))
    strongest = known.new_empty((matrices, queries, top))
    places = torch.empty((matrices, queries, top), dtype=torch.long)
    asked = Statistics(known.data_ptr(), received.data_ptr(), entropy.data_ptr())
    pooled = None
    if bins is not None:
        row_bins, column_bins = (numbers.to(torch.int32).contiguous() for numbers in bins)
        sizes = [int(numbers[-1]) + 1 for numbers in (row_bins, column_bins)]
        pooled = known.new_zeros((matrices, *sizes))
        asked.pooled, asked.pooled_rows, asked.pooled_columns = pooled.data_ptr(), *sizes
        asked.row_bins, asked.column_bins = row_bins.data_ptr(), column_bins.data_ptr()
    if top:
        asked.top, asked.top_weights = top, strongest.data_ptr()
        asked.top_keys = places.data_ptr()
    given = _Given(problem, None)
    _run("heedmap_statistics", given.address, ctypes.addressof(asked))
    return received, entropy, (strongest, places), pooled


class _Given:
    """A problem in the form that the kernel takes, and whatever must live as long as it runs."""

    def __init__(self, problem: Problem, value: Tensor | None) -> None:
        batch, heads, queries, keys = problem.extent
        query, key = _fit(problem.query), _fit(problem.key)
        value = None if value is None else _fit(value)
        bias = None if problem.scoring.bias is None else problem.scoring.bias.detach().float()
        hidden = hidden_of(problem)
        self.kept = query, key, value, bias, hidden
        self.form = form = Given(query.data_ptr(), key.data_ptr())
        form.query_strides[:], form.key_strides[:] = query.stride()[:3], key.stride()[:3]
        if value is not None:
            form.value, form.value_width = value.data_ptr(), value.shape[-1]
            form.value_strides[:] = value.stride()[:3]
        form.batch, form.heads, form.kv_heads = batch, heads, key.shape[1]
        form.queries, form.keys, form.width = queries, keys, query.shape[-1]
        form.scale, form.threads = problem.scoring.scale, _threads()
        _hide(form, hidden)
        if bias is not None:
            form.bias, form.bias_strides[:] = bias.data_ptr(), _broadcast(bias)
        self.address = ctypes.addressof(form)


def _hide(form: Given, hidden: Hidden) -> None:
    if hidden.first is not None and hidden.last is not None:
        form.first, form.last = hidden.first.data_ptr(), hidden.last.data_ptr()
        form.span_strides[:] = _broadcast(hidden.first)[:2]
    if hidden.valid is not None:
        form.valid, form.valid_stride = hidden.valid.data_ptr(), _broadcast(hidden.valid)[0]
    if hidden.visible is not None:
        form.visible = hidden.visible.data_ptr()
        form.visible_strides[:] = _broadcast(hidden.visible)


def _broadcast(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor whose sizes of 1 stand for all."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(0 if size == 1 else stride for size, stride in pairs)


def _fit(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().float()
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _threads() -> int:
    """Return PyTorch's number of threads, and 1 in a process forked from the one that began.

    OpenMP's threads stay behind at a fork, and GNU's runtime would wait for them for ever.
    """
    return torch.get_num_threads() if os.getpid() == _FIRST_PROCESS else 1


def _run(name: str, *arguments: int) -> None:
    found = load()
    assert found is not None
    if found[1][name](*(ctypes.c_void_p(argument) for argument in arguments)):
        raise BudgetError("memory must hold a tile for each thread; there was none left.")
