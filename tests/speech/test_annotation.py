import sys

import pytest

from heedmap.errors import ArgumentError, MissingExtraError
from heedmap.speech.annotation import from_annotation, to_annotation
from heedmap.speech.scoring import score_turns
from heedmap.speech.turns import Turn

TURNS = [Turn(0.0, 2.0, "a"), Turn(0.0, 2.0, "b"), Turn(1.0, 3.0, "a")]


def test_there_and_back() -> None:
    annotation = to_annotation(reversed(TURNS), "talk")
    assert annotation.uri == "talk"
    assert annotation.labels() == ["a", "b"]
    assert from_annotation(annotation) == TURNS
    assert from_annotation(to_annotation([])) == []


def test_labels_become_texts() -> None:
    annotation = to_annotation([Turn(0.0, 1.0, "a")]).rename_labels(mapping={"a": 7})
    assert from_annotation(annotation) == [Turn(0.0, 1.0, "7")]


def test_what_begins_before_the_recording_is_refused() -> None:
    from pyannote.core import Annotation, Segment

    annotation = Annotation()
    annotation[Segment(-1.0, 1.0)] = "a"
    with pytest.raises(ArgumentError, match="a turn must end after it begins, and begin at 0 s"):
        from_annotation(annotation)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyannote.core", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'heedmap\[speech\]'"):
        to_annotation(TURNS)
    with pytest.raises(MissingExtraError, match=r"pyannote\.metrics must be installed"):
        score_turns(TURNS, TURNS, [(0.0, 1.0)])
