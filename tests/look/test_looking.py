"""Whole looks, with no model, with tiny random ones, and with the models of the house."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch
from transformers import (
    BertModel,
    MambaConfig,
    MambaModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from heedmap import AttentionMap, dense_budget
from heedmap.errors import ArgumentError, InputError, ModelError
from heedmap.look import Look, look, running
from heedmap.media import Film, Sound
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.seen import Seen
from heedmap.watch import watch


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_with_a_tiny_model(tiny_bert: str, output: Path) -> None:
    seen = look("to be or not to be", model=tiny_bert, query="be#2", output=output)
    assert files_in(output) == sorted(seen.files)
    assert {"atlas.png", "arcs.png", "summary.json"} < set(seen.files)
    assert len(seen.heads) == 4
    assert seen.query == (5,)
    (row,) = seen.rows
    expected = seen.layers[seen.chosen.layer].weights[seen.chosen.head, 5].to_dense()
    assert [key.weight for key in row.keys] == pytest.approx(sorted(expected.tolist())[::-1])
    assert {key.remark for key in row.keys if key.position == 1} == {"repeat"}
    assert isinstance(seen.layers[0].weights, AttentionMap)
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert summary == json.loads(json.dumps(seen.summary()))
    assert summary["schema"] == 1
    assert summary["query"] == {"question": "be#2", "positions": [5], "found": ["be"]}
    assert len(summary["heads"]) == 4


def test_each_token_without_a_query(tiny_bert: str) -> None:
    seen = look("to be or not to be", model=tiny_bert)
    assert [row.text for row in seen.rows] == ["to", "be", "or", "not", "to", "be"]
    weights = seen.layers[seen.chosen.layer].weights[seen.chosen.head].to_dense()
    assert [row.keys[0].position for row in seen.rows] == weights.argmax(1).tolist()
    assert seen.folder is None


def test_the_budget_for_whole_maps_does_not_matter(tiny_bert: str) -> None:
    with dense_budget(0):
        seen = look("to be or not to be", model=tiny_bert, query="be")
    assert seen.rows


def test_a_long_text_has_arcs_over_a_part(tiny_bert: str, output: Path) -> None:
    seen = look("to be or not " * 50, model=tiny_bert, query="@150", output=output)
    assert "arcs.png" in seen.files
    assert any("arcs.png shows tokens 40 to 199 of 200" in note for note in seen.notes)


def test_characters_with_no_model() -> None:
    seen = look("abracadabra", model="none", query="b#2")
    assert [(key.text, key.position) for key in seen.rows[0].keys[:2]] == [("b", 1), ("b", 8)]
    assert seen.label == "repeated word"
    assert any("not coreference" in note for note in seen.notes)


def two_voices() -> torch.Tensor:
    """Return 12 s of a low buzz, a high one, and the low one again."""
    time = torch.arange(4 * 16000) / 16000
    low = sum(torch.sin(2 * torch.pi * 110 * k * time) / k for k in range(1, 9))
    high = sum(torch.sin(2 * torch.pi * 470 * k * time) for k in range(1, 9))
    return torch.cat([low, high, low]) / 20


def test_a_voice_that_returns_is_seen_with_no_model(output: Path) -> None:
    sound = Sound(two_voices(), 16000, "buzz.wav")
    seen = look(sound, model="none", query="1.5s", output=output)
    assert seen.files == ("layer0-head0.png", "timeline.png", "summary.json")
    assert [round(start) for start, _ in seen.segments] == [0, 4, 8]
    moments = [seen.axis.spans[key.position][0] for key in seen.rows[0].keys]
    assert not any(4.5 <= moment < 7.5 for moment in moments)
    assert any(moment > 8 for moment in moments)
    assert seen.heads[0].prefers_alike is not None
    assert seen.heads[0].prefers_alike > 0.9


@pytest.mark.parametrize("seconds", [0.0001, 0.5, 3.0])
def test_silence(seconds: float, output: Path) -> None:
    sound = Sound(torch.zeros(max(round(seconds * 16000), 1)), 16000, "silence.wav")
    seen = look(sound, model="none", query="0s", output=output)
    assert seen.heads[0].prefers_alike is None
    assert len(seen.segments) == 1
    json.loads((output / "summary.json").read_text(encoding="utf-8"))


def test_a_part_of_a_sound() -> None:
    sound = Sound(two_voices(), 16000, "buzz.wav")
    seen = look(sound, model="none", start_seconds=4, query="8.5s")
    assert seen.axis.spans[0][0] == 4
    assert seen.axis.spans[-1][1] == pytest.approx(12)
    assert seen.query == (45,)


def test_sound_with_a_tiny_model(tmp_path: Path, output: Path) -> None:
    config = WhisperConfig(
        vocab_size=20,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=200,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    torch.manual_seed(0)
    WhisperForConditionalGeneration(config).save_pretrained(tmp_path)
    WhisperFeatureExtractor(chunk_length=4).save_pretrained(tmp_path)
    sound = Sound(two_voices()[: 3 * 16000], 16000, "buzz.wav")
    seen = look(sound, model=str(tmp_path), query="2.5s", output=output)
    assert len(seen.axis) == 150
    assert seen.layers[0].weights.shape == (2, 150, 150)
    assert set(seen.files) > {"atlas.png", "timeline.png"}
    assert "the sound fills the first 150" in " ".join(seen.notes)
    assert len(seen.rows[0].keys) == 6


def write_film(path: Path, colours: list[tuple[int, int, int]], frames: int) -> Path:
    """Write a film of plain shots, so many frames each, at 25 frames a second."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for colour in colours:
            for _ in range(frames):
                picture = np.full((64, 64, 3), colour, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode(None))
    return path


def test_a_shot_that_returns_is_seen(tmp_path: Path, output: Path) -> None:
    colours = [(200, 30, 30), (30, 200, 30), (200, 30, 30)]
    film = write_film(tmp_path / "returns.mp4", colours, frames=25)
    seen = look(film, query="f60", output=output)
    assert [start for start, _ in seen.segments] == [0, 1, 2]
    assert seen.query == (60,)
    row = seen.layers[0].weights[0, 60].to_dense()
    first, second, third = row[:25].sum(), row[25:50].sum(), row[50:].sum()
    assert first > 5 * second
    assert third > 5 * second
    assert {key.remark.split(",")[0] for key in seen.rows[0].keys[:4]} == {"shot 1", "shot 3"}
    assert seen.files == ("layer0-head0.png", "timeline.png", "summary.json")


BAD = {
    "layer": ({"layer": 2}, ArgumentError, "layer must be from 0 to 1"),
    "head": ({"head": 5}, ArgumentError, "head must be from 0 to 1"),
    "query": ({"query": "zebra"}, InputError, "“zebra”, which is not in it"),
    "start": ({"start_seconds": 2.0}, ArgumentError, "start_seconds must be 0 unless a sound"),
    "start that is no number": (
        {"start_seconds": float("nan")},
        ArgumentError,
        "start_seconds must be a finite number",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_write_nothing(case: str, tiny_bert: str, output: Path) -> None:
    arguments, error, message = BAD[case]
    with pytest.raises(error, match=message):
        look("to be or not", model=tiny_bert, output=output, **arguments)
    assert not output.exists()


def test_a_wrong_layer_is_refused_before_anything_is_measured() -> None:
    told: list[str] = []
    with pytest.raises(ArgumentError, match="layer must be 0, the only one without a model; got 3"):
        look("to be", model="none", layer=3, progress=told.append)
    assert told == []


@pytest.mark.parametrize("frames", [1, 60])
def test_a_film_in_which_nothing_happens(frames: int, tmp_path: Path, output: Path) -> None:
    film = write_film(tmp_path / "still.mp4", [(90, 90, 90)], frames=frames)
    seen = look(film, query="f0", output=output)
    assert len(seen.segments) == 1
    assert seen.label == ("self" if frames == 1 else "broad")


def test_a_model_that_computes_nan(tiny_bert: str, tmp_path: Path, output: Path) -> None:
    model = BertModel.from_pretrained(tiny_bert)
    torch.nn.init.constant_(model.encoder.layer[1].attention.self.query.weight, torch.nan)
    shutil.copytree(tiny_bert, tmp_path / "broken")
    model.save_pretrained(tmp_path / "broken")
    with pytest.raises(
        ModelError,
        match=r"model must attend with finite weights; .*, whose layer 1, head 0 gives NaN",
    ):
        look("to be or not", model=str(tmp_path / "broken"), output=output)
    assert not output.exists()


def test_films_have_no_models_yet(tmp_path: Path) -> None:
    film = write_film(tmp_path / "one.mp4", [(9, 9, 9)], frames=2)
    with pytest.raises(ArgumentError, match="model must be none for a film; got bert"):
        look(film, model="bert")


@pytest.fixture(scope="module")
def sentence() -> Look:
    return look("他说他今天不能来", query="他#2")


@pytest.mark.slow
def test_the_sentence(sentence: Look) -> None:
    assert sentence.axis.labels[2] == "他说"
    assert sentence.query == (3,)
    assert sentence.label == "repeated word"
    assert sentence.rows[0].keys[0].text == "他说"
    weights = sentence.layers[sentence.chosen.layer].weights[sentence.chosen.head]
    assert int(weights[3].argmax()) == 2
    summary = sentence.summary()
    (chosen,) = (
        head
        for head in summary["heads"]
        if (head["layer"], head["head"]) == (summary["chosen"]["layer"], summary["chosen"]["head"])
    )
    assert chosen["label"] == "repeated word"
    assert summary["model"]["weights_from"]["licence"].startswith("MIT")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "妈妈说爸爸去接妈妈了",
        "The cat saw the dog, and the dog saw the cat.",
        "我想去银行存钱，然后在河岸散步。银行关门了，我只好回家。",
    ],
)
def test_the_same_head_follows_repeats_in_every_text(text: str) -> None:
    seen = look(text)
    assert (seen.chosen.layer, seen.chosen.head) == (5, 5)
    assert seen.label == "repeated word"


@pytest.mark.slow
def test_the_character_inside_a_token() -> None:
    seen = look("他说他今天不能来", query="他#1")
    assert seen.query == (2,)
    assert "“他” lies inside the token “他说”" in seen.notes


@pytest.mark.slow
def test_the_checkerboard_of_two_speakers() -> None:
    path, turns = fetch_file(PACKAGED["sample.wav"]), fetch_file(PACKAGED["sample.rttm"])
    seen = look(path, query="12s")
    assert (seen.chosen.layer, seen.chosen.head) == (2, 1)
    assert seen.label == "similar sound"
    assert any("not a diariser" in note for note in seen.notes)
    same, other = _weights_by_speaker(seen, turns)
    assert same > 2.5 * other
    assert all("s" in key.text for key in seen.rows[0].keys)
    assert len(seen.rows[0].keys) == 8


def _weights_by_speaker(seen: Look, turns: Path) -> tuple[float, float]:
    """Return the mean weight on the same and on the other speaker, beyond a second."""
    middles = torch.tensor([(start + end) / 2 for start, end in seen.axis.spans])
    speaking: dict[str, torch.Tensor] = {}
    for line in turns.read_text().splitlines():
        parts = line.split()
        start, end = float(parts[3]), float(parts[3]) + float(parts[4])
        held = (middles >= start) & (middles < end)
        speaking[parts[7]] = speaking.get(parts[7], torch.zeros_like(held)) | held
    first, second = (mask.float() for mask in speaking.values())
    first, second = first * (1 - second), second * (1 - first)
    far = (middles[:, None] - middles).abs() > 1
    weights = seen.layers[seen.chosen.layer].weights[seen.chosen.head].to_dense()
    pairs = torch.outer(first, first) + torch.outer(second, second)
    same = pairs.bool() & far
    other = (torch.outer(first, second) + torch.outer(second, first)).bool() & far
    return float(weights[same].mean()), float(weights[other].mean())


@pytest.mark.slow
def test_the_cuts_of_the_film() -> None:
    seen = look(fetch_file(PACKAGED["bikes.mp4"]))
    cuts = [start for start, _ in seen.segments[1:]]
    assert cuts == pytest.approx([1.2, 3.04, 5.48, 7.48, 9.68], abs=0.08)
    assert seen.label == "same segment"
    assert [len(row.keys) for row in seen.rows] == [3] * 6


@pytest.mark.slow
def test_a_shot_of_the_film_that_returns(tmp_path: Path) -> None:
    film = Film.of_file(fetch_file(PACKAGED["bikes.mp4"]))
    frames = [frame.picture.numpy() for frame in film.frames()]
    edited = [*frames[140:180], *frames[0:30], *frames[190:240], *frames[140:180]]
    path = tmp_path / "edited.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.height, stream.width = edited[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for picture in edited:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode(None))
    seen = look(path)
    assert [start for start, _ in seen.segments] == pytest.approx([0, 1.6, 2.8, 4.8], abs=0.08)
    weights = seen.layers[0].weights[0].to_dense()
    back = weights[120:, :40].mean()
    assert back > 5 * weights[120:, 40:70].mean()
    assert back > 5 * weights[120:, 70:120].mean()


def test_a_model_without_softmax_attention() -> None:
    model = MambaModel(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=20))

    def run() -> None:
        with watch(model):
            model(torch.arange(4)[None])

    with pytest.raises(ModelError, match="got MambaModel, of which no attention was captured"):
        run()


@pytest.mark.bad_input
def test_attention_of_other_sizes_is_refused() -> None:
    model, encoded = SimpleNamespace(name="tiny"), SimpleNamespace(positions=4, valid=4)
    with pytest.raises(InputError, match="must attend from each of its 4 positions to each; got"):
        running._cropped(Seen(tuple), model, encoded)  # pyright: ignore[reportArgumentType]
