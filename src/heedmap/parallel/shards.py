"""One problem of attention, of which each process has a part of the queries and of the keys."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import HeedmapError, UnsupportedError
from heedmap.masks import Extent, Mask
from heedmap.parallel.blocks import cut_table, seen_from
from heedmap.parallel.layout import Layout
from heedmap.parallel.members import Members
from heedmap.parallel.ring import Pair, Plan
from heedmap.places import Index
from heedmap.problem import Problem, compute_dtype
from heedmap.scoring import Scoring


@dataclass(frozen=True, eq=False)
class Shards:
    """What this process has of a problem, and what all of them know of it.

    Attributes:
        members: The processes.
        queries: Which queries each rank has.
        keys: Which keys each rank has.
        query: This rank's queries.
        key: This rank's keys; `heads` is a multiple of `kv_heads`, and neighbouring heads share.
        mask: The mask, bound to the whole sequence; None where everything is visible.
        scoring: How a score is made; its bias is that of this rank's queries and all keys.
        clean: Of each rank, whether all that it has is finite.
        number: Which of rank 0's calls made the map; the same on all ranks.
        versions: How often this rank's tensors had been written into when this was made.
    """

    members: Members
    queries: Layout
    keys: Layout
    query: Float[Tensor, "batch heads own_queries head_dim"]
    key: Float[Tensor, "batch kv_heads own_keys head_dim"]
    mask: Mask | None
    scoring: Scoring
    clean: tuple[bool, ...]
    number: int
    versions: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Take down the versions."""
        object.__setattr__(self, "versions", self._versions())

    @cached_property
    def extent(self) -> Extent:
        """Batch, heads, queries, keys: of the whole sequence."""
        batch, heads, _, _ = self.query.shape
        return Extent(batch, heads, self.queries.size, self.keys.size)

    def agree(self, wish: str, error: HeedmapError | None = None) -> None:
        """Return once all ranks are known to wish the same of the same map.

        Raises:
            HeedmapError: as `Members.agree` does.
        """
        self.members.agree(f"{wish}, of map {self.number}", error=error)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The number type of scores and weights: float64 for float64, float32 for the rest."""
        return compute_dtype(self.query.dtype)

    @cached_property
    def plan(self) -> Plan:
        """Whose keys each rank's queries may see."""
        return Plan(self.queries, self.keys, self.key_range)

    def key_range(self, rows: Index) -> tuple[int, int]:
        """Return the start and stop of the keys outside which these queries see nothing."""
        if self.mask is None or not len(rows):
            return 0, self.keys.size
        ends = (min(rows), max(rows)) if isinstance(rows, range) else torch.aminmax(rows)
        return self.mask.key_range(int(ends[0]), int(ends[1]), self.keys.size)

    def pairs(self, source: int) -> list[Pair]:
        """Return which of this rank's queries may see which of another's keys."""
        return self.plan.pairs(self.members.rank, source)

    def block(self, pair: Pair, key: Tensor, source: int) -> Problem:
        """Return the problem of a stretch of this rank's queries and one of a rank's keys.

        Sinks are left out: they belong to no key, and are joined when all keys have been seen.

        Args:
            pair: Which ones.
            key: The keys of that rank.
            source: That rank.
        """
        bias = self.scoring.bias
        bias = None if bias is None else self.bias_block(bias, pair)
        return self.block_of(self.query[:, :, pair.own], key[:, :, pair.theirs], bias, pair, source)

    def block_of(
        self, query: Tensor, key: Tensor, bias: Tensor | None, pair: Pair, source: int
    ) -> Problem:
        """Return the same problem made of these tensors, which are of the block alone."""
        return Problem(
            widened(query),
            widened(key),
            seen_from(self.mask, pair.queries, pair.keys),
            replace(self.scoring, bias=bias, sinks=None),
            self.clean[self.members.rank] and self.clean[source],
        )

    def bias_block(self, bias: Tensor, pair: Pair) -> Tensor:
        """Return the block of the bias, or of something of its form, as a view."""
        return cut_table(bias, range(pair.own.start, pair.own.stop), pair.keys)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return what a weight may depend on smoothly: query, key, and bias and sinks if any."""
        given = (self.query, self.key, self.scoring.bias, self.scoring.sinks)
        return tuple(tensor for tensor in given if tensor is not None)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Shards":
        """Return the same problem with `change` done to each of `tensors`, in their order."""
        query, key = change(self.query), change(self.key)
        bias, sinks = self.scoring.bias, self.scoring.sinks
        scoring = replace(
            self.scoring,
            bias=None if bias is None else change(bias),
            sinks=None if sinks is None else change(sinks),
        )
        return replace(self, query=query, key=key, scoring=scoring)

    def changed(self) -> UnsupportedError | None:
        """Return what to say if a factor was written into since: the weights would be wrong."""
        if self.versions == self._versions():
            return None
        return UnsupportedError(
            "query, key, bias and sinks of a rank must not be written into while their map is in "
            "use; one was, or memory that it shares. Give clones, or read the map before."
        )

    def _versions(self) -> tuple[int, ...]:
        return tuple(-1 if t.is_inference() else t._version for t in self.tensors())


def widened(tensor: Tensor) -> Tensor:
    """Return half precision as float32 on a CPU, where kernels would widen it anyway.

    What they give back is then not rounded before it is merged with the rest.
    """
    return tensor.to(compute_dtype(tensor.dtype)) if tensor.is_cpu else tensor
