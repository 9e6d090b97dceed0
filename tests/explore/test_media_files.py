"""Sounds, films and texts in ranges, and what happens when somebody touches them meanwhile."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedmap.explore.app import make_app
from heedmap.explore.asgi import App
from heedmap.explore.desk import Desk
from heedmap.explore.media_files import MediaFile
from heedmap.explore.scene import Media

from .serving import Answer, GatedExplorer, ask

CONTENT = bytes(range(250)) * 4


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "a sound.wav"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def app(sound: Path) -> Iterator[App]:
    desk = Desk()
    media = (Media("audio", "audio/wav", "a sound.wav", sound),)
    yield make_app(GatedExplorer(media=media), desk)
    desk.close()


def ranged(app: App, ranges: str, *, method: str = "GET", if_range: str = "") -> Answer:
    headers = [(b"range", ranges.encode("latin-1"))]
    headers += [(b"if-range", if_range.encode())] if if_range else []
    return ask(app, "/media/0", method=method, headers=headers)


def test_the_whole_file(app: App) -> None:
    answer = ask(app, "/media/0")
    assert answer.body == CONTENT
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-length"] == "1000"
    head = ask(app, "/media/0", method="HEAD")
    assert (head.status, head.body, head.headers) == (200, b"", answer.headers)


@pytest.mark.parametrize(
    ("ranges", "first", "stop"),
    [
        ("bytes=0-", 0, 1000),
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=990-99999", 990, 1000),
        ("bytes=-5", 995, 1000),
        ("bytes=-5000", 0, 1000),
        (f"bytes=0-{'9' * 400}", 0, 1000),
    ],
)
def test_one_range(app: App, ranges: str, first: int, stop: int) -> None:
    answer = ranged(app, ranges)
    assert answer.status == 206
    assert answer.body == CONTENT[first:stop]
    assert answer.headers["content-range"] == f"bytes {first}-{stop - 1}/1000"
    head = ranged(app, ranges, method="HEAD")
    assert (head.status, head.body) == (206, b"")
    assert head.headers["content-length"] == str(stop - first)


def test_many_ranges(app: App) -> None:
    answer = ranged(app, "bytes=0-1,100-101")
    assert answer.status == 206
    assert answer.headers["content-type"].startswith("multipart/byteranges; boundary=")
    assert CONTENT[:2] in answer.body
    assert CONTENT[100:102] in answer.body
    assert ranged(app, "bytes=0-9,5-14").body == CONTENT[:15]
    # So many small ones are no more than the whole file.
    assert ranged(app, "bytes=" + "0-0," * 5000).body == CONTENT


@pytest.mark.parametrize("ranges", ["bytes=1000-", "bytes=5000-6000", "bytes=0-1,1000-"])
def test_ranges_behind_the_end(app: App, ranges: str) -> None:
    answer = ranged(app, ranges)
    assert answer.status == 416
    assert answer.headers["content-range"] == "bytes */1000"
    assert answer.error == "Range must name bytes that the file has; it does not."


@pytest.mark.parametrize(
    "ranges", ["bytes", "bytes=", "bytes=a-b", "bytes=5-2", "lines=0-1", "bytes=-", "=0-1", ""]
)
def test_ranges_that_make_no_sense(app: App, ranges: str) -> None:
    answer = ranged(app, ranges)
    assert answer.status in (400, 416)
    assert answer.error == "Range must name bytes that the file has; it does not."


def test_a_range_of_another_file_gives_this_one_whole(app: App) -> None:
    etag = ask(app, "/media/0").headers["etag"]
    assert ranged(app, "bytes=0-1", if_range=etag).status == 206
    for other in ('"other"', f"W/{etag}", "Thu, 01 Jan 1970 00:00:00 GMT"):
        answer = ranged(app, "bytes=0-1", if_range=other)
        assert (answer.status, answer.body) == (200, CONTENT)


def test_a_file_that_is_gone(app: App, sound: Path) -> None:
    sound.unlink()
    answer = ask(app, "/media/0")
    assert answer.status == 410
    assert answer.error == "a sound.wav is no longer there. Put it back and start anew."
    sound.mkdir()
    assert ask(app, "/media/0").status == 409


@pytest.mark.parametrize("change", ["longer", "rewritten", "replaced", "touched"])
def test_a_file_that_is_no_longer_the_same(app: App, sound: Path, change: str) -> None:
    found = sound.stat()
    if change == "longer":
        sound.write_bytes(CONTENT + b"x")
    elif change == "rewritten":
        sound.write_bytes(CONTENT[::-1])
    elif change == "replaced":
        other = sound.with_suffix(".new")
        other.write_bytes(CONTENT)
        os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
        other.replace(sound)
    if change in ("longer", "rewritten", "touched"):
        os.utime(sound, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))
    for method in ("GET", "HEAD"):
        assert ask(app, "/media/0", method=method).status == 409
    answer = ranged(app, "bytes=0-1")
    assert answer.error == "a sound.wav has changed since the map was opened. Start anew."


def test_a_file_that_was_not_there_at_first(tmp_path: Path) -> None:
    path = tmp_path / "late.wav"
    file = MediaFile(path, "late.wav", "audio/wav")
    path.write_bytes(CONTENT)
    with pytest.raises(Exception, match=r"late\.wav is no longer there"):
        file.check()


def test_a_file_that_changes_between_the_check_and_the_reading(
    app: App, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MediaFile.check
    checks = []

    def changing(self: MediaFile) -> os.stat_result:
        checks.append(1)
        if len(checks) == 2:
            sound.write_bytes(b"short")
        return whole(self)

    monkeypatch.setattr(MediaFile, "check", changing)
    assert ask(app, "/media/0").status == 409


def test_a_path_that_is_relative_is_that_of_the_start(
    sound: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(sound.parent)
    file = MediaFile(Path(sound.name), "", "audio/wav")
    monkeypatch.chdir(tmp_path.parent)
    assert file.check().st_size == 1000


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.wav"
    path.touch()
    desk = Desk()
    app = make_app(GatedExplorer(media=(Media("audio", "audio/wav", "empty", path),)), desk)
    assert (ask(app, "/media/0").status, ask(app, "/media/0").body) == (200, b"")
    assert ranged(app, "bytes=0-").status == 416
    desk.close()
