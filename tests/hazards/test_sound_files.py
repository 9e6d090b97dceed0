"""Sound files that people really have, opened by Python and by the command line."""

import json
import struct
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from heedmap.errors import InputError
from heedmap.media import Sound, open_media

from .command import Run

RATE = 16_000
PCM, FLOAT, MU_LAW, EXTENSIBLE = 1, 3, 7, 0xFFFE


def tone(seconds: float = 1.0, rate: int = RATE, hertz: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def riff(
    data: bytes,
    *,
    tag: int = PCM,
    bits: int = 16,
    channels: int = 1,
    rate: int = RATE,
    stated: int | None = None,
    before: bytes = b"",
    extension: bytes = b"",
) -> bytes:
    """Return a WAV file, byte by byte; `stated` is the size that its header claims."""
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits) + extension
    stated = len(data) if stated is None else stated
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + before
    chunks += b"data" + struct.pack("<I", stated) + data
    whole = 4 + len(chunks) if stated == len(data) else stated
    return b"RIFF" + struct.pack("<I", min(whole, 0xFFFFFFFF)) + b"WAVE" + chunks


def pcm16(samples: np.ndarray) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def mu_law(samples: np.ndarray) -> bytes:
    """Return samples in the form of telephones: a logarithm of 8 bits, inverted."""
    compressed = np.sign(samples) * np.log1p(255 * np.abs(samples)) / np.log(256)
    magnitude = (np.abs(compressed) * 127).astype(np.uint8)
    return (~(magnitude | np.where(samples < 0, 0x80, 0).astype(np.uint8))).tobytes()


GUID = (
    struct.pack("<HHI", 22, 16, 4)
    + b"\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
)
SOUND = tone()
READ: dict[str, tuple[bytes, float]] = {
    "m04 8 bits": (riff(np.rint(SOUND * 127 + 128).astype("u1").tobytes(), bits=8), 0.01),
    "m06 extensible": (riff(pcm16(SOUND), tag=EXTENSIBLE, extension=GUID), 1e-3),
    "m07 float32": (riff(SOUND.astype("<f4").tobytes(), tag=FLOAT, bits=32), 1e-6),
    "m07 float64": (riff(SOUND.astype("<f8").tobytes(), tag=FLOAT, bits=64), 1e-6),
    "m17 mu-law": (riff(mu_law(SOUND), tag=MU_LAW, bits=8), 0.05),
    "m14 odd chunk": (
        riff(pcm16(SOUND), before=b"LIST" + struct.pack("<I", 5) + b"INFOx\0"),
        1e-3,
    ),
}


def require_tone(case: str, tmp_path: Path, run: Run) -> None:
    """See that a file gives the tone back, by Python and by the command line."""
    content, tolerance = READ[case]
    path = tmp_path / "tone.wav"
    path.write_bytes(content)
    sound = open_media(path)
    assert isinstance(sound, Sound)
    assert sound.notes == ()
    assert sound.samples.shape == (RATE,)
    assert float((sound.samples.double() - torch.from_numpy(SOUND)).abs().max()) < tolerance
    assert abs(float(sound.samples.mean())) < 0.005, "centred"
    done = run("look", str(path), "--model", "none", "--query", "0.5s")
    assert done.status == 0
    assert "tone.wav: audio, 10 moments" in done.out


def test_m04_eight_bits_without_sign(tmp_path: Path, run: Run) -> None:
    require_tone("m04 8 bits", tmp_path, run)


def test_m06_the_extensible_form(tmp_path: Path, run: Run) -> None:
    require_tone("m06 extensible", tmp_path, run)


@pytest.mark.parametrize("case", ["m07 float32", "m07 float64"])
def test_m07_floating_point(case: str, tmp_path: Path, run: Run) -> None:
    require_tone(case, tmp_path, run)


def test_m14_a_chunk_of_odd_size_before_the_samples(tmp_path: Path, run: Run) -> None:
    require_tone("m14 odd chunk", tmp_path, run)


def test_m17_mu_law(tmp_path: Path, run: Run) -> None:
    require_tone("m17 mu-law", tmp_path, run)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_m17_other_rates_are_resampled_and_it_is_said(rate: int, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(riff(pcm16(tone(rate=rate)), rate=rate))
    sound = Sound.of_file(path)
    assert sound.notes == (f"resampled from {rate} Hz to {RATE} Hz",)
    assert sound.samples.shape == (RATE,)
    middle = slice(500, -500)
    assert float((sound.samples.double() - torch.from_numpy(SOUND))[middle].abs().max()) < 2e-3
    done = run("look", str(path), "--model", "none")
    assert f"note: resampled from {rate} Hz to {RATE} Hz" in done.out


REFUSED: dict[str, tuple[bytes, str]] = {
    "m01 no bytes": (b"", "which is empty"),
    "m02 no samples": (riff(b""), "which has no samples"),
    "m16 no rate": (riff(pcm16(SOUND), rate=0), "tone.wav"),
    "m16 no channels": (riff(pcm16(SOUND), channels=0), "tone.wav"),
    "m16 a rate of 11": (riff(pcm16(SOUND), rate=11), "at least 1000 samples a second"),
}


def require_refused(case: str, tmp_path: Path, run: Run) -> None:
    """See that a file is refused in one line, with status 2, by Python and the command line."""
    content, words = REFUSED[case]
    path = tmp_path / "tone.wav"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        open_media(path)
    for further in ((), ("--words",)):
        done = run("look", str(path), "--model", "none", *further)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("heedmap: ")
        assert words in done.err
        assert done.err.count("\n") == 1


def test_m01_no_bytes(tmp_path: Path, run: Run) -> None:
    require_refused("m01 no bytes", tmp_path, run)


def test_m02_a_header_and_no_samples(tmp_path: Path, run: Run) -> None:
    require_refused("m02 no samples", tmp_path, run)


@pytest.mark.parametrize("case", ["m16 no rate", "m16 no channels", "m16 a rate of 11"])
def test_m16_no_rate_and_no_channels(case: str, tmp_path: Path, run: Run) -> None:
    require_refused(case, tmp_path, run)


def test_m09_channels_that_cancel_are_said_to(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "antiphase.wav"
    both = np.stack([SOUND, -SOUND], 1)
    path.write_bytes(riff(pcm16(both), channels=2))
    sound = Sound.of_file(path)
    assert float(sound.samples.abs().max()) < 1e-3
    assert "they cancel each other; take one of them" in sound.notes[0]
    one = Sound.of_file(path, channel=0)
    assert one.notes == ()
    assert float((one.samples.double() - torch.from_numpy(SOUND)).abs().max()) < 1e-3
    assert "with --channel 0" in run("look", str(path), "--model", "none").out
    done = run("look", str(path), "--model", "none", "--channel", "1")
    assert done.status == 0
    assert "cancel" not in done.out


def test_m09_channels_that_are_not_there(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mono.wav"
    path.write_bytes(riff(pcm16(SOUND)))
    for arguments, words in (
        ((str(path), "--channel", "1"), "channel must be from 0 to 0 for mono.wav; got 1"),
        (("to be", "--channel", "0"), "channel must be given for a sound; got 0"),
        (("--text", "to be", "--channel", "0"), "--channel must be given for a sound"),
    ):
        done = run("look", *arguments, "--model", "none")
        assert (done.status, done.out) == (2, "")
        assert words in done.err


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_m11_a_stated_size_of_a_stream(stated: int, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "stream.wav"
    path.write_bytes(riff(pcm16(SOUND), stated=stated))
    sound = Sound.of_file(path)
    assert sound.samples.shape == (RATE,)
    assert sound.notes[0].startswith("the header states no true length")
    assert "states no true length" in run("look", str(path), "--model", "none").out


def test_m12_a_stated_size_of_zero(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "stream.wav"
    path.write_bytes(riff(pcm16(SOUND), stated=0))
    sound = Sound.of_file(path)
    assert sound.samples.shape == (RATE,)
    assert any("states no samples" in note for note in sound.notes)
    assert "states no samples" in run("look", str(path), "--model", "none").out


def require_sound(path: Path, run: Run) -> None:
    sound = open_media(path)
    assert isinstance(sound, Sound), "a cover makes no film"
    assert sound.duration_seconds == pytest.approx(1, abs=0.1)
    middle = sound.samples[4000:12000]
    assert float(middle.square().mean().sqrt()) == pytest.approx(0.5 / 2**0.5, abs=0.03)
    done = run("look", str(path), "--model", "none", "--json")
    assert done.status == 0
    assert json.loads(done.out)["input"]["kind"] == "audio"


@pytest.mark.parametrize(("name", "codec"), [("tone.m4a", "aac"), ("tone.mka", "flac")])
def test_m18_what_ffmpeg_alone_reads(
    name: str, codec: str, write_sound: Callable[..., Path], run: Run
) -> None:
    require_sound(write_sound(name, SOUND[None], codec=codec), run)


@pytest.mark.parametrize(("name", "codec"), [("tone.mp3", "libmp3lame"), ("tone.m4a", "aac")])
def test_m20_a_cover_makes_no_film(
    name: str, codec: str, write_sound: Callable[..., Path], run: Run
) -> None:
    require_sound(write_sound(name, SOUND[None], codec=codec, cover=True), run)


@pytest.mark.parametrize("package", ["av", "soundfile"])
def test_m18_a_package_that_is_missing_is_named(
    package: str, write_sound: Callable[..., Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_sound("tone.m4a", SOUND[None], codec="aac")
    monkeypatch.setitem(__import__("sys").modules, package, None)
    done = run("look", str(path), "--model", "none")
    assert (done.status, done.out) == (1, "")
    assert f"{package} must be installed" in done.err
    assert "heedmap[media]" in done.err


def test_m07_the_tests_own_headers_are_what_others_read(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(riff(pcm16(SOUND)))
    with wave.open(str(path)) as opened:
        assert opened.getnframes() == RATE
    reader: Callable[[Path], Sound] = Sound.of_file
    assert reader(path).samples.shape == (RATE,)
