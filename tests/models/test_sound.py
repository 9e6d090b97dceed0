"""From samples to inputs: which positions are real, and when they are."""

import pytest
import torch
from transformers import Wav2Vec2FeatureExtractor, WhisperFeatureExtractor

from heedmap.errors import DTypeError, InputError, ShapeError
from heedmap.models.loaded import EncodeAudio
from heedmap.models.sound import wave_encoder, whisper_encoder


@pytest.fixture
def window() -> EncodeAudio:
    """Whisper's way, with a window of one second."""
    return whisper_encoder(WhisperFeatureExtractor(chunk_length=1), positions=50)


@pytest.fixture
def wave() -> EncodeAudio:
    """The convolutions of wav2vec 2.0."""
    extractor = Wav2Vec2FeatureExtractor()
    return wave_encoder(extractor, [10, 3, 3, 3, 3, 2, 2], [5, 2, 2, 2, 2, 2, 2])


def noise(samples: int) -> torch.Tensor:
    return torch.randn(samples, generator=torch.Generator().manual_seed(0)) * 0.1


@pytest.mark.parametrize(
    ("samples", "valid", "end"),
    [(1, 1, 1 / 16_000), (320, 1, 0.02), (321, 2, 321 / 16_000), (16_000, 50, 1.0)],
)
def test_positions_end_with_the_sound(window: EncodeAudio, samples: int, valid: int, end: float):
    encoded = window(noise(samples))
    assert encoded.inputs["input_features"].shape == (1, 80, 100)
    assert (encoded.valid, encoded.positions) == (valid, 50)
    assert encoded.axis.spans[0][0] == 0.0
    assert encoded.axis.spans[-1][1] == pytest.approx(end)
    assert bool(encoded.notes) == (valid < 50)


def test_a_long_sound_is_windowed_and_says_so(window: EncodeAudio):
    samples = noise(40_000)
    first, later = window(samples), window(samples, start_seconds=2.0)
    assert first.valid == 50
    assert first.notes == ("the model takes 1 s at a time: this is 0.00 s to 1.00 s of 2.50 s",)
    assert (later.valid, later.axis.spans[0][0], later.axis.spans[-1][1]) == (25, 2.0, 2.5)
    assert later.notes[0].endswith("this is 2.00 s to 2.50 s of 2.50 s")
    assert later.notes[1].startswith("the sound fills the first 25 of the model's 50 positions")
    alone = window(samples[32_000:])
    assert torch.equal(alone.inputs["input_features"], later.inputs["input_features"])


@pytest.mark.parametrize(
    ("samples", "valid"), [(400, 1), (719, 1), (720, 2), (16_000, 49), (16_080, 50)]
)
def test_a_wave_has_as_many_positions_as_the_convolutions_give(
    wave: EncodeAudio, samples: int, valid: int
):
    encoded = wave(noise(samples))
    assert encoded.inputs["input_values"].shape == (1, samples)
    assert (encoded.valid, encoded.positions, encoded.notes) == (valid, valid, ())
    assert encoded.axis.spans[-1][0] == pytest.approx((valid - 1) * 0.02)


def test_a_wave_too_short_for_one_position_is_refused(wave: EncodeAudio):
    with pytest.raises(InputError, match=r"at least 0\.025 s for this model; got 0\.0249"):
        wave(noise(399))


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", ["window", "wave"])
@pytest.mark.parametrize(
    ("samples", "error", "words"),
    [
        (torch.zeros(0), InputError, "must hold some sound"),
        (torch.zeros(2, 800), ShapeError, r"samples must be one row, \[samples\]; got \(2, 800\)"),
        (torch.zeros(800, dtype=torch.int16), DTypeError, r"floating point.*torch\.int16"),
        (torch.full((800,), torch.nan), InputError, "samples must be finite; got NaN or infinity"),
    ],
)
def test_bad_samples_are_refused(
    kind: str,
    samples: torch.Tensor,
    error: type[Exception],
    words: str,
    request: pytest.FixtureRequest,
):
    with pytest.raises(error, match=words):
        request.getfixturevalue(kind)(samples)


@pytest.mark.parametrize("start_seconds", [-0.1, 1.0, 7.0, float("nan"), float("inf")])
def test_a_start_outside_the_sound_is_refused(window: EncodeAudio, start_seconds: float):
    with pytest.raises(InputError, match="start_seconds must lie in the sound, from 0 to 1;"):
        window(noise(16_000), start_seconds=start_seconds)


def test_half_precision_samples_are_taken(wave: EncodeAudio):
    assert wave(noise(800).half()).inputs["input_values"].dtype == torch.float32
