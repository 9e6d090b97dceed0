"""A loaded model with what it takes to feed it: from a text or a sound to tensors and an `Axis`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Axis


@dataclass(frozen=True)
class Encoded:
    """What a model is fed, and what the positions of its attention are.

    Attributes:
        inputs: Tensors by the names that the model's forward knows.
        axis: The positions that stand for something in the text or sound.
        positions: How many positions the model has; those from `valid` on are padding.
        notes: Remarks for people, such as that only a part of the sound was taken.
    """

    inputs: dict[str, Tensor]
    axis: Axis
    positions: int
    notes: tuple[str, ...] = ()

    @property
    def valid(self) -> int:
        """How many positions are real; they come first, and maps are to be cropped to them."""
        return len(self.axis)


@runtime_checkable
class EncodeAudio(Protocol):
    """Turns a sound into what an audio model is fed."""

    def __call__(self, samples: Float[Tensor, "samples"], *, start_seconds: float = 0.0) -> Encoded:
        """Return the sound, 16,000 samples a second, from `start_seconds` on as inputs.

        A model that takes a fixed stretch at a time gets as much as it takes.

        Raises:
            InputError: if the sound is empty, too short or not finite, or ends before
                `start_seconds`.
            ShapeError: if the sound is not one row of samples.
            DTypeError: if the samples are not floating point.
        """
        ...


@dataclass(frozen=True)
class TextModel:
    """A text model in evaluation mode.

    Attributes:
        model: A transformers model.
        encode: Turns a text into inputs; raises `InputError` for an empty text, or for one of more
            tokens than the model has positions.
        name: What it was loaded by.
        notes: Remarks for people about the weights.
    """

    model: Any
    encode: Callable[[str], Encoded]
    name: str
    notes: tuple[str, ...] = ()

    def run(self, encoded: Encoded) -> Any:
        """Return the model's output, without gradients; of an encoder–decoder, the encoder's."""
        return _forward(self.model, encoded)


@dataclass(frozen=True)
class AudioModel:
    """A model of sound in evaluation mode.

    Attributes:
        model: A transformers model.
        encode: Turns a sound into inputs.
        processor: The transformers processor (feature extractor, and tokenizer where there is one).
        name: What it was loaded by.
        notes: Remarks for people about the weights.
    """

    model: Any
    encode: EncodeAudio
    processor: Any
    name: str
    notes: tuple[str, ...] = ()

    def run(self, encoded: Encoded) -> Any:
        """Return the model's output, without gradients; of an encoder–decoder, the encoder's."""
        return _forward(self.model, encoded)


def _forward(model: Any, encoded: Encoded) -> Any:
    """Return the output for inputs brought to the device and number type of the model."""
    module = model.get_encoder() if model.config.is_encoder_decoder else model
    inputs = {
        name: tensor.to(model.device, model.dtype if tensor.is_floating_point() else None)
        for name, tensor in encoded.inputs.items()
    }
    with torch.no_grad():
        return module(**inputs)
