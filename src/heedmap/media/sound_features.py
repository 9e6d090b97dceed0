"""What a stretch of sound sounds like, without a model: statistics of mel cepstra."""

import math
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.axes import Axis, Sequence
from heedmap.errors import ArgumentError
from heedmap.media.files import require

_RATE_HZ = 16_000
_FRAME_SAMPLES = 160
_FRAMES_PER_SECOND = _RATE_HZ // _FRAME_SAMPLES
_LOUD_DECIBELS = 20.0
_LEAST_DEVIATION = 2.0
_LEAST_LENGTH = 4.0
_SAMPLES_AT_ONCE = 10 * _RATE_HZ


def voice_sequence(
    samples: Float[Tensor, "samples"],
    sample_rate_hz: int,
    window_seconds: float,
    hop_seconds: float,
) -> Sequence:
    """Return one position for each hop; `Sound.sequence` says how its values are made."""
    if not 1 / _FRAMES_PER_SECOND <= hop_seconds < math.inf:
        raise ArgumentError(f"hop_seconds must be at least 0.01; got {hop_seconds}.")
    if not hop_seconds <= window_seconds < math.inf:
        raise ArgumentError(
            f"window_seconds must be at least hop_seconds, {hop_seconds}; got {window_seconds}."
        )
    duration_seconds = len(samples) / sample_rate_hz
    # The small part keeps 1.1 s / 0.1 s, which is a little above 11 in floats, at 11 positions.
    positions = max(1, math.ceil(duration_seconds / hop_seconds - 1e-6))
    cepstra, energies = _frames(_at_feature_rate(samples, sample_rate_hz))
    starts, ends = _windows(positions, len(cepstra), window_seconds, hop_seconds)
    values = _statistics(cepstra, starts, ends)
    loudness = 10 * _window_means(energies[:, None], starts, ends)[:, 0].clamp_min(1e-12).log10()
    loud = loudness >= loudness.quantile(0.95) - _LOUD_DECIBELS
    edges = [round(i * hop_seconds, 9) for i in range(positions)] + [duration_seconds]
    return Sequence(_normalized(values, loud), Axis.of_seconds(pairwise(edges)))


def _at_feature_rate(samples: Float[Tensor, "samples"], sample_rate_hz: int) -> Any:
    """Return the samples at 16 kHz, as a numpy array of whole frames, the last one filled up."""
    numpy = require("numpy")
    array = samples.numpy(force=True)
    if sample_rate_hz != _RATE_HZ:
        array = require("soxr").resample(array, sample_rate_hz, _RATE_HZ, quality="HQ")
    lacking = -len(array) % _FRAME_SAMPLES if len(array) else _FRAME_SAMPLES
    return numpy.pad(array, (0, lacking)) if lacking else array


def _frames(
    array: Any,
) -> tuple[Float[Tensor, "frames coefficients"], Float[Tensor, "frames"]]:
    """Return cepstral coefficients 2 to 20 and the mean energy of each frame."""
    numpy, kaldi = require("numpy"), require("kaldi_native_fbank")
    options = kaldi.MfccOptions()
    options.frame_opts.samp_freq = _RATE_HZ
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = 40
    options.num_ceps = 20
    options.use_energy = False
    extractor = kaldi.OnlineMfcc(options)
    for start in range(0, len(array), _SAMPLES_AT_ONCE):
        extractor.accept_waveform(_RATE_HZ, array[start : start + _SAMPLES_AT_ONCE] * 32768)
    extractor.input_finished()
    frames = array.reshape(-1, _FRAME_SAMPLES)
    cepstra = numpy.stack([extractor.get_frame(i)[1:] for i in range(len(frames))])
    energies = numpy.einsum("fs,fs->f", frames, frames) / _FRAME_SAMPLES
    return torch.from_numpy(cepstra), torch.from_numpy(energies)


def _windows(
    positions: int, frames: int, window_seconds: float, hop_seconds: float
) -> tuple[Tensor, Tensor]:
    """Return the first frame of each position's window and the one after its last."""
    centres = (torch.arange(positions, dtype=torch.float64) + 0.5) * hop_seconds
    half = window_seconds / 2
    starts = ((centres - half) * _FRAMES_PER_SECOND).round().long().clamp(0, frames - 1)
    ends = ((centres + half) * _FRAMES_PER_SECOND).round().long().clamp(max=frames)
    return starts, torch.maximum(ends, starts + 1)


def _window_means(
    values: Float[Tensor, "frames features"], starts: Tensor, ends: Tensor
) -> Float[Tensor, "positions features"]:
    sums = torch.cat([values.new_zeros(1, values.shape[1]).double(), values.double().cumsum(0)])
    return (sums[ends] - sums[starts]) / (ends - starts)[:, None]


def _statistics(
    cepstra: Float[Tensor, "frames coefficients"], starts: Tensor, ends: Tensor
) -> Float[Tensor, "positions features"]:
    """Return the mean and the deviation of each coefficient over each window."""
    # Centred first: a running sum of squares loses its digits when the mean is large.
    centre = cepstra.double().mean(0)
    mean = _window_means(cepstra - centre, starts, ends)
    square = _window_means((cepstra - centre).square(), starts, ends)
    deviation = (square - mean.square()).clamp_min(0).sqrt()
    return torch.cat([mean + centre, deviation], dim=1)


def _normalized(
    values: Float[Tensor, "positions features"], loud: Tensor
) -> Float[Tensor, "positions features"]:
    deviation = values[loud].std(0, correction=0).clamp_min(_LEAST_DEVIATION)
    values = (values - values[loud].mean(0)) / deviation
    return (values / values.norm(dim=1, keepdim=True).clamp_min(_LEAST_LENGTH)).float()
