"""A sound of any length as windows of ten seconds, in stretches of a few windows at a time.

All windows begin on one grid of frames, so that frame f of a window that begins at frame s is the
frame s + f of the whole sound, whichever window says something about it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from heedmap.models.segmentation import (
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    SEEN_SAMPLES,
    WINDOW_SAMPLES,
)

WINDOW_FRAMES = (WINDOW_SAMPLES - SEEN_SAMPLES) // FRAME_SAMPLES + 1
FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE_HZ
FIRST_FRAME_SECONDS = (SEEN_SAMPLES - FRAME_SAMPLES) / 2 / SAMPLE_RATE_HZ
"""Frame 0 speaks of the middle of the samples that it is made from."""

STEP_FRAMES = 148
"""How far a window is from the next, about 2.5 s. A step of 5 s halves the time, but errs more: in
eight conversations with noise and music 25.3 % instead of 24.2 %."""

WINDOWS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Stretch:
    """Windows that follow one another, and the samples that they share.

    Attributes:
        start_frame: Where it begins, in frames of the whole sound.
        samples: The sound from there on, filled up with zeros where the last window goes on.
        starts: Where each window begins, in frames from the beginning of the stretch.
        length_samples: How many of the samples are sound.
    """

    start_frame: int
    samples: Float[Tensor, " samples"]
    starts: tuple[int, ...]
    length_samples: int

    def windows(self) -> Float[Tensor, "windows samples"]:
        """Return the samples of each window."""
        begins = (start * FRAME_SAMPLES for start in self.starts)
        return torch.stack([self.samples[begin : begin + WINDOW_SAMPLES] for begin in begins])


def stretches(blocks: Iterable[Float[Tensor, "_"]]) -> Iterator[Stretch]:
    """Yield the windows of a sound, `WINDOWS_AT_ONCE` at a time, whatever its blocks are.

    A window begins every `STEP_FRAMES`; one more, nearer to its forerunner, ends with the sound, so
    that the last stretch has up to two windows more. A sound that is shorter than a window is one
    window. Nothing comes of no samples.

    Args:
        blocks: The sound at 16 kHz, piece by piece; a piece may be of any length.

    Cost: memory for one stretch and one block, about 4 MB, whatever the length of the sound.
    """
    step_samples = STEP_FRAMES * FRAME_SAMPLES
    stretch_samples = WINDOW_SAMPLES + (WINDOWS_AT_ONCE - 1) * step_samples
    regular = tuple(range(0, WINDOWS_AT_ONCE * STEP_FRAMES, STEP_FRAMES))
    pieces: list[Tensor] = []
    held = start_frame = 0
    for block in blocks:
        pieces.append(block)
        held += len(block)
        # What is left must be enough for a whole window.
        if held < stretch_samples + step_samples:
            continue
        samples = torch.cat(pieces)
        while len(samples) >= stretch_samples + step_samples:
            yield Stretch(start_frame, samples[:stretch_samples], regular, stretch_samples)
            start_frame += WINDOWS_AT_ONCE * STEP_FRAMES
            samples = samples[WINDOWS_AT_ONCE * step_samples :]
        pieces, held = [samples], len(samples)
    if held:
        yield _last_stretch(start_frame, torch.cat(pieces))


def _last_stretch(start_frame: int, samples: Float[Tensor, " samples"]) -> Stretch:
    """Return what is left, with a window that ends where the sound ends, or up to a frame later."""
    last = max(0, -((WINDOW_SAMPLES - len(samples)) // FRAME_SAMPLES))
    starts = (*range(0, last, STEP_FRAMES), last)
    lacking = last * FRAME_SAMPLES + WINDOW_SAMPLES - len(samples)
    return Stretch(start_frame, pad(samples, (0, lacking)), starts, len(samples))
