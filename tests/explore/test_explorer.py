"""What the live map is told about a scene, against dense matrices."""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Causal, Padding, Window
from heedmap.errors import ArgumentError, UnsupportedError
from heedmap.explore import explorer as module
from heedmap.explore import heads, passes, pyramid
from heedmap.explore.explorer import Explorer, Stopped
from heedmap.explore.grid import zooms_of
from heedmap.explore.pyramid import Pyramid
from heedmap.explore.stopping import require_wanted
from tests.explore.dense import factors, picture_of, scene_of, taken_apart, tile_of, tiles_at

T = 600


def cross(queries: int, keys: int, **options: object) -> AttentionMap:
    query, key = factors(1, 2, queries, 8), factors(1, 1, keys, 8, seed=1)
    return AttentionMap.from_factors(query, key, **options)[0]  # pyright: ignore[reportArgumentType]


MAPS: dict[str, Callable[[], AttentionMap]] = {
    "0": lambda: cross(0, 0),
    "1": lambda: cross(1, 1),
    "2": lambda: cross(2, 2, mask=Causal()),
    "3 without keys": lambda: cross(3, 0),
    "257": lambda: cross(257, 257),
    "causal": lambda: cross(700, 700, mask=Causal()),
    "padded": lambda: cross(300, 515, mask=Padding(torch.arange(515)[None] < 200)),
    "windowed": lambda: cross(530, 530, mask=Window(before=20, after=0)),
    "cross": lambda: cross(70, 1100),
    "head mean": lambda: cross(300, 300, mask=Causal()).mean(0, keepdim=True),
    "given": lambda: AttentionMap.from_weights(torch.softmax(factors(1, 257, 513), -1)),
    "given doubles": lambda: AttentionMap.from_weights(factors(1, 3, 300).double()),
    "transposed": lambda: cross(90, 400).mT,
}


@pytest.fixture
def explore(tmp_path: Path) -> Iterator[Callable[..., Explorer]]:
    """Return a function that opens maps, and close them afterwards."""
    opened: list[Explorer] = []

    def begin(*maps: AttentionMap) -> Explorer:
        opened.append(Explorer(scene_of(*maps), cache=tmp_path / "cache"))
        return opened[-1]

    yield begin
    for explorer in opened:
        explorer.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("heedmap-explore")]


@pytest.fixture
def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let maps of some hundred positions need a pass."""
    monkeypatch.setattr(module, "LIVE_CELLS", 70_000)
    monkeypatch.setattr(heads, "NORMALIZER_CELLS", 200_000)
    monkeypatch.setattr(pyramid, "LEAST_SIDE", 2)
    monkeypatch.setattr(pyramid, "ROWS", 64)


def near(found: object, expected: Tensor) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found).double(), expected.double(), rtol=5e-6, atol=1e-9, equal_nan=True
    )


def dense_of(weights: AttentionMap, head: int = 0) -> Tensor:
    return weights[head].to_dense().double()


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come in 15 seconds")


def finish(explorer: Explorer, layer: int = 0, head: int = 0) -> None:
    wait_for(lambda: explorer.progress(layer, head)["exact"])


# Tiles.


@pytest.mark.parametrize("name", MAPS)
def test_every_tile_of_every_level_is_exact(explore: Callable[..., Explorer], name: str):
    weights = MAPS[name]()
    explorer, head = explore(MAPS[name]()), len(weights) - 1
    dense = dense_of(weights, head)
    for zoom in range(zooms_of(*dense.shape) + 1):
        for x, y in tiles_at(*dense.shape, zoom):
            for statistic in ("mean", "max", "sum"):
                tile = taken_apart(explorer.tile(0, head, statistic, zoom, x, y))
                assert tile.exact
                if not dense.numel():
                    assert (tile.kind, tile.rows, tile.columns) == (0, *dense.shape)
                    continue
                expected = tile_of(dense, statistic, zoom, x, y)
                assert (tile.rows, tile.columns) == expected.shape
                assert tile.kind == (2 if expected.any() else 0)
                near(tile.largest, expected.amax())
                if tile.values is not None:
                    near(tile.values, expected)


@pytest.mark.parametrize("name", ["causal", "padded", "windowed"])
def test_what_nobody_sees_is_known_to_be_empty_without_computing(
    explore: Callable[..., Explorer], name: str, monkeypatch: pytest.MonkeyPatch
):
    weights = MAPS[name]()
    explorer = explore(weights)
    dense = dense_of(weights)
    monkeypatch.setattr(module.pictures, "exact", None)
    zoom = zooms_of(*dense.shape)
    places = [
        (x, y)
        for x, y in tiles_at(*dense.shape, zoom)
        if not tile_of(dense, "max", zoom, x, y).any()
    ]
    assert places
    for x, y in places:
        assert taken_apart(explorer.tile(0, 0, "mean", zoom, x, y)).kind == 0


@pytest.mark.parametrize("name", MAPS)
def test_a_thumbnail_shows_the_means_of_all(explore: Callable[..., Explorer], name: str):
    weights = MAPS[name]()
    dense = dense_of(weights)
    tile = taken_apart(explore(weights).thumbnail(0, 0))
    assert tile.exact
    assert max(tile.rows, tile.columns) <= 32
    if dense.numel():
        side = 8 * 2 ** zooms_of(*dense.shape)
        near(tile.values, picture_of(dense, "mean", side))


def test_nan_in_the_data_stays_where_it_is(explore: Callable[..., Explorer]):
    query = factors(1, 300, 8)
    query[0, 17, 3] = torch.nan
    weights = AttentionMap.from_factors(query, factors(1, 300, 8, seed=1), mask=Causal())
    explorer = explore(weights)
    for statistic in ("mean", "max", "sum"):
        values = torch.as_tensor(taken_apart(explorer.tile(0, 0, statistic, 0, 0, 0)).values)
        assert values[8, 0].isnan()
        assert int(values.isnan().sum()) == 9
    answers = [
        explorer.cell(0, 0, 17, 3),
        explorer.line("rows", 0, 0, 17, 0, 300, 4),
        explorer.line("columns", 0, 0, 3, 0, 300, 4),
        explorer.top("columns", 0, 0, 3, 300),
        explorer.block(0, 0, range(10, 20), range(30)),
    ]
    json.dumps(answers, allow_nan=False)
    assert answers[0] == {"weight": None}
    assert answers[1]["values"] == [None, 0.0, 0.0, 0.0]
    assert answers[2]["values"][0] is None
    assert None not in answers[3]["weights"][:299]
    assert answers[3]["weights"][299:] == [None]
    assert (answers[3]["sum"], answers[4]["sum"], answers[4]["max"]) == (None, None, None)
    assert answers[4]["max_at"][0] == 17


# Large maps.


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize("mask", [None, Causal()])
def test_low_levels_are_sampled_until_the_pass_is_through(
    explore: Callable[..., Explorer], mask: Causal | None
):
    weights = cross(T, T, mask=mask)
    explorer, dense = explore(weights), dense_of(weights, 1)
    for zoom, statistic in ((0, "mean"), (1, "max"), (0, "sum")):
        tile = taken_apart(explorer.tile(0, 1, statistic, zoom, 0, 0))
        assert not tile.exact
        expected = tile_of(dense, statistic, zoom, 0, 0)
        assert torch.as_tensor(tile.values).shape == expected.shape
        assert torch.as_tensor(tile.values).mean() == pytest.approx(float(expected.mean()), rel=0.4)
    assert taken_apart(explorer.tile(0, 1, "mean", 2, 0, 0)).exact
    assert not taken_apart(explorer.thumbnail(0, 1)).exact
    finish(explorer, 0, 1)
    for zoom in range(3):
        for x, y in tiles_at(T, T, zoom):
            tile = taken_apart(explorer.tile(0, 1, "mean", zoom, x, y))
            assert tile.exact
            if tile.values is not None:
                near(tile.values, tile_of(dense, "mean", zoom, x, y))
    near(taken_apart(explorer.thumbnail(0, 1)).values, picture_of(dense, "mean", 32))


@pytest.mark.usefixtures("as_if_large")
def test_progress_begins_the_pass_and_a_small_map_needs_none(explore: Callable[..., Explorer]):
    explorer = explore(cross(T, T), cross(20, 20))
    assert explorer.progress(1, 0) == {"done": 1.0, "exact": True}
    explorer.tile(0, 0, "mean", 0, 0, 0)
    assert not passes_of(explorer)
    seen = [explorer.progress(0, 0)]
    while not seen[-1]["exact"]:
        seen.append(explorer.progress(0, 0))
    assert seen[-1]["done"] == 1
    assert [p["done"] for p in seen] == sorted(p["done"] for p in seen)


def passes_of(explorer: Explorer) -> dict[object, passes.Filling]:
    return explorer._passes._fillings  # pyright: ignore[reportReturnType]


@pytest.mark.usefixtures("as_if_large")
def test_a_second_explorer_of_the_same_data_computes_nothing_again(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
):
    first = explore(cross(T, T))
    finish(first)
    expected = first.tile(0, 0, "max", 0, 0, 0)
    first.close()

    def fail(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Pyramid, "fill_some", fail)
    second = explore(cross(T, T))
    assert second.tile(0, 0, "max", 0, 0, 0) == expected
    assert second.progress(0, 0) == {"done": 1.0, "exact": True}
    # The columns know their rows, too.
    assert len(second.line("columns", 0, 0, 5, 0, T, 3)["values"]) == 3
    other = explore(cross(T, T, scale=0.1))
    other.progress(0, 0)
    wait_for(lambda: passes_of(other)[0, 0].error is not None)
    with pytest.raises(AssertionError, match="computed again"):
        other.progress(0, 0)


@pytest.mark.usefixtures("as_if_large")
def test_a_damaged_cache_is_computed_again(explore: Callable[..., Explorer], tmp_path: Path):
    first = explore(cross(T, T))
    finish(first)
    expected = first.tile(0, 0, "sum", 0, 0, 0)
    first.close()
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    second = explore(cross(T, T))
    assert not taken_apart(second.tile(0, 0, "sum", 0, 0, 0)).exact
    finish(second)
    assert second.tile(0, 0, "sum", 0, 0, 0) == expected
    second.close()
    assert path.read_bytes() == whole


@pytest.mark.usefixtures("as_if_large")
def test_without_a_cache_that_can_be_written_everything_works(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with Explorer(scene_of(cross(T, T)), cache=tmp_path / "file") as explorer:
        finish(explorer)
        assert taken_apart(explorer.tile(0, 0, "mean", 0, 0, 0)).exact


@pytest.mark.usefixtures("as_if_large")
def test_close_ends_a_pass_and_a_computation_that_are_under_way(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    explorer, begun = explore(cross(T, T)), threading.Event()

    def endless(*_: object) -> None:
        begun.set()
        while True:
            require_wanted()
            time.sleep(0.001)

    monkeypatch.setattr(Pyramid, "fill_some", endless)
    monkeypatch.setattr(module.figures, "cell", endless)
    assert explorer.progress(0, 0) == {"done": 0.0, "exact": False}
    assert begun.wait(5)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            explorer.cell(0, 0, 0, 0)
        except Stopped as error:
            ended.append(error)

    begun.clear()
    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(5)
    start = time.monotonic()
    explorer.close()
    asking.join(5)
    assert time.monotonic() - start < 2
    assert len(ended) == 1
    with pytest.raises(Stopped):
        explorer.tile(0, 0, "mean", 0, 0, 0)
    explorer.close()
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("as_if_large")
def test_the_map_that_was_asked_for_last_comes_first(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
):
    filled: list[int] = []
    ready = threading.Event()
    fill_some = Pyramid.fill_some

    def noted(self: Pyramid, head: module.Head) -> None:
        ready.wait(5)
        filled.append(head.number)
        fill_some(self, head)

    monkeypatch.setattr(Pyramid, "fill_some", noted)
    explorer = explore(cross(T, T))
    explorer.progress(0, 0)
    explorer.progress(0, 1)
    ready.set()
    wait_for(lambda: all(f.pyramid.done == 1 for f in passes_of(explorer).values()))
    # The one that had begun when the other came may have filled some lines.
    later = filled[1:]
    assert later.index(1) == 0
    assert later == sorted(later, reverse=True)
    assert {0, 1} == set(filled)


@pytest.mark.usefixtures("as_if_large")
def test_a_pass_gives_way_to_whoever_waits(explore: Callable[..., Explorer]):
    explorer = explore(cross(T, T))
    with explorer._passes.precedence():
        explorer.progress(0, 0)
        time.sleep(0.1)
        assert explorer.progress(0, 0)["done"] == 0
    finish(explorer)


@pytest.mark.usefixtures("as_if_large")
def test_a_pass_goes_on_even_if_somebody_always_waits(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(passes, "PATIENCE_SECONDS", 0.001)
    explorer = explore(cross(T, T))
    with explorer._passes.precedence():
        finish(explorer)


@pytest.mark.usefixtures("as_if_large")
def test_pyramids_that_nobody_asks_for_make_room(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(passes, "MOST_BYTES", 1_500_000)
    explorer = explore(cross(T, T), cross(T, T))
    for layer, head in ((0, 0), (0, 1), (1, 0)):
        finish(explorer, layer, head)
        expected = explorer.tile(layer, head, "mean", 0, 0, 0)
    assert set(passes_of(explorer)) == {(0, 1), (1, 0)}
    # From disk it comes back at once.
    assert taken_apart(explorer.tile(0, 0, "max", 0, 0, 0)).exact
    assert explorer.tile(1, 0, "mean", 0, 0, 0) == expected


@pytest.mark.usefixtures("as_if_large")
def test_an_error_in_a_pass_is_told_to_who_asks(explore: Callable[..., Explorer]):
    query = factors(1, T, 8)
    explorer = explore(AttentionMap.from_factors(query, factors(1, T, 8)))
    explorer.cell(0, 0, 0, 0)
    query[0, 0] = 1

    with pytest.raises(UnsupportedError, match="must not be written into"):
        finish(explorer)
    with pytest.raises(UnsupportedError, match="must not be written into"):
        explorer.tile(0, 0, "mean", 2, 0, 0)


@pytest.mark.usefixtures("as_if_large")
def test_many_threads_get_what_one_would(explore: Callable[..., Explorer]):
    weights = cross(T, T, mask=Causal())
    explorer, dense = explore(weights), [dense_of(weights, head) for head in range(2)]
    wrong: list[object] = []

    def ask(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(40):
            head, zoom, number = (
                int(torch.randint(0, most, (), generator=generator)) for most in (2, 3, 9)
            )
            places = tiles_at(T, T, zoom)
            x, y = places[number % len(places)]
            tile = taken_apart(explorer.tile(0, head, "sum", zoom, x, y))
            expected = tile_of(dense[head], "sum", zoom, x, y).float()
            values = torch.zeros_like(expected) if tile.values is None else tile.values
            if tile.exact and not torch.allclose(values, expected, rtol=1e-5, atol=1e-7):
                wrong.append((head, zoom, x, y))
            explorer.progress(0, head)
            explorer.top("columns", 0, head, number, 3)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_who_does_not_want_a_tile_any_more_stops_it(explore: Callable[..., Explorer]):
    explorer = explore(cross(T, T))
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 2

    with pytest.raises(Stopped):
        explorer.tile(0, 0, "mean", 0, 0, 0, stop)
    for question in (
        lambda stop: explorer.thumbnail(0, 1, stop),
        lambda stop: explorer.block(0, 1, range(10), range(10), stop),
        lambda stop: explorer.line("columns", 0, 1, 3, 0, T, 5, stop),
        lambda stop: explorer.top("columns", 0, 1, 3, 5, stop),
    ):
        with pytest.raises(Stopped):
            question(lambda: True)
    assert taken_apart(explorer.tile(0, 0, "mean", 0, 0, 0)).exact


@pytest.mark.usefixtures("as_if_large")
def test_an_exact_tile_is_kept_and_a_sampled_one_is_not(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
):
    explorer = explore(cross(T, T))
    sampled, exact = explorer.tile(0, 0, "mean", 0, 0, 0), explorer.tile(0, 0, "mean", 2, 0, 0)
    finish(explorer)
    assert explorer.tile(0, 0, "mean", 0, 0, 0) != sampled
    monkeypatch.setattr(module.pictures, "exact", None)
    assert explorer.tile(0, 0, "mean", 2, 0, 0) == exact


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize(
    "block",
    [torch.inference_mode, torch.enable_grad, lambda: torch.autocast("cpu", torch.bfloat16)],
)
def test_the_block_that_asks_changes_nothing(
    explore: Callable[..., Explorer], block: Callable[[], AbstractContextManager[object]]
):
    query, key = (factors(1, T, 8, seed=seed).requires_grad_() for seed in (0, 1))
    dense = dense_of(AttentionMap.from_factors(query.detach(), key.detach()))
    with block():
        weights = AttentionMap.from_factors(query, key)
        explorer = explore(weights)
        near(explorer.cell(0, 0, 5, 6)["weight"], dense[5, 6])
        explorer.progress(0, 0)
    finish(explorer)
    near(explorer.cell(0, 0, 7, 6)["weight"], dense[7, 6])
    with block():
        tile = explorer.tile(0, 0, "mean", 0, 0, 0)
        check_block(explorer, dense, range(9, 50), range(T))
    near(taken_apart(tile).values, tile_of(dense, "mean", 0, 0, 0))


# Rows, columns, cells, blocks.


@pytest.mark.parametrize("name", ["1", "257", "causal", "padded", "cross", "head mean", "given"])
def test_cells_rows_and_columns_are_those_of_the_matrix(
    explore: Callable[..., Explorer], name: str
):
    weights = MAPS[name]()
    explorer, dense = explore(MAPS[name]()), dense_of(weights)
    queries, keys = dense.shape
    query, key = queries * 2 // 3, keys // 3
    near(explorer.cell(0, 0, query, key)["weight"], dense[query, key])
    for side, number, line in (("rows", query, dense[query]), ("columns", key, dense[:, key])):
        size = len(line)
        found = explorer.line(side, 0, 0, number, 0, size, 10 * size)["values"]
        near(found, line)
        first, stop = size // 5, size - size // 7
        bins = min(7, stop - first)
        found = explorer.line(side, 0, 0, number, first, stop, bins)["values"]
        edges = [first + i * (stop - first) // bins for i in range(bins + 1)]
        near(found, torch.stack([line[a:b].max() for a, b in pairwise(edges)]))
        assert explorer.line(side, 0, 0, number, first, first, 5)["values"] == []
        top = explorer.top(side, 0, 0, number, 5)
        near(top["weights"], line.topk(min(5, size)).values)
        near(top["weights"], line[top["positions"]])
        near(top["sum"], line.sum())
        assert explorer.top(side, 0, 0, number, 0)["positions"] == []
        assert len(explorer.top(side, 0, 0, number, size + 9)["positions"]) == size
        json.dumps(top)


def test_equal_weights_are_ranked_in_order(explore: Callable[..., Explorer]):
    explorer = explore(AttentionMap.from_weights(torch.tensor([[[0.25, 0.5, 0.25, 0.0, 0.25]]])))
    assert explorer.top("rows", 0, 0, 0, 4)["positions"] == [1, 0, 2, 4]


@pytest.mark.usefixtures("as_if_large")
def test_a_column_is_made_of_some_rows_until_the_pass_is_through(
    explore: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
):
    explorer, column = explore(cross(T, T)), dense_of(cross(T, T))[:, 7]
    # The middle of each of twenty stretches of thirty queries.
    with explorer._passes.precedence():
        found = explorer.line("columns", 0, 0, 7, 0, T, 20)
        assert found["exact"] is False
        near(found["values"], column[15::30])
        # Of stretches of which no row is known, nothing is said.
        monkeypatch.setattr(module.figures, "SAMPLE", 10)
        found = explorer.line("columns", 0, 0, 7, 0, 420, 210)
        known = {*range(15, 420, 30), *range(21, 420, 42)}
        assert {bin for bin, value in enumerate(found["values"]) if value} == {
            n // 2 for n in known
        }
        monkeypatch.setattr(module.figures, "SAMPLE", 100)
        strongest = explorer.top("columns", 0, 0, 7, 5)
        assert (strongest["exact"], strongest["sum"]) == (False, None)
        near(strongest["weights"], column[strongest["positions"]])
        assert strongest["weights"] == sorted(strongest["weights"], reverse=True)
    # It began the pass, which makes it exact.
    wait_for(lambda: explorer.line("columns", 0, 0, 7, 0, T, 20)["exact"])
    near(explorer.line("columns", 0, 0, 7, 0, T, T)["values"], column)
    near(explorer.top("columns", 0, 0, 7, 5)["sum"], column.sum())


BLOCKS = [(range(1), range(1)), (range(3, 250), range(40, 257)), (range(257), range(257))]


@pytest.mark.parametrize(("rows", "columns"), BLOCKS)
@pytest.mark.parametrize("name", ["257", "head mean", "given"])
def test_a_block_is_summed_exactly(
    explore: Callable[..., Explorer], name: str, rows: range, columns: range
):
    weights = MAPS[name]()
    check_block(explore(MAPS[name]()), dense_of(weights), rows, columns)


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize(
    ("rows", "columns"),
    [*BLOCKS, (range(5, 6), range(600)), (range(100, 599), range(1, 600)), (range(600),) * 2],
)
def test_a_block_of_a_map_with_a_pyramid_is_summed_exactly(
    explore: Callable[..., Explorer], rows: range, columns: range
):
    weights = cross(T, T, mask=Causal())
    explorer, dense = explore(weights), dense_of(weights)
    check_block(explorer, dense, rows, columns)
    finish(explorer)
    check_block(explorer, dense, rows, columns)


def check_block(explorer: Explorer, dense: Tensor, rows: range, columns: range) -> None:
    found = explorer.block(0, 0, rows, columns)
    block = dense[rows.start : rows.stop, columns.start : columns.stop]
    near(found["sum"], block.sum())
    near(found["mean"], block.mean())
    near(found["max"], block.max())
    near(found["share"], block.sum() / dense[rows.start : rows.stop].sum())
    query, key = found["max_at"]
    assert query in rows
    assert key in columns
    near(dense[query, key], block.max())
    json.dumps(found, allow_nan=False)


def test_rows_that_give_nothing_share_nothing(explore: Callable[..., Explorer]):
    weights = cross(40, 30, mask=Padding(torch.zeros(1, 30)))
    found = explore(weights).block(0, 0, range(3, 9), range(30))
    assert found == {"sum": 0.0, "mean": 0.0, "max": 0.0, "max_at": [3, 0], "share": 0.0}


def test_sinks_are_no_part_of_what_rows_give(explore: Callable[..., Explorer]):
    weights = cross(40, 30, sinks=torch.tensor([0.5, 9.0]))
    check_block(explore(weights), dense_of(weights), range(40), range(3, 9))


# What does not exist.


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda e: e.tile(1, 0, "mean", 0, 0, 0), "layer must be 0 to 0; got 1."),
        (lambda e: e.tile(-1, 0, "mean", 0, 0, 0), "layer must be 0 to 0; got -1."),
        (lambda e: e.tile(0, 2, "mean", 0, 0, 0), "head must be 0 to 1; got 2."),
        (
            lambda e: e.tile(0, 0, "median", 0, 0, 0),
            "statistic must be mean, max or sum; got 'median'.",
        ),
        (lambda e: e.tile(0, 0, "mean", 1, 0, 0), "zoom must be 0 to 0; got 1."),
        (lambda e: e.tile(0, 0, "mean", 0, 1, 0), "x must be 0 to 0; got 1."),
        (lambda e: e.thumbnail(0, 5), "head must be 0 to 1; got 5."),
        (lambda e: e.progress(3, 0), "layer must be 0 to 0; got 3."),
        (lambda e: e.axis(2), "axis must be 0 to 1; got 2."),
        (lambda e: e.cell(0, 0, 70, 0), "query must be 0 to 69; got 70."),
        (lambda e: e.cell(0, 0, 0, -1), "key must be 0 to 89; got -1."),
        (lambda e: e.line("rows", 0, 0, 70, 0, 9, 1), "query must be 0 to 69; got 70."),
        (lambda e: e.line("columns", 0, 0, 90, 0, 9, 1), "key must be 0 to 89; got 90."),
        (
            lambda e: e.line("rows", 0, 0, 0, 9, 8, 1),
            "first and stop must be in order and 0 to 90; got 9 and 8.",
        ),
        (
            lambda e: e.line("columns", 0, 0, 0, 0, 71, 1),
            "first and stop must be in order and 0 to 70; got 0 and 71.",
        ),
        (lambda e: e.line("rows", 0, 0, 0, 0, 9, 0), "bins must be 1 or more; got 0."),
        (lambda e: e.top("rows", 0, 0, 0, -1), "count must be 0 or more; got -1."),
        (
            lambda e: e.block(0, 0, range(71), range(5)),
            "rows must be first:stop within 0:70 and not empty; got 0:71.",
        ),
        (
            lambda e: e.block(0, 0, range(7), range(5, 5)),
            "columns must be first:stop within 0:90 and not empty; got 5:5.",
        ),
    ],
)
def test_what_does_not_exist_is_refused(
    explore: Callable[..., Explorer], question: Callable[[Explorer], object], message: str
):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        question(explore(cross(70, 90)))


def test_it_tells_what_there_is_to_see(explore: Callable[..., Explorer]):
    explorer = explore(cross(70, 90))
    assert explorer.description()["layers"][0]["keys"] == 90
    assert explorer.axis(1)["kind"] == "position"
    json.dumps([explorer.description(), explorer.axis(0)], allow_nan=False)
    assert not math.isnan(explorer.progress(0, 1)["done"])
