"""The error rate, compared with cases done by hand and with counting every millisecond."""

import random
from itertools import permutations

import numpy as np
import pytest

from heedmap.errors import ArgumentError, InputError
from heedmap.speech import scoring
from heedmap.speech.score_table import report
from heedmap.speech.scoring import DiarizationScore, score, score_turns
from heedmap.speech.turns import Turn

Spans = list[tuple[float, float]]


def counted(
    reference: list[Turn], hypothesis: list[Turn], spans: Spans, collar_seconds: float
) -> DiarizationScore:
    """Return the score by what is active in each millisecond, all ways of naming tried."""
    size = 1 + max(round(1000 * end) for _, end in [*spans, *_ends(reference), *_ends(hypothesis)])
    scored = np.zeros(size, dtype=bool)
    for start, end in spans:
        scored[round(1000 * start) : round(1000 * end)] = True
    changes = np.diff(_active(reference, size), axis=1, prepend=0).any(0)
    collar = round(1000 * collar_seconds)
    for edge in np.flatnonzero(changes):
        scored[max(edge - collar, 0) : edge + collar] = False
    true, found = _active(reference, size)[:, scored], _active(hypothesis, size)[:, scored]
    true_count, found_count = true.sum(0), found.sum(0)
    count = max(len(true), len(found))
    common = np.zeros((count, count))
    common[: len(true), : len(found)] = true.astype(float) @ found.T.astype(float)
    right = max(common[range(count), list(names)].sum() for names in permutations(range(count)))
    return DiarizationScore(
        missed_seconds=np.maximum(true_count - found_count, 0).sum() / 1000,
        false_alarm_seconds=np.maximum(found_count - true_count, 0).sum() / 1000,
        confusion_seconds=(np.minimum(true_count, found_count).sum() - right) / 1000,
        total_seconds=true_count.sum() / 1000,
    )


def _ends(turns: list[Turn]) -> Spans:
    return [(turn.start_seconds, turn.end_seconds) for turn in turns]


def _active(turns: list[Turn], size: int) -> np.ndarray:
    names = sorted({turn.speaker for turn in turns})
    active = np.zeros((len(names), size), dtype=int)
    for turn in turns:
        begin, end = round(1000 * turn.start_seconds), round(1000 * turn.end_seconds)
        active[names.index(turn.speaker), begin:end] = 1
    return active


def talk(seed: int, speakers: str, turns: int) -> list[Turn]:
    chance = random.Random(seed)
    made = []
    for _ in range(turns):
        start = chance.randrange(30_000)
        end = start + chance.randrange(1, 4_000)
        made.append(Turn(start / 1000, end / 1000, chance.choice(speakers)))
    return made


def close(made: DiarizationScore, wanted: DiarizationScore) -> None:
    for name, value in vars(wanted).items():
        assert getattr(made, name) == pytest.approx(value, abs=1e-6), name


REFERENCE = [Turn(0.0, 10.0, "Al"), Turn(8.0, 20.0, "Bo")]


@pytest.mark.parametrize(
    ("found", "missed", "false_alarm", "confusion"),
    [
        ([Turn(0.0, 10.0, "1"), Turn(8.0, 20.0, "2")], 0.0, 0.0, 0.0),
        ([Turn(0.0, 10.0, "Bo"), Turn(8.0, 20.0, "Al")], 0.0, 0.0, 0.0),
        ([], 22.0, 0.0, 0.0),
        # One speaker is Bo, who speaks longer; Al alone is confused, one of two is missed.
        ([Turn(0.0, 20.0, "1")], 2.0, 0.0, 8.0),
        ([Turn(0.0, 8.0, "1"), Turn(8.0, 20.0, "2")], 2.0, 0.0, 0.0),
        ([Turn(0.0, 10.0, "1"), Turn(8.0, 23.0, "2")], 0.0, 3.0, 0.0),
        ([Turn(0.0, 10.0, "1"), Turn(8.0, 20.0, "2"), Turn(0.0, 5.0, "3")], 0.0, 5.0, 0.0),
        # A third name for the last six seconds of Bo.
        ([Turn(0.0, 10.0, "1"), Turn(8.0, 14.0, "2"), Turn(14.0, 20.0, "3")], 0.0, 0.0, 6.0),
    ],
)
def test_cases_done_by_hand(
    found: list[Turn], missed: float, false_alarm: float, confusion: float
) -> None:
    wanted = DiarizationScore(missed, false_alarm, confusion, 22.0)
    close(score_turns(REFERENCE, found, [(0.0, 30.0)]), wanted)
    close(counted(REFERENCE, found, [(0.0, 30.0)], 0.0), wanted)
    assert wanted.error_rate == pytest.approx((missed + false_alarm + confusion) / 22)


def test_a_collar_is_what_is_left_out_on_each_side() -> None:
    # Of 4 s, half a second is left out: 0.25 behind the start and 0.25 before the end.
    true = [Turn(2.0, 6.0, "Al")]
    close(score_turns(true, [], [(0.0, 10.0)], 0.25), DiarizationScore(3.5, 0.0, 0.0, 3.5))
    late = [Turn(2.3, 6.2, "1")]
    close(score_turns(true, late, [(0.0, 10.0)], 0.25), DiarizationScore(0.05, 0.0, 0.0, 3.5))
    close(score_turns(true, late, [(0.0, 10.0)], 0.0), DiarizationScore(0.3, 0.2, 0.0, 4.0))


def test_the_edges_of_what_was_found_have_no_collar() -> None:
    found = [Turn(2.0, 6.0, "1"), Turn(8.0, 8.4, "1")]
    made = score_turns([Turn(2.0, 6.0, "Al")], found, [(0.0, 10.0)], 0.25)
    close(made, DiarizationScore(0.0, 0.4, 0.0, 3.5))


@pytest.mark.parametrize("collar_seconds", [0.0, 0.25, 0.1])
@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_counting_every_millisecond(seed: int, collar_seconds: float) -> None:
    true = talk(seed, "abc"[: 1 + seed % 3], 12)
    found = talk(seed + 100, "wxyz"[: 1 + seed % 4], 14)
    spans: Spans = [(0.5, 12.0), (13.25, 27.0)]
    made = score_turns(true, found, spans, collar_seconds)
    close(made, counted(true, found, spans, collar_seconds))


def test_overlapping_turns_of_one_speaker_are_one() -> None:
    twice = [Turn(0.0, 6.0, "Al"), Turn(4.0, 10.0, "Al"), Turn(1.0, 2.0, "Al")]
    made = score_turns(twice, [Turn(0.0, 10.0, "1"), Turn(3.0, 5.0, "1")], [(0.0, 10.0)])
    close(made, DiarizationScore(0.0, 0.0, 0.0, 10.0))


def test_turns_of_one_speaker_that_touch_are_two() -> None:
    made = score_turns([Turn(0.0, 5.0, "a"), Turn(5.0, 10.0, "a")], [], [(0.0, 10.0)], 0.25)
    assert made.total_seconds == pytest.approx(9.0)


def test_pooling_adds_seconds_and_not_rates() -> None:
    true = {"long": [Turn(0.0, 90.0, "a")], "short": [Turn(0.0, 10.0, "b")]}
    found = {"long": [Turn(0.0, 90.0, "a")], "short": [Turn(0.0, 5.0, "b")]}
    made = score(true, found)
    assert made.pooled[0].error_rate == pytest.approx(0.05)
    assert [file.scores[0].error_rate for file in made.files] == pytest.approx([0.0, 0.5])
    assert [file.file for file in made.files] == ["long", "short"]


def test_speakers_are_counted_in_what_is_scored() -> None:
    true = {"t": [Turn(0.0, 10.0, "a"), Turn(20.0, 30.0, "b")]}
    found = {"t": [Turn(0.0, 9.0, "1"), Turn(9.0, 10.0, "2"), Turn(10.0, 11.0, "3")]}
    made = score(true, found, uem={"t": [(0.0, 10.0)]})
    assert (made.files[0].speakers, made.files[0].found_speakers) == (1, 2)
    assert made.files[0].scored_seconds == 10.0


def test_without_a_uem_both_sides_say_what_is_scored() -> None:
    made = score({"t": [Turn(2.0, 4.0, "a")]}, {"t": [Turn(1.0, 9.0, "1")]}, collars_seconds=[0.0])
    close(made.pooled[0], DiarizationScore(0.0, 6.0, 0.0, 2.0))
    assert made.files[0].scored_seconds == 8.0
    assert made.notes == (
        "without a UEM, a file is scored from the first to the last turn of either",
    )


def test_what_the_hypothesis_lacks_is_missed_and_said() -> None:
    true = {name: [Turn(0.0, 1.0, "x")] for name in "abcde"}
    made = score(true, {"a": [Turn(0.0, 1.0, "1")], "z": [Turn(0.0, 1.0, "1")]})
    assert made.pooled[0].error_rate == pytest.approx(0.8)
    assert "the hypothesis has nothing, and misses all, in “b”, “c”, “d” and 1 more" in made.notes
    assert "not scored, because the reference or the UEM does not name it: “z”" in made.notes


def test_an_empty_hypothesis_misses_all() -> None:
    made = score({"a": [Turn(0.0, 1.0, "x")]}, {})
    close(made.pooled[0], DiarizationScore(1.0, 0.0, 0.0, 1.0))
    assert made.files[0].found_speakers == 0


def test_a_file_without_true_speech_has_no_rate_but_counts() -> None:
    true = {"a": [Turn(0.0, 4.0, "x")], "silent": []}
    found = {"a": [Turn(0.0, 4.0, "x")], "silent": [Turn(0.0, 1.0, "1")]}
    made = score(true, found, uem={"a": [(0.0, 5.0)], "silent": [(0.0, 5.0)]})
    assert made.files[1].scores[0].error_rate is None
    assert made.pooled[0].error_rate == pytest.approx(0.25)
    assert made.summary()["files"][1]["scores"][0]["error_rate"] is None
    assert "–" in report(made)
    assert "the reference has no speech in “silent”" in made.notes


def test_a_collar_that_leaves_nothing_gives_no_rate() -> None:
    made = score({"a": [Turn(0.0, 0.4, "x")]}, {"a": [Turn(0.0, 0.4, "x")]})
    assert [pooled.error_rate for pooled in made.pooled] == [0.0, None]


def test_only_the_files_of_the_uem_are_scored() -> None:
    true = {"a": [Turn(0.0, 1.0, "x")], "b": [Turn(0.0, 1.0, "x")]}
    made = score(true, true, uem={"b": [(0.5, 2.0), (0.0, 0.75)]})
    assert [file.file for file in made.files] == ["b"]
    assert made.files[0].scored_seconds == 2.0
    assert made.notes == ("not scored, because the reference or the UEM does not name it: “a”",)


def test_names_that_look_alike_are_the_same() -> None:
    composed, apart = "tr\u00f100", "trn\u030300"
    made = score({composed: [Turn(0.0, 1.0, "x")]}, {apart: [Turn(0.0, 1.0, "1")]})
    assert made.pooled[0].error_rate == 0.0


@pytest.mark.parametrize(
    ("true", "found", "said"),
    [
        ("trn00", "trñ00", "“trñ00” and “trn00” differ in accents, case or ending. If it is"),
        ("talk", "takes/Talk.wav", "“takes/Talk.wav” and “talk” differ in accents, case or ending"),
        (
            "talk",
            "other",
            "got “other” where the reference has “talk”. If it is the same recording",
        ),
    ],
)
def test_another_recording_is_refused(true: str, found: str, said: str) -> None:
    turns = [Turn(0.0, 1.0, "x")]
    with pytest.raises(InputError, match="hypothesis must be about the recordings of the") as error:
        score({true: turns}, {found: turns})
    assert said in str(error.value)
    with pytest.raises(InputError, match="uem must be about the recordings of the reference"):
        score({true: turns}, {true: turns}, uem={found: [(0.0, 1.0)]})


def test_one_name_written_differently_among_others_is_refused() -> None:
    turns = [Turn(0.0, 1.0, "x")]
    with pytest.raises(InputError, match="got “trñ00” where the reference has “trn00”"):
        score({"trn00": turns, "trn01": turns}, {"trñ00": turns, "trn01": turns})


def test_what_cannot_be_scored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = {"t": [Turn(0.0, 1.0, "x"), Turn(1.0, 2.0, "y")]}
    with pytest.raises(InputError, match="reference must hold turns; got none"):
        score({}, turns)
    with pytest.raises(InputError, match="reference must hold turns; got none"):
        score({"t": []}, turns)
    with pytest.raises(InputError, match="uem must cover speech of the reference; got stretches"):
        score(turns, turns, uem={"t": [(2.0, 5.0)]})
    for collar in (-0.25, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="collar must be 0 s or more; got"):
            score(turns, turns, collars_seconds=[collar])
    monkeypatch.setattr(scoring, "MOST_SPEAKERS", 1)
    with pytest.raises(InputError, match="reference must name at most 1 speakers in a recording"):
        score(turns, turns)
    monkeypatch.setattr(scoring, "MOST_TURNS", 1)
    with pytest.raises(InputError, match="reference must have at most 1 turns in a recording; got"):
        score(turns, turns)


def test_the_summary_has_all_in_plain_values() -> None:
    true = {"t": [Turn(0.0, 8.0, "a"), Turn(8.0, 10.0, "b")]}
    made = score(true, {"t": [Turn(0.0, 10.0, "1")]}, uem={"t": [(0.0, 20.0)]})
    summary = made.summary()
    assert summary["schema"] == 1
    assert summary["collar_seconds_on_each_side"] == [0.0, 0.25]
    assert summary["files"][0]["found_speakers"] == 1
    assert summary["files"][0]["scores"][0] == {
        "collar_seconds": 0.0,
        "error_rate": 0.2,
        "missed_rate": 0.0,
        "false_alarm_rate": 0.0,
        "confusion_rate": 0.2,
        "error_seconds": 2.0,
        "missed_seconds": 0.0,
        "false_alarm_seconds": 0.0,
        "confusion_seconds": 2.0,
        "total_seconds": 10.0,
    }
    assert summary["pooled"]["scores"] == summary["files"][0]["scores"]
    assert summary["pooled"]["files_with_right_number_of_speakers"] == 0


def test_the_table_lines_up_and_says_the_convention() -> None:
    true = {"t": [Turn(0.0, 8.0, "a")], "a longer\nname": [Turn(0.0, 1234.5, "b")]}
    text = report(score(true, true))
    assert (
        "collar 0.25 s on each side of every start and end of a true turn (pyannote: collar=0.5"
        in text
    )
    first = text.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in first[1:]] == ["file", "a", "t", "all"]
    assert len({len(line) for line in first[1:]}) == 1
    assert "the number of speakers is right in 2 of 2 files" in text
