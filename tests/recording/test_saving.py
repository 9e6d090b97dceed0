"""A recording appears whole or not at all, and never at the cost of another."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import Seen
from heedmap.errors import ArgumentError, InputError, UnsupportedError
from heedmap.masks import Visible
from heedmap.recording import files, manifest, saving
from heedmap.scoring import ScoreChange
from heedmap.watch.flex import ChangedScores, VisibleWhere
from heedmap.watch.spans import Chosen

from .makers import HEADS, KEYS, QUERIES, assert_same, draw, make_map, seen_of


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    seen = seen_of(make_map())
    seen.save(str(tmp_path / "a" / "b"))
    assert_same(heedmap.open(str(tmp_path / "a" / "b")), seen)
    assert names_in(tmp_path / "a" / "b") == ["0000.safetensors", "manifest.json"]
    assert names_in(tmp_path / "a") == ["b"]


def test_force_replaces_a_recording(tmp_path: Path) -> None:
    seen_of(make_map(), make_map()).save(tmp_path / "seen")
    seen = seen_of(make_map(scale=2.0))
    seen.save(tmp_path / "seen", force=True)
    assert_same(heedmap.open(tmp_path / "seen"), seen)
    assert names_in(tmp_path) == ["seen"]
    assert names_in(tmp_path / "seen") == ["0000.safetensors", "manifest.json"]


def test_an_opened_recording_can_be_saved_over_itself(tmp_path: Path) -> None:
    seen = seen_of(make_map(), make_map(scale=2.0))
    seen.save(tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    opened[1:].save(tmp_path / "seen", force=True)
    assert_same(heedmap.open(tmp_path / "seen"), seen[1:])
    assert torch.equal(opened[1].to_dense(), seen[1].to_dense())


def test_force_where_a_link_leads(tmp_path: Path) -> None:
    seen_of(make_map()).save(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    seen = seen_of(make_map(), make_map())
    seen.save(tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert_same(heedmap.open(tmp_path / "real"), seen)
    assert names_in(tmp_path) == ["link", "real"]


@pytest.mark.bad_input
def test_what_is_there_already_stays(tmp_path: Path) -> None:
    seen = seen_of(make_map())
    (tmp_path / "file").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    seen.save(tmp_path / "seen")
    for name, force, reason in (
        ("seen", False, "must not exist yet"),
        ("mine", False, "must not exist yet"),
        ("mine", True, "nothing else to be replaced; got .*, which holds notes.txt"),
        ("file", False, "folder must be a folder; got .*, a file"),
        ("file", True, "a file"),
    ):
        with pytest.raises(InputError, match=reason):
            seen_of(make_map(), make_map()).save(tmp_path / name, force=force)
    assert_same(heedmap.open(tmp_path / "seen"), seen)
    assert names_in(tmp_path) == ["file", "mine", "seen"]


@pytest.mark.bad_input
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="must be one that can be written"):
        seen_of(make_map()).save(tmp_path / "file" / "seen")
    assert names_in(tmp_path) == ["file"]


class Stop(BaseException):
    """As an interruption, nothing that a handler of errors catches."""


POINTS = [
    (files.os, "fsync"),
    (saving.files, "write_tensors"),
    (saving, "_sync"),
    (manifest, "_digest"),
    (saving.os, "rename"),
]


@pytest.mark.parametrize("has_old", [False, True], ids=["new", "replacing"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, Stop, OSError(28, "No space left on device")])
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize(("module", "name"), POINTS, ids=[name for _, name in POINTS])
@pytest.mark.bad_input
def test_interrupted(
    module: Any,
    name: str,
    calls: int,
    stop: Any,
    has_old: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = seen_of(make_map(scale=3.0))
    if has_old:
        old.save(tmp_path / "seen")
    real, left, stopped = getattr(module, name), [calls], [False]

    def stopping(*given: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            stopped[0] = True
            raise stop
        return real(*given, **options)

    monkeypatch.setattr(module, name, stopping)
    new = seen_of(make_map(), make_map())
    wanted = InputError if isinstance(stop, OSError) else stop
    with suppress(wanted):
        new.save(tmp_path / "seen", force=True)
        assert not stopped[0]
    monkeypatch.undo()
    is_new = not stopped[0] or (name == "_sync" and calls == 2)
    expected = new if is_new else old if has_old else None
    assert names_in(tmp_path) == ([] if expected is None else ["seen"])
    if expected is not None:
        assert_same(heedmap.open(tmp_path / "seen"), expected)


def test_interrupted_while_the_old_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    seen_of(make_map(scale=3.0)).save(tmp_path / "seen")
    new = seen_of(make_map())
    monkeypatch.setattr(saving.shutil, "rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        new.save(tmp_path / "seen", force=True)
    assert_same(heedmap.open(tmp_path / "seen"), new)


KILLED = """
import sys, heedmap, torch
from heedmap.layers import Layer
query = torch.zeros(1, 8, 4096, 64)
weights = heedmap.AttentionMap.from_factors(query, query)
layer = Layer("layer", "self", 0, 1, weights)
print("ready", flush=True)
heedmap.Seen(lambda: [layer] * 200).save(sys.argv[1], force=True)
print("saved", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed(tmp_path: Path) -> None:
    old = seen_of(make_map())
    old.save(tmp_path / "seen")
    program = [sys.executable, "-c", KILLED, str(tmp_path / "seen")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while not list(tmp_path.glob(".heedmap-*/*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == ""
    assert_same(heedmap.open(tmp_path / "seen"), old)
    (left,) = tmp_path.glob(".heedmap-*")
    with pytest.raises(InputError, match=r"no manifest\.json"):
        heedmap.open(left)


def scattered(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    del batch, head
    return (query + key) % 3 == 0


def mapped(change: ScoreChange) -> heedmap.AttentionMap:
    from heedmap.attention_map import map_of
    from heedmap.lazy_weights import LogNormalizer
    from heedmap.problem import make_problem

    query = draw(1, 2, 5, 4)
    options = {"mask": None, "scale": None, "soft_cap": None, "bias": None, "sinks": None}
    problem, _ = make_problem(query, query, None, **options, change=change)
    return map_of(problem, LogNormalizer(problem), query)


HEAD_NUMBERS, ROW_NUMBERS = torch.arange(HEADS), torch.arange(QUERIES)
REFUSED = {
    "a tensor": (lambda: torch.zeros(3), "a Tensor, neither a map nor"),
    "a list": (lambda: [1], "a list, neither a map nor"),
    "a summary without answers": (heedmap.Summary, "a Summary, neither a map nor"),
    "a row": (lambda: make_map()[0, 0, 3], "a part of a map"),
    "a mean": (lambda: make_map().mean(1), "computed from a map"),
    "logarithms": (lambda: make_map().log_weights, "computed from a map"),
    "a transposed map": (lambda: make_map().mT, "computed from a map"),
    "a function of scores": (
        lambda: mapped(ChangedScores(lambda score, *_: score * 2)),
        "its scores went through a function",
    ),
    "a function of places": (
        lambda: make_map(mask=VisibleWhere(scattered)),
        "its mask is a VisibleWhere, which is a function of places",
    ),
    "one within others": (
        lambda: make_map(
            mask=Visible(torch.ones(QUERIES, KEYS, dtype=torch.bool))
            & Chosen(VisibleWhere(scattered), HEAD_NUMBERS, ROW_NUMBERS)
        ),
        "its mask is a Chosen, which is a function of places",
    ),
    "numbers that are not real": (
        lambda: heedmap.AttentionMap.from_weights(torch.zeros(2, 2, dtype=torch.complex64)),
        "its tensors must be numbers of .*; got torch.complex64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.bad_input
def test_what_cannot_be_saved_is_named_before_anything_is_written(
    name: str, tmp_path: Path
) -> None:
    make, reason = REFUSED[name]
    seen = seen_of(make_map(), make())
    with pytest.raises(
        UnsupportedError, match=f"must hold layers that can be saved; got “layer.1”: .*{reason}"
    ):
        seen.save(tmp_path / "a" / "seen")
    assert names_in(tmp_path) == []


@pytest.mark.bad_input
def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must hold a layer"):
        Seen(list).save(tmp_path / "seen")
    with pytest.raises(ArgumentError, match=r"axis must be a heedmap\.Axis; got list"):
        seen_of(make_map()).save(tmp_path / "seen", axis=["a"])  # pyright: ignore
    query = draw(1, 1, 3, 4)
    seen = seen_of(heedmap.AttentionMap.from_factors(query, query))
    query.add_(1)
    with pytest.raises(UnsupportedError, match="must not be written into"):
        seen.save(tmp_path / "seen")
    assert names_in(tmp_path) == []
