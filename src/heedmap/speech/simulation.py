"""Conversations made of single voices, so that who speaks when is known to the hundredth second.

Clips of voices are laid one after the other as people take turns: pauses, going on after a pause,
interruptions and back-channels within another's turn, each drawn at random. The truth is where the
clips' energy says that there is speech, not where the clips begin and end.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.media import Sound
from heedmap.speech.clips import (
    FRAMES_PER_SECOND,
    LEAST_SECONDS,
    MOST_SECONDS,
    PAUSE_SECONDS,
    SAMPLE_RATE_HZ,
    Clip,
    Span,
    fitting_clip,
    position,
    power,
)
from heedmap.speech.turns import Turn, merged, spoken_spans

OVERLAP_TOLERANCE = 0.02

_BACK_CHANNEL_SECONDS = 1.2
_ATTEMPTS = 40


@dataclass(frozen=True, eq=False)
class Conversation:
    """A conversation that was made, and what is true of it.

    Attributes:
        samples: Its sound, float32 in [-1, 1], at 16 kHz.
        turns: Who speaks when, in order.
        music_spans: Start and end of each stretch with music, in seconds.
    """

    samples: Float[Tensor, "samples"]
    turns: tuple[Turn, ...]
    music_spans: tuple[Span, ...] = ()
    sample_rate_hz: ClassVar[int] = SAMPLE_RATE_HZ

    @property
    def duration_seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / SAMPLE_RATE_HZ

    @property
    def overlap_share(self) -> float:
        """The share of the time with speech in which more than one speaks."""
        return _length(spoken_spans(self.turns, 2)) / _length(spoken_spans(self.turns))


def simulate(
    voices: Mapping[str, Sequence[Tensor | Path]],
    *,
    seconds: float,
    overlap_share: float,
    seed: int,
    music: Sequence[Tensor | Path] = (),
    music_snr_db: float = 10.0,
    noise_snr_db: float | None = None,
) -> Conversation:
    """Return a conversation of all these voices, and the exact truth of who speaks when.

    A speaker goes on after a pause (35 % of the time), or another takes the turn, sooner who spoke
    less. Pauses are drawn from gamma distributions (mean 0.6 s within a turn, 0.35 s between
    turns), and a twentieth of them is 1.5 to 5 s long. As long as there is less overlap than asked
    for, whoever takes the turn interrupts (drawn from a gamma distribution around what is missing)
    or says something short within the other's turn. Each voice has a level of its own (within
    ± 3 dB). Music comes and goes in stretches of 8 to 25 s, half of the time. The same seed gives
    the same samples.

    Args:
        voices: Clips of each speaker: samples at 16 kHz or sound files. They are used in random
            order, again from the start where they do not suffice; those with less than 0.3 s or
            more than 20 s of speech are left out.
        seconds: How long the conversation is.
        overlap_share: How much of the time with speech more than one is to speak; it is reached
            within 0.02.
        seed: Chooses everything that is drawn.
        music: Pieces to play under the conversation: samples at 16 kHz or sound files.
        music_snr_db: How much louder speech is than music, where both are.
        noise_snr_db: How much louder speech is than pink noise; without noise if not given.

    Raises:
        ArgumentError: if the voices are none or have no clips, or if length, share and clips do
            not go together.

    Cost: reading and resampling the clips (the last 512 are kept), and three times the samples.

    Example:
        >>> hum = torch.sin(torch.arange(40_000) / 20)
        >>> voices = {"Al": [hum], "Bo": [hum.sign()]}
        >>> talk = simulate(voices, seconds=60, overlap_share=0.1, seed=1)
        >>> talk.duration_seconds, abs(talk.overlap_share - 0.1) < 0.02
        (60.0, True)
    """
    _check(voices, seconds, overlap_share)
    generator = random.Random(seed)
    for _ in range(_ATTEMPTS):
        plan = _Plan(voices, seconds, overlap_share, generator)
        plan.fill()
        if plan.has_all_voices and abs(plan.overlap_share - overlap_share) < OVERLAP_TOLERANCE:
            break
    else:
        raise ArgumentError(
            f"{seconds:g} s must have room for {len(voices)} voices and an overlap of "
            f"{overlap_share:g}; got none in {_ATTEMPTS} attempts. Make it longer."
        )
    samples = plan.rendered()
    turns = merged(plan.turns(), PAUSE_SECONDS)
    speech = spoken_spans(turns)
    loudness = power(samples, speech)
    music_spans: tuple[Span, ...] = ()
    if music:
        music_spans = _add_music(samples, music, loudness / 10 ** (music_snr_db / 10), generator)
    if noise_snr_db is not None:
        noise = _pink_noise(len(samples), generator.getrandbits(32))
        samples += noise * (loudness / 10 ** (noise_snr_db / 10)) ** 0.5
    # Dividing keeps all levels to each other; cutting off would not.
    samples /= max(1.0, float(samples.abs().max()))
    return Conversation(samples, tuple(turns), music_spans)


def _check(voices: Mapping[str, Sequence[Tensor | Path]], seconds: float, share: float) -> None:
    if not voices:
        raise ArgumentError("voices must name at least one speaker; got none. Give some clips.")
    for name, clips in voices.items():
        if not clips:
            raise ArgumentError(f"voices must have clips; got none of {name}. Leave it out.")
    if not 0 < seconds <= 24 * 3600:
        raise ArgumentError(
            f"seconds must be above 0 and at most 86400; got {seconds:g}. Make several."
        )
    if not 0 <= share <= 0.5:
        raise ArgumentError(f"overlap_share must lie in 0 to 0.5; got {share:g}. Choose one.")
    if share and len(voices) == 1:
        raise ArgumentError(
            f"overlap_share must be 0 for one voice; got {share:g}. Give another voice."
        )


@dataclass(frozen=True)
class _Placed:
    """A clip at its time: `start_seconds` is when its speech begins."""

    speaker: str
    start_seconds: float
    clip: Clip
    gain: float

    @property
    def sound_seconds(self) -> float:
        return self.start_seconds - self.clip.lead_seconds

    @property
    def end_seconds(self) -> float:
        return self.start_seconds + self.clip.speech_seconds


class _Plan:
    """Clips on a time line, laid one after the other."""

    def __init__(
        self,
        voices: Mapping[str, Sequence[Tensor | Path]],
        seconds: float,
        overlap_share: float,
        generator: random.Random,
    ) -> None:
        self._seconds = seconds
        self._wanted = overlap_share
        self._generator = generator
        self._bags = {name: _Bag(name, clips, generator) for name, clips in voices.items()}
        self._levels = {name: generator.uniform(-3, 3) for name in voices}
        self._spoken = dict.fromkeys(voices, 0.0)
        self._free_at = dict.fromkeys(voices, 0.0)
        self._speakers: Int[Tensor, "frames"] = torch.zeros(
            int(seconds * FRAMES_PER_SECOND) + 1, dtype=torch.int8
        )
        self._placed: list[_Placed] = []
        self._floor: _Placed | None = None

    @property
    def has_all_voices(self) -> bool:
        return all(self._spoken.values())

    @property
    def overlap_share(self) -> float:
        return int((self._speakers > 1).sum()) / max(1, int((self._speakers > 0).sum()))

    def fill(self) -> None:
        """Lay clips until one does not fit any more."""
        while self._lay():
            pass

    def turns(self) -> list[Turn]:
        return [
            Turn(placed.sound_seconds + start, placed.sound_seconds + end, placed.speaker)
            for placed in self._placed
            for start, end in placed.clip.spans
        ]

    def rendered(self) -> Float[Tensor, "samples"]:
        samples = torch.zeros(round(self._seconds * SAMPLE_RATE_HZ))
        for placed in self._placed:
            begin = position(placed.sound_seconds)
            room = samples[begin : begin + len(placed.clip.samples)]
            room += placed.clip.samples[: len(room)] * placed.gain
        return samples

    def _lay(self) -> bool:
        missing = self._missing_overlap_seconds()
        floor = self._floor
        speaker = self._next_speaker()
        changes = floor is not None and speaker != floor.speaker
        if floor and changes and missing > 0 and self._generator.random() < 0.8:
            if self._generator.random() < 0.3 and self._say_within(speaker, floor):
                return True
            clip = self._bags[speaker].take()
            longest = 0.9 * min(clip.speech_seconds, floor.clip.speech_seconds)
            drawn = self._generator.gammavariate(2, max(0.3, missing / 2))
            start = floor.end_seconds - min(longest, drawn)
        else:
            clip = self._bags[speaker].take()
            start = (floor.end_seconds if floor else 0.0) + self._pause_seconds(changes)
        start = max(start, self._free_at[speaker], clip.lead_seconds)
        if start + clip.speech_seconds > self._seconds:
            return False
        self._floor = self._place(speaker, start, clip)
        return True

    def _missing_overlap_seconds(self) -> float:
        spoken = int((self._speakers > 0).sum())
        overlapped = int((self._speakers > 1).sum())
        return (self._wanted * spoken - overlapped) / FRAMES_PER_SECOND

    def _next_speaker(self) -> str:
        names = list(self._bags)
        if self._floor is None or len(names) == 1:
            return self._generator.choice(names)
        if self._generator.random() < 0.35:
            return self._floor.speaker
        others = [name for name in names if name != self._floor.speaker]
        weights = [1 / (self._spoken[name] + 5) for name in others]
        return self._generator.choices(others, weights)[0]

    def _pause_seconds(self, changes: bool) -> float:
        if self._generator.random() < 0.05:
            return self._generator.uniform(1.5, 5)
        return self._generator.gammavariate(2, 0.175 if changes else 0.3)

    def _say_within(self, speaker: str, floor: _Placed) -> bool:
        """Lay something short into the turn of who has the floor, and leave the floor there."""
        clip = self._bags[speaker].take_short(_BACK_CHANNEL_SECONDS)
        if clip is None:
            return False
        earliest = max(floor.start_seconds + 0.3, self._free_at[speaker])
        latest = floor.end_seconds - 0.1 - clip.speech_seconds
        if latest < earliest:
            return False
        self._place(speaker, self._generator.uniform(earliest, latest), clip)
        return True

    def _place(self, speaker: str, start_seconds: float, clip: Clip) -> _Placed:
        # On whole samples, so that truth and sound do not differ by rounding.
        start = position(start_seconds) / SAMPLE_RATE_HZ
        gain = 10 ** ((self._levels[speaker] + self._generator.uniform(-1.5, 1.5)) / 20)
        placed = _Placed(speaker, start, clip, gain)
        self._placed.append(placed)
        self._free_at[speaker] = placed.end_seconds + 0.1
        for begin, end in clip.spans:
            first = round((placed.sound_seconds + begin) * FRAMES_PER_SECOND)
            last = round((placed.sound_seconds + end) * FRAMES_PER_SECOND)
            self._speakers[first:last] += 1
            self._spoken[speaker] += end - begin
        return placed


class _Bag:
    """The clips of one voice, taken out at random and all put back when none is left."""

    def __init__(self, name: str, clips: Sequence[Tensor | Path], generator: random.Random) -> None:
        self._name = name
        self._all = list(clips)
        self._left: list[Tensor | Path] = []
        self._generator = generator

    def take(self) -> Clip:
        for _ in range(2 * len(self._all)):
            clip = fitting_clip(self._next())
            if clip is not None:
                return clip
        least, most = LEAST_SECONDS, MOST_SECONDS
        raise ArgumentError(
            f"voices must have clips of {least:g} to {most:g} s of speech; "
            f"got none of {self._name}. Cut longer ones."
        )

    def take_short(self, most_seconds: float) -> Clip | None:
        """Return one of the next eight that is short enough; the others stay."""
        kept: list[Tensor | Path] = []
        found = None
        for _ in range(min(8, len(self._all))):
            source = self._next()
            clip = fitting_clip(source)
            if clip is not None and clip.speech_seconds <= most_seconds:
                found = clip
                break
            kept.append(source)
        self._left.extend(reversed(kept))
        return found

    def _next(self) -> Tensor | Path:
        if not self._left:
            self._left = list(self._all)
            self._generator.shuffle(self._left)
        return self._left.pop()


def _add_music(
    samples: Float[Tensor, "samples"],
    music: Sequence[Tensor | Path],
    power: float,
    generator: random.Random,
) -> tuple[Span, ...]:
    """Play stretches of the pieces at this power, faded in and out; return where."""
    fade = position(0.5)
    spans: list[Span] = []
    at = generator.uniform(0, 8)
    end = len(samples) / SAMPLE_RATE_HZ
    while at + 2 < end:
        until = min(at + generator.uniform(8, 25), end)
        source = generator.choice(music)
        piece = _read_music(source) if isinstance(source, Path) else source
        wanted = position(until) - position(at)
        first = generator.randrange(max(1, len(piece) - wanted))
        part = piece[first : first + wanted].clone()
        energy = float(part.double().square().mean())
        if energy:
            part *= (power / energy) ** 0.5
            ramp = torch.linspace(0, 1, min(fade, len(part) // 2))
            part[: len(ramp)] *= ramp
            part[len(part) - len(ramp) :] *= ramp.flip(0)
            begin = position(at)
            samples[begin : begin + len(part)] += part
            spans.append((begin / SAMPLE_RATE_HZ, (begin + len(part)) / SAMPLE_RATE_HZ))
        at = until + generator.uniform(8, 25)
    return tuple(spans)


@lru_cache(maxsize=8)
def _read_music(path: Path) -> Float[Tensor, "samples"]:
    return Sound.of_file(path).samples


def _pink_noise(length: int, seed: int) -> Float[Tensor, "samples"]:
    """Return noise of power 1 whose power falls with the frequency, made 16 s at a time."""
    generator = torch.Generator().manual_seed(seed)
    block = 16 * SAMPLE_RATE_HZ
    falling = torch.arange(block // 2 + 1).clamp_min(16).float().rsqrt()
    blocks = []
    for _ in range(-(-length // block)):
        spectrum = torch.fft.rfft(torch.randn(block, generator=generator))
        blocks.append(torch.fft.irfft(spectrum * falling, n=block))
    noise = torch.cat(blocks)[:length]
    return noise / noise.square().mean().sqrt()


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)
