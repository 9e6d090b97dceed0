"""PyTorch's fused kernels, which give the log-normaliser beside the output.

On a CPU that is the flash kernel behind `torch.nn.functional.scaled_dot_product_attention`. It
takes one additive mask; a mask that would have query × key elements is given to it in pieces, whose
results are merged by their log-normalisers (Rabe and Staats, “Self-attention does not need O(n²)
memory”, 2021).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from heedmap.kernels import sinks
from heedmap.kernels.gradients import Gradients
from heedmap.masks import Causal, Padding, parts_of
from heedmap.places import SIDE, split
from heedmap.problem import Problem, all_finite

PIECE_CELLS = 1 << 21
"""How many cells of a mask, over all samples and heads, are made at a time."""

NARROWEST = 256
"""How many keys a piece has at least, where there are that many: narrower ones cost time."""

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def serves(problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]) -> bool:
    """Return whether the fused kernel computes this problem exactly as promised.

    It knows no soft-cap, gives no gradient to a bias, lets NaN in a hidden slot through, multiplies
    the −inf of its causal mask by the scale, and has no forward derivative.
    """
    scoring, query = problem.scoring, problem.query
    if not query.is_cpu or not problem.clean or forward_ad._current_level >= 0:
        return False
    if scoring.soft_cap is not None or scoring.change is not None:
        return False
    if not (query.numel() and problem.key.numel() and value.numel()):
        return False
    if scoring.scale <= 0 and problem.mask is not None:
        return False
    if (bias := scoring.bias) is not None and (bias.requires_grad or bias.dtype != query.dtype):
        return False
    return (problem.mask is None and bias is None) or all_finite(value)


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return the output and the log-normaliser.

    Cost: that of the fused kernel; memory of the output, for half precision of the inputs in
    float32, and for masks other than causal and padding one piece of the mask.
    """
    # In half precision the kernel would round each weight before it takes the value.
    query, key, values = (t.to(problem.compute_dtype) for t in _same_width(problem, value))
    inputs = query, key, values
    pieces = _pieces(problem)
    if len(pieces) == 1 and pieces[0].is_whole(problem):
        output, normalizer = _run(problem, pieces[0], *inputs)
    else:
        output, normalizer = _run_and_merge(problem, pieces, *inputs)
    if output.shape[-1] != value.shape[-1]:
        output = output[..., : value.shape[-1]]
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

    The kernel subtracts rowsum(dO ∘ O) from dO·Vᵀ and knows nothing of the log-normaliser's
    gradient dℓ. One more column, −dℓ in O and 1 in dO, brings it in: the kernel then subtracts
    rowsum(dO ∘ O) − dℓ, while V has 0 there and dO·Vᵀ stays.

    Cost: that of the fused kernel's backward pass.
    """
    given, empty = value.dtype, log_normalizer == -torch.inf
    upward = torch.zeros_like(output) if output_gradient is None else output_gradient
    slope = -(upward * output).sum(-1, dtype=problem.compute_dtype)
    if log_normalizer_gradient is not None:
        rise = log_normalizer_gradient.masked_fill(empty, 0)
        slope = slope + rise
        # In half precision the new column would round what it carries.
        problem = problem.map_tensors(lambda tensor: tensor.to(problem.compute_dtype))
        upward = torch.cat([upward, torch.ones_like(upward[..., :1])], dim=-1).to(rise.dtype)
        output = torch.cat([output.to(rise.dtype), -rise[..., None]], dim=-1)
    width = output.shape[-1] - value.shape[-1]
    inputs = _same_width(problem, F.pad(value.to(output.dtype), (0, width)))
    upward, output = (F.pad(t, (0, inputs[0].shape[-1] - t.shape[-1])) for t in (upward, output))
    sums = _run_backward(problem, inputs, upward, output, log_normalizer.masked_fill(empty, 0))
    own = problem.scoring.sinks
    d_sinks = None if own is None else sinks.gradient(own, log_normalizer, slope)
    widths = problem.query.shape[-1], problem.key.shape[-1], value.shape[-1]
    d_query, d_key, d_value = (
        d_input[..., :width].to(given) for d_input, width in zip(sums, widths, strict=True)
    )
    kv_heads = problem.key.shape[1]
    return Gradients(
        d_query, _sum_groups(d_key, kv_heads), None, d_sinks, _sum_groups(d_value, kv_heads)
    )


@dataclass(frozen=True)
class _Piece:
    """A block of the problem that the kernel computes in one call."""

    rows: range
    columns: range
    is_causal: bool = False
    is_masked: bool = False
    padding: Tensor | None = None

    def is_whole(self, problem: Problem) -> bool:
        _, _, queries, keys = problem.extent
        return len(self.rows) == queries and len(self.columns) == keys

    def slices(self) -> tuple[slice, slice]:
        return slice(self.rows.start, self.rows.stop), slice(self.columns.start, self.columns.stop)

    def additive_mask(self, problem: Problem, dtype: torch.dtype) -> Tensor | None:
        """Return what is to be added to the scores of this block, or None for nothing."""
        if self.padding is not None:
            hidden = ~self.padding[:, None, None]
            shown = torch.zeros_like(hidden, dtype=dtype)
            return shown.masked_fill(hidden, -torch.inf)
        added = self._bias(problem, dtype)
        batch, heads, _, _ = problem.extent
        visible = (
            problem.visible(range(batch * heads), self.rows, self.columns)
            if self.is_masked
            else None
        )
        if visible is None:
            return added
        visible = visible.unflatten(0, (batch, heads)) if len(visible) > 1 else visible[None]
        visible = visible.expand(-1, -1, -1, len(self.columns))
        zero = visible.new_zeros((), dtype=dtype) if added is None else added
        return torch.where(visible, zero, -torch.inf)

    def _bias(self, problem: Problem, dtype: torch.dtype) -> Tensor | None:
        bias = problem.scoring.bias
        if bias is None:
            return None
        rows, columns = self.slices()
        bias = bias[:, :, rows] if bias.shape[2] > 1 else bias
        bias = bias[..., columns] if bias.shape[3] > 1 else bias
        # The kernel reads whole rows of keys.
        return bias.expand(-1, -1, -1, len(self.columns)).contiguous().to(dtype)


def _pieces(problem: Problem) -> list[_Piece]:
    _, _, queries, keys = problem.extent
    whole = range(queries), range(keys)
    parts = parts_of(problem.mask)
    if problem.mask is None or problem.mask.covers(0, queries - 1, 0, keys - 1):
        return [_Piece(*whole)]
    causal = [part for part in parts if isinstance(part, Causal)]
    padding = [part for part in parts if isinstance(part, Padding)]
    if (
        len(causal) + len(padding) == len(parts)
        and all(part.offset == 0 for part in causal)
        and problem.scoring.bias is None
    ):
        valid = None
        for part in padding:
            valid = part.valid if valid is None else valid & part.valid
        return [_Piece(*whole, is_causal=bool(causal), padding=valid)]
    cells = PIECE_CELLS // _tables(problem)
    return [
        _Piece(rows, columns, is_masked=True)
        for rows in split(queries, min(SIDE, cells // NARROWEST))
        for columns in _within(problem.key_range(rows), cells // len(rows))
    ]


def _tables(problem: Problem) -> int:
    """Return how many tables of query × key the mask and the bias are: 1, or more by sample."""
    batch, heads, _, _ = problem.extent
    assert problem.mask is not None
    first = range(1)
    tables = len(problem.mask.tile(problem.places(range(batch * heads), first, first)))
    bias = problem.scoring.bias
    return tables if bias is None else max(tables, bias.shape[0] * bias.shape[1])


def _within(bounds: tuple[int, int], step: int) -> list[range]:
    start, stop = bounds
    return [range(start + part.start, start + part.stop) for part in split(stop - start, step)]


def _same_width(problem: Problem, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value with one width and one number of heads, as the kernel wants."""
    query, key = problem.query, problem.key
    width = max(query.shape[-1], value.shape[-1])
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    query, key, value = (
        F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t
        for t in (query, key, value)
    )
    return _unit_stride(query), _unit_stride(key), _unit_stride(value)


def _unit_stride(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _run(
    problem: Problem, piece: _Piece, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    mask = piece.additive_mask(problem, query.dtype)
    output, normalizer = _forward(
        query, key, value, 0.0, piece.is_causal, attn_mask=mask, scale=problem.scoring.scale
    )
    if mask is None:
        return output, normalizer
    # The kernel gives a row that sees nothing the log-normaliser 0.
    if piece.is_causal:
        numbers = torch.arange(len(piece.rows), device=mask.device)
        last_seen = numbers.clamp(max=len(piece.columns) - 1)
        highest = mask.cummax(-1).values[:, :, 0, last_seen]
    else:
        highest = mask.amax(-1)
    return output, normalizer.masked_fill(highest == -torch.inf, -torch.inf)


def _run_and_merge(
    problem: Problem, pieces: list[_Piece], query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    batch, heads, queries, width = query.shape
    dtype = problem.compute_dtype
    output = query.new_zeros((batch, heads, queries, width))
    normalizer = query.new_full((batch, heads, queries), -torch.inf, dtype=dtype)
    for rows in sorted({piece.rows for piece in pieces}, key=lambda some: some.start):
        strip = [piece for piece in pieces if piece.rows == rows]
        lines = slice(rows.start, rows.stop)
        total = normalizer[:, :, lines]
        gathered = query.new_zeros((batch, heads, len(rows), width), dtype=dtype)
        for piece in strip:
            _, columns = piece.slices()
            part, part_total = _run(
                problem, piece, query[:, :, lines], key[:, :, columns], value[:, :, columns]
            )
            both = torch.logaddexp(total, part_total)
            old, new = (
                torch.exp(t - both).masked_fill(t == -torch.inf, 0)[..., None]
                for t in (total, part_total)
            )
            gathered, total = gathered * old + part * new, both
        output[:, :, lines], normalizer[:, :, lines] = gathered.to(query.dtype), total
    return output, normalizer


def _run_backward(
    problem: Problem,
    inputs: tuple[Tensor, Tensor, Tensor],
    upward: Tensor,
    output: Tensor,
    normalizer: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = inputs
    dtype = problem.compute_dtype
    d_query, d_key, d_value = (torch.zeros_like(t, dtype=dtype) for t in inputs)
    for piece in _pieces(problem):
        rows, columns = piece.slices()
        parts = _backward(
            upward[:, :, rows],
            query[:, :, rows],
            key[:, :, columns],
            value[:, :, columns],
            output[:, :, rows],
            normalizer[:, :, rows],
            0.0,
            piece.is_causal,
            attn_mask=piece.additive_mask(problem, query.dtype),
            scale=problem.scoring.scale,
        )
        d_query[:, :, rows] += parts[0]
        d_key[:, :, columns] += parts[1]
        d_value[:, :, columns] += parts[2]
    return d_query, d_key, d_value


def _sum_groups(d_shared: Tensor, kv_heads: int) -> Tensor:
    """Return the gradient of shared keys or values: the sum over the heads that share them."""
    return d_shared.unflatten(1, (kv_heads, -1)).sum(2)
