"""WebVTT: who speaks when, or who says which words, as captions that a player shows."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from heedmap.analysis.word_times import Word
from heedmap.errors import MissingExtraError
from heedmap.speech.turns import Turn

MOST_CHARACTERS = 84
"""Of one caption: two lines of 42, as is usual for subtitles."""

MOST_SECONDS = 7.0
PAUSE_SECONDS = 1.0
"""A caption ends where its speaker pauses for longer."""

NEAR_SECONDS = 0.5
"""How far outside all turns a word may lie and still be given to the nearest.

Turns and the times of words come from different models, which differ by some tenths of a second.
"""


@dataclass(frozen=True)
class SpokenWords:
    """Words in a row that one speaker says.

    Attributes:
        speaker: Who says them; None where nobody was found to speak.
        words: The words, in order; at least one.
    """

    speaker: str | None
    words: tuple[Word, ...]

    @property
    def start_seconds(self) -> float:
        """Where the first word begins."""
        return self.words[0].start_seconds

    @property
    def end_seconds(self) -> float:
        """Where the last word ends."""
        return self.words[-1].end_seconds

    @property
    def text(self) -> str:
        """The words, with blanks between them."""
        return " ".join(word.text for word in self.words)


def words_by_speaker(words: Sequence[Word], turns: Iterable[Turn]) -> list[SpokenWords]:
    """Return who says which words.

    A word belongs to the turn with which it has most time in common, or to the nearest within half
    a second where it has none. Of two turns that hold it alike, as where two speak at once, it is
    given to the speaker of the word before, else to the turn that began first.

    Args:
        words: In the order in which they are spoken.
        turns: Who speaks when, in any order.

    Returns:
        The words in their order, those in a row of one speaker together.

    Cost: one sort of the turns, then one walk along both.

    Example:
        >>> words = [Word("Hello.", 0.1, 0.6, 1.0, (0,)), Word("Hi!", 1.1, 1.4, 1.0, (1,))]
        >>> turns = [Turn(0.0, 1.0, "speaker 1"), Turn(1.0, 2.0, "speaker 2")]
        >>> [(said.speaker, said.text) for said in words_by_speaker(words, turns)]
        [('speaker 1', 'Hello.'), ('speaker 2', 'Hi!')]
    """
    told: list[tuple[str | None, Word]] = []
    speaker = None
    for word, near in _with_near(words, sorted(turns)):
        speaker = _speaker_of(word, near, speaker)
        told.append((speaker, word))
    return [
        SpokenWords(speaker, tuple(word for _, word in row))
        for speaker, row in groupby(told, key=itemgetter(0))
    ]


def as_vtt(turns: Iterable[Turn], words: Sequence[Word] | None = None) -> str:
    """Return WebVTT in which each caption is in the voice of its speaker.

    Args:
        turns: Who speaks when.
        words: What is said, in order. Without it there is a caption for each turn, whose text is
            the name of the speaker.

    Returns:
        The text of a file; captions may overlap in time, as turns do.

    Raises:
        MissingExtraError: if webvtt-py is not installed.

    Example:
        >>> print(as_vtt([Turn(0.5, 2.0, "speaker 1")]))
        WEBVTT
        <BLANKLINE>
        00:00:00.500 --> 00:00:02.000
        <v speaker 1>speaker 1</v>
        <BLANKLINE>
    """
    try:
        from webvtt import Caption, WebVTT
        from webvtt.models import Timestamp
    except ImportError:
        raise MissingExtraError("webvtt-py", "speech") from None

    captions = []
    for start_seconds, end_seconds, speaker, text in _shown(turns, words):
        start = round(1000 * start_seconds)
        # A player takes none that ends where it begins.
        end = max(round(1000 * end_seconds), start + 1)
        first, last = (str(Timestamp.from_seconds(time / 1000)) for time in (start, end))
        captions.append(Caption(first, last, _in_voice(speaker, text)))
    return WebVTT(captions=captions).content


def _shown(
    turns: Iterable[Turn], words: Sequence[Word] | None
) -> Iterator[tuple[float, float, str | None, str]]:
    """Yield start, end, speaker and text of each caption."""
    if words is None:
        for turn in sorted(turns):
            yield turn.start_seconds, turn.end_seconds, turn.speaker, turn.speaker
        return
    for said in words_by_speaker(words, turns):
        for part in _short(said):
            yield part.start_seconds, part.end_seconds, part.speaker, part.text


def _short(said: SpokenWords) -> Iterator[SpokenWords]:
    """Yield pieces that fit into a caption, cut at pauses or where it is full."""
    piece: list[Word] = []
    for word in said.words:
        if piece and not _fits(SpokenWords(said.speaker, tuple(piece)), word):
            yield SpokenWords(said.speaker, tuple(piece))
            piece = []
        piece.append(word)
    yield SpokenWords(said.speaker, tuple(piece))


def _fits(piece: SpokenWords, word: Word) -> bool:
    return (
        word.start_seconds - piece.end_seconds <= PAUSE_SECONDS
        and word.end_seconds - piece.start_seconds <= MOST_SECONDS
        and len(piece.text) + 1 + len(word.text) <= MOST_CHARACTERS
    )


def _in_voice(speaker: str | None, text: str) -> str:
    shown = _escaped(text)
    return f"<v {_escaped(speaker)}>{shown}</v>" if speaker else shown


def _escaped(text: str) -> str:
    """Return a text without line ends, and without what WebVTT would take for a tag."""
    return html.escape(" ".join(text.split()), quote=False)


def _with_near(words: Sequence[Word], turns: Sequence[Turn]) -> Iterator[tuple[Word, list[Turn]]]:
    """Yield each word with the turns around it; words and turns are in order."""
    near: list[Turn] = []
    begun = 0
    for word in words:
        while begun < len(turns) and turns[begun].start_seconds <= word.end_seconds + NEAR_SECONDS:
            near.append(turns[begun])
            begun += 1
        near = [turn for turn in near if turn.end_seconds >= word.start_seconds - NEAR_SECONDS]
        yield word, near


def _speaker_of(word: Word, near: Sequence[Turn], before: str | None) -> str | None:
    """Return who says a word, of the turns around it, when `before` said the one before it."""
    closest = max((_common_seconds(word, turn) for turn in near), default=-math.inf)
    if closest < -NEAR_SECONDS:
        return None
    speakers = [turn.speaker for turn in near if _common_seconds(word, turn) == closest]
    return before if before in speakers else speakers[0]


def _common_seconds(word: Word, turn: Turn) -> float:
    """Return how long word and turn overlap; below 0, how far they are apart."""
    common = min(word.end_seconds, turn.end_seconds) - max(word.start_seconds, turn.start_seconds)
    return round(common, 6)
