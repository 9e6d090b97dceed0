"""One matrix of a layer, as everything that computes for the live map reads it."""

import math
from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.explore import softmax
from heedmap.explore.fingerprint import fingerprint
from heedmap.explore.prepared import Normalizers, Prepared
from heedmap.explore.scene import no_file
from heedmap.explore.softmax import Pictures
from heedmap.kernels import native
from heedmap.lazy import LazyMatrix, Selection
from heedmap.places import Index

NORMALIZER_CELLS = 1 << 28
"""Up to how many cells are computed for log-normalisers while somebody waits."""


class Head:
    """One matrix of a rule whose weights are prepared.

    Attributes:
        rule: The stack that it belongs to.
        number: Its place there.
        queries: How many rows it has.
        keys: How many columns.
        require_unchanged: Raises an InputError if the file that it lies in was changed.
    """

    def __init__(
        self, rule: LazyMatrix, number: int, require_unchanged: Callable[[], None] = no_file
    ) -> None:
        """Look whether it is a whole matrix of a problem."""
        self.rule, self.number, self.require_unchanged = rule, number, require_unchanged
        _, self.queries, self.keys = rule.sizes
        self._whole = _whole_matrix(rule, number)

    def tile(self, rows: Index, columns: Index) -> Float[Tensor, "rows columns"]:
        """Return a block of cells as numbers with a point."""
        cells = self.rule.tile(range(self.number, self.number + 1), rows, columns)[0]
        return cells if cells.is_floating_point() else cells.float()

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Return the start and stop of the columns outside which these rows are exactly 0."""
        return self.rule.column_range(rows) if len(rows) and self.keys else (0, 0)

    @property
    def normalizers(self) -> Normalizers | None:
        """The log-normalisers of the rows, where they are those of a problem."""
        return None if self._whole is None else self._whole[0].normalizers(self._whole[1])

    def missing(self, rows: Index) -> int:
        """Return how many of these rows cost a pass over all keys before anything is known."""
        return 0 if self.normalizers is None else self.normalizers.missing(rows)

    def is_quickly_known(self, rows: Index) -> bool:
        """Return whether the log-normalisers of these rows are ready, or soon would be."""
        return self.missing(rows) * self.keys <= NORMALIZER_CELLS

    def known_among(self, rows: range, least: int) -> Int[Tensor, " known"] | None:
        """Return which of these rows are ready, counted from the first, and at least so many.

        None means all, or so few less that they will soon be.

        Raises:
            Stopped: if they are not wanted any more.
        """
        if self.normalizers is None or self.is_quickly_known(rows):
            return None
        sample = (2 * torch.arange(least) + 1) * len(rows) // (2 * least)
        self.normalizers.of(sample + rows.start)
        return self.normalizers.is_ready[rows.start : rows.stop].nonzero().flatten()

    def sums_and_maxima(self, rows: Index, high: int, wide: int) -> Pictures | None:
        """Return those of all blocks of `high` × `wide` cells of some rows, in a fast pass.

        None where there is none that would be right, or none that is faster than reading all
        cells: for maps that were computed from others, for scores that need more digits, and for
        what is not finite.

        Raises:
            Stopped: if they are not wanted any more.
            UnsupportedError: if what they stand on was written into.
        """
        if self._whole is None:
            return None
        weights, matrix = self._whole
        problem, normalizers = weights.problem, weights.normalizers(matrix)
        problem.require_unchanged()
        if native.serves(problem, None):
            known, lacking = normalizers.of(rows)
            if lacking is not None or bool(known.isnan().any()):
                return None
            return softmax.sums_and_maxima(problem, known.float(), matrix, rows, high, wide)
        if not isinstance(rows, range) or high != wide:
            return None
        if not problem.clean or not normalizers.missing(rows):
            return None
        swept = softmax.sweep(problem, matrix, rows, high)
        normalizers.take(rows, swept.normalizer)
        return None if normalizers.missing(rows) else swept.pictures

    def row_sums(self, rows: range) -> Float[Tensor, " rows"] | None:
        """Return the sums of whole rows where they are known without making these."""
        if self._whole is None:
            return None
        weights, matrix = self._whole
        normalizer, _ = weights.normalizers(matrix).of(rows)
        sums = torch.ones_like(normalizer)
        if (sinks := weights.problem.scoring.sinks) is not None:
            sums -= torch.exp(sinks[matrix % weights.problem.extent.heads].detach() - normalizer)
        sums = sums.masked_fill(normalizer == -math.inf, 0)
        return sums.masked_fill(normalizer.isnan(), math.nan)

    @cached_property
    def fingerprint(self) -> str | None:
        """A hash of all that decides the cells; None where there is something that has none."""
        if self._whole is None:
            return fingerprint(self.rule, self.number)
        weights, matrix = self._whole
        problem = weights.problem
        (key_matrix,) = problem.key_matrices(range(matrix, matrix + 1))
        place = divmod(matrix, problem.extent.heads)
        factors = problem.flat_query[matrix], problem.flat_key[int(key_matrix)]
        known = None if weights.known is None else weights.known[matrix]
        return fingerprint(place, factors, problem.mask, problem.scoring, known)


def _whole_matrix(rule: LazyMatrix, number: int) -> tuple[Prepared, int] | None:
    if isinstance(rule, Prepared):
        return rule, number
    if not isinstance(rule, Selection) or not isinstance(rule.base, Prepared):
        return None
    queries, keys = map(range, rule.base.sizes[1:])
    is_whole = isinstance(rule.rows, range) and isinstance(rule.columns, range)
    if is_whole and (rule.rows, rule.columns) == (queries, keys):
        return rule.base, int(rule.matrices[number])
    return None
