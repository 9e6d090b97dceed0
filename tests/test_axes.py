"""Questions in people's words find the positions that they mean."""

import pytest
import torch

from heedmap import Axis, Sequence
from heedmap.errors import InputError, ShapeError

TEXT = "他说他今天不能来"
TOKENS = Axis.of_tokens(
    TEXT,
    ["<s>", "▁", "他说", "他", "今天", "不能", "来", "</s>"],
    [(0, 0), (0, 0), (0, 2), (2, 3), (3, 5), (5, 7), (7, 8), (8, 8)],
)
SOUND = Axis.of_seconds([(0.0, 0.5), (0.5, 1.0), (1.0, 90.0)])
FILM = Axis.of_frames([(0.0, 0.04), (0.05, 0.08)], [(0, 2), (2, 3)])


@pytest.mark.parametrize(
    ("axis", "question", "positions"),
    [
        (TOKENS, "他#2", (3,)),
        (TOKENS, "他", (2,)),
        (TOKENS, "他说", (2,)),
        (TOKENS, "今天不能", (4, 5)),
        (TOKENS, "@0", (0,)),
        (TOKENS, "来", (6,)),
        (SOUND, "0.5s", (1,)),
        (SOUND, "0.49", (0,)),
        (SOUND, "1:02.5", (2,)),
        (SOUND, "0:01:02", (2,)),
        (SOUND, "90s", (2,)),
        (FILM, "f2", (1,)),
        (FILM, "0.06s", (1,)),
        (FILM, "@1", (1,)),
    ],
)
def test_found(axis: Axis, question: str, positions: tuple[int, ...]) -> None:
    assert axis.locate(question).positions == positions


def test_remarks() -> None:
    assert TOKENS.locate("他#1").note == "“他” lies inside the token “他说”"
    assert "first of 2" in TOKENS.locate("他").note
    assert TOKENS.locate("今天").note == ""
    assert "nearest" in FILM.locate("0.045s").note


def test_pieces_with_marks_of_their_own() -> None:
    axis = Axis.of_tokens("C# a.b C#", ["C#", "a.b", "C#"], [(0, 2), (3, 6), (7, 9)])
    assert axis.locate("C#").positions == (0,)
    assert axis.locate("C##2").positions == (2,)
    assert axis.locate("a.b").positions == (1,)


@pytest.mark.parametrize(
    ("axis", "question", "words"),
    [
        (TOKENS, "我", "not in it"),
        (TOKENS, "他#3", "query must be #1 to #2 of “他”; got #3"),
        (TOKENS, "他#0", "#1 to #2"),
        (TOKENS, "", "piece of the text"),
        (TOKENS, "@8", "query must be a position from @0 to @7; got @8"),
        (SOUND, "91s", "0.00s to 90.00s"),
        (SOUND, "later", "12.5s"),
        (SOUND, "f3", "moment"),
        (FILM, "f3", "f0 to f2"),
        (Axis.of_positions(3), "x", "query must be a position such as @7; got “x”"),
    ],
)
def test_not_found(axis: Axis, question: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        axis.locate(question)
    assert "\n" not in str(caught.value)


def test_take_keeps_the_meaning() -> None:
    taken = FILM.take([1])
    assert (taken.labels, taken.spans, taken.frames) == (("0.05s",), ((0.05, 0.08),), ((2, 3),))
    assert TOKENS.take([3, 2]).labels == ("他", "他说")
    assert (TOKENS.unit, SOUND.unit, FILM.unit) == ("character", "second", "second")
    assert Axis.of_positions(2).unit == "position"


@pytest.mark.bad_input
def test_sizes_must_agree() -> None:
    with pytest.raises(ShapeError, match="one entry for each"):
        Axis.of_tokens("ab", ["a", "b"], [(0, 1)])
    with pytest.raises(ShapeError, match="one row for each of 3"):
        Sequence(torch.zeros(2, 4), Axis.of_positions(3))


def test_a_moment_may_end_after_the_last_one_began():
    axis = Axis("audio", ("long", "short"), ((0.0, 9.0), (2.0, 3.0)))
    assert axis.locate("8.5s").positions == (0,)
    with pytest.raises(InputError, match=r"query must be a time from 0\.00s to 9\.00s; got 9\.5"):
        axis.locate("9.5s")
