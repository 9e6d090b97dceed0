"""One pass over the cells of a rule, adding up what each block contributes.

Every sum over a map is made here, with and without gradient. The gradient is one more pass that
makes each block again, so that memory stays that of a block and of the answers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from heedmap.lazy import LazyMatrix
from heedmap.places import Block, blocks
from heedmap.precision import exactly
from heedmap.tensors import refuse_mapped


class Share(NamedTuple):
    """What a block adds: to which answer, where in it, and how much."""

    answer: int
    place: tuple[slice, ...]
    amount: Tensor


Visit = Callable[..., list[Share]]
"""Called with a tile, its block, and the further tensors; returns what the block adds."""


def add_up(
    rule: LazyMatrix,
    shapes: Sequence[tuple[int, ...]],
    visit: Visit,
    further: Sequence[Tensor] = (),
    dtype: torch.dtype | None = None,
) -> list[Tensor]:
    """Return the answers of these `shapes`: zeros, plus what `visit` says of each block.

    Blocks that the rule knows to be 0 are passed over, so a block of zeros must add nothing.

    Args:
        rule: What is read.
        shapes: The shape of each answer.
        visit: Says what a block adds; differentiable in the tile and in `further`.
        further: Tensors that `visit` needs and that may have a gradient.
        dtype: The number type of the answers; that of the tiles unless given.

    Cost: one pass over the cells; memory of the answers and one block. A backward pass costs two
    more and keeps as little.
    """
    dtype = rule.dtype if dtype is None else dtype
    if (home := rule.home()) is not None:
        return home.add_up(rule, shapes, visit, further, dtype)
    differentiable = torch.is_grad_enabled() and dtype.is_floating_point
    if differentiable and (rule.requires_grad() or any(t.requires_grad for t in further)):
        own = rule.tensors()
        given = (rule, tuple(shapes), visit, dtype, len(own))
        return list(_AddUp.apply(*given, *own, *further))  # pyright: ignore
    with torch.no_grad(), exactly():
        return _pass(rule, shapes, visit, further, dtype)


def _pass(
    rule: LazyMatrix,
    shapes: Sequence[tuple[int, ...]],
    visit: Visit,
    further: Sequence[Tensor],
    dtype: torch.dtype,
) -> list[Tensor]:
    answers = [torch.zeros(shape, dtype=dtype, device=rule.device) for shape in shapes]
    for block in live_blocks(rule):
        for share in visit(rule.tile(*block), block, *further):
            answers[share.answer][share.place] += share.amount
    return answers


def live_blocks(rule: LazyMatrix, wide: bool = False) -> list[Block]:
    """Return the blocks of a rule that may hold anything but 0, cut to where they may.

    Args:
        rule: What is to be read.
        wide: Whether few rows at a time are wanted, with all their columns.
    """
    kept = []
    ranges: dict[range, tuple[int, int]] = {}
    for block in blocks(*rule.sizes, wide=wide):
        if block.rows not in ranges:
            ranges[block.rows] = rule.column_range(block.rows)
        start, stop = ranges[block.rows]
        columns = range(max(block.columns.start, start), min(block.columns.stop, stop))
        if columns:
            kept.append(Block(block.matrices, block.rows, columns))
    return kept


_is_transformed = torch._C._are_functorch_transforms_active


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        rule: LazyMatrix,
        shapes: tuple[tuple[int, ...], ...],
        visit: Visit,
        dtype: torch.dtype,
        own: int,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        if any(map(is_functorch_wrapped_tensor, rule.tensors())):
            # The tensors of the rule only stand for these, which are one level further down.
            remaining = iter(tensors[:own])
            rule = rule.map_tensors(lambda _: next(remaining))
        with exactly():
            return tuple(_pass(rule, shapes, visit, tensors[own:], dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        del output
        ctx.rule, _, ctx.visit, _, ctx.own, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *upward: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        with exactly():
            return _AddUp._gradients(ctx, upward)

    @staticmethod
    def _gradients(ctx: Any, upward: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for gradient in upward:
            if gradient is not None:
                refuse_mapped("gradient", gradient)
        wanted = [number for number, want in enumerate(ctx.needs_input_grad[5:]) if want]
        tensors = list(ctx.saved_tensors)
        again = torch.is_grad_enabled() and any(
            up is not None and up.requires_grad for up in upward
        )
        for number in wanted:
            # A view stands for itself alone, where a tensor is two of these or made of another.
            given = tensors[number]
            # Of what torch.func.vjp gives back later, nothing requires a gradient any more.
            tensors[number] = view = given.view_as(given)
            if torch.is_grad_enabled() and (view.requires_grad or _is_transformed()):
                again = True
            else:
                tensors[number] = given.detach().requires_grad_()
        remaining = iter(tensors[: ctx.own])
        rule = ctx.rule.map_tensors(lambda _: next(remaining))
        sums: dict[int, Tensor] = {}
        for block in live_blocks(rule):
            with torch.enable_grad():
                shares = ctx.visit(rule.tile(*block), block, *tensors[ctx.own :])
            asked = [
                (share.amount, up[share.place])
                for share in shares
                if (up := upward[share.answer]) is not None and share.amount.requires_grad
            ]
            if not asked:
                continue
            grads = torch.autograd.grad(
                [amount for amount, _ in asked],
                [tensors[number] for number in wanted],
                [up.to(amount.dtype).expand_as(amount) for amount, up in asked],
                create_graph=again,
                allow_unused=True,
            )
            for number, grad in zip(wanted, grads, strict=True):
                if grad is not None:
                    sums[number] = grad if number not in sums else sums[number] + grad
        return (None,) * 5 + tuple(sums.get(number) for number in range(len(tensors)))
