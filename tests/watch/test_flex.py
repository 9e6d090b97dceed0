"""`flex_attention`, whose masks and changes of scores are functions of places."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import heedmap

from .dense import dense_weights, key_of, require_close, watch_once

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 130, 8
SLOPES = torch.linspace(0.1, 0.4, HEADS)
DOCUMENTS = torch.tensor([[0] * 50 + [1] * 80, [0] * 100 + [1] * 30])
PLACES = torch.arange(LENGTH)
DISTANCE = PLACES[:, None] - PLACES

Mod = Callable[..., Tensor]


class Flex(nn.Module):
    """Attention with whatever a test asks of flex_attention."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Any:
        return flex_attention(query, key, value, **self.options)


@pytest.fixture(autouse=True)
def _uncompiled() -> Iterator[None]:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        yield


def factors(kv_heads: int = HEADS, keys: int = LENGTH) -> list[Tensor]:
    torch.manual_seed(0)
    query = torch.randn(BATCH, HEADS, LENGTH, WIDTH)
    return [query, *(torch.randn(BATCH, kv_heads, keys, WIDTH) for _ in range(2))]


def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch, head
    return query >= key


def one_document(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del head
    return (DOCUMENTS[batch, query] == DOCUMENTS[batch, key]) & (query >= key)


def window_by_head(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch
    return (query - key).abs() <= head + 1


def linear_bias(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch
    return score - SLOPES[head] * (query - key).abs()


def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch, head, query, key
    return 0.5 * torch.tanh(score / 0.5)


def hiding(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch, head
    return torch.where(query >= key, score, -torch.inf)


MASKS: dict[str, tuple[Mod, int | None, int | None, Tensor]] = {
    "causal": (causal, None, None, DISTANCE >= 0),
    "documents": (
        one_document,
        BATCH,
        None,
        ((DOCUMENTS[:, :, None] == DOCUMENTS[:, None]) & (DISTANCE >= 0))[:, None],
    ),
    "window by head": (
        window_by_head,
        None,
        HEADS,
        DISTANCE.abs() <= torch.arange(HEADS)[:, None, None] + 1,
    ),
}


def test_nothing_given() -> None:
    query, key, value = factors(keys=70)
    layer = watch_once(Flex(), query, key, value)
    require_close(layer.weights, dense_weights(query, key))
    assert layer.door == "flex_attention"
    assert layer.output_error is not None
    assert layer.output_error < 1e-6


@pytest.mark.parametrize("mask", MASKS)
def test_block_masks(mask: str) -> None:
    function, batch, heads, visible = MASKS[mask]
    block_mask = create_block_mask(function, batch, heads, LENGTH, LENGTH, "cpu")
    query, key, value = factors()
    layer = watch_once(Flex(block_mask=block_mask), query, key, value)
    require_close(layer.weights, dense_weights(query, key, visible=visible))
    assert layer.kind == ("causal" if mask != "window by head" else "self")
    assert layer.output_error is not None
    assert layer.output_error < 1e-6


def test_scores_with_a_bias() -> None:
    query, key, value = factors()
    layer = watch_once(Flex(score_mod=linear_bias, scale=0.3), query, key, value)
    bias = -SLOPES[:, None, None] * DISTANCE.abs()
    require_close(layer.weights, dense_weights(query, key, bias=bias, scale=0.3))


def test_scores_under_a_cap() -> None:
    query, key, value = factors()
    layer = watch_once(Flex(score_mod=capped), query, key, value)
    scores = torch.tanh(query.double() @ key.double().mT / WIDTH**0.5 / 0.5) * 0.5
    require_close(layer.weights, scores.softmax(-1))


def test_scores_that_hide() -> None:
    query, key, value = factors()
    layer = watch_once(Flex(score_mod=hiding), query, key, value)
    require_close(layer.weights, dense_weights(query, key, visible=DISTANCE >= 0))


def test_bias_mask_and_heads_in_groups() -> None:
    block_mask = create_block_mask(one_document, BATCH, None, LENGTH, LENGTH, "cpu")
    model = Flex(score_mod=linear_bias, block_mask=block_mask, enable_gqa=True)
    query, key, value = factors(kv_heads=2)
    layer = watch_once(model, query, key, value)
    bias, visible = -SLOPES[:, None, None] * DISTANCE.abs(), MASKS["documents"][3]
    expected = dense_weights(query, key.repeat_interleave(2, 1), bias=bias, visible=visible)
    require_close(layer.weights, expected)
    assert key_of(layer.weights).shape[1] == 2


def test_one_set_of_keys_for_all_samples() -> None:
    block_mask = create_block_mask(one_document, BATCH, None, LENGTH, LENGTH, "cpu")
    query, key, value = factors()
    layer = watch_once(Flex(block_mask=block_mask), query, key[:1], value[:1])
    visible = MASKS["documents"][3]
    require_close(layer.weights, dense_weights(query, key[:1], visible=visible))


def test_a_mask_is_kept_apart_from_the_models_tensors() -> None:
    documents = DOCUMENTS.clone()

    def function(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del head
        return (documents[batch, query] == documents[batch, key]) & (query >= key)

    block_mask = create_block_mask(function, BATCH, None, LENGTH, LENGTH, "cpu")
    model = nn.ModuleList([Flex(block_mask=block_mask) for _ in range(3)])
    query, key, value = factors()
    with heedmap.watch(model) as seen:
        for layer in model:
            layer(query, key, value)
    documents.zero_()
    expected = dense_weights(query, key, visible=MASKS["documents"][3])
    for weights in seen:
        require_close(weights, expected)


def test_many_cells() -> None:
    length = 1100
    block_mask = create_block_mask(causal, None, None, length, length, "cpu")
    tensors = [torch.randn(1, 1, length, 4) for _ in range(3)]
    model = Flex(block_mask=block_mask)
    with heedmap.watch(model) as seen:
        model(*tensors)
    assert seen.layer(0).kind == "causal"
    rows = seen[0][0, 0, 1000:1003].to_dense()
    assert [int(row.nonzero().max()) for row in rows] == [1000, 1001, 1002]


@pytest.mark.parametrize("batch", [None, BATCH])
def test_padding_of_all_samples_or_of_each(batch: int | None) -> None:
    valid = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    valid[:, 100:] = False

    def function(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del head, query
        return valid[0 if batch is None else sample, key]

    block_mask = create_block_mask(function, batch, None, LENGTH, LENGTH, "cpu")
    query, key, value = factors()
    layer = watch_once(Flex(block_mask=block_mask), query, key, value)
    require_close(layer.weights, dense_weights(query, key, visible=valid[:, None, None]))


@pytest.mark.parametrize("chosen", [{"heads": [3]}, {"queries": [4, -1]}, {"heads": [1, 2]}])
def test_chosen_rows_keep_their_places(chosen: dict[str, Any]) -> None:
    query, key, value = factors()
    bias = -SLOPES[:, None, None] * DISTANCE.abs()
    with heedmap.watch(model := Flex(score_mod=linear_bias), **chosen) as seen:
        model(query, key, value)
    rows = dense_weights(query, key, bias=bias)
    rows = rows[:, chosen.get("heads", range(HEADS))][:, :, chosen.get("queries", range(LENGTH))]
    require_close(seen[0], rows)
