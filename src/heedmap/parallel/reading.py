"""From scores and log-normalisers to weights, with the digits that they need."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.kernels import tiles
from heedmap.lazy_weights import Form, Trace, is_far, marked
from heedmap.parallel import kernel
from heedmap.parallel.merging import Rows
from heedmap.parallel.shards import Shards
from heedmap.places import Index, pick
from heedmap.precision import exactly
from heedmap.problem import Problem


class Normalizer:
    """The log-normaliser of this rank's rows.

    Attributes:
        shards: The problem.
        known: The numbers.
        trace: What a gradient with respect to the weights is made of, if there is one.
    """

    def __init__(
        self,
        shards: Shards,
        known: Float[Tensor, "batch heads own_queries"],
        trace: Trace | None = None,
    ) -> None:
        """Hold it; nothing is computed."""
        self.shards, self.known, self.trace = shards, known, trace
        self._exact: Rows | None = None
        self._is_far: bool | None = None

    def own(self) -> Float[Tensor, "batch heads own_queries"]:
        """Return it as a differentiable function of what the problem is made of."""
        if self.known.requires_grad:
            # A pass that adds up gradients treats it as an input beside query and key.
            return self.known
        if self.known.is_inference() and not torch.is_inference_mode_enabled():
            self.known = self.known.clone()
        found = kernel.log_normalizer(self.shards, self.known)
        return found if self.trace is None else marked(found, self.trace)

    def exact(self) -> Rows | None:
        """Return it to all digits of float64, where that of float32 has too few on some rank.

        All ranks must ask. Cost: once one journey of the keys, where it is needed.
        """
        if self.shards.compute_dtype == torch.float64:
            return None
        if self._is_far is None:
            self._is_far = self.shards.members.any(is_far(self.known.detach()))
        if self._is_far and self._exact is None:
            with torch.inference_mode(False), exactly():
                self._exact = kernel.exact_rows(self.shards)
        return self._exact

    def on(self, shards: Shards, known: Tensor) -> "Normalizer":
        """Return the same of a problem made of other tensors, with the numbers given."""
        made = Normalizer(shards, known)
        made._is_far, made._exact = self._is_far, self._exact
        return made


@dataclass(frozen=True, eq=False)
class Known:
    """The log-normaliser of some rows: numbers with a gradient, and the digits they lack.

    Attributes:
        own: In the number type of the weights.
        anchor: In float64, without a gradient; None where the first has digits enough.
        rest: What is to be added to the anchor.
    """

    own: Float[Tensor, "matrices rows"]
    anchor: Float[Tensor, "matrices rows"] | None = None
    rest: Float[Tensor, "matrices rows"] | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Known":
        """Return the same with `change` done to each tensor."""
        return Known(
            change(self.own),
            None if self.anchor is None else change(self.anchor),
            None if self.rest is None else change(self.rest),
        )

    def lines(self, place: slice) -> "Known":
        """Return what is known of some of the rows."""
        return self.map(lambda numbers: numbers[:, place])


def known_rows(normalizer: Normalizer) -> Known:
    """Return what is known of all of this rank's rows; all ranks must ask."""
    own, exact = normalizer.own().flatten(0, 1), normalizer.exact()
    if exact is None:
        return Known(own)
    return Known(own, exact.anchor.flatten(0, 1), exact.rest.flatten(0, 1))


def read(
    problem: Problem, known: Known, form: Form, matrices: Index, rows: Index, columns: Index
) -> Float[Tensor, "matrices rows columns"]:
    """Return a block of a problem's weights, or scores, or logarithms of weights.

    Args:
        problem: What the block is of.
        known: The log-normaliser of each of its rows, over the whole sequence.
        form: What is asked.
        matrices: Which heads of which samples.
        rows: Which queries of the problem.
        columns: Which keys of the problem.
    """
    dtype = problem.compute_dtype
    if form == "scores":
        return problem.scores(matrices, rows, columns)
    some = known.map(lambda numbers: pick(pick(numbers, matrices, 0), rows, 1))
    anchor, rest = some.own, some.rest
    if some.anchor is not None:
        problem = problem.map_tensors(lambda tensor: tensor.double())
        # The value is the exact one, the gradient that of the other.
        slope = (some.own - some.own.detach()).masked_fill(some.anchor == -torch.inf, 0)
        anchor = some.anchor + slope
    if form == "weights":
        return tiles.weights(problem, anchor, matrices, rows, columns, rest).to(dtype)
    scores = problem.scores(matrices, rows, columns)
    scores = scores - anchor.masked_fill(anchor == -torch.inf, 0)[..., None]
    return (scores if rest is None else scores - rest[..., None]).to(dtype)
