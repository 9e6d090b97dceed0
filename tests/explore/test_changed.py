"""Maps whose file or factors are written into while they are looked at, and maps without cells."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import heedmap
from heedmap import AttentionMap
from heedmap.errors import InputError
from heedmap.explore.app import make_app
from heedmap.explore.asgi import App
from heedmap.explore.desk import Desk
from heedmap.explore.explorer import Explorer
from heedmap.explore.heads import Head
from heedmap.explore.opening import scene_of_map, scene_of_seen
from heedmap.explore.passes import Passes
from heedmap.explore.prepared import prepare
from heedmap.explore.scene import Scene
from tests.explore.serving import ask

TILE, CELL = "/tiles/0/0/mean/0/0/0", "/cells/0/0/1/1"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Scene], App]]:
    desk, explorers = Desk(), []

    def begin(scene: Scene) -> App:
        explorers.append(Explorer(scene, cache=tmp_path / "cache"))
        return make_app(explorers[-1], desk)

    yield begin
    desk.close()
    for explorer in explorers:
        explorer.close()


def record(folder: Path) -> Path:
    """Save what a model looks at, and return the file of its one layer."""
    model = nn.TransformerEncoderLayer(64, 2, batch_first=True).eval()
    with heedmap.watch(model) as seen:
        model(torch.randn(1, 40, 64))
    seen.save(folder)
    [file] = folder.glob("*.safetensors")
    return file


def truncate(file: Path) -> None:
    os.truncate(file, 200)


def overwrite(file: Path) -> None:
    """Write other numbers into the same file, of the same length."""
    known = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-64, os.SEEK_END)
        opened.write(bytes(64))
    os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns + 1))


def replace(file: Path) -> None:
    copy = file.with_suffix(".copy")
    copy.write_bytes(file.read_bytes())
    os.replace(copy, file)


@pytest.mark.parametrize("change", [truncate, overwrite, replace, Path.unlink])
def test_a_recording_that_is_changed_is_shown_no_more(
    tmp_path: Path, serve: Callable[[Scene], App], change: Callable[[Path], None]
) -> None:
    file = record(tmp_path / "seen")
    app = serve(scene_of_seen(heedmap.open(tmp_path / "seen")))
    assert [ask(app, target).status for target in (TILE, CELL)] == [200, 200]
    change(file)
    for target in (TILE, CELL, "/thumbnails/0/0", "/progress/0/0", "/rows/0/0/0/top?count=1"):
        answer = ask(app, target)
        assert (answer.status, answer.error) == (
            409,
            f"the recording must stay as it was opened; got {file.name} in {file.parent}, which "
            "was changed since. Open the recording again.",
        )


def test_a_copy_of_a_recording_stands_on_no_file(tmp_path: Path) -> None:
    file = record(tmp_path / "seen")
    layer = heedmap.open(tmp_path / "seen").layers[0]
    assert layer.weights.shape == (1, 2, 40, 40)
    state = layer.__getstate__()
    assert isinstance(state, dict)
    assert state["_opened"] is None
    file.unlink()
    with pytest.raises(InputError, match="the recording must stay as it was opened; got "):
        layer.require_unchanged()  # pyright: ignore[reportAttributeAccessIssue]


def wait_until_exact(passes: Passes, head: Head) -> None:
    end = time.monotonic() + 10
    while passes.progress("map", head) < 1 and time.monotonic() < end:
        time.sleep(0.001)


def test_a_pass_ends_when_its_file_is_changed() -> None:
    def changed() -> None:
        raise InputError("it was changed")

    weights = AttentionMap.from_factors(*torch.randn(2, 1, 300, 4))
    passes, head = Passes(None), Head(prepare(weights._rule), 0, changed)
    try:
        with pytest.raises(InputError, match="it was changed"):
            wait_until_exact(passes, head)
    finally:
        passes.close()


def test_factors_that_are_written_into(serve: Callable[[Scene], App]) -> None:
    query = torch.randn(1, 6, 4)
    app = serve(scene_of_map(AttentionMap.from_factors(query, torch.randn(1, 6, 4))))
    assert ask(app, CELL).status == 200
    query.mul_(2)
    answer = ask(app, CELL)
    assert answer.status == 409
    assert answer.error.startswith("query, key, bias, sinks and table must not be written into")


@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_maps_without_cells(
    serve: Callable[[Scene], App], lead: tuple[int, ...], queries: int, keys: int
) -> None:
    query, key = torch.randn(*lead, queries, 8), torch.randn(*lead, keys, 8)
    app = serve(scene_of_map(AttentionMap.from_factors(query, key)))
    for target in (TILE, "/thumbnails/0/0", "/progress/0/0"):
        assert ask(app, target).status == 200
    for side, there_are in (("rows", queries), ("columns", keys)):
        for target in (f"/{side}/0/0/0/top?count=3", f"/{side}/0/0/0?first=0&stop=0&bins=4"):
            assert ask(app, target).status == (200 if there_are else 404)
    answer = ask(app, "/blocks/0/0?rows=0:1&columns=0:1")
    assert answer.status == 404
    name = "columns" if queries else "rows"
    assert answer.error == f"{name} must be first:stop within 0:0 and not empty; got 0:1."
