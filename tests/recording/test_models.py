"""What was seen of models is the same when it is opened."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention import flex_attention

import heedmap
from heedmap import Seen, Summary
from heedmap.masks import Spans

from .makers import assert_equal, assert_same, draw

IDS = torch.arange(3, 25).reshape(2, 11)
RIGHT = torch.tensor([[1] * 11, [1] * 7 + [0] * 4])
TEXT = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
STACK = {"hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2}
STACK |= {"num_attention_heads": 4}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 4}
SINKS = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "sliding_window": 4,
}

MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Tensor]]] = {
    "bert": ("BertModel", STACK, {"attention_mask": RIGHT}),
    "llama": (
        "LlamaForCausalLM",
        STACK | {"num_key_value_heads": 2},
        {"attention_mask": RIGHT.flip(1)},
    ),
    "t5": ("T5Model", T5, {"attention_mask": RIGHT, "decoder_input_ids": IDS[:, :5]}),
    "sinks and windows": ("GptOssModel", STACK | SINKS, {"attention_mask": RIGHT.flip(1)}),
}


def make(name: str, implementation: str) -> tuple[Any, dict[str, Tensor]]:
    """Return a tiny random model and what it is called with."""
    class_name, options, inputs = MODELS[name]
    torch.manual_seed(0)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**TEXT, **options)
    model = model_class._from_config(config, attn_implementation=implementation)
    return model.eval(), {"input_ids": IDS} | inputs


def watched(model: nn.Module, run: Callable[[Any], Any], **options: Any) -> Seen:
    with torch.no_grad(), heedmap.watch(model, **options) as seen:
        run(model)
    return seen


CASES = [(name, way) for name in MODELS for way in ("eager", "sdpa")]
CASES.remove(("sinks and windows", "sdpa"))


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_models(name: str, implementation: str, tmp_path: Path) -> None:
    model, inputs = make(name, implementation)
    seen = watched(model, lambda model: model(**inputs))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert_same(opened, seen)
    assert opened.check().ok


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}])
def test_generating(options: dict[str, Any], tmp_path: Path) -> None:
    model, inputs = make("llama", "sdpa")
    limits = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None}
    seen = watched(model, lambda model: model.generate(**inputs, **limits, **options))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert_same(opened, seen)
    assert opened.layer(0).calls == 9


def test_layers_of_torch(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    hidden = torch.arange(7) >= torch.tensor([[7], [4]])
    seen = watched(model, lambda model: model(draw(2, 7, 8), src_key_padding_mask=hidden))
    seen.save(tmp_path / "seen")
    assert_same(heedmap.open(tmp_path / "seen"), seen)


def test_chosen_layers_heads_and_queries(tmp_path: Path) -> None:
    model, inputs = make("bert", "sdpa")
    some = {"layers": 0, "heads": [3, 1], "queries": slice(-3, None)}
    seen = watched(model, lambda model: model(**inputs), **some)
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert_same(opened, seen)
    assert opened[1] is None


def test_summaries_made_while_a_model_runs(tmp_path: Path) -> None:
    model, inputs = make("bert", "sdpa")
    seen = watched(model, lambda model: model(**inputs), keep=Summary(top=2))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert_same(opened, seen)
    assert_equal(opened[1].top_keys, seen[1].top_keys)


def test_with_gradients(tmp_path: Path) -> None:
    model, inputs = make("bert", "sdpa")
    with heedmap.watch(model, grad=True) as seen:
        model(**inputs)
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert not opened[0].requires_grad
    assert_equal(opened[0].to_dense(), seen[0].detach().to_dense())


def in_blocks(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch, head
    return (query // 4 == key // 4) & (key != 5)


def test_flex_attention(tmp_path: Path) -> None:
    class Plain(nn.Module):
        def forward(self, hidden: Tensor) -> Tensor:
            sizes = {"B": None, "H": None, "Q_LEN": 300, "KV_LEN": 300, "device": "cpu"}
            blocks = flex_attention.create_block_mask(in_blocks, **sizes)
            return flex_attention.flex_attention(hidden, hidden, hidden, block_mask=blocks)

    # PyTorch says once in a process that this is slow.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        seen = watched(Plain(), lambda model: model(draw(1, 2, 300, 16)))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert isinstance(opened[0]._rule.problem.mask, Spans)
    torch.testing.assert_close(opened[0].to_dense(), seen[0].to_dense(), rtol=0, atol=1e-6)
