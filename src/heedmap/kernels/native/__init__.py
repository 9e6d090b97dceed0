"""Our own kernel for CPUs, compiled when heedmap is installed, where there is a compiler.

It takes float32 and, widened, half precision; masks that are a stretch of keys for each query,
padding, tables; additive bias, sinks, grouped heads. What it does not take goes to PyTorch.
"""

import ctypes
import os
from types import NoneType

import torch
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from heedmap.compiled import load
from heedmap.errors import BudgetError
from heedmap.kernels import sinks
from heedmap.kernels.gradients import Gradients
from heedmap.kernels.native.structures import PROBLEM, Statistics
from heedmap.kernels.native.structures import Gradients as Pointers
from heedmap.kernels.spans import hidden_of, is_padding, is_simple
from heedmap.kernels.statistics import Found as Found
from heedmap.kernels.statistics import Wanted as Wanted
from heedmap.masks import Padding
from heedmap.problem import Problem, all_finite

_FIRST_PROCESS = os.getpid()


def serves(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"] | None) -> bool:
    """Return whether the kernel computes this problem exactly as promised, and is there.

    It knows no soft-cap and no function of scores, gives no gradient to a bias and no forward
    derivative, and lets NaN in a hidden slot of the values through.
    """
    scoring, query = problem.scoring, problem.query
    if query.dtype == torch.float64 or not query.is_cpu or load() is None:
        return False
    if forward_ad._current_level >= 0 or is_functorch_wrapped_tensor(query):
        return False
    for tensor in (*problem.tensors(), value):
        if type(tensor) not in (Tensor, Parameter, NoneType):
            # Others may have no memory of their own.
            return False
    if scoring.soft_cap is not None or scoring.change is not None or not problem.clean:
        return False
    if not (query.numel() and problem.key.numel() and (value is None or value.numel())):
        return False
    bias, mask = scoring.bias, problem.mask
    if bias is None and (mask is None or type(mask) is Padding):
        # In padded slots nothing is left that is not finite.
        return True
    if not is_simple(problem):
        return False
    if bias is not None and (bias.requires_grad or bias.dtype == torch.float64):
        return False
    return value is None or (bias is None and is_padding(problem)) or all_finite(value)


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return the output and the log-normaliser.

    Cost: O(visible pairs) time; memory of the output and a tile for each thread.
    """
    batch, heads, queries, _ = problem.extent
    output = _new(problem, batch, heads, queries, value.shape[-1])
    normalizer = _new(problem, batch, heads, queries)
    given = _Given(problem, value)
    _run("heedmap_forward", given.packed, output.data_ptr(), normalizer.data_ptr())
    if (own := problem.scoring.sinks) is not None:
        output, normalizer = sinks.join(output, normalizer, own[:, None])
    return output if value.dtype == torch.float32 else output.to(value.dtype), normalizer


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
    upward = (
        _new(problem, *output.shape).zero_() if output_gradient is None else output_gradient.float()
    )
    slope = (upward * output).sum(-1)
    if log_normalizer_gradient is not None:
        slope = slope - log_normalizer_gradient.masked_fill(log_normalizer == -torch.inf, 0)
    upward, slope, known = (t.contiguous() for t in (upward, slope, log_normalizer))
    d_query, d_key, d_value = (_new(problem, *t.shape) for t in (problem.query, problem.key, value))
    given = _Given(problem, value)
    asked = Pointers(*(t.data_ptr() for t in (known, upward, slope, d_query, d_key, d_value)))
    _run("heedmap_backward", given.packed, ctypes.addressof(asked))
    own = problem.scoring.sinks
    d_sinks = None if own is None else sinks.gradient(own, log_normalizer, -slope)
    dtype = value.dtype
    return Gradients(d_query.to(dtype), d_key.to(dtype), None, d_sinks, d_value.to(dtype))


def log_normalizer(problem: Problem) -> Float[Tensor, "batch heads query"]:
    """Return the log-normaliser alone.

    Cost: O(visible pairs) time; memory of the answer and a tile for each thread.
    """
    normalizer = _new(problem, *problem.query.shape[:3])
    given = _Given(problem, None)
    _run("heedmap_forward", given.packed, 0, normalizer.data_ptr())
    if problem.scoring.sinks is not None:
        return torch.logaddexp(normalizer, problem.scoring.sinks[:, None])
    return normalizer


def statistics(
    problem: Problem,
    log_normalizer: Float[Tensor, "matrices rows"],
    wanted: Wanted,
    *,
    matrices: range | None = None,
    rows: range | None = None,
) -> Found:
    """Return statistics of the weights of some rows, in one pass.

    Args:
        problem: One that the kernel serves.
        log_normalizer: Of these rows of these matrices.
        wanted: What to gather; `bins` say of these rows where they fall.
        matrices: Which ones of batch × heads; None for all.
        rows: Which queries, so that one can go through a large map strip by strip; what keys
            receive, they receive from these alone. None for all.

    Cost: O(visible pairs) time; memory of the answers, and of `received` once for each thread. It
    copies neither query nor key.
    """
    batch, heads, queries, _ = problem.extent
    matrices = range(batch * heads) if matrices is None else matrices
    rows = range(queries) if rows is None else rows
    known = log_normalizer.contiguous()
    found, asked, kept = _room(problem, wanted, matrices, len(rows))
    asked.log_normalizer = known.data_ptr()
    given = _Given(problem, None, rows)
    _run("heedmap_statistics", given.packed, ctypes.addressof(asked), 0, 0)
    del kept
    return found


def attends(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> bool:
    """Return whether `attend` computes this problem: one that the kernel serves, without sinks."""
    return problem.scoring.sinks is None and serves(problem, value)


KEPT_KEYS = 100_000
"""Up to how many keys `attend` keeps a block of rows; beyond, it makes it twice.

To keep them is the faster way at 100,000 keys still, by 16 %, but each thread needs 20 MB for one
block then, and takes several where all threads stay within 64 MB.
"""


def attend(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"], wanted: Wanted
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
    Found,
]:
    """Return the output, the log-normaliser, and statistics of the weights, all in one pass.

    Output and log-normaliser are the same to the bit as from `forward`. So are the statistics as
    from `statistics` where the strongest keys are among them; else they are made of weights that
    were kept, and as exact as those.

    Cost: O(visible pairs) time; memory of the answers, and for each thread of `received` and of
    a block of rows: 192 bytes for each key with AVX-512, 96 with AVX2.
    """
    batch, heads, queries, keys = problem.extent
    output = _new(problem, batch, heads, queries, value.shape[-1])
    normalizer = _new(problem, batch, heads, queries)
    found, asked, kept = _room(problem, wanted, range(batch * heads), queries)
    asked.log_normalizer = normalizer.data_ptr()
    given = _Given(problem, value)
    keeps = int(keys <= KEPT_KEYS)
    _run("heedmap_statistics", given.packed, ctypes.addressof(asked), output.data_ptr(), keeps)
    del kept
    return output.to(value.dtype), normalizer, found


def _room(
    problem: Problem, wanted: Wanted, matrices: range, rows: int
) -> tuple[Found, Statistics, list[Tensor]]:
    """Return room for what is wanted, where it lies, and what must live until it is filled."""
    count, keys = len(matrices), problem.extent.keys
    asked = Statistics(top=wanted.top, first_matrix=matrices.start, matrices=count)
    received = _new(problem, count, keys) if wanted.received else None
    entropy = _new(problem, count, rows) if wanted.entropy else None
    weights = _new(problem, count, rows, wanted.top) if wanted.top else None
    places = (
        problem.query.new_empty((count, rows, wanted.top), dtype=torch.long) if wanted.top else None
    )
    sums = maxima = None
    kept = []
    if wanted.bins is not None:
        kept = [numbers.to(torch.int32).contiguous() for numbers in wanted.bins]
        sizes = [int(numbers[-1]) + 1 for numbers in kept]
        asked.pooled_rows, asked.pooled_columns = sizes
        asked.row_bins, asked.column_bins = (numbers.data_ptr() for numbers in kept)
        sums = _new(problem, count, *sizes).zero_() if wanted.sums else None
        maxima = _new(problem, count, *sizes).zero_() if wanted.maxima else None
    found = Found(received, entropy, weights, places, sums, maxima)
    names = ("received", "entropy", "top_weights", "top_keys", "pooled", "largest")
    for name, tensor in zip(names, found, strict=True):
        if tensor is not None:
            setattr(asked, name, tensor.data_ptr())
    return found, asked, kept


class _Given:
    """A problem in the form that the kernel takes, and whatever must live as long as it runs."""

    def __init__(self, problem: Problem, value: Tensor | None, rows: range | None = None) -> None:
        batch, heads, queries, keys = problem.extent
        query, key = _fit(problem.query), _fit(problem.key)
        value = None if value is None else _fit(value)
        bias = None if problem.scoring.bias is None else problem.scoring.bias.detach().float()
        if rows is None:
            rows = range(queries)
        else:
            lines = slice(rows.start, rows.stop)
            query = query.detach()[:, :, lines]
            bias = bias if bias is None or bias.shape[2] == 1 else bias[:, :, lines]
        first, last, valid, visible = hidden_of(problem, rows)
        self.kept = query, key, value, bias, first, last, valid, visible
        self.packed = PROBLEM.pack(
            query.data_ptr(),
            key.data_ptr(),
            0 if value is None else value.data_ptr(),
            0 if first is None else first.data_ptr(),
            0 if last is None else last.data_ptr(),
            0 if valid is None else valid.data_ptr(),
            0 if visible is None else visible.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            *query.stride()[:3],
            *key.stride()[:3],
            *((0, 0, 0) if value is None else value.stride()[:3]),
            *((0, 0) if first is None else _broadcast(first)[:2]),
            0 if valid is None or valid.shape[0] == 1 else keys,
            *((0, 0, 0, 0) if visible is None else _broadcast(visible)),
            *((0, 0, 0, 0) if bias is None else _broadcast(bias)),
            batch,
            heads,
            key.shape[1],
            len(rows),
            keys,
            query.shape[-1],
            0 if value is None else value.shape[-1],
            problem.scoring.scale,
            _threads(batch * heads * len(rows) * keys),
        )


def _broadcast(tensor: Tensor) -> list[int]:
    """Return the strides of a tensor whose sizes of 1 stand for all."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [0 if size == 1 else stride for size, stride in pairs]


def _new(problem: Problem, *sizes: int) -> Tensor:
    """Return room for numbers of the kernel, whatever PyTorch's default type and device are."""
    query = problem.query
    if query.dtype != torch.float32:
        return query.new_empty(sizes, dtype=torch.float32)
    return query.new_empty(sizes)


def _fit(tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32:
        tensor = tensor.detach().float()
    if tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    if tensor.is_contiguous() or tensor.stride(-1) == 1 or tensor.shape[-1] == 1:
        return tensor
    return tensor.detach().contiguous()


FEW_CELLS = 1 << 14
"""For so many weights it takes longer to wake a thread than to compute them."""


def _threads(cells: int) -> int:
    """Return PyTorch's number of threads; 1 for few weights and in a process that was forked.

    OpenMP's threads stay behind at a fork, and GNU's runtime would wait for them for ever.
    """
    if cells <= FEW_CELLS or os.getpid() != _FIRST_PROCESS:
        return 1
    return torch.get_num_threads()


def _run(name: str, *arguments: int | bytes) -> None:
    found = load()
    assert found is not None
    if getattr(found[1], name)(*arguments):
        raise BudgetError("memory must hold a tile for each thread; there was none left.")
