import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from heedmap.errors import ArgumentError, DTypeError, InputError, ShapeError
from heedmap.media import Sound, open_media
from heedmap.media.decoding import Block

RATE = 16000


def tone(seconds: float = 1.0, rate: int = RATE, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype("f4")


def patched(path: Path, offset: int, data: bytes) -> Path:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)
    return path


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(), RATE, subtype="PCM_16")
    return path


@pytest.mark.parametrize(
    ("ending", "subtype"),
    [
        ("wav", "PCM_U8"),
        ("wav", "PCM_24"),
        ("wav", "FLOAT"),
        ("wav", "DOUBLE"),
        ("wav", "ULAW"),
        ("flac", "PCM_16"),
        ("aiff", "PCM_16"),
        ("ogg", "VORBIS"),
    ],
)
def test_every_encoding_gives_the_samples_back(tmp_path: Path, ending: str, subtype: str) -> None:
    path = tmp_path / f"tone.{ending}"
    soundfile.write(path, tone(), RATE, subtype=subtype)
    sound = Sound.of_file(path)
    assert sound.notes == ()
    assert sound.samples.shape == (RATE,)
    assert (sound.samples - torch.from_numpy(tone())).abs().max() < 0.05
    assert abs(float(sound.samples.mean())) < 0.005


def test_extensible_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(), RATE, format="WAVEX", subtype="PCM_16")
    assert len(Sound.of_file(path).samples) == RATE


@pytest.mark.parametrize("name", ["tone.m4a", "tone.mka", "tone.mp3"])
def test_m4a_matroska_and_mp3_are_sounds_with_and_without_cover(
    write_sound: Callable[..., Path], name: str
) -> None:
    codec = {"m4a": "aac", "mka": "flac", "mp3": "libmp3lame"}[name[-3:]]
    path = write_sound(name, tone()[None], codec=codec, cover=name.endswith("mp3"))
    sound = open_media(path)
    assert isinstance(sound, Sound)
    assert abs(sound.duration_seconds - 1) < 0.07
    middle = sound.samples[4000:12000]
    assert abs(float(middle.square().mean().sqrt()) - 0.5 / 2**0.5) < 0.02


def test_resampling_is_noted_and_keeps_the_length(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(3.0, 44100), 44100)
    sound = Sound.of_file(path)
    assert sound.notes == ("resampled from 44100 Hz to 16000 Hz",)
    assert sound.samples.shape == (3 * RATE,)
    assert (sound.samples - torch.from_numpy(tone(3.0)))[200:-200].abs().max() < 1e-3


def test_result_does_not_depend_on_the_blocks(tmp_path: Path) -> None:
    soxr = pytest.importorskip("soxr")
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, 200_000).astype("f4")
    path = tmp_path / "noise.wav"
    soundfile.write(path, samples, 44100, subtype="FLOAT")
    whole = soxr.resample(samples, 44100, RATE, quality="HQ")
    sound = Sound.of_file(path).samples
    assert len(sound) == len(whole)
    assert torch.allclose(sound, torch.from_numpy(whole), atol=1e-6)


def test_channels_are_mixed_to_their_mean_or_chosen(tmp_path: Path) -> None:
    left, right = tone(), tone(hertz=1000)
    path = tmp_path / "two.wav"
    soundfile.write(path, np.stack([left, right], 1), RATE, subtype="FLOAT")
    mean = torch.from_numpy((left + right) / 2)
    assert torch.allclose(Sound.of_file(path).samples, mean, atol=1e-6)
    assert torch.equal(Sound.of_file(path, channel=1).samples, torch.from_numpy(right))
    with pytest.raises(InputError, match=r"channel must be from 0 to 1 for two.wav; got 2"):
        Sound.of_file(path, channel=2)
    with pytest.raises(InputError, match=r"channel must be from 0 to 1 for two.wav; got -1"):
        open_media(path, channel=-1)


def test_channels_that_cancel_are_named(tmp_path: Path) -> None:
    path = tmp_path / "antiphase.wav"
    soundfile.write(path, np.stack([tone(), -tone()], 1), RATE)
    assert (
        "cancel each other; take one of them with --channel 0 (in Python"
        in Sound.of_file(path).notes[0]
    )
    assert Sound.of_file(path, channel=0).notes == ()


def test_silence_is_named(tmp_path: Path) -> None:
    path = tmp_path / "silence.wav"
    soundfile.write(path, np.zeros(RATE), RATE)
    sound = Sound.of_file(path)
    assert sound.notes == ("every sample is 0: the sound is silent",)
    assert sound.sequence().values.isfinite().all()


def test_sound_beyond_full_scale_is_divided_by_its_peak(tmp_path: Path) -> None:
    path = tmp_path / "loud.wav"
    soundfile.write(path, tone() * 40_000, RATE, subtype="FLOAT")
    sound = Sound.of_file(path)
    assert sound.notes == ("divided by 2e+04, its peak, to lie within full scale",)
    assert torch.allclose(sound.samples, torch.from_numpy(tone() * 2), atol=1e-2)


def test_streamed_header_is_noted_and_the_bytes_trusted(wav: Path) -> None:
    size = wav.read_bytes().find(b"data") + 4
    for stated, remark in ((0xFFFFFFFF, "no true length"), (0, "states no samples")):
        sound = Sound.of_file(patched(wav, size, struct.pack("<I", stated)))
        assert len(sound.samples) == RATE
        assert remark in sound.notes[0]


def test_chunks_before_the_samples_are_passed(wav: Path) -> None:
    content = wav.read_bytes()
    odd = b"LIST" + struct.pack("<I", 5) + b"INFOx\0"
    wav.write_bytes(content[:12] + odd + content[12:])
    assert Sound.of_file(wav).notes == ()


@pytest.mark.parametrize("ending", ["wav", "flac", "mp3"])
def test_file_cut_short_gives_what_is_there_and_says_so(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"noise.{ending}"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.3, 0.3, 4 * RATE), RATE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    sound = Sound.of_file(path)
    assert 1 < sound.duration_seconds < 2.5
    assert any("cut short" in note for note in sound.notes)


def test_names_and_tags_in_any_encoding_do_not_matter(write_sound: Callable[..., Path]) -> None:
    path = write_sound("tone.m4a", tone()[None], codec="aac")
    path.write_bytes(path.read_bytes().replace(b"Lavf", b"L\xe9vf"))
    assert isinstance(open_media(path), Sound)


def test_more_planes_than_pyav_can_read_are_refused(
    write_sound: Callable[..., Path], monkeypatch
) -> None:
    path = write_sound("tone.m4a", np.stack([tone()] * 2), codec="aac")
    monkeypatch.setattr("heedmap.media.decoding._MOST_PLANES", 1)
    with pytest.raises(InputError, match="FFmpeg: more than 1 channels"):
        Sound.of_file(path)


def test_a_rate_that_is_no_sound_is_refused(wav: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"must have at least 1000 samples a second to be a sound; got tone\.wav with 11",
    ):
        Sound.of_file(patched(wav, 24, struct.pack("<I", 11)))


def test_damage_within_flac_is_noted_and_later_seconds_stay_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "noise.flac"
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, 4 * RATE)
    samples[3 * RATE :] = 0
    soundfile.write(path, samples, RATE)
    sound = Sound.of_file(patched(path, path.stat().st_size // 2, b"\x55" * 300))
    assert any("lost sync; decoded by FFmpeg" in note for note in sound.notes)
    assert sound.samples[3 * RATE - 8 : 3 * RATE].abs().max() > 0
    assert sound.samples[3 * RATE : 4 * RATE].abs().max() == 0


def test_a_gap_in_a_track_is_filled_with_silence(write_sound: Callable[..., Path]) -> None:
    path = write_sound("gap.mka", tone(2.048)[None], codec="pcm_s16le", gap_samples=RATE // 2)
    sound = Sound.of_file(path)
    assert sound.notes == ("silence put where the track lacks a piece: 0.50 s",)
    assert abs(sound.duration_seconds - 2.548) < 0.002
    quiet = (sound.samples.abs() < 1e-3).unfold(0, 100, 1).all(1).nonzero().flatten() / RATE
    assert 1.02 < float(quiet[0]) < 1.03
    assert 1.51 < float(quiet[-1]) < 1.53


def test_samples_that_are_no_numbers_are_counted_and_placed(tmp_path: Path) -> None:
    samples = np.stack([tone(8.0)] * 2, 1)
    samples[40_000, 1] = np.nan
    samples[100_000] = [np.inf, -np.inf]
    path = tmp_path / "broken.wav"
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    with pytest.raises(InputError, match=r"broken.wav with 3 that .* the first at 2.500 s"):
        Sound.of_file(path)
    with pytest.raises(InputError, match=r"with 1 that .* the first at 6.250 s"):
        Sound.of_file(path, channel=0)


def test_header_without_samples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.wav"
    soundfile.write(path, np.zeros(0), RATE)
    with pytest.raises(InputError, match=r"none.wav, which has no samples"):
        open_media(path)


def test_one_sample_is_a_sound_of_one_position(tmp_path: Path) -> None:
    path = tmp_path / "one.wav"
    soundfile.write(path, np.array([0.5]), RATE)
    sequence = Sound.of_file(path).sequence()
    assert sequence.axis.spans == ((0.0, 1 / RATE),)
    assert sequence.values.isfinite().all()


def test_a_sound_shorter_than_a_sample_of_the_wanted_rate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.wav"
    soundfile.write(path, np.array([0.5]), 192_000)
    with pytest.raises(InputError, match="must last for a sample at 16000 Hz"):
        Sound.of_file(path)


@pytest.mark.parametrize("cut_bytes", [12, 20, 40])
def test_header_cut_short_is_refused(wav: Path, cut_bytes: int) -> None:
    wav.write_bytes(wav.read_bytes()[:cut_bytes])
    with pytest.raises(InputError, match=r"tone.wav, which begins as WAV"):
        open_media(wav)


@pytest.mark.parametrize(("offset", "size"), [(24, 4), (22, 2)])
def test_rate_or_channels_of_zero_are_refused(wav: Path, offset: int, size: int) -> None:
    with pytest.raises(InputError, match=r"tone.wav"):
        open_media(patched(wav, offset, bytes(size)))


def test_the_ending_does_not_decide(wav: Path) -> None:
    for name in ("tone.raw", "tone.mp4", "tone.txt", "tone", "concat:tone"):
        wav = wav.rename(wav.with_name(name))
        assert isinstance(open_media(wav), Sound)


@pytest.mark.parametrize("rate", [0, -1])
def test_rates_that_make_no_sense_are_refused(wav: Path, rate: int) -> None:
    with pytest.raises(ArgumentError, match="sample_rate_hz must be at least 1; got"):
        open_media(wav, sample_rate_hz=rate)


def test_samples_are_checked_when_given_directly() -> None:
    # A run with shapes checked everywhere refuses the first by its annotation already.
    with pytest.raises((ShapeError, TypeError)):
        Sound(torch.zeros(2, 8), RATE, "x")
    with pytest.raises(ShapeError, match="at least one sample"):
        Sound(torch.zeros(0), RATE, "x")
    with pytest.raises(DTypeError, match="samples must be float32"):
        Sound(torch.zeros(8, dtype=torch.float64), RATE, "x")
    for value in (1.5, torch.nan, torch.inf):
        with pytest.raises(InputError, match=r"lie in \[-1, 1\]"):
            Sound(torch.full((8,), value), RATE, "x")


def voices() -> Sound:
    """Return 12 s of two buzzing voices that take turns of 2 s, with formants of their own."""
    random = np.random.default_rng(0)
    turns = []
    for turn in range(6):
        pitch, formants = ((110, (500, 1500)), (210, (800, 2600)))[turn % 2]
        time = np.arange(2 * RATE) / RATE
        # The loudness of the overtones peaks at two formants that wander a little.
        voice = sum(
            np.sin(2 * np.pi * pitch * k * time)
            * sum(np.exp(-(((pitch * k - f) / 200) ** 2)) for f in formants)
            for k in range(1, 25)
        )
        turns.append(voice * (1 + 0.5 * np.sin(2 * np.pi * 4 * time)) / 20)
    samples = np.concatenate(turns) + random.normal(0, 1e-3, 12 * RATE)
    return Sound(torch.from_numpy(samples.astype("f4")).clamp(-1, 1), RATE, "voices")


def test_equal_voices_are_more_alike_than_different_ones() -> None:
    sequence = voices().sequence()
    assert sequence.values.dtype == torch.float32
    middle = torch.tensor([(a + b) / 2 for a, b in sequence.axis.spans])
    clear = (middle % 2 > 0.6) & (middle % 2 < 1.4)
    voice = (middle // 2 % 2)[clear]
    alike = sequence.values[clear] @ sequence.values[clear].T
    same = voice[:, None] == voice
    assert alike[same].min() > alike[~same].max()


def test_each_moment_lies_in_exactly_one_position() -> None:
    for seconds, positions in ((12.0, 120), (1.1, 11), (0.7, 7), (0.05, 1), (1.234, 13)):
        sound = Sound(torch.from_numpy(tone(seconds)), RATE, "tone")
        spans = sound.sequence().axis.spans
        assert len(spans) == positions
        assert spans[0][0] == 0
        assert spans[-1][1] == sound.duration_seconds
        assert all(a[1] == b[0] and a[0] < a[1] for a, b in pairwise(spans))


def test_a_position_depends_on_its_window_only() -> None:
    samples = voices().samples
    changed = samples.clone()
    changed[6 * RATE : 7 * RATE] = samples[2 * RATE : 3 * RATE]
    kept = [i for i in range(120) if abs(i * 0.1 + 0.05 - 6.5) > 1.1]
    values = [Sound(x, RATE, "x").sequence().values[kept] for x in (samples, changed)]
    # Only the mean and deviation of the whole have changed, a little.
    assert (values[0] * values[1]).sum(1).min() > 0.9


def test_a_sound_without_change_shows_no_structure() -> None:
    hiss = np.random.default_rng(0).normal(0, 0.1, 20 * RATE).clip(-1, 1).astype("f4")
    values = Sound(torch.from_numpy(hiss), RATE, "hiss").sequence().values
    assert values.norm(dim=1).mean() < 0.6


def test_other_rates_give_nearly_the_same_values() -> None:
    soxr = pytest.importorskip("soxr")
    sound = voices()
    faster = torch.from_numpy(soxr.resample(sound.samples.numpy(), RATE, 48000)).clamp(-1, 1)
    values = Sound(faster, 48000, "faster").sequence().values
    assert (values * sound.sequence().values).sum(1).min() > 0.98


def test_windows_and_hops_are_checked() -> None:
    sound = Sound(torch.zeros(RATE), RATE, "x")
    with pytest.raises(ArgumentError, match=r"hop_seconds must be at least 0\.01; got 0"):
        sound.sequence(hop_seconds=0.0)
    with pytest.raises(ArgumentError, match="hop_seconds"):
        sound.sequence(hop_seconds=float("nan"))
    with pytest.raises(ArgumentError, match="window_seconds must be at least hop_seconds"):
        sound.sequence(window_seconds=0.05)
    assert len(sound.sequence(window_seconds=0.01, hop_seconds=0.01).axis) == 100
    assert len(sound.sequence(window_seconds=99.0, hop_seconds=99.0).axis) == 1


def test_a_rate_that_changes_on_the_way(wav: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks(*_: object) -> Iterator[Block]:
        for rate in (16000, 8000):
            yield Block(rate, np.zeros((100, 1), np.float32))

    monkeypatch.setattr("heedmap.media.blocks.soundfile_blocks", blocks)
    with pytest.raises(InputError, match=r"must keep one sample rate; .* from 16000 to 8000 Hz"):
        Sound.of_file(wav)
