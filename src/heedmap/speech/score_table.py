"""Scores in words, for the terminal."""

from heedmap.plot.labels import in_line
from heedmap.speech.scoring import DiarizationScore, Scores

HEADER = (
    "file",
    "found/true",
    "speech s",
    "missed s",
    "%",
    "false alarm s",
    "%",
    "confusion s",
    "%",
    "error %",
)


def report(scores: Scores) -> str:
    """Return what a person reads: a table for each collar, and the notes.

    ``found/true`` are numbers of speakers; each percentage is of the speech of the reference, and
    a dash where there is none.

    Example:
        >>> from heedmap.speech.scoring import score
        >>> from heedmap.speech.turns import Turn
        >>> true = {"talk": [Turn(0.0, 8.0, "Al"), Turn(8.0, 10.0, "Bo")]}
        >>> found = {"talk": [Turn(0.0, 10.0, "speaker 1")]}
        >>> print(report(score(true, found, collars_seconds=[0.0])).splitlines()[2])
        talk         1/2     10.00      0.00  0.0           0.00  0.0         2.00  20.0     20.0
    """
    parts = [
        "\n".join([_title(collar), *_table(scores, number)])
        for number, collar in enumerate(scores.collars_seconds)
    ]
    if len(scores.files) > 1:
        right = sum(file.found_speakers == file.speakers for file in scores.files)
        parts.append(f"the number of speakers is right in {right} of {len(scores.files)} files")
    if scores.notes:
        parts.append("\n".join(f"note: {note}" for note in scores.notes))
    return "\n\n".join(parts) + "\n"


def _title(collar_seconds: float) -> str:
    if collar_seconds == 0:
        return "collar 0 s; overlap is scored"
    return (
        f"collar {collar_seconds:g} s on each side of every start and end of a true turn "
        f"(pyannote: collar={2 * collar_seconds:g}); overlap is scored"
    )


def _table(scores: Scores, number: int) -> list[str]:
    rows: list[tuple[str, ...]] = [HEADER]
    for file in scores.files:
        counts = f"{file.found_speakers}/{file.speakers}"
        rows.append((in_line(file.file), counts, *_numbers(file.scores[number])))
    if len(scores.files) > 1:
        found = sum(file.found_speakers for file in scores.files)
        true = sum(file.speakers for file in scores.files)
        rows.append(("all files", f"{found}/{true}", *_numbers(scores.pooled[number])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def _numbers(score: DiarizationScore) -> list[str]:
    numbers = [f"{score.total_seconds:.2f}"]
    for seconds in (score.missed_seconds, score.false_alarm_seconds, score.confusion_seconds):
        numbers += [f"{seconds:.2f}", _percent(score, seconds)]
    return [*numbers, _percent(score, score.error_seconds)]


def _percent(score: DiarizationScore, seconds: float) -> str:
    rate = score.rate_of(seconds)
    return "–" if rate is None else f"{100 * rate:.1f}"
