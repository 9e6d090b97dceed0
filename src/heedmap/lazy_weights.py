"""The plain object behind a map: a problem, the log-normaliser of its rows, and how to read them.

weight = exp(score − log_normalizer). Nothing of query × key elements is ever kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.kernels import differentiable, tiles
from heedmap.lazy import LazyMatrix, Selection, Transpose
from heedmap.lazy_algebra import Join
from heedmap.places import Index, pick
from heedmap.problem import Problem

FAR = 16.0
"""Beyond which a float32 log-normaliser may be wrong by more than a millionth."""

Form = Literal["weights", "scores", "log_weights"]


class LogNormalizer:
    """The log-normaliser of a problem: known from the kernel, or made when it is first needed."""

    def __init__(
        self,
        problem: Problem,
        known: Float[Tensor, "batch heads query"] | None = None,
        backend: str = "",
    ) -> None:
        """Hold what is known and which kernel made it; nothing is computed."""
        self.problem = problem
        self.known = known
        self.asked = 0
        self.lacking: Tensor | None = None
        self.backend = backend or differentiable.choose(problem, problem.key)

    def whole(self) -> Float[Tensor, "batch heads query"]:
        """Return the log-normaliser of every row, computed once; differentiable.

        PyTorch's kernel gives it beside an output, here with the keys as values.
        """
        self.problem.require_unchanged()
        if self.known is None:
            with torch.inference_mode(False), torch.no_grad():
                self.known = differentiable.run(self.problem, self.problem.key, self.backend)[1]
        if self.known.is_inference() and not torch.is_inference_mode_enabled():
            self.known = self.known.clone()
        if self.known.requires_grad:
            # A pass that adds up gradients treats it as an input beside query and key.
            return self.known
        return differentiable.log_normalizer(self.problem, self.known, self.backend)

    def remainder(self, matrices: Index, rows: Index) -> Float[Tensor, "matrices rows"] | None:
        """Return what some rows' log-normaliser lacks to be exact; None where that is nothing.

        It lacks digits where scores are far from 0, and where a kernel worked in half precision.
        As with `rows`, who has asked for a quarter of them gets all.
        """
        with torch.no_grad():
            if self.known is None:
                known = self.rows(matrices, rows)
            else:
                known = pick(pick(self.known.flatten(0, 1), matrices, 0), rows, 1)
            half = self.problem.query.dtype in (torch.float16, torch.bfloat16)
            far = (known.abs() > FAR) & (known > -torch.inf)
            if not half and not bool(far.any()):
                return None
            batch, heads, queries, _ = self.problem.extent
            self.asked += len(matrices) * len(rows)
            if self.known is None or 4 * self.asked < batch * heads * queries:
                return tiles.remainder(self.problem, known, matrices, rows)
            if self.lacking is None:
                every = range(batch * heads), range(queries)
                self.lacking = tiles.remainder(self.problem, self.known.flatten(0, 1), *every)
            return pick(pick(self.lacking, matrices, 0), rows, 1)

    def rows(self, matrices: Index, rows: Index) -> Float[Tensor, "matrices rows"]:
        """Return the log-normaliser of some rows.

        Where none is known, only these are computed; but who has asked for a quarter of them this
        way gets all.
        """
        if self.known is None and not self._needs_gradient():
            batch, heads, queries, _ = self.problem.extent
            self.asked += len(matrices) * len(rows)
            if 4 * self.asked < batch * heads * queries:
                return tiles.log_normalizer(self.problem, matrices, rows)
        return pick(pick(self.whole().flatten(0, 1), matrices, 0), rows, 1)

    def _needs_gradient(self) -> bool:
        tensors = self.problem.tensors()
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


@dataclass(frozen=True, eq=False)
class Trace:
    """What a gradient with respect to the weights is made of: it is d_output · valueᵀ."""

    output: Float[Tensor, "batch heads query value_dim"]
    value: Float[Tensor, "batch kv_heads key value_dim"]


@dataclass(frozen=True, eq=False)
class LazyWeights(LazyMatrix):
    """The weights of a problem, or its scores, or the logarithms of its weights."""

    problem: Problem
    normalizer: LogNormalizer
    form: Form = "weights"
    trace: Trace | None = None

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

    def tile(self, matrices: Index, rows: Index, columns: Index) -> Tensor:
        """Make a block from scores and log-normaliser."""
        self.problem.require_unchanged()
        if self.form == "scores":
            return self.problem.scores(matrices, rows, columns)
        normalizer = self.normalizer.rows(matrices, rows)
        lacking = self.normalizer.remainder(matrices, rows)
        if self.form == "weights":
            return tiles.weights(self.problem, normalizer, matrices, rows, columns, lacking)
        scores = self.problem.scores(matrices, rows, columns) - _anchor(normalizer)[..., None]
        return scores if lacking is None else scores - lacking[..., None]

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Make single cells."""
        self.problem.require_unchanged()
        scores = self.problem.cell_scores(matrices, rows, columns)
        if self.form == "scores":
            return scores
        normalizer = _anchor(self.normalizer.whole().flatten(0, 1)[matrices, rows])
        logarithms = scores - normalizer
        sizes = self.sizes
        lacking = self.normalizer.remainder(range(sizes[0]), range(sizes[1]))
        if lacking is not None:
            logarithms = logarithms - lacking[matrices, rows]
        if self.form == "log_weights":
            return logarithms
        return torch.exp(logarithms).masked_fill(scores == -torch.inf, 0)

    def column_range(self, rows: Index) -> tuple[int, int]:
        """Weights are 0 outside the mask's range; scores are −inf there."""
        return self.problem.key_range(rows) if self.form == "weights" else (0, self.sizes[2])

    def tensors(self) -> list[Tensor]:
        """Return the factors and the log-normaliser, which is computed if it is not known yet."""
        return [*self.problem.tensors(), self.normalizer.whole()]

    def requires_grad(self) -> bool:
        """Return whether the factors require a gradient."""
        return any(tensor.requires_grad for tensor in self.problem.tensors())

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "LazyWeights":
        """Return the same weights on changed factors."""
        problem = self.problem.map_tensors(change)
        known = self.normalizer.known
        known = None if known is None else change(known)
        return LazyWeights(
            problem, LogNormalizer(problem, known, self.normalizer.backend), self.form
        )


def _anchor(normalizer: Tensor) -> Tensor:
    """Return the log-normaliser with 0 for empty rows, whose scores are −inf anyway."""
    return normalizer.masked_fill(normalizer == -torch.inf, 0)


def in_form(rule: LazyMatrix, form: Form) -> LazyMatrix | None:
    """Return the same cells read as scores or logarithms; None where they are not plain weights."""
    if isinstance(rule, LazyWeights):
        return replace(rule, form=form) if rule.form == "weights" else None
    if isinstance(rule, Selection | Transpose):
        base = in_form(rule.base, form)
        return None if base is None else replace(rule, base=base)
    if isinstance(rule, Join):
        parts = [in_form(part, form) for part in rule.parts]
        known = tuple(part for part in parts if part is not None)
        return Join(known, rule.along) if len(known) == len(parts) else None
    return None


def row_normalizer(rule: LazyMatrix) -> Float[Tensor, "matrices rows"] | None:
    """Return the log-normaliser of each row; None where rows are not those of a problem."""
    if isinstance(rule, LazyWeights):
        return rule.normalizer.whole().flatten(0, 1)
    if isinstance(rule, Selection) and isinstance(rule.base, LazyWeights):
        return rule.base.normalizer.rows(rule.matrices, rule.rows)
    return None


def leaves(rule: LazyMatrix) -> list[LazyWeights]:
    """Return the problems' weights that a rule is made of, each once."""
    found: dict[int, LazyWeights] = {}
    waiting: list[Any] = [rule]
    while waiting:
        part = waiting.pop()
        if isinstance(part, LazyWeights):
            found[id(part)] = part
        elif isinstance(part, LazyMatrix):
            waiting += [getattr(part, field.name) for field in fields(part)]
        elif isinstance(part, tuple):
            waiting += part
    return list(found.values())
