"""Blockwise products: what serves every problem, at the memory of a block.

The softmax of a row is gathered block by block with a running maximum (Milakov and Gimelshein,
“Online normalizer calculation for softmax”, 2018). With the log-normaliser known, any block of
weights is exp(scores − log_normalizer), and a gradient needs one more pass over the blocks.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.kernels import sinks
from heedmap.kernels.gradients import Gradients
from heedmap.places import (
    SIDE,
    Block,
    Index,
    Places,
    as_numbers,
    block_width,
    blocks,
    pick,
    split,
    strips,
)
from heedmap.problem import Problem, all_finite, finite, gather
from heedmap.scoring import ScoreChange

LOG2_E = math.log2(math.e)


def forward(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"]
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
]:
    """Return the output and the log-normaliser.

    Cost: O(queries · keys) time, the output and one block in memory.
    """
    batch, heads, queries, keys = problem.extent
    flat_value = value.flatten(0, 1)
    output = flat_value.new_zeros((batch * heads, queries, value.shape[-1]))
    log_normalizer = torch.empty(
        (batch * heads, queries), dtype=problem.compute_dtype, device=value.device
    )
    clean_value = all_finite(value)
    for matrices, rows in strips(batch * heads, queries, keys):
        gathered = _Softmax(problem, matrices, rows)
        shared = pick(flat_value, problem.key_matrices(matrices), 0)
        for columns in _column_blocks(problem, matrices, rows):
            gathered.add(columns, pick(shared, columns, 1), clean_value)
        place = _slices(matrices, rows)
        result, log_normalizer[place] = gathered.finish(value.shape[-1])
        output[place] = result.to(value.dtype)
    shape = (batch, heads, queries)
    return output.unflatten(0, shape[:2]), log_normalizer.reshape(shape)


def log_normalizer(
    problem: Problem, matrices: Index, rows: Index
) -> Float[Tensor, "matrices rows"]:
    """Return the log-normaliser of some rows only.

    Cost: O(matrices · rows · keys) time, one block in memory.
    """
    results = []
    for some in split(len(rows), SIDE):
        part = rows[some.start : some.stop]
        gathered = _Softmax(problem, matrices, part)
        for columns in _column_blocks(problem, matrices, part):
            gathered.add(columns, None, True)
        results.append(gathered.finish(0)[1])
    if not results:
        empty = (len(matrices), 0)
        return torch.empty(empty, dtype=problem.compute_dtype, device=problem.query.device)
    return torch.cat(results, dim=1)


class _Softmax:
    """The softmax of some rows, gathered one block of keys after the other."""

    def __init__(self, problem: Problem, matrices: Index, rows: Index) -> None:
        self.problem, self.matrices, self.rows = problem, matrices, rows
        self.maximum: Tensor | float = -torch.inf
        self.total: Tensor | float = 0.0
        self.gathered: Tensor | float = 0.0

    def add(self, columns: range, value: Tensor | None, clean_value: bool) -> None:
        """Take in a block of keys, and what their values add."""
        scores = self.problem.scores(self.matrices, self.rows, columns)
        peak = scores.amax(-1, keepdim=True)
        maximum = torch.maximum(peak, torch.as_tensor(self.maximum).to(peak))
        # Where nothing has been seen yet the maximum is −inf, and −inf − −inf is not a number.
        anchor = maximum.masked_fill(maximum == -torch.inf, 0)
        exponentials = torch.exp(scores - anchor)
        if not self.problem.clean:
            exponentials = exponentials.masked_fill(scores == -torch.inf, 0)
        fade = torch.exp(self.maximum - anchor)
        self.total = self.total * fade + exponentials.sum(-1, keepdim=True)
        if value is not None:
            product = gather(exponentials, value.to(scores.dtype), clean_value)
            self.gathered = self.gathered * fade + product
        self.maximum = maximum

    def finish(self, value_dim: int) -> tuple[Tensor, Tensor]:
        """Return the output of these rows and their log-normaliser, sinks included."""
        problem = self.problem
        shape = (len(self.matrices), len(self.rows))
        if not isinstance(self.total, Tensor):
            numbers = {"dtype": problem.compute_dtype, "device": problem.query.device}
            result = torch.zeros((*shape, value_dim), **numbers)
            total = torch.full(shape, -torch.inf, **numbers)
        else:
            anchor = torch.as_tensor(self.maximum)
            total = (torch.log(self.total) + anchor)[..., 0]
            # The logarithm of 0 has a forward derivative that is not a number.
            total = total.masked_fill(total == -torch.inf, -torch.inf)
            divisor = self.total.masked_fill(self.total == 0, 1)
            result = torch.as_tensor(self.gathered / divisor).to(divisor)
        if problem.scoring.sinks is not None:
            result, total = sinks.join(result, total, problem.sink_column(self.matrices))
        return result, total


def weights(
    problem: Problem,
    log_normalizer: Float[Tensor, "matrices rows"],
    matrices: Index,
    rows: Index,
    columns: Index,
    remainder: Float[Tensor, "matrices rows"] | None = None,
) -> Float[Tensor, "matrices rows columns"]:
    """Return a block of weights from the log-normaliser of its rows, and its `remainder` if any.

    Cost: O(matrices · rows · columns · head_dim) time, the block itself in memory.
    """
    scores = problem.scores(matrices, rows, columns)
    hidden = None if problem.clean else scores == -torch.inf
    anchor = log_normalizer.masked_fill(log_normalizer == -torch.inf, 0)[..., None]
    if remainder is not None:
        # Only the difference needs the digits of float64.
        scores = (scores - anchor).float()
        anchor = remainder[..., None].float()
    if torch.is_grad_enabled() and (scores.requires_grad or anchor.requires_grad):
        result = torch.exp(scores - anchor)
    else:
        # Base 2 is several times faster than base e on a CPU.
        result = scores.sub_(anchor).mul_(LOG2_E).exp2_()
    return result if hidden is None else result.masked_fill(hidden, 0)


def remainder(
    problem: Problem,
    log_normalizer: Float[Tensor, "matrices rows"],
    matrices: Index,
    rows: Index,
) -> Float[Tensor, "matrices rows"]:
    """Return what the log-normaliser lacks for its rows, with their sinks, to sum to 1.

    That is ln Σ exp(score − it), where a sink is one more score.

    Far from 0 a float32 has no digits left for it.

    Cost: O(matrices · rows · keys) time, one block in memory.
    """
    results = []
    for some in split(len(rows), SIDE):
        part = rows[some.start : some.stop]
        known = log_normalizer[:, some.start : some.stop]
        total = torch.zeros_like(known)
        if problem.scoring.sinks is not None:
            total = torch.exp(problem.sink_column(matrices) - known)
        for columns in _column_blocks(problem, matrices, part):
            total = total + weights(problem, known, matrices, part, columns).sum(-1)
        results.append(torch.log(total.masked_fill(known == -torch.inf, 1)))
    return torch.cat(results, dim=1) if results else torch.zeros_like(log_normalizer)


HIDDEN = -20_000.0
"""A base-2 logarithm whose power is exactly 0, in float64 too."""


class Log2Weights:
    """The base-2 logarithms of weights, by blocks; hidden ones far below any other.

    Base 2 because 2ˣ is several times faster than eˣ on a CPU; far below, not −inf, because
    0 · −inf is not a number. What does not depend on the block is worked out once.
    """

    def __init__(
        self,
        problem: Problem,
        log_normalizer: Float[Tensor, "matrices query"],
    ) -> None:
        """Scale the queries and the log-normaliser."""
        self.problem = problem
        anchor = log_normalizer.masked_fill(log_normalizer == -torch.inf, 0)
        self.is_plain = problem.scoring.is_plain and problem.clean
        self.start = (anchor * -LOG2_E)[..., None]
        if self.is_plain:
            dtype = problem.compute_dtype
            self.query = problem.flat_query.to(dtype) * (problem.scoring.scale * LOG2_E)
            self.key = problem.flat_key.to(dtype)

    def tile(self, block: Block, scratch: Tensor) -> Float[Tensor, "matrices rows columns"]:
        """Return one block, in the memory of `scratch` where that can be."""
        problem, place = self.problem, _slices(block.matrices, block.rows)
        if not self.is_plain:
            scores = problem.scores(*block).mul_(LOG2_E)
            return scores.add_(self.start[place]).clamp_(min=HIDDEN)
        key = pick(self.key, problem.key_matrices(block.matrices), 0)
        key = key[:, block.columns.start : block.columns.stop]
        logarithms = torch.baddbmm(self.start[place], self.query[place], key.mT, out=scratch)
        visible = problem.visible(*block)
        return logarithms if visible is None else logarithms.masked_fill_(~visible, HIDDEN)


def backward(
    problem: Problem,
    value: Float[Tensor, "batch kv_heads key value_dim"],
    output: Float[Tensor, "batch heads query value_dim"],
    log_normalizer: Float[Tensor, "batch heads query"],
    output_gradient: Float[Tensor, "batch heads query value_dim"] | None,
    log_normalizer_gradient: Float[Tensor, "batch heads query"] | None,
) -> Gradients:
    """Return the gradients of a loss from those of the output and of the log-normaliser.

    With P the weights and dO, dℓ the given gradients, the gradient of the scores is
    P ∘ (dO·Vᵀ − rowsum(dO ∘ O) + dℓ).

    Cost: O(queries · keys) time, the gradients and a few blocks in memory.
    """
    batch, heads, queries, keys = problem.extent
    numbers = {"dtype": problem.compute_dtype, "device": value.device}
    sums = _Sums(problem, value.flatten(0, 1).to(problem.compute_dtype))
    slope = torch.zeros((batch * heads, queries), **numbers)
    if output_gradient is not None:
        upward = output_gradient.flatten(0, 1).to(problem.compute_dtype)
        slope = slope - (upward * output.flatten(0, 1)).sum(-1)
    else:
        upward = torch.zeros((batch * heads, queries, value.shape[-1]), **numbers)
    if log_normalizer_gradient is not None:
        slope = slope + log_normalizer_gradient.flatten(0, 1)
    normalizer = log_normalizer.flatten(0, 1)
    slope = slope.masked_fill(normalizer == -torch.inf, 0)
    for block in blocks(batch * heads, queries, keys):
        start, stop = problem.key_range(block.rows)
        if block.columns.stop <= start or block.columns.start >= stop:
            continue
        lines = _slices(block.matrices, block.rows)
        share = weights(problem, normalizer[lines], *block)
        sums.add(block, share, upward[lines], slope[lines])
    return sums.finish(normalizer, slope)


class _Sums:
    """The gradients as they grow, block by block."""

    def __init__(self, problem: Problem, value: Tensor) -> None:
        numbers = {"dtype": problem.compute_dtype, "device": value.device}
        self.problem = problem
        self.value = finite(value)
        self.d_query = torch.zeros(problem.flat_query.shape, **numbers)
        self.d_key = torch.zeros(problem.flat_key.shape, **numbers)
        self.d_value = torch.zeros(value.shape, **numbers)
        bias = problem.scoring.bias
        self.bias_dtype = value.dtype if bias is None else bias.dtype
        self.d_bias = None if bias is None else torch.zeros(bias.shape, **numbers)

    def add(self, block: Block, share: Tensor, upward: Tensor, slope: Tensor) -> None:
        """Add what one block of weights contributes."""
        problem = self.problem
        key_matrices = problem.key_matrices(block.matrices)
        targets = as_numbers(key_matrices, share.device)
        value = pick(pick(self.value, key_matrices, 0), block.columns, 1)
        _add_columns(self.d_value, targets, block.columns, torch.bmm(share.mT, upward))
        rise = torch.bmm(upward, value.mT) + slope[..., None]
        d_scores = rise.mul_(share)
        if not problem.clean:
            d_scores = d_scores.masked_fill(share == 0, 0)
        if self.d_bias is not None:
            self._add_bias(block, d_scores)
        query = pick(pick(problem.flat_query, block.matrices, 0), block.rows, 1)
        key = pick(pick(problem.flat_key, key_matrices, 0), block.columns, 1)
        query, key = query.to(share.dtype), key.to(share.dtype)
        if not problem.clean:
            query, key = finite(query), finite(key)
        scale = problem.scoring.scale
        if (change := problem.scoring.change) is not None:
            scores = torch.bmm(query * scale, key.mT)
            d_scores = _through(change, scores, problem.places(*block), d_scores)
        if (cap := problem.scoring.soft_cap) is not None:
            squashed = torch.tanh(torch.bmm(query * (scale / cap), key.mT))
            d_scores = d_scores * (1 - squashed * squashed)
        self.d_query[_slices(block.matrices, block.rows)] += torch.bmm(d_scores, key).mul_(scale)
        _add_columns(self.d_key, targets, block.columns, torch.bmm(d_scores.mT, query).mul_(scale))

    def _add_bias(self, block: Block, d_scores: Tensor) -> None:
        d_bias, heads = self.d_bias, self.problem.extent.heads
        assert d_bias is not None
        rows, columns = (slice(r.start, r.stop) for r in (block.rows, block.columns))
        for number, matrix in enumerate(block.matrices):
            batch, head = divmod(matrix, heads)
            part = d_bias[batch if d_bias.shape[0] > 1 else 0, head if d_bias.shape[1] > 1 else 0]
            given = d_scores[number]
            given = given.sum(0, keepdim=True) if part.shape[0] == 1 else given
            given = given.sum(1, keepdim=True) if part.shape[1] == 1 else given
            part[rows if part.shape[0] > 1 else slice(None)][
                :, columns if part.shape[1] > 1 else slice(None)
            ] += given

    def finish(self, normalizer: Tensor, slope: Tensor) -> Gradients:
        """Return everything in the shapes and number types of the inputs."""
        problem = self.problem
        d_sinks = None
        if (own := problem.scoring.sinks) is not None:
            normalizer, slope = (t.unflatten(0, problem.extent[:2]) for t in (normalizer, slope))
            d_sinks = sinks.gradient(own, normalizer, slope)
        query, key = problem.query, problem.key
        kv = key.shape[:2]
        return Gradients(
            self.d_query.unflatten(0, query.shape[:2]).to(query.dtype),
            self.d_key.unflatten(0, kv).to(key.dtype),
            None if self.d_bias is None else self.d_bias.to(self.bias_dtype),
            d_sinks,
            self.d_value.unflatten(0, kv).to(query.dtype),
        )


def _through(change: ScoreChange, scores: Tensor, places: Places, upward: Tensor) -> Tensor:
    """Return the gradient of what goes into `change` from that of what comes out of it."""
    with torch.enable_grad():
        scores = scores.detach().requires_grad_()
        return torch.autograd.grad(change(scores, places), scores, upward)[0]


def _add_columns(sums: Tensor, targets: Tensor, columns: range, amounts: Tensor) -> None:
    sums[:, columns.start : columns.stop].index_add_(0, targets, amounts)


def _column_blocks(problem: Problem, matrices: Index, rows: Index) -> Iterator[range]:
    start, stop = problem.key_range(rows)
    for some in split(stop - start, block_width(len(matrices) * len(rows))):
        yield range(start + some.start, start + some.stop)


def _slices(matrices: range, rows: range) -> tuple[slice, slice]:
    return slice(matrices.start, matrices.stop), slice(rows.start, rows.stop)
