"""The attention of one layer of a model: its weights, and what is known beside them."""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

Kind = Literal["self", "causal", "cross"]


@dataclass(frozen=True, eq=False)
class Layer:
    """What was seen of one module: one call, or the steps of one decoding as a single map.

    Attributes:
        name: The dotted name of the module, as ``model.named_modules`` has it.
        kind: ``"causal"`` where no query sees what comes after it, ``"cross"`` where keys come from
            another sequence, ``"self"`` for the rest.
        number: Which of the calls, or decodings, of this module it is, from 0.
        calls: How many calls of the module it is made of.
        weights: The map ``[batch, heads, query, key]``, or what `keep` made of it; None where it
            was not kept.
        value_norms: The norm of each value, for weights times values.
        first_query: The position of the first query among the keys, of a causal layer.
        door: The function of PyTorch that the model attended through.
        kept: How the weights are kept: ``"factors"``, ``"weights"``, ``"reduced"``, or why not.
        output_error: The largest distance between weights · values, computed in float64 for some
            rows, and the kernel's own output, in units of the largest value; None where the output
            or its values are not to be had.
    """

    name: str
    kind: Kind
    number: int
    calls: int
    weights: Any
    value_norms: Float[Tensor, "batch kv_heads key"] | None = None
    first_query: int = 0
    door: str = ""
    kept: str = "factors"
    output_error: float | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the map; None where no tensor was kept."""
        return tuple(self.weights.shape) if isinstance(self.weights, Tensor) else None
