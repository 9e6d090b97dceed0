"""How well the turns that were found agree with true ones: the diarisation error rate.

    error rate = (missed + false alarm + confusion) / speech of the reference

All are seconds of speakers: where two speak at once, each second counts twice. Found speakers are
given to true ones so that the time in which both speak is largest. Overlap is scored.

A collar is given here as what is left out on **each side** of every start and end of a true turn,
so that 0.25 leaves out half a second around it; pyannote.metrics, which does the counting, calls
that ``collar=0.5``. Turns of one speaker that overlap are one turn; those that only touch are two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedmap.errors import ArgumentError, InputError, MissingExtraError
from heedmap.speech.annotation import to_annotation
from heedmap.speech.files import shown
from heedmap.speech.pairing import Pair, Span, paired
from heedmap.speech.turns import Turn, merged, speakers_of, within

SCHEMA = 1
COLLARS_SECONDS = (0.0, 0.25)

MOST_TURNS = 10_000
MOST_SPEAKERS = 1_000
"""In one recording. Time grows with the square of the turns, memory with that of the speakers."""

LEAST_SECONDS = 1e-6
"""What pyannote.metrics takes for nothing."""

DECIMALS = 6
"""Of what is printed; sums of seconds have errors of rounding behind that."""


@dataclass(frozen=True)
class DiarizationScore:
    """The parts of the error, in seconds of speakers.

    Attributes:
        missed_seconds: True speech for which too few speakers were found.
        false_alarm_seconds: Found speech for which there are too few true speakers.
        confusion_seconds: Speech that was given to another speaker.
        total_seconds: Speech of the reference.
    """

    missed_seconds: float
    false_alarm_seconds: float
    confusion_seconds: float
    total_seconds: float

    @property
    def error_seconds(self) -> float:
        """All that is wrong."""
        return self.missed_seconds + self.false_alarm_seconds + self.confusion_seconds

    @property
    def error_rate(self) -> float | None:
        """The diarisation error rate; it can be above 1."""
        return self.rate_of(self.error_seconds)

    def rate_of(self, seconds: float) -> float | None:
        """Return seconds as a share of the speech of the reference; None where it has none."""
        return seconds / self.total_seconds if self.total_seconds > 0 else None

    def __add__(self, other: DiarizationScore) -> DiarizationScore:
        """Return the score of both recordings together."""
        return DiarizationScore(
            self.missed_seconds + other.missed_seconds,
            self.false_alarm_seconds + other.false_alarm_seconds,
            self.confusion_seconds + other.confusion_seconds,
            self.total_seconds + other.total_seconds,
        )

    def summary(self) -> dict[str, float | None]:
        """Return everything as plain values."""
        parts = {
            "error": self.error_seconds,
            "missed": self.missed_seconds,
            "false_alarm": self.false_alarm_seconds,
            "confusion": self.confusion_seconds,
        }
        rates = {f"{name}_rate": self.rate_of(seconds) for name, seconds in parts.items()}
        times = {f"{name}_seconds": seconds for name, seconds in parts.items()}
        return {
            name: None if value is None else round(value, DECIMALS)
            for name, value in (rates | times | {"total_seconds": self.total_seconds}).items()
        }


@dataclass(frozen=True)
class FileScore:
    """How well one recording was done.

    Attributes:
        file: Its name.
        scored_seconds: How much of it is scored, before collars are taken out.
        speakers: How many truly speak in what is scored.
        found_speakers: How many were found in what is scored.
        scores: One for each collar.
    """

    file: str
    scored_seconds: float
    speakers: int
    found_speakers: int
    scores: tuple[DiarizationScore, ...]


@dataclass(frozen=True)
class Scores:
    """How well a hypothesis agrees with a reference.

    Attributes:
        collars_seconds: What is left out on each side of every start and end of a true turn.
        files: A score for each recording, sorted by name.
        notes: Remarks for people.
    """

    collars_seconds: tuple[float, ...]
    files: tuple[FileScore, ...]
    notes: tuple[str, ...]

    @property
    def pooled(self) -> tuple[DiarizationScore, ...]:
        """The score of all recordings together, for each collar: seconds are added, not rates."""
        nothing = DiarizationScore(0.0, 0.0, 0.0, 0.0)
        return tuple(
            sum((file.scores[i] for file in self.files), nothing)
            for i in range(len(self.collars_seconds))
        )

    def summary(self) -> dict[str, Any]:
        """Return everything as plain values, as ``heedmap score --json`` prints it."""
        return {
            "schema": SCHEMA,
            "collar_seconds_on_each_side": list(self.collars_seconds),
            "overlap_scored": True,
            "files": [
                {
                    "file": file.file,
                    "scored_seconds": round(file.scored_seconds, DECIMALS),
                    "speakers": file.speakers,
                    "found_speakers": file.found_speakers,
                    "scores": self._by_collar(file.scores),
                }
                for file in self.files
            ],
            "pooled": {
                "scored_seconds": round(sum(f.scored_seconds for f in self.files), DECIMALS),
                "files_with_right_number_of_speakers": sum(
                    file.speakers == file.found_speakers for file in self.files
                ),
                "scores": self._by_collar(self.pooled),
            },
            "notes": list(self.notes),
        }

    def _by_collar(self, scores: tuple[DiarizationScore, ...]) -> list[dict[str, Any]]:
        return [
            {"collar_seconds": collar, **score.summary()}
            for collar, score in zip(self.collars_seconds, scores, strict=True)
        ]


def score(
    reference: Mapping[str, Iterable[Turn]],
    hypothesis: Mapping[str, Iterable[Turn]],
    *,
    uem: Mapping[str, Iterable[Span]] | None = None,
    collars_seconds: Sequence[float] = COLLARS_SECONDS,
) -> Scores:
    """Return how well the turns that were found agree with the true ones.

    Args:
        reference: The true turns of each recording, under its name.
        hypothesis: The turns that were found, under the same names.
        uem: Starts and ends, in seconds, of what is scored of each recording; those that are not
            in it are not scored. Without it, each recording of the reference is scored from the
            first to the last turn of either side.
        collars_seconds: What is left out on each side of every start and end of a true turn.

    Raises:
        ArgumentError: for a collar that is none.
        InputError: if there is nothing to compare, if the sides are about different recordings, or
            one of them has too many turns or speakers.
        MissingExtraError: if pyannote.metrics is not installed.

    Cost: grows with the square of the turns in a recording: an hour of talk (1,000) takes half a
    second at collar 0 and one second at another, ten hours two minutes.

    Example:
        >>> true = {"talk": [Turn(0.0, 8.0, "Al"), Turn(8.0, 10.0, "Bo")]}
        >>> found = {"talk": [Turn(0.0, 10.0, "speaker 1")]}
        >>> score(true, found).pooled[0].error_rate
        0.2
    """
    for collar in collars_seconds:
        if not 0 <= collar < math.inf:
            raise ArgumentError(f"collar must be 0 s or more; got {collar:g}.")
    pairs, notes = paired(reference, hypothesis, uem)
    for pair in pairs:
        _check_size("reference", pair.file, pair.reference)
        _check_size("hypothesis", pair.file, pair.hypothesis)
    files = tuple(_score_file(pair, tuple(collars_seconds)) for pair in pairs)
    return Scores(tuple(collars_seconds), files, tuple(notes))


def score_turns(
    reference: Iterable[Turn],
    hypothesis: Iterable[Turn],
    spans: Sequence[Span],
    collar_seconds: float = 0.0,
) -> DiarizationScore:
    """Return the score of one recording at one collar.

    Args:
        reference: The true turns.
        hypothesis: The turns that were found.
        spans: Starts and ends of what is scored, in seconds, in order, none overlapping.
        collar_seconds: What is left out on each side of every start and end of a true turn.

    Raises:
        MissingExtraError: if pyannote.metrics is not installed.
    """
    try:
        from pyannote.core import Segment, Timeline
        from pyannote.metrics.diarization import DiarizationErrorRate
    except ImportError:
        raise MissingExtraError("pyannote.metrics", "speech") from None

    parts = DiarizationErrorRate(collar=2 * collar_seconds).compute_components(
        to_annotation(_joined(reference)),
        to_annotation(_joined(hypothesis)),
        uem=Timeline([Segment(start, end) for start, end in spans]),
    )
    return DiarizationScore(
        missed_seconds=float(parts["missed detection"]),
        false_alarm_seconds=float(parts["false alarm"]),
        confusion_seconds=float(parts["confusion"]),
        total_seconds=float(parts["total"]),
    )


def _score_file(pair: Pair, collars_seconds: tuple[float, ...]) -> FileScore:
    return FileScore(
        file=pair.file,
        scored_seconds=math.fsum(end - start for start, end in pair.spans),
        speakers=_count(pair.reference, pair.spans),
        found_speakers=_count(pair.hypothesis, pair.spans),
        scores=tuple(
            score_turns(pair.reference, pair.hypothesis, pair.spans, collar)
            for collar in collars_seconds
        ),
    )


def _count(turns: Sequence[Turn], spans: Sequence[Span]) -> int:
    """Return how many speakers speak in stretches."""
    parts = within(turns, spans)
    return len(speakers_of(part for part in parts if part.duration_seconds > LEAST_SECONDS))


def _joined(turns: Iterable[Turn]) -> list[Turn]:
    return merged(turns, gap_seconds=-LEAST_SECONDS)


def _check_size(what: str, file: str, turns: Sequence[Turn]) -> None:
    if len(turns) > MOST_TURNS:
        raise InputError(
            f"{what} must have at most {MOST_TURNS} turns in a recording; got {len(turns)} in "
            f"“{shown(file)}”. Cut it into parts."
        )
    if len(speakers_of(turns)) > MOST_SPEAKERS:
        raise InputError(
            f"{what} must name at most {MOST_SPEAKERS} speakers in a recording; "
            f"got {len(speakers_of(turns))} in “{shown(file)}”."
        )
