"""What the tests of recordings share: small maps, and what was seen that holds them."""

from typing import Any

import torch
from torch import Tensor

from heedmap import AttentionMap, Seen
from heedmap.layers import Layer

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, WIDTH = 2, 4, 2, 7, 9, 6


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def make_map(dtype: torch.dtype = torch.float32, **options: Any) -> AttentionMap:
    query, key = draw(BATCH, HEADS, QUERIES, WIDTH), draw(BATCH, KV_HEADS, KEYS, WIDTH) / 2
    return AttentionMap.from_factors(query.to(dtype), key.to(dtype), **options)


def seen_of(*weights: Any, **known: Any) -> Seen:
    layers = [
        Layer(**{"name": f"layer.{i}", "kind": "self", "number": 0, "calls": 1} | known, weights=w)
        for i, w in enumerate(weights)
    ]
    return Seen(lambda: layers, [("gate", "it has no softmax")], "Tiny")


def assert_same(opened: Seen, live: Seen) -> None:
    """Everything that is known of each layer is the same, the cells to the last bit."""
    assert repr(opened) == repr(live)
    assert opened.model == live.model
    assert list(opened.missed) == list(live.missed)
    for mine, theirs in zip(opened.layers, live.layers, strict=True):
        for name in ("name", "kind", "number", "calls", "first_query", "door", "kept"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert mine.output_error == theirs.output_error
        assert mine.shape == theirs.shape
        assert_equal(mine.value_norms, theirs.value_norms)
        if isinstance(theirs.weights, AttentionMap):
            assert mine.weights.dtype == theirs.weights.dtype
            assert_equal(mine.weights.to_dense(), theirs.weights.to_dense())


def assert_equal(mine: Tensor | None, theirs: Tensor | None) -> None:
    if mine is None or theirs is None:
        assert mine is theirs
        return
    assert mine.dtype == theirs.dtype
    assert torch.equal(mine, theirs)
