"""Clips of single voices: where in them there is speech, told by energy alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.media import Sound
from heedmap.speech.turns import Turn, merged

SAMPLE_RATE_HZ = 16_000
FRAMES_PER_SECOND = 100
QUIET_DB = -25.0
"""Speech is what lies within so much of the clip's loud frames (their 95th percentile). The acted
voices have an echo, which falls by 60 dB in a second and a half and is no speech."""
PAUSE_SECONDS = 0.3
"""A shorter pause of one speaker lies within a turn: the rule of the NIST evaluations."""
LEAST_SECONDS, MOST_SECONDS = 0.3, 20.0
"""Of the speech of a clip that is used."""

_LEVEL_DB = -26.0
_LEAD_SECONDS = 0.1
_ECHO_SECONDS = 0.8

Span = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Clip:
    """A piece of one voice.

    Attributes:
        samples: Its sound at 16 kHz, with what is soft before its first speech and after its last.
        spans: Start and end of each stretch of speech in it, in seconds.
    """

    samples: Float[Tensor, "samples"]
    spans: tuple[Span, ...]

    @property
    def lead_seconds(self) -> float:
        """How long it is until there is speech."""
        return self.spans[0][0]

    @property
    def speech_seconds(self) -> float:
        """How long it is from its first speech to the end of its last."""
        return self.spans[-1][1] - self.spans[0][0]


def speech_spans(samples: Float[Tensor, "samples"]) -> tuple[Span, ...]:
    """Return where in a clean clip of one voice there is speech, told by energy alone.

    Frames of 10 ms count as speech when they are at most 25 dB below the clip's loud frames (their
    95th percentile); pauses under 0.3 s are closed, what is then shorter than 0.1 s is dropped.

    Args:
        samples: The clip, at 16 kHz, without noise.

    Returns:
        Start and end of each stretch, in seconds, in order; nothing for digital silence.

    Cost: one pass over the samples.

    Example:
        >>> tone = torch.sin(torch.arange(16_000) / 5)
        >>> speech_spans(torch.cat([torch.zeros(8000), tone, torch.zeros(8000)]))
        ((0.5, 1.5),)
    """
    frame = SAMPLE_RATE_HZ // FRAMES_PER_SECOND
    frames = samples[: len(samples) // frame * frame].view(-1, frame)
    energy = frames.double().square().mean(1)
    if not len(energy) or not energy.any():
        return ()
    threshold = energy.quantile(0.95) * 10 ** (QUIET_DB / 10)
    loud = torch.nn.functional.pad((energy > threshold).int(), (1, 1)).diff()
    begins = (loud == 1).nonzero().flatten().tolist()
    ends = (loud == -1).nonzero().flatten().tolist()
    turns = [
        Turn(begin / FRAMES_PER_SECOND, end / FRAMES_PER_SECOND, "")
        for begin, end in zip(begins, ends, strict=True)
    ]
    joined = [(t.start_seconds, t.end_seconds) for t in merged(turns, PAUSE_SECONDS)]
    return tuple((start, end) for start, end in joined if end - start >= 0.1)


def trimmed(samples: Float[Tensor, "samples"]) -> Clip | None:
    """Return a clip from shortly before its first speech until its echo is gone, at an even level.

    Without speech there is none.

    >>> trimmed(torch.zeros(16_000)) is None
    True
    """
    spans = speech_spans(samples)
    if not spans:
        return None
    begin = max(0, position(spans[0][0] - _LEAD_SECONDS))
    cut = samples[begin : position(spans[-1][1] + _ECHO_SECONDS)].clone()
    moved = tuple(
        ((position(start) - begin) / SAMPLE_RATE_HZ, (position(end) - begin) / SAMPLE_RATE_HZ)
        for start, end in spans
    )
    echo = cut[position(moved[-1][1]) :]
    echo *= torch.linspace(1, 0, len(echo))
    return Clip(cut * (10 ** (_LEVEL_DB / 20) / power(cut, moved) ** 0.5), moved)


def fitting_clip(source: Tensor | Path) -> Clip | None:
    """Return the clip of samples or a sound file, if its speech is long and short enough."""
    clip = _read(source) if isinstance(source, Path) else trimmed(source)
    fits = clip is not None and LEAST_SECONDS <= clip.speech_seconds <= MOST_SECONDS
    return clip if fits else None


@lru_cache(maxsize=512)
def _read(path: Path) -> Clip | None:
    return trimmed(Sound.of_file(path).samples)


def power(samples: Float[Tensor, "samples"], spans: Iterable[Span]) -> float:
    """Return the mean square of the samples within these stretches."""
    parts = [samples[position(start) : position(end)] for start, end in spans]
    squares = sum(float(part.double().square().sum()) for part in parts)
    return squares / max(1, sum(len(part) for part in parts))


def position(seconds: float) -> int:
    """Return which sample is heard at this time."""
    return round(seconds * SAMPLE_RATE_HZ)
