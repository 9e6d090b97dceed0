"""`output_attentions=True` within a watch: maps, on whatever the model attends with."""

import logging
from typing import Any

import pytest
import torch

import heedmap
from heedmap import AttentionMap

from .models import GROUPED, IDS, KINDS, LEFT, RIGHT, SPECTRA, T5, WHISPER, make
from .test_models import require_weights, same

CASES = [(name, "sdpa") for name, kind in KINDS.items() if "sdpa" in kind.implementations]
CASES += [(name, "flex_attention") for name in ("llama", "soft-cap", "bart")]


@pytest.mark.usefixtures("flex_without_compiler")
@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_outputs_hold_maps_and_the_model_stays_as_it_is(name: str, implementation: str) -> None:
    kind = KINDS[name]
    model = kind.make(implementation)
    with torch.no_grad():
        alone = model(**kind.inputs)
        with heedmap.watch(model) as seen:
            asked = model(**kind.inputs, output_attentions=True)
        after = model(**kind.inputs)
        slow = kind.make("eager")(**kind.inputs, output_attentions=True)
    found = kind.weights(asked)
    assert all(isinstance(weights, AttentionMap) for weights in found)
    require_weights(kind, found, kind.weights(slow))
    assert [layer.calls for layer in seen.layers] == [1] * len(found)
    for stack in kind.stacks:
        for field in stack:
            assert isinstance(asked[field], tuple)
    assert same(alone, asked)
    assert same(alone, after)
    assert model.config._attn_implementation == implementation


def test_the_model_does_not_say_that_it_cannot(caplog: pytest.LogCaptureFixture) -> None:
    from transformers.utils import logging as told

    told.logging.getLogger("transformers").propagate = True
    told.warning_once.cache_clear()
    model = KINDS["bert"].make("sdpa")
    with torch.no_grad(), heedmap.watch(model), caplog.at_level(logging.WARNING):
        model(**KINDS["bert"].inputs, output_attentions=True)
    assert "does not support" not in caplog.text


def test_maps_last_longer_than_the_watch() -> None:
    kind = KINDS["llama"]
    model = kind.make("sdpa")
    with torch.no_grad(), heedmap.watch(model) as seen:
        output = model(**kind.inputs, output_attentions=True)
    torch.testing.assert_close(output.attentions[1].to_dense(), seen[1].to_dense())


def test_without_being_asked_a_model_gives_none() -> None:
    kind = KINDS["llama"]
    model = kind.make("sdpa")
    with torch.no_grad(), heedmap.watch(model):
        output = model(**kind.inputs)
    assert output.attentions is None


STEPS = 4


def decoders() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    text = {"input_ids": IDS, "attention_mask": LEFT}
    return {
        "one stack": ("LlamaForCausalLM", GROUPED, text),
        "two stacks": (
            "T5ForConditionalGeneration",
            T5,
            {"input_ids": IDS, "attention_mask": RIGHT},
        ),
        "sound": ("WhisperForConditionalGeneration", WHISPER, {"input_features": SPECTRA}),
    }


FIELDS = ("attentions", "decoder_attentions", "cross_attentions")


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", decoders())
def test_generate_gives_maps_by_step_and_layer(name: str, cache: str) -> None:
    class_name, options, inputs = decoders()[name]
    asking = {
        "max_new_tokens": STEPS,
        "min_new_tokens": STEPS,
        "do_sample": False,
        "output_attentions": True,
        "return_dict_in_generate": True,
        "cache_implementation": cache,
    }
    model, slow = (make(class_name, way, **options) for way in ("sdpa", "eager"))
    with torch.no_grad(), heedmap.watch(model):
        found = model.generate(**inputs, **asking)
    with torch.no_grad():
        expected = slow.generate(**inputs, **asking)
    assert torch.equal(found.sequences, expected.sequences)
    assert model.config._attn_implementation == "sdpa"
    compared = 0
    for field in FIELDS:
        if not expected.get(field):
            continue
        assert len(found[field]) == len(expected[field]) == STEPS
        for step, dense_step in zip(found[field], expected[field], strict=True):
            for weights, dense in zip(step, dense_step, strict=True):
                assert isinstance(weights, AttentionMap)
                got, live = weights.to_dense(), weights.sum(-1) > 0
                dense = dense[..., : got.shape[-1]]
                torch.testing.assert_close(got[live], dense[live], atol=1e-6, rtol=0)
                compared += 1
    assert compared == STEPS * 2 * (1 if name == "one stack" else 2)
