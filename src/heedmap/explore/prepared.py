"""Weights whose rows' log-normalisers are made where they are first needed, and kept.

A map that nobody has read yet knows none of them, and would make all at once as soon as a quarter
was asked for, which nobody can wait for in front of a picture, or stop.
"""

import threading
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.explore import softmax
from heedmap.explore.stopping import require_wanted
from heedmap.kernels import tiles
from heedmap.lazy import LazyMatrix
from heedmap.lazy_weights import FAR, LazyWeights
from heedmap.places import Index, as_numbers, split
from heedmap.problem import Problem

STEP = 256
"""How many rows get their log-normalisers at a time: some milliseconds at 100,000 keys."""

FINE_STEP = 32
"""The same of rows that need float64."""


def prepare(rule: LazyMatrix) -> LazyMatrix:
    """Return the same rule on weights that are prepared row by row."""
    return _prepared(rule, {})


def _prepared(value: Any, made: dict[int, LazyMatrix]) -> Any:
    if isinstance(value, tuple):
        return tuple(_prepared(part, made) for part in value)
    if not isinstance(value, LazyMatrix):
        return value
    if id(value) not in made:
        made[id(value)] = (
            Prepared.of(value)
            if isinstance(value, LazyWeights) and value.form == "weights"
            else type(value)(
                **{f.name: _prepared(getattr(value, f.name), made) for f in fields(value)}
            )
        )
    return made[id(value)]


class Normalizers:
    """The log-normalisers of the rows of one matrix of a problem.

    Attributes:
        values: As far as they are ready.
        lacking: What they lack for rows to sum to 1, where scores are far from 0.
        is_ready: Which are.
    """

    values: Float[Tensor, " rows"]
    lacking: Float[Tensor, " rows"]
    is_ready: Bool[Tensor, " rows"]

    def __init__(
        self, given: "Prepared", matrix: int, known: Float[Tensor, " rows"] | None
    ) -> None:
        """Take over those that are known with as many digits as they need."""
        rows = given.sizes[1]
        self.given, self.matrix = given, matrix
        self.values = torch.zeros(rows, dtype=torch.float64, device=given.device)
        self.lacking = torch.zeros(rows, dtype=torch.float32, device=given.device)
        self.is_ready = torch.zeros(rows, dtype=torch.bool, device=given.device)
        self._lock = threading.Lock()
        if known is not None:
            self.take(range(rows), known)

    def take(self, rows: range, found: Float[Tensor, " rows"]) -> None:
        """Keep what was found about some rows, but for those whose scores are far from 0."""
        here = slice(rows.start, rows.stop)
        # Not a number is not far: it stays what it is.
        ready = ~self.is_far(found)
        with self._lock:
            self.values[here] = torch.where(ready, found.double(), self.values[here])
            self.is_ready[here] |= ready

    def kept(self) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
        """Return what is worth keeping: `values`, infinite where not ready, and `lacking`."""
        return self.values.masked_fill(~self.is_ready, torch.inf).cpu(), self.lacking.cpu()

    def restore(self, values: Float[Tensor, " rows"], lacking: Float[Tensor, " rows"]) -> None:
        """Take over what was kept."""
        with self._lock:
            self.values.copy_(values)
            self.lacking.copy_(lacking)
            self.is_ready.copy_(values != torch.inf)

    def missing(self, rows: Index) -> int:
        """Return how many of these rows are not ready."""
        return len(rows) - int(self._at(self.is_ready, rows).sum())

    def of(self, rows: Index) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"] | None]:
        """Return the log-normalisers of some rows and what they lack, made if need be.

        Raises:
            Stopped: if they are not wanted any more.
        """
        for some in split(len(rows), STEP) if self.missing(rows) else ():
            part = rows[some.start : some.stop]
            with self._lock:
                if self.missing(part):
                    self._make(part)
        values = self._at(self.values, rows)
        return values, self._at(self.lacking, rows) if bool(self.is_far(values).any()) else None

    def _make(self, rows: Index) -> None:
        numbers = as_numbers(rows, self.values.device)
        numbers = numbers[~self.is_ready[numbers]]
        # A range is read without copying, and its rows may be known to see all of a block.
        wanted = rows if len(numbers) == len(rows) else numbers
        found = softmax.log_normalizer(self.given.problem, self.matrix, wanted).double()
        far = self.is_far(found)
        self._keep(numbers[~far], found[~far])
        for part in numbers[far].split(FINE_STEP):
            require_wanted()
            fine, one = self.given.fine(self.matrix), range(self.matrix, self.matrix + 1)
            exact = tiles.log_normalizer(fine, one, part)
            self.lacking[part] = tiles.remainder(fine, exact, one, part)[0].float()
            self._keep(part, exact[0])

    def _keep(self, rows: Tensor, values: Tensor) -> None:
        # In this order, so that who finds a row ready finds it right.
        self.values[rows] = values
        self.is_ready[rows] = True

    def is_far(self, values: Float[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
        """Return which log-normalisers belong to scores that want the digits of float64."""
        if self.given.dtype == torch.float64:
            return torch.zeros_like(values, dtype=torch.bool)
        # Rows that see nothing have −inf, and want no digits.
        return (values.abs() > FAR) & (values > -torch.inf)

    @staticmethod
    def _at(numbers: Tensor, rows: Index) -> Tensor:
        if isinstance(rows, range):
            return numbers[rows.start : rows.stop : rows.step]
        return numbers[rows]


@dataclass(frozen=True, eq=False)
class Prepared(LazyMatrix):
    """The weights of a problem.

    Attributes:
        problem: What decides them.
        known: The log-normalisers that came with it, where they have all the digits.
        made: Those of each matrix that was read so far.
    """

    problem: Problem
    known: Float[Tensor, "matrices rows"] | None
    made: dict[int, Normalizers] = field(default_factory=dict)
    _last_fine: dict[int, Problem] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, weights: LazyWeights) -> "Prepared":
        """Return these weights, with what is known of their log-normalisers."""
        problem, known = weights.problem, weights.normalizer.known
        if known is None or problem.query.dtype != problem.compute_dtype:
            # What a kernel found in half precision lacks digits.
            return cls(problem, None)
        return cls(problem, known.detach().flatten(0, 1))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices (batch × heads), rows (queries), columns (keys)."""
        batch, heads, queries, keys = self.problem.extent
        return batch * heads, queries, keys

    @property
    def dtype(self) -> torch.dtype:
        """float64 for float64 inputs, float32 for the rest."""
        return self.problem.compute_dtype

    @property
    def device(self) -> torch.device:
        """That of the query."""
        return self.problem.query.device

    def normalizers(self, matrix: int) -> Normalizers:
        """Return the log-normalisers of one matrix."""
        with self._lock:
            if matrix not in self.made:
                known = None if self.known is None else self.known[matrix]
                self.made[matrix] = Normalizers(self, matrix, known)
            return self.made[matrix]

    def fine(self, matrix: int) -> Problem:
        """Return a problem in float64 that is right for one matrix.

        All of its matrices have the factors of that one, so that it takes the memory of one.
        """
        with self._lock:
            if matrix not in self._last_fine:
                problem = self.problem
                (key_matrix,) = problem.key_matrices(range(matrix, matrix + 1))
                pairs = (
                    (problem.query, problem.flat_query[matrix]),
                    (problem.key, problem.flat_key[int(key_matrix)]),
                )
                query, key = (own.double().expand_as(whole) for whole, own in pairs)
                self._last_fine.clear()
                self._last_fine[matrix] = replace(problem, query=query, key=key)
            return self._last_fine[matrix]

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Make a block of weights.

        Raises:
            Stopped: if it is not wanted any more.
            UnsupportedError: if what they stand on was written into.
        """
        self.problem.require_unchanged()
        numbers = matrices if isinstance(matrices, range) else matrices.tolist()
        parts = [self._tile(matrix, rows, columns) for matrix in numbers]
        return torch.stack(parts) if len(parts) != 1 else parts[0][None]

    def _tile(self, matrix: int, rows: Index, columns: Index) -> Tensor:
        values, lacking = self.normalizers(matrix).of(rows)
        if lacking is None:
            return softmax.weights(self.problem, values.to(self.dtype), matrix, rows, columns)
        fine, one = self.fine(matrix), range(matrix, matrix + 1)
        return tiles.weights(fine, values[None], one, rows, columns, lacking[None])[0]

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Weights are 0 outside the mask's range."""
        return self.problem.key_range(rows)
