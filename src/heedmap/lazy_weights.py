"""The plain object behind a map: a problem, the log-normaliser of its rows, and how to read them.

weight = exp(score − log_normalizer). Nothing of query × key elements is ever kept.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from heedmap.errors import UnsupportedError
from heedmap.kernels import differentiable, tiles
from heedmap.lazy import LazyMatrix, Selection, Sharded, Transpose
from heedmap.lazy_algebra import Join
from heedmap.places import Index, as_numbers, pick
from heedmap.problem import Problem

FAR = 64.0
"""From which size on scores in float32 have too few digits left for what follows the point."""

Form = Literal["weights", "scores", "log_weights"]


class Reading(NamedTuple):
    """What a block of weights is made of: exp(score − normalizer − lacking)."""

    problem: Problem
    normalizer: Float[Tensor, "matrices rows"]
    lacking: Float[Tensor, "matrices rows"] | None


class Asked:
    """Who wants the gradient with respect to the weights, and what came of it so far.

    It knows nothing of the graph, whose nodes hold it.

    Attributes:
        retains: Whether it is kept.
        kept: What came, in all, as the gradient of the output.
        hooks: What is called with each that comes.
    """

    def __init__(self) -> None:
        """Nobody does."""
        self.retains = False
        self.kept: Tensor | None = None
        self.hooks: OrderedDict[int, Callable[[Tensor], None]] = OrderedDict()
        self.listens = False

    def take(self, gradient: Float[Tensor, "batch heads query value_dim"]) -> None:
        """Hear of a gradient of the output."""
        if self.retains:
            self.kept = gradient.clone() if self.kept is None else self.kept + gradient
        for hook in tuple(self.hooks.values()):
            hook(gradient)

    def require_output_alone(self) -> None:
        """Refuse a gradient that comes to the weights by another way than the output."""
        if self.retains or self.hooks:
            raise UnsupportedError(
                "the loss must reach a map by the output alone where retain_grad or register_hook "
                "was called on it; it also reads the weights. Send the two losses back apart, each "
                "with weights of its own."
            )


@dataclass(frozen=True, eq=False)
class Trace:
    """What a gradient with respect to the weights is made of: it is d_output · valueᵀ.

    Attributes:
        edge: Where the gradient of what the output became comes by.
        value: What the weights gathered.
        form: Makes d_output of that gradient.
        asked: Who wants it.
    """

    edge: GradientEdge
    value: Float[Tensor, "batch kv_heads key value_dim"]
    form: Callable[[Tensor], Float[Tensor, "batch heads query value_dim"]]
    asked: Asked = field(default_factory=Asked)

    def listen(self) -> None:
        """Hear of each gradient of the output from now on."""
        asked, form, place = self.asked, self.form, self.edge.output_nr
        if asked.listens:
            return
        asked.listens = True

        # It must not hold the edge, whose node holds it.
        def hear(gradients: tuple[Tensor | None, ...]) -> None:
            if (gradient := gradients[place]) is not None:
                asked.take(form(gradient))

        self.edge.node.register_prehook(hear)


def trace_of(output: Tensor, value: Tensor) -> Trace | None:
    """Return the trace of an output ``[batch, heads, query, value_dim]`` that has a gradient."""
    if not output.requires_grad:
        return None
    return Trace(get_gradient_edge(output), value, lambda gradient: gradient)


class _WeightsRead(torch.autograd.Function):
    """Passes a log-normaliser on, and marks in the graph that weights were read there."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        normalizer: Tensor, asked: Asked
    ) -> Tensor:
        del asked
        return normalizer.view_as(normalizer)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        _, ctx.asked = inputs

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, None]:
        ctx.asked.require_output_alone()
        return gradient, None


def marked(normalizer: Tensor, trace: Trace) -> Tensor:
    """Return a log-normaliser whose gradient tells that weights were read beside the output."""
    if not normalizer.requires_grad:
        return normalizer
    return _WeightsRead.apply(normalizer, trace.asked)  # pyright: ignore[reportReturnType]


class LogNormalizer:
    """The log-normaliser of a problem: known from the kernel, or made when it is first needed."""

    some: Tensor | None = None
    asked = 0
    far: bool | None = None
    fine: Problem | None = None
    fine_known: tuple[Tensor, Tensor] | None = None

    def __init__(
        self,
        problem: Problem,
        known: Float[Tensor, "batch heads query"] | None = None,
        backend: str = "",
        trace: "Trace | None" = None,
    ) -> None:
        """Hold what is known, which kernel made it, and the output's trace; compute nothing."""
        self.problem = problem
        self.known = known
        self.trace = trace
        self.backend = backend or differentiable.choose(problem, problem.key)

    def whole(self) -> Float[Tensor, "batch heads query"]:
        """Return the log-normaliser of every row, computed once; differentiable."""
        self.problem.require_unchanged()
        if self.known is None:
            with torch.inference_mode(False), torch.no_grad():
                self.known = differentiable.plain_log_normalizer(self.problem, self.backend)
        if self.known.is_inference() and not torch.is_inference_mode_enabled():
            self.known = self.known.clone()
        if self.known.requires_grad:
            # A pass that adds up gradients treats it as an input beside query and key.
            return self.known
        found = differentiable.log_normalizer(self.problem, self.known, self.backend)
        return found if self.trace is None else marked(found, self.trace)

    def rows(self, matrices: Index, rows: Index) -> Float[Tensor, "matrices rows"]:
        """Return the log-normaliser of some rows.

        Where they are not known, only these are computed, and kept; but who has asked for a quarter
        of all this way gets all.
        """
        if self.known is None and not self._needs_gradient():
            found = self._some_rows(matrices, rows)
            if found is not None:
                return found
        return pick(pick(self.whole().flatten(0, 1), matrices, 0), rows, 1)

    def _some_rows(self, matrices: Index, rows: Index) -> Float[Tensor, "matrices rows"] | None:
        """Return the log-normaliser of some rows, each computed once; None for too many."""
        batch, heads, queries, _ = self.problem.extent
        shape, device = (batch * heads, queries), self.problem.query.device
        with torch.inference_mode(False), torch.no_grad():
            if self.some is None:
                self.some = torch.full(
                    shape, torch.nan, dtype=self.problem.compute_dtype, device=device
                )
            found = pick(pick(self.some, matrices, 0), rows, 1)
            lacking = int(found.isnan().sum())
            if not lacking:
                return found
            self.asked += lacking
            if 4 * self.asked >= batch * heads * queries:
                return None
            found = tiles.log_normalizer(self.problem, matrices, rows)
            self.some[as_numbers(matrices, device)[:, None], as_numbers(rows, device)] = found
        return found

    def reading(self, matrices: Index, rows: Index) -> Reading:
        """Return the problem and the log-normaliser with as many digits as these rows need.

        The kernel's log-normaliser, a float32, lacks digits where scores are far from 0.
        """
        if not self._needs_float64(matrices, rows):
            return Reading(self.problem, self.rows(matrices, rows), None)
        fine = self._fine_problem()
        with torch.no_grad():
            exact, lacking = self._fine_rows(fine, matrices, rows)
        if self._needs_gradient():
            # The value is the exact one, the gradient that of the kernel's.
            known = self.rows(matrices, rows)
            exact = exact + (known - known.detach()).masked_fill(exact == -torch.inf, 0)
        return Reading(fine, exact, lacking)

    def _needs_float64(self, matrices: Index, rows: Index) -> bool:
        if self.problem.compute_dtype == torch.float64:
            return False
        with torch.no_grad():
            if self.known is None:
                return is_far(self.rows(matrices, rows))
            self.far = is_far(self.known) if self.far is None else self.far
            return self.far

    def _fine_problem(self) -> Problem:
        if self._needs_gradient():
            return self.problem.map_tensors(lambda tensor: tensor.double())
        if self.fine is None:
            with torch.inference_mode(False), torch.no_grad():
                self.fine = self.problem.map_tensors(lambda tensor: tensor.double())
        return self.fine

    def _fine_rows(self, fine: Problem, matrices: Index, rows: Index) -> tuple[Tensor, Tensor]:
        batch, heads, queries, _ = self.problem.extent
        self.asked += len(matrices) * len(rows)
        if 4 * self.asked < batch * heads * queries:
            return _fine_normalizer(fine, matrices, rows)
        if self.fine_known is None:
            every = range(batch * heads), range(queries)
            self.fine_known = _fine_normalizer(fine, *every)
        exact, lacking = (pick(pick(part, matrices, 0), rows, 1) for part in self.fine_known)
        return exact, lacking

    def _needs_gradient(self) -> bool:
        tensors = self.problem.tensors()
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


@dataclass(frozen=True, eq=False)
class LazyWeights(LazyMatrix):
    """The weights of a problem, or its scores, or the logarithms of its weights."""

    problem: Problem
    normalizer: LogNormalizer
    form: Form = "weights"

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
        problem, normalizer, lacking = self.normalizer.reading(matrices, rows)
        if self.form == "weights":
            made = tiles.weights(problem, normalizer, matrices, rows, columns, lacking)
            return made.to(self.dtype)
        scores = problem.scores(matrices, rows, columns) - _anchor(normalizer)[..., None]
        return (scores if lacking is None else scores - lacking[..., None]).to(self.dtype)

    def cells(self, matrices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Make single cells."""
        self.problem.require_unchanged()
        if self.form == "scores":
            return self.problem.cell_scores(matrices, rows, columns)
        sizes = self.sizes
        problem, normalizer, lacking = self.normalizer.reading(range(sizes[0]), range(sizes[1]))
        scores = problem.cell_scores(matrices, rows, columns)
        logarithms = scores - _anchor(normalizer[matrices, rows])
        if lacking is not None:
            logarithms = logarithms - lacking[matrices, rows]
        if self.form == "log_weights":
            return logarithms.to(self.dtype)
        return torch.exp(logarithms).masked_fill(scores == -torch.inf, 0).to(self.dtype)

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


def is_far(normalizer: Tensor) -> bool:
    """Return whether some row's scores are so far from 0 that float32 has too few digits for it."""
    if not normalizer.numel():
        return False
    low, high = (float(end) for end in torch.aminmax(normalizer))
    if low >= -FAR and high <= FAR:
        return False
    # Rows that see nothing have −inf, and want no digits.
    return bool(((normalizer.abs() > FAR) & (normalizer > -torch.inf)).any())


def _fine_normalizer(fine: Problem, matrices: Index, rows: Index) -> tuple[Tensor, Tensor]:
    exact = tiles.log_normalizer(fine, matrices, rows)
    # Beside a score such as −3·10³⁸, which hides a row for some, not even float64 can hold ln n.
    return exact, tiles.remainder(fine, exact, matrices, rows)


def _anchor(normalizer: Tensor) -> Tensor:
    """Return the log-normaliser with 0 for empty rows, whose scores are −inf anyway."""
    return normalizer.masked_fill(normalizer == -torch.inf, 0)


def in_form(rule: LazyMatrix, form: Form) -> LazyMatrix | None:
    """Return the same cells read as scores or logarithms; None where they are not plain weights."""
    if isinstance(rule, Sharded):
        return rule.in_form(form)
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
    if isinstance(rule, Sharded):
        return rule.row_normalizer()
    if isinstance(rule, LazyWeights):
        return rule.normalizer.whole().flatten(0, 1)
    if isinstance(rule, Selection) and isinstance(rule.base, Sharded):
        return pick(pick(rule.base.row_normalizer(), rule.matrices, 0), rule.rows, 1)
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
