"""Sound of any length, block by block: one channel at one rate, whatever the file holds."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import ArgumentError, InputError
from heedmap.media.decoding import Block, Undecodable, av_blocks, soundfile_blocks
from heedmap.media.files import open_checked, require

_CANCELLED_ENERGY = 1e-4
"""Below this share of the channels' energy (-40 dB), their mean is said to have cancelled."""

_LEAST_RATE_HZ = 1000
"""A lower rate is damage, and would stretch a small file to days."""

_FULL_SCALE = 0.9999
_CLIPPED_SHARE = 1e-3
"""Where more samples than this lie at full scale, the sound is said to be clipped."""


class SoundBlocks:
    """The sound of a file, block by block; it can be gone through more than once.

    Channels are mixed to their mean and resampled by soxr (high quality). Nothing is divided by a
    peak that is not known before the end: samples of a file of floats may lie beyond full scale.

    Attributes:
        name: What messages call it.
        notes: What was done to it or is wrong with it, a sentence each, once it was gone through.
        peak: The largest absolute sample of it so far.

    Example:
        >>> blocks = SoundBlocks("missing.wav")
        >>> blocks.name, blocks.notes, blocks.peak
        ('missing.wav', (), 0.0)
    """

    def __init__(
        self, path: str | Path, *, sample_rate_hz: int = 16_000, channel: int | None = None
    ) -> None:
        """Say what to read; nothing is opened yet.

        Args:
            path: A file in any format that soundfile or FFmpeg reads. Its ending does not matter.
            sample_rate_hz: The rate to resample to.
            channel: The one channel to take, counted from 0, instead of the mean of all.
        """
        check_rate(sample_rate_hz)
        self._path = Path(path)
        self._sample_rate_hz = sample_rate_hz
        self._channel = channel
        self.name = self._path.name
        self.notes: tuple[str, ...] = ()
        self.peak = 0.0

    def __iter__(self) -> Iterator[Float[Tensor, "_"]]:
        """Yield the blocks, of some seconds at most, from the start of the file to its end.

        A file that soundfile gives up within is read again by FFmpeg, up to there without a word.

        Raises:
            InputError: if the file is missing, empty, not to be read or no sound; if it has no
                samples, or samples that are NaN or infinite; or if there is no such channel.
            MissingExtraError: if soundfile, soxr, numpy or (where needed) av is not installed.

        Cost: about 3 ms for a second of stereo, and 1 MB.
        """
        self.notes, self.peak = (), 0.0
        reasons: list[str] = []
        given = 0
        with open_checked(self._path) as file:
            for decoder, decoded in (("soundfile", soundfile_blocks), ("FFmpeg", av_blocks)):
                mixdown = _Mixdown(self.name, self._sample_rate_hz, self._channel)
                notes: list[str] = []
                try:
                    for piece in mixdown.pieces(decoded(file, notes)):
                        new = piece[max(0, given - mixdown.mixed + len(piece)) :]
                        if len(new):
                            given += len(new)
                            self.peak = max(self.peak, float(new.abs().max()))
                            yield new
                except Undecodable as reason:
                    reasons.append(f"{decoder}: {reason}")
                    continue
                if mixdown.frames:
                    self.notes = (*notes, *_remarks_on_second_try(reasons), *mixdown.remarks())
                    return
                reasons.append(_STATES_NOTHING)
        if _STATES_NOTHING in reasons:
            raise InputError(f"input must be a sound; got {self._path}, which has no samples.")
        raise InputError(
            f"input must be a sound that can be decoded; got {self._path} ({'; '.join(reasons)})."
        )


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
        self.mixed = 0
        self._name = name
        self._target_rate_hz = sample_rate_hz
        self._channel = channel
        self._source_rate_hz = 0
        self._channels = 0
        self._resampler: Any = None
        self._broken_samples = 0
        self._first_broken_seconds = math.nan
        self._source_peak = 0.0
        self._full_scale_samples = 0
        self._samples = 0
        self._channel_energy = 0.0
        self._mean_energy = 0.0

    def pieces(self, blocks: Iterable[Block]) -> Iterator[Float[Tensor, "_"]]:
        """Yield what comes of the blocks, in pieces, some of them empty.

        Once a sample is broken, the others are only counted, for the error at the end.
        """
        numpy = require("numpy")
        for block in blocks:
            mono = self._mono(block)
            if not self._broken_samples:
                yield self._counted(
                    self._resampler.resample_chunk(mono) if self._resampler else mono
                )
        if self._broken_samples:
            raise InputError(
                f"samples must be finite; got {self._name} with {self._broken_samples} that are "
                f"NaN or infinite, the first at {self._first_broken_seconds:.3f} s."
            )
        if self._resampler:
            rest = numpy.zeros(0, numpy.float32)
            yield self._counted(self._resampler.resample_chunk(rest, last=True))
        if self.frames and not self.mixed:
            raise InputError(
                f"input must last for a sample at {self._target_rate_hz} Hz; got {self._name}, "
                f"which has {self.frames} at {self._source_rate_hz} Hz."
            )

    def remarks(self) -> list[str]:
        """Return what was done to the sound or is wrong with it, once all pieces are made."""
        remarks = []
        if self._source_rate_hz != self._target_rate_hz:
            remarks.append(f"resampled from {self._source_rate_hz} Hz to {self._target_rate_hz} Hz")
        if self._source_peak == 0:
            remarks.append("every sample is 0: the sound is silent")
        elif self._mean_energy < _CANCELLED_ENERGY * self._channel_energy:
            remarks.append(
                f"the mean of its {self._channels} channels is nearly silent though they are not: "
                "they cancel each other; take one of them with --channel 0 (in Python, with "
                "heedmap.media.Sound.of_file(path, channel=0))"
            )
        share = self._full_scale_samples / self._samples if self._samples else 0
        if self._source_peak <= 1 and share > _CLIPPED_SHARE:
            remarks.append(f"{share:.1%} of its samples are at full scale: it seems to be clipped")
        return remarks

    def _counted(self, mixed: Any) -> Float[Tensor, "samples"]:
        self.mixed += len(mixed)
        return torch.from_numpy(mixed)

    def _mono(self, block: Block) -> Any:
        """Return the chosen channel or the mean of all, and take note of what the samples are."""
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
            return None
        mono = samples.mean(axis=1, dtype=numpy.float64).astype(numpy.float32)
        self._channel_energy += float(numpy.square(samples, dtype=numpy.float64).mean(axis=1).sum())
        self._mean_energy += float(numpy.square(mono, dtype=numpy.float64).sum())
        sizes = numpy.abs(samples)
        self._source_peak = max(self._source_peak, float(sizes.max(initial=0)))
        self._full_scale_samples += int((sizes >= _FULL_SCALE).sum())
        self._samples += samples.size
        return mono

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


def check_rate(sample_rate_hz: int) -> None:
    """Refuse a rate that is none."""
    if sample_rate_hz < 1:
        raise ArgumentError(f"sample_rate_hz must be at least 1; got {sample_rate_hz}.")
