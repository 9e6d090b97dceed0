"""Maps of which each of several ranks has a part: one file a rank, joined when it is opened."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.layers import Layer
from heedmap.lazy import sharded_in
from heedmap.recording.masks import Rule

if TYPE_CHECKING:
    from heedmap.parallel.layout import Layout
    from heedmap.parallel.members import Members
    from heedmap.parallel.shards import Shards

QUERIES = ("query", "log_normalizer")
KEYS = ("key", "value_norms")
"""What there is of each query, and of each key, along dimension 2."""

Tensors = Mapping[str, Tensor]


def members_of(layers: Sequence[Layer]) -> "Members | None":
    """Return the ranks that share the map of some layer; None where none is shared."""
    if "heedmap.parallel" not in sys.modules:
        # So nothing has to be read of a recording that is saved again.
        return None
    found = (shards_of(layer.weights) for layer in layers)
    return next((shards.members for shards in found if shards is not None), None)


def shards_of(weights: Any) -> "Shards | None":
    """Return what this rank has of a map; None for one that this process has the whole of."""
    rule = sharded_in(weights._rule) if isinstance(weights, AttentionMap) else None
    return None if rule is None else rule.shards  # pyright: ignore[reportAttributeAccessIssue]


def as_plain(shards: "Shards") -> dict[str, Any]:
    """Return which positions each rank has, as a manifest has it."""
    sides = {"queries": shards.queries, "keys": shards.keys}
    return {
        side: [[[span.start, span.stop] for span in own] for own in layout.spans]
        for side, layout in sides.items()
    }


def layouts_of(rule: Rule | None) -> "tuple[Layout, Layout] | None":
    """Return which queries and which keys each file has; None where there is one file for all.

    Raises:
        ArgumentError, KeyError, TypeError, ValueError: if the rule makes no sense.
    """
    while rule is not None and "shards" not in rule:
        rule = rule.get("of", rule.get("base"))
    if rule is None:
        return None
    from heedmap.parallel.layout import Layout

    queries, keys = (
        Layout(tuple(tuple(range(*ends) for ends in own) for own in rule["shards"][side]))
        for side in ("queries", "keys")
    )
    return queries, keys


def joined(rule: Rule | None, parts: Sequence[Tensors]) -> Tensors:
    """Return the tensors of all files of a layer as one file would have them.

    Raises:
        ShapeError, KeyError, ValueError, RuntimeError: if they do not fit each other.

    Cost: memory of query, key and log-normaliser where there are several files.
    """
    layouts = layouts_of(rule)
    if layouts is None:
        return parts[0] if parts else {}
    queries, keys = layouts
    whole = dict(parts[0])
    for names, layout in ((QUERIES, queries), (KEYS, keys)):
        for name in names:
            if name in whole:
                whole[name] = layout.whole([part[name] for part in parts], dim=2)
    if "bias" in whole:
        whole["bias"] = _joined_bias([part["bias"] for part in parts], queries)
    return whole


def _joined_bias(parts: Sequence[Tensor], queries: "Layout") -> Tensor:
    if all(part.shape[2] == 1 for part in parts):
        # One for all queries: it may be the same on all ranks.
        first = parts[0]
        if first.is_meta or all(torch.equal(first, part) for part in parts):
            return first
    lengths = zip(parts, queries.lengths, strict=True)
    spread = [part.expand(-1, -1, length, -1) for part, length in lengths]
    return queries.whole(spread, dim=2)
