"""Some rows of a map as numbers."""

from jaxtyping import Float
from torch import Tensor

from heedmap.attention_map import AttentionMap


def rows_of(weights: Float[Tensor, "*lead key"]) -> Float[Tensor, "*lead key"]:
    """Return some rows of a map in float32 on the CPU, whatever the budget for whole maps is."""
    if isinstance(weights, AttentionMap):
        weights = weights.to_dense(max_bytes=weights.numel() * weights.element_size())
    return weights.float().cpu()
