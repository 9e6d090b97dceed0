"""The strongest keys of each row, and many answers in one journey of the keys."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from heedmap.bins import Bins
from heedmap.kernels.statistics import Found, Wanted
from heedmap.largest import top_of_tile
from heedmap.lazy import LazyMatrix
from heedmap.parallel.fetching import whole_rows
from heedmap.parallel.passes import filled, slotted, words_of
from heedmap.parallel.reading import Known
from heedmap.parallel.ring import Pair, Plan, room_like, round_trip, travel
from heedmap.parallel.shards import Shards
from heedmap.places import Block, blocks, spread
from heedmap.precision import exactly
from heedmap.problem import Problem
from heedmap.stream import Share
from heedmap.summary import Answers, Summary, in_one_pass

if TYPE_CHECKING:
    from heedmap.parallel.weights import ShardedWeights

FAR_KEY = torch.iinfo(torch.long).max
"""The number of a key that there is not."""


def top(
    home: "ShardedWeights", rule: LazyMatrix, count: int, largest: bool
) -> tuple[Shaped[Tensor, "matrices rows count"], Int[Tensor, "matrices rows count"]]:
    """Return the largest (or smallest) cells of each row, in order, with their columns.

    Cost: one journey of the keys; memory of the answer on every rank. The values are
    differentiable, by another journey.
    """
    shards = home.shards
    side = "largest" if largest else "smallest"
    with torch.no_grad(), exactly():
        known = home.ask(f"the {count} {side} of {words_of(rule)}")
        questions = Questions(home, rule, known, count, largest)
        for source, theirs in travel(shards.members, questions.plan, [shards.key]):
            questions.go_through(source, theirs[0])
        value, place = (
            whole_rows(part, shards.queries, shards.members, 1) for part in questions.strongest()
        )
        value = value.to(rule.dtype)
    if not (torch.is_grad_enabled() and rule.requires_grad()):
        return value, place

    def visit(tile: Tensor, block: Block) -> list[Share]:
        lines = spread(block.matrices), spread(block.rows)
        within = place[lines] - block.columns.start
        here = (within >= 0) & (within < len(block.columns))
        cells = tile.gather(-1, within.clamp(0, len(block.columns) - 1))
        return [Share(0, lines, torch.where(here, cells, 0))]

    cells = home.add_up(rule, [tuple(value.shape)], visit, [], rule.dtype)[0]
    # −inf − −inf is not a number; such a cell has no gradient anyway.
    return value + (cells - cells.detach()).masked_fill(~torch.isfinite(cells), 0), place


def summarize(
    home: "ShardedWeights", rule: LazyMatrix, count: int, pool: tuple[int, int] | None
) -> Answers:
    """Return the answers about this rank's queries and keys, and the picture of the whole map.

    Not differentiable.

    Cost: one journey of the keys; memory of the answers.
    """
    shards = home.shards
    with torch.no_grad(), exactly():
        known = home.ask(f"summarize(top={count}, pool={pool}) of {words_of(rule)}")
        questions = Questions(home, rule, known, count, True, all_of_them=True, pool=pool)
        round_trip(
            shards.members,
            questions.plan,
            [shards.key],
            lambda source, given: [questions.go_through(source, given[0])],
            [questions.received],
        )
        return questions.finish()


def gathered(shards: Shards, found: Summary, is_part: bool) -> Summary | None:
    """Return on rank 0 the answers of all ranks, in the order of positions; None on the others."""
    members = shards.members
    shards.agree(f"gather_summary(top={found.top}, pool={found.pool})")
    if not is_part or found.answers is None:
        return None if members.rank else found
    whole: dict[str, Any] = {"pooled": found.pooled}
    for name, layout, dim in (
        ("received", shards.keys, -1),
        ("entropy", shards.queries, -1),
        ("top_weights", shards.queries, -2),
        ("top_keys", shards.queries, -2),
    ):
        part = getattr(found.answers, name)
        if part is None:
            continue
        if members.rank:
            members.exchange(sent=[(0, part)]).wait()
            continue
        parts = [part, *(room_like(part, dim, length) for length in layout.lengths[1:])]
        members.exchange(received=list(enumerate(parts))[1:]).wait()
        whole[name] = layout.whole(parts, dim)
    return None if members.rank else replace(found, answers=Answers(**whole))


class Strongest:
    """The largest cells of some rows as they are found; equal ones in the order of their keys."""

    def __init__(self, shape: tuple[int, int, int], like: Tensor) -> None:
        """Begin with none, in the number type of `like`."""
        self.value = like.new_full(shape, -torch.inf)
        self.key = torch.full(shape, FAR_KEY, device=like.device)

    def add(self, place: tuple[slice, slice], value: Tensor, key: Tensor) -> None:
        """Take in cells of these matrices and rows, with their keys."""
        count = self.value.shape[-1]
        value = torch.cat([self.value[place], value], dim=-1)
        key, order = torch.cat([self.key[place], key], dim=-1).sort(dim=-1)
        value, again = value.gather(-1, order).sort(dim=-1, descending=True, stable=True)
        self.value[place] = value[..., :count]
        self.key[place] = key.gather(-1, again)[..., :count]


class Questions:
    """What is asked of this rank's rows, and what was found so far.

    Args:
        home: The shared map.
        rule: What is asked, a rule of that map.
        known: What is known of this rank's rows.
        count: How many of the strongest keys of each row.
        largest: Whether the largest are the strongest.
        all_of_them: Whether received and entropy are asked, too.
        pool: The size of a picture of block means; None for none.
    """

    def __init__(
        self,
        home: "ShardedWeights",
        rule: LazyMatrix,
        known: Known,
        count: int,
        largest: bool,
        *,
        all_of_them: bool = False,
        pool: tuple[int, int] | None = None,
    ) -> None:
        """Make room for the answers."""
        shards = home.shards
        self.home, self.rule, self.slotted, self.known = home, rule, slotted(rule, home), known
        self.count, self.largest, self.all_of_them = count, largest, all_of_them
        self.plan = Plan(shards.queries, shards.keys, rule.column_range)
        matrices, rows, columns = rule.sizes
        rank = shards.members.rank
        own_rows, own_keys = shards.queries.lengths[rank], shards.keys.lengths[rank]
        cell = torch.zeros((), dtype=rule.dtype, device=rule.device)
        self.received = cell.new_zeros((matrices, own_keys))
        self.entropy = cell.new_zeros((matrices, own_rows))
        # Whole numbers and booleans know no −∞, which every number is larger than.
        found = cell if rule.dtype.is_floating_point else cell.double()
        self.found = Strongest((matrices, own_rows, count), found)
        self.bins = self.sums = None
        if pool is not None:
            pooled = min(rows, pool[0]), min(columns, pool[1])
            self.bins = Bins(rows, pooled[0]), Bins(columns, pooled[1])
            self.sums = cell.new_zeros((matrices, *pooled))
        if count:
            self._let_zeros_stand_in_line()

    def go_through(self, source: int, key: Tensor) -> Tensor:
        """Ask the blocks of a rank's keys; return what those receive."""
        shards = self.home.shards
        length = shards.keys.lengths[source]
        received = self.received.new_zeros((self.received.shape[0], length))
        for pair in self.plan.pairs(shards.members.rank, source):
            problem = shards.block(pair, key, source)
            gather = self._in_one_pass(problem)
            if gather is None:
                self._by_tiles(pair, problem, received[:, pair.theirs])
            else:
                self._at_once(gather, pair, problem, received[:, pair.theirs])
        return received

    def strongest(self) -> tuple[Tensor, Tensor]:
        """Return the strongest cells of this rank's rows, and their keys."""
        value = self.found.value
        return (value if self.largest else -value), self.found.key

    def finish(self) -> Answers:
        """Return everything, the picture added up over all ranks."""
        pooled = self.sums
        if self.bins is not None and pooled is not None:
            self.home.shards.members.add_up(pooled)
            down, across = (side.counts(pooled.device).to(pooled.dtype) for side in self.bins)
            pooled = pooled / torch.outer(down, across)
        value, key = self.strongest()
        return Answers(
            received=self.received,
            entropy=self.entropy,
            top_weights=value if self.count else None,
            top_keys=key if self.count else None,
            pooled=pooled,
        )

    def _in_one_pass(self, problem: Problem) -> Callable[..., Found] | None:
        """Return what gathers the statistics of a block's weights, None where nothing does."""
        is_weights = self.rule is self.home and self.home.form == "weights"
        if not is_weights or not self.largest or self.known.anchor is not None:
            return None
        return in_one_pass(problem, self.count)

    def _at_once(
        self, gather: Callable[..., Found], pair: Pair, problem: Problem, received: Tensor
    ) -> None:
        bins = place = None
        if self.bins is not None:
            cpu = torch.device("cpu")
            sides = zip(self.bins, (pair.queries, pair.keys), strict=True)
            bins, place = [], []
            for numbers in (side.of(span, cpu) for side, span in sides):
                place.append(slice(int(numbers[0]), int(numbers[-1]) + 1))
                bins.append(numbers - numbers[0])
        wanted = Wanted(
            received=self.all_of_them,
            entropy=self.all_of_them,
            top=min(self.count, len(pair.keys)),
            bins=None if bins is None else (bins[0], bins[1]),
            sums=bins is not None,
        )
        found = gather(problem, self.known.own[:, pair.own], wanted)
        if found.received is not None and found.entropy is not None:
            received += found.received
            self.entropy[:, pair.own] += found.entropy
        if found.top_weights is not None and found.top_keys is not None:
            keys = found.top_keys + pair.keys.start
            self.found.add((slice(None), pair.own), found.top_weights, keys)
        if found.sums is not None and self.sums is not None and place is not None:
            self.sums[:, place[0], place[1]] += found.sums

    def _by_tiles(self, pair: Pair, problem: Problem, received: Tensor) -> None:
        lines = self.known.lines(pair.own)
        rule = filled(self.slotted, self.home, problem, lines, pair)
        first, left = pair.queries.start, pair.keys.start
        for some in blocks(rule.sizes[0], len(pair.queries), len(pair.keys), wide=True):
            rows = range(first + some.rows.start, first + some.rows.stop)
            columns = range(left + some.columns.start, left + some.columns.stop)
            tile = rule.tile(some.matrices, rows, columns)
            start = pair.own.start
            place = spread(some.matrices), slice(start + some.rows.start, start + some.rows.stop)
            if self.count:
                signed = tile.to(self.found.value) if self.largest else -tile.to(self.found.value)
                value, key = top_of_tile(signed, min(self.count, len(columns)))
                self.found.add(place, value, key + columns.start)
            if not self.all_of_them:
                continue
            self.entropy[place] += torch.special.entr(tile).sum(-1)
            if self.bins is not None and self.sums is not None:
                sums, down = self.bins[0].gather(tile, rows, 1, "sum")
                sums, across = self.bins[1].gather(sums, columns, 2, "sum")
                self.sums[place[0], down, across] += sums
            received[place[0], spread(some.columns)] += tile.sum(-2)

    def _let_zeros_stand_in_line(self) -> None:
        """Take in the first keys of stretches that rows see nothing of: their cells are 0."""
        shards = self.home.shards
        spans = sorted(
            (span for own in shards.keys.spans for span in own), key=lambda span: span.start
        )
        for queries, place in shards.queries.pieces(shards.members.rank):
            keys: list[int] = []
            for span in spans:
                if not self.plan.sees(queries, span):
                    keys += span[: self.count - len(keys)]
            key = torch.tensor(keys, dtype=torch.long, device=self.found.key.device)
            shape = (self.found.key.shape[0], len(queries), len(keys))
            zero = self.found.value.new_zeros(shape)
            self.found.add((slice(None), place), zero, key.expand(shape))
