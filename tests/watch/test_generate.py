"""Decoding, watched: the steps of a layer are one map, that of a single pass over the same text."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap.errors import ArgumentError
from heedmap.seen import Seen

from .models import GROUPED, HEADS, IDS, LEFT, RIGHT, SLIDING, SPECTRA, T5, TOKENS, WHISPER, make
from .models import TWO_STACKS as STACKS

STEPS = 20
ASKED = {
    "max_new_tokens": STEPS,
    "min_new_tokens": STEPS,
    "do_sample": False,
    "return_dict_in_generate": True,
}
PROMPT = {"input_ids": IDS, "attention_mask": LEFT}
SOURCE = {"input_ids": IDS, "attention_mask": RIGHT}


@dataclass(frozen=True)
class Writer:
    """A model that decodes.

    Attributes:
        class_name: Its class in transformers.
        options: Of its configuration.
        inputs: What it goes on from.
        implementations: Those that are tried.
    """

    class_name: str
    options: dict[str, Any]
    inputs: dict[str, Tensor]
    implementations: tuple[str, ...] = ("sdpa", "eager")

    def make(self, implementation: str) -> Any:
        """Return the model."""
        return make(self.class_name, implementation, **self.options)

    @property
    def translates(self) -> bool:
        """Whether it has an encoder and a decoder."""
        return self.inputs is not PROMPT


SMALL_GPT2 = TOKENS | {"n_embd": 32, "n_layer": 2, "n_head": HEADS, "tie_word_embeddings": False}
WRITERS: dict[str, Writer] = {
    "gpt-2": Writer("GPT2LMHeadModel", SMALL_GPT2, PROMPT),
    "llama": Writer("LlamaForCausalLM", GROUPED, PROMPT),
    "sliding window": Writer("MistralForCausalLM", GROUPED | {"sliding_window": 4}, PROMPT),
    "every other layer slides": Writer(
        "Gemma3ForCausalLM", GROUPED | SLIDING | {"query_pre_attn_scalar": 8}, PROMPT
    ),
    "soft-cap": Writer(
        "Gemma2ForCausalLM",
        GROUPED | SLIDING | {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 8},
        PROMPT,
        ("eager",),
    ),
    "sinks": Writer(
        "GptOssForCausalLM",
        GROUPED | SLIDING | {"num_local_experts": 2, "num_experts_per_tok": 1},
        PROMPT,
        ("eager",),
    ),
    "t5": Writer("T5ForConditionalGeneration", T5, SOURCE),
    "bart": Writer(
        "BartForConditionalGeneration",
        TOKENS | STACKS | {"max_position_embeddings": 40, "forced_eos_token_id": None},
        SOURCE,
    ),
    "whisper": Writer("WhisperForConditionalGeneration", WHISPER, {"input_features": SPECTRA}),
}
CASES = [
    (name, way, cache)
    for name, writer in WRITERS.items()
    for way in writer.implementations
    for cache in ("dynamic", "static")
]
CASES += [(name, "flex_attention", "dynamic") for name in ("llama", "every other layer slides")]
CASES_IN_MODES = [(*case, torch.no_grad) for case in CASES]
# Where no version tells that a cache was written into.
CASES_IN_MODES += [
    (name, "sdpa", "static", torch.inference_mode)
    for name in ("llama", "sliding window", "every other layer slides", "t5", "whisper")
]


def one_pass(writer: Writer, sequences: Tensor, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the weights that the slow path gives for a text that is there already."""
    model, text = writer.make("eager"), sequences[:, :-1]
    with torch.no_grad():
        if writer.translates:
            out = model(**inputs, decoder_input_ids=text, output_attentions=True)
            layers = zip(out.decoder_attentions, out.cross_attentions, strict=True)
            return [*out.encoder_attentions, *(weights for layer in layers for weights in layer)]
        mask = inputs["attention_mask"]
        mask = torch.cat([mask, mask.new_ones(len(mask), text.shape[1] - mask.shape[1])], dim=1)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        out = model(text, attention_mask=mask, position_ids=places, output_attentions=True)
        return list(out.attentions)


def require(seen: Seen, expected: list[Tensor], rows: slice | Tensor = slice(None)) -> None:
    assert len(seen) == len(expected)
    for layer, dense in zip(seen.layers, expected, strict=True):
        got = layer.weights.to_dense()[rows]
        assert got.shape == dense.shape
        live = got.sum(-1) > 0
        torch.testing.assert_close(got[live], dense[live], atol=2e-6, rtol=0)
        # What sees nothing in the padding before a text sees itself at most on the slow path.
        assert bool(live[:, :, -STEPS + 1 :].all())


@pytest.mark.usefixtures("flex_without_compiler")
@pytest.mark.parametrize(("name", "implementation", "cache", "mode"), CASES_IN_MODES)
def test_the_steps_are_one_map(name: str, implementation: str, cache: str, mode: Any) -> None:
    writer = WRITERS[name]
    model = writer.make(implementation)
    asked = ASKED | {"cache_implementation": cache}
    with mode():
        alone = model.generate(**writer.inputs, **asked).sequences
        with heedmap.watch(model) as seen:
            watched = model.generate(**writer.inputs, **asked).sequences
    assert torch.equal(alone, watched)
    require(seen, one_pass(writer, watched, writer.inputs))
    for layer in seen.layers:
        assert layer.kept == "factors"
        assert layer.calls == (1 if "encoder" in layer.name.split(".") else STEPS)
        assert layer.output_error is not None
        assert layer.output_error < 1e-6


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "sliding window", "t5", "whisper"])
def test_beams(name: str, cache: str) -> None:
    writer = WRITERS[name]
    model = writer.make("sdpa")
    asked = ASKED | {"cache_implementation": cache, "num_beams": 3, "output_scores": True}
    with torch.no_grad():
        alone = model.generate(**writer.inputs, **asked).sequences
        with heedmap.watch(model) as seen:
            out = model.generate(**writer.inputs, **asked)
    assert torch.equal(alone, out.sequences)
    expected = one_pass(writer, out.sequences, writer.inputs)
    decoder = [layer.calls > 1 for layer in seen.layers]
    expected = [dense for dense, chosen in zip(expected, decoder, strict=True) if chosen]
    require(seen.along(out.beam_indices), expected)
    last = out.beam_indices[:, STEPS - 1]
    for place, dense in zip([i for i, x in enumerate(decoder) if x], expected, strict=True):
        got = seen[place].to_dense()[last]
        live = got.sum(-1) > 0
        torch.testing.assert_close(got[live], dense[live], atol=2e-6, rtol=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["llama", "every other layer slides"])
def test_a_static_cache_used_again_does_not_change_what_was_seen(name: str, mode: Any) -> None:
    from transformers import StaticCache

    writer = WRITERS[name]
    model = writer.make("sdpa")
    other = {"input_ids": IDS.flip(0, 1), "attention_mask": LEFT}
    with mode():
        cache = StaticCache(config=model.config, max_cache_len=IDS.shape[1] + STEPS)
        with heedmap.watch(model) as seen:
            first = model.generate(**writer.inputs, **ASKED, cache=cache).sequences
            cache.reset()
            second = model.generate(**other, **ASKED, cache=cache).sequences
    layers = list(dict.fromkeys(seen.names))
    assert len(seen) == 2 * len(layers)
    for number, (text, inputs) in enumerate([(first, writer.inputs), (second, other)]):
        for name_of_layer, dense in zip(layers, one_pass(writer, text, inputs), strict=True):
            got = seen[name_of_layer, number].to_dense()
            live = got.sum(-1) > 0
            torch.testing.assert_close(got[live], dense[live], atol=2e-6, rtol=0)


def test_one_long_sequence_in_parts() -> None:
    writer = WRITERS["llama"]
    model = writer.make("sdpa")
    with torch.no_grad(), heedmap.watch(model) as seen:
        cache = None
        for part in IDS[:1].split([5, 1, 4, 1], dim=1):
            cache = model(part, cache=cache, use_cache=True).past_key_values
    with torch.no_grad():
        expected = writer.make("eager")(IDS[:1], output_attentions=True).attentions
    assert len(seen) == 2
    for weights, dense in zip(seen, expected, strict=True):
        torch.testing.assert_close(weights.to_dense(), dense, atol=1e-6, rtol=0)
    assert [layer.kind for layer in seen.layers] == ["causal"] * 2


@pytest.mark.parametrize("penalty", [-1.0, 1.0])
def test_beams_that_end_early(penalty: float) -> None:
    model = WRITERS["gpt-2"].make("sdpa")
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    asked = {"max_new_tokens": STEPS, "do_sample": False, "return_dict_in_generate": True}
    asked |= {"num_beams": 3, "output_scores": True, "length_penalty": penalty}
    asked["eos_token_id"] = list(range(3, 40, 3))
    with heedmap.watch(model) as seen:
        out = model.generate(**inputs, **asked)
    steps = out.beam_indices.shape[1]
    assert steps < seen.layers[0].calls
    ended = seen.along(out.beam_indices)
    with heedmap.watch(model) as whole:
        model(out.sequences[:, :-1])
    for along, expected, layer in zip(ended, whole, ended.layers, strict=True):
        assert along.shape == expected.shape
        assert layer.calls == steps
        for sample, rows in enumerate((out.beam_indices >= 0).sum(1) - 1 + IDS.shape[1]):
            pair = along[sample, :, :rows], expected[sample, :, :rows]
            torch.testing.assert_close(*(w.to_dense() for w in pair), atol=1e-6, rtol=0)


def test_beams_of_two_decodings_are_not_told_apart() -> None:
    model = WRITERS["gpt-2"].make("sdpa")
    asked = PROMPT | ASKED | {"num_beams": 3, "output_scores": True}
    with heedmap.watch(model) as seen:
        model.generate(**asked)
        out = model.generate(**asked)
    with pytest.raises(
        ArgumentError, match="the only decoding that was watched; got 2 decodings of tr"
    ):
        seen.along(out.beam_indices)
