"""From the text of a token to a label that shows every character of it."""

import unicodedata

STAND_INS = {"\n": "↵", "\t": "⇥", " ": "␣", "\u00a0": "␣", "\u3000": "␣"}
EMPTY = "∅"
ISOLATE, END_OF_ISOLATE = "\u2068", "\u2069"
JOINERS = "\u200c\u200d"


def readable(label: str, most_characters: int = 24) -> str:
    """Return `label` with visible stand-ins for what cannot be seen, cut to `most_characters`.

    Spaces around a word are left out; a label of nothing but spaces shows them. Joiners inside a
    word stay, because they shape its letters. Other control and format characters appear as their
    code.

    >>> readable(" word"), readable("  "), readable("a\\n"), readable("x\\u200by")
    ('word', '␣␣', 'a↵', 'xU+200By')
    """
    core = label.strip(" ")
    if not core:
        return STAND_INS[" "] * len(label) or EMPTY
    if len(core) > most_characters:
        core = core[: most_characters - 1].rstrip(JOINERS) + "…"
    shown = "".join(_visible(core, i) for i in range(len(core)))
    return shown or EMPTY


def in_line(words: str) -> str:
    """Return words for a line of a terminal, which no line end or escape of theirs can break.

    Words from right to left are isolated, or numbers and arrows between two of them would turn
    around, too.

    >>> in_line("two\\nlines"), in_line("سلام")
    ('two↵lines', '\\u2068سلام\\u2069')
    """
    shown = readable(words, len(words))
    if any(unicodedata.bidirectional(character) in ("R", "AL") for character in shown):
        return f"{ISOLATE}{shown}{END_OF_ISOLATE}"
    return shown


def code(character: str) -> str:
    """Return the code of a character in the usual notation.

    >>> code("一")
    'U+4E00'
    """
    return f"U+{ord(character):04X}"


def width_in_letters(label: str) -> float:
    """Return about how many Latin letters wide `label` is drawn.

    >>> width_in_letters("abc"), width_in_letters("他说")
    (3.0, 3.4)
    """
    wide = {"W": 1.7, "F": 1.7}
    return sum(
        0.0 if unicodedata.combining(c) else wide.get(unicodedata.east_asian_width(c), 1.0)
        for c in label
    )


def _visible(text: str, i: int) -> str:
    character = text[i]
    if character == " ":
        return character
    if character in STAND_INS:
        return STAND_INS[character]
    if character in JOINERS and 0 < i < len(text) - 1:
        return character
    # Variation selectors only choose between two looks of the character before them.
    if "\ufe00" <= character <= "\ufe0f":
        return ""
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs"):
        return code(character)
    return character
