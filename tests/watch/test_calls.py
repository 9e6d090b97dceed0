"""Code that calls `scaled_dot_product_attention`, by whatever name and with whatever arguments."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import heedmap

from .dense import dense_weights, key_of, require_close, watch_once

QUERIES, KEYS = 5, 7
TABLE = torch.rand(2, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) > 0.3
TABLE[..., 0] = True
SCORES = torch.linspace(-2, 2, QUERIES * KEYS).sin().reshape(QUERIES, KEYS)
LEAST = torch.finfo(torch.float32).min
BAND = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(2)


class Direct(nn.Module):
    """Attention with whatever arguments a test gives."""

    def __init__(self, function: Callable[..., Tensor], options: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.function(query, key, value, **self.options)


def factors(lead: tuple[int, ...], kv_lead: tuple[int, ...] | None = None) -> list[Tensor]:
    torch.manual_seed(0)
    kv_lead = lead if kv_lead is None else kv_lead
    return [
        torch.randn(*lead, QUERIES, 8),
        torch.randn(*kv_lead, KEYS, 8),
        torch.randn(*kv_lead, KEYS, 6),
    ]


MASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "a table": ({"attn_mask": TABLE}, {"visible": TABLE}),
    "a table for all": ({"attn_mask": BAND}, {"visible": BAND}),
    "a row that sees nothing": (
        {"attn_mask": torch.ones(5, 7, dtype=torch.bool).tril(-2)},
        {"visible": torch.ones(5, 7, dtype=torch.bool).tril(-2)},
    ),
    "scores": ({"attn_mask": SCORES}, {"bias": SCORES}),
    "scores by head": (
        {"attn_mask": torch.stack([SCORES, -SCORES, 2 * SCORES, 0 * SCORES])},
        {"bias": torch.stack([SCORES, -SCORES, 2 * SCORES, 0 * SCORES])},
    ),
    "infinite scores": (
        {"attn_mask": torch.zeros(5, 7).masked_fill(~BAND, -torch.inf)},
        {"visible": BAND},
    ),
    "least scores": (
        {"attn_mask": torch.zeros(5, 7).masked_fill(~BAND, LEAST)},
        {"visible": BAND},
    ),
    "scores that hide, too": (
        {"attn_mask": torch.where(TABLE, SCORES, LEAST)},
        {"visible": TABLE, "bias": SCORES},
    ),
    "causal from the first key": (
        {"is_causal": True},
        {"visible": torch.ones(5, 7, dtype=torch.bool).tril()},
    ),
    "a scale": ({"scale": 0.7}, {"scale": 0.7}),
    "a negative scale": ({"scale": -0.4}, {"scale": -0.4}),
}
FUNCTIONS = {
    "F.scaled_dot_product_attention": lambda *args, **options: F.scaled_dot_product_attention(
        *args, **options
    ),
    "imported by name": scaled_dot_product_attention,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("mask", MASKS)
def test_every_argument_counts(mask: str, function: str) -> None:
    options, meaning = MASKS[mask]
    query, key, value = factors((2, 4))
    layer = watch_once(Direct(FUNCTIONS[function], options), query, key, value)
    require_close(layer.weights, dense_weights(query, key, **meaning))
    assert layer.output_error is not None
    assert layer.output_error < 1e-6
    assert layer.door == "scaled_dot_product_attention"


LEADS = {"two": (), "three": (3,), "four": (2, 4), "five": (2, 3, 4)}


@pytest.mark.parametrize("mask", ["none", "a table for all", "scores"])
@pytest.mark.parametrize("dimensions", LEADS)
def test_any_number_of_dimensions(dimensions: str, mask: str) -> None:
    options, meaning = MASKS[mask]
    query, key, value = factors(LEADS[dimensions])
    layer = watch_once(Direct(F.scaled_dot_product_attention, options), query, key, value)
    require_close(layer.weights, dense_weights(query, key, **meaning))


def test_mask_for_each_of_three_dimensions() -> None:
    mask = TABLE.expand(2, 3, QUERIES, KEYS).flatten(0, 1)
    query, key, value = factors((6,))
    model = Direct(F.scaled_dot_product_attention, {"attn_mask": mask})
    layer = watch_once(model, query, key, value)
    require_close(layer.weights, dense_weights(query, key, visible=mask))


@pytest.mark.parametrize("mask", ["none", "a table", "scores by head"])
def test_heads_that_share_keys(mask: str) -> None:
    options, meaning = MASKS[mask]
    query, key, value = factors((2, 4), (2, 2))
    model = Direct(F.scaled_dot_product_attention, {"enable_gqa": True, **options})
    layer = watch_once(model, query, key, value)
    repeated = key.repeat_interleave(2, dim=1)
    require_close(layer.weights, dense_weights(query, repeated, **meaning))
    assert key_of(layer.weights).shape[1] == 2


@pytest.mark.parametrize("lead", [(2, 1), (1, 1), (1, 4)])
def test_keys_that_are_spread_to_queries(lead: tuple[int, int]) -> None:
    query, key, value = factors((2, 4), lead)
    layer = watch_once(Direct(F.scaled_dot_product_attention, {}), query, key, value)
    require_close(layer.weights, dense_weights(query, key))
    assert layer.output_error is not None
    assert layer.output_error < 1e-6
    assert key_of(layer.weights).shape[1] == lead[1]


def test_a_query_that_is_spread_to_keys() -> None:
    query, key, value = factors((1, 4), (2, 4))
    layer = watch_once(Direct(F.scaled_dot_product_attention, {}), query, key, value)
    require_close(layer.weights, dense_weights(query.expand(2, -1, -1, -1), key))


def test_dropout_changes_the_output_and_not_the_weights() -> None:
    query, key, value = factors((2, 4))
    model = Direct(F.scaled_dot_product_attention, {"dropout_p": 0.5})
    torch.manual_seed(3)
    alone = model(query, key, value)
    torch.manual_seed(3)
    with heedmap.watch(model) as seen:
        watched = model(query, key, value)
    assert torch.equal(alone, watched)
    require_close(seen[0], dense_weights(query, key))
    assert seen.layer(0).output_error is None


@pytest.mark.parametrize("lengths", [(5, 7, 7), (0, 7, 7), (5, 0, 0)])
def test_empty_sequences(lengths: tuple[int, int, int]) -> None:
    query, key, value = (torch.randn(2, 4, length, 8) for length in lengths)
    layer = watch_once(Direct(F.scaled_dot_product_attention, {}), query, key, value)
    assert layer.weights.shape == (2, 4, *lengths[:2])


def test_what_is_hidden_reaches_nothing() -> None:
    query, key, value = factors((2, 4))
    key[:, :, 5:] = torch.nan
    visible = torch.ones(1, 1, 1, KEYS, dtype=torch.bool)
    visible[..., 5:] = False
    model = Direct(F.scaled_dot_product_attention, {"attn_mask": visible})
    with heedmap.watch(model) as seen:
        model(query, key, value)
    expected = F.pad(dense_weights(query, key[:, :, :5]), (0, 2))
    require_close(seen[0], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    query, key, value = (part.to(dtype) for part in factors((2, 4)))
    layer = watch_once(Direct(F.scaled_dot_product_attention, {}), query, key, value)
    require_close(layer.weights, dense_weights(query, key), torch.finfo(dtype).eps)


def test_autocast_decides_what_the_factors_are() -> None:
    query, key, value = factors((2, 4))
    with torch.autocast("cpu", torch.bfloat16):
        layer = watch_once(Direct(F.scaled_dot_product_attention, {}), query, key, value)
    require_close(layer.weights, dense_weights(query.bfloat16(), key.bfloat16()), 1e-2)
    assert key_of(layer.weights).dtype == torch.bfloat16


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_later_writes_reach_no_map(mode: Callable[[], Any]) -> None:
    mask = torch.where(TABLE, SCORES, LEAST)
    query, key, value = factors((2, 4))
    expected = dense_weights(query, key, visible=TABLE, bias=SCORES)
    model = Direct(F.scaled_dot_product_attention, {"attn_mask": mask})
    with mode(), heedmap.watch(model) as seen:
        model(query, key, value)
        for tensor in (query, key, value, mask):
            tensor.zero_()
    require_close(seen[0], expected)


UNREADABLE: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "scores that are no numbers": (
        lambda x: F.scaled_dot_product_attention(x, x, x, torch.full((5, 5), torch.nan)),
        "bias must hold finite numbers",
    ),
    "a scale that is no number": (
        lambda x: (x @ x.mT * torch.nan).softmax(-1) @ x,
        "scale must be a finite number",
    ),
    "one sample of many": (
        lambda x: torch.vmap(lambda y: F.scaled_dot_product_attention(y, y, y))(x),
        "vmap",
    ),
}


class Step(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.bad_input
@pytest.mark.parametrize("case", UNREADABLE)
def test_what_has_no_weights_is_named_and_does_not_stop_the_model(case: str) -> None:
    function, reason = UNREADABLE[case]
    model = nn.ModuleList([Step(function), Step(lambda x: (x @ x.mT).softmax(-1) @ x)])
    x = factors((2, 4))[0]
    alone = function(x)
    with heedmap.watch(model) as seen:
        watched = model[0](x)
        model[1](x)
    torch.testing.assert_close(alone, watched, rtol=0, atol=0, equal_nan=True)
    assert seen.names == ["1"]
    ((name, told),) = seen.missed
    assert name == "0"
    assert reason in told


class Growing(nn.Module):
    """Attends several times in a pass, under one table that it writes into."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        visible = torch.zeros(1, 1, 6, 6, dtype=torch.bool)
        for end in (2, 4, 6):
            visible[..., :end] |= True
            query = F.scaled_dot_product_attention(query, key, value, visible)
        return query


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_mask_that_is_written_into_between_calls(mode: Callable[[], Any]) -> None:
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    with mode(), heedmap.watch(model := Growing()) as seen:
        model(query, key, value)
    for end, weights in zip((2, 4, 6), seen, strict=True):
        visible = (torch.arange(6) < end).expand(6, 6)
        require_close(weights, dense_weights(query, key, visible=visible))
        query = F.scaled_dot_product_attention(query, key, value, visible)
