"""Tiny random models of transformers, one of every kind that attends in its own way."""

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

BATCH, LENGTH, HEADS = 2, 11, 4
IDS = torch.arange(3, 25).reshape(BATCH, LENGTH)
RIGHT = torch.tensor([[1] * 11, [1] * 7 + [0] * 4])
LEFT = torch.tensor([[1] * 11, [0] * 4 + [1] * 7])
NONE = torch.zeros(BATCH, 1, dtype=torch.bool)

PICTURES = torch.linspace(-1, 1, 2 * 3 * 16 * 16).sin().reshape(2, 3, 16, 16)
SOUND = torch.linspace(0, 400, 1200).sin().reshape(2, 600)
SPECTRA = torch.linspace(0, 400, 2 * 80 * 60).sin().reshape(2, 80, 60)

TOKENS = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = TOKENS | {"hidden_size": 32, "intermediate_size": 24}
TEXT |= {"num_hidden_layers": 2, "num_attention_heads": HEADS}
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
TWO_STACKS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "decoder_start_token_id": 1,
}
T5 = TOKENS | {"d_model": 32, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": HEADS}
WHISPER = TOKENS | TWO_STACKS | {"max_source_positions": 30, "max_target_positions": 40}
FRAMES = TEXT | {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8)}
FRAMES |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}

ONE_STACK = (("attentions",),)
ENCODER_DECODER = (("encoder_attentions",), ("decoder_attentions", "cross_attentions"))


def make(class_name: str, implementation: str, **options: Any) -> Any:
    """Return a random model of this class and attention, the same each time."""
    torch.manual_seed(0)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**options)
    model = model_class._from_config(config, attn_implementation=implementation)
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            parameter.data = torch.linspace(-1, 1, HEADS)
    return model.eval()


@dataclass(frozen=True)
class Kind:
    """A model that can be made with several implementations of attention.

    Attributes:
        class_name: Its class in transformers.
        options: Of its configuration.
        inputs: What it is called with.
        names: Of its layers, in the order in which they attend.
        kinds: Of these layers.
        implementations: Those that it runs with on a processor.
        stacks: Where its output has the weights, for each stack of layers.
        blind: Which queries see nothing.
    """

    class_name: str
    options: dict[str, Any]
    inputs: dict[str, Any]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    implementations: tuple[str, ...]
    stacks: tuple[tuple[str, ...], ...] = ONE_STACK
    blind: Tensor = NONE

    def make(self, implementation: str) -> Any:
        """Return the model."""
        return make(self.class_name, implementation, **self.options)

    def weights(self, output: Any) -> list[Any]:
        """Return the weights that an output has, in the order in which the layers attend."""
        return [
            weights
            for stack in self.stacks
            for layer in zip(*(output[name] for name in stack), strict=True)
            for weights in layer
        ]


_READ = {"input_ids": IDS, "attention_mask": RIGHT}
_WRITE = {"input_ids": IDS, "attention_mask": LEFT}

SLOW = ("eager",)
FUSED = ("eager", "sdpa")
ALL = ("eager", "sdpa", "flex_attention")


def _stack(
    class_name: str,
    options: dict[str, Any],
    inputs: dict[str, Any],
    kind: str,
    name: str,
    implementations: tuple[str, ...] = ALL,
    blind: Tensor | None = None,
) -> Kind:
    names = (name.format(0), name.format(1))
    if blind is None:
        # Before a padded text that is read causally there is nothing to see.
        blind = LEFT == 0 if inputs is _WRITE else NONE
    kinds = (kind, kind)
    return Kind(class_name, options, inputs, names, kinds, implementations, ONE_STACK, blind)


def _two_stacks(
    class_name: str,
    options: dict[str, Any],
    inputs: dict[str, Any],
    layers: tuple[str, str, str],
    implementations: tuple[str, ...],
) -> Kind:
    encoder, decoder, cross = layers
    names = [encoder.format(number) for number in range(2)]
    names += [name.format(number) for number in range(2) for name in (decoder, cross)]
    kinds = ("self", "self", "causal", "cross", "causal", "cross")
    return Kind(class_name, options, inputs, tuple(names), kinds, implementations, ENCODER_DECODER)


_TRANSLATE = _READ | {"decoder_input_ids": IDS[:, :5]}
_BART = ("encoder.layers.{}.self_attn", "decoder.layers.{}.self_attn")
_BART_CROSS = "decoder.layers.{}.encoder_attn"

KINDS: dict[str, Kind] = {
    "bert": _stack("BertModel", TEXT, _READ, "self", "encoder.layer.{}.attention.self"),
    "vit": _stack(
        "ViTModel",
        TEXT | {"image_size": 16, "patch_size": 8},
        {"pixel_values": PICTURES},
        "self",
        "layers.{}.attention",
    ),
    "clip text": _stack(
        "CLIPTextModel",
        TEXT | {"max_position_embeddings": 20},
        _READ,
        "causal",
        "encoder.layers.{}.self_attn",
    ),
    "gpt-2": _stack(
        "GPT2Model",
        TOKENS | {"n_embd": 32, "n_layer": 2, "n_head": HEADS},
        _WRITE,
        "causal",
        "h.{}.attn",
        FUSED,
    ),
    "llama": _stack("LlamaModel", GROUPED, _WRITE, "causal", "layers.{}.self_attn"),
    "sliding window": _stack(
        "MistralModel", GROUPED | {"sliding_window": 4}, _WRITE, "causal", "layers.{}.self_attn"
    ),
    "every other layer slides": _stack(
        "Gemma3TextModel",
        GROUPED | SLIDING | {"query_pre_attn_scalar": 8},
        _WRITE,
        "causal",
        "layers.{}.self_attn",
    ),
    "soft-cap": _stack(
        "Gemma2Model",
        GROUPED | SLIDING | {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 8},
        _WRITE,
        "causal",
        "layers.{}.self_attn",
        ("eager", "flex_attention"),
    ),
    "sinks": _stack(
        "GptOssModel",
        GROUPED | SLIDING | {"num_local_experts": 2, "num_experts_per_tok": 1},
        _WRITE,
        "causal",
        "layers.{}.self_attn",
        SLOW,
    ),
    "chunks": _stack(
        "Llama4TextModel",
        GROUPED
        | {"attention_chunk_size": 4, "num_local_experts": 2, "intermediate_size_mlp": 24}
        | {"no_rope_layers": [1, 0]},
        _WRITE,
        "causal",
        "layers.{}.self_attn",
    ),
    "linear biases, baddbmm": _stack(
        "BloomModel",
        TOKENS | {"hidden_size": 32, "n_layer": 2, "n_head": HEADS},
        _WRITE,
        "causal",
        "h.{}.self_attention",
        SLOW,
    ),
    "linear biases, scaled last": _stack(
        "FalconModel",
        TEXT | {"alibi": True, "new_decoder_architecture": False, "multi_query": True},
        _WRITE,
        "causal",
        "h.{}.self_attention",
        SLOW,
    ),
    "linear biases, masked_fill": _stack(
        "MptModel",
        TOKENS | {"d_model": 32, "n_heads": HEADS, "n_layers": 2},
        _WRITE,
        "causal",
        "blocks.{}.attn",
        SLOW,
    ),
    "local layers, where": _stack(
        "GPTNeoModel",
        TOKENS
        | {"hidden_size": 32, "num_layers": 2, "num_heads": HEADS, "window_size": 4}
        | {"attention_types": [[["global", "local"], 1]]},
        _WRITE,
        "causal",
        "h.{}.attn.attention",
        SLOW,
    ),
    "three products": _stack(
        "DebertaV2Model",
        TEXT
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4}
        | {"max_position_embeddings": 20, "norm_rel_ebd": "layer_norm"},
        _READ,
        "self",
        "encoder.layer.{}.attention.self",
        SLOW,
        RIGHT == 0,
    ),
    "sound": _stack(
        "Wav2Vec2Model",
        FRAMES,
        {"input_values": SOUND},
        "self",
        "encoder.layers.{}.attention",
    ),
    "t5": _two_stacks(
        "T5Model",
        T5,
        _TRANSLATE,
        (
            "encoder.block.{}.layer.0.SelfAttention",
            "decoder.block.{}.layer.0.SelfAttention",
            "decoder.block.{}.layer.1.EncDecAttention",
        ),
        FUSED,
    ),
    "bart": _two_stacks(
        "BartModel",
        TOKENS | TWO_STACKS | {"max_position_embeddings": 20},
        _TRANSLATE,
        (*_BART, _BART_CROSS),
        ALL,
    ),
    "whisper": _two_stacks(
        "WhisperModel",
        WHISPER,
        {"input_features": SPECTRA, "decoder_input_ids": IDS[:, :5]},
        (*_BART, _BART_CROSS),
        ALL,
    ),
}
