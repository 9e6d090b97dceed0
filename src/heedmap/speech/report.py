"""What was heard in words, for the terminal."""

from collections.abc import Sequence

from heedmap.plot.labels import in_line
from heedmap.plot.speakers import weight_words
from heedmap.plot.ticks import CLOCK_FROM_SECONDS, clock
from heedmap.speech.captions import words_by_speaker
from heedmap.speech.evidence import Evidence, Look
from heedmap.speech.hearing import Heard
from heedmap.speech.kinds import KIND_NAMES
from heedmap.speech.summary import seconds_of
from heedmap.speech.turns import Turn

MOST_LOOKS = 3
"""As many as the evidence has of each side: the strongest of both are then the strongest of all."""
HALF = 0.5


def report(heard: Heard) -> str:
    """Return what a person reads: the speakers, what else is heard, and every turn with reasons."""
    parts = [_what(heard)]
    if heard.turns:
        parts += [_speakers(heard), _table(heard)]
    if heard.words:
        parts.append(_words(heard))
    if heard.notes:
        parts.append("\n".join(f"note: {note}" for note in heard.notes))
    return "\n\n".join(parts) + "\n"


def _what(heard: Heard) -> str:
    length = _moment(heard.duration_seconds, heard)
    people, turns = _counted(len(heard.speakers), "speaker"), _counted(len(heard.turns), "turn")
    seconds = {kind: sum(end - start for start, end in heard.spans(kind)) for kind in KIND_NAMES}
    kinds = ", ".join(f"{kind} {_share(seconds[kind], heard)}" for kind in KIND_NAMES)
    return f"{in_line(heard.name)}: {length}; {people}, {turns}\nheard: {kinds}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _share(seconds: float, heard: Heard) -> str:
    return f"{seconds / heard.duration_seconds:.1%}"


def _speakers(heard: Heard) -> str:
    width = max(len(speaker) for speaker in heard.speakers)
    lines = []
    for speaker in heard.speakers:
        seconds = seconds_of(speaker, heard.turns)
        turns = _counted(sum(turn.speaker == speaker for turn in heard.turns), "turn")
        lines.append(
            f"{speaker:{width}}  {_moment(seconds, heard):>9}  {_share(seconds, heard):>6}  {turns}"
        )
    return "\n".join(lines)


def _table(heard: Heard) -> str:
    several = len(heard.speakers) > 1
    head = (
        "each turn, and the turns that it looked at most, with weights; what is missing to 1 went "
        "to itself and to others"
    )
    if several:
        head += (
            "\n(sure: how much more alike to its speaker than to the next; above 0.5 is sure, "
            "about 0 a guess)"
        )
    return "\n".join([head, *(_line(number, heard) for number in range(len(heard.turns)))])


def _line(place: int, heard: Heard) -> str:
    found = heard.evidence[place]
    sure = "" if found.margin is None else f" · sure {found.margin:z.2f}"
    turn = found.turn
    width = len(str(len(heard.turns)))
    span = f"{_span(turn, heard)}  {turn.speaker}{sure}"
    return f"{place + 1:{width}}  {span} · {_looked_at(found, heard)}"


def _looked_at(found: Evidence, heard: Heard) -> str:
    looks: Sequence[Look] = sorted(
        (*found.earlier, *found.later), key=lambda look: look.weight, reverse=True
    )[:MOST_LOOKS]
    if not looks and found.own_weight > HALF:
        return f"looked at itself ({found.own_weight:.2f})"
    if not looks:
        return "looked at no turn more than at others"
    named = []
    for look in looks:
        other = f", {look.turn.speaker}" if look.turn.speaker != found.turn.speaker else ""
        named.append(f"{_span(look.turn, heard)} ({weight_words(look.weight)}{other})")
    return "looked at " + ", ".join(named)


def _words(heard: Heard) -> str:
    lines = [
        f"{_moment(said.start_seconds, heard)}  {said.speaker or 'nobody'}: {in_line(said.text)}"
        for said in words_by_speaker(heard.words or (), heard.turns)
    ]
    return "\n".join(["words, by Whisper tiny.en (it hears English, whatever is spoken):", *lines])


def _span(turn: Turn, heard: Heard) -> str:
    return f"{_moment(turn.start_seconds, heard)}–{_moment(turn.end_seconds, heard)}"


def _moment(seconds: float, heard: Heard) -> str:
    """Return a time as minutes and seconds, with hours where the recording has any."""
    return clock(seconds, max(heard.duration_seconds, CLOCK_FROM_SECONDS), 1)
