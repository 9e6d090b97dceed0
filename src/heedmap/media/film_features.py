"""What a picture looks like, without a model: soft histograms of its regions."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

_REGIONS = 3
_LUMA_BINS = 8
_CHROMA_BINS = 4
_LEAST_LENGTH = 0.1


def picture_histogram(
    picture: UInt8[Tensor, "height width 3"],
) -> Float[Tensor, "features"]:
    """Return the soft histograms of 3 × 3 regions: 9 × (8 of luma + 4 + 4 of chroma) shares.

    The shares of one region and one of its three channels sum to 1.
    """
    red, green, blue = picture.float().unbind(-1)
    # Luma and chroma of BT.601, full range, as in JPEG.
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    blueness = (128 + 0.564 * (blue - luma)).clamp(0, 255)
    redness = (128 + 0.713 * (red - luma)).clamp(0, 255)
    shares = torch.cat(
        [
            _soft_bins(luma, _LUMA_BINS),
            _soft_bins(blueness, _CHROMA_BINS),
            _soft_bins(redness, _CHROMA_BINS),
        ]
    )
    return adaptive_avg_pool2d(shares, _REGIONS).flatten()


def normalized_histograms(
    histograms: Float[Tensor, "positions features"],
) -> Float[Tensor, "positions features"]:
    """Return the square roots of histograms, less their mean, at unit length.

    What is shorter than 0.1 is divided by 0.1 instead: it hardly differs from the mean.
    """
    roots = histograms.sqrt()
    differences = roots - roots.mean(0)
    return differences / differences.norm(dim=1, keepdim=True).clamp_min(_LEAST_LENGTH)


def _soft_bins(
    channel: Float[Tensor, "height width"], bins: int
) -> Float[Tensor, "bins height width"]:
    """Return how much of each pixel falls to each bin, by nearness, for values from 0 to 255."""
    places = channel * ((bins - 1) / 255)
    centres = torch.arange(bins)[:, None, None]
    return (1 - (places - centres).abs()).clamp_min(0)
