"""From a sound to what an audio model is fed: a window for Whisper, everything for wav2vec 2.0."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import DTypeError, InputError, ShapeError
from heedmap.models.loaded import EncodeAudio, Encoded

SAMPLE_RATE_HZ = 16_000


def whisper_encoder(extractor: Any, positions: int) -> EncodeAudio:
    """Return what encodes one window of sound for a Whisper model of so many encoder positions."""
    window = extractor.n_samples
    position_samples = window // positions

    def encode(samples: Float[Tensor, "samples"], *, start_seconds: float = 0.0) -> Encoded:
        rest = _from_start(samples, start_seconds)
        taken = rest[:window]
        features = extractor(taken.numpy(), sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
        valid = math.ceil(len(taken) / position_samples)
        axis = _axis(start_seconds, valid, position_samples, len(taken))
        notes = []
        if len(taken) < len(samples):
            end_seconds = start_seconds + len(taken) / SAMPLE_RATE_HZ
            notes.append(
                f"the model takes {window / SAMPLE_RATE_HZ:g} s at a time: this is "
                f"{start_seconds:.2f} s to {end_seconds:.2f} s of "
                f"{len(samples) / SAMPLE_RATE_HZ:.2f} s"
            )
        if valid < positions:
            notes.append(
                f"the sound fills the first {valid} of the model's {positions} positions; it also "
                "looks at the silence after them"
            )
        return Encoded(
            {"input_features": features["input_features"]}, axis, positions, tuple(notes)
        )

    return encode


def wave_encoder(extractor: Any, kernels: list[int], strides: list[int]) -> EncodeAudio:
    """Return what encodes a whole sound for a model that begins with these convolutions."""
    position_samples = math.prod(strides)
    shortest = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        shortest = (shortest - 1) * stride + kernel

    def encode(samples: Float[Tensor, "samples"], *, start_seconds: float = 0.0) -> Encoded:
        rest = _from_start(samples, start_seconds)
        if len(rest) < shortest:
            raise InputError(
                f"samples must last at least {shortest / SAMPLE_RATE_HZ:g} s for this model; got "
                f"{len(rest) / SAMPLE_RATE_HZ:g} s."
            )
        values = extractor(rest.numpy(), sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
        valid = (len(rest) - shortest) // position_samples + 1
        axis = _axis(start_seconds, valid, position_samples, len(rest))
        return Encoded({"input_values": values["input_values"]}, axis, valid)

    return encode


def _from_start(samples: Float[Tensor, "samples"], start_seconds: float) -> Float[Tensor, "rest"]:
    """Return the checked sound from a moment on, as float32 in main memory."""
    if samples.ndim != 1:
        raise ShapeError(
            f"samples must be one row, [samples]; got {tuple(samples.shape)}. "
            "Choose or mix the channels first."
        )
    if not samples.is_floating_point():
        raise DTypeError(f"samples must be floating point, −1 to 1; got {samples.dtype}.")
    if not len(samples):
        raise InputError("samples must hold some sound; got none.")
    if not bool(torch.isfinite(samples).all()):
        raise InputError("samples must be finite; got NaN or infinity.")
    duration_seconds = len(samples) / SAMPLE_RATE_HZ
    start = round(start_seconds * SAMPLE_RATE_HZ) if math.isfinite(start_seconds) else -1
    if not 0 <= start < len(samples):
        raise InputError(
            f"start_seconds must lie in the sound, from 0 to {duration_seconds:g}; "
            f"got {start_seconds:g}."
        )
    return samples[start:].detach().cpu().float()


def _axis(start_seconds: float, count: int, position_samples: int, samples: int) -> Axis:
    """Return the axis of positions, of which the last ends with the sound."""
    ends = [min((i + 1) * position_samples, samples) for i in range(count)]
    return Axis.of_seconds(
        (
            start_seconds + i * position_samples / SAMPLE_RATE_HZ,
            start_seconds + end / SAMPLE_RATE_HZ,
        )
        for i, end in enumerate(ends)
    )
