"""Sound: from an audio file, or the sound track of a film, to one channel of samples."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Sequence
from heedmap.errors import ArgumentError, DTypeError, InputError, ShapeError
from heedmap.media.decoding import Block, Undecodable, av_blocks, soundfile_blocks
from heedmap.media.files import open_checked, require
from heedmap.media.sound_features import voice_sequence

_CANCELLED_ENERGY = 1e-4
"""Below this share of the channels' energy (-40 dB), their mean is said to have cancelled."""

_LEAST_RATE_HZ = 1000
"""A lower rate is damage, and would stretch a small file to days."""


@dataclass(frozen=True, eq=False)
class Sound:
    """One channel of sound.

    Attributes:
        samples: The sound from its start to its end, float32 in [-1, 1].
        sample_rate_hz: How many samples make a second.
        name: What messages and pictures call it.
        notes: What was done to it or is wrong with it, a sentence each: resampled, cut short,
            damaged, cancelled. Show them to whoever asked for the sound.
        temperature: What to divide the scores of `sequence` by. Over 30 s of two speakers, a moment
            then gives a moment of the same speaker, more than a second away, 9 times the weight of
            one of the other speaker, and looks at 24 of 300 positions in effect (the exponential
            of its entropy). At 0.3 it would be 2.2 times, and 140 positions.
    """

    samples: Float[Tensor, "samples"]
    sample_rate_hz: int
    name: str
    notes: tuple[str, ...] = ()
    temperature: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        """Refuse samples that are not one channel of finite float32 within full scale."""
        if self.samples.ndim != 1 or not len(self.samples):
            raise ShapeError(
                "samples must be one channel of at least one sample; "
                f"got shape {tuple(self.samples.shape)}."
            )
        if self.samples.dtype != torch.float32:
            raise DTypeError(f"samples must be float32; got {self.samples.dtype}.")
        low, high = self.samples.aminmax()
        if not (low >= -1 and high <= 1):
            raise InputError("samples must be finite and lie in [-1, 1]; some do not.")
        _check_rate(self.sample_rate_hz)

    @classmethod
    def of_file(
        cls, path: str | Path, *, sample_rate_hz: int = 16_000, channel: int | None = None
    ) -> "Sound":
        """Return the sound of a file: an audio file, or a film with a sound track.

        Channels are mixed to their mean, resampled by soxr (high quality), and, where that goes
        beyond full scale, divided by the peak. Whatever was done beyond the mixing is in `notes`.

        Args:
            path: A file in any format that soundfile or FFmpeg reads. Its ending does not matter.
            sample_rate_hz: The rate to resample to.
            channel: The one channel to take, counted from 0, instead of the mean of all.

        Raises:
            InputError: if the file is missing, empty, not to be read or no sound; if it has no
                samples, or samples that are NaN or infinite; or if there is no such channel.
            MissingExtraError: if soundfile, soxr, numpy or (where needed) av is not installed.

        Cost: about 3 ms for a second of stereo; twice the memory of the result, which is 4 bytes a
        sample, whatever the rate and the channels of the file.
        """
        _check_rate(sample_rate_hz)
        path = Path(path)
        reasons = []
        with open_checked(path) as file:
            for decoder, blocks in (("soundfile", soundfile_blocks), ("FFmpeg", av_blocks)):
                mixdown = _Mixdown(path.name, sample_rate_hz, channel)
                notes: list[str] = []
                try:
                    for block in blocks(file, notes):
                        mixdown.add(block)
                except Undecodable as reason:
                    reasons.append(f"{decoder}: {reason}")
                    continue
                if mixdown.frames:
                    samples = mixdown.finish()
                    notes.extend(_remarks_on_second_try(reasons))
                    return cls(samples, sample_rate_hz, path.name, (*notes, *mixdown.notes))
                reasons.append(_STATES_NOTHING)
        if _STATES_NOTHING in reasons:
            raise InputError(f"input must be a sound; got {path}, which has no samples.")
        raise InputError(
            f"input must be a sound that can be decoded; got {path} ({'; '.join(reasons)})."
        )

    @property
    def duration_seconds(self) -> float:
        """How long the sound lasts."""
        return len(self.samples) / self.sample_rate_hz

    def sequence(self, window_seconds: float = 1.0, hop_seconds: float = 0.1) -> Sequence:
        """Return one position for each hop, whose values say what kind of voice or noise is there.

        Recipe: at 16 kHz, MFCC of 25 ms frames every 10 ms (kaldi's, 40 mel bins, no dither);
        coefficients 2 to 20; their mean and their standard deviation over a window, 38 values;
        minus the mean and divided by the deviation (at least 2) over the louder windows, which
        are those within 20 dB of the 95th percentile; divided by their length (at least 4) to unit
        length, or less where little stands out, so that the chance differences within a hiss do
        not look like structure. Attention over it, at `temperature`, shows who speaks like whom.

        Position i spans the hop from i × hop to (i + 1) × hop, so that each moment lies in exactly
        one position; its window is centred on the hop, and cut at the ends of the sound. A sound
        shorter than a hop is one position.

        Args:
            window_seconds: What the mean and the deviation are taken over, in seconds.
            hop_seconds: How far one position is from the next; at least 0.01 s.

        Raises:
            ArgumentError: if hop or window make no sense.
            MissingExtraError: if kaldi-native-fbank, soxr or numpy is not installed.

        Cost: about 2 ms, and memory of 80 kB, for a second of sound.
        """
        return voice_sequence(self.samples, self.sample_rate_hz, window_seconds, hop_seconds)


_STATES_NOTHING = "no samples"
_OTHER_FORMAT = "soundfile: Format not recognised"


def _remarks_on_second_try(reasons: list[str]) -> list[str]:
    """Return why soundfile failed where that says something about the file, not its format."""
    if reasons == [_STATES_NOTHING]:
        return ["the header states no samples, as streams do; all that are there were read"]
    return [f"{reason}; decoded by FFmpeg" for reason in reasons if reason != _OTHER_FORMAT]


class _Mixdown:
    """Blocks of many channels on their way to one channel at one rate."""

    def __init__(self, name: str, sample_rate_hz: int, channel: int | None) -> None:
        self.frames = 0
        self.notes: list[str] = []
        self._name = name
        self._target_rate_hz = sample_rate_hz
        self._channel = channel
        self._source_rate_hz = 0
        self._channels = 0
        self._resampler: Any = None
        self._pieces: list[Any] = []
        self._broken_samples = 0
        self._first_broken_seconds = math.nan
        self._source_peak = 0.0
        self._channel_energy = 0.0
        self._mean_energy = 0.0

    def add(self, block: Block) -> None:
        """Take the next block."""
        numpy = require("numpy")
        if not self.frames:
            self._begin(block)
        elif block.sample_rate_hz != self._source_rate_hz:
            raise InputError(
                f"input must keep one sample rate; got {self._name}, which goes from "
                f"{self._source_rate_hz} to {block.sample_rate_hz} Hz. Cut it there."
            )
        samples = block.samples
        if self._channel is not None:
            samples = samples[:, self._chosen(samples.shape[1])][:, None]
        broken = ~numpy.isfinite(samples)
        if broken.any():
            if not self._broken_samples:
                first = self.frames + int(broken.any(axis=1).argmax())
                self._first_broken_seconds = first / self._source_rate_hz
            self._broken_samples += int(broken.sum())
        self.frames += len(samples)
        if self._broken_samples:
            return
        mono = samples.mean(axis=1, dtype=numpy.float64).astype(numpy.float32)
        self._channel_energy += float(numpy.square(samples, dtype=numpy.float64).mean(axis=1).sum())
        self._mean_energy += float(numpy.square(mono, dtype=numpy.float64).sum())
        self._source_peak = max(self._source_peak, float(numpy.abs(samples).max(initial=0)))
        self._pieces.append(self._resampler.resample_chunk(mono) if self._resampler else mono)

    def finish(self) -> Float[Tensor, "samples"]:
        """Return the sound, once the last block is in; remarks on it are then in `notes`."""
        numpy = require("numpy")
        if self._broken_samples:
            raise InputError(
                f"samples must be finite; got {self._name} with {self._broken_samples} that are "
                f"NaN or infinite, the first at {self._first_broken_seconds:.3f} s."
            )
        if self._resampler:
            self._pieces.append(
                self._resampler.resample_chunk(numpy.zeros(0, numpy.float32), last=True)
            )
        samples = torch.from_numpy(numpy.concatenate(self._pieces))
        if not len(samples):
            raise InputError(
                f"input must last for a sample at {self._target_rate_hz} Hz; got {self._name}, "
                f"which has {self.frames} at {self._source_rate_hz} Hz."
            )
        peak = float(torch.stack(samples.aminmax()).abs().max())
        if peak > 1:
            samples.div_(peak).clamp_(-1, 1)
        self._remark(peak)
        return samples

    def _begin(self, block: Block) -> None:
        self._source_rate_hz = block.sample_rate_hz
        self._channels = block.samples.shape[1]
        if self._source_rate_hz < _LEAST_RATE_HZ:
            raise InputError(
                f"input must have at least {_LEAST_RATE_HZ} samples a second to be a sound; "
                f"got {self._name} with {self._source_rate_hz}."
            )
        if self._source_rate_hz != self._target_rate_hz:
            self._resampler = require("soxr").ResampleStream(
                self._source_rate_hz, self._target_rate_hz, 1, dtype="float32", quality="HQ"
            )

    def _chosen(self, channels: int) -> int:
        if not 0 <= (self._channel or 0) < channels:
            raise InputError(
                f"channel must be from 0 to {channels - 1} for {self._name}; got {self._channel}."
            )
        return self._channel or 0

    def _remark(self, peak: float) -> None:
        if self._source_rate_hz != self._target_rate_hz:
            self.notes.append(
                f"resampled from {self._source_rate_hz} Hz to {self._target_rate_hz} Hz"
            )
        if peak > 1:
            self.notes.append(f"divided by {peak:.3g}, its peak, to lie within full scale")
        if self._source_peak == 0:
            self.notes.append("every sample is 0: the sound is silent")
        elif self._mean_energy < _CANCELLED_ENERGY * self._channel_energy:
            self.notes.append(
                f"the mean of its {self._channels} channels is nearly silent though they are not: "
                "they cancel each other; take one of them with --channel 0 (in Python, with "
                "heedmap.media.Sound.of_file(path, channel=0))"
            )


def _check_rate(sample_rate_hz: int) -> None:
    if sample_rate_hz < 1:
        raise ArgumentError(f"sample_rate_hz must be at least 1; got {sample_rate_hz}.")
