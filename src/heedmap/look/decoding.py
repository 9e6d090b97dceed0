"""What a Whisper model writes down of one window of sound, and where it looks meanwhile."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.models.loaded import AudioModel, Encoded
from heedmap.models.quiet import quiet_transformers
from heedmap.watch import watch

Head = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Heard:
    """One window, written down.

    Attributes:
        tokens: What the decoder was given to begin with and then chose, its end included.
        weights: Where the alignment heads looked, ``[heads, query, key]``: a query for each token
            that another one follows, a key for each position of the encoder.
    """

    tokens: tuple[int, ...]
    weights: Float[Tensor, "heads query key"]


def alignment_heads(model: AudioModel) -> tuple[Head, ...]:
    """Return the layers and heads of the decoder that follow the sound.

    Raises:
        ArgumentError: if the model is not Whisper, is not told which heads these are, or came
            without a tokenizer.
    """
    if model.model.config.model_type != "whisper":
        raise ArgumentError(
            "model must be Whisper to tell when words are spoken; got "
            f"{model.name}, a {model.model.config.model_type} model, which writes down nothing."
        )
    heads = getattr(model.model.generation_config, "alignment_heads", None)
    if not heads:
        raise ArgumentError(
            "model must say in its generation_config.json which are its alignment_heads; got "
            f"{model.name}, which does not. Choose another model."
        )
    if getattr(model.processor, "tokenizer", None) is None:
        raise ArgumentError(
            f"model must come with its tokenizer to write words; got {model.name}, which has none."
        )
    return tuple((layer, head) for layer, head in heads)


def detect_language(model: AudioModel, encoded: Encoded) -> str | None:
    """Return the token of the language that is spoken; None for a model that knows only one."""
    settings = model.model.generation_config
    if not getattr(settings, "is_multilingual", False):
        return None
    with quiet_transformers():
        (token,) = model.model.detect_language(encoder_outputs=model.run(encoded)).tolist()
    (name,) = (name for name, number in settings.lang_to_id.items() if number == token)
    return name


def hear(
    model: AudioModel, encoded: Encoded, heads: tuple[Head, ...], language: str | None = None
) -> Heard:
    """Return what the model writes down of one window, with times, the likeliest token each time.

    The attention is taken while it decodes as ever, on the kernel that it has.

    Args:
        model: A Whisper model.
        encoded: The window.
        heads: The layers and heads whose weights are wanted.
        language: The token of the language, for models that know several.

    Cost: the model; of each layer that has such a head, the queries and one copy of the keys.
    """
    asked = {} if language is None else {"language": language, "task": "transcribe"}
    outputs = model.run(encoded)
    names = {layer: f"model.decoder.layers.{layer}.encoder_attn" for layer, _ in heads}
    with quiet_transformers(), watch(model.model, layers=names.values()) as seen:
        # One call for one window; else what follows the last time would be decoded a second time.
        written = model.model.generate(
            encoder_outputs=outputs,
            return_timestamps=True,
            force_unique_generate_call=True,
            return_dict_in_generate=True,
            num_beams=1,
            do_sample=False,
            **asked,
        )
    maps = {layer: seen[name][0] for layer, name in names.items()}
    weights = torch.stack([maps[layer][head] for layer, head in heads])
    return Heard(tuple(written.sequences[0].tolist()), weights)


def text_of(tokenizer: Any, tokens: list[int]) -> list[str]:
    """Return the text of each token; empty where it ends within a character.

    The first token that completes the character gets it.
    """
    pieces, begun = [], []
    for token in tokens:
        begun.append(token)
        text = tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(begun))
        # What stands for bytes that make no character, at least not yet.
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            text = ""
        else:
            begun = []
        pieces.append(text)
    return pieces
