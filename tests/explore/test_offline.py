"""The live map as one file."""

import base64
import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import heedmap
from heedmap import AttentionMap, Axis, Causal
from heedmap.errors import InputError, UnsupportedError
from heedmap.explore import offline
from heedmap.explore.offline import write_page
from heedmap.explore.opening import scene_of_map
from heedmap.explore.packing import Pack
from heedmap.explore.rasters import raster
from heedmap.explore.scene import Scene


def unpacked(file: Path) -> tuple[dict[str, Any], bytes]:
    found = re.search(r'type="text/plain">([^<]+)<', file.read_text("utf-8"))
    assert found
    content = gzip.decompress(base64.b64decode(found[1]))
    (size,) = struct.unpack("<I", content[:4])
    return json.loads(content[4 : 4 + size]), content[4 + size :]


def weights_in(pieces: bytes, place: dict[str, Any]) -> torch.Tensor:
    content = bytearray(pieces[place["at"] : place["at"] + place["bytes"]])
    if place["bits"] == 32:
        return torch.frombuffer(content, dtype=torch.float32).view(place["rows"], place["columns"])
    halves = torch.frombuffer(content, dtype=torch.float16)
    return halves.float().view(place["rows"], place["columns"]) * place["largest"]


def written(scene: Scene, folder: Path) -> tuple[dict[str, Any], bytes]:
    write_page(scene, folder / "map.html")
    assert (folder / "map.html").stat().st_size < 5_000_000
    assert [path.name for path in folder.iterdir()] == ["map.html"]
    return unpacked(folder / "map.html")


def test_small_maps_are_there_whole(tmp_path: Path) -> None:
    weights = heedmap.attention(*torch.randn(3, 2, 40, 8), mask=Causal())[1]
    index, pieces = written(scene_of_map(weights), tmp_path)
    for head in range(2):
        found = index["maps"][f"0/{head}"]
        assert found["side"] == 1
        cells = weights_in(pieces, found["mean"])
        torch.testing.assert_close(cells, weights[head].to_dense())
        # What a mask hides, and nothing else, is exactly 0.
        assert torch.equal(cells == 0, weights[head].to_dense() == 0)
    strongest = index["maps"]["0/0"]["rows"]
    content = bytearray(pieces[strongest["positions"]["at"] :][: strongest["positions"]["bytes"]])
    positions = torch.frombuffer(content, dtype=torch.int32).view(40, 8)
    assert torch.equal(positions.long(), weights[0].topk(8).indices)


def test_long_maps_in_blocks(tmp_path: Path) -> None:
    weights = AttentionMap.from_factors(*torch.randn(2, 3000, 4))
    index, pieces = written(scene_of_map(weights), tmp_path)
    found = index["maps"]["0/0"]
    assert found["side"] == 8
    block = weights[8:16, 2992:3000].to_dense()
    assert float(weights_in(pieces, found["mean"])[1, 374]) == pytest.approx(
        float(block.mean()), rel=1e-3
    )
    assert float(weights_in(pieces, found["max"])[1, 374]) == pytest.approx(
        float(block.max()), rel=1e-3
    )
    assert "blocks of 8 × 8 weights" in index["description"]["notes"][0]
    assert index["description"]["layers"][0]["deepest"] == [4 - 3]


def test_single_weights_have_all_their_digits(tmp_path: Path) -> None:
    weights = torch.tensor([[1.0, 3.3412345e-7], [0.25, 0.75]])
    index, pieces = written(scene_of_map(AttentionMap.from_weights(weights)), tmp_path)
    found = index["maps"]["0/0"]
    assert "deepest" not in index["description"]["layers"][0]
    assert torch.equal(weights_in(pieces, found["mean"]), weights)
    assert found["max"] == found["mean"]


def test_blocks_of_negative_values_keep_their_signs() -> None:
    pack = Pack()
    values = torch.tensor([[-700.0, -0.001], [-1e-9, 0.0]])
    kept = weights_in(pack_content(pack, values), pack.index["values"])
    torch.testing.assert_close(kept, values, rtol=1e-3, atol=700 * 2**-24)
    assert kept.sign().equal(values.sign())


def pack_content(pack: Pack, values: torch.Tensor) -> bytes:
    pack.index["values"] = pack.add_blocks(values)
    content = pack.content()
    return content[4 + struct.unpack("<I", content[:4])[0] :]


@pytest.mark.parametrize("side", [1, 2, 16, 64])
def test_rasters_coarser_than_levels(side: int) -> None:
    weights = heedmap.attention(*torch.randn(3, 1, 300, 4))[1]
    from heedmap.explore.explorer import Explorer

    with Explorer(scene_of_map(weights)) as explorer:
        made = raster(explorer, 0, 0, side, waiting=lambda _: None)
    dense = weights[0].to_dense()
    last = (300 - 1) // side
    corner = dense[last * side :, last * side :]
    assert made.mean.shape == (last + 1, last + 1)
    torch.testing.assert_close(made.mean[-1, -1], corner.mean())
    torch.testing.assert_close(made.max[-1, -1], corner.max())


def test_words_go_along(tmp_path: Path) -> None:
    axis = Axis.of_tokens("hi you", ["hi", "you"], [(0, 2), (3, 6)])
    weights = AttentionMap.from_weights(torch.eye(2))
    index, pieces = written(scene_of_map(weights, axis=axis), tmp_path)
    place = index["media"][0]
    assert pieces[place["at"] : place["at"] + place["bytes"]] == b"hi you"
    assert index["axes"][0]["labels"] == ["hi", "you"]


def test_what_is_too_large_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = tmp_path / "sound.wav"
    sound.write_bytes(torch.randint(256, (400_000,), dtype=torch.uint8).numpy().tobytes())
    axis = Axis.of_tokens("", [f"{i * 7919 % 10007:05d}" * 40 for i in range(500)], [(0, 0)] * 500)
    scene = scene_of_map(AttentionMap.from_factors(*torch.randn(2, 500, 4)), axis=axis, media=sound)
    (tmp_path / "out").mkdir()
    file, kept, notes = tmp_path / "out" / "map.html", [], []
    for _ in range(3):
        write_page(scene, file, force=True)
        index, _ = unpacked(file)
        kept.append((len(index["media"]), len(index["axes"][0]["labels"])))
        notes = index["description"]["notes"]
        monkeypatch.setattr(offline, "MOST_BYTES", file.stat().st_size - 1000)
    assert kept == [(1, 500), (0, 500), (0, 0)]
    assert "the names of the positions do not fit into this file" in notes
    assert "sound.wav does not fit into this file" in notes
    monkeypatch.setattr(offline, "MOST_BYTES", 1000)
    with pytest.raises(UnsupportedError, match="a page must fit into 1000 bytes; got 1 layers"):
        write_page(scene, tmp_path / "out" / "map.html", force=True)


def test_nothing_at_all(tmp_path: Path) -> None:
    index, _ = written(scene_of_map(AttentionMap.from_weights(torch.zeros(0, 0))), tmp_path)
    assert index["description"]["layers"][0]["queries"] == 0


def test_numbers_that_are_none(tmp_path: Path) -> None:
    weights = torch.eye(3)
    weights[0, 0] = torch.nan
    index, pieces = written(scene_of_map(AttentionMap.from_weights(weights)), tmp_path)
    assert weights_in(pieces, index["maps"]["0/0"]["mean"])[0, 0].isnan()


def test_pieces_begin_at_multiples_of_four() -> None:
    pack = Pack()
    pack.add(b"abc")
    assert pack.add(b"d") == {"at": 4, "bytes": 1}
    assert len(pack.content()) % 4 == 0


@pytest.mark.bad_input
def test_places_that_are_taken(tmp_path: Path) -> None:
    scene = scene_of_map(AttentionMap.from_weights(torch.eye(2)))
    (tmp_path / "map.html").write_text("mine")
    with pytest.raises(InputError, match=r"the page must not be there yet; got .*map\.html"):
        write_page(scene, tmp_path / "map.html")
    assert (tmp_path / "map.html").read_text() == "mine"
    with pytest.raises(InputError, match="the page must be a file in a folder that exists"):
        write_page(scene, tmp_path / "nowhere" / "map.html")
    with pytest.raises(InputError, match="the page must be written where there is leave and room"):
        write_page(scene, tmp_path / ("a" * 300 + ".html"))
    assert [path.name for path in tmp_path.iterdir()] == ["map.html"]
