from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from heedmap.errors import ArgumentError, InputError
from heedmap.media import Film, Sound, open_media
from heedmap.media.decoding import PacketReader

WriteFilm = Callable[..., Path]

RED, GREEN, BLUE, WHITE = (220, 30, 30), (30, 200, 40), (40, 50, 220), (240, 240, 240)


def quarters(*colours: tuple[int, int, int], height: int = 48, width: int = 64) -> np.ndarray:
    """Return a picture with these colours top left, top right, bottom left, bottom right."""
    picture = np.zeros((height, width, 3), np.uint8)
    for number, colour in enumerate(colours):
        row, column = divmod(number, 2)
        picture[
            row * height // 2 : (row + 1) * height // 2,
            column * width // 2 : (column + 1) * width // 2,
        ] = colour
    return picture


def noisy(picture: np.ndarray, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(-12, 13, picture.shape)
    return (picture + noise).clip(0, 255).astype(np.uint8)


SHOT_A = quarters(RED, GREEN, BLUE, WHITE)
SHOT_B = quarters(WHITE, WHITE, RED, RED)
SHOT_C = quarters(BLUE, BLUE, BLUE, GREEN)


def colours_of(picture: torch.Tensor) -> list[str]:
    """Return the names of the colours of the four quarters of a picture."""
    height, width = picture.shape[:2]
    names = []
    for row in (height // 4, 3 * height // 4):
        for column in (width // 4, 3 * width // 4):
            pixel = picture[row, column].float()
            distances = {
                name: float((pixel - torch.tensor(colour)).norm())
                for name, colour in (("red", RED), ("green", GREEN), ("blue", BLUE))
            }
            distances["white"] = float((pixel - torch.tensor(WHITE)).norm())
            names.append(min(distances, key=distances.__getitem__))
    return names


def test_every_frame_comes_out_with_its_own_time(write_film: WriteFilm) -> None:
    times = [0, 40, 80, 500, 520, 1000, 1010, 1900, 2000, 2040, 2500]
    film = Film.of_file(write_film("uneven.mp4", [SHOT_A] * len(times), milliseconds=times))
    frames = list(film.frames())
    assert [frame.number for frame in frames] == list(range(len(times)))
    assert [frame.start_seconds for frame in frames] == pytest.approx([t / 1000 for t in times])
    assert all(a.end_seconds == b.start_seconds for a, b in pairwise(frames))
    assert frames[-1].end_seconds > frames[-1].start_seconds
    assert film.notes == ()


@pytest.mark.parametrize(
    ("rotation", "colours"),
    [
        (0, ["red", "green", "blue", "white"]),
        (90, ["green", "white", "red", "blue"]),
        (-90, ["blue", "red", "white", "green"]),
        (180, ["white", "blue", "green", "red"]),
    ],
)
def test_pictures_are_upright(write_film: WriteFilm, rotation: int, colours: list[str]) -> None:
    film = Film.of_file(write_film("turned.mp4", [SHOT_A] * 3, rotation=rotation))
    sides = (64, 48) if rotation in (0, 180) else (48, 64)
    assert (film.width_pixels, film.height_pixels) == sides
    for frame in film.frames():
        assert tuple(frame.picture.shape) == (sides[1], sides[0], 3)
        assert colours_of(frame.picture) == colours
    assert next(film.frames(max_side_pixels=32)).picture.shape == (sides[1] // 2, sides[0] // 2, 3)


def mirrored_matrix(path: Path) -> Path:
    """Turn the matrix of every track of an MP4 file into one that swaps left and right."""
    content = bytearray(path.read_bytes())
    plain = np.array([0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000], ">i4").tobytes()
    mirror = np.array([-0x10000, 0, 0, 0, 0x10000, 0, 64 << 16, 0, 0x40000000], ">i4").tobytes()
    start = content.find(plain, content.find(b"tkhd"))
    content[start : start + len(mirror)] = mirror
    path.write_bytes(content)
    return path


def test_a_mirrored_film_is_shown_as_it_says(write_film: WriteFilm) -> None:
    film = Film.of_file(mirrored_matrix(write_film("mirror.mp4", [SHOT_A] * 3)))
    assert colours_of(next(film.frames()).picture) == ["green", "red", "white", "blue"]


def test_returning_shots_look_at_each_other(write_film: WriteFilm) -> None:
    shots = [SHOT_A] * 10 + [SHOT_B] * 8 + [SHOT_C] * 6 + [SHOT_A] * 9 + [SHOT_B] * 7
    film = Film.of_file(write_film("shots.mp4", [noisy(s, i) for i, s in enumerate(shots)]))
    sequence = film.sequence()
    shot = torch.tensor([0] * 10 + [1] * 8 + [2] * 6 + [0] * 9 + [1] * 7)
    same = shot[:, None] == shot
    alike = sequence.values @ sequence.values.T
    assert sequence.values.dtype == torch.float32
    assert alike[same].min() > 0.9
    assert alike[~same].max() < 0.5
    weights = torch.softmax(alike / film.temperature, -1)
    assert float((weights * same).sum(-1).min()) > 0.8
    assert sequence.axis.locate("0.43s").positions == sequence.axis.locate("f10").positions == (10,)


@pytest.mark.parametrize("segment_frames", [1, 3, 10, 11, 100])
def test_segments_hold_every_frame_once(write_film: WriteFilm, segment_frames: int) -> None:
    film = Film.of_file(write_film("ten.mp4", [SHOT_A] * 4 + [SHOT_B] * 6))
    axis = film.sequence(segment_frames).axis
    covered = [number for first, end in axis.frames for number in range(first, end)]
    assert covered == list(range(10))
    assert all(end - first == segment_frames for first, end in axis.frames[:-1])
    assert axis.spans[0][0] == 0
    assert axis.spans[-1][1] == pytest.approx(0.4)
    assert all(a[1] == b[0] for a, b in pairwise(axis.spans))


def test_a_segment_is_the_mean_of_its_frames(write_film: WriteFilm) -> None:
    film = Film.of_file(write_film("pairs.mp4", [SHOT_A, SHOT_B, SHOT_C, SHOT_C] * 2))
    values = film.sequence(2).values
    assert values[0] @ values[2] > 0.98
    assert values[0] @ values[1] < -0.9


def test_a_still_film_is_not_blown_up(write_film: WriteFilm) -> None:
    still = Film.of_file(write_film("still.mp4", [noisy(SHOT_A, i) for i in range(20)]))
    assert still.sequence().values.norm(dim=1).max() < 0.5
    one = Film.of_file(write_film("one.mp4", [SHOT_A]))
    assert one.sequence().values.abs().max() == 0


def test_frames_are_counted_by_decoding_where_the_header_says_nothing(
    write_film: WriteFilm,
) -> None:
    film = Film.of_file(write_film("twelve.webm", [SHOT_A] * 12, codec="libvpx"))
    assert film.stated_frames is None
    assert len(film.sequence().axis) == 12


def test_progress_is_told_with_the_stated_frames(write_film: WriteFilm) -> None:
    told: list[tuple[int, int | None]] = []
    film = Film.of_file(write_film("sixty.mp4", [SHOT_A] * 60))
    film.sequence(progress=lambda done, stated: told.append((done, stated)))
    assert told == [(25, 60), (50, 60), (60, 60)]


def test_damaged_packets_are_counted_and_the_rest_is_shown(write_film: WriteFilm) -> None:
    pictures = [noisy(SHOT_A, i) for i in range(30)]
    path = write_film("damaged.mp4", pictures)
    whole = path.read_bytes()
    content = bytearray(whole)
    middle = content.find(b"mdat") + len(content) // 2
    content[middle : middle + 400] = b"\xaa" * 400
    path.write_bytes(content)
    film = Film.of_file(path)
    for _ in range(2):
        axis = film.sequence().axis
        assert len(axis) == 29
        assert axis.spans[-1][1] == pytest.approx(1.2)
        assert film.notes[0] == "damaged packets that were skipped: 1"
    content[middle + 20 : middle + 400] = whole[middle + 20 : middle + 400]
    path.write_bytes(content)
    assert len(film.sequence().axis) == 30
    assert film.notes == ("damaged frames that were concealed: 1",)


def test_a_film_cut_short_shows_what_is_there_and_says_so(write_film: WriteFilm) -> None:
    pictures = [noisy(SHOT_A, i) for i in range(30)]
    path = write_film("cut.mp4", pictures, options={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    film = Film.of_file(path)
    held = len(film.sequence().axis)
    assert 15 <= held < 30
    assert film.notes[-1] == f"the file states 30 frames and holds {held}"


def test_a_matroska_film_cut_short_says_so(write_film: WriteFilm) -> None:
    path = write_film("whole.mkv", [noisy(SHOT_A, i) for i in range(50)])
    film = Film.of_file(path)
    assert len(film.sequence().axis) == 50
    assert film.notes == ()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    held = len(film.sequence().axis)
    assert 15 <= held < 35
    assert film.notes[-1] == (
        f"the file is cut short or damaged: it states 2.00 s and ends at {held / 25:.2f} s"
    )


def test_a_film_without_its_index_is_refused(write_film: WriteFilm) -> None:
    path = write_film("cut.mp4", [noisy(SHOT_A, i) for i in range(10)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(InputError, match=r"cut.mp4, which begins as MP4 and cannot be decoded"):
        open_media(path)


def test_sound_track_has_the_seconds_of_the_pictures(write_film: WriteFilm) -> None:
    path = write_film("late.mp4", [SHOT_A] * 50, tone_seconds=1.0, tone_start_seconds=0.5)
    film = open_media(path)
    assert isinstance(film, Film)
    assert film.has_sound
    sound = film.sound()
    assert isinstance(sound, Sound)
    loud = (sound.samples.abs() > 0.1).nonzero().flatten() / 16000
    assert float(loud[0]) == pytest.approx(0.5, abs=0.07)
    assert float(loud[-1]) == pytest.approx(1.5, abs=0.07)
    assert film.sound(sample_rate_hz=8000).notes == ("resampled from 16000 Hz to 8000 Hz",)


def test_a_film_without_sound_says_so(write_film: WriteFilm) -> None:
    film = Film.of_file(write_film("mute.mp4", [SHOT_A] * 3))
    with pytest.raises(InputError, match=r"must have a sound track; got .*mute.mp4, which"):
        film.sound()
    with pytest.raises(InputError, match="no sound track"):
        Sound.of_file(film.path)


def test_pictures_of_stretched_pixels_are_made_square(tmp_path: Path) -> None:
    path = tmp_path / "wide.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        stream.codec_context.sample_aspect_ratio = 2
        frame = av.VideoFrame.from_ndarray(quarters(RED, GREEN, BLUE, WHITE, height=64), "rgb24")
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert next(Film.of_file(path).frames(max_side_pixels=32)).picture.shape == (16, 32, 3)


def test_a_sound_is_no_film(write_sound: Callable[..., Path]) -> None:
    path = write_sound("covered.mp3", np.zeros((1, 16000)), codec="libmp3lame", cover=True)
    with pytest.raises(InputError, match=r"covered.mp3, which shows no moving pictures"):
        Film.of_file(path)


def test_a_still_picture_is_no_film(tmp_path: Path) -> None:
    path = tmp_path / "picture.mp4"
    with av.open(str(path), "w", format="image2") as container:
        stream = container.add_stream("png", rate=1)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "rgb24"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(SHOT_A, "rgb24")))
        container.mux(stream.encode(None))
    with pytest.raises(
        InputError, match=r"input must be a film; got .*picture.mp4, a still picture"
    ):
        Film.of_file(path)
    with pytest.raises(
        InputError, match=r"input must be text, a sound or a film; got .*picture.mp4, a still"
    ):
        open_media(path)


def test_a_film_without_a_frame_that_can_be_decoded(
    write_film: WriteFilm, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_film("film.mp4", [SHOT_A] * 3)
    film = Film.of_file(path)
    monkeypatch.setattr(PacketReader, "__iter__", lambda _: iter(()))
    for opened in (lambda: Film.of_file(path), film.sequence):
        with pytest.raises(InputError, match=r"input must be a film with frames; got .*film.mp4"):
            opened()


def test_pictures_of_a_type_that_cannot_be_shown(
    write_film: WriteFilm, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def reformat(self, *_: object, **__: object) -> None:
            raise av.error.ArgumentError(22, "Invalid argument")

    film = Film.of_file(write_film("film.mp4", [SHOT_A]))
    monkeypatch.setattr("av.video.reformatter.VideoReformatter", Refusing)
    with pytest.raises(InputError, match="input must have pictures that can be shown; got 64 × 48"):
        next(film.frames())


def test_a_film_that_is_gone_when_it_is_read_is_an_input_error(write_film: WriteFilm) -> None:
    film = Film.of_file(write_film("gone.mp4", [SHOT_A] * 3))
    film.path.unlink()
    with pytest.raises(InputError, match="must be a file that exists"):
        film.sequence()


def test_sizes_below_one_are_refused(write_film: WriteFilm) -> None:
    film = Film.of_file(write_film("film.mp4", [SHOT_A] * 3))
    with pytest.raises(ArgumentError, match="segment_frames must be at least 1; got 0"):
        film.sequence(0)
    with pytest.raises(ArgumentError, match="max_side_pixels must be at least 1; got 0"):
        film.frames(0)
