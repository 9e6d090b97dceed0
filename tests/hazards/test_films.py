"""Films that people really have: without sound, on their side, damaged, with wrong numbers."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from heedmap.errors import InputError
from heedmap.media import Film, Sound, open_media

from .command import Run

RED, GREEN, BLUE, WHITE = (220, 30, 30), (30, 200, 40), (40, 50, 220), (240, 240, 240)


def picture(number: int, noise: int = 0) -> np.ndarray:
    """Return four colours, with noise of its own for each number."""
    made = np.zeros((48, 64, 3), np.uint8)
    made[:24, :32], made[:24, 32:], made[24:, :32], made[24:, 32:] = RED, GREEN, BLUE, WHITE
    if noise:
        random = np.random.default_rng(number)
        made = (made + random.integers(-noise, noise + 1, made.shape)).clip(0, 255).astype("u1")
    return made


def film(
    path: Path,
    frames: int,
    *,
    codec: str = "libx264",
    rate: Any = 25,
    rotation: int = 0,
    noise: int = 0,
    options: dict[str, str] | None = None,
) -> Path:
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        if codec == "libx264":
            stream.options = {"preset": "ultrafast", "qp": "10"}
        if rotation:
            stream.set_display_rotation(rotation)
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(number, noise), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def corners(shown: torch.Tensor) -> list[tuple[int, int, int]]:
    """Return the nearest colours of the four quarters of a picture."""
    height, width = shown.shape[:2]
    found = []
    for row in (height // 4, 3 * height // 4):
        for column in (width // 4, 3 * width // 4):
            pixel = shown[row, column].float()
            distances = {
                colour: float((pixel - torch.tensor(colour)).norm())
                for colour in (RED, GREEN, BLUE, WHITE)
            }
            found.append(min(distances, key=lambda colour: distances[colour]))
    return found


def test_m21_a_film_without_sound(tmp_path: Path, run: Run) -> None:
    path = film(tmp_path / "mute.mp4", 5)
    opened = open_media(path)
    assert isinstance(opened, Film)
    assert not opened.has_sound
    with pytest.raises(InputError, match=r"must have a sound track; got .*mute\.mp4"):
        opened.sound()
    done = run("look", str(path), "--words")
    assert (done.status, done.out) == (2, "")
    assert "must be a sound" in done.err
    assert run("look", str(path)).status == 0


def test_m21_a_sound_without_a_film(tmp_path: Path) -> None:
    path = tmp_path / "tone.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000, layout="mono")
        for start in range(0, 16384, 1024):
            samples = np.sin(np.arange(start, start + 1024) / 6)[None].astype("f4")
            frame = av.AudioFrame.from_ndarray(samples, "fltp", "mono")
            frame.rate, frame.pts, frame.time_base = 16000, start, Fraction(1, 16000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert isinstance(open_media(path), Sound)
    with pytest.raises(InputError, match="which shows no moving pictures"):
        Film.of_file(path)


@pytest.mark.parametrize(("name", "codec"), [("twelve.webm", "libvpx"), ("twelve.mp4", "libx264")])
def test_m23_frames_are_counted_by_decoding(
    name: str, codec: str, tmp_path: Path, run: Run
) -> None:
    path = film(tmp_path / name, 12, codec=codec)
    opened = Film.of_file(path)
    assert opened.stated_frames in (None, 12)
    assert len(opened.sequence().axis) == len(list(opened.frames())) == 12
    assert "video, 12 frames" in run("look", str(path)).out


def test_m23_a_number_that_is_not_true(tmp_path: Path, run: Run) -> None:
    path = film(tmp_path / "cut.mp4", 30, noise=12, options={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    opened = Film.of_file(path)
    held = len(opened.sequence().axis)
    assert held < 30
    assert opened.notes[-1] == f"the file states 30 frames and holds {held}"
    assert opened.notes[-1] in run("look", str(path)).out


TURNED = {
    90: [GREEN, WHITE, RED, BLUE],
    -90: [BLUE, RED, WHITE, GREEN],
    180: [WHITE, BLUE, GREEN, RED],
    0: [RED, GREEN, BLUE, WHITE],
}


@pytest.mark.parametrize("rotation", TURNED)
def test_m24_a_film_that_lies_on_its_side_is_set_upright(rotation: int, tmp_path: Path) -> None:
    opened = Film.of_file(film(tmp_path / "turned.mp4", 3, rotation=rotation))
    upright = rotation in (0, 180)
    assert (opened.width_pixels, opened.height_pixels) == ((64, 48) if upright else (48, 64))
    for frame in opened.frames():
        assert frame.picture.shape == ((48, 64, 3) if upright else (64, 48, 3))
        assert corners(frame.picture) == TURNED[rotation]


def damaged(path: Path, size: int) -> Path:
    """Overwrite so many bytes in the middle of a film."""
    content = bytearray(film(path, 30, noise=12).read_bytes())
    middle = content.find(b"mdat") + len(content) // 2
    content[middle : middle + size] = b"\xaa" * size
    path.write_bytes(content)
    return path


def test_m26_damaged_packets_are_counted_and_the_rest_is_shown(tmp_path: Path, run: Run) -> None:
    path = damaged(tmp_path / "damaged.mp4", 400)
    opened = Film.of_file(path)
    assert len(opened.sequence().axis) == 29
    assert opened.notes[0] == "damaged packets that were skipped: 1"
    assert f"note: {opened.notes[0]}" in run("look", str(path)).out


def test_m26_what_the_decoder_does_not_notice_stops_nothing(tmp_path: Path, run: Run) -> None:
    path = damaged(tmp_path / "damaged.mp4", 60)
    assert len(Film.of_file(path).sequence().axis) == 30
    assert run("look", str(path)).status == 0


@pytest.mark.parametrize("frames", [1, 2, 7, 25])
@pytest.mark.parametrize("rate", [1, 25, Fraction(30000, 1001), 60], ids=str)
def test_m29_as_many_frames_come_out_as_went_in(frames: int, rate: Any, tmp_path: Path) -> None:
    for name in ("even.mp4", "even.mkv"):
        opened = Film.of_file(film(tmp_path / name, frames, rate=rate))
        shown = list(opened.frames())
        assert len(shown) == frames
        assert [frame.number for frame in shown] == list(range(frames))
        # Matroska rounds times to milliseconds.
        for frame in shown:
            assert frame.start_seconds == pytest.approx(frame.number / rate, abs=1e-3)
        assert shown[-1].end_seconds == pytest.approx(frames / rate, abs=2e-3)
        assert opened.notes == ()


def test_m29_nor_is_the_last_sample_lost_on_resampling(tmp_path: Path) -> None:
    import soundfile

    for rate in (8000, 22050, 44100, 48000):
        samples = np.zeros(rate)
        samples[-rate // 100 :] = 0.5
        soundfile.write(tmp_path / "end.wav", samples, rate)
        sound = Sound.of_file(tmp_path / "end.wav")
        assert len(sound.samples) == 16000
        assert float(sound.samples[-100:].mean()) > 0.4
