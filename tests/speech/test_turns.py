import math
import random
from itertools import pairwise

import pytest

from heedmap.errors import ArgumentError
from heedmap.speech.turns import Turn, merged, speakers_of, spoken_spans, within, without_short


@pytest.mark.parametrize(
    ("start", "end"), [(1.0, 1.0), (2.0, 1.0), (-0.1, 1.0), (0.0, math.inf), (math.nan, 1.0)]
)
def test_a_stretch_that_is_none_is_refused(start: float, end: float) -> None:
    with pytest.raises(ArgumentError, match="a turn must end after it begins, and begin at 0 s"):
        Turn(start, end, "a")


def test_turns_sort_by_time() -> None:
    turns = [Turn(3.0, 4.0, "a"), Turn(1.0, 2.0, "b"), Turn(1.0, 1.5, "c")]
    assert [turn.speaker for turn in sorted(turns)] == ["c", "b", "a"]
    assert speakers_of(turns) == ("c", "b", "a")
    assert turns[0].duration_seconds == 1.0


def test_merging_closes_gaps_of_one_speaker_only() -> None:
    turns = [Turn(0.0, 1.0, "a"), Turn(1.2, 2.0, "b"), Turn(1.3, 2.5, "a"), Turn(4.0, 5.0, "a")]
    assert merged(turns, 0.5) == [Turn(0.0, 2.5, "a"), Turn(1.2, 2.0, "b"), Turn(4.0, 5.0, "a")]
    assert merged(turns) == turns


def test_a_turn_inside_another_of_its_speaker_does_not_shorten_it() -> None:
    assert merged([Turn(0.0, 5.0, "a"), Turn(1.0, 2.0, "a")]) == [Turn(0.0, 5.0, "a")]


def test_short_turns_go() -> None:
    assert without_short([Turn(2.0, 3.0, "a"), Turn(0.0, 0.5, "b")], 0.75) == [Turn(2.0, 3.0, "a")]


def test_nobody_speaks() -> None:
    assert merged([]) == without_short([], 1.0) == spoken_spans([]) == []
    assert speakers_of([]) == ()


def test_overlap_of_one_speaker_with_himself_is_none() -> None:
    assert spoken_spans([Turn(0.0, 2.0, "a"), Turn(1.0, 3.0, "a")], 2) == []


def test_a_change_of_speakers_does_not_cut_speech() -> None:
    turns = [Turn(0.0, 1.0, "a"), Turn(1.0, 2.0, "b"), Turn(3.0, 4.0, "a")]
    assert spoken_spans(turns) == [(0.0, 2.0), (3.0, 4.0)]


@pytest.mark.parametrize("seed", range(5))
def test_spans_agree_with_counting_every_tenth_of_a_second(seed: int) -> None:
    chance = random.Random(seed)
    turns = []
    for _ in range(30):
        start = chance.randrange(300)
        turns.append(
            Turn(float(start), float(start + chance.randrange(1, 40)), chance.choice("abc"))
        )
    for least in (1, 2, 3):
        spans = spoken_spans(turns, least)
        for moment in range(400):
            middle = moment + 0.5
            who = {t.speaker for t in turns if t.start_seconds < middle < t.end_seconds}
            assert any(start < middle < end for start, end in spans) == (len(who) >= least)
        assert all(end < start for (_, end), (start, _) in pairwise(spans))


def test_parts_within_stretches() -> None:
    turns = [Turn(5.0, 9.0, "b"), Turn(0.0, 10.0, "a"), Turn(2.0, 3.0, "c")]
    assert within(turns, [(1.0, 2.0), (6.0, 7.0), (20.0, 30.0)]) == [
        Turn(1.0, 2.0, "a"),
        Turn(6.0, 7.0, "a"),
        Turn(6.0, 7.0, "b"),
    ]
    assert within(turns, []) == []


def test_parts_within_everything_are_the_turns() -> None:
    turns = [Turn(0.0, 1.0, "a"), Turn(1.0, 2.0, "a")]
    assert within(turns, [(0.0, 2.0)]) == turns
