"""Small maps to be looked at in the browser."""

import wave
from pathlib import Path

import torch
from torch import Tensor

from heedmap import AttentionMap
from heedmap.axes import Axis
from heedmap.explore.scene import Media, Scene, SceneLayer

WORDS = ["The", "🐈", "cat", "sat", "on", "the", "mat", "because", "the", "cat", "was", "tired"]
SECONDS_PER_POSITION = 0.05


def weights_of(heads: int, queries: int, keys: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(heads, queries, keys, generator=generator)).softmax(-1)


def layer_of(weights: Tensor, axes: tuple[int, int] = (0, 0), name: str = "encoder") -> SceneLayer:
    heads = len(weights)
    labels = ("broad", *([""] * (heads - 1)))
    kind = "self" if axes[0] == axes[1] else "cross"
    names = tuple(str(head) for head in range(heads))
    made = AttentionMap.from_weights(weights)
    return SceneLayer(name, kind, made, *axes, names, labels)


def numbered(weights: Tensor) -> Scene:
    """Return a scene of bare positions."""
    return Scene("numbers", (layer_of(weights),), (Axis.of_positions(weights.shape[-1]),))


def text_scene() -> Scene:
    """Return two layers of three heads over a text with a character beyond the first 65,536."""
    text, offsets = "", []
    for word in WORDS:
        start = len(text) + bool(text)
        text = f"{text} {word}" if text else word
        offsets.append((start, start + len(word)))
    axis = Axis.of_tokens(text, WORDS, offsets)
    size = len(WORDS)
    layers = tuple(
        layer_of(weights_of(3, size, size, seed), name=f"layer.{seed}") for seed in (1, 2)
    )
    media = (Media("text", "text/plain; charset=utf-8", "text", words=text),)
    return Scene("a text", layers, (axis,), "a model", media, notes=("a remark",))


def moments(size: int) -> Axis:
    step = SECONDS_PER_POSITION
    return Axis.of_seconds([(i * step, (i + 1) * step) for i in range(size)])


def sound_scene(folder: Path, size: int = 300) -> Scene:
    """Return one head over a sound, a second of it for every twenty positions."""
    path = folder / "hum.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(round(size * SECONDS_PER_POSITION * 16000)))
    layer = layer_of(weights_of(2, size, size))
    media = (Media("audio", "audio/wav", "hum.wav", path),)
    return Scene("hum.wav", (layer,), (moments(size),), "a model", media)


def cross_scene() -> Scene:
    """Return few tokens that look at many moments."""
    axis = text_scene().axes[0]
    layer = layer_of(weights_of(1, len(WORDS), 700), (0, 1), "decoder.cross")
    return Scene("cross", (layer,), (axis, moments(700)))
