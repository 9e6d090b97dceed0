"""The map over several processes, as a rule: what each has of it, and how it is asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from heedmap.errors import UnsupportedError
from heedmap.lazy import LazyMatrix, Sharded
from heedmap.lazy_weights import Form, Trace
from heedmap.parallel import answers, passes
from heedmap.parallel.fetching import Fetched, whole_rows
from heedmap.parallel.fingerprints import described
from heedmap.parallel.reading import Known, Normalizer, known_rows, read
from heedmap.parallel.shards import Shards
from heedmap.places import CELLS, Index
from heedmap.scoring import Scoring
from heedmap.summary import Summary


@dataclass(frozen=True, eq=False)
class ShardedWeights(Sharded):
    """The weights of a problem that several processes share, or its scores, or their logarithms.

    Attributes:
        shards: The problem, and what this process has of it.
        normalizer: The log-normaliser of this process's rows.
        form: What is read.
    """

    shards: Shards
    normalizer: Normalizer
    form: Form = "weights"

    def __deepcopy__(self, memo: dict[int, Any]) -> "ShardedWeights":
        """Return the same on copies of this process's tensors, among the same processes."""
        made = self.map_tensors(lambda tensor: tensor.detach().clone())
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be written: the other parts are not here."""
        raise UnsupportedError(
            "a map over several ranks must not be pickled or saved as a whole; got protocol "
            f"{protocol}. Each rank writes its part with heedmap.parallel.save."
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices (batch × heads), rows (queries), columns (keys): of the whole sequence."""
        batch, heads, queries, keys = self.shards.extent
        return batch * heads, queries, keys

    @property
    def dtype(self) -> torch.dtype:
        """float64 for float64 inputs, float32 for the rest."""
        return self.shards.compute_dtype

    @property
    def device(self) -> torch.device:
        """That of the query."""
        return self.shards.query.device

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Make a block, the same on every rank, of what its owners have."""
        shape = len(matrices), len(rows), len(columns)
        if 0 in shape:
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        wish = f"{self.form} at {described((matrices, rows, columns))}"
        found = self._fetched(wish).block(matrices, rows, columns)
        return read(*found, self.form, *map(range, shape))

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Make single cells, the same on every rank."""
        if not len(matrices):
            return torch.zeros(0, dtype=self.dtype, device=self.device)
        made = []
        fetched = self._fetched(f"{self.form} of cells {described((matrices, rows, columns))}")
        step = max(CELLS // max(self.shards.query.shape[-1], 1), 1)
        for some in zip(matrices.split(step), rows.split(step), columns.split(step), strict=True):
            problem, known = fetched.cells(*some)
            one = range(1)
            made.append(read(problem, known, self.form, range(len(some[0])), one, one).flatten())
        return torch.cat(made)

    def _fetched(self, wish: str) -> Fetched:
        return Fetched(self.shards, self.ask(wish))

    def ask(self, wish: str) -> Known:
        """Return what is known of this rank's rows, once all ranks are known to ask the same.

        Raises:
            RankError: if they do not.
            UnsupportedError: if a factor was written into.
        """
        self.shards.agree(wish, self.shards.changed())
        return known_rows(self.normalizer)

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Weights are 0 outside the mask's range; scores are −inf there."""
        return self.shards.key_range(rows) if self.form == "weights" else (0, self.sizes[2])

    def tensors(self) -> list[Tensor]:
        """Return this rank's factors and its rows' log-normaliser."""
        return [*self.shards.tensors(), self.normalizer.own()]

    def requires_grad(self) -> bool:
        """Return whether the factors require a gradient."""
        return any(tensor.requires_grad for tensor in self.shards.tensors())

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "ShardedWeights":
        """Return the same weights on changed factors."""
        shards = self.shards.map_tensors(change)
        normalizer = self.normalizer.on(shards, change(self.normalizer.known))
        return ShardedWeights(shards, normalizer, self.form)

    def home(self) -> "ShardedWeights":
        """This rule itself."""
        return self

    def is_same(self, other: Sharded) -> bool:
        """Return whether another rule is of the same problem."""
        return isinstance(other, ShardedWeights) and other.shards is self.shards

    def trace(self) -> Trace | None:
        """Return what a gradient with respect to whole weights is made of; None for scores."""
        return self.normalizer.trace if self.form == "weights" else None

    def product(self, rows: Tensor, columns: Tensor) -> "ShardedWeights":
        """Return rows · columnsᵀ, of which each rank gives those of its queries and keys."""
        changed: dict[str, Any] = {"mask": None, "scoring": Scoring(1.0)}
        changed["clean"] = (True,) * self.shards.members.size
        shards = replace(self.shards, query=rows, key=columns, **changed)
        nothing = torch.zeros(rows.shape[:3], dtype=shards.compute_dtype, device=rows.device)
        return ShardedWeights(shards, Normalizer(shards, nothing), "scores")

    def in_form(self, form: Form) -> "ShardedWeights | None":
        """Return the same cells read as scores or logarithms."""
        return replace(self, form=form) if self.form == "weights" else None

    def row_normalizer(self) -> Tensor:
        """Return the log-normaliser of every row, on every rank."""
        members, queries = self.shards.members, self.shards.queries
        self.shards.agree("log_normalizer", self.shards.changed())
        return whole_rows(self.normalizer.own().flatten(0, 1), queries, members, 1)

    def described(self) -> list[str]:
        """Say how it is shared; no other process is asked."""
        members, mask = self.shards.members, self.shards.mask
        words = [] if mask is None else [f"mask={mask}"]
        own = self.shards.queries.lengths[members.rank]
        return [*words, f"rank {members.rank} of {members.size} has {own} queries"]

    def add_up(
        self,
        rule: LazyMatrix,
        shapes: Sequence[tuple[int, ...]],
        visit: Callable[..., Any],
        further: Sequence[Tensor],
        dtype: torch.dtype,
    ) -> list[Tensor]:
        """Add up what the blocks of a rule contribute, each rank those of its rows."""
        return passes.add_up(self, rule, shapes, visit, further, dtype)

    def top(self, rule: LazyMatrix, count: int, largest: bool) -> tuple[Tensor, Tensor]:
        """Return the largest or smallest cells of each row, on every rank."""
        return answers.top(self, rule, count, largest)

    def summarize(self, rule: LazyMatrix, top: int, pool: tuple[int, int] | None) -> Any:
        """Return the answers about this rank's queries and keys, and the whole picture."""
        return answers.summarize(self, rule, top, pool)

    def gathered(self, found: Summary, *, is_part: bool) -> Summary | None:
        """Return the answers about the whole map on rank 0, None on the others."""
        return answers.gathered(self.shards, found, is_part)
