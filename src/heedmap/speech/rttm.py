"""RTTM, in which tools for diarisation exchange turns, and UEM, which says what is to be scored.

A line of RTTM has the fields ``SPEAKER file channel start duration <NA> <NA> speaker <NA> <NA>``,
one of UEM ``file channel start end``; times are in seconds. Channels are not told apart. Names are
compared as people see them: they come in Unicode's composed form (NFC), because a file system or an
editor may have taken an ``ñ`` apart.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from unicodedata import normalize

from heedmap.errors import ArgumentError, InputError
from heedmap.speech.files import lines_of, place_of, shown, write_at_once
from heedmap.speech.turns import Turn, spoken_spans

TYPES = re.compile(
    "SPEAKER|SEGMENT|NOSCORE|NO_RT_METADATA|LEXEME|NON-LEX|NON-SPEECH|FILLER|EDIT|SU|IP|CB|A/P|"
    "SPKR-INFO"
)
"""All that the format has; only SPEAKER says who speaks when."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
BLANKS = re.compile(r"[ \t]+")
UNWRITABLE = re.compile(r"[\s\x00-\x1f\x7f]+")

MOST_SECONDS = 10_000_000
"""A third of a year: a larger number is no time in a recording."""

DECIMALS = 6
"""Times are read to a microsecond, so that a start and a duration give the same end everywhere."""

Spans = list[tuple[float, float]]
"""Starts and ends in seconds."""


def read_rttm(path: str | os.PathLike[str]) -> dict[str, list[Turn]]:
    """Return the turns of each recording that an RTTM file speaks of, in order.

    Lines of other types than SPEAKER, comments, empty lines, and turns that last 0 s are passed
    over. Eight fields are enough, since nothing is read from those after the speaker.

    Args:
        path: The file, in UTF-8.

    Returns:
        A list of turns under the name of each recording; nothing for an empty file.

    Raises:
        InputError: for a file that cannot be read, and for a line that is not as it must be: the
            message has its number.

    Cost: time and memory grow with the file, of which at most 64 MiB are read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_rttm(folder + "/talk.rttm", {"talk": [Turn(0.5, 2.0, "speaker 1")]})
        ...     read_rttm(path)
        {'talk': [Turn(start_seconds=0.5, end_seconds=2.0, speaker='speaker_1')]}
    """
    turns: dict[str, list[Turn]] = {}
    for number, line in lines_of(path):
        fields = BLANKS.split(line)
        kind = fields[0].upper()
        if not TYPES.fullmatch(kind):
            raise InputError(
                f"{place_of(path, number)} must begin with a type of RTTM, such as SPEAKER; "
                f"got “{shown(line)}”."
            )
        if kind != "SPEAKER":
            continue
        if not 8 <= len(fields) <= 10:
            raise InputError(
                f"{place_of(path, number)} must have the 10 fields of RTTM; got {len(fields)}: "
                f"“{shown(line)}”. Names have no blanks in it."
            )
        start_seconds, duration_seconds = _seconds(path, number, fields[3:5])
        if duration_seconds < 0:
            raise InputError(
                f"{place_of(path, number)} must have a duration of 0 s or more; "
                f"got {shown(fields[4])}. The field after the start is no end."
            )
        found = turns.setdefault(normalize("NFC", fields[1]), [])
        if duration_seconds > 0:
            end_seconds = round(start_seconds + duration_seconds, DECIMALS)
            found.append(Turn(start_seconds, end_seconds, normalize("NFC", fields[7])))
    return {file: sorted(found) for file, found in turns.items()}


def read_uem(path: str | os.PathLike[str]) -> dict[str, Spans]:
    """Return the stretches of each recording that a UEM file wants to be scored.

    Args:
        path: The file, in UTF-8.

    Returns:
        Starts and ends in seconds, in order, none touching, under the name of each recording.

    Raises:
        InputError: for a file that cannot be read or names no stretch, and for a line that is not
            as it must be: the message has its number.
    """
    spans: dict[str, list[Turn]] = {}
    for number, line in lines_of(path):
        fields = BLANKS.split(line)
        if len(fields) != 4:
            raise InputError(
                f"{place_of(path, number)} must have the 4 fields of UEM: file, channel, start and "
                f"end; got {len(fields)}: “{shown(line)}”."
            )
        start_seconds, end_seconds = _seconds(path, number, fields[2:])
        if end_seconds <= start_seconds:
            raise InputError(
                f"{place_of(path, number)} must end after it begins; "
                f"got {shown(fields[2])} to {shown(fields[3])}."
            )
        spans.setdefault(normalize("NFC", fields[0]), []).append(
            Turn(start_seconds, end_seconds, "")
        )
    if not spans:
        raise InputError(f"uem must name what is scored; got {path}, in which there is nothing.")
    return {file: spoken_spans(found) for file, found in spans.items()}


def as_rttm(turns: Mapping[str, Iterable[Turn]]) -> str:
    """Return RTTM, with times to a millisecond and with ``_`` for the blanks in names.

    Args:
        turns: Those of each recording, under its name.

    Raises:
        ArgumentError: if two names would become one.

    Example:
        >>> as_rttm({"my talk": [Turn(0.5, 2.0, "speaker 1")]})
        'SPEAKER my_talk 1 0.500 1.500 <NA> <NA> speaker_1 <NA> <NA>\\n'
    """
    lines = []
    files = _fields(turns)
    for file, own in turns.items():
        ordered = sorted(own)
        speakers = _fields(dict.fromkeys(turn.speaker for turn in ordered))
        for turn in ordered:
            start, end = round(1000 * turn.start_seconds), round(1000 * turn.end_seconds)
            lines.append(
                f"SPEAKER {files[file]} 1 {start / 1000:.3f} {max(end - start, 1) / 1000:.3f} "
                f"<NA> <NA> {speakers[turn.speaker]} <NA> <NA>\n"
            )
    return "".join(lines)


def write_rttm(path: str | os.PathLike[str], turns: Mapping[str, Iterable[Turn]]) -> Path:
    """Return the path of the RTTM file that now holds the turns, over what was there before.

    Args:
        path: Where to; the file appears whole or not at all.
        turns: Those of each recording, under its name.

    Raises:
        ArgumentError: if two names would become one.
        InputError: if the file cannot be written there.
    """
    return write_at_once(path, as_rttm(turns))


def _fields(names: Iterable[str]) -> dict[str, str]:
    """Return each name as a field of RTTM, which has no blanks and is not empty."""
    fields: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in names:
        field = fields[name] = UNWRITABLE.sub("_", normalize("NFC", name)) or "<NA>"
        if field in taken:
            raise ArgumentError(
                "names must differ when _ stands for their blanks; "
                f"got “{shown(taken[field])}” and “{shown(name)}”."
            )
        taken[field] = name
    return fields


def _seconds(
    path: str | os.PathLike[str], number: int, fields: Sequence[str]
) -> tuple[float, float]:
    """Return a start, which is none before 0, and what stands behind it."""
    for field in fields:
        if not NUMBER.fullmatch(field) or abs(float(field)) > MOST_SECONDS:
            raise InputError(
                f"{place_of(path, number)} must give times in seconds, such as 12.34; "
                f"got “{shown(field)}”."
            )
    start, other = (round(float(field), DECIMALS) for field in fields)
    if start < 0:
        raise InputError(
            f"{place_of(path, number)} must begin at 0 s or later; got {shown(fields[0])}."
        )
    return start, other
