"""Times of words on maps of which the answer is known."""

from itertools import combinations, pairwise

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Axis, Causal
from heedmap.analysis import Word, word_times
from heedmap.analysis.word_times import _first_parts
from heedmap.errors import ArgumentError, DTypeError, ShapeError

FRAME_SECONDS = 0.02


def frames(count: int, start_seconds: float = 0.0) -> Axis:
    edges = [start_seconds + i * FRAME_SECONDS for i in range(count + 1)]
    return Axis.of_seconds(pairwise(edges))


def bands(spans: list[tuple[int, int]], keys: int, first_row: int = 0, queries: int = 0) -> Tensor:
    """Return rows that look at one span each, evenly, and a little at everything."""
    weights = torch.full((1, max(queries, first_row + len(spans)), keys), 0.1 / keys)
    for row, (start, end) in enumerate(spans, start=first_row):
        weights[0, row, start:end] += 0.9 / (end - start)
    return weights


def times(words: list[Word]) -> list[tuple[str, float, float]]:
    return [(word.text, word.start_seconds, word.end_seconds) for word in words]


def test_the_row_that_predicts_a_token_tells_its_time() -> None:
    # Rows 0 and 5 are those of control tokens; the row before a token's own is read.
    weights = bands([(0, 20), (20, 45), (45, 60), (60, 80), (80, 100)], keys=100, first_row=1)
    found = word_times(weights, [" Oh", ",", " he", "llo"], [2, 3, 4, 5, 6], frames(100))
    assert times(found) == [("Oh,", 0.0, 0.4), ("hello", 0.9, 1.6)]
    assert [word.positions for word in found] == [(2,), (4, 5)]
    assert all(word.share == pytest.approx(0.9, abs=0.1) for word in found)


def test_rows_between_are_left_out() -> None:
    weights = bands([(0, 50), (3, 4), (97, 99), (50, 80), (80, 100)], keys=100)
    found = word_times(weights, [" one", " two"], [1, 4, 5], frames(100))
    assert times(found) == [("one", 0.0, 1.0), ("two", 1.0, 1.6)]


def test_nothing_beyond_the_frames_is_used() -> None:
    weights = bands([(0, 30), (30, 60), (60, 70)], keys=70)
    longer = torch.cat([weights, torch.rand(1, 3, 30)], dim=2)
    arguments = ([" one", " two"], [1, 2, 3], frames(70, start_seconds=12.5))
    assert word_times(longer, *arguments) == word_times(weights, *arguments)
    assert times(word_times(weights, *arguments))[0] == ("one", 12.5, 13.1)


def test_no_word_begins_in_the_silence_before_speech_or_ends_in_that_after_it() -> None:
    weights = bands([(0, 60), (60, 95), (95, 100)], keys=100)
    sounding = torch.zeros(100, dtype=torch.bool)
    sounding[40:55] = sounding[70:90] = True
    arguments = ([" one", " two"], [1, 2, 3], frames(100))
    assert times(word_times(weights, *arguments))[0] == ("one", 0.0, 1.2)
    found = word_times(weights, *arguments, sounding=sounding)
    assert times(found)[0] == ("one", 0.8, 1.2)
    assert found[1].end_seconds <= 1.8
    assert word_times(weights, *arguments, sounding=torch.zeros(100, dtype=torch.bool)) == []


def test_heads_are_averaged_and_a_map_is_as_good_as_a_tensor() -> None:
    query, key = torch.randn(4, 9, 8), torch.randn(4, 90, 8)
    weights = AttentionMap.from_factors(query, key)
    arguments = ([f" {i}" for i in range(8)], list(range(1, 10)), frames(80))
    found = word_times(weights, *arguments)
    assert found == word_times(weights.to_dense(), *arguments)
    assert len(found) == 8
    assert found != word_times(weights[:1], *arguments)


def test_a_frame_that_every_row_looks_at_decides_nothing() -> None:
    weights = bands([(0, 30), (30, 60), (60, 70)], keys=70)
    sink = weights.clone()
    sink[:, :, 10] += 5.0
    arguments = ([" one", " two"], [1, 2, 3], frames(70))
    assert times(word_times(sink, *arguments)) == times(word_times(weights, *arguments))


def test_one_stray_frame_is_smoothed_away() -> None:
    weights = bands([(0, 30), (30, 60), (60, 70)], keys=70)
    weights[0, 1, 4:6] = 0.9
    found = word_times(weights, [" one", " two"], [1, 2, 3], frames(70))
    assert times(found) == [("one", 0.0, 0.6), ("two", 0.6, 1.2)]


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 11])
def test_more_tokens_than_frames(tokens: int) -> None:
    weights = torch.randn(2, tokens + 1, 4).softmax(-1)
    pieces = [f" {i}" for i in range(tokens)]
    found = word_times(weights, pieces, list(range(1, tokens + 2)), frames(4))
    assert [word.text for word in found] == [str(i) for i in range(tokens)]
    ends = [0.0, *(word.end_seconds for word in found)]
    assert all(
        word.start_seconds == before and word.end_seconds > word.start_seconds
        for word, before in zip(found, ends, strict=False)
    )
    assert ends[-1] < 0.08


def test_the_path_is_the_best_of_all() -> None:
    for seed in range(20):
        evidence = torch.randn(4, 9, generator=torch.Generator().manual_seed(seed))

        def total(starts: tuple[int, ...], evidence: Tensor = evidence) -> float:
            edges = [0, *starts, 9]
            return sum(float(evidence[i, edges[i] : edges[i + 1]].sum()) for i in range(4))

        best = max(combinations(range(1, 9), 3), key=total)
        assert _first_parts(evidence, 1) == [0, *best]


def test_no_text() -> None:
    assert word_times(torch.ones(1, 2, 5), [], [1], frames(5)) == []
    assert word_times(torch.ones(1, 2, 5), [" ..."], [1, 2], frames(5)) == []


def test_half_precision_and_hidden_frames() -> None:
    # What a mask hides has weight 0 in every row.
    weights = AttentionMap.from_factors(torch.randn(2, 40, 4), torch.randn(2, 40, 4), mask=Causal())
    assert word_times(weights.to_dense().half(), [" a"], [1, 2], frames(40))


WEIGHTS = torch.ones(2, 4, 50)
BAD = {
    "two dimensions": ((WEIGHTS[0], [" a"], [1, 2], frames(50)), {}, ShapeError, "weights must be"),
    "no heads": ((WEIGHTS[:0], [" a"], [1, 2], frames(50)), {}, ShapeError, "weights must be"),
    "integers": (
        (WEIGHTS.int(), [" a"], [1, 2], frames(50)),
        {},
        DTypeError,
        r"weights must be floating-point numbers; got torch\.int32",
    ),
    "no end": ((WEIGHTS, [" a"], [1], frames(50)), {}, ShapeError, "one for the end; got 1"),
    "no row before": ((WEIGHTS, [" a"], [0, 1], frames(50)), {}, ArgumentError, "from 1 to 4"),
    "no such row": ((WEIGHTS, [" a"], [1, 5], frames(50)), {}, ArgumentError, "from 1 to 4"),
    "not rising": (
        (WEIGHTS, [" a"], [2, 2], frames(50)),
        {},
        ArgumentError,
        "positions must rise and lie from 1 to 4",
    ),
    "too many frames": (
        (WEIGHTS, [" a"], [1, 2], frames(51)),
        {},
        ShapeError,
        "frames must be from 1 to 50 stretches of time, as the weights have keys",
    ),
    "no seconds": (
        (WEIGHTS, [" a"], [1, 2], Axis.of_positions(50)),
        {},
        ShapeError,
        "counted in positions",
    ),
    "other length": (
        (WEIGHTS, [" a"], [1, 2], frames(50)),
        {"sounding": torch.ones(49, dtype=torch.bool)},
        ShapeError,
        r"sounding must say so for each of 50 frames; got \[49\]",
    ),
    "not finite": ((WEIGHTS / 0, [" a"], [1, 2], frames(50)), {}, ArgumentError, "must be finite"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    arguments, more, error, message = BAD[case]
    with pytest.raises(error, match=message):
        word_times(*arguments, **more)
