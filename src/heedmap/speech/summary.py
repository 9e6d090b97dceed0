"""What was heard as plain values, as ``speakers.json`` has it.

The file has, under these names:

- ``schema``: 1. A later version of heedmap that changes the meaning of a name counts it up.
- ``input``: ``name``, ``kind`` (``"audio"``) and ``duration_seconds`` of the recording.
- ``speakers``: in the order of first appearance, each with ``name``, ``seconds`` (how long it
  speaks, overlap included) and ``turns`` (how many).
- ``turns``: in the order of time, each with ``number`` (from 1), ``start_seconds``,
  ``end_seconds``, ``speaker``; ``margin`` (how much more alike it is to its speaker than to the
  next, a difference of cosines; null where there is one speaker); ``own_weight`` (how much it
  looked at itself); ``earlier`` and ``later``, the turns that it looked at most: the ``turn``'s
  number, and its ``weight``.
- ``kinds``: for ``background``, ``speech``, ``music`` and ``overlap`` the stretches in which they
  are heard, each ``[start, end]`` in seconds.
- ``words``: null, or in the order of time ``text``, ``start_seconds``, ``end_seconds``, ``share``
  (see `heedmap.analysis.word_times.Word`) and ``speaker`` (null where nobody was found to speak).
- ``models``: ``package``, ``licence`` and ``origin`` of the weights that were used.
- ``notes``: remarks for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heedmap.look.running import origin_of
from heedmap.models.packages import PACKAGED
from heedmap.speech.captions import words_by_speaker
from heedmap.speech.evidence import Look
from heedmap.speech.kinds import KIND_NAMES
from heedmap.speech.turns import Turn

if TYPE_CHECKING:
    from heedmap.speech.hearing import Heard

SCHEMA = 1
MODELS = ("segmentation-3.0", "cam++", "sound-kinds")


def summary_of(heard: Heard) -> dict[str, Any]:
    """Return what was heard as plain values."""
    numbers = {turn: number for number, turn in enumerate(heard.turns, start=1)}
    models = MODELS if heard.words is None else (*MODELS, "whisper-tiny-en")
    return {
        "schema": SCHEMA,
        "input": {
            "name": heard.name,
            "kind": "audio",
            "duration_seconds": _seconds(heard.duration_seconds),
        },
        "speakers": [
            {
                "name": speaker,
                "seconds": _seconds(seconds_of(speaker, heard.turns)),
                "turns": sum(turn.speaker == speaker for turn in heard.turns),
            }
            for speaker in heard.speakers
        ],
        "turns": [
            {
                "number": number,
                "start_seconds": _seconds(found.turn.start_seconds),
                "end_seconds": _seconds(found.turn.end_seconds),
                "speaker": found.turn.speaker,
                "margin": None if found.margin is None else round(found.margin, 4),
                "own_weight": round(found.own_weight, 4),
                "earlier": _looks(found.earlier, numbers),
                "later": _looks(found.later, numbers),
            }
            for number, found in enumerate(heard.evidence, start=1)
        ],
        "kinds": {
            kind: [[_seconds(start), _seconds(end)] for start, end in heard.spans(kind)]
            for kind in KIND_NAMES
        },
        "words": _words(heard),
        "models": [origin_of(PACKAGED[name]) for name in models],
        "notes": list(heard.notes),
    }


def seconds_of(speaker: str, turns: Sequence[Turn]) -> float:
    """Return how long a speaker speaks in all.

    >>> seconds_of("a", [Turn(0.0, 1.0, "a"), Turn(0.5, 2.0, "b"), Turn(3.0, 3.5, "a")])
    1.5
    """
    return sum(turn.duration_seconds for turn in turns if turn.speaker == speaker)


def _looks(looks: Sequence[Look], numbers: dict[Turn, int]) -> list[dict[str, Any]]:
    return [{"turn": numbers[look.turn], "weight": round(look.weight, 4)} for look in looks]


def _words(heard: Heard) -> list[dict[str, Any]] | None:
    if heard.words is None:
        return None
    return [
        {
            "text": word.text,
            "start_seconds": _seconds(word.start_seconds),
            "end_seconds": _seconds(word.end_seconds),
            "share": round(word.share, 5),
            "speaker": said.speaker,
        }
        for said in words_by_speaker(heard.words, heard.turns)
        for word in said.words
    ]


def _seconds(seconds: float) -> float:
    return round(seconds, 3)
