"""Who of the speakers of a window is heard in each of its frames."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedmap.models.segmentation import SAMPLE_RATE_HZ, SPEAKER_SETS, SPEAKERS, SpeakerSegmentation
from heedmap.speech.windows import (
    FIRST_FRAME_SECONDS,
    FRAME_SAMPLES,
    FRAME_SECONDS,
    WINDOW_FRAMES,
    Stretch,
)

_MEMBERS = torch.tensor([[s in members for s in range(SPEAKERS)] for members in SPEAKER_SETS])


@dataclass(frozen=True, eq=False)
class LocalActivity:
    """Who is heard when, window by window; which speakers of two windows are one is not known yet.

    Attributes:
        start_frames: Where each window begins, in frames of the whole sound. All windows lie on one
            grid: frame f of a window is the frame ``start_frames + f`` of the sound.
        active: Whether each of the three speakers of a window is heard in a frame. Nobody is heard
            after the end of the sound.
        duration_seconds: How long the sound lasts.
        frame_seconds: How long a frame is.
        first_frame_seconds: Where the frame 0 of the sound begins; frame g spans from
            ``first_frame_seconds + g · frame_seconds`` for ``frame_seconds``.
    """

    start_frames: Int[Tensor, " windows"]
    active: Bool[Tensor, "windows frames 3"]
    duration_seconds: float
    frame_seconds: ClassVar[float] = FRAME_SECONDS
    first_frame_seconds: ClassVar[float] = FIRST_FRAME_SECONDS

    @property
    def start_seconds(self) -> Float[Tensor, " windows"]:
        """Where each window begins, as float64."""
        return self.start_frames.double() * self.frame_seconds

    @property
    def frames(self) -> int:
        """How many frames the whole sound has, from its start to its end."""
        return frames_within(self.duration_seconds)


def frames_within(seconds: float) -> int:
    """Return how many frames begin within the first so many seconds."""
    return max(0, math.ceil((seconds - FIRST_FRAME_SECONDS) / FRAME_SECONDS))


class ActivityMaker:
    """Makes the activity of a sound, stretch by stretch."""

    def __init__(self, segmentation: SpeakerSegmentation) -> None:
        """Begin a sound."""
        self._segmentation = segmentation
        self._start_frames: list[int] = []
        self._active: list[Tensor] = []
        self.samples = 0

    def add(self, stretch: Stretch) -> Bool[Tensor, "windows frames 3"]:
        """Return who is heard in the windows of the next stretch, and keep it."""
        with torch.inference_mode():
            log_probabilities = self._segmentation(stretch.windows())
        active = decoded(log_probabilities)
        for window, start in zip(active, stretch.starts, strict=True):
            heard = stretch.length_samples - start * FRAME_SAMPLES
            window[frames_within(heard / SAMPLE_RATE_HZ) :] = False
        self._start_frames += [stretch.start_frame + start for start in stretch.starts]
        self._active.append(active)
        self.samples = stretch.start_frame * FRAME_SAMPLES + stretch.length_samples
        return active

    def finish(self) -> LocalActivity:
        """Return the activity of the whole sound."""
        nothing = torch.zeros(0, WINDOW_FRAMES, SPEAKERS, dtype=torch.bool)
        return LocalActivity(
            torch.tensor(self._start_frames, dtype=torch.long),
            torch.cat([nothing, *self._active]),
            self.samples / SAMPLE_RATE_HZ,
        )


def decoded(log_probabilities: Float[Tensor, "*windows frames 7"]) -> Bool[Tensor, "*windows f 3"]:
    """Return who is in the most probable set of speakers of each frame.

    That is how those who trained the net decide. Conversations that are made cannot choose a better
    rule: how far speech reaches into its own echo is, in their truth, a threshold of energy.

    >>> decoded(10 * torch.eye(7)[None, [0, 2, 4]])
    tensor([[[False, False, False],
             [False,  True, False],
             [ True,  True, False]]])
    """
    return _MEMBERS[log_probabilities.argmax(-1)]
