"""Output and log-normaliser of this rank's queries over everybody's keys, and their gradients."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import UnsupportedError
from heedmap.kernels import differentiable, sinks, tiles
from heedmap.kernels.gradients import Gradients
from heedmap.parallel.merging import Rows
from heedmap.parallel.ring import round_trip, travel, zeros_for
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


class _Back:
    """The gradients of this rank's tensors as they grow, on one journey of the keys.

    Args:
        shards: The problem.
        value: This rank's values; None where only the log-normaliser's gradient goes back.
        output: What this rank's rows gathered, and
        d_output: its gradient; None without values.
        normalizer: Their log-normaliser over all keys, and
        d_normalizer: its gradient, if any.
    """

    def __init__(
        self,
        shards: Shards,
        value: Tensor | None,
        output: Tensor | None,
        d_output: Tensor | None,
        normalizer: Tensor,
        d_normalizer: Tensor | None,
    ) -> None:
        dtype, bias = shards.compute_dtype, shards.scoring.bias
        self.shards, self.value, self.normalizer = shards, value, normalizer
        self.d_query = zeros_for(shards.query, dtype)
        self.d_bias = None
        if bias is not None and bias.requires_grad:
            self.d_bias = zeros_for(bias, dtype)
        if output is None or d_output is None:
            output = d_output = self.d_query.new_zeros((*self.d_query.shape[:3], 1))
        self.output, self.d_output = output.to(dtype), d_output.to(dtype)
        self.d_normalizer = d_normalizer
        if d_normalizer is not None:
            self.d_normalizer = d_normalizer.masked_fill(normalizer == -torch.inf, 0)

    def run(self) -> Gradients:
        """Return the gradients."""
        shards, bias = self.shards, self.shards.scoring.bias
        given = [shards.key] if self.value is None else [shards.key, self.value]
        sums = [zeros_for(tensor, shards.compute_dtype) for tensor in given]
        round_trip(shards.members, shards.plan, given, self._work, sums)
        return Gradients(
            self.d_query.to(shards.query.dtype),
            sums[0].to(shards.key.dtype),
            None if bias is None or self.d_bias is None else self.d_bias.to(bias.dtype),
            self._of_sinks(),
            sums[-1].to(given[-1].dtype),
        )

    def _work(self, source: int, theirs: list[Tensor]) -> list[Tensor]:
        """Add what this rank's rows see of a rank's keys; return what is those keys' part."""
        shards = self.shards
        key, *values = theirs
        sums = [zeros_for(tensor, shards.compute_dtype) for tensor in theirs]
        for pair in shards.pairs(source):
            problem = shards.block(pair, key, source)
            if values:
                part = widened(values[0][:, :, pair.theirs])
            else:
                part = problem.key.new_zeros((*problem.key.shape[:3], 1))
            found = self._of_block(problem, part, pair.own)
            self.d_query[:, :, pair.own] += found.query
            for total, d_part in zip(sums, (found.key, found.value), strict=False):
                total[:, :, pair.theirs] += d_part
            if self.d_bias is not None and found.bias is not None:
                shards.bias_block(self.d_bias, pair).add_(found.bias)
        return sums

    def _of_block(self, problem: Problem, value: Tensor, own: slice) -> Gradients:
        backward = differentiable.backward_of(differentiable.choose(problem, value), problem)
        rise = None if self.d_normalizer is None else self.d_normalizer[:, :, own]
        rows = (part[:, :, own] for part in (self.output, self.normalizer, self.d_output))
        return backward(problem, value, *rows, rise)

    def _of_sinks(self) -> Tensor | None:
        own = self.shards.scoring.sinks
        if own is None:
            return None
        slope = -(self.d_output * self.output).sum(-1)
        slope = slope if self.d_normalizer is None else slope + self.d_normalizer
        return sinks.gradient(own, self.normalizer, slope)


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
            found = _Back(shards, value, output, d_output, normalizer, None).run()
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
            found = _Back(shards, None, None, None, normalizer, d_normalizer).run()
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
    shards.agree(wish, error)
    own = len(shards.tensors())
    remaining = iter(saved[:own])
    return shards.map_tensors(lambda _: next(remaining)), saved[own:]


def listed(shards: Shards, found: Gradients) -> list[Tensor | None]:
    """Return the gradients of the problem's tensors, in their order."""
    bias, own_sinks = shards.scoring.bias, shards.scoring.sinks
    made: list[Tensor | None] = [found.query, found.key]
    made += [found.bias] if bias is not None else []
    return made + ([found.sinks] if own_sinks is not None else [])
