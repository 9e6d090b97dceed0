"""Mel frames of a sound: what the models of voices and of kinds of sound are fed."""

import importlib
from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import MissingExtraError

MEL_BINS = 80
MEL_FRAMES_PER_SECOND = 100
MEL_STEP_SAMPLES = 160
MEL_SEEN_SAMPLES = 400

_FULL_SCALE = 32_768
"""Both models were trained on samples as 16-bit numbers, which changes how far silence is cut."""


def mel_frames(samples: Float[Tensor, "samples"]) -> Float[Tensor, "frames 80"]:
    """Return the logarithms of the energies in 80 mel bands, every 10 ms.

    Recipe: kaldi's, from 20 Hz to 8 kHz, frames of 25 ms under a Povey window, no dither. Frame i
    is made from the samples 160 · i to 160 · i + 399.

    Args:
        samples: 16 kHz sound, one channel, within [-1, 1].

    Returns:
        A frame for each 10 ms of which all 25 ms are there; none for fewer than 400 samples.

    Raises:
        MissingExtraError: if kaldi-native-fbank or numpy is not installed.

    Cost: about 1.5 ms for a second of sound.
    """
    numpy, kaldi = _require("numpy"), _require("kaldi_native_fbank")
    options = kaldi.FbankOptions()
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = MEL_BINS
    extractor = kaldi.OnlineFbank(options)
    extractor.accept_waveform(16_000, (samples * _FULL_SCALE).numpy())
    frames = [extractor.get_frame(i) for i in range(extractor.num_frames_ready)]
    if not frames:
        return torch.zeros(0, MEL_BINS)
    return torch.from_numpy(numpy.stack(frames))


def _require(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError(module.replace("_", "-"), "media") from None
