"""Captured weights against those that the models hand out on their slow path."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    WhisperConfig,
    WhisperModel,
)

from heedmap.errors import ModelError
from heedmap.watch import capture

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
SMALL |= {"intermediate_size": 24}
IDS = torch.arange(22).reshape(2, 11)
RIGHT_PADDED = torch.tensor([[1] * 11, [1] * 7 + [0] * 4])


def bert(implementation: str) -> Any:
    return BertModel(BertConfig(**SMALL, attn_implementation=implementation))


def gpt2(implementation: str) -> Any:
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50)
    config._attn_implementation = implementation
    return GPT2Model(config)


def llama(implementation: str) -> Any:
    config = LlamaConfig(**SMALL, num_key_value_heads=2)
    config._attn_implementation = implementation
    return LlamaModel(config)


def whisper(implementation: str) -> Any:
    config = WhisperConfig(
        vocab_size=60,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=30,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=1,
    )
    config._attn_implementation = implementation
    return WhisperModel(config)


def pair(make: Callable[[str], Any]) -> tuple[Any, Any]:
    """Return a model with fused attention and its twin with the slow one."""
    torch.manual_seed(0)
    fused = make("sdpa").eval()
    slow = make("eager").eval()
    slow.load_state_dict(fused.state_dict())
    return fused, slow


TEXT_MODELS = {"bert": bert, "gpt2": gpt2, "llama": llama}
PADDING = {"none": None, "padded": RIGHT_PADDED}


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", TEXT_MODELS)
def test_weights_are_those_of_the_slow_path(name: str, padding: str) -> None:
    fused, slow = pair(TEXT_MODELS[name])
    inputs = {"input_ids": IDS, "attention_mask": PADDING[padding]}
    with torch.no_grad(), capture(fused) as calls:
        fused(**inputs)
    with torch.no_grad():
        expected = slow(**inputs, output_attentions=True).attentions
    assert len(calls) == len(expected) == 2
    for call, weights in zip(calls, expected, strict=True):
        torch.testing.assert_close(call.weights.to_dense(), weights, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_output_is_equal_to_the_bit(name: str) -> None:
    model, _ = pair(TEXT_MODELS[name])
    inputs = {"input_ids": IDS, "attention_mask": RIGHT_PADDED}
    with torch.no_grad():
        alone = model(**inputs).last_hidden_state
        with capture(model):
            watched = model(**inputs).last_hidden_state
        after = model(**inputs).last_hidden_state
    assert torch.equal(alone, watched)
    assert torch.equal(alone, after)


def test_encoder_decoder_and_cross_attention() -> None:
    fused, slow = pair(whisper)
    torch.manual_seed(1)
    inputs = {"input_features": torch.randn(1, 80, 60), "decoder_input_ids": torch.arange(5)[None]}
    with torch.no_grad(), capture(fused) as calls:
        output = fused(**inputs).last_hidden_state
    with torch.no_grad():
        assert torch.equal(output, fused(**inputs).last_hidden_state)
        seen = slow(**inputs, output_attentions=True)
    names = [call.name for call in calls]
    assert names == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.encoder_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.encoder_attn",
    ]
    expected = [*seen.encoder_attentions]
    for own, cross in zip(seen.decoder_attentions, seen.cross_attentions, strict=True):
        expected += [own, cross]
    for call, weights in zip(calls, expected, strict=True):
        torch.testing.assert_close(call.weights.to_dense(), weights, atol=1e-6, rtol=0)


class Direct(nn.Module):
    """Attention with whatever arguments a test gives."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key, **self.options)


def weights_of(*, query: Tensor, key: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return output and captured weights · key, which must be the same."""
    model = Direct(**options)
    with capture(model) as calls:
        output = model(query, key)
    repeated = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    return output, calls[0].weights @ repeated


MASKS = {
    "bool": {"attn_mask": torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) > 0.3},
    "bool of two dimensions": {"attn_mask": torch.ones(5, 7, dtype=torch.bool).tril(2)},
    "heads first": {"attn_mask": torch.linspace(-1, 1, 4 * 35).reshape(4, 5, 7)},
    "scores": {"attn_mask": torch.linspace(-2, 2, 35).reshape(1, 1, 5, 7)},
    "minus infinity": {"attn_mask": torch.full((5, 7), -torch.inf).triu(3)},
    "least number": {"attn_mask": torch.full((5, 7), torch.finfo(torch.float32).min).triu(3)},
    "causal from the start": {"is_causal": True},
    "scale": {"scale": 0.7},
}


@pytest.mark.parametrize("case", MASKS)
def test_every_argument_of_the_call_counts(case: str) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8)
    output, product = weights_of(query=query, key=key, **MASKS[case])
    torch.testing.assert_close(product, output, atol=1e-6, rtol=0)


def test_heads_that_share_keys() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 6, 5, 8).double(), torch.randn(2, 2, 7, 8).double()
    output, product = weights_of(query=query, key=key, enable_gqa=True)
    torch.testing.assert_close(product, output, atol=1e-12, rtol=0)


def test_hidden_by_the_least_number_is_exactly_zero() -> None:
    mask = torch.zeros(1, 1, 3, 3)
    mask[..., 2] = torch.finfo(torch.float32).min
    model = Direct(attn_mask=mask)
    with capture(model) as calls:
        model(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
    weights = calls[0].weights[0, 0].to_dense()
    assert weights[:, 2].tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(weights[:, :2], torch.full((3, 2), 0.5))


def test_later_writes_do_not_reach_the_weights() -> None:
    model, key = Direct(), torch.tensor([[[[0.0], [5.0]]]])
    with capture(model) as calls:
        model(torch.ones(1, 1, 2, 1), key)
        key.zero_()
    assert calls[0].weights[0, 0, 0, 1] > 0.9


class Fragile(nn.Module):
    """Raises on its way once, and is then asked again by the module around it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.raising = Direct(), nn.Identity()
        self.raising.register_forward_pre_hook(self._fail)

    def _fail(self, *_: Any) -> None:
        raise ValueError("on purpose")

    def forward(self, x: Tensor) -> Tensor:
        try:
            self.raising(x)
        except ValueError:
            return self.inner(x, x)
        raise AssertionError


def test_names_stay_in_step_after_an_error_within() -> None:
    model = Fragile()
    with capture(model) as calls:
        model(torch.ones(1, 1, 2, 3))
    assert [call.name for call in calls] == ["inner"]


def test_hooks_are_gone_afterwards_even_after_an_error() -> None:
    model = Direct()

    def run() -> None:
        with capture(model):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


@pytest.mark.bad_input
@pytest.mark.parametrize("model", [nn.Linear(2, 2), bert("eager")])
def test_a_model_that_makes_no_such_call_is_named(model: Any) -> None:
    def run() -> None:
        with capture(model):
            model(IDS) if isinstance(model, BertModel) else model(torch.ones(1, 2))

    with pytest.raises(ModelError, match=f"got {type(model).__name__}, which made no such call"):
        run()
