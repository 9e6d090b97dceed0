"""Which recordings of a reference and a hypothesis are compared, and whether they are the same."""

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar
from unicodedata import combining, normalize

from heedmap.errors import InputError
from heedmap.speech.files import shown
from heedmap.speech.turns import Turn, spoken_spans, within

MOST_NAMES = 3
ENDINGS = re.compile(r"\.(wav|flac|mp3|m4a|ogg|opus|sph|mp4|mkv|rttm)$")

Span = tuple[float, float]
Part = TypeVar("Part")


@dataclass(frozen=True)
class Pair:
    """What is said of one recording by reference and hypothesis, and where it is scored.

    Attributes:
        file: The name of the recording.
        reference: The true turns.
        hypothesis: The turns that were found.
        spans: Starts and ends of what is scored, in seconds, in order, none touching.
    """

    file: str
    reference: tuple[Turn, ...]
    hypothesis: tuple[Turn, ...]
    spans: tuple[Span, ...]


def paired(
    reference: Mapping[str, Iterable[Turn]],
    hypothesis: Mapping[str, Iterable[Turn]],
    uem: Mapping[str, Iterable[Span]] | None,
) -> tuple[list[Pair], list[str]]:
    """Return the recordings to compare, sorted by name, and remarks for people.

    Those that the UEM names are compared or, without one, those of the reference; each of these
    from the first to the last turn of either side. What the hypothesis lacks of them is missed.

    Raises:
        InputError: if there is nothing to compare: no turns in the reference, other recordings in
            the hypothesis or the UEM, or a UEM in which the reference has no speech.
    """
    true, found = _by_name(reference), _by_name(hypothesis)
    if not any(true.values()):
        raise InputError("reference must hold turns; got none. Is it the right file?")
    if uem is None:
        limits = {file: _extent(own, found.get(file, [])) for file, own in true.items()}
    else:
        limits = {file: _in_order(spans) for file, spans in _by_name(uem).items()}
        _check_same("uem", limits.keys(), true.keys())
    _check_same("hypothesis", found.keys(), limits.keys() | true.keys())
    pairs = [
        Pair(file, tuple(true.get(file, ())), tuple(found.get(file, ())), tuple(limits[file]))
        for file in sorted(limits)
    ]
    if not any(within(pair.reference, pair.spans) for pair in pairs):
        raise InputError("uem must cover speech of the reference; got stretches without any.")
    notes = _notes(pairs, left_out=(true.keys() | found.keys()) - limits.keys())
    if uem is None:
        notes.append("without a UEM, a file is scored from the first to the last turn of either")
    return pairs, notes


def _notes(pairs: list[Pair], left_out: AbstractSet[str]) -> list[str]:
    silent = [pair.file for pair in pairs if not pair.reference]
    missed = [pair.file for pair in pairs if pair.reference and not pair.hypothesis]
    told = [
        (silent, "the reference has no speech in"),
        (missed, "the hypothesis has nothing, and misses all, in"),
        (left_out, "not scored, because the reference or the UEM does not name it:"),
    ]
    return [f"{what} {_listed(files)}" for files, what in told if files]


def _by_name(given: Mapping[str, Iterable[Part]]) -> dict[str, list[Part]]:
    """Return what is given, with names in Unicode's composed form."""
    named: dict[str, list[Part]] = {}
    for file, parts in given.items():
        named.setdefault(normalize("NFC", file), []).extend(parts)
    return named


def _extent(*sides: list[Turn]) -> list[Span]:
    """Return the stretch from the first to the last turn of all sides."""
    turns = [turn for side in sides for turn in side]
    if not turns:
        return []
    return [(min(t.start_seconds for t in turns), max(t.end_seconds for t in turns))]


def _in_order(spans: Iterable[Span]) -> list[Span]:
    return spoken_spans(Turn(start, end, "") for start, end in spans)


def _check_same(what: str, given: AbstractSet[str], wanted: AbstractSet[str]) -> None:
    """Refuse names of which none is wanted, or one is written almost as a wanted one."""
    unknown, free = given - wanted, wanted - given
    alike = [(a, b) for a in sorted(unknown) for b in sorted(free) if _bare(a) == _bare(b)]
    if not unknown or (given & wanted and not alike):
        return
    hint = "If it is the same recording, write one name in both files."
    if alike:
        name, other = alike[0]
        hint = f"“{shown(name)}” and “{shown(other)}” differ in accents, case or ending. {hint}"
    raise InputError(
        f"{what} must be about the recordings of the reference; got {_listed(unknown)} where the "
        f"reference has {_listed(free)}. {hint}"
    )


def _bare(name: str) -> str:
    """Return a name without accents, case, folders and the ending of a sound.

    >>> _bare("Takes/Trñ00.WAV")
    'trn00'
    """
    letters = "".join(c for c in normalize("NFKD", name) if not combining(c)).casefold()
    return ENDINGS.sub("", letters.replace("\\", "/").rsplit("/", 1)[-1])


def _listed(files: Iterable[str]) -> str:
    names = sorted(files)
    first = ", ".join(f"“{shown(name)}”" for name in names[:MOST_NAMES])
    return f"{first} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else first
