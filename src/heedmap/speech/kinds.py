"""What is heard in each 20 ms: background, speech, music, overlap; several may hold at once."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from heedmap.models.mel import MEL_STEP_SAMPLES
from heedmap.models.segmentation import FRAME_SAMPLES
from heedmap.models.sound_kinds import KINDS, SEEN_FRAMES, SoundKinds
from heedmap.speech.activity import LocalActivity
from heedmap.speech.windows import Stretch

KIND_SECONDS = 0.02
KIND_NAMES = ("background", "speech", "music", "overlap")
KindName = Literal["background", "speech", "music", "overlap"]

SPEECH_THRESHOLD = 0.35
MUSIC_THRESHOLD = 0.3
OVERLAP_THRESHOLD = 0.15
"""Where F1 is highest, or nearly so, on twelve conversations of the voices to choose settings by,
with music at 0 to 10 dB below the speech and noise at 5 to 30 dB: speech 0.97, music 0.93, overlap
0.77. It stays within 0.01 of that from 0.15 to 0.5 for speech and music, and within 0.02 from 0.1
to 0.4 for overlap."""

_MUSIC_MEL_FRAMES = 51
"""Music, which does not come and go within a word, is averaged over half a second."""


@dataclass(frozen=True, eq=False)
class FrameKinds:
    """What is heard in each frame of 20 ms, from the start of the sound to its end.

    Attributes:
        background: Neither speech nor music.
        speech: Somebody speaks, or sings.
        music: Music plays.
        overlap: Two or more speak at once.
    """

    background: Bool[Tensor, " frames"]
    speech: Bool[Tensor, " frames"]
    music: Bool[Tensor, " frames"]
    overlap: Bool[Tensor, " frames"]
    frame_seconds: ClassVar[float] = KIND_SECONDS

    def spans(self, kind: KindName) -> list[tuple[float, float]]:
        """Return the start and the end, in seconds, of each stretch in which a kind is heard.

        >>> yes = torch.tensor([True, True, False, True])
        >>> FrameKinds(~yes, yes, ~yes, ~yes).spans("speech")
        [(0.0, 0.04), (0.06, 0.08)]
        """
        edges = pad(getattr(self, kind).int(), (1, 1)).diff()
        begins, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
        # Divided by 50, which is exact where there is an exact result, not multiplied by 0.02.
        per_second = round(1 / KIND_SECONDS)
        return [
            (begin / per_second, end / per_second)
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]


class KindMaker:
    """Makes the kinds of sound, stretch by stretch."""

    def __init__(self, sound_kinds: SoundKinds) -> None:
        """Begin a sound."""
        self._sound_kinds = sound_kinds
        self._pieces: list[Tensor] = []
        self._last_begin = 0

    def add(self, stretch: Stretch, mel: Float[Tensor, "mel_frames 80"]) -> None:
        """Take the next stretch, and its mel frames.

        Stretches share some seconds. There the earlier one is believed until the later one, too,
        has heard all that a frame depends on; so it is as if the sound were heard in one piece.
        """
        if not len(mel):
            return
        # Stretches begin at whole mel frames: 16 · 148 · 270 samples are 3996 of them.
        begin = stretch.start_frame * FRAME_SAMPLES // MEL_STEP_SAMPLES
        with torch.inference_mode():
            probabilities = self._sound_kinds(mel[None])[0]
        if self._pieces:
            self._pieces[-1] = self._pieces[-1][: begin + SEEN_FRAMES - self._last_begin]
            probabilities, begin = probabilities[SEEN_FRAMES:], begin + SEEN_FRAMES
        self._pieces.append(probabilities)
        self._last_begin = begin

    def finish(self, activity: LocalActivity) -> FrameKinds:
        """Return the kinds of the whole sound, of which the speakers' activity is known."""
        frames = math.ceil(activity.duration_seconds / KIND_SECONDS - 1e-6)
        heard = torch.cat([torch.zeros(0, len(KINDS)), *self._pieces])
        voice = _in_frames(heard[:, :2].amax(1), frames)
        music = _in_frames(_smoothed(heard[:, 2]), frames) >= MUSIC_THRESHOLD
        speech_share, overlap_share = _shares(activity, frames)
        speech = (speech_share + voice) / 2 >= SPEECH_THRESHOLD
        overlap = speech & (overlap_share >= OVERLAP_THRESHOLD)
        return FrameKinds(~speech & ~music, speech, music, overlap)


def _smoothed(heard: Float[Tensor, " mel_frames"]) -> Float[Tensor, " mel_frames"]:
    if not len(heard):
        return heard
    half = _MUSIC_MEL_FRAMES // 2
    return avg_pool1d(heard[None], _MUSIC_MEL_FRAMES, 1, half, count_include_pad=False)[0]


def _in_frames(heard: Float[Tensor, " mel_frames"], frames: int) -> Float[Tensor, " frames"]:
    """Return the means over the frames of 20 ms, each of which has the middle of two mel frames."""
    if not len(heard):
        return heard.new_zeros(frames)
    second = 2 * torch.arange(frames)
    pairs = torch.stack([second - 1, second]).clamp(0, len(heard) - 1)
    return heard[pairs].mean(0)


def _shares(
    activity: LocalActivity, frames: int
) -> tuple[Float[Tensor, " frames"], Float[Tensor, " frames"]]:
    """Return the share of windows in which anybody is heard, and two at once, at each 20 ms.

    The middle of a window, which has heard more of what is around it, counts for more.
    """
    length = activity.active.shape[1]
    say = torch.hamming_window(length, periodic=False)
    people = activity.active.sum(2)
    sums = torch.zeros(3, activity.frames + length)
    for start, window in zip(activity.start_frames.tolist(), people, strict=True):
        sums[:, start : start + length] += torch.stack(
            [say, say * (window > 0), say * (window > 1)]
        )
    middles = (torch.arange(frames, dtype=torch.float64) + 0.5) * KIND_SECONDS
    places = (middles - activity.first_frame_seconds).div(activity.frame_seconds).floor().long()
    windows, speech, overlap = sums[:, places.clamp(0, activity.frames)]
    return speech / windows.clamp(min=1e-3), overlap / windows.clamp(min=1e-3)
