"""From pieces of text, as a tokenizer cuts it, to the words that are spoken."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

_PRONOUNCED = "%&@#"
"""Punctuation, to Unicode, that people say."""

_NOTES_OF_MUSIC = "♩♪♫♬"
_OPENING = "\"'¿¡"
"""Marks that open when a blank stands before them; brackets say by themselves which they are."""

_WITHOUT_BLANKS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x9FFF),  # Chinese characters
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""Scripts whose words have no blanks between them."""


@dataclass
class Spoken:
    """A word: its text with punctuation, and the numbers of the tokens that are spoken."""

    text: str
    tokens: list[int] = field(default_factory=list)


def spoken_words(pieces: Sequence[str]) -> list[Spoken]:
    """Return the words of a text cut into pieces, one piece for each token.

    A word begins with a blank; in scripts without blanks each whole piece is a word. Punctuation
    belongs to the word before it, but quotes and brackets that open to the word after. It has no
    tokens of its own: nobody speaks it.

    Args:
        pieces: The text of each token; empty where a character is not yet complete.

    Example:
        >>> [word.text for word in spoken_words([" Well", "-", "known", ",", " he", " said", "."])]
        ['Well-known,', 'he', 'said.']
        >>> [(word.text, word.tokens) for word in spoken_words(["我们", "", "走", "。"])]
        [('我们', [0]), ('走。', [1, 2])]
    """
    words: list[Spoken] = []
    opening, begun, before = "", [], ""
    for number, piece in enumerate(pieces):
        begun.append(number)
        if not piece:
            continue
        tokens, begun = begun, []
        if not any(_is_spoken(letter) for letter in piece):
            if not words or not piece.strip() or _opens(piece):
                opening += piece
            else:
                words[-1].text += opening + piece.rstrip()
                opening = ""
        elif opening or not words or _parts(before, piece):
            words.append(Spoken((opening + piece).strip(), tokens))
            opening = ""
        else:
            words[-1].text += piece
            words[-1].tokens += tokens
        before = piece
    if words:
        words[-1].text = (words[-1].text + opening).strip()
    return words


def _is_spoken(letter: str) -> bool:
    if letter.isspace() or letter in _NOTES_OF_MUSIC:
        return False
    return letter in _PRONOUNCED or not unicodedata.category(letter).startswith("P")


def _opens(marks: str) -> bool:
    last = marks.rstrip()[-1]
    is_after_blank = marks[0].isspace()
    return unicodedata.category(last) in ("Ps", "Pi") or (is_after_blank and last in _OPENING)


def _parts(before: str, piece: str) -> bool:
    """Return whether a word ends between two pieces."""
    if piece[0].isspace() or before[-1].isspace():
        return True
    return _has_no_blanks(piece[0]) or _has_no_blanks(before[-1])


def _has_no_blanks(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in _WITHOUT_BLANKS)
