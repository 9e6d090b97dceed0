"""Many answers about a map in one pass over it, and the object that holds them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import forward_ad

from heedmap import scratch
from heedmap.bins import Bins
from heedmap.errors import ArgumentError, ShapeError
from heedmap.kernels import differentiable, native, strips, triton
from heedmap.kernels.statistics import Found, Wanted
from heedmap.kernels.tiles import Log2Weights
from heedmap.largest import top_of_tile
from heedmap.lazy import LazyMatrix
from heedmap.lazy_weights import LazyWeights, Reading, is_far
from heedmap.places import Block, spread
from heedmap.precision import exactly
from heedmap.problem import Problem
from heedmap.stream import live_blocks

LN_2 = math.log(2)


@dataclass(frozen=True, eq=False)
class Answers:
    """What one pass found; floats of the stack's number type."""

    received: Float[Tensor, "*lead key"]
    entropy: Float[Tensor, "*lead query"]
    top_weights: Float[Tensor, "*lead query top"] | None = None
    top_keys: Int[Tensor, "*lead query top"] | None = None
    pooled: Float[Tensor, "*lead rows columns"] | None = None

    def folded(self, lead: tuple[int, ...], dtype: torch.dtype) -> "Answers":
        """Return the same answers with the stack folded into `lead`, floats as `dtype`."""
        changed = {}
        for field in fields(self):
            answer = getattr(self, field.name)
            if answer is not None:
                answer = answer.unflatten(0, lead) if lead else answer[0]
                changed[field.name] = answer.to(dtype) if answer.is_floating_point() else answer
        return replace(self, **changed)


@dataclass(frozen=True, eq=False)
class Summary:
    """Which questions to ask in one pass over a map, and what the pass found.

    ``Summary(top=8)`` alone says what `heedmap.attention` is to find out beside the output, or
    `heedmap.watch` while a model runs; `AttentionMap.summarize` returns one with its answers. Rows
    are queries, columns keys.

    Args:
        top: How many of the strongest keys of each row to find; 0 for none.
        pool: The size of a picture of block means; None for no picture.
        answers: What was found; not for users.
    """

    top: int = 0
    pool: tuple[int, int] | None = None
    answers: Answers | None = None

    @property
    def received(self) -> Float[Tensor, "*lead key"]:
        """How much each key is looked at in all."""
        return self._found().received

    @property
    def entropy(self) -> Float[Tensor, "*lead query"]:
        """The entropy of each row in nats."""
        return self._found().entropy

    @property
    def top_weights(self) -> Float[Tensor, "*lead query top"] | None:
        """The largest weights of each row in order, if asked for."""
        return self._found().top_weights

    @property
    def top_keys(self) -> Int[Tensor, "*lead query top"] | None:
        """Their keys, equal weights in the order of their keys; if asked for."""
        return self._found().top_keys

    @property
    def pooled(self) -> Float[Tensor, "*lead rows columns"] | None:
        """The map as a picture of block means, if asked for."""
        return self._found().pooled

    def _found(self) -> Answers:
        if self.answers is None:
            raise ArgumentError(
                "summary must come from a pass over a map; got questions alone. Give it to "
                "heedmap.attention or heedmap.watch as keep=, or ask a map with summarize()."
            )
        return self.answers

    def require_sense(self, keys: int) -> None:
        """Refuse questions that a map of so many keys cannot answer; not for users.

        Raises:
            ShapeError: for more keys than there are.
            ArgumentError: for a picture without rows or columns, or of one size alone.
        """
        if not (isinstance(self.top, Integral) and 0 <= self.top <= keys):
            raise ShapeError(f"top must be 0 to the number of keys, {keys}; got {self.top!r}.")
        match self.pool:
            case None:
                return
            case (rows, columns):
                check_pool(rows, columns, "mean")
            case _:
                raise ArgumentError(f"pool must be (rows, columns); got {self.pool!r}.")

    def answered(self, answers: Answers, lead: tuple[int, ...], dtype: torch.dtype) -> "Summary":
        """Return the same questions with the answers about a map of this form; not for users."""
        return replace(self, answers=answers.folded(lead, dtype))


def check_pool(rows: int, columns: int, how: str) -> None:
    """Refuse a picture without rows or columns, or made in a way that there is not.

    Raises:
        ArgumentError: for such a one.
    """
    if not all(isinstance(size, Integral) and size >= 1 for size in (rows, columns)):
        raise ArgumentError(
            f"rows and columns must be whole numbers from 1 on; got {rows!r} and {columns!r}."
        )
    if how not in ("mean", "sum", "max"):
        raise ArgumentError(f"how must be 'mean', 'sum' or 'max'; got {how!r}.")


def summarize(rule: LazyMatrix, *, top: int, pool: tuple[int, int] | None) -> Answers:
    """Return the answers of a rule; its first dimension is the stack. Not differentiable.

    Cost: one pass; memory of the answers and of a few blocks.
    """
    if (home := rule.home()) is not None:
        return home.summarize(rule, top, pool)
    with torch.no_grad(), exactly():
        reading = _reading(rule)
        gather = None if reading is None else in_one_pass(reading.problem, top)
        if reading is not None and gather is not None:
            sides = _sides(reading.problem, pool)
            found = gather(reading.problem, reading.normalizer, _wanted(sides, top))
            return _answers(found, sides)
        answers = _Pass(rule.sizes, rule.dtype, rule.device, top, pool)
        for tile, logarithms, block in _tiles(rule):
            answers.add(tile, logarithms, block)
        return answers.finish()


def attend(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"], asked: Summary
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
    Answers | None,
]:
    """Return output and log-normaliser by our own kernel, and the answers of the same pass.

    The problem must be one that `native.attends`. There are no answers where the log-normaliser has
    too few digits for them: then ask a map.

    Cost: that of `native.attend`.
    """
    sides = _sides(problem, asked.pool)
    output, normalizer, found = differentiable.run_asking(problem, value, _wanted(sides, asked.top))
    return output, normalizer, None if is_far(normalizer) else _answers(found, sides)


def attend_by_strips(
    problem: Problem, value: Float[Tensor, "batch kv_heads key value_dim"], asked: Summary
) -> tuple[
    Float[Tensor, "batch heads query value_dim"],
    Float[Tensor, "batch heads query"],
    Answers | None,
]:
    """Return the same without our kernel, of a problem that `strips.attends`.

    Cost: that of `strips.attend`.
    """
    sides = _sides(problem, asked.pool)
    output, normalizer, found = strips.attend(problem, value, asked.top, sides)
    return output, normalizer, None if is_far(normalizer) else _answers(found, sides)


def _reading(rule: LazyMatrix) -> Reading | None:
    """Return what whole and plain weights are made of, None for other rules."""
    if not isinstance(rule, LazyWeights) or rule.form != "weights":
        return None
    rule.problem.require_unchanged()
    rule.normalizer.whole()
    reading = rule.normalizer.reading(range(rule.sizes[0]), range(rule.sizes[1]))
    return reading if reading.lacking is None else None


def in_one_pass(problem: Problem, top: int) -> Callable[..., Found] | None:
    """Return what gathers the statistics of a problem in one pass, None where nothing does."""
    if native.serves(problem, None):
        return native.statistics
    return triton.statistics if triton.serves(problem, top) else None


def _sides(problem: Problem, pool: tuple[int, int] | None) -> tuple[Bins, Bins] | None:
    if pool is None:
        return None
    _, _, queries, keys = problem.extent
    return Bins(queries, min(queries, pool[0])), Bins(keys, min(keys, pool[1]))


def _wanted(sides: tuple[Bins, Bins] | None, top: int) -> Wanted:
    bins = None
    if sides is not None:
        rows, columns = (side.of(range(side.size), torch.device("cpu")) for side in sides)
        bins = rows, columns
    return Wanted(received=True, entropy=True, top=top, bins=bins, sums=bins is not None)


def _answers(found: Found, sides: tuple[Bins, Bins] | None) -> Answers:
    assert found.received is not None
    assert found.entropy is not None
    pooled = found.sums
    if sides is not None and pooled is not None:
        pooled = _means(pooled, sides)
    return Answers(found.received, found.entropy, found.top_weights, found.top_keys, pooled)


def _means(sums: Tensor, sides: tuple[Bins, Bins]) -> Tensor:
    """Return the means of blocks, in the place of their sums."""
    down, across = (side.counts(sums.device).to(sums.dtype) for side in sides)
    return sums.div_(torch.outer(down, across))


def _tiles(rule: LazyMatrix) -> Iterator[tuple[Tensor, Tensor | None, Block]]:
    """Yield each live tile of weights, with the base-2 logarithms where they come for free."""
    # What torch.func makes, or has a forward derivative, is written into no memory from outside.
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    reading = None if transformed else _reading(rule)
    if reading is None:
        for block in live_blocks(rule, wide=True):
            yield rule.tile(*block), None, block
        return
    logarithms_of = Log2Weights(reading.problem, reading.normalizer)
    for block in live_blocks(rule, wide=True):
        shape = tuple(len(numbers) for numbers in block)
        first, second = scratch.rooms((shape, shape), rule.dtype, rule.device)
        logarithms = logarithms_of.tile(block, first)
        yield torch.exp2(logarithms, out=second), logarithms, block


class _Pass:
    """The answers as they grow, strip by strip: a strip is all columns of some rows."""

    def __init__(
        self,
        sizes: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        count: int,
        pool: tuple[int, int] | None,
    ) -> None:
        matrices, rows, columns = sizes
        numbers = {"dtype": dtype, "device": device}
        self.columns, self.device, self.count = columns, device, count
        self.received = torch.zeros((matrices, columns), **numbers)
        self.entropy = torch.zeros((matrices, rows), **numbers)
        # A cell that no live tile holds is 0, and so are the first of them by default.
        self.top_weights = torch.zeros((matrices, rows, count), **numbers)
        self.top_keys = torch.arange(count, device=device).repeat(matrices, rows, 1)
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.seen = 0
        self.strip: tuple[range, range] | None = None
        self.bins: tuple[Bins, Bins] | None = None
        if pool is not None:
            pooled = min(rows, pool[0]), min(columns, pool[1])
            self.bins = Bins(rows, pooled[0]), Bins(columns, pooled[1])
            self.pooled = torch.zeros((matrices, *pooled), **numbers)

    def add(self, tile: Tensor, logarithms: Tensor | None, block: Block) -> None:
        """Take in one tile of weights."""
        matrices, rows, columns = (spread(numbers) for numbers in block)
        if self.count:
            self._find_top(tile, block)
        lines = tile
        if self.bins is not None:
            lines, row_place = self.bins[0].gather(tile, block.rows, 1, "sum")
            across, column_place = self.bins[1].gather(lines, block.columns, 2, "sum")
            self.pooled[matrices, row_place, column_place] += across
        self.received[matrices, columns] += lines.sum(-2)
        entropy = None
        if logarithms is not None:
            entropy = logarithms.mul_(tile).sum(-1) * -LN_2
        if entropy is None or bool(entropy.isnan().any()):
            # A score of −inf is its own logarithm, and 0 · −inf is not a number.
            entropy = torch.special.entr(tile).sum(-1)
        self.entropy[matrices, rows] += entropy

    def _find_top(self, tile: Tensor, block: Block) -> None:
        columns = block.columns
        if self.strip != (block.matrices, block.rows):
            self._close_strip()
            self.strip = block.matrices, block.rows
        if not self.waiting:
            self._wait_for_zeros(tile, range(min(self.count, columns.start)))
        value, place = top_of_tile(tile, min(self.count, tile.shape[-1]))
        self.waiting.append((value, place + columns.start if columns.start else place))
        self.seen = columns.stop

    def _wait_for_zeros(self, tile: Tensor, columns: range) -> None:
        """Let columns that no live tile holds stand in line: their weight is 0."""
        if columns:
            keys = torch.arange(columns.start, columns.stop, device=tile.device)
            place = keys.expand(*tile.shape[:2], -1)
            self.waiting.append((torch.zeros_like(place, dtype=tile.dtype), place))

    def _close_strip(self) -> None:
        if self.strip is None:
            return
        end = min(self.seen + self.count, self.columns)
        self._wait_for_zeros(self.waiting[0][0], range(self.seen, end))
        matrices, rows = (spread(numbers) for numbers in self.strip)
        weights, keys = self.waiting[0]
        if len(self.waiting) > 1:
            weights = torch.cat([weight for weight, _ in self.waiting], dim=-1)
            keys = torch.cat([key for _, key in self.waiting], dim=-1)
            weights, order = weights.sort(dim=-1, descending=True, stable=True)
            keys = keys.gather(-1, order)
        self.top_weights[matrices, rows] = weights[..., : self.count]
        self.top_keys[matrices, rows] = keys[..., : self.count]
        self.waiting = []

    def finish(self) -> Answers:
        """Return what was found."""
        self._close_strip()
        pooled = None
        if self.bins is not None:
            pooled = _means(self.pooled, self.bins)
        return Answers(
            received=self.received,
            entropy=self.entropy,
            top_weights=self.top_weights if self.count else None,
            top_keys=self.top_keys if self.count else None,
            pooled=pooled,
        )
