"""A folder that is not what was saved is refused, with the file and the reason."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import heedmap
from heedmap import Causal
from heedmap.errors import InputError, MissingExtraError, UnsupportedError

from .makers import make_map, seen_of

pytestmark = pytest.mark.bad_input

SECOND = "0001.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a recording of two layers."""
    place = tmp_path / "seen"
    seen_of(make_map(mask=Causal(alignment="end")), make_map()).save(place)
    return place


def change(folder: Path, how: Callable[[dict[str, Any]], object], *, sign: bool = True) -> None:
    """Change the content of a manifest; with `sign`, with a hash that fits."""
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    how(whole["recording"])
    if sign:
        text = json.dumps(whole["recording"], sort_keys=True, separators=(",", ":"))
        whole["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(whole))


def refused(folder: Path, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        heedmap.open(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    refused(tmp_path / "none", "in which there is no manifest.json")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "in which there is no manifest.json")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "folder must be a recording that can be read; .*Not a directory")


@pytest.mark.parametrize("length", [0, 1, 100, -2, -3])
def test_a_manifest_cut_short(folder: Path, length: int) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:length])
    refused(folder, "manifest.json is not JSON or cut short")


@pytest.mark.parametrize("text", ["[", "[" * 100_000, "\x00", "\udcff"])
def test_a_manifest_that_is_not_json(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    refused(folder, "manifest.json is not JSON or cut short")


@pytest.mark.parametrize("text", ["3", "[]", "{}", '{"schema": "1"}', '{"schema": true}'])
def test_a_manifest_of_something_else(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    refused(folder, "manifest.json is no manifest of a recording")


def test_a_newer_schema(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 3'))
    refused(folder, "has schema 3. A newer heedmap wrote it: upgrade")


def test_an_altered_manifest(folder: Path) -> None:
    change(folder, lambda content: content["layers"][0].update(calls=7), sign=False)
    refused(folder, "manifest.json was altered")


def of(content: dict[str, Any]) -> dict[str, Any]:
    return content["layers"][0]["weights"]["of"]


NONSENSE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no layers": lambda content: content.pop("layers"),
    "layers that are a number": lambda content: content.update(layers=3),
    "a layer that is none": lambda content: content.update(layers=[None]),
    "no name": lambda content: content["layers"][0].pop("name"),
    "a number for a name": lambda content: content["layers"][0].update(name=3),
    "a truth for a number": lambda content: content["layers"][0].update(calls=True),
    "an unknown kind": lambda content: content["layers"][0].update(kind="other"),
    "an error that is no number": lambda content: content["layers"][0].update(output_error="x"),
    "no file": lambda content: content["layers"][0].update(file=None),
    "a number type": lambda content: content["layers"][0]["file"]["tensors"]["key"].update(
        dtype="complex64"
    ),
    "a negative size": lambda content: content["layers"][0]["file"]["tensors"]["key"].update(
        shape=[2, 2, -9, 6]
    ),
    "another batch of keys": lambda content: content["layers"][0]["file"]["tensors"]["key"].update(
        shape=[1, 4, 9, 6]
    ),
    "an unknown form": lambda content: content["layers"][0]["weights"].update(kind="picture"),
    "an unknown rule": lambda content: of(content).update(kind="guess"),
    "a lead that does not fold": lambda content: content["layers"][0]["weights"].update(lead=[3]),
    "a scale that is no number": lambda content: of(content).update(scale=None),
    "a cap below 0": lambda content: of(content).update(soft_cap=-1.0),
    "an unknown mask": lambda content: of(content)["mask"].update(kind="os.system"),
    "a mask without its table": lambda content: of(content).update(mask={"kind": "visible"}),
    "half a mask": lambda content: of(content).update(mask={"kind": "both", "first": None}),
    "an alignment that says nothing": lambda content: of(content)["mask"].update(alignment="x"),
    "an axis of another kind": lambda content: content.update(axis={"kind": "smell"}),
    "something missed that has no reason": lambda content: content.update(missed=["gate"]),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_manifest_that_makes_no_sense(folder: Path, name: str) -> None:
    change(folder, NONSENSE[name])
    refused(folder, "manifest.json makes no sense")


def test_what_makes_no_sense_is_named(folder: Path) -> None:
    change(folder, NONSENSE["half a mask"])
    refused(folder, "makes no sense at layer 0 .*mask.first must be a mask; got None")


@pytest.mark.parametrize("name", ["../seen/0001.safetensors", "/etc/passwd", "a.safetensors", ""])
def test_a_file_that_is_elsewhere(folder: Path, name: str) -> None:
    change(folder, lambda content: content["layers"][0]["file"].update(name=name))
    refused(folder, "manifest.json makes no sense at layer 0 .it names the file")


def test_a_link_to_elsewhere(folder: Path, tmp_path: Path) -> None:
    (folder / SECOND).rename(tmp_path / "elsewhere")
    (folder / SECOND).symlink_to(tmp_path / "elsewhere")
    refused(folder, "0001.safetensors is no ordinary file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_that_nobody_fills(folder: Path) -> None:
    (folder / SECOND).unlink()
    os.mkfifo(folder / SECOND)
    refused(folder, "0001.safetensors is no ordinary file")


def test_a_missing_file(folder: Path) -> None:
    (folder / SECOND).unlink()
    refused(folder, "folder must hold a whole recording; .*0001.safetensors is missing")


def test_a_file_cut_short(folder: Path) -> None:
    with (folder / SECOND).open("r+b") as file:
        file.truncate(100)
    refused(folder, "0001.safetensors has 100 bytes where it had")


def test_a_file_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("safetensors.safe_open", refuse)
    refused(folder, "0000.safetensors cannot be read .*Permission denied")


def test_a_file_with_a_broken_header(folder: Path) -> None:
    with (folder / SECOND).open("r+b") as file:
        file.write(b"\xff" * 8)
    refused(folder, "0001.safetensors cannot be read as a file of tensors")


def test_files_that_have_changed_places(folder: Path) -> None:
    shutil.copy(folder / "0000.safetensors", folder / "kept")
    seen_of(make_map(mask=Causal(alignment="end")), make_map(torch.bfloat16)).save(
        folder.with_name("other")
    )
    path = folder.with_name("other") / SECOND
    data = path.read_bytes()
    (folder / SECOND).write_bytes(data.ljust((folder / SECOND).stat().st_size, b" "))
    refused(folder, "0001.safetensors")


def test_another_header_of_the_same_length(folder: Path) -> None:
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(data.replace(b'"query"', b'"queri"'))
    refused(folder, "0001.safetensors holds other tensors than the manifest says")


def test_an_altered_tensor_is_refused_when_its_layer_is_asked_for(folder: Path) -> None:
    with (folder / SECOND).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    seen = heedmap.open(folder)
    assert "layer.1" in repr(seen)
    assert seen[0].shape
    for ask in (lambda: seen[1], lambda: seen.layer(1).value_norms, lambda: list(seen), seen.check):
        with pytest.raises(InputError, match=r"0001.safetensors was altered: its SHA-256"):
            ask()


def test_a_file_that_goes_after_opening(folder: Path) -> None:
    seen = heedmap.open(folder)
    (folder / SECOND).unlink()
    with pytest.raises(InputError, match=r"0001.safetensors is missing"):
        seen[1]


def test_without_safetensors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(MissingExtraError, match=r"safetensors .*heedmap\[models\]"):
        heedmap.open(folder)
    with pytest.raises(MissingExtraError, match=r"safetensors .*heedmap\[models\]"):
        seen_of(make_map()).save(folder, force=True)


def test_machines_that_write_numbers_the_other_way_round(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    with pytest.raises(UnsupportedError, match="recordings must be used on a little-endian"):
        heedmap.open(folder)
