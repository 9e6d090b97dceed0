"""Attention over shards: the output of this rank's queries, and the map of all of them."""

from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.masks import Mask
from heedmap.parallel.layout import Layout
from heedmap.parallel.members import Mesh


def attention(
    query: Float[Tensor, "*batch_heads own_queries head_dim"],
    key: Float[Tensor, "*batch_kv_heads own_keys head_dim"],
    value: Float[Tensor, "*batch_kv_heads own_keys value_dim"],
    *,
    mask: Mask | Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Float[Tensor, "..."] | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
    mesh: Mesh | None = None,
    layout: Layout | None = None,
) -> tuple[Float[Tensor, "*batch_heads own_queries value_dim"], AttentionMap]:
    """Return the output of this rank's queries, and the map of the whole sequence.

    Args:
        query: This rank's queries, in the order of its part of `layout`.
        key: This rank's keys.
        value: This rank's values.
        mask: Who may look at whom, of the whole sequence; the same on every rank.
        scale: As for `heedmap.attention`; so are `soft_cap` and `sinks`.
        soft_cap: Squash scores into ±soft_cap before bias and mask.
        bias: Scores to add, of this rank's queries and all keys; sizes of 1 stand for all.
        sinks: A score for each head that takes part in the softmax and belongs to no key.
        mesh: The processes: a `DeviceMesh` of one dimension or a process group; None for all.
        layout: Which positions each rank has, of queries and of keys; None for one stretch each,
            in the order of ranks, as long as what the rank gives (then queries and keys may be
            different positions).
    """
    raise NotImplementedError
