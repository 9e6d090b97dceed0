"""Pictures of maps, the pyramid that low levels are made of, and how it is kept on disk."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Causal, Documents, Padding, Window
from heedmap.explore import fingerprint, pictures, pyramid, store
from heedmap.explore.grid import Place
from heedmap.explore.heads import Head
from heedmap.explore.prepared import prepare
from heedmap.explore.pyramid import Pyramid, base_side
from heedmap.explore.stopping import Stopped, wanted_until
from tests.explore.dense import factors, picture_of

T = 300
MASKS = {
    "everything": None,
    "causal": Causal(),
    "padded": Padding(torch.arange(T)[None] < 210),
    "windowed": Window(before=40, after=3),
    "documents": Documents((torch.arange(T) // 77)[None]),
}


def head_of(weights: AttentionMap, number: int = 0) -> Head:
    return Head(prepare(weights._rule), number)


def unread(mask: object = None, heads: int = 1, seed: int = 0) -> AttentionMap:
    query, key = factors(1, heads, T, 8, seed=seed), factors(1, heads, T, 8, seed=seed + 1)
    return AttentionMap.from_factors(query, key, mask=mask)[0]  # pyright: ignore[reportArgumentType]


def twin_of(weights: AttentionMap, number: int = 0) -> Tensor:
    return weights[number].to_dense().double()


def filled(head: Head) -> Pyramid:
    made = Pyramid(head.queries, head.keys)
    while made.done < 1:
        made.fill_some(head)
    return made


def near(found: object, expected: Tensor) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found).double(), expected, rtol=5e-6, atol=1e-9, equal_nan=True
    )


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut everything into many blocks, with rests at the edges."""
    monkeypatch.setattr(pyramid, "LEAST_SIDE", 4)
    monkeypatch.setattr(pyramid, "ROWS", 48)
    for module in (pictures, pyramid):
        monkeypatch.setattr(module, "CELLS", 1500)
    monkeypatch.setattr(pictures, "STEP", 32)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("side", [1, 2, 16, 64])
@pytest.mark.usefixtures("small_steps")
def test_a_picture_shows_the_cells_of_its_place_alone(name: str, side: int):
    weights = unread(MASKS[name])
    place = Place(range(64, T), range(128, T), side)
    sums, maxima = pictures.exact(head_of(weights), place, ("sum", "max"))
    cut = twin_of(weights)[64:, 128:]
    near(sums, picture_of(cut, "sum", side))
    near(maxima, picture_of(cut, "max", side))
    near(pictures.finished(sums, place, "mean"), picture_of(cut, "mean", side))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("statistic", pictures.STATISTICS)
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("columns", [range(T), range(32, T)])
def test_a_sample_of_all_queries_is_the_picture(
    name: str, statistic: pictures.Statistic, columns: range
):
    weights = unread(MASKS[name])
    place = Place(range(128, T - 44), columns, 16)
    found = pictures.sampled(head_of(weights), place, statistic, 16)
    near(found, picture_of(twin_of(weights)[128 : T - 44, columns.start :], statistic, 16))


def test_a_sample_reads_queries_from_the_middle_of_each_line():
    dense = torch.zeros(10, 6)
    dense[[2, 6, 9]] = torch.tensor([[1.0], [2.0], [3.0]])
    head = head_of(AttentionMap.from_weights(dense[None]))
    place = Place(range(10), range(6), 4)
    near(pictures.sampled(head, place, "max", 1)[:, 0], torch.tensor([1.0, 2, 3]).double())
    # Of the last line of two queries, a sample of three reads one twice.
    near(pictures.sampled(head, place, "mean", 3)[2, 0], torch.tensor(2.0).double())
    sums = pictures.sampled(head, place, "sum", 1)
    near(sums, torch.tensor([[16.0, 8], [32, 16], [24, 12]]).double())


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("statistic", pictures.STATISTICS)
@pytest.mark.usefixtures("small_steps")
def test_every_level_of_a_pyramid_is_exact(name: str, statistic: pictures.Statistic):
    weights = unread(MASKS[name])
    made, dense = filled(head_of(weights)), twin_of(weights)
    assert made.side == 4
    for side in (4, 8, 128, 512):
        place = Place(range(T), range(T), side)
        near(made.picture(place, statistic), picture_of(dense, statistic, side))
    place = Place(range(128, 256), range(256, T), 8)
    near(made.picture(place, statistic), picture_of(dense[128:256, 256:], statistic, 8))
    assert made.picture(Place(range(T), range(T), 2), statistic) is None


@pytest.mark.parametrize("kind", ["given", "computed", "known", "nan", "nan in sight"])
@pytest.mark.usefixtures("small_steps")
def test_a_pyramid_of_any_map_is_exact(kind: str):
    dense = torch.softmax(factors(2, 130, 90), -1)
    query = factors(1, 2, 130, 8)
    query[0, 1, 77] = torch.nan
    maps = {
        "given": AttentionMap.from_weights(dense),
        "computed": AttentionMap.from_weights(dense).mean(0, keepdim=True),
        "known": unread(Causal(), heads=2),
        "nan": AttentionMap.from_factors(query, factors(1, 2, 90, 8), mask=Causal("end"))[0],
    }
    maps["nan in sight"] = AttentionMap.from_factors(query, factors(1, 2, 90, 8))[0]
    for name in ("known", "nan in sight"):
        assert maps[name].log_normalizer.dtype == torch.float32
    weights = maps[kind]
    number = len(weights) - 1
    made, twin = filled(head_of(weights, number)), twin_of(weights, number)
    place = Place(*map(range, twin.shape), 8)
    near(made.picture(place, "mean"), picture_of(twin, "mean", 8))
    near(made.picture(place, "max"), picture_of(twin, "max", 8))


@pytest.mark.usefixtures("small_steps")
def test_the_lines_that_are_filled_are_exact_before_the_rest_is():
    head = head_of(unread())
    made = Pyramid(T, T)
    made.fill_some(head)
    assert (made.lines, made.done) == (12, 12 / 75)
    near(
        made.picture(Place(range(32), range(T), 16), "sum"),
        picture_of(twin_of(unread())[:32], "sum", 16),
    )
    assert made.picture(Place(range(64), range(T), 16), "sum") is None


@pytest.mark.usefixtures("small_steps")
def test_a_pass_that_is_stopped_has_filled_nothing_by_halves():
    head, made = head_of(unread(Causal())), Pyramid(T, T)
    made.fill_some(head)
    before = made.pixels.clone()
    with wanted_until(lambda: True), pytest.raises(Stopped):
        made.fill_some(head)
    assert made.lines == 12
    assert torch.equal(made.pixels, before)


def test_the_base_has_a_bounded_number_of_pixels():
    assert base_side(100_000, 100_000) == 32
    assert base_side(4097, 4097) == 16
    for queries, keys in ((1, 10**8), (10**6, 10**6), (90_000, 400_000)):
        side = base_side(queries, keys)
        assert -(-queries // side) * -(-keys // side) <= pyramid.PIXELS


def test_nothing_of_the_size_of_the_map_is_ever_made(forbid_dense):
    query, key = factors(1, 5000, 4), factors(1, 5000, 4, seed=1)
    with forbid_dense(5000 * 5000 // 8):
        head = head_of(AttentionMap.from_factors(query, key))
        made = Pyramid(5000, 5000)
        made.fill_some(head)
        made.picture(Place(range(256), range(5000), 32), "max")
        pictures.sampled(head, Place(range(5000), range(5000), 32), "mean", 2)


# On disk.


@pytest.mark.usefixtures("small_steps")
def test_a_pyramid_comes_back_from_disk_with_its_log_normalisers(tmp_path: Path):
    head = head_of(unread(Causal(), heads=2), 1)
    made = filled(head)
    store.save(tmp_path / "new" / "folder", head, made)
    again = head_of(unread(Causal(), heads=2), 1)
    found = store.load(tmp_path / "new" / "folder", again)
    assert found is not None
    assert found.done == 1
    assert torch.equal(found.pixels, made.pixels)
    assert not again.missing(range(T))
    assert torch.equal(again.tile(range(T), range(T)), head.tile(range(T), range(T)))


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("small_steps")
def test_rows_without_log_normaliser_are_not_believed_to_have_one(
    tmp_path: Path, scale: float, dtype: torch.dtype
):
    query = factors(1, T, 8, scale=scale).to(dtype)
    head, again = (head_of(AttentionMap.from_factors(query, query)) for _ in range(2))
    made = Pyramid(T, T)
    made.fill_some(head)
    store.save(tmp_path, head, made)
    assert store.load(tmp_path, again) is not None
    assert again.missing(range(48)) == 0
    assert again.missing(range(T)) == T - 48
    dense = AttentionMap.from_factors(query, query)[0].to_dense().double()
    near(again.tile(range(T), range(T)), dense)


@pytest.mark.parametrize("damage", ["cut", "longer", "bit", "header", "empty", "folder"])
@pytest.mark.usefixtures("small_steps")
def test_a_damaged_file_is_not_believed_and_replaced(tmp_path: Path, damage: str):
    head = head_of(unread())
    made = filled(head)
    store.save(tmp_path, head, made)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "folder":
        path.unlink()
        path.mkdir()
        assert store.load(tmp_path, head_of(unread())) is None
        store.save(tmp_path, head, made)
        return
    if damage in ("bit", "header"):
        content[-9 if damage == "bit" else 9] ^= 1
    changed = {"cut": content[:-1], "longer": content + b"0", "empty": b""}.get(damage, content)
    path.write_bytes(changed)
    assert store.load(tmp_path, head_of(unread())) is None
    store.save(tmp_path, head, made)
    assert store.load(tmp_path, head_of(unread())) is not None
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_steps")
def test_other_data_have_another_file(tmp_path: Path):
    store.save(tmp_path, head_of(unread()), filled(head_of(unread())))
    changed = factors(1, 1, T, 8)
    changed[0, 0, -1, -1] += 1e-3
    key = factors(1, 1, T, 8, seed=1)
    others = [
        head_of(unread(seed=5)),
        head_of(unread(Causal())),
        head_of(AttentionMap.from_factors(changed, key)[0]),
        head_of(AttentionMap.from_factors(factors(1, 1, T, 8), key, scale=0.3)[0]),
        head_of(AttentionMap.from_weights(unread()[:].to_dense())),
    ]
    assert all(store.load(tmp_path, other) is None for other in others)
    assert store.load(tmp_path, head_of(unread())) is not None


@pytest.mark.usefixtures("small_steps")
def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    head = head_of(unread())
    made = filled(head)
    for folder in (blocked, blocked / "below", None):
        store.save(folder, head, made)
        assert store.load(folder, head) is None


@pytest.mark.usefixtures("small_steps")
def test_the_files_that_were_used_least_lately_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    heads = [head_of(unread(seed=seed)) for seed in range(4)]
    for age, head in zip((40, 30, 20), heads, strict=False):
        before = set(tmp_path.iterdir())
        store.save(tmp_path, head, filled(head))
        (path,) = set(tmp_path.iterdir()) - before
        os.utime(path, (10**9 - age, 10**9 - age))
    for name in ("killed.pyramid.part", "somebody's.txt"):
        (tmp_path / name).write_bytes(bytes(10**6))
        os.utime(tmp_path / name, (10**8, 10**8))
    assert store.load(tmp_path, heads[0]) is not None
    monkeypatch.setattr(store, "MOST_BYTES", path.stat().st_size * 2)
    store.save(tmp_path, heads[3], filled(heads[3]))
    assert [store.load(tmp_path, head) is not None for head in heads] == [True, False, False, True]
    assert len(list(tmp_path.iterdir())) == 3
    assert (tmp_path / "somebody's.txt").exists()


def test_the_cache_lies_where_it_should(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEEDMAP_CACHE", "/data/heedmap")
    assert store.cache_folder() == Path("/data/heedmap/explore")
    monkeypatch.delenv("HEEDMAP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert store.cache_folder() == Path("/cache/heedmap/explore")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert store.cache_folder() == Path("/home/somebody/.cache/heedmap/explore")


def test_what_is_expanded_is_hashed_as_it_lies_in_memory():
    wide = torch.ones(1, 4, 1).expand(10**6, 4, 10**6)
    assert fingerprint.fingerprint(wide) != fingerprint.fingerprint(wide[:5])
    assert fingerprint.fingerprint(wide, None) is not None


def test_a_map_of_a_function_has_no_hash_and_is_not_kept(tmp_path: Path):
    function = AttentionMap.from_factors(factors(1, T, 8), factors(1, T, 8), soft_cap=3.0)
    assert head_of(function).fingerprint is not None
    head = head_of(function)
    problem = head.rule.problem  # pyright: ignore[reportAttributeAccessIssue]
    object.__setattr__(problem.scoring, "change", lambda scores, places: scores)
    assert head.fingerprint is None
    store.save(tmp_path, head, Pyramid(T, T))
    assert list(tmp_path.iterdir()) == []
