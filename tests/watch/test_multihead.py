"""`nn.MultiheadAttention` in every form, watched, against the weights that it returns itself."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heedmap

BATCH, QUERIES, KEYS, WIDTH, HEADS = 2, 5, 7, 16, 4
PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
HIDDEN = torch.ones(QUERIES, KEYS, dtype=torch.bool).triu(3)
BY_HEAD = torch.rand(BATCH * HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) > 0.7
BY_HEAD[..., 0] = False
SCORES = torch.linspace(-2, 2, QUERIES * KEYS).sin().reshape(QUERIES, KEYS)
INFINITE = torch.zeros(QUERIES, KEYS).masked_fill(HIDDEN, -torch.inf)

MODULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "no biases": {"bias": False},
    "other widths of key and value": {"kdim": 6, "vdim": 3},
    "a further key": {"add_bias_kv": True},
    "a further key of zeros": {"add_zero_attn": True},
    "both further keys": {"add_bias_kv": True, "add_zero_attn": True},
}
CALLS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "padding": {"key_padding_mask": PADDING},
    "padding as scores": {
        "key_padding_mask": torch.zeros(BATCH, KEYS).masked_fill(PADDING, -torch.inf)
    },
    "a mask": {"attn_mask": HIDDEN},
    "a mask for each head": {"attn_mask": BY_HEAD},
    "scores": {"attn_mask": SCORES},
    "infinite scores": {"attn_mask": INFINITE},
    "scores for each head": {"attn_mask": torch.where(BY_HEAD, -torch.inf, SCORES)},
    "padding and a mask": {"key_padding_mask": PADDING, "attn_mask": HIDDEN},
    "padding as scores, and scores": {
        "key_padding_mask": torch.zeros(BATCH, KEYS).masked_fill(PADDING, -torch.inf),
        "attn_mask": SCORES,
    },
}


def make(*, batch_first: bool, **options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first, **options)


def inputs(module: nn.MultiheadAttention, *, batched: bool = True) -> list[Tensor]:
    torch.manual_seed(1)
    sizes = (QUERIES, WIDTH), (KEYS, module.kdim), (KEYS, module.vdim)
    tensors = [torch.randn(BATCH, *size) for size in sizes]
    if not batched:
        return [tensor[0] for tensor in tensors]
    return tensors if module.batch_first else [tensor.transpose(0, 1) for tensor in tensors]


def require_same(one: Any, other: Any) -> None:
    for first, second in zip(one, other, strict=True):
        assert (first is None) == (second is None)
        assert first is None or torch.equal(first, second)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("options", MODULES)
def test_two_sequences(options: str, call: str, batch_first: bool, need_weights: bool) -> None:
    module = make(batch_first=batch_first, **MODULES[options]).eval()
    given, asked = inputs(module), CALLS[call]
    _, expected = module(*given, average_attn_weights=False, **asked)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            alone = module(*given, need_weights=need_weights, **asked)
            with heedmap.watch(module) as seen:
                watched = module(*given, need_weights=need_weights, **asked)
            after = module(*given, need_weights=need_weights, **asked)
        require_same(alone, watched)
        require_same(alone, after)
        torch.testing.assert_close(seen[""].to_dense(), expected, atol=1e-6, rtol=0)
        layer = seen.layer("")
        assert layer.kind == "cross"
        assert layer.output_error is None or layer.output_error < 1e-6


SELF_CALLS = {
    name: {key: mask[..., :QUERIES].contiguous() for key, mask in call.items()}
    for name, call in CALLS.items()
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("call", SELF_CALLS)
def test_one_sequence(call: str, batch_first: bool, training: bool, need_weights: bool) -> None:
    module = make(batch_first=batch_first).train(training)
    asked = SELF_CALLS[call]
    x = inputs(module)[0]
    _, expected = module(x, x, x, average_attn_weights=False, **asked)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            alone = module(x, x, x, need_weights=need_weights, **asked)
            with heedmap.watch(module) as seen:
                watched = module(x, x, x, need_weights=need_weights, **asked)
        require_same(alone, watched)
        torch.testing.assert_close(seen[""].to_dense(), expected, atol=1e-6, rtol=0)
        assert seen.layer("").kind in ("self", "causal")


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", MODULES)
def test_without_a_batch(options: str, need_weights: bool) -> None:
    module = make(batch_first=True, **MODULES[options]).eval()
    given = inputs(module, batched=False)
    asked = {"attn_mask": BY_HEAD[:HEADS], "key_padding_mask": PADDING[1]}
    _, expected = module(*given, average_attn_weights=False, **asked)
    with torch.no_grad(), heedmap.watch(module) as seen:
        module(*given, need_weights=need_weights, **asked)
    assert seen[""].shape == expected.shape
    torch.testing.assert_close(seen[""].to_dense(), expected, atol=1e-6, rtol=0)


def test_a_row_that_sees_nothing_is_zero_and_the_output_is_the_modules() -> None:
    module = make(batch_first=True).eval()
    x, nothing = inputs(module)[0], torch.ones(BATCH, QUERIES, dtype=torch.bool)
    nothing[1] = False
    for need_weights in (True, False):
        for mode in (torch.no_grad, torch.enable_grad):
            with mode():
                alone = module(x, x, x, key_padding_mask=nothing, need_weights=need_weights)
                with heedmap.watch(module) as seen:
                    watched = module(x, x, x, key_padding_mask=nothing, need_weights=need_weights)
            torch.testing.assert_close(alone, watched, rtol=0, atol=0, equal_nan=True)
            rows = seen[""].to_dense().sum(-1)
            torch.testing.assert_close(
                rows, torch.tensor([0.0, 1.0])[:, None, None].expand_as(rows)
            )


def test_weights_before_dropout() -> None:
    module = make(batch_first=True, dropout=0.5)
    given = inputs(module)
    _, expected = module.eval()(*given, average_attn_weights=False)
    for need_weights in (True, False):
        module.train()
        torch.manual_seed(3)
        alone = module(*given, need_weights=need_weights)
        torch.manual_seed(3)
        with heedmap.watch(module) as seen:
            watched = module(*given, need_weights=need_weights)
        require_same(alone, watched)
        torch.testing.assert_close(seen[""].to_dense(), expected, atol=1e-6, rtol=0)
        assert seen.layer("").output_error is None
