"""Recordings of Debian packages: unpacked whole with their licence, or not at all."""

import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from heedmap.errors import FetchError
from heedmap.speech.debian import DebianPackage, fetch_sounds

FILES = {
    "./usr/share/games/fish/cs/a-m-hello.ogg": b"sound of a",
    "./usr/share/games/fish/cs/level.lua": b"not a sound",
    "./usr/share/doc/fish/copyright": b"the licence",
}


def deb_of(files: dict[str, bytes]) -> bytes:
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return ar_of(
        {"debian-binary": b"2.0", "control.tar.xz": b"odd", "data.tar.xz": tree.getvalue()}
    )


def ar_of(members: dict[str, bytes]) -> bytes:
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        parts.append(header.encode() + content + b"\n" * (len(content) % 2))
    return b"".join(parts)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DebianPackage:
    """A small package that the only apt-get of this test hands out; the cache is empty."""
    return offered(deb_of(FILES), tmp_path, monkeypatch)


def offered(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DebianPackage:
    store = tmp_path / "store.bin"
    store.write_bytes(content)
    script(tmp_path, f'cp "{store}" ./"${{3%=*}}_${{3#*=}}_all.deb"', monkeypatch)
    monkeypatch.setenv("HEEDMAP_CACHE", str(tmp_path / "cache"))
    return DebianPackage(
        name="fish",
        version="1.0-1",
        archive_bytes=len(content),
        archive_sha256=hashlib.sha256(content).hexdigest(),
        licence="GPL-2",
        origin="made by this test",
    )


def script(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "apt-get"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_sounds_licence_and_origin_are_kept(package: DebianPackage):
    lines: list[str] = []
    folder = fetch_sounds(package, lines.append)
    assert lines == ["Fetching fish 1.0-1 with apt-get (0 MB) …"]
    kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert kept == {"games/fish/cs/a-m-hello.ogg", "copyright", "ORIGIN.json"}
    assert (folder / "games/fish/cs/a-m-hello.ogg").read_bytes() == b"sound of a"
    assert (folder / "copyright").read_bytes() == b"the licence"
    origin = json.loads((folder / "ORIGIN.json").read_text(encoding="utf-8"))
    assert (origin["name"], origin["licence"]) == ("fish", "GPL-2")


def test_a_second_call_fetches_nothing(
    package: DebianPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = fetch_sounds(package)
    script(tmp_path, "exit 1", monkeypatch)
    lines: list[str] = []
    assert fetch_sounds(package, lines.append) == folder
    assert lines == []


def refused(package: DebianPackage, tmp_path: Path) -> str:
    with pytest.raises(FetchError) as caught:
        fetch_sounds(package)
    assert list((tmp_path / "cache").iterdir()) == []
    return str(caught.value)


def test_another_archive_is_refused(package: DebianPackage, tmp_path: Path):
    right = package.archive_sha256
    assert refused(replace(package, archive_sha256="00"), tmp_path) == (
        f"fish_1.0-1_all.deb must have the sha256 00; got {right}. "
        "Nothing was kept: it is not the package that this version of heedmap was tested with."
    )


def test_an_archive_without_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for content in (ar_of({"debian-binary": b"2.0"}), b"no archive at all"):
        package = offered(content, tmp_path, monkeypatch)
        assert refused(package, tmp_path) == (
            "a Debian package must hold data.tar; got none. Nothing was kept."
        )


def test_what_apt_complains_of_is_said(
    package: DebianPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script(tmp_path, "echo 'E: Unable to locate package fish' >&2; exit 100", monkeypatch)
    assert refused(package, tmp_path) == (
        "fish 1.0-1 must be fetched with apt-get; got “Unable to locate package fish”. "
        "Run apt-get update, or give a folder with a folder of recordings for each voice."
    )


def test_a_system_without_apt_is_told_what_else_there_is(
    package: DebianPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(package, tmp_path) == (
        "fish must be fetched with apt-get; got a system without it. "
        "Give a folder with a folder of recordings for each voice instead."
    )


def test_a_cache_that_cannot_be_written_is_named(
    package: DebianPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HEEDMAP_CACHE", str(blocked))
    with pytest.raises(FetchError) as caught:
        fetch_sounds(package)
    assert str(caught.value) == (
        f"the cache folder must be writable; got {blocked} (File exists). "
        "Name another in the environment variable HEEDMAP_CACHE, or make room."
    )
