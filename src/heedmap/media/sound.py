"""Sound: from an audio file, or the sound track of a film, to one channel of samples."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Sequence
from heedmap.errors import DTypeError, InputError, ShapeError
from heedmap.media.blocks import SoundBlocks, check_rate
from heedmap.media.sound_features import voice_sequence


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
        check_rate(self.sample_rate_hz)

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
        blocks = SoundBlocks(path, sample_rate_hz=sample_rate_hz, channel=channel)
        samples = torch.cat(list(blocks))
        notes = blocks.notes
        if blocks.peak > 1:
            samples.div_(blocks.peak).clamp_(-1, 1)
            notes += (f"divided by {blocks.peak:.3g}, its peak, to lie within full scale",)
        return cls(samples, sample_rate_hz, blocks.name, notes)

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
