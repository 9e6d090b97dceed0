import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from heedmap.errors import InputError, MissingExtraError
from heedmap.media import Film, Sound, Text, open_media, opening


def test_words_are_the_text_itself() -> None:
    for words in ("他说他今天不能来", "to be", "3 / 4 of it", "line/one\nline.txt", "x" * 5000):
        media = open_media(words)
        assert isinstance(media, Text)
        assert media.text == words


@pytest.mark.parametrize(
    "source", ["speech.wav", "My Film.MP4", "notes.txt", "a/b", "./x", "/no/such place", "~/x y"]
)
def test_what_looks_like_a_missing_file_is_not_taken_for_words(source: str) -> None:
    with pytest.raises(InputError, match=r"a file that exists.*pass them with --text") as raised:
        open_media(source)
    assert f"got “{source}”" in str(raised.value)
    assert Text.of(source).text == source


def test_a_path_is_always_a_file() -> None:
    with pytest.raises(InputError, match="must be a file that exists; got no-such-thing"):
        open_media(Path("no-such-thing"))


def test_a_text_file_is_text_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes("\ufeff妈妈\r\n".encode())
    media = open_media(str(path))
    assert media == Text("妈妈\r\n", "song.mp3")


def test_a_character_on_the_edge_of_what_is_probed_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    for shift in range(4):
        text = "x" * shift + "🌍" * 40_000
        path.write_text(text, encoding="utf-8")
        assert open_media(path) == Text(text, "long.txt")


def test_a_fault_far_into_a_text_is_found(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 100_000 + b"\xff")
    with pytest.raises(InputError, match=r"where byte 100000 \(0xFF\) is not UTF-8"):
        open_media(path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch) -> None:
    empty = tmp_path / "empty.wav"
    empty.touch()
    with pytest.raises(InputError, match=r"empty.wav, which is empty"):
        open_media(empty)
    with pytest.raises(InputError, match="must be a file; got the directory"):
        open_media(str(tmp_path))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"must be an ordinary file; got .*pipe"):
        open_media(pipe)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "secret.wav").write_bytes(b"x")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=r"can be read; got .*secret.wav \(Permission denied\)"):
        open_media(tmp_path / "secret.wav")


def test_a_link_that_leads_nowhere_is_not_taken_for_words(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recording").symlink_to("gone")
    Path("loop").symlink_to("loop")
    for name in ("recording", "loop"):
        with pytest.raises(InputError, match=f"input must be a file.*; got {name}"):
            open_media(name)


def test_a_name_that_no_file_can_have_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"^input must be a file that can be read"):
        open_media(Path("x" * 5000))
    with pytest.raises(InputError, match="input must be text without NUL or lone surrogates"):
        open_media("a\0b")


@pytest.mark.parametrize("size", [1, 16, 1000, 100_000])
def test_random_bytes_are_none_of_the_three(tmp_path: Path, size: int) -> None:
    path = tmp_path / "random.mp4"
    path.write_bytes(b"\x8f" + np.random.default_rng(size).bytes(size - 1))
    with pytest.raises(InputError, match=r"no decoder knows, and where byte 0 \(0x8F\) is not UTF"):
        open_media(path)


def test_a_text_in_another_encoding_is_told_how_to_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes("déjà vu, naïve".encode("latin-1"))
    with pytest.raises(InputError, match=r"byte 1 \(0xE9\) is not UTF-8. If it is text, save it"):
        open_media(path)
    path.write_bytes(b"two words\0and more")
    with pytest.raises(InputError, match=r"byte 9 is NUL"):
        open_media(path)


def test_a_play_list_opens_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "list.m3u8"
    other = tmp_path / "other.ts"
    lines = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{other}\n#EXT-X-ENDLIST\n"
    path.write_bytes(lines.encode() + b"\xff")
    with pytest.raises(InputError, match="no decoder knows"):
        open_media(path)
    path.write_text(lines, encoding="utf-8")
    assert isinstance(open_media(path), Text)


def test_importing_loads_no_optional_package() -> None:
    code = (
        "import sys, heedmap.media; "
        "print({'av', 'soundfile', 'soxr', 'kaldi_native_fbank'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"


@pytest.mark.parametrize("package", ["soundfile", "soxr", "numpy", "kaldi_native_fbank"])
def test_a_missing_package_for_sound_names_its_extra(
    tmp_path: Path, monkeypatch, package: str
) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, np.full(800, 0.1), 8000)
    monkeypatch.setitem(sys.modules, package, None)
    name = package.replace("_", "-")
    with pytest.raises(MissingExtraError, match=rf"{name} .*heedmap\[media\]"):
        Sound.of_file(path).sequence()


@pytest.mark.parametrize("package", ["av", "numpy"])
def test_a_missing_package_for_film_names_its_extra(
    write_film: Callable[..., Path], monkeypatch, package: str
) -> None:
    path = write_film("film.mp4", [np.zeros((32, 32, 3), np.uint8)])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} .*heedmap\[media\]"):
        Film.of_file(path).sequence()


def test_a_container_that_holds_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Subtitles:
        """What FFmpeg opens of a file of subtitles alone."""

        streams = SimpleNamespace(video=(), audio=())

        def __enter__(self) -> "Subtitles":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(opening, "open_container", lambda _: Subtitles())
    monkeypatch.setattr(opening, "is_still_picture", lambda _: False)
    (tmp_path / "subtitles.mks").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="which neither sounds nor shows anything"):
        open_media(tmp_path / "subtitles.mks")
