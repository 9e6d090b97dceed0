import sys
from io import StringIO

import pytest
import webvtt

from heedmap.analysis.word_times import Word
from heedmap.errors import MissingExtraError
from heedmap.speech.captions import as_vtt, words_by_speaker
from heedmap.speech.turns import Turn

TURNS = [Turn(0.0, 4.0, "speaker 1"), Turn(3.0, 6.0, "speaker 2"), Turn(10.0, 12.0, "speaker 1")]


def word(text: str, start: float, end: float) -> Word:
    return Word(text, start, end, 1.0, (0,))


def captions(text: str) -> list[tuple[str, str, str]]:
    read = webvtt.WebVTT.from_buffer(StringIO(text), strict=True)
    return [(caption.start, caption.end, caption.raw_text) for caption in read]


def speakers(words: list[Word], turns: list[Turn]) -> list[str | None]:
    return [said.speaker for said in words_by_speaker(words, turns) for _ in said.words]


def test_a_caption_for_each_turn() -> None:
    assert captions(as_vtt(TURNS)) == [
        ("00:00:00.000", "00:00:04.000", "<v speaker 1>speaker 1</v>"),
        ("00:00:03.000", "00:00:06.000", "<v speaker 2>speaker 2</v>"),
        ("00:00:10.000", "00:00:12.000", "<v speaker 1>speaker 1</v>"),
    ]


def test_nobody_speaks() -> None:
    assert as_vtt([]).strip() == as_vtt([], []).strip() == "WEBVTT"
    assert words_by_speaker([], TURNS) == []


def test_times_of_hours_and_of_less_than_a_millisecond() -> None:
    made = captions(as_vtt([Turn(36_000.0001, 36_000.0002, "a")]))
    assert made == [("10:00:00.000", "10:00:00.001", "<v a>a</v>")]


def test_words_in_the_voice_of_who_says_them() -> None:
    words = [word("Hello", 0.5, 1.0), word("you.", 1.1, 2.0), word("Hi!", 4.5, 5.0)]
    assert captions(as_vtt(TURNS, words)) == [
        ("00:00:00.500", "00:00:02.000", "<v speaker 1>Hello you.</v>"),
        ("00:00:04.500", "00:00:05.000", "<v speaker 2>Hi!</v>"),
    ]


def test_a_word_goes_where_most_of_it_lies() -> None:
    turns = [Turn(0.0, 1.0, "a"), Turn(1.0, 2.0, "b")]
    assert speakers([word("x", 0.5, 1.2)], turns) == ["a"]
    assert speakers([word("x", 0.8, 1.5)], turns) == ["b"]


def test_where_two_speak_the_word_stays_with_who_spoke() -> None:
    turns = [Turn(0.0, 5.0, "a"), Turn(1.0, 9.0, "b")]
    middle = word("x", 2.0, 2.5)
    assert speakers([middle], turns) == ["a"]
    assert speakers([word("w", 6.0, 6.5), middle], turns) == ["b", "b"]
    assert speakers([word("w", 0.2, 0.4), middle, word("y", 7.0, 7.5)], turns) == ["a", "a", "b"]


def test_a_word_outside_all_turns_goes_to_the_nearest_or_to_nobody() -> None:
    turns = [Turn(1.0, 2.0, "a"), Turn(3.0, 4.0, "b")]
    words = [word("a", 0.0, 0.6), word("b", 2.7, 2.8), word("c", 4.5, 4.9), word("d", 4.6, 5.0)]
    assert speakers(words, turns) == ["a", "b", "b", None]
    assert captions(as_vtt([], words[:1])) == [("00:00:00.000", "00:00:00.600", "a")]


def test_a_word_without_length_lies_in_its_turn() -> None:
    assert speakers([word("x", 3.5, 3.5)], [Turn(0.0, 3.4, "a"), Turn(3.2, 9.0, "b")]) == ["b"]


def test_captions_are_cut_at_pauses_and_where_they_are_full() -> None:
    turn = [Turn(0.0, 100.0, "a")]
    paused = [word("one", 0.0, 0.5), word("two", 1.5, 2.0), word("three", 3.1, 3.5)]
    assert [text for _, _, text in captions(as_vtt(turn, paused))] == [
        "<v a>one two</v>",
        "<v a>three</v>",
    ]
    long = [word("x" * 20, i / 10, i / 10 + 0.1) for i in range(9)]
    assert [len(text.split()) - 1 for _, _, text in captions(as_vtt(turn, long))] == [4, 4, 1]
    slow = [word("x", float(i), i + 0.9) for i in range(10)]
    assert [len(text.split()) - 1 for _, _, text in captions(as_vtt(turn, slow))] == [7, 3]


def test_nothing_in_a_text_is_taken_for_a_tag_or_a_new_caption() -> None:
    name, said = "<b> & -->\nNOTE", "a<c>\n\n00:01 --> 00:02 &"
    (caption,) = captions(as_vtt([Turn(0.0, 2.0, name)], [word(said, 0.0, 1.0)]))
    assert caption[2] == ("<v &lt;b&gt; &amp; --&gt; NOTE>a&lt;c&gt; 00:01 --&gt; 00:02 &amp;</v>")


def test_many_words_and_turns_take_no_long_time() -> None:
    turns = [Turn(i * 1.0, i + 0.9, f"s{i % 3}") for i in range(10_000)]
    words = [word("x", i * 0.5, i * 0.5 + 0.4) for i in range(20_000)]
    assert len(words_by_speaker(words, turns)) == 10_000


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "webvtt", None)
    with pytest.raises(MissingExtraError, match="webvtt-py must be installed"):
        as_vtt([])
