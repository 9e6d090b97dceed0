"""A sound in blocks is the sound in one piece, and its notes and errors are the same."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from heedmap.errors import ArgumentError, InputError
from heedmap.media import Sound, SoundBlocks

RATE = 16_000


def noise(seconds: float, channels: int = 1, rate: int = RATE) -> np.ndarray:
    shape = (round(seconds * rate), channels)
    return np.random.default_rng(0).uniform(-0.3, 0.3, shape).astype("f4")


def write(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    soundfile.write(path, samples, rate, subtype="FLOAT")
    return path


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("channels", [1, 6])
def test_blocks_are_the_whole_sound(tmp_path: Path, rate: int, channels: int) -> None:
    path = write(tmp_path / "noise.wav", noise(9, channels, rate), rate)
    blocks = SoundBlocks(path)
    sound = Sound.of_file(path)
    pieces = list(blocks)
    assert len(pieces) > 1
    assert torch.equal(torch.cat(pieces), sound.samples)
    assert blocks.notes == sound.notes
    assert blocks.peak == float(sound.samples.abs().max())
    assert torch.equal(torch.cat(list(blocks)), sound.samples)


def test_one_channel_is_taken(tmp_path: Path) -> None:
    samples = noise(1, 6)
    path = write(tmp_path / "six.wav", samples)
    taken = torch.cat(list(SoundBlocks(path, channel=4)))
    assert torch.equal(taken, torch.from_numpy(samples[:, 4]))
    with pytest.raises(InputError, match=r"channel must be from 0 to 5 for six\.wav; got 6"):
        list(SoundBlocks(path, channel=6))


def test_what_lies_beyond_full_scale_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "loud.wav", noise(1) * 100)
    blocks = SoundBlocks(path)
    samples = torch.cat(list(blocks))
    assert 20 < blocks.peak == float(samples.abs().max())
    assert blocks.notes == ()


def test_a_clipped_sound_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clipped.wav"
    soundfile.write(path, np.clip(noise(1) * 10, -1, 1), RATE)
    blocks = SoundBlocks(path)
    list(blocks)
    assert blocks.notes == ("66.3% of its samples are at full scale: it seems to be clipped",)


def test_a_broken_sample_ends_in_an_error_and_nothing_after_it_is_given(tmp_path: Path) -> None:
    samples = noise(12)
    samples[6 * RATE : 6 * RATE + 3] = np.nan
    path = write(tmp_path / "broken.wav", samples)
    given: list[torch.Tensor] = []
    with pytest.raises(InputError, match=r"broken\.wav with 3 that are NaN .* first at 6\.000 s"):
        given.extend(SoundBlocks(path))
    assert len(given) == 1
    assert given[0].isfinite().all()


def test_a_file_that_soundfile_gives_up_within_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "noise.flac"
    samples = noise(12)
    samples[10 * RATE :] = 0
    soundfile.write(path, samples, RATE)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 300] = b"\x55" * 300
    path.write_bytes(content)
    blocks = SoundBlocks(path)
    heard = torch.cat(list(blocks))
    assert any("lost sync; decoded by FFmpeg" in note for note in blocks.notes)
    assert heard[10 * RATE - 8 : 10 * RATE].abs().max() > 0
    assert heard[10 * RATE : 12 * RATE].abs().max() == 0
    assert torch.allclose(heard[: 4 * RATE], torch.from_numpy(samples[: 4 * RATE, 0]), atol=1e-4)


def test_what_is_no_sound_is_refused_before_anything_is_given(tmp_path: Path) -> None:
    path = tmp_path / "no.wav"
    with pytest.raises(InputError, match="must be a file that exists"):
        list(SoundBlocks(path))
    path.write_text("not a sound at all, but long enough to be looked into")
    with pytest.raises(InputError, match="must be a sound that can be decoded"):
        list(SoundBlocks(path))
    write(path, noise(0))
    with pytest.raises(InputError, match=r"must be a sound; got .*, which has no samples"):
        list(SoundBlocks(path))
    with pytest.raises(ArgumentError, match="sample_rate_hz must be at least 1; got 0"):
        SoundBlocks(path, sample_rate_hz=0)
