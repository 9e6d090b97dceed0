"""Sums over the cells of a map that several processes share: each goes through its own rows.

The keys travel; what a block adds is added here, and at the end over all ranks. The gradient is one
more journey, on which each block is made again, and from which each key's part comes home.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedmap.lazy import LazyMatrix, Sharded
from heedmap.lazy_weights import Form
from heedmap.parallel.fingerprints import described
from heedmap.parallel.kernel import prepared
from heedmap.parallel.reading import Known, read
from heedmap.parallel.ring import Pair, Plan, round_trip, travel, zeros_for
from heedmap.parallel.shards import Shards, widened
from heedmap.places import Block, Index, blocks
from heedmap.precision import exactly
from heedmap.problem import Problem

if TYPE_CHECKING:
    from heedmap.parallel.weights import ShardedWeights

Visit = Callable[..., list[Any]]


@dataclass(frozen=True, eq=False)
class Present(LazyMatrix):
    """A block of a shared map that is here, under the numbers of the whole sequence."""

    all_sizes: tuple[int, int, int]
    problem: Problem
    known: Known
    form: Form
    rows: range
    columns: range

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Those of the whole map."""
        return self.all_sizes

    @property
    def dtype(self) -> torch.dtype:
        """float64 for float64 inputs, float32 for the rest."""
        return self.problem.compute_dtype

    @property
    def device(self) -> torch.device:
        """That of the query."""
        return self.problem.query.device

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Make the cells, which must lie in the block."""
        lines, across = _less(rows, self.rows.start), _less(columns, self.columns.start)
        return read(self.problem, self.known, self.form, matrices, lines, across)


@dataclass(frozen=True, eq=False)
class Slot(LazyMatrix):
    """Where in a rule a block is to stand."""

    all_sizes: tuple[int, int, int]
    form: Form
    number_type: torch.dtype
    place: torch.device

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Those of the whole map."""
        return self.all_sizes

    @property
    def dtype(self) -> torch.dtype:
        """That of the map."""
        return self.number_type

    @property
    def device(self) -> torch.device:
        """That of the map."""
        return self.place

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Never be asked."""
        raise AssertionError("fill the slot before it is read")


def slotted(rule: LazyMatrix, home: "ShardedWeights") -> LazyMatrix:
    """Return a rule with a slot wherever it stands on the shared map, in whatever form."""

    def slot(leaf: Any) -> Slot:
        return Slot(home.sizes, leaf.form, home.dtype, home.device)

    return _swapped(rule, lambda part: isinstance(part, Sharded) and home.is_same(part), slot)


def filled(
    rule: LazyMatrix, home: "ShardedWeights", problem: Problem, known: Known, pair: Pair
) -> LazyMatrix:
    """Return a rule with a block of the shared map in its slots."""

    def present(slot: Any) -> Present:
        return Present(home.sizes, problem, known, slot.form, pair.queries, pair.keys)

    return _swapped(rule, lambda part: isinstance(part, Slot), present)


def words_of(rule: Any) -> str:
    """Return words that are the same for the same rule on all ranks."""
    if isinstance(rule, Sharded):
        return f"the map's {getattr(rule, 'form', 'cells')}"
    if isinstance(rule, LazyMatrix):
        parts = ", ".join(words_of(getattr(rule, part.name)) for part in fields(rule))
        return f"{type(rule).__name__}({parts})"
    if isinstance(rule, tuple):
        return f"({', '.join(map(words_of, rule))})"
    if isinstance(rule, Tensor) and rule.is_floating_point():
        # It may be as large as a side of the map, and its gradient be wanted.
        return f"numbers {list(rule.shape)}"
    return described(rule)


def _called(visit: Visit) -> str:
    """Return the name of the function that a visit stands in, which is what is asked."""
    return visit.__qualname__.split(".")[0].strip("_").replace("_", " ")


def add_up(
    home: "ShardedWeights",
    rule: LazyMatrix,
    shapes: Sequence[tuple[int, ...]],
    visit: Visit,
    further: Sequence[Tensor],
    dtype: torch.dtype,
) -> list[Tensor]:
    """Return what `stream.add_up` would, on every rank.

    Cost: one journey of the keys; O(rows · columns / ranks) time; memory of the answers and of a
    block. A backward pass takes one more, and twice the time.
    """
    known = home.ask(f"{_called(visit)} of {words_of(rule)}, {list(shapes)}")
    job = _Job(home, rule, slotted(rule, home), tuple(shapes), visit, dtype)
    differentiable = torch.is_grad_enabled() and dtype.is_floating_point
    if differentiable and (rule.requires_grad() or any(t.requires_grad for t in further)):
        own, others = home.tensors(), job.slotted.tensors()
        return list(_AddUp.apply(job, known, len(own), len(others), *own, *others, *further))  # pyright: ignore
    with torch.no_grad(), exactly():
        return job.run(known, further)


@dataclass(frozen=True, eq=False)
class _Job:
    """What is added up."""

    home: "ShardedWeights"
    rule: LazyMatrix
    slotted: LazyMatrix
    shapes: tuple[tuple[int, ...], ...]
    visit: Visit
    dtype: torch.dtype

    @property
    def plan(self) -> Plan:
        shards = self.home.shards
        return Plan(shards.queries, shards.keys, self.rule.column_range)

    def run(self, known: Known, further: Sequence[Tensor]) -> list[Tensor]:
        """Go through the blocks of this rank's rows, and add up with the others."""
        home, shards, plan = self.home, self.home.shards, self.plan
        answers = [torch.zeros(s, dtype=self.dtype, device=home.device) for s in self.shapes]

        def look(source: int, theirs: list[Tensor]) -> None:
            for pair in plan.pairs(shards.members.rank, source):
                problem = shards.block(pair, theirs[0], source)
                lines = known.lines(pair.own)
                rule = filled(self.slotted, home, problem, lines, pair)
                for block in live_blocks(self.rule, pair):
                    for share in self.visit(rule.tile(*block), block, *further):
                        answers[share.answer][share.place] += share.amount

        for source, theirs in travel(shards.members, plan, [shards.key]):
            look(source, theirs)
        for answer in answers:
            shards.members.add_up(answer)
        return answers


def live_blocks(rule: LazyMatrix, pair: Pair) -> Iterator[Block]:
    """Yield the blocks of a pair of stretches that may hold anything but 0."""
    first, left = pair.queries.start, pair.keys.start
    ranges: dict[range, tuple[int, int]] = {}
    for some in blocks(rule.sizes[0], len(pair.queries), len(pair.keys)):
        rows = range(first + some.rows.start, first + some.rows.stop)
        if rows not in ranges:
            ranges[rows] = rule.column_range(rows)
        start, stop = ranges[rows]
        columns = range(max(left + some.columns.start, start), min(left + some.columns.stop, stop))
        if columns:
            yield Block(some.matrices, rows, columns)


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, job: _Job, known: Known, own: int, others: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.job, ctx.counts = job, (own, others)
        ctx.exact = known.anchor, known.rest
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        with exactly():
            return tuple(job.run(known, tensors[own + others :]))

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *upward: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        own, others = ctx.counts
        shards, rest = prepared(ctx, ctx.job.home.shards, "the gradient of an answer")
        normalizer, *shared = (tensor.detach() for tensor in rest)
        with exactly():
            back = _Back(ctx.job, shards, Known(normalizer.flatten(0, 1), *ctx.exact), upward)
            back.take(shared[:others], shared[others:], ctx.needs_input_grad[4 + own :])
            return None, None, None, None, *back.run()


class _Back:
    """The gradients as they grow, block by block."""

    def __init__(
        self, job: _Job, shards: Shards, known: Known, upward: Sequence[Tensor | None]
    ) -> None:
        self.job, self.shards, self.known, self.upward = job, shards, known, upward
        bias, given = shards.scoring.bias, job.home.shards.scoring.bias
        self.d_query = zeros_for(shards.query, shards.compute_dtype)
        self.d_known = zeros_for(known.own, known.own.dtype)
        self.d_bias = None
        if bias is not None and given is not None and given.requires_grad:
            self.d_bias = zeros_for(bias, shards.compute_dtype)

    def take(self, others: list[Tensor], further: list[Tensor], wanted: Sequence[bool]) -> None:
        """Take the tensors that are the same on every rank, and which of them want a gradient."""
        for tensor, want in zip([*others, *further], wanted, strict=True):
            tensor.requires_grad_(want)
        self.further = further
        self.shared = [*others, *further]
        self.d_shared = [
            zeros_for(tensor, tensor.dtype) if tensor.requires_grad else None
            for tensor in self.shared
        ]
        remaining = iter(others)
        self.slotted = self.job.slotted.map_tensors(lambda _: next(remaining))

    def run(self) -> list[Tensor | None]:
        """Return the gradients of this rank's tensors, of the log-normaliser, and of the rest."""
        shards, plan = self.shards, self.job.plan
        d_key = zeros_for(shards.key, shards.compute_dtype)

        def work(source: int, theirs: list[Tensor]) -> list[Tensor]:
            d_theirs = zeros_for(theirs[0], shards.compute_dtype)
            for pair in plan.pairs(shards.members.rank, source):
                for block in live_blocks(self.job.rule, pair):
                    self._add(block, within(pair, block), theirs[0], source, d_theirs)
            return [d_theirs]

        round_trip(shards.members, plan, [shards.key], work, [d_key])
        for total in self.d_shared:
            if total is not None:
                shards.members.add_up(total)
        made: list[Tensor | None] = [
            self.d_query.to(shards.query.dtype),
            d_key.to(shards.key.dtype),
        ]
        bias = shards.scoring.bias
        if bias is not None:
            made.append(None if self.d_bias is None else self.d_bias.to(bias.dtype))
        made += [None] if shards.scoring.sinks is not None else []
        return [*made, self.d_known.unflatten(0, shards.extent[:2]), *self.d_shared]

    def _add(self, block: Block, pair: Pair, key: Tensor, source: int, d_key: Tensor) -> None:
        shards = self.shards
        query = widened(shards.query[:, :, pair.own]).detach().requires_grad_()
        theirs = widened(key[:, :, pair.theirs]).detach().requires_grad_()
        lines = self.known.lines(pair.own)
        known = Known(lines.own.detach().requires_grad_(), lines.anchor, lines.rest)
        bias = shards.scoring.bias
        bias = None if bias is None else shards.bias_block(bias, pair).detach()
        targets = [query, theirs, known.own]
        sums = [self.d_query[:, :, pair.own], d_key[:, :, pair.theirs], self.d_known[:, pair.own]]
        if self.d_bias is not None and bias is not None:
            targets.append(bias.requires_grad_())
            sums.append(shards.bias_block(self.d_bias, pair))
        for tensor, total in zip(self.shared, self.d_shared, strict=True):
            if total is not None:
                targets.append(tensor)
                sums.append(total)
        with torch.enable_grad():
            problem = shards.block_of(query, theirs, bias, pair, source)
            rule = filled(self.slotted, self.job.home, problem, known, pair)
            shares = self.job.visit(rule.tile(*block), block, *self.further)
        asked = [
            (share.amount, up[share.place])
            for share in shares
            if (up := self.upward[share.answer]) is not None and share.amount.requires_grad
        ]
        if not asked:
            return
        found = torch.autograd.grad(
            [amount for amount, _ in asked],
            targets,
            [up.to(amount.dtype).expand_as(amount) for amount, up in asked],
            allow_unused=True,
        )
        for total, part in zip(sums, found, strict=True):
            if part is not None:
                total += part


def within(pair: Pair, block: Block) -> Pair:
    """Return the part of a pair of stretches that a block covers."""
    down, across = block.rows.start - pair.queries.start, block.columns.start - pair.keys.start
    own, theirs = pair.own.start + down, pair.theirs.start + across
    return Pair(
        block.rows,
        slice(own, own + len(block.rows)),
        block.columns,
        slice(theirs, theirs + len(block.columns)),
    )


def _swapped(value: Any, is_it: Callable[[Any], bool], make: Callable[[Any], LazyMatrix]) -> Any:
    if is_it(value):
        return make(value)
    if isinstance(value, LazyMatrix):
        parts = {f.name: _swapped(getattr(value, f.name), is_it, make) for f in fields(value)}
        return type(value)(**parts)
    if isinstance(value, tuple):
        return tuple(_swapped(part, is_it, make) for part in value)
    return value


def _less(index: Index, start: int) -> Index:
    if isinstance(index, range):
        return range(index.start - start, index.stop - start, index.step)
    return index - start
