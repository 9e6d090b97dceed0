"""Self-attention that you can look into.

The output **and** the exact weights, at the memory of the output alone::

    output, weights = heedmap.attention(query, key, value, mask=Padding(valid) & Causal())
    weights[0, 3, 40_000].topk(5)      # the five most looked at, of a map that is never stored
"""

from heedmap.attention import attention
from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis, Sequence
from heedmap.budget import dense_budget
from heedmap.errors import HeedmapError
from heedmap.masks import Causal, Documents, Mask, Padding, Visible, Window
from heedmap.summary import Summary

__all__ = [
    "AttentionMap",
    "Axis",
    "Causal",
    "Documents",
    "HeedmapError",
    "Mask",
    "Padding",
    "Sequence",
    "Summary",
    "Visible",
    "Window",
    "attention",
    "dense_budget",
]
