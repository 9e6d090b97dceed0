"""From maps, recordings and inputs to scenes."""

from pathlib import Path

import pytest
import torch
from torch import nn

import heedmap
from heedmap import AttentionMap, Axis
from heedmap.errors import ArgumentError, InputError, ShapeError
from heedmap.explore.inputs import MANY_CELLS, scene_of_input, scene_of_recording
from heedmap.explore.opening import media_of, scene_of_map, scene_of_seen
from heedmap.media import Text
from heedmap.seen import Seen


def draw(*shape: int) -> AttentionMap:
    return AttentionMap.from_factors(*torch.randn(2, *shape))


def make_seen(positions: int = 6) -> Seen:
    model = nn.TransformerDecoderLayer(8, 2, batch_first=True).eval()
    with heedmap.watch(model) as seen:
        model(torch.randn(2, positions, 8), torch.randn(2, 4, 8))
    return seen


def test_leading_dimensions_are_heads() -> None:
    scene = scene_of_map(draw(2, 3, 5, 4))
    assert scene.layers[0].heads == ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
    assert scene.layers[0].weights.shape == (6, 5, 5)
    assert [len(axis) for axis in scene.axes] == [5]
    assert scene.description()["layers"][0]["zooms"] == 0


def test_two_sides_of_two_kinds() -> None:
    weights = AttentionMap.from_factors(torch.randn(3, 4), torch.randn(2, 4))
    key_axis = Axis.of_tokens("a b", ["a", "b"], [(0, 1), (2, 3)])
    scene = scene_of_map(weights, key_axis=key_axis)
    assert [axis.kind for axis in scene.axes] == ["position", "token"]
    assert (scene.layers[0].query_axis, scene.layers[0].key_axis) == (0, 1)
    assert [medium.words for medium in scene.media] == ["a b"]


def test_layers_of_a_model() -> None:
    scene = scene_of_seen(make_seen())
    assert [layer.name for layer in scene.layers] == ["self_attn", "multihead_attn"]
    assert [layer.weights.shape for layer in scene.layers] == [(4, 6, 6), (4, 6, 4)]
    assert [len(axis) for axis in scene.axes] == [6, 4]


def test_what_fills_up_is_not_shown() -> None:
    axis = Axis.of_seconds([(0.0, 0.5), (0.5, 1.0)])
    scene = scene_of_seen(make_seen(), axis=axis)
    assert scene.layers[0].weights.shape == (4, 2, 2)
    assert scene.axes[0] == axis
    assert scene.axes[scene.layers[1].query_axis].kind == "position"


def test_layers_without_maps_are_named() -> None:
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with heedmap.watch(model, keep=heedmap.Summary()) as seen:
        model(torch.randn(1, 4, 8))
    with pytest.raises(
        ArgumentError, match="maps must have been kept of what is explored; got none"
    ):
        scene_of_seen(seen)


def test_a_recording(tmp_path: Path) -> None:
    axis = Axis.of_seconds((i / 2, i / 2 + 0.5) for i in range(6))
    make_seen().save(tmp_path / "seen", axis=axis)
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"")
    scene = scene_of_recording(tmp_path / "seen", media=sound, question="1.2s")
    assert (scene.name, scene.query) == ("seen", 2)
    assert scene.media[0].content_type == "audio/wav"
    with pytest.raises(
        InputError,
        match=r"folder must be a recording; got .*, in which there is no manifest.json. Make one "
        r"with seen.save\(folder\).",
    ):
        scene_of_recording(tmp_path)


def test_where_a_recording_begins(tmp_path: Path) -> None:
    make_seen().save(tmp_path / "seen")
    scene = scene_of_recording(tmp_path / "seen", layer=1, head=3, question="@2")
    assert (scene.chosen, scene.query) == ((1, 3), 2)
    assert scene_of_recording(tmp_path / "seen", head=1).chosen == (0, 1)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["layer", "head"])
@pytest.mark.parametrize("number", [-1, 4])
def test_a_recording_has_so_many_layers_and_heads(tmp_path: Path, name: str, number: int) -> None:
    make_seen().save(tmp_path / "seen")
    last = {"layer": 1, "head": 3}[name]
    words = f"{name} must be from 0 to {last} for the recording seen; got {number}."
    with pytest.raises(ArgumentError, match=words):
        scene_of_recording(
            tmp_path / "seen",
            layer=number if name == "layer" else None,
            head=number if name == "head" else None,
        )


def test_words() -> None:
    lines: list[str] = []
    scene = scene_of_input(
        Text.of("to be or not to be"), None, model="none", question="b", progress=lines.append
    )
    assert scene.layers[0].labels != ("",)
    assert scene.query == 3
    assert scene.media[0].words == "to be or not to be"
    assert lines


def test_long_inputs_are_opened_without_measuring() -> None:
    lines: list[str] = []
    length = int(MANY_CELLS**0.5) + 1
    scene = scene_of_input(Text.of("ab" * length), None, model="none", progress=lines.append)
    assert scene.layers[0].labels == ("",)
    assert not lines


def test_media_by_their_names(tmp_path: Path) -> None:
    for name, kind in {
        "a.mp4": "video",
        "a.FLAC": "audio",
        "a.md": "text",
        "a.txt": "text",
    }.items():
        (tmp_path / name).write_bytes(b"")
        assert media_of(tmp_path / name, [])[0].kind == kind


@pytest.mark.bad_input
def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="axis must have 5 positions, as the map; got 2"):
        scene_of_map(draw(5, 4), axis=Axis.of_positions(2))
    with pytest.raises(InputError, match="media must be a file; got nowhere"):
        scene_of_map(draw(5, 4), media="nowhere")
    (tmp_path / "a.zip").write_bytes(b"")
    with pytest.raises(InputError, match="media must be a sound, a film or a text by its name"):
        scene_of_map(draw(5, 4), media=tmp_path / "a.zip")
