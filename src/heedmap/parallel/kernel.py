"""Output and log-normaliser of this rank's queries over everybody's keys, and their gradients."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import UnsupportedError
from heedmap.kernels import differentiable, sinks, tiles
from heedmap.kernels.gradients import Gradients
from heedmap.parallel.merging import Rows
from heedmap.parallel.ring import round_trip, travel
from heedmap.parallel.shards import Shards, widened
from heedmap.precision import exactly
from heedmap.problem import Problem

WITHOUT_DIGITS = 2.0**16
"""From which size on a float32 log-normaliser tells no more how many keys share a row."""


def run(
    shards: Shards, value: Float[Tensor, "batch kv_heads own_keys value_dim"]
) -> tuple[
    Float[Tensor, "batch heads own_queries value_dim"],
    Float[Tensor, "batch heads own_queries"],
]:
    """Return the output, differentiable, and the log-normaliser, a plain number for each row."""
    inputs = (*shards.tensors(), value)
    if needs_gradient(inputs):
        return _Output.apply(shards, *inputs)  # pyright: ignore[reportReturnType]
    with torch.no_grad(), exactly():
        return _forward(shards, value)


def log_normalizer(
    shards: Shards, known: Float[Tensor, "batch heads own_queries"]
) -> Float[Tensor, "batch heads own_queries"]:
    """Return the known log-normaliser as a differentiable function of what the problem is of."""
    inputs = shards.tensors()
    if not needs_gradient(inputs):
        return known
    return _LogNormalizer.apply(shards, known, *inputs)  # pyright: ignore[reportReturnType]


def exact_rows(shards: Shards) -> Rows:
    """Return the log-normaliser of every row to all digits of float64, in two numbers.

    Cost: one journey of the keys; O(queries · keys / ranks) time, a block in memory.
    """
    fine = shards.map_tensors(lambda tensor: tensor.detach().double())
    batch, heads, own, _ = fine.query.shape
    rows = Rows((batch, heads, own), 0, torch.float64, fine.query.device)

    def look(source: int, theirs: list[Tensor]) -> None:
        for pair in shards.pairs(source):
            problem = fine.block(pair, theirs[0].double(), source)
            some = range(batch * heads), range(problem.extent.queries)
            found = tiles.log_normalizer(problem, *some)
            lacking = tiles.remainder(problem, found, *some)
            found, lacking = (t.unflatten(0, (batch, heads)) for t in (found, lacking))
            rows.add(pair.own, found[..., None][..., :0], found, lacking)

    with torch.no_grad():
        for source, theirs in travel(shards.members, shards.plan, [shards.key]):
            look(source, theirs)
        if fine.scoring.sinks is not None:
            rows.join(fine.scoring.sinks)
    return rows


def needs_gradient(tensors: tuple[Tensor, ...]) -> bool:
    """Return whether a gradient may be asked of what is made of these."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _forward(shards: Shards, value: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, own, _ = shards.query.shape
    rows = Rows((batch, heads, own), value.shape[-1], shards.compute_dtype, value.device)

    def look(source: int, theirs: list[Tensor]) -> None:
        key, values = theirs
        for pair in shards.pairs(source):
            problem = shards.block(pair, key, source)
            part = widened(values[:, :, pair.theirs])
            kernel = differentiable.KERNELS[differentiable.choose(problem, part)]
            output, normalizer = kernel.forward(problem, part)
            rows.add(pair.own, output, normalizer, _lacking(problem, normalizer))

    for source, theirs in travel(shards.members, shards.plan, [shards.key, value]):
        look(source, theirs)
    if shards.scoring.sinks is not None:
        rows.join(shards.scoring.sinks)
    return rows.gathered.to(value.dtype), rows.normalizer()


def _lacking(problem: Problem, normalizer: Tensor) -> Tensor | float:
    """Return what a log-normaliser lacks that has no digits left for its own rows."""
    if not bool(((normalizer.abs() > WITHOUT_DIGITS) & (normalizer > -torch.inf)).any()):
        return 0.0
    batch, heads, queries, _ = problem.extent
    some = range(batch * heads), range(queries)
    found = tiles.remainder(problem, normalizer.flatten(0, 1), *some)
    return found.unflatten(0, (batch, heads))


def _backward(
    shards: Shards,
    value: Tensor | None,
    output: Tensor | None,
    normalizer: Tensor,
    d_output: Tensor | None,
    d_normalizer: Tensor | None,
) -> Gradients:
    """Return the gradients of this rank's tensors, one journey of the keys later.

    Without values and an output, only the log-normaliser's own gradient is there.
    """
    dtype, bias, own_sinks = shards.compute_dtype, shards.scoring.bias, shards.scoring.sinks
    given = [shards.key] if value is None else [shards.key, value]
    d_query = torch.zeros(shards.query.shape, dtype=dtype, device=shards.query.device)
    d_bias = None if bias is None else torch.zeros(bias.shape, dtype=dtype, device=bias.device)
    if output is None or d_output is None:
        output = d_output = d_query.new_zeros((*d_query.shape[:3], 1))
    output, d_output = output.to(dtype), d_output.to(dtype)
    if d_normalizer is not None:
        d_normalizer = d_normalizer.masked_fill(normalizer == -torch.inf, 0)

    def work(source: int, theirs: list[Tensor]) -> list[Tensor]:
        key, *values = theirs
        sums = [torch.zeros_like(tensor, dtype=dtype) for tensor in theirs]
        for pair in shards.pairs(source):
            problem = shards.block(pair, key, source)
            part = (
                widened(values[0][:, :, pair.theirs])
                if values
                else problem.key.new_zeros((*problem.key.shape[:3], 1))
            )
            lines = (slice(None), slice(None), pair.own)
            backward = differentiable.backward_of(differentiable.choose(problem, part), problem)
            found = backward(
                problem,
                part,
                output[lines],
                normalizer[lines],
                d_output[lines],
                None if d_normalizer is None else d_normalizer[lines],
            )
            d_query[lines] += found.query
            for total, found_part in zip(sums, (found.key, found.value), strict=False):
                total[:, :, pair.theirs] += found_part
            if d_bias is not None and found.bias is not None:
                shards.bias_block(d_bias, pair).add_(found.bias)
        return sums

    sums = [torch.zeros(tensor.shape, dtype=dtype, device=tensor.device) for tensor in given]
    round_trip(shards.members, shards.plan, given, work, sums)
    d_sinks = None
    if own_sinks is not None:
        slope = -(d_output * output).sum(-1)
        slope = slope if d_normalizer is None else slope + d_normalizer
        d_sinks = sinks.gradient(own_sinks, normalizer, slope)
    found = d_query.to(shards.query.dtype), sums[0].to(shards.key.dtype)
    d_bias = None if bias is None or d_bias is None else d_bias.to(bias.dtype)
    d_value = sums[0] if value is None else sums[1].to(value.dtype)
    return Gradients(*found, d_bias, d_sinks, d_value)


class _Output(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shards: Shards, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        with exactly():
            output, normalizer = _forward(shards, inputs[-1])
        ctx.shards = shards
        ctx.save_for_backward(*inputs, output, normalizer)
        ctx.mark_non_differentiable(normalizer)
        return output, normalizer

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_output: Tensor, _: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        shards, (value, output, normalizer) = prepared(ctx, ctx.shards, "the gradient of an output")
        with exactly():
            found = _backward(shards, value, output, normalizer, d_output, None)
        return None, *listed(shards, found), found.value


class _LogNormalizer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shards: Shards, known: Tensor, *inputs: Tensor) -> Tensor:
        ctx.shards = shards
        ctx.save_for_backward(*inputs, known)
        return known.clone()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_normalizer: Tensor
    ) -> tuple[Tensor | None, ...]:
        wish = "the gradient of a log-normaliser"
        shards, (normalizer,) = prepared(ctx, ctx.shards, wish)
        with exactly():
            found = _backward(shards, None, None, normalizer, None, d_normalizer)
        return None, None, *listed(shards, found)


def prepared(ctx: Any, shards: Shards, wish: str) -> tuple[Shards, list[Tensor]]:
    """Return the problem on the tensors that were saved, and the rest that were.

    All ranks are known to go back, then.

    Raises:
        UnsupportedError: for a gradient that is to have a gradient, and for tensors that were
            written into.
        RankError: if another rank does something else.
    """
    error, saved = None, []
    if torch.is_grad_enabled():
        error = UnsupportedError(
            "create_graph must be False over several ranks; got True. Gradients of gradients are "
            "to be had in one process."
        )
    else:
        try:
            saved = list(ctx.saved_tensors)
        except RuntimeError as told:
            error = UnsupportedError(
                "what attention was given on a rank must not be written into before its gradient "
                f"is asked for; PyTorch says: {str(told).splitlines()[0]}"
            )
    shards.members.agree(wish, error=error)
    own = len(shards.tensors())
    remaining = iter(saved[:own])
    return shards.map_tensors(lambda _: next(remaining)), saved[own:]


def listed(shards: Shards, found: Gradients) -> list[Tensor | None]:
    """Return the gradients of the problem's tensors, in their order."""
    bias, own_sinks = shards.scoring.bias, shards.scoring.sinks
    made: list[Tensor | None] = [found.query, found.key]
    made += [found.bias] if bias is not None else []
    return made + ([found.sinks] if own_sinks is not None else [])
