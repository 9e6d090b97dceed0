"""Each rank writes its part of a recording; one process opens the whole."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import heedmap
from heedmap import Axis, Seen
from heedmap.errors import HeedmapError, InputError, RankError
from heedmap.layers import Layer
from heedmap.parallel import Layout, attention, save
from heedmap.recording import saving

from .processes import Processes
from .shared_problems import CASES, LAYOUTS, LENGTH, shards_of, whole

SAVED = [name for name in CASES if name != "either"]


def save_cases(names: list[str], folder: Path) -> None:
    """Save the maps of several problems as the layers of one recording."""
    layers = []
    for name in names:
        case, rank = CASES[name], dist.get_rank()
        problem, layout = whole(case), LAYOUTS[case.layout](dist.get_world_size())
        parts = shards_of(problem, layout, rank, torch.float64)
        given = iter(parts[3:])
        options = problem.options | {
            key: next(given) for key in ("bias", "sinks") if key in problem.options
        }
        _, weights = attention(*parts[:3], **options, layout=layout)
        layers.append(Layer(name, "self", 0, 1, weights))
    Seen(lambda: layers, [("gate", "it has no softmax")], "Shared").save(folder)


@pytest.mark.parametrize("ranks", [2, 3])
def test_one_process_opens_the_whole(processes: Processes, tmp_path: Path, ranks: int) -> None:
    processes.run(ranks, save_cases, list(CASES), tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert opened.names == list(CASES)
    assert opened.model == "Shared"
    assert list(opened.missed) == [("gate", "it has no softmax")]
    for name, weights in zip(CASES, opened, strict=True):
        expected = whole(CASES[name]).weights.detach()
        assert weights.shape == expected.shape
        apart = (weights.to_dense() - expected.to_dense()).abs().amax()
        assert float(apart) < 1e-12, name
        torch.testing.assert_close(weights.received(), expected.received(), atol=1e-11, rtol=0)
    # What was opened is an ordinary recording.
    opened[:2].save(tmp_path / "again")
    again = heedmap.open(tmp_path / "again")
    assert torch.equal(again[1].to_dense(), opened[1].to_dense())


def save_one(folder: Path, axis: Axis | None = None, force: bool = False) -> None:
    x = torch.arange(LENGTH * 2.0).reshape(LENGTH, 2).sin()
    layout = Layout.zigzag(LENGTH, dist.get_world_size())
    own = layout.shard(x, dist.get_rank(), dim=0)
    _, weights = attention(own, own, own, mask=heedmap.Causal(), layout=layout)
    save(weights, folder, axis=axis, force=force)


def test_one_map(processes: Processes, tmp_path: Path) -> None:
    axis = Axis.of_seconds((i / 10, (i + 1) / 10) for i in range(LENGTH))
    processes.run(2, save_one, tmp_path / "map", axis)
    assert sorted(os.listdir(tmp_path)) == ["map"]
    assert sorted(os.listdir(tmp_path / "map")) == [
        "0000-0000.safetensors",
        "0000-0001.safetensors",
        "manifest.json",
    ]
    x = torch.arange(LENGTH * 2.0).reshape(LENGTH, 2).sin()
    _, expected = heedmap.attention(x, x, x, mask=heedmap.Causal())
    opened = heedmap.open(tmp_path / "map")
    assert opened.axis == axis
    assert opened.layer(0).shape == (LENGTH, LENGTH)
    torch.testing.assert_close(opened[0].to_dense(), expected.to_dense())
    assert torch.equal(opened[0][5].topk(2).indices, expected[5].topk(2).indices)
    # No rank wrote what another one has.
    parts = sorted((tmp_path / "map").glob("*.safetensors"))
    assert all(part.stat().st_size < 1000 + LENGTH * 5 * 4 // 2 + 100 for part in parts)
    manifest = json.loads((tmp_path / "map" / "manifest.json").read_text("utf-8"))
    assert manifest["schema"] == 2


def test_what_older_versions_can_read_says_so(tmp_path: Path) -> None:
    x = torch.ones(3, 2)
    weights = heedmap.attention(x, x, x)[1]
    Seen(lambda: [Layer("one", "self", 0, 1, weights)]).save(tmp_path / "map")
    assert json.loads((tmp_path / "map" / "manifest.json").read_text("utf-8"))["schema"] == 1


def test_force_replaces_on_all_ranks(processes: Processes, tmp_path: Path) -> None:
    processes.run(2, save_one, tmp_path / "map")
    with pytest.raises(InputError, match="folder must not exist yet"):
        processes.run(2, save_one, tmp_path / "map")
    processes.run(3, save_one, tmp_path / "map", None, True)
    assert len(list((tmp_path / "map").glob("*.safetensors"))) == 3
    assert heedmap.open(tmp_path / "map")[0].shape == (LENGTH, LENGTH)


def save_blindly(folder: Path, place: str) -> Any:
    """Let something go wrong on one rank; return what each rank raises."""
    rank = dist.get_rank()
    original = saving._write, saving._finish

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    if place == "on rank 1" and rank == 1:
        saving._write = fail
    if place == "at the end" and rank == 0:
        saving._finish = fail
    if place == "elsewhere" and rank == 1:
        saving.Path.is_dir = lambda _: False
    parent = folder
    if place == "at the start":
        parent = folder.parent / "file"
        parent.touch()
        folder = parent / "map"
    try:
        save_one(folder)
    except HeedmapError as error:
        # Both have said so by now, and go on together.
        dist.barrier()
        parent.unlink(missing_ok=True)
        return type(error), str(error)
    finally:
        saving._write, saving._finish = original
    return None


@pytest.mark.parametrize(
    ("place", "rank", "words"),
    [
        ("on rank 1", 1, "folder must be one that can be written; .*No space left on device"),
        ("at the start", 0, "folder must be one that can be written; .*File exists"),
        ("at the end", 0, "folder must be one that can be written; .*No space left on device"),
        ("elsewhere", 1, "on a disk that all ranks see; got .* rank 1 does not see what rank 0"),
    ],
)
def test_nothing_is_there_when_one_rank_cannot_write(
    tmp_path: Path, place: str, rank: int, words: str
) -> None:
    own = Processes()
    try:
        found = own.run(2, save_blindly, tmp_path / "map", place)
    finally:
        own.close()
    assert found[rank][0] is InputError
    with pytest.raises(InputError, match=words):
        raise found[rank][0](found[rank][1])
    assert found[1 - rank][0] is RankError
    assert f"rank {rank}" in found[1 - rank][1]
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def saved(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "map"
    processes.run(2, save_one, folder)
    return folder


def test_a_part_that_is_missing(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "map")
    (tmp_path / "map" / "0000-0001.safetensors").unlink()
    with pytest.raises(InputError, match=r"whose 0000-0001\.safetensors is missing"):
        heedmap.open(tmp_path / "map")


def test_a_part_that_was_altered(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "map")
    part = tmp_path / "map" / "0000-0001.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match=r"0000-0001\.safetensors was altered"):
        _ = heedmap.open(tmp_path / "map")[0]


@pytest.mark.parametrize(
    "spans",
    [
        {"queries": [[[0, 41]]], "keys": [[[0, 41]]]},
        {"queries": [[[0, 20]], [[19, 41]]], "keys": [[[0, 20]], [[19, 41]]]},
        {"queries": [[[0, 20]], [[20, 41]]]},
        {"queries": "all", "keys": "all"},
    ],
)
def test_parts_that_make_no_whole(saved: Path, tmp_path: Path, spans: Any) -> None:
    from ..recording.test_damage import change

    shutil.copytree(saved, tmp_path / "map")
    change(
        tmp_path / "map",
        lambda content: content["layers"][0]["weights"]["of"].update(shards=spans),
    )
    with pytest.raises(InputError, match=r"manifest\.json makes no sense at layer 0"):
        heedmap.open(tmp_path / "map")
