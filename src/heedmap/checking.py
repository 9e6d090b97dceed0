"""Whether maps are what a model computed: some rows against the plain formula in float64."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from heedmap.attention_map import AttentionMap
from heedmap.exact_rows import row_of, sample
from heedmap.layers import Layer
from heedmap.lazy_weights import LazyWeights

WEIGHT_TOLERANCE = 1e-5
"""How far a weight may lie from float64, scores being computed in float32."""

OUTPUT_TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""How far weights · values may lie from a kernel's output, by its number type, in units of the
largest value: some dozens of roundings."""


@dataclass(frozen=True)
class Checked:
    """What was found about one layer.

    Attributes:
        name: Of the layer.
        rows: How many rows were compared.
        weight_error: The largest distance of a weight from float64; None where the map does not
            stand on query and key.
        output_error: That of weights · values from the kernel's output, in units of the largest
            value; None where the output was not to be had.
        is_right: Whether both are within rounding.
    """

    name: str
    rows: int
    weight_error: float | None
    output_error: float | None
    is_right: bool


class Checks(list[Checked]):
    """What was found about each layer; printed, a table."""

    @property
    def ok(self) -> bool:
        """Whether every layer is right."""
        return all(checked.is_right for checked in self)

    def __repr__(self) -> str:
        """Show a line for each layer."""
        width = max((len(checked.name) for checked in self), default=4)
        lines = [f"{'layer':{width}}  weights  output   "]
        for checked in self:
            errors = "  ".join(
                f"{'–':7}" if error is None else f"{error:.1e}"
                for error in (checked.weight_error, checked.output_error)
            )
            lines.append(f"{checked.name:{width}}  {errors}  {'' if checked.is_right else 'WRONG'}")
        return "\n".join(line.rstrip() for line in lines)


def check(layers: Iterable[Layer]) -> Checks:
    """Return what is found about each layer whose weights are kept."""
    with torch.no_grad():
        return Checks(_check(layer) for layer in layers if isinstance(layer.weights, AttentionMap))


def _check(layer: Layer) -> Checked:
    weights = layer.weights
    rows, error = 0, None
    rule = weights._rule
    if isinstance(rule, LazyWeights):
        error = 0.0
        for matrix, row in sample(rule.problem):
            place = range(matrix, matrix + 1), range(row, row + 1), range(rule.sizes[2])
            exact = row_of(rule.problem, matrix, row)
            error = max(error, float((rule.tile(*place)[0, 0] - exact).abs().max()))
            rows += 1
    allowed = OUTPUT_TOLERANCE[weights.dtype]
    right = not error or error <= WEIGHT_TOLERANCE
    right = right and (layer.output_error is None or layer.output_error <= allowed)
    return Checked(layer.name, rows, error, layer.output_error, right)
